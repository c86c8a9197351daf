//! Tokens of either dialect as far as they matter to a digest.

use crate::sql::token::{self, Span, Token, Word};
use crate::sql::{mysql, postgres};

/// What a token does to the shape of its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sql) enum Class {
    /// A literal, a parameter, or what cannot be read and may hold a literal.
    Literal,
    /// A word without quotes: its case does not count.
    Word,
    /// A name in quotes, a variable.
    Name,
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
    /// `+` or `-`, which may belong to a literal.
    Sign,
    /// Any other operator.
    Operator,
    /// Brackets, casts.
    Mark,
}

/// A token of a text.
#[derive(Debug, Clone, Copy)]
pub(in crate::sql) struct Piece {
    pub(in crate::sql) class: Class,
    pub(in crate::sql) span: Span,
    pub(in crate::sql) word: Word,
}

/// A scanner of either dialect.
pub(in crate::sql) trait Pieces {
    /// The next piece; `None` at the end.
    fn next_piece(&mut self) -> Option<Piece>;
}

const PLUS: Word = Word::of("+");
const MINUS: Word = Word::of("-");

fn operator(word: Word) -> Class {
    match word {
        PLUS | MINUS => Class::Sign,
        _ => Class::Operator,
    }
}

impl Pieces for mysql::Tokens<'_> {
    #[inline]
    fn next_piece(&mut self) -> Option<Piece> {
        use mysql::TokenKind as Kind;
        let mysql::Token { kind, span, word } = self.next_token();
        let class = match kind {
            Kind::End => return None,
            Kind::Word => Class::Word,
            Kind::QuotedName | Kind::UserVariable | Kind::SystemVariable => Class::Name,
            Kind::String | Kind::Number | Kind::Parameter | Kind::Broken => Class::Literal,
            Kind::Open => Class::Open,
            Kind::Close => Class::Close,
            Kind::Comma => Class::Comma,
            Kind::Semicolon => Class::Semicolon,
            Kind::Dot => Class::Dot,
            Kind::Operator => operator(word),
        };
        Some(Piece { class, span, word })
    }
}

impl Pieces for postgres::Tokens<'_> {
    #[inline]
    fn next_piece(&mut self) -> Option<Piece> {
        use token::Kind;
        let Token { kind, span, word } = self.next_token();
        let class = match kind {
            Kind::End => return None,
            Kind::Word => Class::Word,
            Kind::QuotedName | Kind::EscapedName => Class::Name,
            Kind::String | Kind::Number | Kind::Parameter | Kind::Broken => Class::Literal,
            Kind::Open => Class::Open,
            Kind::Close => Class::Close,
            Kind::Comma => Class::Comma,
            Kind::Semicolon => Class::Semicolon,
            Kind::Dot => Class::Dot,
            Kind::OpenBracket | Kind::CloseBracket | Kind::Cast => Class::Mark,
            Kind::Operator => operator(word),
        };
        Some(Piece { class, span, word })
    }
}
