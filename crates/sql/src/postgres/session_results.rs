//! Statements whose result columns depend on objects of their session.

use super::lexer::Tokens;
use crate::token::TokenKind;

/// First words of such statements: FETCH of a cursor, EXECUTE of a prepared statement. The server
/// describes them once, when they are prepared.
const WORDS: [&[u8]; 2] = [b"fetch", b"execute"];

/// Returns whether a text that may be prepared, and so is one statement, is such a statement.
#[must_use]
pub fn is_described_by_session(text: &[u8], backslashes: bool) -> bool {
    let is_blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == b'\x0b';
    let first = text.iter().find(|byte| !is_blank(byte));
    // A comment or empty statements may precede the first word.
    if !first.is_some_and(|first| b"FfEe-/;".contains(first)) {
        return false;
    }
    let mut tokens = Tokens::new(text, backslashes);
    loop {
        let token = tokens.next_token();
        if token.kind != TokenKind::Semicolon {
            let word = token.span.of(text);
            return WORDS.iter().any(|one| word.eq_ignore_ascii_case(one));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cursors_and_prepared_statements_are() {
        for text in [
            "fetch c",
            "FETCH 10 FROM c",
            "\x0bFETCH c",
            "\n -- mine\n;; /* and */ Execute s (1)",
        ] {
            assert!(is_described_by_session(text.as_bytes(), false), "{text}");
        }
        for text in [
            "select 1",
            "explain execute s",
            "fetched",
            "\"fetch\"",
            "",
            ";",
            "-- fetch",
        ] {
            assert!(!is_described_by_session(text.as_bytes(), false), "{text}");
        }
    }
}
