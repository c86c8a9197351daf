//! The tokens that the dialects share.

/// A place in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// The first byte.
    pub start: u32,
    /// Behind the last byte.
    pub end: u32,
}

impl Span {
    /// The bytes there.
    #[must_use]
    #[inline]
    pub fn of(self, text: &[u8]) -> &[u8] {
        text.get(self.start as usize..self.end as usize)
            .unwrap_or_default()
    }

    /// Whether nothing is there.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.start >= self.end
    }

    /// From the beginning of this to the end of `other`.
    #[must_use]
    pub fn to(self, other: Span) -> Span {
        Span {
            start: self.start,
            end: other.end,
        }
    }
}

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TokenKind {
    /// The end of the text.
    #[default]
    End,
    /// An identifier or keyword without quotes.
    Word,
    /// An identifier in quotes.
    QuotedName,
    /// An identifier in quotes with escapes that have not been read (`U&"…"`).
    EscapedName,
    /// A literal: a string of any form.
    String,
    /// A literal: a number.
    Number,
    /// A parameter, such as `$1`.
    Parameter,
    /// `(`
    Open,
    /// `)`
    Close,
    /// `[`
    OpenBracket,
    /// `]`
    CloseBracket,
    /// `,`
    Comma,
    /// `;`
    Semicolon,
    /// `.`
    Dot,
    /// `::`
    Cast,
    /// Any other operator.
    Operator,
    /// A byte that has no meaning, or the rest of a text that ends inside a string or comment.
    Broken,
}

/// A token and where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Token {
    /// What it is.
    pub kind: TokenKind,
    /// Where it is.
    pub span: Span,
    /// For words of at most 16 bytes and for operators: the bytes, ASCII letters in lower case.
    pub word: Word,
}

/// Up to 16 bytes in one number, so that a keyword is compared at once; 0: longer, or no word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Word(pub u128);

impl Word {
    /// A keyword, in lower case.
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
    /// Whether it is this keyword.
    #[must_use]
    #[inline]
    pub fn is(self, keyword: Word) -> bool {
        self.word == keyword && self.kind == TokenKind::Word
    }

    /// Whether it can stand for the name of something.
    #[must_use]
    #[inline]
    pub fn is_name(self) -> bool {
        matches!(
            self.kind,
            TokenKind::Word | TokenKind::QuotedName | TokenKind::EscapedName
        )
    }
}
