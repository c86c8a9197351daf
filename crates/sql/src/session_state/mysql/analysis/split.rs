//! Splits a text into its statements, including those that they contain as text.

use std::borrow::Cow;

use crate::mysql::{self, LexerModes, StatementKind, TokenKind, Tokens};

use super::super::values;
use super::body;

/// Returns each statement of a text without surrounding text, and the literal statements in
/// PREPARE, EXECUTE IMMEDIATE and SET STATEMENT.
#[must_use]
pub fn parts(text: &[u8], modes: LexerModes) -> Vec<Cow<'_, [u8]>> {
    let mut parts = Vec::new();
    for statement in mysql::statements(text, modes) {
        let sql = statement.span.of(text);
        parts.push(Cow::Borrowed(sql));
        if matches!(statement.kind, StatementKind::Prepare(_)) {
            parts.extend(prepared(sql, modes).map(Cow::Owned));
        }
        parts.extend(body::within(sql, modes).map(|(inner, _)| inner));
    }
    parts
}

/// Returns the statement that `PREPARE name FROM '…'` prepares. `None` for a user variable, whose
/// value is unknown.
pub(super) fn prepared(statement: &[u8], modes: LexerModes) -> Option<Vec<u8>> {
    let mut tokens = Tokens::new(statement, modes);
    for _ in 0..3 {
        tokens.next_token();
    }
    let literal = tokens.next_token();
    let is_alone = is_end(tokens.next_token().kind);
    if literal.kind != TokenKind::String || !is_alone {
        return None;
    }
    values::string(literal.span.of(statement), modes.no_backslash_escapes)
}

/// Returns whether a token ends a statement.
pub(super) fn is_end(kind: TokenKind) -> bool {
    matches!(kind, TokenKind::End | TokenKind::Semicolon)
}
