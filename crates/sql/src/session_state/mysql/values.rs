//! Converts names and values between texts, server reports and Evenkeel's texts.

use crate::mysql::{self, LexerModes};
use evenkeel_wire::mysql::flags::Status;

use super::variables;

/// Returns a name without its backquotes or quotes. Doubled ones inside are kept.
pub(super) fn bare(written: &[u8]) -> &[u8] {
    match written {
        [b'`', inner @ .., b'`'] | [b'"', inner @ .., b'"'] | [b'\'', inner @ .., b'\''] => inner,
        plain => plain,
    }
}

/// Returns the name in lower case, as the server compares it; `None` if it is empty, or has
/// characters that are not ASCII (unknown lower case) or control characters.
pub(super) fn in_lower_case(name: &[u8]) -> Option<Box<[u8]>> {
    let plain = |byte: &u8| byte.is_ascii() && !byte.is_ascii_control();
    let readable = !name.is_empty() && name.iter().all(plain);
    readable.then(|| name.to_ascii_lowercase().into())
}

/// Returns the name that an identifier in a text means, in lower case.
pub(super) fn name_in_lower_case(written: &[u8]) -> Option<Box<[u8]>> {
    in_lower_case(&mysql::identifier(written))
}

/// Returns the name of a user variable, as written after the `@`, in lower case.
pub(super) fn user_name(written: &[u8]) -> Option<Box<[u8]>> {
    if written.contains(&b'\\') {
        return None;
    }
    let quote = written
        .first()
        .copied()
        .filter(|byte| matches!(byte, b'\'' | b'"' | b'`'));
    let inner = bare(written);
    if quote.is_some_and(|quote| inner.contains(&quote)) {
        return None;
    }
    // The server ignores trailing blanks in comparisons.
    in_lower_case(inner).filter(|name| name.last() != Some(&b' '))
}

/// Returns the value of a quoted string literal; `None` if it is none, or not built as documented.
pub(super) fn string(written: &[u8], no_backslash_escapes: bool) -> Option<Vec<u8>> {
    let quote = *written
        .first()
        .filter(|byte| matches!(byte, b'\'' | b'"'))?;
    let inner = written.strip_prefix(&[quote])?.strip_suffix(&[quote])?;
    let mut value = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' if !no_backslash_escapes => escaped(bytes.next()?, &mut value),
            byte if byte == quote => {
                // A quote inside must be doubled.
                bytes.next().filter(|next| *next == quote)?;
                value.push(quote);
            }
            byte => value.push(byte),
        }
    }
    Some(value)
}

/// Appends the character of an escape sequence (manual: "String Literals", the table of sequences).
fn escaped(byte: u8, value: &mut Vec<u8>) {
    match byte {
        b'0' => value.push(0),
        b'b' => value.push(8),
        b'n' => value.push(b'\n'),
        b'r' => value.push(b'\r'),
        b't' => value.push(b'\t'),
        b'Z' => value.push(26),
        b'%' | b'_' => value.extend([b'\\', byte]),
        other => value.push(other),
    }
}

/// Returns whether it is written like a number, so that it needs no quotes in a text.
pub(super) fn is_number(value: &[u8]) -> bool {
    let digits = value.strip_prefix(b"-").unwrap_or(value);
    let plain = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
    digits.first().is_some_and(u8::is_ascii_digit)
        && digits.iter().all(plain)
        && digits.iter().filter(|byte| **byte == b'.').count() <= 1
}

pub(super) fn is_zero(number: &[u8]) -> bool {
    number.iter().all(|byte| matches!(byte, b'0' | b'.' | b'-'))
}

/// Returns the value of a switch, as servers report or accept it.
pub(super) fn boolean(value: &[u8]) -> Option<bool> {
    let is = |word: &[u8]| value.eq_ignore_ascii_case(word);
    if is(b"ON") || is(b"1") || is(b"TRUE") || is(b"YES") {
        return Some(true);
    }
    let off = is(b"OFF") || is(b"0") || is(b"FALSE") || is(b"NO");
    off.then_some(false)
}

/// Returns whether a value of `sql_mode` contains a mode.
pub(super) fn has_mode(value: &[u8], wanted: &[u8]) -> bool {
    let mut parts = value.split(|byte| *byte == b',');
    parts.any(|part| part.trim_ascii().eq_ignore_ascii_case(wanted))
}

