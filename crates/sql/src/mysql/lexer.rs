//! Lexer for MySQL (manual: "Language Structure"; the server's `sql_lex.cc`).

use super::{LexerModes, optimizer};
use crate::hint::{self, HintComment};
use crate::token::{Span, Word};

/// Maximum length of a text in bytes, so that positions fit `u32`. No packet is longer.
const LENGTH_MAX: usize = u32::MAX as usize;

/// Comments for versions below this one are executed by every supported server.
const VERSION_OF_ALL: u32 = 50_700;

/// Kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TokenKind {
    /// The end of the text.
    #[default]
    End,
    /// An identifier or keyword without quotes.
    Word,
    /// A quoted identifier.
    QuotedName,
    /// A string literal of any form.
    String,
    /// A numeric literal.
    Number,
    /// `?`
    Parameter,
    /// `@name`, `@'name'`
    UserVariable,
    /// `@@name`, `@@session.name`
    SystemVariable,
    /// `(`
    Open,
    /// `)`
    Close,
    /// `,`
    Comma,
    /// `;`
    Semicolon,
    /// `.`
    Dot,
    /// Any other operator, one token per byte, except `:=`.
    Operator,
    /// A meaningless byte, the rest of a text that ends inside a string or comment, or the
    /// beginning of a comment that may or may not be executed.
    Broken,
}

/// Token and its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Token {
    /// Kind of the token.
    pub kind: TokenKind,
    /// Position of the token in the text.
    pub span: Span,
    /// Bytes of an operator or of a word of up to 16 bytes, with ASCII letters in lower case;
    /// otherwise 0.
    pub word: Word,
}

impl Token {
    /// Returns whether the token is this keyword.
    #[must_use]
    pub fn is(self, keyword: Word) -> bool {
        self.word == keyword && self.kind == TokenKind::Word
    }

    /// Returns whether the token can be an identifier.
    #[must_use]
    pub fn is_name(self) -> bool {
        matches!(self.kind, TokenKind::Word | TokenKind::QuotedName)
    }
}

/// Iterator over the tokens of a text.
#[derive(Debug, Clone)]
pub struct Tokens<'a> {
    text: &'a [u8],
    at: usize,
    modes: LexerModes,
    /// True within an executable comment `/*! … */`.
    in_comment: bool,
    versioned: bool,
    hint: Option<HintComment<'a>>,
}

impl<'a> Tokens<'a> {
    /// Creates a lexer at the beginning of a text.
    #[must_use]
    pub fn new(text: &'a [u8], modes: LexerModes) -> Self {
        Tokens {
            text: text.get(..LENGTH_MAX).unwrap_or(text),
            at: 0,
            modes,
            in_comment: false,
            versioned: false,
            hint: None,
        }
    }

    /// Creates a lexer at a position between two tokens, possibly within an executable comment.
    pub(crate) fn from(text: &'a [u8], modes: LexerModes, at: u32, in_comment: bool) -> Self {
        Tokens {
            at: at as usize,
            in_comment,
            ..Tokens::new(text, modes)
        }
    }

    /// Returns whether the position is within an executable comment.
    pub(crate) fn in_comment(&self) -> bool {
        self.in_comment
    }

