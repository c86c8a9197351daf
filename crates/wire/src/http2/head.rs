//! Heads of messages: fields become the text of an HTTP/1.1 head (RFC 9113 §8).
//!
//! Names and values are checked before they reach the text, so that each field is one line of it.
//! [`crate::http::RequestHead`] or [`crate::http::ResponseHead`] then parses the text, and refuses
//! what HTTP/1.1 refuses, such as a request without a host.
//!
//! An extended CONNECT becomes the request of HTTP/1.1 for the same change of the protocol: `GET`
//! with `Upgrade`. A response that accepts it becomes a 101 (RFC 8441 §5).

mod checks;
mod pseudo;
mod response;
mod trailers;

use std::ops::Range;

use self::checks::Spent;
use self::pseudo::Pseudo;
use super::hpack::FieldSink;
use crate::http::{KnownName, Limit, Method, grammar, target};

pub(super) use response::{Content, ResponseText};
pub use trailers::TrailerText;

/// Limits of a list of fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadListLimits {
    /// Bytes of all names and values, with 32 for each field (RFC 9113 §6.5.2).
    pub bytes_max: u32,
    /// Number of fields besides pseudo-fields. Each part of a cookie counts, and so do the `Host`
    /// and the field of the framing that the text has.
    pub fields_max: u32,
}

impl Default for HeadListLimits {
    fn default() -> Self {
        HeadListLimits {
            bytes_max: 32_768,
            fields_max: 100,
        }
    }
}

/// Reason for which a list of fields is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadFault {
    /// The message is malformed (RFC 9113 §8.1.1): a stream error PROTOCOL_ERROR. The text says
    /// why, without data.
    Malformed(&'static str),
    /// The list exceeds a limit: a request may be answered with 431.
    TooLarge(Limit),
}

/// Facts of a request for which its text need not be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestFacts {
    /// Number of `Content-Length`: the sum of the bytes in DATA must be equal to it.
    pub content_length: Option<u64>,
    /// The request is an extended CONNECT: bytes of a tunnel follow, without framing and trailers
    /// (RFC 8441 §4).
    pub is_tunnel: bool,
}

/// Value of `Sec-WebSocket-Key` in the text of an extended CONNECT, which has none (RFC 8441 §5).
/// The caller replaces it by a random one.
const EMPTY_KEY: &[u8] = b"AAAAAAAAAAAAAAAAAAAAAA==";

/// Text of an HTTP/1.1 head that is made of the fields of a request. Its memory is used again by
/// the next request.
///
/// Call [`RequestText::begin`], then let a decoder write the fields, then call
/// [`RequestText::finish`].
#[derive(Debug, Default)]
pub struct RequestText {
    text: Vec<u8>,
    /// Values of the pseudo-fields; after them, the parts of the cookie.
    held: Vec<u8>,
    limits: HeadListLimits,
    spent: Spent,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Pseudo(Pseudo),
    Fields(Regular),
    Refused(HeadFault),
    Finished,
}

impl Default for Stage {
    fn default() -> Self {
        Stage::Pseudo(Pseudo::default())
    }
}

/// State of a head whose start line is written.
#[derive(Debug)]
struct Regular {
    kind: Kind,
    host: Host,
    has_cookie: bool,
    content_length: Option<u64>,
}

/// Kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// An ordinary one, with its method.
    Ordinary(Method),
    /// An extended CONNECT.
    Connect,
}

/// Origin of the field `Host` in the text.
#[derive(Debug)]
enum Host {
    None,
    /// `:authority`: its range in the text, and the port that it has if it names none.
    Authority(Range<usize>, u16),
    /// `:authority`, and a field that is equal to it.
    Both,
    Field,
}

impl FieldSink for RequestText {
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

impl RequestText {
    /// Creates a text without memory.
    #[must_use]
    pub fn new() -> Self {
        RequestText::default()
    }

    /// Begins a request, and keeps the memory of the one before.
    pub fn begin(&mut self, limits: &HeadListLimits) {
        self.text.clear();
        self.held.clear();
        self.limits = *limits;
        self.spent = Spent::default();
        self.stage = Stage::default();
    }

    /// Releases the memory. The text is empty then.
    pub fn release(&mut self) {
        self.text = Vec::new();
        self.held = Vec::new();
    }

    /// Returns the text of the head, once [`RequestText::finish`] has succeeded.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Ends the head. `end` is whether END_STREAM was set: neither body nor trailers follow.
    pub fn finish(&mut self, end: bool) -> Result<RequestFacts, HeadFault> {
        self.start()?;
        let Stage::Fields(regular) = std::mem::replace(&mut self.stage, Stage::Finished) else {
            return Err(HeadFault::Malformed("the head is finished already"));
        };
        if regular.has_cookie {
            checks::write_line(&mut self.text, b"cookie", &self.held);
        }
        let framing: &[u8] = match (regular.content_length, end, regular.kind) {
            (_, _, Kind::Connect) => b"",
            (Some(1..), true, _) => {
                return Err(HeadFault::Malformed("a Content-Length without a body"));
            }
            (Some(1..), false, _) => b"",
            (Some(0), true, _) => b"content-length: 0\r\n",
            // The body ends with END_STREAM, also an empty one: before it, the request may still
            // prove to be malformed.
            (Some(0) | None, false, _) => b"transfer-encoding: chunked\r\n",
            // RFC 9110 §8.6: "a user agent SHOULD send Content-Length" where the method has a use
            // for a body.
            (None, true, Kind::Ordinary(Method::Post | Method::Put | Method::Patch)) => {
                b"content-length: 0\r\n"
            }
            (None, true, _) => b"",
        };
        if !framing.is_empty() && regular.content_length.is_none() {
            self.spent.add_field(&self.limits)?;
        }
        self.text.extend_from_slice(framing);
        self.text.extend_from_slice(b"\r\n");
        Ok(RequestFacts {
            content_length: regular.content_length,
            is_tunnel: regular.kind == Kind::Connect,
        })
    }

