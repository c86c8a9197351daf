//! Lexer for PostgreSQL (§4.1 "Lexical Structure"; the server's `scan.l`).

use crate::hint::{self, HintComment};
use crate::token::{Span, Token, TokenKind, Word};

/// Maximum length of a text in bytes, so that positions fit `u32`. No message is longer.
const LENGTH_MAX: usize = u32::MAX as usize;

/// Iterator over the tokens of a text.
#[derive(Debug, Clone)]
pub struct Tokens<'a> {
    text: &'a [u8],
    at: usize,
    /// True if `standard_conforming_strings` is off: backslashes are escapes in plain strings too.
    backslashes: bool,
    hint: Option<HintComment<'a>>,
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

/// The byte in lower case if it can be part of an identifier, otherwise 0.
const FOLDED: [u8; 256] = folded();

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

impl<'a> Tokens<'a> {
    /// Creates a lexer for a text, which ends at the first zero byte. `backslashes` must be true if
    /// the session's `standard_conforming_strings` is off.
    #[must_use]
    pub fn new(text: &'a [u8], backslashes: bool) -> Self {
        let text = text.get(..LENGTH_MAX).unwrap_or(text);
        let end = memchr::memchr(0, text).unwrap_or(text.len());
        Tokens {
            text: text.get(..end).unwrap_or_default(),
            at: 0,
            backslashes,
            hint: None,
        }
    }

