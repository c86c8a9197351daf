//! Heads of requests: parsing, and what they say.

use super::accessors::accessors;
use super::fields::Kind;
use super::{Field, Fields, HEAD_BYTES_MAX, HeadLimits, KnownName, Occurrence};
use super::{Parsed, Span, Version};
use crate::http::fault::{Fault, Limit};
use crate::http::framing::{self, Framing};
use crate::http::grammar;
use crate::http::target::{self, Target, TargetForm};
use crate::http::websocket::{self, WebSocketKey};

/// The longest method that is read, in bytes. The longest registered one,
/// `UPDATEREDIRECTREF`, has 17.
const METHOD_BYTES_MAX: usize = 32;

/// Method of a request, if the code knows it. Methods are case-sensitive (RFC 9110 §9.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Method {
    /// `GET`.
    Get,
    /// `HEAD`.
    Head,
    /// `POST`.
    Post,
    /// `PUT`.
    Put,
    /// `DELETE`.
    Delete,
    /// `OPTIONS`.
    Options,
    /// `PATCH`.
    Patch,
    /// `TRACE`.
    Trace,
    /// `CONNECT`. Requests with it are refused.
    Connect,
    /// Any other.
    #[default]
    Other,
}

impl Method {
    /// Returns the method that the bytes write.
    #[must_use]
    #[inline]
    pub fn of(name: &[u8]) -> Self {
        match name {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"POST" => Method::Post,
            b"PUT" => Method::Put,
            b"DELETE" => Method::Delete,
            b"OPTIONS" => Method::Options,
            b"PATCH" => Method::Patch,
            b"TRACE" => Method::Trace,
            b"CONNECT" => Method::Connect,
            _ => Method::Other,
        }
    }

    /// Returns whether repeating the request has the effect of one (RFC 9110 §9.2.2).
    #[must_use]
    pub fn is_idempotent(self) -> bool {
        match self {
            Method::Get
            | Method::Head
            | Method::Put
            | Method::Delete
            | Method::Options
            | Method::Trace => true,
            Method::Post | Method::Patch | Method::Connect | Method::Other => false,
        }
    }
}

/// Expectation of a client before it sends the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Expectation {
    /// No expectation.
    #[default]
    None,
    /// An interim response 100 (RFC 9110 §10.1.1).
    Continue,
}

/// Head of a request, as spans of the bytes that it was parsed from. Its memory is used again by
/// the next request.
///
/// Call [`RequestHead::parse`] with all bytes of the head received so far, until it returns another
/// result than [`Parsed::Incomplete`]; it continues where it stopped. Call [`RequestHead::clear`]
/// when the bytes of an incomplete head are abandoned. All other functions need a complete head and
/// the bytes that it was parsed from.
#[derive(Debug, Default)]
pub struct RequestHead {
    fields: Fields,
    progress: Progress,
    method: Method,
    method_span: Span,
    version: Version,
    target: Target,
    framing: Framing,
    expectation: Expectation,
    upgrade: Option<WebSocketKey>,
    length: u32,
}

/// Part of a head that has been parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Progress {
    #[default]
    StartLine,
    /// Offset of the first line of fields that has not been read.
    Fields(usize),
    Finished,
}

accessors!(RequestHead);

impl RequestHead {
    /// Creates a head without memory.
    #[must_use]
    pub fn new() -> Self {
        RequestHead::default()
    }

    /// Forgets what was parsed, and keeps the memory.
    pub fn clear(&mut self) {
        self.fields.clear();
        self.progress = Progress::StartLine;
        self.upgrade = None;
        self.expectation = Expectation::None;
        self.framing = Framing::None;
        self.length = 0;
    }

    /// Parses the bytes received so far, from the first one of the request. After a head that was
    /// complete or invalid, it begins a new one.
    pub fn parse(&mut self, bytes: &[u8], limits: &HeadLimits) -> Parsed {
        let head_max = limits.head_bytes_max.min(HEAD_BYTES_MAX);
        match self.progress {
            Progress::Finished => self.clear(),
            Progress::Fields(at) if at > bytes.len() => self.clear(),
            Progress::StartLine | Progress::Fields(_) => {}
        }
        let visible = bytes.get(..head_max).unwrap_or(bytes);
        let parsed = match self.advance(visible, limits) {
            Ok(true) => Parsed::Complete,
            Ok(false) if bytes.len() < head_max => return Parsed::Incomplete,
            Ok(false) => Parsed::Invalid(Fault::Limit(match self.progress {
                // The request line alone has as many bytes, and its method few.
                Progress::StartLine => Limit::TargetBytes(limits.target_bytes_max.min(head_max)),
                _ => Limit::HeadBytes(head_max),
            })),
            Err(fault) => Parsed::Invalid(fault),
        };
        self.progress = Progress::Finished;
        parsed
    }

