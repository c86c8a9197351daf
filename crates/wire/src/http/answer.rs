//! Answers of Evenkeel's own: errors, redirects, fixed pages.

use super::edit::{self, NewField, Persistence};
use super::framing::Framing;
use super::head::{Method, Version};

/// Answer with a body of known length.
#[derive(Debug, Clone, Copy)]
pub struct Answer<'a> {
    /// Status code, 200-999.
    pub status: u16,
    /// Fields, without those of the framing and of the connection.
    pub fields: &'a [NewField<'a>],
    /// Body. Left out in answers to `HEAD`, and for 204 and 304.
    pub body: &'a [u8],
    /// Method of the request.
    pub method: Method,
    /// The client's version.
    pub client: Version,
    /// Whether the connection stays open.
    pub persistence: Persistence,
}

impl Answer<'_> {
    /// Returns whether the status has a body, whose length is stated also where it is left out.
    pub(crate) fn has_content(&self) -> bool {
        !matches!(self.status, 100..200 | 204 | 304)
    }
}

/// The interim response that lets a client send its body.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Appends an answer.
pub fn write_answer(out: &mut Vec<u8>, answer: &Answer<'_>) {
    edit::write_status_line(out, answer.status, reason_phrase(answer.status).as_bytes());
    for (name, value) in answer.fields {
        edit::write_field(out, name, value);
    }
    if answer.has_content() {
        edit::write_framing(out, Framing::Length(answer.body.len() as u64));
    }
    edit::write_persistence(out, answer.persistence, answer.client);
    out.extend_from_slice(b"\r\n");
    if answer.has_content() && answer.method != Method::Head {
        out.extend_from_slice(answer.body);
    }
}

/// Returns the usual text of a status code (RFC 9110 §15 and the registry). Empty for others.
#[must_use]
pub fn reason_phrase(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        103 => "Early Hints",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        206 => "Partial Content",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        425 => "Too Early",
        426 => "Upgrade Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        451 => "Unavailable For Legal Reasons",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        508 => "Loop Detected",
        _ => "",
    }
}
