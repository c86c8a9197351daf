//! Names and values of settings as the server understands them (manual: `set_config`, SET).

use std::borrow::Cow;

use crate::name::identifier;
use evenkeel_policy::pins::{Pin, Pins};

use super::SettingSet;

/// Settings whose values are lists of names. SET quotes each name of the list; `set_config` takes
/// the list as one text.
const LISTS_OF_NAMES: [&[u8]; 4] = [
    b"search_path",
    b"temp_tablespaces",
    b"local_preload_libraries",
    b"session_preload_libraries",
];

/// Prefixes of settings that only a superuser may change; some also match other settings.
const OF_SUPERUSERS: [&[u8]; 24] = [
    b"allow_",
    b"backtrace_functions",
    b"commit_delay",
    b"compute_query_id",
    b"deadlock_timeout",
    b"debug_discard_caches",
    b"dynamic_library_path",
    b"event_triggers",
    b"extension_",
    b"ignore_checksum_failure",
    b"jit_dump_bitcode",
    b"lc_messages",
    b"lo_compat_privileges",
    b"log_",
    b"max_stack_depth",
    b"output_plugin_libraries",
    b"session_preload_libraries",
    b"session_replication_role",
    b"temp_file_limit",
    b"track_",
    b"update_process_title",
    b"wal_",
    b"zero_damaged_pages",
    b"auto_explain.",
];

/// Old names of settings that servers still accept, with their present names.
const FORMER_NAMES: [(&[u8], &[u8]); 2] = [
    (b"sort_mem", b"work_mem"),
    (b"vacuum_mem", b"maintenance_work_mem"),
];

/// Returns whether the setting's value is a list of names ([`LISTS_OF_NAMES`]).
pub(super) fn is_list_of_names(name: &[u8]) -> bool {
    LISTS_OF_NAMES.contains(&name)
}

/// Returns whether the setting is the session's role or user, which RESET ALL does not change.
pub(crate) fn is_role(name: &[u8]) -> bool {
    matches!(name, b"role" | b"session_authorization")
}

/// Returns the pins that settings cause by themselves: with `pg_temp` in the search path, any
/// CREATE TABLE may create a temporary table.
pub(super) fn pins_of(settings: &SettingSet) -> Pins {
    const TEMPORARY: &[u8] = b"pg_temp";
    let path = settings.get(b"search_path").unwrap_or_default();
    let mut windows = path.windows(TEMPORARY.len());
    match windows.any(|part| part.eq_ignore_ascii_case(TEMPORARY)) {
        true => Pins::of(&[Pin::TemporaryTable]),
        false => Pins::NONE,
    }
}

/// Returns whether setting it may require superuser privileges.
pub(super) fn is_of_superusers(name: &[u8]) -> bool {
    let mut names = OF_SUPERUSERS.iter();
    names.any(|beginning| name.starts_with(beginning))
}

/// Returns the pin of a setting with a value that no text shows. `None`: its name is unknown, too.
pub(crate) fn pin_of_unknown(name: Option<&[u8]>) -> Pin {
    // Only the list of settings shows whether the login user may set it.
    let is_enough = |name: &[u8]| !is_role(name) && !is_of_superusers(name);
    match name.is_some_and(is_enough) {
        true => Pin::NamedSettings,
        false => Pin::Settings,
    }
}

/// Converts the name of a setting from a text value to lower case and its present name. Returns
/// `None` if the name cannot be determined.
pub(crate) fn name(text: &[u8]) -> Option<Box<[u8]>> {
    let plain = |byte: &u8| (0x21..0x7f).contains(byte);
    if text.is_empty() || !text.iter().all(plain) {
        return None;
    }
    let lower = text.to_ascii_lowercase();
    let former = FORMER_NAMES.iter().find(|(old, _)| *old == lower);
    Some(match former {
        Some((_, today)) => (*today).into(),
        None => lower.into(),
    })
}

/// Parses the name of a setting as written in SQL, possibly with dots and quotes.
pub(crate) fn written_name(written: &[u8]) -> Option<Box<[u8]>> {
    let mut whole = Vec::with_capacity(written.len());
    for part in written.split(|byte| *byte == b'.') {
        let inner = match part {
            [b'"', inner @ .., b'"'] => inner,
            bare => bare,
        };
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$');
        if inner.is_empty() || !inner.iter().all(plain) {
            return None;
        }
        if !whole.is_empty() {
            whole.push(b'.');
        }
        whole.extend_from_slice(&identifier(part));
    }
    name(&whole)
}