    /// Parses on from where it stopped. Returns whether the head is complete.
    fn advance(&mut self, bytes: &[u8], limits: &HeadLimits) -> Result<bool, Fault> {
        let mut at = match self.progress {
            Progress::Fields(at) => at,
            Progress::StartLine | Progress::Finished => {
                match self.request_line(bytes, limits.target_bytes_max)? {
                    Some(next) => next,
                    None => return Ok(false),
                }
            }
        };
        let kind = Kind::Request(limits.underscores);
        let length = self.fields.read(bytes, &mut at, kind, limits.fields_max)?;
        self.progress = Progress::Fields(at);
        let Some(length) = length else {
            return Ok(false);
        };
        self.length = grammar::offset(length);
        self.conclude(bytes)?;
        Ok(true)
    }

    /// Reads the request line (RFC 9112 §3). Returns the offset of the first field.
    fn request_line(&mut self, bytes: &[u8], target_max: usize) -> Result<Option<usize>, Fault> {
        // RFC 9112 §2.2: a server "SHOULD ignore at least one empty line"; one is ignored.
        let start = match bytes {
            [b'\r', b'\n', ..] => 2,
            [b'\r'] => return Ok(None),
            _ => 0,
        };
        let end = grammar::token_end(bytes, start);
        if end.saturating_sub(start) > METHOD_BYTES_MAX {
            return Err(Fault::MethodTooLong);
        }
        match bytes.get(end) {
            None => return Ok(None),
            Some(b' ') if end > start => {}
            Some(_) => {
                return Err(Fault::Method {
                    at: grammar::offset(end),
                });
            }
        }
        self.method_span = Span::new(start, end);
        self.method = Method::of(self.method_span.of(bytes));
        if self.method == Method::Connect {
            return Err(Fault::Connect);
        }
        let target_start = end.saturating_add(1);
        let target_end = grammar::target_end(bytes, target_start);
        if target_end.saturating_sub(target_start) > target_max {
            return Err(Fault::Limit(Limit::TargetBytes(target_max)));
        }
        match bytes.get(target_end) {
            None => return Ok(None),
            Some(b' ') if target_end > target_start => {}
            Some(&byte) => {
                return Err(Fault::Byte {
                    at: grammar::offset(target_end),
                    byte,
                });
            }
        }
        self.target = Target::read(bytes, Span::new(target_start, target_end), self.method)?;
        let Some((version, next)) = version_line(bytes, target_end.saturating_add(1))? else {
            return Ok(None);
        };
        self.version = version;
        Ok(Some(next))
    }

    /// Decides what the complete head means.
    fn conclude(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.framing = framing::of_request(&self.fields, bytes, self.version)?;
        let host = match self.fields.host {
            Occurrence::None => None,
            Occurrence::Once(index) => Some(self.fields.span_of_value(index)),
            Occurrence::Repeated => return Err(Fault::HostRepeated),
        };
        self.target.name_host(bytes, host, self.version)?;
        self.expectation = match (self.version, self.fields.expect) {
            // RFC 9110 §10.1.1: "A server that receives a 100-continue expectation in an HTTP/1.0
            // request MUST ignore that expectation."
            (Version::Http10, _) | (_, Occurrence::None) => Expectation::None,
            (Version::Http11, Occurrence::Once(index))
                if (self.fields.at(index, bytes)).eq_ignore_ascii_case(b"100-continue") =>
            {
                match self.framing.has_body() {
                    true => Expectation::Continue,
                    false => Expectation::None,
                }
            }
            (Version::Http11, _) => return Err(Fault::Expectation),
        };
        if self.fields.options.upgrade
            && let Occurrence::Once(index) = self.fields.upgrade
            && self.may_upgrade()
            && self
                .fields
                .at(index, bytes)
                .eq_ignore_ascii_case(b"websocket")
        {
            self.upgrade = websocket::opening_key(&self.fields, bytes);
        }
        Ok(())
    }

    /// Returns whether the request is of a kind that may change the protocol: a request with a body
    /// could not be separated from the bytes of the new protocol.
    fn may_upgrade(&self) -> bool {
        self.method == Method::Get
            && self.version == Version::Http11
            && self.framing == Framing::None
    }

