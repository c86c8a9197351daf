//! Parses the beginning of a statement token by token.

use super::{Span, Token, TokenKind, Word};

/// The lexer of a dialect.
pub(crate) trait Lexer: Clone {
    /// Returns the next token; at the end of the text, [`TokenKind::End`] on every call.
    fn next_token(&mut self) -> Token;

    /// Rewinds to the start of `token`, which was read too early.
    fn put_back(&mut self, token: Token);
}

/// Tokens after the first one of a statement, with one token read ahead. A clone looks ahead.
#[derive(Clone)]
pub(crate) struct TokenCursor<T> {
    pub(crate) tokens: T,
    pub(crate) token: Token,
}

impl<T: Lexer> TokenCursor<T> {
    /// Creates a cursor; the next token of `tokens` must be the statement's second.
    pub(crate) fn new(tokens: &T) -> Self {
        let mut tokens = tokens.clone();
        let token = tokens.next_token();
        TokenCursor { tokens, token }
    }

    pub(crate) fn advance(&mut self) {
        self.token = self.tokens.next_token();
    }

    /// Advances if the current token is the word. Returns whether it was.
    pub(crate) fn take(&mut self, word: Word) -> bool {
        let found = self.token.is(word);
        if found {
            self.advance();
        }
        found
    }

    /// Advances if the current token is any of the words. Returns whether it was.
    pub(crate) fn take_any(&mut self, words: &[Word]) -> bool {
        words.iter().any(|word| self.take(*word))
    }

    /// Advances if the current token is of that kind, and returns its position.
    pub(crate) fn take_kind(&mut self, kind: TokenKind) -> Option<Span> {
        let span = self.token.span;
        (self.token.kind == kind).then(|| {
            self.advance();
            span
        })
    }

    pub(crate) fn at_end(&self) -> bool {
        matches!(self.token.kind, TokenKind::End | TokenKind::Semicolon)
    }

    /// Returns the name at the current token, unless it has escapes, and advances.
    pub(crate) fn name(&mut self) -> Option<Span> {
        let name = matches!(self.token.kind, TokenKind::Word | TokenKind::QuotedName);
        let span = self.token.span;
        name.then(|| {
            self.advance();
            span
        })
    }

    /// Returns the name at the current token if it is the last token.
    pub(crate) fn last_name(&mut self) -> Option<Span> {
        let name = self.name()?;
        self.at_end().then_some(name)
    }

    /// Returns the kind of the first row whose words are the statement's `first` and the current
    /// one.
    pub(crate) fn by_words<K: Copy>(&self, first: Word, rows: &[ByWords<K>]) -> Option<K> {
        let is_next =
            |words: &[Word]| words.is_empty() || words.iter().any(|word| self.token.is(*word));
        let mut rows = rows.iter();
        let row = rows.find(|(word, next, _)| *word == first && is_next(next))?;
        Some(row.2)
    }
}

/// A first word, any of the words after it (any token if there are none), and the kind of
/// statements that begin so.
pub(crate) type ByWords<K> = (Word, &'static [Word], K);
