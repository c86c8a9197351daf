//! Reads a text byte by byte: what the lexers of both dialects have in common.

use super::{Span, Token, TokenKind, Word};
use crate::hint::{self, HintComment};

/// Maximum length of a text in bytes, so that positions fit `u32`. No message is longer.
const LENGTH_MAX: usize = u32::MAX as usize;

/// The byte in lower case if it can be part of an identifier, otherwise 0.
const FOLDED: [u8; 256] = folded();

/// A text and a position in it.
#[derive(Debug, Clone)]
pub(crate) struct TextReader<'a> {
    text: &'a [u8],
    at: usize,
    hint: Option<HintComment<'a>>,
}

impl<'a> TextReader<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Self {
        TextReader {
            text: text.get(..LENGTH_MAX).unwrap_or(text),
            at: 0,
            hint: None,
        }
    }

    /// Returns the whole text.
    pub(crate) fn text(&self) -> &'a [u8] {
        self.text
    }

    /// Returns the first hint in the comments passed so far.
    pub(crate) fn hint(&self) -> Option<HintComment<'a>> {
        self.hint
    }

    #[inline]
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    #[inline]
    pub(crate) fn set_position(&mut self, at: u32) {
        self.at = at as usize;
    }

    /// Returns the byte at that distance, or 0 after the end.
    #[inline]
    pub(crate) fn byte(&self, ahead: usize) -> u8 {
        let at = self.at.wrapping_add(ahead);
        self.text.get(at).copied().unwrap_or(0)
    }

    /// Returns the byte before the position.
    pub(crate) fn byte_before(&self) -> Option<u8> {
        let before = self.at.checked_sub(1)?;
        self.text.get(before).copied()
    }

    #[inline]
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Skips bytes, which the caller must have checked to exist.
    #[inline]
    pub(crate) fn skip(&mut self, count: usize) {
        self.at = self.at.wrapping_add(count);
    }

    /// Returns a token of the next `length` bytes, and skips them.
    #[inline]
    pub(crate) fn take(&mut self, kind: TokenKind, length: usize) -> Token {
        self.take_word(kind, length, Word(0))
    }

    /// Returns a token like [`TextReader::take`], with its bytes in lower case.
    #[inline]
    pub(crate) fn take_word(&mut self, kind: TokenKind, length: usize, word: Word) -> Token {
        let start = self.at;
        self.skip(length);
        Token {
            word,
            ..self.since(kind, start)
        }
    }

    /// Returns the token from `start` to the position.
    #[inline]
    pub(crate) fn since(&self, kind: TokenKind, start: usize) -> Token {
        let span = Span {
            start: start as u32,
            end: self.at as u32,
        };
        Token {
            kind,
            span,
            word: Word(0),
        }
    }

    /// Returns the token from `start` to the end of the text, which ends within it.
    pub(crate) fn unterminated(&mut self, start: usize) -> Token {
        self.at = self.text.len();
        self.since(TokenKind::Broken, start)
    }

    /// Reads an identifier or keyword.
    #[inline]
    pub(crate) fn word(&mut self) -> Token {
        let rest = self.rest();
        let mut word = 0_u64;
        let mut length = 0_usize;
        for byte in rest {
            let folded = folded_byte(*byte);
            if folded == 0 {
                break;
            }
            word = word << 8 | u64::from(folded);
            length = length.wrapping_add(1);
        }
        let word = match length {
            0..=8 => Word(u128::from(word)),
            9..=16 => long_word(rest.get(..length).unwrap_or_default()),
            _ => Word(0),
        };
        self.take_word(TokenKind::Word, length, word)
    }

    /// Skips a comment of that length, and records its hint.
    pub(crate) fn skip_comment(&mut self, length: usize) {
        let comment = self.rest().get(..length).unwrap_or_default();
        if self.hint.is_none() {
            self.hint = hint::hint(comment);
        }
        self.skip(length);
    }

    /// Skips `/* … */`, in which up to `depth_max` comments nest. An unterminated one is a token
    /// that extends to the end of the text.
    pub(crate) fn block_comment(&mut self, depth_max: usize) -> Option<Token> {
        let rest = self.rest();
        let mut depth = 1_usize;
        let mut at = 2_usize;
        while depth > 0 {
            let ahead = rest.get(at..).unwrap_or_default();
            let Some(found) = memchr::memchr2(b'*', b'/', ahead) else {
                return Some(self.take(TokenKind::Broken, rest.len()));
            };
            at = at.saturating_add(found);
            let step = match rest.get(at..) {
                Some([b'*', b'/', ..]) => {
                    depth = depth.saturating_sub(1);
                    2
                }
                Some([b'/', b'*', ..]) if depth <= depth_max => {
                    depth = depth.saturating_add(1);
                    2
                }
                _ => 1,
            };
            at = at.saturating_add(step);
        }
        self.skip_comment(at);
        None
    }

    /// Reads a string or name whose opening quote is `prefix` bytes ahead. `escapes`: a backslash
    /// escapes the next byte.
    #[inline]
    pub(crate) fn quoted(
        &mut self,
        kind: TokenKind,
        prefix: usize,
        quote: u8,
        escapes: bool,
    ) -> Token {
        let start = self.at;
        self.skip(prefix.saturating_add(1));
        if !self.skip_quoted(quote, escapes) {
            return self.unterminated(start);
        }
        self.since(kind, start)
    }

    /// Skips from after the opening quote to after the closing one. Returns false if there is none.
    #[inline]
    pub(crate) fn skip_quoted(&mut self, quote: u8, escapes: bool) -> bool {
        let other = if escapes { b'\\' } else { quote };
        loop {
            let Some(found) = memchr::memchr2(quote, other, self.rest()) else {
                return false;
            };
            self.skip(found);
            let (first, next) = (self.byte(0), self.byte(1));
            if first == quote && next != quote {
                self.skip(1);
                return true;
            }
            if self.rest().len() < 2 {
                // A backslash is the last byte.
                return false;
            }
            self.skip(2);
        }
    }
}

