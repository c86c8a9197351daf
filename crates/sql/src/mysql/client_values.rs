//! Replaces functions in the texts of clients by the values that the clients know, which may differ
//! from those of their server connection: CONNECTION_ID() and ROW_COUNT().

use super::LexerModes;
use super::lexer::Tokens;
use crate::token::Word;
use crate::token::{Token, TokenKind};

const CONNECTION_ID: &[u8] = b"connection_id";
const ROW_COUNT: &[u8] = b"row_count";

/// Values that a client knows.
#[derive(Debug, Clone, Copy)]
pub struct ClientValues {
    /// CONNECTION_ID().
    pub connection_id: u32,
    /// ROW_COUNT() of the last command. `None`: only the server knows it.
    pub row_count: Option<i64>,
}

impl ClientValues {
    /// Returns an expression of the same type as the function.
    fn expression(self, function: &[u8]) -> Option<String> {
        if function.eq_ignore_ascii_case(CONNECTION_ID) {
            return Some(format!("CAST({} AS UNSIGNED)", self.connection_id));
        }
        let count = self.row_count?;
        let is_it = function.eq_ignore_ascii_case(ROW_COUNT);
        // ROW_COUNT() has 21 characters. MariaDB reads the length from the string.
        is_it.then(|| format!("CAST('{count:>21}' AS SIGNED)"))
    }
}

/// Returns the text with the values in place of each of the functions that is a whole column of its
/// first SELECT. `None`: there is none.
#[must_use]
pub fn replace_client_values(
    text: &[u8],
    modes: LexerModes,
    values: ClientValues,
) -> Option<Vec<u8>> {
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
        let is_function = token.kind == TokenKind::Word && next.kind == TokenKind::Open;
        let value = match begins_column && depth == 0 && is_function {
            true => values.expression(token.span.of(text)),
            false => None,
        };
        let Some(value) = value else {
            begins_column = depth == 0 && token.kind == TokenKind::Comma;
            token = next;
            continue;
        };
        let (close, after) = (tokens.next_token(), tokens.next_token());
        if close.kind == TokenKind::Close
            && let Some(names) = names_column(after)
        {
            out.extend_from_slice(text.get(copied..token.span.start as usize)?);
            out.extend_from_slice(value.as_bytes());
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

/// Returns false for most texts: a function's name must precede a parenthesis.
fn may_call(text: &[u8]) -> bool {
    // A comment may precede the first word.
    let first = text.trim_ascii_start().first();
    if !first.is_some_and(|first| b"sS/-#".contains(first)) {
        return false;
    }
    memchr::memchr_iter(b'(', text).any(|at| {
        let before = text.get(..at).unwrap_or_default().trim_ascii_end();
        let ends_in = |name: &[u8]| {
            let end = before.get(before.len().saturating_sub(name.len())..);
            end.is_some_and(|end| end.eq_ignore_ascii_case(name))
        };
        ends_in(CONNECTION_ID) || ends_in(ROW_COUNT)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(text: &str) -> Option<String> {
        let values = ClientValues {
            connection_id: 7,
            row_count: Some(-1),
        };
        let text = replace_client_values(text.as_bytes(), LexerModes::default(), values)?;
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
            (
                "select row_count(), @@warning_count; select row_count()",
                "select CAST('                   -1' AS SIGNED) AS `row_count()`, @@warning_count; \
                 select row_count()",
            ),
        ] {
            assert_eq!(replaced(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn a_count_that_is_not_known_is_the_server_s() {
        let values = ClientValues {
            connection_id: 7,
            row_count: None,
        };
        let text = b"select row_count()";
        assert_eq!(
            replace_client_values(text, LexerModes::default(), values),
            None
        );
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
            "select row_count() into @a",
            "select -row_count()",
            "select 1",
        ] {
            assert_eq!(replaced(text), None, "{text}");
        }
    }
}
