//! Lexer for MySQL (manual: "Language Structure"; the server's `sql_lex.cc`).

use super::{LexerModes, optimizer};
use crate::hint::HintComment;
use crate::token::{
    Lexer, TextReader, Token, TokenKind, Word, decimal_length, digits_length, is_name_byte,
};

/// Comments for versions below this one are executed by every supported server.
const VERSION_OF_ALL: u32 = 50_700;

/// Iterator over the tokens of a text.
#[derive(Debug, Clone)]
pub struct Tokens<'a> {
    reader: TextReader<'a>,
    modes: LexerModes,
    /// True within an executable comment `/*! … */`.
    in_comment: bool,
    versioned: bool,
}

impl Lexer for Tokens<'_> {
    #[inline]
    fn next_token(&mut self) -> Token {
        Tokens::next_token(self)
    }

    fn put_back(&mut self, token: Token) {
        self.reader.set_position(token.span.start);
    }
}

impl<'a> Tokens<'a> {
    /// Creates a lexer at the beginning of a text.
    #[must_use]
    pub fn new(text: &'a [u8], modes: LexerModes) -> Self {
        Tokens {
            reader: TextReader::new(text),
            modes,
            in_comment: false,
            versioned: false,
        }
    }

    /// Creates a lexer at a position between two tokens, possibly within an executable comment.
    pub(crate) fn from(text: &'a [u8], modes: LexerModes, at: u32, in_comment: bool) -> Self {
        let mut tokens = Tokens::new(text, modes);
        tokens.reader.set_position(at);
        tokens.in_comment = in_comment;
        tokens
    }

    /// Returns whether the position is within an executable comment.
    pub(crate) fn in_comment(&self) -> bool {
        self.in_comment
    }

