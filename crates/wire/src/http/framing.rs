//! The one place that decides how long a body is (RFC 9112 §6.3).

use super::fault::Fault;
use super::grammar;
use super::head::{Fields, Method, Occurrence, Version};

/// Rule by which the end of a body is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Framing {
    /// There is no body.
    #[default]
    None,
    /// Number of bytes.
    Length(u64),
    /// Chunked transfer coding.
    Chunked,
    /// The body ends with the connection. Responses only.
    UntilClose,
}

impl Framing {
    /// Returns whether there is at least the possibility of one byte of body.
    #[must_use]
    pub fn has_body(self) -> bool {
        !matches!(self, Framing::None | Framing::Length(0))
    }

    /// Returns the framing of the same body towards a client of a version.
    #[must_use]
    pub fn towards(self, version: Version) -> Framing {
        match (self, version) {
            (Framing::UntilClose | Framing::Chunked, Version::Http11) => Framing::Chunked,
            (Framing::UntilClose | Framing::Chunked, Version::Http10) => Framing::UntilClose,
            (Framing::None | Framing::Length(_), _) => self,
        }
    }
}

/// Returns the framing of a request. `Content-Length` with `Transfer-Encoding` is refused, as is
/// any repetition of them.
pub(super) fn of_request(
    fields: &Fields,
    bytes: &[u8],
    version: Version,
) -> Result<Framing, Fault> {
    let length = content_length(fields, bytes)?;
    match (is_chunked(fields, bytes, version)?, length) {
        (false, None) => Ok(Framing::None),
        (false, Some(length)) => Ok(Framing::Length(length)),
        (true, None) => Ok(Framing::Chunked),
        (true, Some(_)) => Err(Fault::TwoFramings),
    }
}

/// Returns the framing of a response with a status to a request with a method. Where both fields
/// are, `Transfer-Encoding` decides, and the connection is not used again.
pub(super) fn of_response(
    fields: &Fields,
    bytes: &[u8],
    version: Version,
    status: u16,
    method: Method,
    length: Option<u64>,
) -> Result<Framing, Fault> {
    let chunked = is_chunked(fields, bytes, version)?;
    let without_body = method == Method::Head
        || (method == Method::Connect && (200..300).contains(&status))
        || matches!(status, 100..200 | 204 | 304);
    Ok(match (chunked, length) {
        _ if without_body => Framing::None,
        (true, _) => Framing::Chunked,
        (false, Some(length)) => Framing::Length(length),
        (false, None) => Framing::UntilClose,
    })
}

/// Returns the number of `Content-Length`.
pub(super) fn content_length(fields: &Fields, bytes: &[u8]) -> Result<Option<u64>, Fault> {
    match fields.content_length {
        Occurrence::None => Ok(None),
        Occurrence::Repeated => Err(Fault::ContentLengthRepeated),
        Occurrence::Once(index) => match grammar::decimal(fields.at(index, bytes)) {
            Some(length) => Ok(Some(length)),
            None => Err(Fault::ContentLength),
        },
    }
}

/// Returns whether `Transfer-Encoding` is there and is exactly one `chunked`.
fn is_chunked(fields: &Fields, bytes: &[u8], version: Version) -> Result<bool, Fault> {
    let index = match fields.transfer_encoding {
        Occurrence::None => return Ok(false),
        _ if version == Version::Http10 => return Err(Fault::TransferEncodingInOldVersion),
        Occurrence::Repeated => return Err(Fault::TransferEncoding),
        Occurrence::Once(index) => index,
    };
    let value = fields.at(index, bytes);
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(true);
    }
    let known = |coding: &[u8]| {
        [
            &b"gzip"[..],
            b"x-gzip",
            b"deflate",
            b"compress",
            b"x-compress",
            b"br",
            b"zstd",
        ]
        .iter()
        .any(|known| known.eq_ignore_ascii_case(coding))
    };
    match grammar::list(value).any(known) {
        true => Err(Fault::TransferCoding),
        false => Err(Fault::TransferEncoding),
    }
}
