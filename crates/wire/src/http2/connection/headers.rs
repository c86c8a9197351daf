//! HEADERS and CONTINUATION frames of the peer: requests, responses and trailers (RFC 9113 §4.3,
//! §6.2, §6.10, §8.1).

use super::data::padding;
use super::read::{Reading, Step, part_of};
use super::role::Role;
use super::{Closing, Connection, Event};
use crate::http::Method;
use crate::http2::budget::Work;
use crate::http2::error::{ConnectionError, ErrorCode, StreamId};
use crate::http2::frame::{self, FrameHeader, HEADER_LENGTH, flag};
use crate::http2::head::{Content, HeadFault};
use crate::http2::hpack::{CompressionError, FieldSink};
use crate::http2::stream::{Change, Gone, Malformed, Owed, Stream};
use crate::http2::window::{ReceiveWindow, SendWindow};

/// Length of the fields of a priority in a HEADERS frame (RFC 9113 §6.2).
const PRIORITY_LENGTH: u32 = 5;

/// Field block of which the last frame is missing, or a part of it.
#[derive(Debug)]
pub(super) struct Block {
    head: Head,
    /// CONTINUATION frames.
    continuations: u8,
    since_ms: u64,
    bytes: Vec<u8>,
}

impl Block {
    pub(super) fn stream(&self) -> StreamId {
        self.head.stream
    }

    /// Returns when its first frame arrived.
    pub(super) fn since_ms(&self) -> u64 {
        self.since_ms
    }
}

/// Facts of a HEADERS frame.
#[derive(Debug, Clone, Copy)]
struct Head {
    stream: StreamId,
    end: bool,
}

