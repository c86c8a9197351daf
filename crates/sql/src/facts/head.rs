//! Parses the words at the beginning of a statement that mean the same in both dialects.

use super::{Isolation, StatementKind};
use crate::token::words as w;
use crate::token::{Lexer, Span, TokenCursor, TokenKind, Word};

/// Returns whether a query begins after these opening parentheses.
pub(crate) fn begins_query<T: Lexer>(tokens: &T) -> bool {
    let mut ahead = tokens.clone();
    let mut token = ahead.next_token();
    while token.kind == TokenKind::Open {
        token = ahead.next_token();
    }
    token.kind == TokenKind::Word && (is_query(token.word) || token.word == w::WITH)
}

fn is_query(word: Word) -> bool {
    matches!(word, w::SELECT | w::VALUES | w::TABLE)
}

impl<T: Lexer> TokenCursor<T> {
    /// Returns the kind by the verb of `WITH … (…) verb`: the first one outside parentheses.
    /// `writes`: verbs of statements that write.
    pub(crate) fn kind_of_with<K: StatementKind>(mut self, writes: &[Word]) -> K {
        let mut depth = 0_u32;
        loop {
            match self.token.kind {
                TokenKind::End | TokenKind::Semicolon => return K::UNKNOWN,
                TokenKind::Open => depth = depth.saturating_add(1),
                TokenKind::Close => {
                    depth = depth.saturating_sub(1);
                    self.advance();
                    // `WITH q AS (…) (SELECT …)`
                    if depth == 0 && self.token.kind == TokenKind::Open {
                        return match begins_query(&self.tokens) {
                            true => K::SELECT,
                            false => K::UNKNOWN,
                        };
                    }
                    continue;
                }
                TokenKind::Word if depth > 0 => {}
                TokenKind::Word if writes.contains(&self.token.word) => return K::WRITE,
                TokenKind::Word if is_query(self.token.word) => return K::SELECT,
                _ => {}
            }
            self.advance();
        }
    }

    /// Parses an isolation level.
    pub(crate) fn isolation(&mut self) -> Option<Isolation> {
        if self.take(w::SERIALIZABLE) {
            return Some(Isolation::Serializable);
        }
        if self.take(w::REPEATABLE) {
            return self.take(w::READ).then_some(Isolation::RepeatableRead);
        }
        self.take(w::READ).then_some(())?;
        if self.take(w::COMMITTED) {
            return Some(Isolation::ReadCommitted);
        }
        let is_uncommitted = self.take(w::UNCOMMITTED);
        is_uncommitted.then_some(Isolation::ReadUncommitted)
    }

    /// Parses names with dots between them, without escapes.
    pub(crate) fn dotted_name(&mut self) -> Option<Span> {
        let mut span = self.name()?;
        while self.take_kind(TokenKind::Dot).is_some() {
            span = span.to(self.name()?);
        }
        Some(span)
    }

    /// Parses a number, which may have a sign, or a token of another kind that is a value.
    pub(crate) fn literal(&mut self, is_value: impl Fn(TokenKind) -> bool) -> Option<Span> {
        let mut span = self.token.span;
        let has_operator = self.token.kind == TokenKind::Operator;
        if has_operator && matches!(self.token.word, w::MINUS_SIGN | w::PLUS_SIGN) {
            self.advance();
        }
        let is_readable = match self.token.kind {
            TokenKind::Number => true,
            kind => is_value(kind) && !has_operator,
        };
        span = span.to(self.token.span);
        is_readable.then(|| {
            self.advance();
            span
        })
    }
}
