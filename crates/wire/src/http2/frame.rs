//! Frame headers, and the frames that have a fixed form (RFC 9113 §4.1, §6).

use super::error::{ErrorCode, StreamId};

/// Length of the header of every frame.
pub(super) const HEADER_LENGTH: usize = 9;

/// The longest payload that both sides accept until SETTINGS say more; we never say more
/// (RFC 9113 §4.2).
pub(super) const PAYLOAD_MAX: u32 = 16_384;

/// Flags of frames. The same bit has another meaning in another type.
pub(super) mod flag {
    pub(in crate::http2) const END_STREAM: u8 = 0x1;
    pub(in crate::http2) const ACK: u8 = 0x1;
    pub(in crate::http2) const END_HEADERS: u8 = 0x4;
    pub(in crate::http2) const PADDED: u8 = 0x8;
    pub(in crate::http2) const PRIORITY: u8 = 0x20;
}

/// Type of a frame (RFC 9113 §6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Data,
    Headers,
    Priority,
    ResetStream,
    Settings,
    PushPromise,
    Ping,
    GoAway,
    WindowUpdate,
    Continuation,
    Unknown,
}

impl Kind {
    fn of(code: u8) -> Self {
        match code {
            0x0 => Kind::Data,
            0x1 => Kind::Headers,
            0x2 => Kind::Priority,
            0x3 => Kind::ResetStream,
            0x4 => Kind::Settings,
            0x5 => Kind::PushPromise,
            0x6 => Kind::Ping,
            0x7 => Kind::GoAway,
            0x8 => Kind::WindowUpdate,
            0x9 => Kind::Continuation,
            _ => Kind::Unknown,
        }
    }
}

/// Header of a received frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameHeader {
    /// Length of the payload: below 2^24.
    pub(super) length: u32,
    pub(super) kind: Kind,
    pub(super) flags: u8,
    /// `None`: the connection.
    pub(super) stream: Option<StreamId>,
}

impl FrameHeader {
    /// Parses the header at the beginning of `bytes`. `None`: it is incomplete.
    #[inline]
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let ([a, b, c, kind, flags, stream @ ..], _) =
            bytes.split_first_chunk::<HEADER_LENGTH>()?;
        Some(FrameHeader {
            length: u32::from_be_bytes([0, *a, *b, *c]),
            kind: Kind::of(*kind),
            flags: *flags,
            stream: StreamId::new(u32::from_be_bytes(*stream)),
        })
    }

    #[inline]
    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Codes of the types that are sent.
mod code {
    pub(super) const DATA: u8 = 0x0;
    pub(super) const HEADERS: u8 = 0x1;
    pub(super) const RST_STREAM: u8 = 0x3;
    pub(super) const SETTINGS: u8 = 0x4;
    pub(super) const PING: u8 = 0x6;
    pub(super) const GOAWAY: u8 = 0x7;
    pub(super) const WINDOW_UPDATE: u8 = 0x8;
    pub(super) const CONTINUATION: u8 = 0x9;
}

/// Returns the header of a frame. `length` is below 2^24.
#[inline]
fn header(length: u32, kind: u8, flags: u8, stream: u32) -> [u8; HEADER_LENGTH] {
    let [_, a, b, c] = length.to_be_bytes();
    let [d, e, f, g] = stream.to_be_bytes();
    [a, b, c, kind, flags, d, e, f, g]
}

/// Returns the header of a DATA frame.
#[inline]
pub(super) fn data(stream: StreamId, length: u32, end: bool) -> [u8; HEADER_LENGTH] {
    header(length, code::DATA, u8::from(end), stream.get())
}

/// Returns the header of a HEADERS frame.
#[inline]
pub(super) fn headers(stream: StreamId, length: u32, flags: u8) -> [u8; HEADER_LENGTH] {
    header(length, code::HEADERS, flags, stream.get())
}

/// Returns the header of a CONTINUATION frame.
pub(super) fn continuation(stream: StreamId, length: u32, flags: u8) -> [u8; HEADER_LENGTH] {
    header(length, code::CONTINUATION, flags, stream.get())
}

/// Appends a RST_STREAM frame.
pub(super) fn write_reset(out: &mut Vec<u8>, stream: StreamId, error: ErrorCode) {
    out.extend_from_slice(&header(4, code::RST_STREAM, 0, stream.get()));
    out.extend_from_slice(&error.code().to_be_bytes());
}

/// Appends a SETTINGS frame.
pub(super) fn write_settings(out: &mut Vec<u8>, settings: &[(u16, u32)]) {
    let length = settings.len().saturating_mul(6);
    out.extend_from_slice(&header(clipped(length), code::SETTINGS, 0, 0));
    for (name, value) in settings {
        out.extend_from_slice(&name.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// Appends the acknowledgement of the peer's SETTINGS.
pub(super) fn write_settings_ack(out: &mut Vec<u8>) {
    out.extend_from_slice(&header(0, code::SETTINGS, flag::ACK, 0));
}

/// Appends the answer to a PING.
pub(super) fn write_ping_ack(out: &mut Vec<u8>, opaque: [u8; 8]) {
    out.extend_from_slice(&header(8, code::PING, flag::ACK, 0));
    out.extend_from_slice(&opaque);
}

/// Appends a PING.
pub(super) fn write_ping(out: &mut Vec<u8>, opaque: [u8; 8]) {
    out.extend_from_slice(&header(8, code::PING, 0, 0));
    out.extend_from_slice(&opaque);
}

/// Appends a GOAWAY frame with the last stream that is or will be processed.
pub(super) fn write_go_away(out: &mut Vec<u8>, last: u32, error: ErrorCode, why: &str) {
    let length = why.len().saturating_add(8);
    out.extend_from_slice(&header(clipped(length), code::GOAWAY, 0, 0));
    out.extend_from_slice(&last.to_be_bytes());
    out.extend_from_slice(&error.code().to_be_bytes());
    out.extend_from_slice(why.as_bytes());
}

/// Appends a WINDOW_UPDATE frame, of the connection if `stream` is `None`.
pub(super) fn write_window_update(out: &mut Vec<u8>, stream: Option<StreamId>, increment: u32) {
    let stream = stream.map_or(0, StreamId::get);
    out.extend_from_slice(&header(4, code::WINDOW_UPDATE, 0, stream));
    out.extend_from_slice(&increment.to_be_bytes());
}

/// Returns a length of a few hundred bytes as the number of a frame header.
fn clipped(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
