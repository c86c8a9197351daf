//! Optimizer hints: comments that MySQL reads, and MariaDB passes over.

/// Set for the statement, it has `IS NULL` find the row that was inserted last on the connection.
const FINDS_INSERTED: &[u8] = b"sql_auto_is_null";

/// Whether the hint that `rest` begins with ends where a comment would, and changes nothing that
/// matters to others: MySQL reads what is quoted in hints as such, the end of the comment too.
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
