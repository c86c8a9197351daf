//! Formats failures in plain words: the observation, the cause if known, and the setting to change.

use std::{error::Error, io, time::Duration};

use rustls::Error as TlsError;

/// Maximum length of a server's own message, in characters.
const WORDS_CHARS_MAX: usize = 300;

pub(crate) fn timed_out(timeout: Duration, step: &str) -> String {
    format!("timed out after {} ms while {step}", timeout.as_millis())
}

/// Formats a system call's error, without its number where the text is enough.
pub(crate) fn io(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::ConnectionReset => "connection reset by the server".to_owned(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => closed(),
        io::ErrorKind::NotFound => "no such socket file".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied on the socket file".to_owned(),
        _ => error.to_string(),
    }
}

pub(crate) fn closed() -> String {
    "the server closed the connection before it answered".to_owned()
}

/// Reports that the peer's first bytes do not belong to the protocol.
pub(crate) fn unexpected_protocol(protocol: &str, first: &[u8]) -> String {
    format!(
        "not a {protocol} server: received \"{}\"",
        first.escape_ascii()
    )
}

/// Reports that the server rejected the account; `hint` completes "check".
pub(crate) fn login_refused(user: &str, server_text: &str, hint: &str) -> String {
    format!(
        "the server refused the monitor account '{user}': {}; check {hint}",
        truncated(server_text)
    )
}

/// Returns a server's own message on one line, with limited length.
pub(crate) fn truncated(words: &str) -> String {
    let one_line = words.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut truncated: String = one_line.take(WORDS_CHARS_MAX).collect();
    if words.chars().nth(WORDS_CHARS_MAX).is_some() {
        truncated.push('…');
    }
    truncated
}

/// Returns the TLS error inside an error of a protocol library, if there is one.
pub(crate) fn tls_inside<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a TlsError> {
    if let Some(found) = error.downcast_ref::<TlsError>() {
        return Some(found);
    }
    // An io::Error's source is the source of the error that it wraps, which skips the wrapped error
    // itself.
    let wrapped = error
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref);
    match wrapped {
        Some(inner) => tls_inside(inner),
        None => tls_inside(error.source()?),
    }
}

/// Returns the system's error inside an error of a protocol library, if there is one.
pub(crate) fn io_inside<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a io::Error> {
    match error.downcast_ref::<io::Error>() {
        Some(found) => Some(found),
        None => io_inside(error.source()?),
    }
}

/// Formats an error with its sources.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(next) = source {
        let text = next.to_string();
        if !words.contains(&text) {
            words = format!("{words}: {text}");
        }
        source = next.source();
    }
    truncated(&words)
}