    /// Returns the first hint in the comments passed so far.
    #[must_use]
    pub(crate) fn hint(&self) -> Option<HintComment<'a>> {
        self.hint
    }

    /// Returns the next token; at the end of the text, [`TokenKind::End`] on every call.
    #[inline]
    pub fn next_token(&mut self) -> Token {
        loop {
            let first = self.byte(0);
            match class(first) {
                Class::Blank => self.skip(1),
                Class::Letter => return self.word(first),
                Class::Single => return self.take(single(first), 1),
                Class::Digit => return self.number(),
                Class::Operator => {
                    if let Some(token) = self.operator_or_comment(first) {
                        return token;
                    }
                }
                Class::Quote => return self.string(0, self.backslashes),
                Class::DoubleQuote => return self.quoted_name(TokenKind::QuotedName, 1),
                Class::Dollar => return self.dollar(),
                Class::Dot if self.byte(1).is_ascii_digit() => return self.number(),
                Class::Dot if self.byte(1) == b'.' => return self.take(TokenKind::Operator, 2),
                Class::Dot => return self.take(TokenKind::Dot, 1),
                Class::Colon => return self.colon(),
                Class::Zero => return self.take(TokenKind::End, 0),
                Class::Other => return self.take(TokenKind::Broken, 1),
            }
        }
    }

    /// Rewinds to the start of `token`, which was read too early.
    pub(super) fn put_back(&mut self, token: Token) {
        self.at = token.span.start as usize;
    }

    /// Returns the byte at that distance, or 0 after the end.
    #[inline]
    fn byte(&self, ahead: usize) -> u8 {
        let at = self.at.wrapping_add(ahead);
        self.text.get(at).copied().unwrap_or(0)
    }

    #[inline]
    fn rest(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Skips bytes, which the caller must have checked to exist.
    #[inline]
    fn skip(&mut self, count: usize) {
        self.at = self.at.wrapping_add(count);
    }

    #[inline]
    fn take(&mut self, kind: TokenKind, length: usize) -> Token {
        let start = self.at;
        self.skip(length);
        self.since(kind, start, Word(0))
    }

    #[inline]
    fn since(&self, kind: TokenKind, start: usize, word: Word) -> Token {
        let span = Span {
            start: start as u32,
            end: self.at as u32,
        };
        Token { kind, span, word }
    }

    /// Reads an identifier, or a quoted form with a prefix: `E'`, `B'`, `X'`, `N'`, `U&'`, `U&"`.
    #[inline]
    fn word(&mut self, first: u8) -> Token {
        let quoted = match (first, self.byte(1)) {
            (b'e' | b'E', b'\'') => Some(self.string(1, true)),
            (b'b' | b'B' | b'x' | b'X', b'\'') => Some(self.string(1, false)),
            (b'n' | b'N', b'\'') => Some(self.string(1, self.backslashes)),
            (b'u' | b'U', b'&') => match self.byte(2) {
                b'\'' => Some(self.string(2, false)),
                b'"' => Some(self.quoted_name(TokenKind::EscapedName, 3)),
                _ => None,
            },
            _ => None,
        };
        if let Some(token) = quoted {
            return token;
        }
        let start = self.at;
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
        self.skip(length);
        let word = match length {
            0..=8 => Word(u128::from(word)),
            9..=16 => long_word(rest.get(..length).unwrap_or_default()),
            _ => Word(0),
        };
        self.since(TokenKind::Word, start, word)
    }

    /// Reads digits with a point, an exponent, or in another base. Letters after them begin a new
    /// word, as in servers before 15.
    fn number(&mut self) -> Token {
        let rest = self.rest();
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
            decimal_length(rest, digits)
        };
        self.take(TokenKind::Number, length.max(1))
    }

    fn operator_or_comment(&mut self, first: u8) -> Option<Token> {
        match (first, self.byte(1)) {
            (b'-', b'-') => {
                self.line_comment();
                return None;
            }
            (b'/', b'*') => return self.block_comment(),
            _ => {}
        }
        let rest = self.rest();
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
        let start = self.at;
        self.skip(length.max(1));
        Some(self.since(TokenKind::Operator, start, Word(word)))
    }

    fn line_comment(&mut self) {
        let rest = self.rest();
        let end = memchr::memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
        self.note(rest.get(..end).unwrap_or_default());
        self.skip(end);
    }

    /// Skips a comment (§4.1.5: "these block comments nest"). An unterminated one extends to the
    /// end of the text.
    fn block_comment(&mut self) -> Option<Token> {
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
                Some([b'/', b'*', ..]) => {
                    depth = depth.saturating_add(1);
                    2
                }
                _ => 1,
            };
            at = at.saturating_add(step);
        }
        self.note(rest.get(..at).unwrap_or_default());
        self.skip(at);
        None
    }

    fn note(&mut self, comment: &'a [u8]) {
        if self.hint.is_none() {
            self.hint = hint::hint(comment);
        }
    }

    /// Reads a string whose quote is `prefix` bytes ahead.
    fn string(&mut self, prefix: usize, backslashes: bool) -> Token {
        let start = self.at;
        self.skip(prefix.saturating_add(1));
        loop {
            if !self.skip_quoted(b'\'', backslashes) {
                self.at = self.text.len();
                return self.since(TokenKind::Broken, start, Word(0));
            }
            // §4.1.2.1: strings with a newline between them are one, with the escapes of the first.
            match continuation(self.rest()) {
                Some(blank) => self.skip(blank.saturating_add(1)),
                None => return self.since(TokenKind::String, start, Word(0)),
            }
        }
    }

    fn quoted_name(&mut self, kind: TokenKind, prefix: usize) -> Token {
        let start = self.at;
        self.skip(prefix);
        if !self.skip_quoted(b'"', false) {
            self.at = self.text.len();
            return self.since(TokenKind::Broken, start, Word(0));
        }
        self.since(kind, start, Word(0))
    }

    /// Skips from after the opening quote to after the closing one. Returns false if there is none.
    fn skip_quoted(&mut self, quote: u8, backslashes: bool) -> bool {
        let other = if backslashes { b'\\' } else { quote };
        loop {
            let Some(found) = memchr::memchr2(quote, other, self.rest()) else {
                return false;
            };
            self.skip(found);
            match (self.byte(0), self.byte(1)) {
                (b'\\', 0) => return false,
                (byte, next) if byte == quote && next != quote => {
                    self.skip(1);
                    return true;
                }
                _ => self.skip(2),
            }
        }
    }

    /// Reads `$1`, or `$tag$ … $tag$` (§4.1.2.4).
    fn dollar(&mut self) -> Token {
        let rest = self.rest();
        let name = rest.get(1..).unwrap_or_default();
        let digits = name.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits > 0 {
            return self.take(TokenKind::Parameter, digits.saturating_add(1));
        }
        let part = |byte: &&u8| folded_byte(**byte) != 0 && **byte != b'$';
        let length = name.iter().take_while(part).count();
        if name.get(length) != Some(&b'$') {
            return self.take(TokenKind::Broken, 1);
        }
        let tag_length = length.saturating_add(2);
        let (tag, body) = rest.split_at_checked(tag_length).unwrap_or((rest, &[]));
        match memchr::memmem::find(body, tag) {
            Some(end) => {
                let whole = tag_length.saturating_mul(2).saturating_add(end);
                self.take(TokenKind::String, whole)
            }
            None => self.take(TokenKind::Broken, rest.len()),
        }
    }

    fn colon(&mut self) -> Token {
        match self.byte(1) {
            b':' => self.take(TokenKind::Cast, 2),
            b'=' => self.take(TokenKind::Operator, 2),
            _ => self.take(TokenKind::Operator, 1),
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

#[inline]
fn folded_byte(byte: u8) -> u8 {
    FOLDED.get(usize::from(byte)).copied().unwrap_or(0)
}

/// Returns the value of a word that does not fit into eight bytes.
fn long_word(written: &[u8]) -> Word {
    let fold = |word, byte: &u8| word << 8 | u128::from(folded_byte(*byte));
    Word(written.iter().fold(0_u128, fold))
}

fn decimal_length(rest: &[u8], digits: impl Fn(usize) -> usize) -> usize {
    let mut length = digits(0);
    let point = rest.get(length) == Some(&b'.');
    // `1..2` is two numbers around the operator `..`.
    if point && rest.get(length.saturating_add(1)) != Some(&b'.') {
        length = length.saturating_add(1);
        length = length.saturating_add(digits(length));
    }
    let exponent = rest.get(length..).unwrap_or_default();
    let marks = match exponent {
        [b'e' | b'E', b'0'..=b'9', ..] => 1,
        [b'e' | b'E', b'+' | b'-', b'0'..=b'9', ..] => 2,
        _ => return length,
    };
    length = length.saturating_add(marks);
    length.saturating_add(digits(length))
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
