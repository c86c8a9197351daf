//! Splits a text into its statements, including those that they prepare.

use std::borrow::Cow;

use crate::postgres::{StatementKind, Tokens, statements};
use crate::token;
use crate::token::words::AS;

/// Returns each statement of a text without surrounding text, and the statements that PREPARE
/// prepares.
#[must_use]
pub fn parts(text: &[u8], backslashes: bool) -> Vec<Cow<'_, [u8]>> {
    let mut parts = Vec::new();
    for statement in statements(text, backslashes) {
        let sql = statement.span.of(text);
        parts.push(Cow::Borrowed(sql));
        if matches!(statement.kind, StatementKind::Prepare(_)) {
            parts.extend(prepared(sql, backslashes).map(Cow::Borrowed));
        }
    }
    parts
}

/// Returns the statement that `PREPARE name (types) AS …` prepares.
fn prepared(statement: &[u8], backslashes: bool) -> Option<&[u8]> {
    let mut tokens = Tokens::new(statement, backslashes);
    loop {
        let token = tokens.next_token();
        if token.kind == token::TokenKind::End {
            return None;
        }
        if token.is(AS) {
            let rest = statement.get(token.span.end as usize..)?;
            return Some(rest.trim_ascii());
        }
    }
}