    fn take(&mut self, name: &[u8], value: &[u8]) -> Result<(), HeadFault> {
        self.spent.add_bytes(name, value, &self.limits)?;
        if let [b':', name @ ..] = name {
            return match &mut self.stage {
                Stage::Pseudo(pseudo) => pseudo.take(name, value, &mut self.held),
                Stage::Refused(fault) => Err(*fault),
                _ => Err(HeadFault::Malformed("a pseudo-field after a field")),
            };
        }
        self.spent.add_field(&self.limits)?;
        self.start()?;
        let known = checks::check_field(name, value)?;
        match &mut self.stage {
            Stage::Fields(regular) => {
                regular.take(known, name, value, &mut self.text, &mut self.held)
            }
            _ => Err(HeadFault::Malformed("a field after the end of the head")),
        }
    }

    /// Writes the start line, if it is not written.
    fn start(&mut self) -> Result<(), HeadFault> {
        match &self.stage {
            Stage::Pseudo(pseudo) => {
                let line = pseudo.start_line(&self.held)?;
                let text = &mut self.text;
                text.extend_from_slice(line.method);
                text.push(b' ');
                text.extend_from_slice(line.path);
                text.extend_from_slice(b" HTTP/1.1\r\n");
                let mut host = Host::None;
                if let Some(authority) = line.authority {
                    self.spent.add_field(&self.limits)?;
                    text.extend_from_slice(b"Host: ");
                    let start = text.len();
                    text.extend_from_slice(authority);
                    host = Host::Authority(start..text.len(), line.default_port);
                    text.extend_from_slice(b"\r\n");
                }
                let mut kind = Kind::Ordinary(Method::of(line.method));
                if let Some(protocol) = line.protocol {
                    kind = Kind::Connect;
                    write_upgrade(text, protocol, &mut self.spent, &self.limits)?;
                }
                self.stage = Stage::Fields(Regular {
                    kind,
                    host,
                    has_cookie: false,
                    content_length: None,
                });
                self.held.clear();
                Ok(())
            }
            Stage::Refused(fault) => Err(*fault),
            Stage::Fields(_) | Stage::Finished => Ok(()),
        }
    }
}

impl Regular {
    /// Takes a field whose grammar is valid.
    fn take(
        &mut self,
        known: KnownName,
        name: &[u8],
        value: &[u8],
        text: &mut Vec<u8>,
        held: &mut Vec<u8>,
    ) -> Result<(), HeadFault> {
        match known {
            KnownName::Cookie => {
                // RFC 9113 §8.2.3: the parts "MUST be concatenated into a single octet string using
                // the two-octet delimiter" before HTTP/1.1.
                if !held.is_empty() && !value.is_empty() {
                    held.extend_from_slice(b"; ");
                }
                held.extend_from_slice(value);
                self.has_cookie = true;
                return Ok(());
            }
            KnownName::Host if !self.takes_host(value, text)? => return Ok(()),
            // RFC 8441 §5: the field is not used.
            KnownName::SecWebSocketKey if self.kind == Kind::Connect => return Ok(()),
            KnownName::ContentLength if self.kind == Kind::Connect => {
                // RFC 9110 §9.3.6: "A CONNECT request message does not have content".
                return Err(HeadFault::Malformed("a Content-Length in a CONNECT"));
            }
            KnownName::ContentLength => {
                let length = grammar::decimal(value);
                if length.is_none() || self.content_length.is_some() {
                    return Err(HeadFault::Malformed("Content-Length is not one number"));
                }
                self.content_length = length;
                if length == Some(0) {
                    return Ok(());
                }
            }
            _ => {}
        }
        checks::write_line(text, name, value);
        Ok(())
    }

    /// Returns whether the field `Host` has to be written. One that is equal to `:authority` is
    /// left out; another one is refused (RFC 9113 §8.3.1).
    fn takes_host(&mut self, value: &[u8], text: &[u8]) -> Result<bool, HeadFault> {
        match &self.host {
            Host::None if target::is_authority(value) => {
                self.host = Host::Field;
                Ok(true)
            }
            Host::None => Err(HeadFault::Malformed("Host is no name or address")),
            Host::Authority(range, default_port) => {
                let authority = text.get(range.clone()).unwrap_or_default();
                match target::is_same_authority(authority, value, *default_port) {
                    true => {
                        self.host = Host::Both;
                        Ok(false)
                    }
                    false => Err(HeadFault::Malformed("Host differs from :authority")),
                }
            }
            Host::Both | Host::Field => Err(HeadFault::Malformed("there is more than one Host")),
        }
    }
}

/// Writes the fields by which HTTP/1.1 asks for a change of the protocol.
fn write_upgrade(
    text: &mut Vec<u8>,
    protocol: &[u8],
    spent: &mut Spent,
    limits: &HeadListLimits,
) -> Result<(), HeadFault> {
    let key = protocol
        .eq_ignore_ascii_case(b"websocket")
        .then_some((&b"sec-websocket-key"[..], EMPTY_KEY));
    let fields = [
        (&b"connection"[..], &b"upgrade"[..]),
        (b"upgrade", protocol),
    ];
    for (name, value) in fields.into_iter().chain(key) {
        spent.add_field(limits)?;
        checks::write_line(text, name, value);
    }
    Ok(())
}
