//! Recognizes texts that differ from a known text only in plain literals, without tokenizing them.
//!
//! A plain literal is a number of digits, or a string in single quotes that contains no quote and
//! no backslash. The byte before a plain literal is a blank, a comma, a parenthesis or an operator.
//! The byte after it is a blank, a comma, a parenthesis, a semicolon or the end of the text.
//! Replacing a plain literal with another of the same sort changes no other token. A text that fits
//! therefore has the same tokens, except for the content of these literals.

#[cfg(test)]
mod tests;

use memchr::memchr2;

use super::digest::piece::{Class, Pieces};
use super::token::Span;
use super::{Dialect, mysql, postgres};

/// Maximum length of a text in bytes; longer texts are not compared.
const LENGTH_MAX: usize = 4_096;

/// Maximum number of digits of a plain literal; a longer number may be of another type.
const DIGITS_MAX: usize = 18;

/// Number of bytes of a text that determine its [`shape`].
const SHAPE_LENGTH: usize = 512;

/// Text with the positions of its replaceable literals.
#[derive(Debug, Clone)]
pub(crate) struct Template {
    text: Box<[u8]>,
    literals: Box<[Span]>,
}

impl Template {
    /// Returns the template of a text; `None` if the text is too long.
    #[must_use]
    pub(crate) fn of(text: &[u8], dialect: Dialect) -> Option<Self> {
        if text.len() > LENGTH_MAX {
            return None;
        }
        let literals = match dialect {
            Dialect::Mysql(modes) => literals(text, mysql::Tokens::new(text, modes)),
            Dialect::Postgres { backslashes } => {
                literals(text, postgres::Tokens::new(text, backslashes))
            }
        };
        Some(Self {
            text: text.into(),
            literals,
        })
    }

    /// Returns whether `text` differs from the template in plain literals only.
    #[must_use]
    pub(crate) fn fits(&self, text: &[u8]) -> bool {
        self.rest_of(text) == Some(&[])
    }

    /// Returns the rest of `text` after the part that fits; `None` if it does not fit.
    fn rest_of<'t>(&self, text: &'t [u8]) -> Option<&'t [u8]> {
        let (mut rest, mut known) = (text, 0);
        for literal in &self.literals {
            rest = rest.strip_prefix(self.text.get(known..literal.start as usize)?)?;
            let is_string = literal.of(&self.text).starts_with(b"'");
            rest = rest.get(plain_literal_length(rest, is_string)?..)?;
            known = literal.end as usize;
        }
        rest.strip_prefix(self.text.get(known..)?)
    }
}

fn literals(text: &[u8], mut pieces: impl Pieces) -> Box<[Span]> {
    let mut found = Vec::new();
    while let Some(piece) = pieces.next_piece() {
        if piece.class == Class::Literal && is_plain(text, piece.span) {
            found.push(piece.span);
        }
    }
    found.into()
}

fn is_plain(text: &[u8], literal: Span) -> bool {
    let written = literal.of(text);
    let is_whole = plain_literal_length(written, written.starts_with(b"'")) == Some(written.len());
    // Digits after a dot are part of a name, digits after `/*!` a version.
    let before = (literal.start as usize).checked_sub(1);
    let before = before.and_then(|place| text.get(place));
    let begins = before.is_none_or(|byte| b" \t\r\n,(=<>+-*/%".contains(byte));
    let behind = text.get(literal.end as usize);
    let ends = behind.is_none_or(|byte| b" \t\r\n,;)".contains(byte));
    is_whole && begins && ends
}

/// Returns the length in bytes of the plain literal at the beginning of `text`; `None` if there is
/// none.
fn plain_literal_length(text: &[u8], is_string: bool) -> Option<usize> {
    if is_string {
        let quotes = 2;
        let content = text.strip_prefix(b"'")?;
        let length = memchr2(b'\'', b'\\', content)?;
        let is_whole = content.get(length) == Some(&b'\'');
        return is_whole.then_some(length.saturating_add(quotes));
    }
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    let count = digits.take(DIGITS_MAX + 1).count();
    (1..=DIGITS_MAX).contains(&count).then_some(count)
}

/// Returns a hash by which to look a template up. Texts that fit one template have the same hash,
/// except if a quoted name or a comment contains a quote, or if they are longer than
/// `SHAPE_LENGTH` and their literals differ in length. Such texts may be analyzed in full.
#[must_use]
pub(crate) fn shape(text: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0x517c_c1b7_2722_0a95;
    let mut shape = 0_u64;
    let mut is_in_word = false;
    let mut rest = text.iter().take(SHAPE_LENGTH).peekable();
    while let Some(&byte) = rest.next() {
        let is_digit = byte.is_ascii_digit();
        if is_digit && !is_in_word {
            while rest.next_if(|byte| byte.is_ascii_digit()).is_some() {}
        } else if byte == b'\'' {
            rest.by_ref().find(|byte| **byte == b'\'');
        }
        let hashed = if is_digit && !is_in_word { b'0' } else { byte };
        shape = (shape.rotate_left(5) ^ u64::from(hashed)).wrapping_mul(MULTIPLIER);
        is_in_word = byte.is_ascii_alphanumeric() && (is_in_word || !is_digit) || byte == b'_';
    }
    shape
}