/// Meaning of a field block.
enum Purpose {
    Request,
    Response(Method),
    Trailers,
    /// Only the table of the decoder follows it.
    Discarded,
    /// The peer may not send it on this stream.
    StreamFault(ErrorCode, &'static str),
}

impl Connection {
    /// Reads a HEADERS frame: its field block in place if it is complete.
    pub(super) fn headers_frame(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Step, ConnectionError> {
        let Some(stream) = header.stream else {
            return Err(ConnectionError::protocol("HEADERS on stream 0"));
        };
        let Some(padding) = padding(header, payload)? else {
            return Ok(Step::Wait);
        };
        let priority = match header.has(flag::PRIORITY) {
            true => PRIORITY_LENGTH,
            false => 0,
        };
        let before = padding.field.saturating_add(priority);
        let Some(after_prefix) = header.length.checked_sub(before) else {
            return Err(ConnectionError::frame_size("HEADERS without its priority"));
        };
        let Some(left) = after_prefix.checked_sub(padding.length) else {
            let why = "padding longer than the frame";
            return Err(ConnectionError::protocol(why));
        };
        let head = Head {
            stream,
            end: header.has(flag::END_STREAM),
        };
        let last = header.has(flag::END_HEADERS);
        let begin = before as usize;
        let complete = payload.get(begin..begin.saturating_add(left as usize));
        let all = payload.len() >= header.length as usize;
        if let (true, true, Some(block)) = (last, all, complete) {
            let used = HEADER_LENGTH.saturating_add(header.length as usize);
            self.reading = Reading::Frame;
            return Ok(Step::of(used, self.field_block(head, block, out)?));
        }
        if payload.len() < begin {
            return Ok(Step::Wait);
        }
        self.block = Some(Block {
            head,
            continuations: 0,
            since_ms: self.now_ms,
            bytes: Vec::new(),
        });
        self.reading = Reading::Fragment {
            left,
            padding: padding.length,
            last,
        };
        Ok(Step::Took(HEADER_LENGTH.saturating_add(begin)))
    }

    /// Reads the header of a CONTINUATION frame.
    pub(super) fn continuation_frame(
        &mut self,
        header: FrameHeader,
    ) -> Result<Step, ConnectionError> {
        let bytes_max = self.limits.head_bytes_max.saturating_mul(2) as usize;
        let Some(block) = &mut self.block else {
            return Err(ConnectionError::protocol("CONTINUATION without HEADERS"));
        };
        block.continuations = block.continuations.saturating_add(1);
        if block.continuations > self.limits.budget.continuations_max {
            return Err(ConnectionError::too_much("too many CONTINUATION frames"));
        }
        if block.bytes.len().saturating_add(header.length as usize) > bytes_max {
            return Err(ConnectionError::too_much("a field block is too long"));
        }
        self.reading = Reading::Fragment {
            left: header.length,
            padding: 0,
            last: header.has(flag::END_HEADERS),
        };
        Ok(Step::Took(HEADER_LENGTH))
    }

    /// Reads from the fragment of a field block.
    pub(super) fn fragment(
        &mut self,
        rest: &[u8],
        left: u32,
        padding: u32,
        last: bool,
        out: &mut Vec<u8>,
    ) -> Result<Step, ConnectionError> {
        let used = part_of(rest, left);
        let left = left.saturating_sub(used);
        if left > 0 && used == 0 {
            return Ok(Step::Wait);
        }
        let Some(mut block) = self.block.take() else {
            self.reading = Reading::Frame;
            return Ok(Step::Took(0));
        };
        let used = used as usize;
        let fragment = rest.get(..used).unwrap_or_default();
        block.bytes.extend_from_slice(fragment);
        if left > 0 {
            self.block = Some(block);
            self.reading = Reading::Fragment {
                left,
                padding,
                last,
            };
            return Ok(Step::Took(used));
        }
        self.reading = Reading::Skip { left: padding };
        if !last {
            self.block = Some(block);
            return Ok(Step::Took(used));
        }
        let event = self.field_block(block.head, &block.bytes, out)?;
        Ok(Step::of(used, event))
    }

    /// Decodes a whole field block, also one that is discarded: the table must follow
    /// (RFC 9113 §4.3).
    fn field_block(
        &mut self,
        head: Head,
        block: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ConnectionError> {
        match self.purpose(head)? {
            Purpose::Request => self.request_block(head, block, out),
            Purpose::Response(method) => self.response_block(head, method, block, out),
            Purpose::Trailers => self.trailer_block(head, block, out),
            Purpose::Discarded => {
                self.discard_block(block)?;
                Ok(None)
            }
            Purpose::StreamFault(code, why) => {
                self.discard_block(block)?;
                let event = self.stream_fault(head.stream, code, why, out)?;
                Ok(Some(event))
            }
        }
    }

    /// Decides what a field block means.
    fn purpose(&mut self, head: Head) -> Result<Purpose, ConnectionError> {
        let id = head.stream;
        if !id.is_of_client() {
            let why = "HEADERS on a stream of the server";
            return Err(ConnectionError::protocol(why));
        }
        if self.is_ignored(id) {
            return Ok(Purpose::Discarded);
        }
        if id.get() > self.streams.last() {
            return match self.role {
                Role::Server { .. } => Ok(Purpose::Request),
                Role::Client { .. } => Err(ConnectionError::protocol("HEADERS on an idle stream")),
            };
        }
        let why = "HEADERS after the end of the message";
        if let Some(stream) = self.streams.find(id) {
            match stream.owed() {
                Some(Owed::Response { method }) => return Ok(Purpose::Response(method)),
                Some(_) => return Ok(Purpose::Trailers),
                None if stream.may_send() => {
                    return Ok(Purpose::StreamFault(ErrorCode::StreamClosed, why));
                }
                None => {}
            }
        }
        match self.streams.gone(id) {
            Gone::ResetByUs => Ok(Purpose::Discarded),
            Gone::Idle => {
                let why = "a stream with a lower number than one before";
                Err(ConnectionError::protocol(why))
            }
            Gone::Ended => {
                let code = ErrorCode::StreamClosed;
                Err(ConnectionError { code, why })
            }
        }
    }

    /// Returns whether frames of a stream are ignored: the client opened it after our GOAWAY had
    /// named the last stream (RFC 9113 §6.8).
    pub(super) fn is_ignored(&self, id: StreamId) -> bool {
        !self.role.is_client()
            && matches!(self.closing, Closing::Last(last) if id.is_of_client() && id.get() > last)
    }

    fn discard_block(&mut self, block: &[u8]) -> Result<(), ConnectionError> {
        let decoded = self.decoder.decode(block, &mut Discard);
        decoded.map_err(compression)
    }

    /// Opens a stream with its request.
    fn request_block(
        &mut self,
        head: Head,
        block: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ConnectionError> {
        let stream = head.stream;
        self.streams.open(stream);
        if self.open_streams() >= self.limits.streams_max {
            self.discard_block(block)?;
            let is_promised = self.settings_acknowledged;
            self.refuse(head, ErrorCode::RefusedStream, is_promised, out)?;
            return Ok(None);
        }
        let limits = self.head_limits();
        let Role::Server { text } = &mut self.role else {
            return Ok(None);
        };
        text.begin(&limits);
        let decoded = self.decoder.decode(block, text);
        decoded.map_err(compression)?;
        let (owed, event) = match text.finish(head.end) {
            Ok(facts) => {
                let content_length = facts.content_length;
                let end = head.end;
                let event = Event::Request {
                    stream,
                    end,
                    content_length,
                };
                let owed = match (facts.is_tunnel, content_length) {
                    (true, _) => Owed::Tunnel,
                    (false, Some(left)) => Owed::Length { left },
                    (false, None) => Owed::Unknown,
                };
                (owed, event)
            }
            Err(HeadFault::Malformed(_)) => {
                self.refuse(head, ErrorCode::ProtocolError, true, out)?;
                return Ok(None);
            }
            Err(why) => (Owed::Discarded, Event::Refused { stream, why }),
        };
        self.budget.began();
        self.streams.insert(Stream::new(
            stream,
            (!head.end).then_some(owed),
            SendWindow::new(self.peer.initial_window),
            ReceiveWindow::new(self.limits.stream_window),
        ));
        Ok(Some(event))
    }

    /// Takes the head of a response, interim or final.
    fn response_block(
        &mut self,
        head: Head,
        method: Method,
        block: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ConnectionError> {
        let limits = self.head_limits();
        let Role::Client { text, .. } = &mut self.role else {
            return Ok(None);
        };
        text.begin(method, &limits);
        let decoded = self.decoder.decode(block, text);
        decoded.map_err(compression)?;
        let Head { stream, end } = head;
        let facts = match text.finish(end) {
            Ok(facts) => facts,
            Err(HeadFault::Malformed(why)) => {
                let code = ErrorCode::ProtocolError;
                return self.stream_fault(stream, code, why, out).map(Some);
            }
            Err(HeadFault::TooLarge(_)) => {
                let (code, why) = (ErrorCode::Cancel, "the head of the response is too large");
                return self.stream_fault(stream, code, why, out).map(Some);
            }
        };
        if let Some(found) = self.streams.find(stream) {
            let owed = match facts.content {
                Content::Interim => Owed::Response { method },
                Content::None => Owed::Length { left: 0 },
                Content::Length(left) => Owed::Length { left },
                Content::Unknown => Owed::Unknown,
                Content::Tunnel => Owed::Tunnel,
            };
            found.advance(Change::Answered { owed });
            if end {
                found.advance(Change::PeerEnded);
            }
        }
        Ok(Some(Event::Response {
            stream,
            end,
            content_length: facts.content_length,
        }))
    }

    /// Resets a stream for which no exchange begins.
    fn refuse(
        &mut self,
        head: Head,
        code: ErrorCode,
        charged: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), ConnectionError> {
        frame::write_reset(out, head.stream, code);
        if !head.end {
            self.streams.remember_reset(head.stream);
        }
        self.charge(if charged { Work::Reset } else { Work::Early })
    }

    /// Ends a message with its trailers.
    fn trailer_block(
        &mut self,
        head: Head,
        block: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ConnectionError> {
        let underscores = self.role.underscores();
        self.trailers.begin(&self.head_limits(), underscores);
        let decoded = self.decoder.decode(block, &mut self.trailers);
        decoded.map_err(compression)?;
        let id = head.stream;
        let finished = self.trailers.finish();
        let Some(stream) = self.streams.find(id) else {
            return Ok(None);
        };
        let is_discarded = stream.owed() == Some(Owed::Discarded);
        let why = if stream.owed() == Some(Owed::Tunnel) {
            // RFC 9113 §8.5: such frames "MUST be treated as a stream error".
            "a HEADERS frame in a tunnel"
        } else if !head.end {
            "a second HEADERS frame without END_STREAM"
        } else if let Err(Malformed(why)) = stream.take(0, true) {
            why
        } else if finished.is_err() {
            "the trailers are malformed"
        } else {
            stream.advance(Change::PeerEnded);
            return Ok((!is_discarded).then_some(Event::Trailers { stream: id }));
        };
        let event = self.stream_fault(id, ErrorCode::ProtocolError, why, out)?;
        Ok(Some(event))
    }
}

/// Returns the error of the connection: the tables of both sides differ now.
fn compression(error: CompressionError) -> ConnectionError {
    ConnectionError {
        code: ErrorCode::CompressionError,
        why: error.reason(),
    }
}

/// Sink of a field block that means nothing.
struct Discard;

impl FieldSink for Discard {
    fn field(&mut self, _name: &[u8], _value: &[u8]) -> bool {
        false
    }
}