/// Joins the values of a SET into the one text that the server makes of them.
pub(crate) fn flattened(name: &[u8], values: &[Cow<'_, [u8]>]) -> Box<[u8]> {
    let mut whole = Vec::new();
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            whole.extend_from_slice(b", ");
        }
        if is_list_of_names(name) {
            push_identifier(&mut whole, value);
        } else {
            whole.extend_from_slice(value);
        }
    }
    whole.into()
}

/// Writes an identifier, in quotes if it needs them. Keywords in a list need no quotes.
fn push_identifier(out: &mut Vec<u8>, name: &[u8]) {
    let part = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_');
    let begins = matches!(name.first(), Some(b'a'..=b'z' | b'_'));
    if begins && name.iter().all(part) {
        out.extend_from_slice(name);
    } else {
        quoted(out, name, b'"');
    }
}

/// Splits a list of names as the server does. Returns `None` if it is empty or not a list.
pub(super) fn names_of(list: &[u8]) -> Option<Vec<Cow<'_, [u8]>>> {
    let mut names = Vec::new();
    let mut rest = list.trim_ascii();
    loop {
        let (name, after) = match rest {
            [b'"', quoted @ ..] => quoted_name(quoted)?,
            _ => bare_name(rest)?,
        };
        names.push(name);
        rest = after.trim_ascii_start();
        match rest {
            [] => return Some(names),
            [b',', after @ ..] => rest = after.trim_ascii_start(),
            _ => return None,
        }
    }
}

type Split<'a> = Option<(Cow<'a, [u8]>, &'a [u8])>;

fn quoted_name(text: &[u8]) -> Split<'_> {
    let mut name = Vec::new();
    let mut rest = text;
    loop {
        let end = rest.iter().position(|byte| *byte == b'"')?;
        let (part, after) = rest.split_at_checked(end)?;
        name.extend_from_slice(part);
        match after {
            [b'"', b'"', after @ ..] => {
                name.push(b'"');
                rest = after;
            }
            _ => return Some((Cow::Owned(name), after.get(1..)?)),
        }
    }
}

fn bare_name(text: &[u8]) -> Split<'_> {
    let ends = |byte: &u8| *byte == b',' || byte.is_ascii_whitespace();
    let end = text.iter().position(ends).unwrap_or(text.len());
    let (name, after) = text.split_at_checked(end)?;
    let readable = !name.is_empty() && name.is_ascii() && !name.contains(&b'"');
    readable.then(|| (identifier(name), after))
}

/// Writes a name or text in quotes; quotes within it are doubled.
pub fn quoted(out: &mut Vec<u8>, text: &[u8], quote: u8) {
    out.push(quote);
    for byte in text {
        if *byte == quote {
            out.push(quote);
        }
        out.push(*byte);
    }
    out.push(quote);
}

/// Writes a string literal in ASCII, which is independent of the session's encoding and of
/// `standard_conforming_strings`.
pub(super) fn literal(out: &mut Vec<u8>, value: &[u8]) {
    let plain = |byte: &u8| byte.is_ascii() && *byte != b'\\';
    if value.iter().all(plain) {
        return quoted(out, value, b'\'');
    }
    let escaped = match str::from_utf8(value) {
        Ok(text) => escaped(text),
        // No session state keeps such a value; it is sent unchanged.
        Err(_) => value.to_vec(),
    };
    out.push(b'E');
    quoted(out, &escaped, b'\'');
}

fn escaped(text: &str) -> Vec<u8> {
    let mut escaped = String::with_capacity(text.len().saturating_mul(2));
    for character in text.chars() {
        match character {
            '\\' => escaped.push_str("\\\\"),
            ascii if ascii.is_ascii() => escaped.push(ascii),
            other => escaped.push_str(&format!("\\U{:08X}", u32::from(other))),
        }
    }
    escaped.into_bytes()
}

/// Parses a boolean as the server does: unambiguous prefixes of the words are accepted.
pub(crate) fn boolean(value: &[u8]) -> Option<bool> {
    let lower = value.to_ascii_lowercase();
    let begins = |word: &str, shortest: usize| {
        lower.len() >= shortest && word.as_bytes().starts_with(&lower)
    };
    if lower == b"1" || begins("true", 1) || begins("yes", 1) || begins("on", 2) {
        return Some(true);
    }
    let off = lower == b"0" || begins("false", 1) || begins("no", 1) || begins("off", 2);
    off.then_some(false)
}
