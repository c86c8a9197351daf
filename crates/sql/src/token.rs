//! Tokens of both dialects, and what their lexers and parsers have in common.

mod cursor;
mod reader;
pub(crate) mod words;

pub(crate) use cursor::{ByWords, Lexer, TokenCursor};
pub(crate) use reader::{TextReader, decimal_length, digits_length, is_name_byte};

/// Byte range of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// Offset of the first byte.
    pub start: u32,
    /// Offset after the last byte.
    pub end: u32,
}

impl Span {
    /// Returns the bytes of `text` in this range.
    #[must_use]
    #[inline]
    pub fn of(self, text: &[u8]) -> &[u8] {
        text.get(self.start as usize..self.end as usize)
            .unwrap_or_default()
    }

    /// Returns whether the range is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.start >= self.end
    }

    /// Returns the range from the start of this one to the end of `other`.
    #[must_use]
    pub fn to(self, other: Span) -> Span {
        Span {
            start: self.start,
            end: other.end,
        }
    }
}

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
    /// PostgreSQL: a quoted identifier with escapes, which are not decoded (`U&"…"`).
    EscapedName,
    /// A string literal of any form.
    String,
    /// A numeric literal.
    Number,
    /// A parameter, such as `$1` or `?`.
    Parameter,
    /// MySQL: `@name`, `@'name'`.
    UserVariable,
    /// MySQL: `@@name`, `@@session.name`.
    SystemVariable,
    /// `(`
    Open,
    /// `)`
    Close,
    /// PostgreSQL: `[`
    OpenBracket,
    /// PostgreSQL: `]`
    CloseBracket,
    /// `,`
    Comma,
    /// `;`
    Semicolon,
    /// `.`
    Dot,
    /// PostgreSQL: `::`
    Cast,
    /// Any other operator. In MySQL one token per byte, except `:=`.
    Operator,
    /// A meaningless byte, or the rest of a text that ends inside a string or comment. In MySQL
    /// also the beginning of a comment that may or may not be executed.
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

/// Up to 16 bytes as one number, so that a keyword is compared in one step. Zero for longer words
/// and for other tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Word(pub u128);

impl Word {
    /// Returns the word of a keyword, which must be in lower case.
    #[must_use]
    pub const fn of(text: &str) -> Word {
        let mut rest = text.as_bytes();
        let mut number = 0_u128;
        while let Some((first, others)) = rest.split_first() {
            number = number << 8 | *first as u128;
            rest = others;
        }
        Word(number)
    }
}

impl Token {
    /// Returns whether the token is this keyword.
    #[must_use]
    #[inline]
    pub fn is(self, keyword: Word) -> bool {
        self.word == keyword && self.kind == TokenKind::Word
    }

    /// Returns whether the token can be an identifier.
    #[must_use]
    #[inline]
    pub fn is_name(self) -> bool {
        matches!(
            self.kind,
            TokenKind::Word | TokenKind::QuotedName | TokenKind::EscapedName
        )
    }
}
