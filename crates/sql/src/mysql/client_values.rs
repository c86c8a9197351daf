//! Replaces CONNECTION_ID() in the texts of clients by the number that they know, which differs
//! from that of their server connection.

use super::LexerModes;
use super::lexer::Tokens;
use crate::token::Word;
use crate::token::{Token, TokenKind};

const FUNCTION: &[u8] = b"connection_id";

/// Returns the text with `id` in place of each CONNECTION_ID() that is a whole column of its
/// SELECT. `None`: there is none.
#[must_use]
pub fn replace_connection_id(text: &[u8], modes: LexerModes, id: u32) -> Option<Vec<u8>> {
    if !may_call(text) {
        return None;
    }
    let mut out = Vec::new();
    let mut copied = 0;
    let mut tokens = Tokens::new(text, modes);
    if !tokens.next_token().is(Word::of("select")) {
        return None;
    }
    let (mut depth, mut begins_column) = (0_usize, true);
    let mut token = tokens.next_token();
    loop {
        let next = tokens.next_token();
        match token.kind {
            TokenKind::End | TokenKind::Broken | TokenKind::Semicolon => break,
            TokenKind::Open => depth = depth.saturating_add(1),
            TokenKind::Close => depth = depth.saturating_sub(1),
            _ => {}
        }
        let is_function = token.kind == TokenKind::Word
            && token.span.of(text).eq_ignore_ascii_case(FUNCTION)
            && next.kind == TokenKind::Open;
        if !(begins_column && depth == 0 && is_function) {
            begins_column = depth == 0 && token.kind == TokenKind::Comma;
            token = next;
            continue;
        }
        let (close, after) = (tokens.next_token(), tokens.next_token());
        if close.kind == TokenKind::Close
            && let Some(names) = names_column(after)
        {
            out.extend_from_slice(text.get(copied..token.span.start as usize)?);
            out.extend_from_slice(format!("CAST({id} AS UNSIGNED)").as_bytes());
            if !names {
                out.extend_from_slice(b" AS `");
                out.extend_from_slice(token.span.to(close.span).of(text));
                out.push(b'`');
            }
            copied = close.span.end as usize;
        }
        begins_column = false;
        token = after;
    }
    (copied > 0).then(|| {
        out.extend_from_slice(text.get(copied..).unwrap_or_default());
        out
    })
}

/// Returns whether the token after a column names it; `None`: the column has not ended.
fn names_column(after: Token) -> Option<bool> {
    let is_end = matches!(
        after.kind,
        TokenKind::End | TokenKind::Comma | TokenKind::Semicolon
    );
    let clauses = [Word::of("from"), Word::of("limit")];
    if is_end || clauses.into_iter().any(|clause| after.is(clause)) {
        return Some(false);
    }
    after.is(Word::of("as")).then_some(true)
}

/// Returns false for most texts: the function's name must precede a parenthesis.
fn may_call(text: &[u8]) -> bool {
    // A comment may precede the first word.
    let first = text.trim_ascii_start().first();
    if !first.is_some_and(|first| b"sS/-#".contains(first)) {
        return false;
    }
    memchr::memchr_iter(b'(', text).any(|at| {
        let before = text.get(..at).unwrap_or_default().trim_ascii_end();
        let name = before.len().saturating_sub(FUNCTION.len());
        before
            .get(name..)
            .is_some_and(|name| name.eq_ignore_ascii_case(FUNCTION))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(text: &str) -> Option<String> {
        let text = replace_connection_id(text.as_bytes(), LexerModes::default(), 7)?;
        Some(String::from_utf8(text).unwrap())
    }

    #[test]
    fn each_column_that_is_the_number_becomes_the_client_s() {
        for (text, expected) in [
            (
                "/* app:web */ SELECT CONNECTION_ID()",
                "/* app:web */ SELECT CAST(7 AS UNSIGNED) AS `CONNECTION_ID()`",
            ),
            (
                "select connection_id ( ), version();",
                "select CAST(7 AS UNSIGNED) AS `connection_id ( )`, version();",
            ),
            (
                "select f(1, 2), connection_id() as id, 1",
                "select f(1, 2), CAST(7 AS UNSIGNED) as id, 1",
            ),
            (
                "select connection_id(), connection_id() from t where a = '('",
                "select CAST(7 AS UNSIGNED) AS `connection_id()`, CAST(7 AS UNSIGNED) AS \
                 `connection_id()` from t where a = '('",
            ),
        ] {
            assert_eq!(replaced(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn expressions_of_it_and_other_statements_are_the_server_s() {
        for text in [
            "select connection_id() + 1",
            "select 1 + connection_id()",
            "select (connection_id())",
            "select f(connection_id())",
            "select 'connection_id()'",
            "select my_connection_id()",
            "select s.connection_id()",
            "kill connection_id()",
            "select 1",
        ] {
            assert_eq!(replaced(text), None, "{text}");
        }
    }
}
