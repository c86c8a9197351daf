//! DATA frames of the peer: windows, padding, Content-Length (RFC 9113 §6.1, §6.9, §8.1.1).

use super::read::{Reading, Step, part_of};
use super::{Connection, Event};
use crate::http2::budget::Work;
use crate::http2::error::{ConnectionError, ErrorCode, StreamId};
use crate::http2::frame::{self, FrameHeader, HEADER_LENGTH, flag};
use crate::http2::stream::{Change, Gone, Malformed, Owed};

/// Rest of a DATA frame whose header was read and counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    stream: StreamId,
    left: u32,
    padding: u32,
    end: bool,
}

impl Connection {
    /// Reads the header of a DATA frame. All of it counts towards the windows, also if it is
    /// discarded.
    pub(super) fn data_frame(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Step, ConnectionError> {
        let Some(stream) = header.stream else {
            return Err(ConnectionError::protocol("DATA on stream 0"));
        };
        let Some(padding) = padding(header, payload)? else {
            return Ok(Step::Wait);
        };
        if !self.receive.receive(header.length) {
            let why = "DATA beyond the window of the connection";
            return Err(ConnectionError::flow_control(why));
        }
        let left = header.length.saturating_sub(padding.overhead());
        let end = header.has(flag::END_STREAM);
        if left == 0 && !end {
            self.charge(Work::EmptyData)?;
        }
        let used = HEADER_LENGTH.saturating_add(padding.field as usize);
        let accepted = self.accept(stream, header.length, left, end, out)?;
        if let Accepted::Held = accepted {
            if padding.overhead() > 0 {
                self.release(stream, padding.overhead() as usize, out);
            }
            self.reading = Reading::Data(Part {
                stream,
                left,
                padding: padding.length,
                end,
            });
            return Ok(Step::Took(used));
        }
        self.release_connection(header.length, out);
        self.reading = Reading::Skip {
            left: header.length.saturating_sub(padding.field),
        };
        Ok(match accepted {
            Accepted::Fault(event) => Step::Event(used, event),
            Accepted::Held | Accepted::Discarded => Step::Took(used),
        })
    }

    /// Decides about a DATA frame of `length` bytes, of which `data` are not padding.
    fn accept(
        &mut self,
        id: StreamId,
        length: u32,
        data: u32,
        end: bool,
        out: &mut Vec<u8>,
    ) -> Result<Accepted, ConnectionError> {
        let found = self.streams.find(id);
        let Some(stream) = found.filter(|stream| stream.owed().is_some()) else {
            return self.data_on_closed(id, out);
        };
        let fault = if !stream.receive.receive(length) {
            Some((ErrorCode::FlowControlError, "DATA beyond the window"))
        } else if let Err(Malformed(why)) = stream.take(data, end) {
            Some((ErrorCode::ProtocolError, why))
        } else {
            None
        };
        if let Some((code, why)) = fault {
            return Ok(Accepted::Fault(self.stream_fault(id, code, why, out)?));
        }
        if stream.owed() != Some(Owed::Discarded) {
            stream.held = stream.held.saturating_add(length);
            return Ok(Accepted::Held);
        }
        if end {
            stream.advance(Change::PeerEnded);
        } else if let Some(increment) = stream.receive.release(length) {
            frame::write_window_update(out, Some(id), increment);
        }
        Ok(Accepted::Discarded)
    }

    /// Decides about a DATA frame of a stream on which the peer sends nothing any more.
    fn data_on_closed(
        &mut self,
        id: StreamId,
        out: &mut Vec<u8>,
    ) -> Result<Accepted, ConnectionError> {
        if self.is_ignored(id) {
            return Ok(Accepted::Discarded);
        }
        let why = "DATA after the end of the message";
        let found = self.streams.find(id);
        if found.is_some_and(|stream| stream.may_send()) {
            let code = ErrorCode::StreamClosed;
            return Ok(Accepted::Fault(self.stream_fault(id, code, why, out)?));
        }
        match self.streams.gone(id) {
            Gone::ResetByUs => Ok(Accepted::Discarded),
            Gone::Idle => Err(ConnectionError::protocol("DATA on an idle stream")),
            Gone::Ended => {
                let code = ErrorCode::StreamClosed;
                Err(ConnectionError { code, why })
            }
        }
    }

    /// Returns what has arrived of a DATA frame.
    pub(super) fn data_part(&mut self, part: Part, rest: &[u8]) -> Step {
        let body = self
            .streams
            .find(part.stream)
            .filter(|stream| stream.owed().is_some());
        let Some(stream) = body else {
            // The caller has reset the stream: what it held was counted already.
            let left = part.left.saturating_add(part.padding);
            self.reading = Reading::Skip { left };
            return Step::Took(0);
        };
        let used = part_of(rest, part.left);
        let left = part.left.saturating_sub(used);
        if used == 0 && left > 0 {
            return Step::Wait;
        }
        let end = part.end && left == 0;
        if end {
            stream.advance(Change::PeerEnded);
        }
        self.reading = match left {
            0 => Reading::Skip { left: part.padding },
            left => Reading::Data(Part { left, ..part }),
        };
        let used = used as usize;
        if used == 0 && !end {
            return Step::Took(0);
        }
        let event = Event::Data {
            stream: part.stream,
            range: 0..used,
            end,
        };
        Step::Event(used, event)
    }

    /// Opens the windows again for bytes of DATA that the caller no longer holds. One
    /// WINDOW_UPDATE is sent for half of a window.
    pub fn release(&mut self, stream: StreamId, bytes: usize, out: &mut Vec<u8>) {
        let Some(found) = self.streams.find(stream) else {
            return;
        };
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(found.held);
        found.held = found.held.saturating_sub(bytes);
        let increment = found.receive.release(bytes);
        // A stream that the peer has ended needs no window.
        if let Some(increment) = increment.filter(|_| found.owed().is_some()) {
            frame::write_window_update(out, Some(stream), increment);
        }
        self.release_connection(bytes, out);
    }

    pub(super) fn release_connection(&mut self, bytes: u32, out: &mut Vec<u8>) {
        if let Some(increment) = self.receive.release(bytes) {
            frame::write_window_update(out, None, increment);
        }
    }
}

/// Decision about a DATA frame.
enum Accepted {
    /// The caller is given its data, and holds them.
    Held,
    Discarded,
    /// The stream was reset.
    Fault(Event),
}

/// Padding of a DATA or HEADERS frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Padding {
    /// Length of the field with the length: 0 or 1.
    pub(super) field: u32,
    pub(super) length: u32,
}

impl Padding {
    /// Returns the bytes of the payload that carry nothing.
    fn overhead(self) -> u32 {
        self.field.saturating_add(self.length)
    }
}

/// Reads the length of the padding. `None`: it has not arrived.
pub(super) fn padding(
    header: FrameHeader,
    payload: &[u8],
) -> Result<Option<Padding>, ConnectionError> {
    if !header.has(flag::PADDED) {
        return Ok(Some(Padding {
            field: 0,
            length: 0,
        }));
    }
    if header.length == 0 {
        return Err(ConnectionError::frame_size("no length of the padding"));
    }
    let Some(length) = payload.first() else {
        return Ok(None);
    };
    let length = u32::from(*length);
    if length >= header.length {
        let why = "padding longer than the frame";
        return Err(ConnectionError::protocol(why));
    }
    Ok(Some(Padding { field: 1, length }))
}