const fn folded() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte = 0_u8;
    loop {
        let part = matches!(
            byte,
            b'A'..=b'Z' | b'a'..=b'z' | b'_' | b'$' | b'0'..=b'9' | 0x80..=0xff
        );
        if part {
            #[expect(
                clippy::indexing_slicing,
                reason = "computed by the compiler, and a byte is always an index of 256"
            )]
            {
                table[byte as usize] = byte.to_ascii_lowercase();
            }
        }
        match byte.checked_add(1) {
            Some(next) => byte = next,
            None => return table,
        }
    }
}

#[inline]
fn folded_byte(byte: u8) -> u8 {
    FOLDED.get(usize::from(byte)).copied().unwrap_or(0)
}

/// Returns the value of a word that does not fit into eight bytes.
fn long_word(written: &[u8]) -> Word {
    let fold = |word, byte: &u8| word << 8 | u128::from(folded_byte(*byte));
    Word(written.iter().fold(0_u128, fold))
}

/// Returns whether the byte can be part of an identifier.
#[inline]
pub(crate) fn is_name_byte(byte: u8) -> bool {
    folded_byte(byte) != 0
}

/// Returns the number of digits at the beginning.
pub(crate) fn digits_length(rest: &[u8]) -> usize {
    rest.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// Returns the length of a number with its fraction and exponent. `digits` returns the number of
/// digits at a position. `has_ranges`: `1..2` is two numbers around the operator `..`.
pub(crate) fn decimal_length(
    rest: &[u8],
    digits: impl Fn(usize) -> usize,
    has_ranges: bool,
) -> usize {
    let mut length = digits(0);
    let is_range = has_ranges && rest.get(length.saturating_add(1)) == Some(&b'.');
    if rest.get(length) == Some(&b'.') && !is_range {
        length = length.saturating_add(1);
        length = length.saturating_add(digits(length));
    }
    let exponent = rest.get(length..).unwrap_or_default();
    let Some(marks) = exponent_mark_length(exponent) else {
        return length;
    };
    length = length.saturating_add(marks);
    length.saturating_add(digits(length))
}

/// Returns the length of the `e`, with its sign, if digits of an exponent follow.
fn exponent_mark_length(rest: &[u8]) -> Option<usize> {
    match rest {
        [b'e' | b'E', b'0'..=b'9', ..] => Some(1),
        [b'e' | b'E', b'+' | b'-', b'0'..=b'9', ..] => Some(2),
        _ => None,
    }
}