    /// Returns the method.
    #[must_use]
    pub fn method(&self) -> Method {
        self.method
    }

    /// Returns the method as it was sent.
    #[must_use]
    pub fn method_text<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        self.method_span.of(bytes)
    }

    /// Returns the form of the target.
    #[must_use]
    pub fn target_form(&self) -> TargetForm {
        self.target.form()
    }

    /// Returns the path and the query as the request line to a server has them: `/` in place of an
    /// empty path, `*` where the request is about the server as a whole.
    #[must_use]
    pub fn path_and_query<'a>(&self, bytes: &'a [u8]) -> target::PathAndQuery<'a> {
        self.target.path_and_query(bytes)
    }

    /// Returns the path without the query, as it was sent: `/` in place of an empty one, `*` where
    /// the request is about the server as a whole.
    #[must_use]
    pub fn path<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        self.target.path_and_query(bytes).path
    }

    /// Returns the query without its `?`, if there is one. It may be empty.
    #[must_use]
    pub fn query<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let query = self.target.path_and_query(bytes).query;
        query.split_first().map(|(_, query)| query)
    }

    /// Returns the scheme of a target in absolute form: true for `https`.
    #[must_use]
    pub fn target_is_https(&self) -> Option<bool> {
        self.target.is_https()
    }

    /// Returns the host without port and without a final dot, in the sender's case; an IPv6 address
    /// is in brackets. `None` if a request of HTTP/1.0 names none. An absolute target's host comes
    /// first; a differing `Host` is refused.
    #[must_use]
    pub fn host<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        self.target.host(bytes)
    }

    /// Returns the port after the host, if there is one.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.target.port()
    }

    /// Returns host and port as they were sent.
    #[must_use]
    pub fn authority<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        self.target.authority(bytes)
    }

    /// Returns whether the client keeps the connection for further requests.
    #[must_use]
    pub fn keeps_connection(&self) -> bool {
        self.fields.options.keeps_connection(self.version)
    }

    /// Returns whether the client waits for a response 100 before it sends the body.
    #[must_use]
    pub fn expects_continue(&self) -> bool {
        self.expectation == Expectation::Continue
    }

    /// Returns whether the client accepts trailers: `TE: trailers`.
    #[must_use]
    pub fn accepts_trailers(&self) -> bool {
        self.fields.options.trailers
    }

    /// Returns the key of a valid opening request for a WebSocket (RFC 6455 §4.2.1). Any other wish
    /// to change the protocol is none: the field `Upgrade` is removed.
    #[must_use]
    pub fn upgrade(&self) -> Option<WebSocketKey> {
        self.upgrade
    }

    /// Returns how many fields were dropped because of `_` or `.` in their names.
    #[must_use]
    pub fn fields_dropped(&self) -> u32 {
        self.fields.dropped()
    }
}

/// Reads the version at the end of a request line. Returns it and the offset of the next line.
#[inline]
fn version_line(bytes: &[u8], at: usize) -> Result<Option<(Version, usize)>, Fault> {
    let Some(version) = version(bytes, at)? else {
        return Ok(None);
    };
    let end = at.saturating_add(8);
    match bytes.get(end) {
        Some(b'\r' | b'\n') | None => {}
        Some(_) => {
            return Err(Fault::Version {
                at: grammar::offset(end),
            });
        }
    }
    Ok(grammar::line_end(bytes, end)?.map(|next| (version, next)))
}

/// Reads the version at `at`: 8 bytes. `None` if more are needed.
pub(super) fn version(bytes: &[u8], at: usize) -> Result<Option<Version>, Fault> {
    let rest = bytes.get(at..).unwrap_or_default();
    if let Some(version) = rest.first_chunk::<8>() {
        match version {
            b"HTTP/1.1" => return Ok(Some(Version::Http11)),
            b"HTTP/1.0" => return Ok(Some(Version::Http10)),
            _ => {}
        }
    }
    for (index, (&byte, &pattern)) in rest.iter().zip(b"HTTP/0.0").enumerate() {
        let fits = match pattern {
            b'0' => byte.is_ascii_digit(),
            pattern => byte == pattern,
        };
        if !fits {
            return Err(Fault::Version {
                at: grammar::offset(at.saturating_add(index)),
            });
        }
    }
    match rest.len() {
        0..8 => Ok(None),
        _ => Err(Fault::UnsupportedVersion),
    }
}