    /// Returns the whole text.
    pub(crate) fn text(&self) -> &'a [u8] {
        self.text
    }

    /// Returns the modes by which the text is tokenized.
    pub(crate) fn modes(&self) -> LexerModes {
        self.modes
    }

    /// Returns the first hint in the comments passed so far.
    pub(crate) fn hint(&self) -> Option<HintComment<'a>> {
        self.hint
    }

    /// Returns whether a comment that only some servers execute was passed since the last call.
    pub(crate) fn take_versioned(&mut self) -> bool {
        std::mem::take(&mut self.versioned)
    }

    /// Returns the next token; at the end of the text, [`TokenKind::End`] on every call.
    pub fn next_token(&mut self) -> Token {
        loop {
            let Some(first) = self.rest().first().copied() else {
                // An executable comment must end.
                let kind = match std::mem::take(&mut self.in_comment) {
                    true => TokenKind::Broken,
                    false => TokenKind::End,
                };
                return self.take(kind, 0);
            };
            match first {
                blank if is_blank(blank) => self.skip(1),
                b'#' => self.line_comment(),
                b'-' if self.byte(1) == b'-' && ends_dashes(self.byte(2)) => self.line_comment(),
                b'/' if self.byte(1) == b'*' => {
                    if let Some(token) = self.block_comment() {
                        return token;
                    }
                }
                b'*' if self.in_comment && self.byte(1) == b'/' => {
                    self.in_comment = false;
                    self.skip(2);
                }
                _ => return self.token(first),
            }
        }
    }

    fn token(&mut self, first: u8) -> Token {
        match first {
            b'\'' => self.quoted(TokenKind::String, 0, first),
            b'"' if self.modes.ansi_quotes => self.quoted(TokenKind::QuotedName, 0, first),
            b'"' => self.quoted(TokenKind::String, 0, first),
            b'`' => self.quoted(TokenKind::QuotedName, 0, first),
            b'n' | b'N' | b'x' | b'X' | b'b' | b'B' if self.byte(1) == b'\'' => {
                self.quoted(TokenKind::String, 1, b'\'')
            }
            b'0'..=b'9' => self.number(),
            b'.' if self.byte(1).is_ascii_digit() && !self.is_after_name() => self.number(),
            _ if is_part(first) => self.word(),
            b'@' => self.variable(),
            b'(' => self.take(TokenKind::Open, 1),
            b')' => self.take(TokenKind::Close, 1),
            b',' => self.take(TokenKind::Comma, 1),
            b';' => self.take(TokenKind::Semicolon, 1),
            b'.' => self.take(TokenKind::Dot, 1),
            b'?' => self.take(TokenKind::Parameter, 1),
            b':' if self.byte(1) == b'=' => self.operator(2),
            b'+' | b'-' | b'*' | b'/' | b'<' | b'>' | b'=' | b'~' | b'!' | b'%' | b'^' | b'&'
            | b'|' | b':' | b'{' | b'}' => self.operator(1),
            b'\\' if self.byte(1) == b'N' => self.take(TokenKind::String, 2),
            _ => self.take(TokenKind::Broken, 1),
        }
    }

    /// Rewinds to the start of `token`, which was read too early.
    pub(crate) fn put_back(&mut self, token: Token) {
        self.at = token.span.start as usize;
    }

    fn byte(&self, ahead: usize) -> u8 {
        let at = self.at.saturating_add(ahead);
        self.text.get(at).copied().unwrap_or(0)
    }

    /// Returns whether an identifier or its closing quote immediately precedes. A dot is then a
    /// separator and no decimal point.
    fn is_after_name(&self) -> bool {
        let before = self.at.checked_sub(1).and_then(|at| self.text.get(at));
        before.is_some_and(|byte| is_part(*byte) || matches!(byte, b'`' | b'"'))
    }

    fn rest(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn skip(&mut self, count: usize) {
        self.at = self.at.saturating_add(count).min(self.text.len());
    }

    fn take(&mut self, kind: TokenKind, length: usize) -> Token {
        let start = self.at;
        self.skip(length);
        self.since(kind, start, Word(0))
    }

    fn since(&self, kind: TokenKind, start: usize, word: Word) -> Token {
        let span = Span {
            start: start as u32,
            end: self.at as u32,
        };
        Token { kind, span, word }
    }

    fn operator(&mut self, length: usize) -> Token {
        let start = self.at;
        let word = fold(self.rest().get(..length).unwrap_or_default());
        self.skip(length);
        self.since(TokenKind::Operator, start, word)
    }

    fn word(&mut self) -> Token {
        let start = self.at;
        let length = part_length(self.rest());
        let word = fold(self.rest().get(..length).unwrap_or_default());
        self.skip(length);
        self.since(TokenKind::Word, start, word)
    }

    /// Reads a number. Digits followed by letters are an identifier (`1a`), but `1e5` is a number.
    fn number(&mut self) -> Token {
        let rest = self.rest();
        let part = part_length(rest);
        let digits = digits_length(rest);
        let based = match rest {
            [b'0', b'x', ..] => base_length(rest, u8::is_ascii_hexdigit),
            [b'0', b'b', ..] => base_length(rest, |byte| matches!(byte, b'0' | b'1')),
            _ => 0,
        };
        if based == part && based > 2 {
            return self.take(TokenKind::Number, based);
        }
        let length = decimal_length(rest);
        if part > digits && length <= part && length != part {
            return self.word();
        }
        self.take(TokenKind::Number, length.max(1))
    }

    fn line_comment(&mut self) {
        let rest = self.rest();
        let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        self.note(rest.get(..end).unwrap_or_default());
        self.skip(end);
    }

    /// Skips `/* … */`, or enters an executable comment.
    fn block_comment(&mut self) -> Option<Token> {
        let rest = self.rest();
        let (maria, mark) = match rest {
            [_, _, b'!', ..] => (false, 3),
            [_, _, b'M', b'!', ..] => (true, 4),
            [_, _, b'+', ..] if !self.modes.mariadb && !optimizer::is_plain(rest) => {
                return Some(self.take(TokenKind::Broken, rest.len()));
            }
            _ => return self.skip_comment(rest, false),
        };
        let digits = rest.get(mark..).unwrap_or_default();
        let digits = digits
            .iter()
            .take(6)
            .take_while(|byte| byte.is_ascii_digit());
        let digits = match digits.count() {
            length @ (5 | 6) => length,
            _ => 0,
        };
        let end = digits.saturating_add(mark);
        let version = rest.get(mark..end).unwrap_or_default();
        let version = version.iter().fold(0_u32, |number, byte| {
            let digit = byte.wrapping_sub(b'0');
            number.saturating_mul(10).saturating_add(u32::from(digit))
        });
        self.versioned |= maria || version >= VERSION_OF_ALL;
        // Without a blank after six digits, MySQL uses five of them as the version. MySQL also
        // executes a versioned comment nested in another one, up to the end of either.
        let is_short = !self.modes.mariadb && digits == 6 && !is_blank(self.byte(end));
        if is_short || self.in_comment {
            self.in_comment = true;
            return Some(self.take(TokenKind::Broken, end));
        }
        if self.modes.executes_comment(maria, version) {
            self.in_comment = true;
            self.skip(end);
            return None;
        }
        self.skip_comment(rest, true)
    }

    /// Skips a comment. A comment that is not executed may contain others.
    fn skip_comment(&mut self, rest: &'a [u8], nests: bool) -> Option<Token> {
        let mut at = 2_usize;
        let mut inside = false;
        loop {
            let ahead = rest.get(at..).unwrap_or_default();
            let Some(found) = memchr::memchr2(b'*', b'/', ahead) else {
                return Some(self.take(TokenKind::Broken, rest.len()));
            };
            at = at.saturating_add(found);
            match rest.get(at..) {
                Some([b'*', b'/', ..]) => {
                    at = at.saturating_add(2);
                    if !inside {
                        break;
                    }
                    inside = false;
                }
                Some([b'/', b'*', ..]) if nests && !inside => {
                    at = at.saturating_add(2);
                    inside = true;
                }
                _ => at = at.saturating_add(1),
            }
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

    /// Reads a string or name whose quote is `prefix` bytes ahead.
    fn quoted(&mut self, kind: TokenKind, prefix: usize, quote: u8) -> Token {
        let start = self.at;
        self.skip(prefix.saturating_add(1));
        let escapes = kind == TokenKind::String && !self.modes.no_backslash_escapes;
        match self.skip_quoted(quote, escapes) {
            true => self.since(kind, start, Word(0)),
            false => {
                self.at = self.text.len();
                self.since(TokenKind::Broken, start, Word(0))
            }
        }
    }

    /// Skips from after the opening quote to after the closing one. Returns false if there is none.
    fn skip_quoted(&mut self, quote: u8, escapes: bool) -> bool {
        let other = if escapes { b'\\' } else { quote };
        loop {
            let Some(found) = memchr::memchr2(quote, other, self.rest()) else {
                return false;
            };
            self.skip(found);
            let closes = self.byte(0) == quote && self.rest().get(1) != Some(&quote);
            if closes {
                self.skip(1);
                return true;
            }
            if self.rest().len() < 2 {
                return false;
            }
            self.skip(2);
        }
    }

    fn variable(&mut self) -> Token {
        let start = self.at;
        if self.byte(1) == b'@' {
            self.skip(2);
            self.dotted_name();
            return self.since(TokenKind::SystemVariable, start, Word(0));
        }
        self.skip(1);
        match self.byte(0) {
            quote @ (b'\'' | b'"' | b'`') => {
                self.skip(1);
                // A name if the mode makes the quotes those of names, or if they always are.
                let is_name = quote == b'`' || quote == b'"' && self.modes.ansi_quotes;
                let escapes = !is_name && !self.modes.no_backslash_escapes;
                if !self.skip_quoted(quote, escapes) {
                    self.at = self.text.len();
                    return self.since(TokenKind::Broken, start, Word(0));
                }
            }
            _ => {
                let part = |byte: &&u8| is_part(**byte) || **byte == b'.';
                let length = self.rest().iter().take_while(part).count();
                self.skip(length);
            }
        }
        self.since(TokenKind::UserVariable, start, Word(0))
    }

    fn dotted_name(&mut self) {
        loop {
            match self.byte(0) {
                b'`' => {
                    self.skip(1);
                    if !self.skip_quoted(b'`', false) {
                        self.at = self.text.len();
                    }
                }
                _ => self.skip(part_length(self.rest())),
            }
            if self.byte(0) != b'.' {
                return;
            }
            self.skip(1);
        }
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

/// Returns whether `--` before this byte begins a comment: before a blank, a control character or
/// the end.
fn ends_dashes(byte: u8) -> bool {
    byte == b' ' || byte.is_ascii_control()
}

fn is_part(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | 0x80..=0xff)
}

fn part_length(rest: &[u8]) -> usize {
    rest.iter().take_while(|byte| is_part(**byte)).count()
}

fn digits_length(rest: &[u8]) -> usize {
    rest.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

fn base_length(rest: &[u8], digit: impl Fn(&u8) -> bool) -> usize {
    let digits = rest.iter().skip(2).take_while(|byte| digit(byte)).count();
    digits.saturating_add(2)
}

fn decimal_length(rest: &[u8]) -> usize {
    let mut length = digits_length(rest);
    if rest.get(length) == Some(&b'.') {
        length = length.saturating_add(1);
        let fraction = rest.get(length..).unwrap_or_default();
        length = length.saturating_add(digits_length(fraction));
    }
    let exponent = rest.get(length..).unwrap_or_default();
    let marks = match exponent {
        [b'e' | b'E', b'0'..=b'9', ..] => 1,
        [b'e' | b'E', b'+' | b'-', b'0'..=b'9', ..] => 2,
        _ => return length,
    };
    length = length.saturating_add(marks);
    length.saturating_add(digits_length(rest.get(length..).unwrap_or_default()))
}

fn fold(written: &[u8]) -> Word {
    if written.len() > 16 {
        return Word(0);
    }
    let add = |word, byte: &u8| word << 8 | u128::from(byte.to_ascii_lowercase());
    Word(written.iter().fold(0_u128, add))
}
