//! Frames to the peer: heads, DATA, resets.

use super::{Connection, Event};
use crate::http2::budget::Work;
use crate::http2::error::{ConnectionError, ErrorCode, StreamId};
use crate::http2::frame::{self, HEADER_LENGTH, PAYLOAD_MAX, flag};
use crate::http2::hpack::Encoder;
use crate::http2::stream::{Change, Waiting};

/// A DATA frame below this length that a window made short is not useful work.
const SHORT: usize = 1_024;

impl Connection {
    /// Returns whether HEADERS and DATA may be sent on a stream: it is neither reset nor ended by
    /// us.
    pub fn may_send(&mut self, stream: StreamId) -> bool {
        self.failed().is_none()
            && self
                .streams
                .find(stream)
                .is_some_and(|stream| stream.may_send())
    }

    /// Appends HEADERS, and CONTINUATION if the field block is long: a response head, an interim
    /// one, or trailers of a response or request. `write` appends the field block and returns
    /// whether it ends the stream, which trailers must do. It is not called if nothing can be sent
    /// on the stream, so that the table of the encoder never knows fields that the peer has not
    /// received. Returns whether it was called.
    pub fn send_head(
        &mut self,
        stream: StreamId,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Encoder, &mut Vec<u8>) -> bool,
    ) -> bool {
        if !self.may_send(stream) {
            return false;
        }
        let start = out.len();
        out.extend_from_slice(&[0; HEADER_LENGTH]);
        let end = write(&mut self.encoder, out);
        cut_block(stream, end, start, out);
        self.budget.sent_head(&self.limits.budget);
        if end {
            self.end(stream);
        }
        true
    }

    /// Appends DATA frames as the windows allow. END_STREAM is set with the last byte only. Returns
    /// the number of bytes taken, which is 0 if nothing can be sent on the stream. If some were not
    /// taken, [`Event::WindowOpened`] follows when there is room. Empty data with `end` need none.
    pub fn send_data(
        &mut self,
        stream: StreamId,
        data: &[u8],
        end: bool,
        out: &mut Vec<u8>,
    ) -> usize {
        let mut taken = 0_usize;
        while let Some(rest) = data.get(taken..)
            && let Some(part) = self.data_header(stream, rest.len(), end)
        {
            out.extend_from_slice(&part.header);
            let sent = rest.get(..part.length).unwrap_or(rest);
            out.extend_from_slice(sent);
            taken = taken.saturating_add(sent.len());
            if taken == data.len() {
                break;
            }
        }
        taken
    }

    /// Begins one DATA frame for up to `available` bytes, of which `end` says whether they are the
    /// last ones. The caller sends the header and then `length` bytes. `None` if nothing can
    /// be sent: see [`Connection::send_data`].
    pub fn data_header(
        &mut self,
        stream: StreamId,
        available: usize,
        end: bool,
    ) -> Option<DataHeader> {
        let is_failed = self.failed().is_some();
        let window = self.send.room();
        let found = self.streams.find(stream)?;
        if is_failed || !found.may_send() || (available == 0 && !end) {
            return None;
        }
        let room = window.min(found.send.room());
        let length = room.min(available).min(PAYLOAD_MAX as usize);
        let is_whole = length == available;
        if !is_whole && (length > 0 || found.waiting == Waiting::No) {
            found.waiting = Waiting::Unseen;
        } else if is_whole {
            found.waiting = Waiting::No;
        }
        if length == 0 && !is_whole {
            return None;
        }
        let bytes = u32::try_from(length).unwrap_or(PAYLOAD_MAX);
        found.send.take(bytes);
        self.send.take(bytes);
        if is_whole || length >= SHORT {
            self.budget.sent_data(&self.limits.budget);
        }
        let end = end && is_whole;
        if end {
            self.end(stream);
        }
        Some(DataHeader {
            header: frame::data(stream, bytes, end),
            length,
        })
    }

    /// Returns how many bytes the windows let [`Connection::send_data`] take now.
    pub fn room(&mut self, stream: StreamId) -> usize {
        let found = self.streams.find(stream);
        let room = found
            .filter(|stream| stream.may_send())
            .map_or(0, |stream| stream.send.room());
        room.min(self.send.room())
    }

    fn end(&mut self, stream: StreamId) {
        if let Some(stream) = self.streams.find(stream) {
            stream.advance(Change::OwnEnded);
        }
        self.budget.answered(&self.limits.budget);
    }

    /// Resets a stream, unless it is ended on both sides or reset. NO_ERROR after the end of an
    /// answer has a client stop the request that it still sends (RFC 9113 §8.1). The exchange goes
    /// on until [`Connection::finished`]. Other codes of a server are charged to the budget of
    /// resets, since the client may have provoked them (CVE-2025-8671).
    pub fn reset(&mut self, stream: StreamId, code: ErrorCode, out: &mut Vec<u8>) {
        let (closing, found) = (self.closing, self.streams.find(stream));
        if closing.is_failed() || found.is_none_or(|stream| stream.is_closed()) {
            return;
        }
        self.write_reset(stream, code, out);
        if code != ErrorCode::NoError
            && let Err(error) = self.charge_reset()
        {
            self.fail_with(error, out);
        }
    }

    /// Resets a stream for a fault of the peer.
    pub(super) fn stream_fault(
        &mut self,
        stream: StreamId,
        code: ErrorCode,
        why: &'static str,
        out: &mut Vec<u8>,
    ) -> Result<Event, ConnectionError> {
        self.write_reset(stream, code, out);
        self.charge(Work::Reset)?;
        let why = Some(why);
        Ok(Event::Reset { stream, code, why })
    }

    fn write_reset(&mut self, stream: StreamId, code: ErrorCode, out: &mut Vec<u8>) {
        let Some(found) = self.streams.find(stream) else {
            return;
        };
        let was_sending = found.owed().is_some();
        found.advance(Change::Reset);
        frame::write_reset(out, stream, code);
        if was_sending {
            self.streams.remember_reset(stream);
        }
    }
}

/// Header of a DATA frame, and the number of bytes that follow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataHeader {
    /// Bytes to send first.
    pub header: [u8; HEADER_LENGTH],
    /// Bytes of the data to send after it.
    pub length: usize,
}

/// Writes the headers of the frames of a field block, which follows room for the first one.
fn cut_block(stream: StreamId, end: bool, start: usize, out: &mut Vec<u8>) {
    let begin = start.saturating_add(HEADER_LENGTH);
    let length = out.len().saturating_sub(begin);
    let end_flag = if end { flag::END_STREAM } else { 0 };
    if length <= PAYLOAD_MAX as usize {
        let flags = end_flag | flag::END_HEADERS;
        set_header(out, start, frame::headers(stream, clipped(length), flags));
        return;
    }
    let block = out.split_off(begin);
    let mut chunks = block.chunks(PAYLOAD_MAX as usize).peekable();
    let mut is_first = true;
    while let Some(chunk) = chunks.next() {
        let last = match chunks.peek() {
            None => flag::END_HEADERS,
            Some(_) => 0,
        };
        let length = clipped(chunk.len());
        match std::mem::take(&mut is_first) {
            true => set_header(out, start, frame::headers(stream, length, end_flag | last)),
            false => out.extend_from_slice(&frame::continuation(stream, length, last)),
        }
        out.extend_from_slice(chunk);
    }
}

fn set_header(out: &mut [u8], start: usize, header: [u8; HEADER_LENGTH]) {
    let place = out.get_mut(start..).and_then(<[u8]>::first_chunk_mut);
    if let Some(place) = place {
        *place = header;
    }
}

fn clipped(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(PAYLOAD_MAX)
}