/// Applies a value of `sql_mode` to the lexer modes.
pub(super) fn read_sql_mode(value: &[u8], modes: &mut LexerModes) {
    let has = |wanted: &[u8]| has_mode(value, wanted);
    // Texts have these abbreviations; servers report all modes that they stand for.
    let ansi: [&[u8]; 6] = [
        b"ANSI",
        b"DB2",
        b"MAXDB",
        b"MSSQL",
        b"ORACLE",
        b"POSTGRESQL",
    ];
    modes.ansi_quotes = has(b"ANSI_QUOTES") || ansi.into_iter().any(has);
    modes.no_backslash_escapes = has(b"NO_BACKSLASH_ESCAPES");
}

/// Returns the status that a server reports outside of a transaction. Client libraries write their
/// strings according to it.
#[must_use]
pub fn status_of<'a>(mariadb: bool, value: impl Fn(&[u8]) -> Option<&'a [u8]>) -> Status {
    let mut modes = LexerModes::default();
    read_sql_mode(value(variables::SQL_MODE).unwrap_or_default(), &mut modes);
    let autocommit = value(variables::AUTOCOMMIT).and_then(boolean) != Some(false);
    let flags = [
        (autocommit, Status::AUTOCOMMIT),
        (modes.no_backslash_escapes, Status::NO_BACKSLASH_ESCAPES),
        (mariadb && modes.ansi_quotes, Status::ANSI_QUOTES),
    ];
    let is_set = flags.into_iter().filter(|(is_set, _)| *is_set);
    is_set.fold(Status::default(), |all, (_, flag)| all.with(flag))
}

/// Returns whether a value means the same in every character set and `sql_mode`, and can therefore
/// be written into a text.
pub(super) fn is_plain(value: &[u8]) -> bool {
    let plain = |byte: &u8| matches!(byte, 0x20..=0x7e) && *byte != b'\\';
    value.iter().all(plain)
}

/// Appends a plain string in quotes. An empty string becomes `x''`: empty quotes mean NULL in
/// MariaDB's mode EMPTY_STRING_IS_NULL, which the connection's previous client may have set.
pub(super) fn put_quoted(value: &[u8], out: &mut Vec<u8>) {
    if value.is_empty() {
        return out.extend_from_slice(b"x''");
    }
    out.push(b'\'');
    for byte in value {
        if *byte == b'\'' {
            out.push(b'\'');
        }
        out.push(*byte);
    }
    out.push(b'\'');
}

/// Appends any string as a literal of its bytes.
pub(super) fn put_hex(value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"x'");
    for byte in value {
        let digit = |half: u8| char::from_digit(u32::from(half), 16).unwrap_or('0') as u8;
        out.extend([digit(byte >> 4), digit(byte & 15)]);
    }
    out.push(b'\'');
}

/// Appends a name in backquotes.
pub(super) fn put_name(name: &[u8], out: &mut Vec<u8>) {
    out.push(b'`');
    for byte in name {
        if *byte == b'`' {
            out.push(b'`');
        }
        out.push(*byte);
    }
    out.push(b'`');
}

/// Returns the result of [`string_of_variable`], or `None` if `mode` makes the empty string NULL.
pub(super) fn literal_of_variable(
    value: &[u8],
    mode: &[u8],
    client: &[u8],
    collation: &[u8],
) -> Option<Vec<u8>> {
    match value.is_empty() && has_mode(mode, b"EMPTY_STRING_IS_NULL") {
        true => None,
        false => string_of_variable(value, client, collation),
    }
}

/// Returns a string of a user variable as a literal with its character set and collation, which
/// means the same in every session. `client` is the character set in which it was written,
/// `collation` that of the connection. Returns `None` if the result of the server's conversion is
/// unknown.
pub(super) fn string_of_variable(value: &[u8], client: &[u8], collation: &[u8]) -> Option<Vec<u8>> {
    let charset = charset_of(collation);
    if !charset.first().is_some_and(u8::is_ascii_alphabetic) {
        // A number that no server has replaced by a name yet.
        return None;
    }
    let is_wide = !mysql::charset_is_safe(charset);
    let same = client.eq_ignore_ascii_case(charset);
    if is_wide || !(same || value.is_ascii()) {
        return None;
    }
    let mut literal = Vec::with_capacity(value.len().saturating_add(collation.len()));
    literal.push(b'_');
    literal.extend_from_slice(charset);
    if is_plain(value) && !value.is_empty() {
        put_quoted(value, &mut literal);
    } else {
        literal.push(b' ');
        put_hex(value, &mut literal);
    }
    if charset != b"binary" {
        literal.extend_from_slice(b" COLLATE ");
        literal.extend_from_slice(collation);
    }
    Some(literal)
}

/// Returns the character set of a collation, which is the first part of its name.
pub(super) fn charset_of(collation: &[u8]) -> &[u8] {
    let end = collation.iter().position(|byte| *byte == b'_');
    end.and_then(|end| collation.get(..end))
        .unwrap_or(collation)
}
