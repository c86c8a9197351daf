//! Heads of responses: parsing, and what they say.

use super::accessors::accessors;
use super::fields::Kind;
use super::request::{Progress, version};
use super::{Field, Fields, HEAD_BYTES_MAX, HeadLimits, KnownName, Method, Occurrence};
use super::{Parsed, Span, Version};
use crate::http::fault::{Fault, Limit};
use crate::http::framing::{self, Framing};
use crate::http::grammar;
use crate::http::websocket::WebSocketKey;

/// Head of a response, as spans of the bytes that it was parsed from. It is used as
/// [`super::RequestHead`] is.
#[derive(Debug, Default)]
pub struct ResponseHead {
    fields: Fields,
    progress: Progress,
    version: Version,
    status: u16,
    reason: Span,
    framing: Framing,
    /// The number of `Content-Length`, also where no body follows.
    content_length: Option<u64>,
    length: u32,
}

accessors!(ResponseHead);

impl ResponseHead {
    /// Creates a head without memory.
    #[must_use]
    pub fn new() -> Self {
        ResponseHead::default()
    }

    /// Forgets what was parsed, and keeps the memory.
    pub fn clear(&mut self) {
        self.fields.clear();
        self.progress = Progress::StartLine;
        self.framing = Framing::None;
        self.content_length = None;
        self.length = 0;
    }

    /// Parses the bytes received so far, from the first one of the response to a request with
    /// `method`. After a head that was complete or invalid, it begins a new one: an interim
    /// response is followed by another head.
    pub fn parse(&mut self, bytes: &[u8], limits: &HeadLimits, method: Method) -> Parsed {
        let head_max = limits.head_bytes_max.min(HEAD_BYTES_MAX);
        match self.progress {
            Progress::Finished => self.clear(),
            Progress::Fields(at) if at > bytes.len() => self.clear(),
            Progress::StartLine | Progress::Fields(_) => {}
        }
        let visible = bytes.get(..head_max).unwrap_or(bytes);
        let parsed = match self.advance(visible, limits, method) {
            Ok(true) => Parsed::Complete,
            Ok(false) if bytes.len() < head_max => return Parsed::Incomplete,
            Ok(false) => Parsed::Invalid(Fault::Limit(Limit::HeadBytes(head_max))),
            Err(fault) => Parsed::Invalid(fault),
        };
        self.progress = Progress::Finished;
        parsed
    }

    fn advance(
        &mut self,
        bytes: &[u8],
        limits: &HeadLimits,
        method: Method,
    ) -> Result<bool, Fault> {
        let mut at = match self.progress {
            Progress::Fields(at) => at,
            Progress::StartLine | Progress::Finished => match self.status_line(bytes)? {
                Some(next) => next,
                None => return Ok(false),
            },
        };
        let read = self
            .fields
            .read(bytes, &mut at, Kind::Response, limits.fields_max)?;
        self.progress = Progress::Fields(at);
        let Some(length) = read else {
            return Ok(false);
        };
        self.length = grammar::offset(length);
        self.content_length = framing::content_length(&self.fields, bytes)?;
        self.framing = framing::of_response(
            &self.fields,
            bytes,
            self.version,
            self.status,
            method,
            self.content_length,
        )?;
        Ok(true)
    }

    /// Reads the status line (RFC 9112 §4). Returns the offset of the first field. The space after
    /// the code may be missing where no reason follows: many servers omit it.
    fn status_line(&mut self, bytes: &[u8]) -> Result<Option<usize>, Fault> {
        let Some(version) = version(bytes, 0)? else {
            return Ok(None);
        };
        self.version = version;
        let mut status = 0_u16;
        for (index, byte) in bytes
            .get(8..)
            .unwrap_or_default()
            .iter()
            .take(4)
            .enumerate()
        {
            match (index, byte) {
                (0, b' ') => {}
                (1, b'1'..=b'9') | (2.., b'0'..=b'9') => {
                    let digit = u16::from(byte.wrapping_sub(b'0'));
                    status = status.saturating_mul(10).saturating_add(digit);
                }
                _ => return Err(Fault::StatusCode),
            }
        }
        let start = match bytes.get(12) {
            None => return Ok(None),
            Some(b' ') => 13,
            Some(b'\r' | b'\n') => 12,
            Some(_) => return Err(Fault::StatusCode),
        };
        self.status = status;
        let end = grammar::value_end(bytes, start);
        self.reason = Span::new(start, end);
        grammar::line_end(bytes, end)
    }

    /// Returns the status code: 100-999.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Returns whether another response to the same request follows: 1xx except 101.
    #[must_use]
    pub fn is_interim(&self) -> bool {
        self.status < 200 && self.status != 101
    }

    /// Returns the text after the status code, which may be empty.
    #[must_use]
    pub fn reason<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        self.reason.of(bytes)
    }

    /// Returns the number of `Content-Length`, also where no body follows, as after `HEAD`.
    #[must_use]
    pub fn content_length(&self) -> Option<u64> {
        self.content_length
    }

    /// Returns whether the server keeps the connection, as far as the head says. False if the body
    /// lasts until the connection closes, if the head has two framings, and in HTTP/1.0.
    #[must_use]
    pub fn keeps_connection(&self) -> bool {
        self.version == Version::Http11
            && self.framing != Framing::UntilClose
            && self.status != 101
            && !(self.has(KnownName::TransferEncoding) && self.has(KnownName::ContentLength))
            && self.fields.options.keeps_connection(self.version)
    }

    /// Returns whether the server has changed to the WebSocket protocol for a request with `key`
    /// (RFC 6455 §4.1): the fields of the answer must prove that it read the request.
    #[must_use]
    pub fn accepts_websocket(&self, bytes: &[u8], key: &WebSocketKey) -> bool {
        let single = |known| {
            let mut values = self.fields.all(bytes, known);
            values.next().filter(|_| values.next().is_none())
        };
        let accept = key.accept();
        self.status == 101
            && self.version == Version::Http11
            && self.fields.options.upgrade
            && self.fields.upgrade != Occurrence::None
            && single(KnownName::Upgrade)
                .is_some_and(|name| name.eq_ignore_ascii_case(b"websocket"))
            && single(KnownName::SecWebSocketAccept) == Some(&accept)
    }
}
