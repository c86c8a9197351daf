//! The statements of a text one by one, and those that they hold as text.

use std::borrow::Cow;

use evenkeel_wire::sql::mysql::{self, LexerModes, StatementKind, TokenKind, Tokens};

use super::super::values;
use super::body;

/// Each statement of a text without what stands around it, and what PREPARE, EXECUTE IMMEDIATE and
/// SET STATEMENT hold, as far as that is written there.
#[must_use]
pub fn parts(text: &[u8], modes: LexerModes) -> Vec<Cow<'_, [u8]>> {
    let mut parts = Vec::new();
    for statement in mysql::statements(text, modes) {
        let own = statement.span.of(text);
        parts.push(Cow::Borrowed(own));
        if matches!(statement.kind, StatementKind::Prepare(_)) {
            parts.extend(prepared(own, modes).map(Cow::Owned));
        }
        parts.extend(body::within(own, modes).map(|(inner, _)| inner));
    }
    parts
}

/// What `PREPARE name FROM '…'` prepares; of a variable, nobody knows.
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

/// Whether a token ends a statement.
pub(super) fn is_end(kind: TokenKind) -> bool {
    matches!(kind, TokenKind::End | TokenKind::Semicolon)
}
