//! Heads of responses: `:status` and fields become the text of an HTTP/1.1 head.

use super::checks::{self, Spent};
use super::{HeadFault, HeadListLimits};
use crate::http::{KnownName, Method, grammar};
use crate::http2::hpack::FieldSink;

/// Text of an HTTP/1.1 head that is made of the fields of a response. Its memory is used again by
/// the next response. It is used as [`super::RequestText`] is.
#[derive(Debug, Default)]
pub(in crate::http2) struct ResponseText {
    text: Vec<u8>,
    limits: HeadListLimits,
    spent: Spent,
    content_length: Option<u64>,
    /// Method of the request.
    method: Method,
    stage: Stage,
}

#[derive(Debug, Default)]
enum Stage {
    #[default]
    Status,
    Fields {
        status: u16,
    },
    Refused(HeadFault),
}

/// Facts of a response for which its text need not be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http2) struct ResponseFacts {
    pub(in crate::http2) content: Content,
    /// Number of `Content-Length`.
    pub(in crate::http2) content_length: Option<u64>,
}

/// Content that follows a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http2) enum Content {
    /// Another head: this one is interim.
    Interim,
    /// No content, by the method or the status.
    None,
    /// This number of bytes.
    Length(u64),
    Unknown,
    /// Bytes of a tunnel: the server has accepted an extended CONNECT.
    Tunnel,
}

impl FieldSink for ResponseText {
    fn field(&mut self, name: &[u8], value: &[u8]) -> bool {
        match self.take(name, value) {
            Ok(()) => true,
            Err(fault) => {
                self.stage = Stage::Refused(fault);
                false
            }
        }
    }
}

impl ResponseText {
    /// Creates a text without memory.
    pub(in crate::http2) fn new() -> Self {
        ResponseText::default()
    }

    /// Begins a response to a request with a method, and keeps the memory of the one before. The
    /// method CONNECT is that of an extended one.
    pub(in crate::http2) fn begin(&mut self, method: Method, limits: &HeadListLimits) {
        self.method = method;
        self.text.clear();
        self.limits = *limits;
        self.spent = Spent::default();
        self.content_length = None;
        self.stage = Stage::Status;
    }

    /// Releases the memory. The text is empty then.
    pub(in crate::http2) fn release(&mut self) {
        self.text = Vec::new();
    }

    /// Returns the text of the head, once [`ResponseText::finish`] has succeeded.
    pub(in crate::http2) fn text(&self) -> &[u8] {
        &self.text
    }

    /// Ends the head. `end` is whether END_STREAM was set: neither body nor trailers follow.
    pub(in crate::http2) fn finish(&mut self, end: bool) -> Result<ResponseFacts, HeadFault> {
        let status = match self.stage {
            Stage::Fields { status } => status,
            Stage::Status => return Err(HeadFault::Malformed(":status is missing")),
            Stage::Refused(fault) => return Err(fault),
        };
        let content = match (status, self.content_length) {
            // RFC 9113 §8.1: "A HEADERS frame with the END_STREAM flag set that carries an
            // informational status code is malformed".
            (100..200, _) if end => {
                return Err(HeadFault::Malformed("an interim response ends the stream"));
            }
            (100..200, _) => Content::Interim,
            (200..300, _) if self.method == Method::Connect => Content::Tunnel,
            (204 | 304, _) => Content::None,
            _ if self.method == Method::Head => Content::None,
            (_, Some(1..)) if end => {
                return Err(HeadFault::Malformed("a Content-Length without a body"));
            }
            (_, Some(length)) => Content::Length(length),
            (_, None) => Content::Unknown,
        };
        let framing: &[u8] = match (content, end) {
            (Content::None, _) if self.content_length == Some(0) => b"content-length: 0\r\n",
            (Content::Interim | Content::None | Content::Length(1..) | Content::Tunnel, _) => b"",
            (Content::Length(0) | Content::Unknown, true) => b"content-length: 0\r\n",
            // The body ends with END_STREAM, also an empty one: trailers may follow.
            (Content::Length(0) | Content::Unknown, false) => b"transfer-encoding: chunked\r\n",
        };
        if !framing.is_empty() && self.content_length.is_none() {
            self.spent.add_field(&self.limits)?;
        }
        self.text.extend_from_slice(framing);
        self.text.extend_from_slice(b"\r\n");
        Ok(ResponseFacts {
            content,
            content_length: self.content_length.filter(|_| content != Content::Tunnel),
        })
    }

    fn take(&mut self, name: &[u8], value: &[u8]) -> Result<(), HeadFault> {
        self.spent.add_bytes(name, value, &self.limits)?;
        match (&self.stage, name) {
            (Stage::Refused(fault), _) => Err(*fault),
            (Stage::Status, b":status") => self.start(value),
            (Stage::Fields { .. }, [b':', ..]) => {
                Err(HeadFault::Malformed("a pseudo-field that is not the first"))
            }
            (Stage::Fields { .. }, _) => self.write_field(name, value),
            (Stage::Status, _) => Err(HeadFault::Malformed(":status is not the first field")),
        }
    }

    /// Writes the status line.
    fn start(&mut self, value: &[u8]) -> Result<(), HeadFault> {
        let status = match value {
            // RFC 9113 §8.6: HTTP/2 has no 101.
            b"101" => return Err(HeadFault::Malformed("a status of 101")),
            [b'1'..=b'9', b'0'..=b'9', b'0'..=b'9'] => grammar::decimal(value),
            _ => None,
        };
        let Some(status) = status.and_then(|status| u16::try_from(status).ok()) else {
            return Err(HeadFault::Malformed(":status is not three digits"));
        };
        self.text.extend_from_slice(b"HTTP/1.1 ");
        let is_change = self.method == Method::Connect && (200..300).contains(&status);
        let value = if is_change { b"101" } else { value };
        self.text.extend_from_slice(value);
        self.text.extend_from_slice(b" \r\n");
        self.stage = Stage::Fields { status };
        Ok(())
    }

    fn write_field(&mut self, name: &[u8], value: &[u8]) -> Result<(), HeadFault> {
        self.spent.add_field(&self.limits)?;
        if checks::check_field(name, value)? == KnownName::ContentLength {
            let is_connect = self.method == Method::Connect;
            if is_connect && matches!(self.stage, Stage::Fields { status: 200..300 }) {
                // RFC 9110 §9.3.6: "A client MUST ignore any Content-Length".
                return Ok(());
            }
            let length = grammar::decimal(value);
            if length.is_none() || self.content_length.is_some() {
                return Err(HeadFault::Malformed("Content-Length is not one number"));
            }
            self.content_length = length;
            // The framing of an empty body is written at the end.
            if length == Some(0) {
                return Ok(());
            }
        }
        checks::write_line(&mut self.text, name, value);
        Ok(())
    }
}
