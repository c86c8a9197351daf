//! Reads the header fields that a route sets and removes.

use super::texts;
use crate::problem::{Problems, SourceSpan};
use crate::reader::{Table, wrong_type};

/// Fields that Evenkeel generates in each message, or that belong to one connection (RFC 9110
/// §7.6.1).
const OF_CONNECTION: [&str; 11] = [
    "connection",
    "content-length",
    "expect",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "host",
];

/// Fields that Evenkeel generates in requests, from the address and the certificate of the client.
const OF_CLIENT: [&str; 8] = [
    "client-cert",
    "client-cert-chain",
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-real-ip",
];

/// Reads a table of fields to set.
pub(super) fn set(table: &Table<'_>, key: &str, problems: &mut Problems) -> Vec<(String, String)> {
    let help = format!("write `{key} = {{ X-Name = \"value\" }}`");
    let mut fields: Vec<(String, String)> = Vec::new();
    for entry in table.entries(key, &help, problems) {
        let span = Some(entry.span.clone());
        let Some(value) = entry.value.get_ref().as_str() else {
            wrong_type(entry.name, "a string", entry.value, help.as_str(), problems);
            continue;
        };
        let is_same = |(name, _): &(String, String)| name.eq_ignore_ascii_case(entry.name);
        if fields.iter().any(is_same) {
            let message = format!("`{}` is set twice: names have no case", entry.name);
            problems.error(&span, "E_BOTH", message, "remove one of them");
        }
        let is_named = check_changeable(entry.name, &span, key, problems);
        let is_valued = check_value(entry.name, value, &Some(entry.value.span()), problems);
        if is_named && is_valued {
            fields.push((entry.name.to_owned(), value.to_owned()));
        }
    }
    fields
}

/// Reads the names of fields to remove from requests.
pub(super) fn removed(table: &Table<'_>, problems: &mut Problems) -> Vec<String> {
    let help = "write `remove_request = [\"X-Debug\"]`";
    let mut names = Vec::new();
    for (name, span) in texts(table, "remove_request", help, problems) {
        if check_changeable(name, &span, "remove_request", problems) {
            names.push(name.to_owned());
        }
    }
    names
}

/// Returns whether a text is a token (RFC 9110 §5.6.2), such as a name of a field or a method.
pub(crate) fn is_token(text: &str) -> bool {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_valid)
}

/// Reports a name that no field can have; returns whether it is valid.
pub(super) fn check_name(name: &str, span: &SourceSpan, problems: &mut Problems) -> bool {
    if is_token(name) {
        return true;
    }
    let message = format!("`{name}` is not the name of a header field");
    let help = "letters, digits and `-`, such as `X-Version`";
    problems.error(span, "E_NAME", message, help);
    false
}

/// Reports a name of a field that a route may not change; returns whether it may.
fn check_changeable(name: &str, span: &SourceSpan, key: &str, problems: &mut Problems) -> bool {
    if !check_name(name, span, problems) {
        return false;
    }
    let lower = name.to_ascii_lowercase();
    let is_generated = OF_CONNECTION.contains(&lower.as_str())
        || (key != "set_response" && OF_CLIENT.contains(&lower.as_str()));
    if is_generated {
        let message = format!("`{name}` cannot be in `{key}`: Evenkeel writes it itself");
        problems.error(span, "E_VALUE", message, "remove it");
    }
    !is_generated
}

/// Reports a value that no field can have (RFC 9110 §5.5); returns whether it is valid.
fn check_value(name: &str, value: &str, span: &SourceSpan, problems: &mut Problems) -> bool {
    let is_printable = |byte: u8| (b' '..=b'~').contains(&byte);
    let is_valid = value.bytes().all(is_printable) && value.trim() == value && !value.is_empty();
    if !is_valid {
        let message = format!("the value of `{name}` is not one of a header field");
        let help = "printable ASCII characters, with no space at either end";
        problems.error(span, "E_VALUE", message, help);
    }
    is_valid
}
