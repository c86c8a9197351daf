//! Optimizer hints: comments that MySQL interprets and MariaDB ignores.

/// Variable that, if set for the statement, makes `IS NULL` find the row inserted last on the
/// connection.
const FINDS_INSERTED: &[u8] = b"sql_auto_is_null";

/// Returns whether the hint at the beginning of `rest` ends where a comment would, and affects no
/// other statement. MySQL interprets quotes in hints, so that a quoted `*/` does not end the hint.
pub(super) fn is_plain(rest: &[u8]) -> bool {
    let end = rest.windows(2).position(|pair| pair == b"*/");
    let body = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
    let mut names = body.windows(FINDS_INSERTED.len());
    !is_quote_open(body) && !names.any(|name| name.eq_ignore_ascii_case(FINDS_INSERTED))
}

fn is_quote_open(body: &[u8]) -> bool {
    let mut open = None;
    for byte in body {
        match open {
            Some(quote) if quote == byte => open = None,
            None if matches!(byte, b'`' | b'\'' | b'"') => open = Some(byte),
            _ => {}
        }
    }
    open.is_some()
}
