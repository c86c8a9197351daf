//! Lexer for PostgreSQL (§4.1 "Lexical Structure"; the server's `scan.l`).

use crate::hint::HintComment;
use crate::token::{Lexer, TextReader, Token, TokenKind, Word, decimal_length, is_name_byte};

/// Iterator over the tokens of a text.
#[derive(Debug, Clone)]
pub struct Tokens<'a> {
    reader: TextReader<'a>,
    /// True if `standard_conforming_strings` is off: backslashes are escapes in plain strings too.
    backslashes: bool,
}

impl Lexer for Tokens<'_> {
    #[inline]
    fn next_token(&mut self) -> Token {
        Tokens::next_token(self)
    }

    #[inline]
    fn put_back(&mut self, token: Token) {
        self.reader.set_position(token.span.start);
    }
}

/// Class of a byte, by the token that it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Other,
    Blank,
    Letter,
    Digit,
    Operator,
    Quote,
    DoubleQuote,
    Dollar,
    Dot,
    Colon,
    /// A token of one byte; see [`single`].
    Single,
    /// The value read after the end; the text itself has no zero byte.
    Zero,
}

const CLASSES: [Class; 256] = classes();

const fn classes() -> [Class; 256] {
    let mut table = [Class::Other; 256];
    let mut byte = 0_u8;
    loop {
        let class = match byte {
            0 => Class::Zero,
            b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c => Class::Blank,
            b'A'..=b'Z' | b'a'..=b'z' | b'_' | 0x80..=0xff => Class::Letter,
            b'0'..=b'9' => Class::Digit,
            b'\'' => Class::Quote,
            b'"' => Class::DoubleQuote,
            b'$' => Class::Dollar,
            b'.' => Class::Dot,
            b':' => Class::Colon,
            b'(' | b')' | b'[' | b']' | b',' | b';' => Class::Single,
            b'+' | b'-' | b'*' | b'/' | b'<' | b'>' | b'=' | b'~' | b'!' | b'@' | b'#' | b'%'
            | b'^' | b'&' | b'|' | b'`' | b'?' => Class::Operator,
            _ => Class::Other,
        };
        #[expect(
            clippy::indexing_slicing,
            reason = "computed by the compiler, and a byte is always an index of 256"
        )]
        {
            table[byte as usize] = class;
        }
        match byte.checked_add(1) {
            Some(next) => byte = next,
            None => return table,
        }
    }
}

impl<'a> Tokens<'a> {
    /// Creates a lexer for a text, which ends at the first zero byte. `backslashes` must be true if
    /// the session's `standard_conforming_strings` is off.
    #[must_use]
    pub fn new(text: &'a [u8], backslashes: bool) -> Self {
        let end = memchr::memchr(0, text).unwrap_or(text.len());
        Tokens {
            reader: TextReader::new(text.get(..end).unwrap_or_default()),
            backslashes,
        }
    }

