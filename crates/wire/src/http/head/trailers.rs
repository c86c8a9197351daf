//! The trailer section of a chunked body: kept until it is complete, then filtered.

use super::fields::Kind;
use super::{Field, Fields, HeadLimits, KnownName, Underscores};
use crate::http::fault::{Fault, Limit};
use crate::http::grammar;

/// Fields that are no trailers, besides all that begin with `Content-`: framing, routing,
/// authentication, request modifiers and controls of responses (RFC 9110 §6.5.1).
const REFUSED: &[&str] = &[
    "Accept-Ranges",
    "Age",
    "Authorization",
    "Cache-Control",
    "Client-Cert",
    "Client-Cert-Chain",
    "Connection",
    "Cookie",
    "Date",
    "Expect",
    "Expires",
    "Forwarded",
    "Host",
    "HTTP2-Settings",
    "If-Match",
    "If-Modified-Since",
    "If-None-Match",
    "If-Range",
    "If-Unmodified-Since",
    "Keep-Alive",
    "Location",
    "Max-Forwards",
    "Pragma",
    "Proxy-Authenticate",
    "Proxy-Authorization",
    "Proxy-Connection",
    "Range",
    "Retry-After",
    "Set-Cookie",
    "TE",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
    "Vary",
    "WWW-Authenticate",
    "X-Real-IP",
    "X-Request-ID",
];

/// Beginnings of names that no trailer has.
const REFUSED_BEGINNINGS: [&str; 3] = ["Content-", "X-Forwarded-", "Sec-"];

/// Trailer section, in memory of its own.
#[derive(Debug, Default)]
pub(in crate::http) struct Trailers {
    bytes: Vec<u8>,
    /// Offset of the first line that has not been read.
    at: usize,
    fields: Fields,
}

impl Trailers {
    pub(in crate::http) fn clear(&mut self) {
        self.bytes.clear();
        self.at = 0;
        self.fields.clear();
    }

    /// Takes bytes of the section. Returns how many of them belong to it, if it is complete.
    pub(in crate::http) fn take(
        &mut self,
        input: &[u8],
        limits: &HeadLimits,
    ) -> Result<Option<usize>, Fault> {
        let max = limits.head_bytes_max;
        let before = self.bytes.len();
        let room = max.saturating_sub(before);
        let taken = input.get(..room).unwrap_or(input);
        self.bytes.extend_from_slice(taken);
        let kind = Kind::Request(Underscores::Drop);
        let read = (self.fields).read(&self.bytes, &mut self.at, kind, limits.fields_max);
        match read {
            Ok(Some(length)) => {
                self.bytes.truncate(length);
                Ok(Some(length.saturating_sub(before)))
            }
            Ok(None) if self.bytes.len() >= max => Err(Fault::Limit(Limit::TrailerBytes(max))),
            Ok(None) => Ok(None),
            Err(Fault::Limit(limit)) => Err(Fault::Limit(limit)),
            Err(_) => Err(Fault::Trailer),
        }
    }

    /// Returns the fields that may be passed on.
    pub(in crate::http) fn fields(&self) -> impl Iterator<Item = Field<'_>> {
        let fields = self.fields.iter(&self.bytes);
        fields.filter(|field| may_be_trailer(field.name))
    }
}

/// Returns whether a field of the name may be a trailer.
pub fn may_be_trailer(name: &[u8]) -> bool {
    let is = |refused: &&str| grammar::folded_eq(refused.as_bytes(), name);
    let begins = |beginning: &&str| {
        let part = name.get(..beginning.len());
        part.is_some_and(|part| grammar::folded_eq(part, beginning.as_bytes()))
    };
    !REFUSED.iter().any(is)
        && !REFUSED_BEGINNINGS.iter().any(begins)
        && KnownName::of(name) != KnownName::Host
}
