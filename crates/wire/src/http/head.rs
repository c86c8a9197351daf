//! Heads of messages: limits, results, and what requests and responses have in common.

use super::fault::Fault;
use super::grammar;

mod accessors;
mod fields;
mod names;
mod request;
mod response;
mod trailers;

pub use fields::Field;
pub(super) use fields::{FieldSpan, Fields, Occurrence};
pub use names::KnownName;
pub(crate) use names::same_token;
pub use request::{Expectation, Method, RequestHead};
pub use response::ResponseHead;
pub(super) use trailers::Trailers;
pub use trailers::may_be_trailer;

/// The largest head that can be configured, in bytes.
pub const HEAD_BYTES_MAX: usize = 1 << 24;

/// Limits of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadLimits {
    /// Bytes of the head with its start line and the empty line at its end; at most
    /// [`HEAD_BYTES_MAX`].
    pub head_bytes_max: usize,
    /// Bytes of the request target. RFC 9112 §3 asks for 8,000 of the request line at least.
    pub target_bytes_max: usize,
    /// Number of fields.
    pub fields_max: usize,
    /// Treatment of request fields with `_` in their names.
    pub underscores: Underscores,
}

impl Default for HeadLimits {
    fn default() -> Self {
        HeadLimits {
            head_bytes_max: 32_768,
            target_bytes_max: 16_384,
            fields_max: 100,
            underscores: Underscores::Drop,
        }
    }
}

/// Treatment of request fields with `_` in their names. CGI and its successors read `_` as `-`, so
/// that such a field can pose as another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Underscores {
    /// The fields are dropped and counted.
    Drop,
    /// The fields are kept, except those that pose as a field of framing or of the connection.
    Keep,
}

/// Result of parsing the bytes received so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed {
    /// The beginning of a valid head; call again with the same bytes and more.
    Incomplete,
    /// A whole head.
    Complete,
    /// Invalid bytes: no further byte can make a valid head of them.
    Invalid(Fault),
}

/// Version of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    #[default]
    Http11,
}

/// Range of bytes of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) end: u32,
}

impl Span {
    #[inline]
    pub(super) fn new(start: usize, end: usize) -> Self {
        Span {
            start: grammar::offset(start),
            end: grammar::offset(end),
        }
    }

    #[inline]
    pub(super) fn of(self, bytes: &[u8]) -> &[u8] {
        bytes
            .get(self.start as usize..self.end as usize)
            .unwrap_or_default()
    }
}