    /// Returns the first hint in the comments passed so far.
    #[must_use]
    pub(crate) fn hint(&self) -> Option<HintComment<'a>> {
        self.reader.hint()
    }

    /// Returns the next token; at the end of the text, [`TokenKind::End`] on every call.
    #[inline]
    pub fn next_token(&mut self) -> Token {
        loop {
            let reader = &mut self.reader;
            let first = reader.byte(0);
            match class(first) {
                Class::Blank => reader.skip(1),
                Class::Letter => return self.word(first),
                Class::Single => return reader.take(single(first), 1),
                Class::Digit => return self.number(),
                Class::Operator => {
                    if let Some(token) = self.operator_or_comment(first) {
                        return token;
                    }
                }
                Class::Quote => return self.string(0, self.backslashes),
                Class::DoubleQuote => return reader.quoted(TokenKind::QuotedName, 0, first, false),
                Class::Dollar => return self.dollar(),
                Class::Dot if reader.byte(1).is_ascii_digit() => return self.number(),
                Class::Dot if reader.byte(1) == b'.' => return reader.take(TokenKind::Operator, 2),
                Class::Dot => return reader.take(TokenKind::Dot, 1),
                Class::Colon => return self.colon(),
                Class::Zero => return reader.take(TokenKind::End, 0),
                Class::Other => return reader.take(TokenKind::Broken, 1),
            }
        }
    }

    /// Reads an identifier, or a quoted form with a prefix: `E'`, `B'`, `X'`, `N'`, `U&'`, `U&"`.
    #[inline]
    fn word(&mut self, first: u8) -> Token {
        let reader = &mut self.reader;
        let quoted = match (first, reader.byte(1)) {
            (b'e' | b'E', b'\'') => Some(self.string(1, true)),
            (b'b' | b'B' | b'x' | b'X', b'\'') => Some(self.string(1, false)),
            (b'n' | b'N', b'\'') => Some(self.string(1, self.backslashes)),
            (b'u' | b'U', b'&') => match reader.byte(2) {
                b'\'' => Some(self.string(2, false)),
                b'"' => Some(reader.quoted(TokenKind::EscapedName, 2, b'"', false)),
                _ => None,
            },
            _ => None,
        };
        if let Some(token) = quoted {
            return token;
        }
        self.reader.word()
    }

    /// Reads digits with a point, an exponent, or in another base. Letters after them begin a new
    /// word, as in servers before 15.
    fn number(&mut self) -> Token {
        let rest = self.reader.rest();
        let digits = |from: usize| {
            let rest = rest.get(from..).unwrap_or_default();
            rest.iter()
                .take_while(|byte| byte.is_ascii_digit() || **byte == b'_')
                .count()
        };
        let based = matches!(rest, [b'0', b'x' | b'X', next, ..] if next.is_ascii_hexdigit())
            || matches!(rest, [b'0', b'o' | b'O' | b'b' | b'B', b'0'..=b'7', ..]);
        let length = if based {
            let hex = |byte: &&u8| byte.is_ascii_hexdigit() || **byte == b'_';
            rest.iter()
                .skip(2)
                .take_while(hex)
                .count()
                .saturating_add(2)
        } else {
            decimal_length(rest, digits, true)
        };
        self.reader.take(TokenKind::Number, length.max(1))
    }

    fn operator_or_comment(&mut self, first: u8) -> Option<Token> {
        let rest = self.reader.rest();
        match (first, self.reader.byte(1)) {
            (b'-', b'-') => {
                let end = memchr::memchr2(b'\n', b'\r', rest);
                self.reader.skip_comment(end.unwrap_or(rest.len()));
                return None;
            }
            // §4.1.5: "these block comments nest".
            (b'/', b'*') => return self.reader.block_comment(usize::MAX),
            _ => {}
        }
        let mut length = 0_usize;
        let mut word = 0_u128;
        let mut last = 0;
        for byte in rest {
            let comment = matches!((last, *byte), (b'-', b'-') | (b'/', b'*'));
            if comment {
                // The operator ends before the comment.
                length = length.saturating_sub(1);
                word >>= 8;
                break;
            }
            if class(*byte) != Class::Operator {
                break;
            }
            length = length.wrapping_add(1);
            word = word << 8 | u128::from(*byte);
            last = *byte;
        }
        let length = length.max(1);
        Some(
            self.reader
                .take_word(TokenKind::Operator, length, Word(word)),
        )
    }

    /// Reads a string whose quote is `prefix` bytes ahead.
    fn string(&mut self, prefix: usize, backslashes: bool) -> Token {
        let reader = &mut self.reader;
        let start = reader.position();
        reader.skip(prefix.saturating_add(1));
        loop {
            if !reader.skip_quoted(b'\'', backslashes) {
                return reader.unterminated(start);
            }
            // §4.1.2.1: strings with a newline between them are one, with the escapes of the first.
            match continuation(reader.rest()) {
                Some(blank) => reader.skip(blank.saturating_add(1)),
                None => return reader.since(TokenKind::String, start),
            }
        }
    }

    /// Reads `$1`, or `$tag$ … $tag$` (§4.1.2.4).
    fn dollar(&mut self) -> Token {
        let rest = self.reader.rest();
        let name = rest.get(1..).unwrap_or_default();
        let digits = name.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits > 0 {
            return self
                .reader
                .take(TokenKind::Parameter, digits.saturating_add(1));
        }
        let part = |byte: &&u8| is_name_byte(**byte) && **byte != b'$';
        let length = name.iter().take_while(part).count();
        if name.get(length) != Some(&b'$') {
            return self.reader.take(TokenKind::Broken, 1);
        }
        let tag_length = length.saturating_add(2);
        let (tag, body) = rest.split_at_checked(tag_length).unwrap_or((rest, &[]));
        match memchr::memmem::find(body, tag) {
            Some(end) => {
                let whole = tag_length.saturating_mul(2).saturating_add(end);
                self.reader.take(TokenKind::String, whole)
            }
            None => self.reader.take(TokenKind::Broken, rest.len()),
        }
    }

    fn colon(&mut self) -> Token {
        match self.reader.byte(1) {
            b':' => self.reader.take(TokenKind::Cast, 2),
            b'=' => self.reader.take(TokenKind::Operator, 2),
            _ => self.reader.take(TokenKind::Operator, 1),
        }
    }
}

#[inline]
fn single(byte: u8) -> TokenKind {
    match byte {
        b'(' => TokenKind::Open,
        b')' => TokenKind::Close,
        b'[' => TokenKind::OpenBracket,
        b']' => TokenKind::CloseBracket,
        b',' => TokenKind::Comma,
        _ => TokenKind::Semicolon,
    }
}

#[inline]
fn class(byte: u8) -> Class {
    CLASSES
        .get(usize::from(byte))
        .copied()
        .unwrap_or(Class::Other)
}

/// Returns the length of the blanks and line comments before a quote, if there is a newline among
/// them.
fn continuation(rest: &[u8]) -> Option<usize> {
    let mut newline = false;
    let mut at = 0_usize;
    loop {
        match rest.get(at..)? {
            [b'\n' | b'\r', ..] => newline = true,
            [b' ' | b'\t' | 0x0b | 0x0c, ..] => {}
            [b'-', b'-', comment @ ..] => {
                at = at.saturating_add(memchr::memchr2(b'\n', b'\r', comment)?);
                at = at.saturating_add(1);
            }
            [b'\'', ..] => return newline.then_some(at),
            _ => return None,
        }
        at = at.saturating_add(1);
    }
}
