//! Writes the SQL that turns one set of settings into another.

use std::cmp::Ordering;

use super::{SettingSet, values};

/// Settings that decide the session's privileges: reset before all others and set after them.
const AUTHORITY: [&[u8]; 2] = [b"session_authorization", b"role"];

/// Set before the others, because the values of some are resolved through it.
const FIRST: &[u8] = b"search_path";

/// Writes the statements that turn a connection with `actual` into one with `desired`, as one text
/// for the simple query protocol. Writes nothing if they are equal. The reply may contain rows.
pub fn difference(actual: &SettingSet, desired: &SettingSet, out: &mut Vec<u8>) {
    if actual == desired {
        return;
    }
    for name in AUTHORITY {
        if actual.get(name).is_some() {
            reset(name, out);
        }
    }
    let is_ordinary = |name: &[u8]| name != FIRST && !AUTHORITY.contains(&name);
    write_change(FIRST, actual, desired, out);
    for_each_difference(actual, desired, |name| {
        if is_ordinary(name) {
            write_change(name, actual, desired, out);
        }
    });
    for name in AUTHORITY {
        if let Some(value) = desired.get(name) {
            set(name, value, out);
        }
    }
}

/// Calls `call` for each name whose value differs, or which only one of the sets contains.
fn for_each_difference(actual: &SettingSet, desired: &SettingSet, mut call: impl FnMut(&[u8])) {
    let mut from = actual.iter().peekable();
    let mut to = desired.iter().peekable();
    loop {
        let order = match (from.peek(), to.peek()) {
            (None, None) => return,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((one, _)), Some((other, _))) => one.cmp(other),
        };
        let before = (order != Ordering::Greater).then(|| from.next()).flatten();
        let after = (order != Ordering::Less).then(|| to.next()).flatten();
        let changed = before.map(|(_, value)| value) != after.map(|(_, value)| value);
        if let Some((name, _)) = before.or(after).filter(|_| changed) {
            call(name);
        }
    }
}

fn write_change(name: &[u8], actual: &SettingSet, desired: &SettingSet, out: &mut Vec<u8>) {
    match (actual.get(name), desired.get(name)) {
        (Some(_), None) => reset(name, out),
        (before, Some(value)) if before != Some(value) => {
            if before.is_some() && is_relative(name, value) {
                reset(name, out);
            }
            set(name, value, out);
        }
        _ => {}
    }
}

/// Returns whether a value changes a part of the setting only: `DateStyle` may be set in part.
fn is_relative(name: &[u8], value: &[u8]) -> bool {
    name == b"datestyle" && !value.contains(&b',')
}

fn reset(name: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"RESET ");
    write_name(name, out);
    out.push(b';');
}

/// Writes one SET statement.
pub(super) fn set(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    let names = match values::is_list_of_names(name) {
        // The value must be in the server's own format, or SHOW would return another text.
        true => values::names_of(value).filter(|names| *values::flattened(name, names) == *value),
        false => Some(vec![value.into()]),
    };
    let Some(names) = names else {
        // SET cannot express an empty list, one that cannot be split here, or one with other
        // spacing.
        out.extend_from_slice(b"SELECT pg_catalog.set_config(");
        values::literal(out, name);
        out.push(b',');
        values::literal(out, value);
        out.extend_from_slice(b",false);");
        return;
    };
    out.extend_from_slice(b"SET ");
    write_name(name, out);
    for (index, value) in names.iter().enumerate() {
        out.extend_from_slice(if index == 0 { b" TO " } else { b"," });
        values::literal(out, value);
    }
    out.push(b';');
}

/// Writes a name with each part in quotes, because a part may be a keyword.
fn write_name(name: &[u8], out: &mut Vec<u8>) {
    for (index, part) in name.split(|byte| *byte == b'.').enumerate() {
        if index > 0 {
            out.push(b'.');
        }
        values::quoted(out, part, b'"');
    }
}
