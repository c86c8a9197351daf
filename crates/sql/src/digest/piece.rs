//! Tokens of both dialects, reduced to the properties that matter to a digest.

use crate::token::words as w;
use crate::token::{Span, Token, TokenKind, Word};
use crate::{mysql, postgres};

/// Role of a token in the shape of its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// A literal, a parameter, or unreadable text that may hold a literal.
    Literal,
    /// An unquoted word: its case does not count.
    Word,
    /// A quoted name, or a variable.
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
pub(crate) struct Piece {
    pub(crate) class: Class,
    pub(crate) span: Span,
    pub(crate) word: Word,
}

/// A scanner of either dialect.
pub(crate) trait Pieces {
    /// Returns the next piece; `None` at the end of the text.
    fn next_piece(&mut self) -> Option<Piece>;
}

fn operator(word: Word) -> Class {
    match word {
        w::PLUS_SIGN | w::MINUS_SIGN => Class::Sign,
        _ => Class::Operator,
    }
}

impl Pieces for mysql::Tokens<'_> {
    #[inline]
    fn next_piece(&mut self) -> Option<Piece> {
        piece(self.next_token())
    }
}

impl Pieces for postgres::Tokens<'_> {
    #[inline]
    fn next_piece(&mut self) -> Option<Piece> {
        piece(self.next_token())
    }
}

#[inline]
fn piece(token: Token) -> Option<Piece> {
    let Token { kind, span, word } = token;
    let class = match kind {
        TokenKind::End => return None,
        TokenKind::Word => Class::Word,
        TokenKind::QuotedName
        | TokenKind::EscapedName
        | TokenKind::UserVariable
        | TokenKind::SystemVariable => Class::Name,
        TokenKind::String | TokenKind::Number | TokenKind::Parameter | TokenKind::Broken => {
            Class::Literal
        }
        TokenKind::Open => Class::Open,
        TokenKind::Close => Class::Close,
        TokenKind::Comma => Class::Comma,
        TokenKind::Semicolon => Class::Semicolon,
        TokenKind::Dot => Class::Dot,
        TokenKind::OpenBracket | TokenKind::CloseBracket | TokenKind::Cast => Class::Mark,
        TokenKind::Operator => operator(word),
    };
    Some(Piece { class, span, word })
}