    /// Returns the whole text.
    pub(crate) fn text(&self) -> &'a [u8] {
        self.reader.text()
    }

    /// Returns the modes by which the text is tokenized.
    pub(crate) fn modes(&self) -> LexerModes {
        self.modes
    }

    /// Returns the first hint in the comments passed so far.
    pub(crate) fn hint(&self) -> Option<HintComment<'a>> {
        self.reader.hint()
    }

    /// Returns whether a comment that only some servers execute was passed since the last call.
    pub(crate) fn take_versioned(&mut self) -> bool {
        std::mem::take(&mut self.versioned)
    }

    /// Returns the next token; at the end of the text, [`TokenKind::End`] on every call.
    pub fn next_token(&mut self) -> Token {
        loop {
            let Some(first) = self.reader.rest().first().copied() else {
                // An executable comment must end.
                let kind = match std::mem::take(&mut self.in_comment) {
                    true => TokenKind::Broken,
                    false => TokenKind::End,
                };
                return self.reader.take(kind, 0);
            };
            match first {
                blank if is_blank(blank) => self.reader.skip(1),
                b'#' => self.line_comment(),
                b'-' if self.reader.byte(1) == b'-' && ends_dashes(self.reader.byte(2)) => {
                    self.line_comment()
                }
                b'/' if self.reader.byte(1) == b'*' => {
                    if let Some(token) = self.block_comment() {
                        return token;
                    }
                }
                b'*' if self.in_comment && self.reader.byte(1) == b'/' => {
                    self.in_comment = false;
                    self.reader.skip(2);
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
            b'n' | b'N' | b'x' | b'X' | b'b' | b'B' if self.reader.byte(1) == b'\'' => {
                self.quoted(TokenKind::String, 1, b'\'')
            }
            b'0'..=b'9' => self.number(),
            b'.' if self.reader.byte(1).is_ascii_digit() && !self.is_after_name() => self.number(),
            _ if is_name_byte(first) => self.reader.word(),
            b'@' => self.variable(),
            b'(' => self.reader.take(TokenKind::Open, 1),
            b')' => self.reader.take(TokenKind::Close, 1),
            b',' => self.reader.take(TokenKind::Comma, 1),
            b';' => self.reader.take(TokenKind::Semicolon, 1),
            b'.' => self.reader.take(TokenKind::Dot, 1),
            b'?' => self.reader.take(TokenKind::Parameter, 1),
            b':' if self.reader.byte(1) == b'=' => self.operator(2),
            b'+' | b'-' | b'*' | b'/' | b'<' | b'>' | b'=' | b'~' | b'!' | b'%' | b'^' | b'&'
            | b'|' | b':' | b'{' | b'}' => self.operator(1),
            b'\\' if self.reader.byte(1) == b'N' => self.reader.take(TokenKind::String, 2),
            _ => self.reader.take(TokenKind::Broken, 1),
        }
    }

    /// Returns whether an identifier or its closing quote immediately precedes. A dot is then a
    /// separator and no decimal point.
    fn is_after_name(&self) -> bool {
        let before = self.reader.byte_before();
        before.is_some_and(|byte| is_name_byte(byte) || matches!(byte, b'`' | b'"'))
    }

    fn operator(&mut self, length: usize) -> Token {
        let written = self.reader.rest().iter().take(length);
        let word = written.fold(0, |word, byte| word << 8 | u128::from(*byte));
        let operator = TokenKind::Operator;
        self.reader.take_word(operator, length, Word(word))
    }

    /// Reads a number. Digits followed by letters are an identifier (`1a`), but `1e5` is a number.
    fn number(&mut self) -> Token {
        let rest = self.reader.rest();
        let part = part_length(rest);
        let digits = digits_length(rest);
        let based = match rest {
            [b'0', b'x', ..] => base_length(rest, u8::is_ascii_hexdigit),
            [b'0', b'b', ..] => base_length(rest, |byte| matches!(byte, b'0' | b'1')),
            _ => 0,
        };
        if based == part && based > 2 {
            return self.reader.take(TokenKind::Number, based);
        }
        let digits_from = |from: usize| digits_length(rest.get(from..).unwrap_or_default());
        let length = decimal_length(rest, digits_from, false);
        if part > digits && length <= part && length != part {
            return self.reader.word();
        }
        self.reader.take(TokenKind::Number, length.max(1))
    }

    fn line_comment(&mut self) {
        let rest = self.reader.rest();
        let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        self.reader.skip_comment(end);
    }

    /// Skips `/* … */`, or enters an executable comment.
    fn block_comment(&mut self) -> Option<Token> {
        let rest = self.reader.rest();
        let (maria, mark) = match rest {
            [_, _, b'!', ..] => (false, 3),
            [_, _, b'M', b'!', ..] => (true, 4),
            [_, _, b'+', ..] if !self.modes.mariadb && !optimizer::is_plain(rest) => {
                return Some(self.reader.take(TokenKind::Broken, rest.len()));
            }
            _ => return self.reader.block_comment(0),
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
        let is_short = !self.modes.mariadb && digits == 6 && !is_blank(self.reader.byte(end));
        if is_short || self.in_comment {
            self.in_comment = true;
            return Some(self.reader.take(TokenKind::Broken, end));
        }
        if self.modes.executes_comment(maria, version) {
            self.in_comment = true;
            self.reader.skip(end);
            return None;
        }
        // A comment that is not executed may contain others.
        self.reader.block_comment(1)
    }

    /// Reads a string or name whose quote is `prefix` bytes ahead.
    fn quoted(&mut self, kind: TokenKind, prefix: usize, quote: u8) -> Token {
        let escapes = kind == TokenKind::String && !self.modes.no_backslash_escapes;
        self.reader.quoted(kind, prefix, quote, escapes)
    }

    fn variable(&mut self) -> Token {
        let reader = &mut self.reader;
        let start = reader.position();
        if reader.byte(1) == b'@' {
            reader.skip(2);
            skip_dotted_name(reader);
            return reader.since(TokenKind::SystemVariable, start);
        }
        reader.skip(1);
        match reader.byte(0) {
            quote @ (b'\'' | b'"' | b'`') => {
                reader.skip(1);
                // A name if the mode makes the quotes those of names, or if they always are.
                let is_name = quote == b'`' || quote == b'"' && self.modes.ansi_quotes;
                let escapes = !is_name && !self.modes.no_backslash_escapes;
                if !reader.skip_quoted(quote, escapes) {
                    return reader.unterminated(start);
                }
            }
            _ => {
                let part = |byte: &&u8| is_name_byte(**byte) || **byte == b'.';
                let length = reader.rest().iter().take_while(part).count();
                reader.skip(length);
            }
        }
        reader.since(TokenKind::UserVariable, start)
    }
}

fn skip_dotted_name(reader: &mut TextReader<'_>) {
    loop {
        match reader.byte(0) {
            quote @ b'`' => {
                // An unterminated name extends to the end of the text.
                let _ = reader.quoted(TokenKind::QuotedName, 0, quote, false);
            }
            _ => reader.skip(part_length(reader.rest())),
        }
        if reader.byte(0) != b'.' {
            return;
        }
        reader.skip(1);
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

fn part_length(rest: &[u8]) -> usize {
    rest.iter().take_while(|byte| is_name_byte(**byte)).count()
}

fn base_length(rest: &[u8], digit: impl Fn(&u8) -> bool) -> usize {
    let digits = rest.iter().skip(2).take_while(|byte| digit(byte)).count();
    digits.saturating_add(2)
}
