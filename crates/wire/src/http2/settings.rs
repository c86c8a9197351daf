//! Settings of the peer (RFC 9113 §6.5.2).

use super::error::{ConnectionError, ErrorCode};
use super::frame::PAYLOAD_MAX;
use super::window::{WINDOW_INITIAL, WINDOW_MAX};

/// Bytes of one setting in a SETTINGS frame.
pub(super) const SETTING_LENGTH: usize = 6;

/// Names of settings.
pub(super) mod name {
    pub(in crate::http2) const HEADER_TABLE_SIZE: u16 = 0x1;
    pub(in crate::http2) const ENABLE_PUSH: u16 = 0x2;
    pub(in crate::http2) const MAX_CONCURRENT_STREAMS: u16 = 0x3;
    pub(in crate::http2) const INITIAL_WINDOW_SIZE: u16 = 0x4;
    pub(in crate::http2) const MAX_FRAME_SIZE: u16 = 0x5;
    pub(in crate::http2) const MAX_HEADER_LIST_SIZE: u16 = 0x6;
    /// RFC 9218 §2.1: no priorities of RFC 7540.
    pub(in crate::http2) const NO_RFC7540_PRIORITIES: u16 = 0x9;
}

/// The largest value of MAX_FRAME_SIZE.
const FRAME_SIZE_MAX: u32 = 0x00ff_ffff;

/// Values of the peer that limit what is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PeerSettings {
    /// Window of each new stream.
    pub(super) initial_window: u32,
    /// Streams that are open concurrently. Without limit until SETTINGS say one.
    pub(super) streams_max: u32,
}

impl Default for PeerSettings {
    fn default() -> Self {
        PeerSettings {
            initial_window: WINDOW_INITIAL,
            streams_max: u32::MAX,
        }
    }
}

/// Setting that more than [`PeerSettings`] depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// The windows of all streams shift by this (RFC 9113 §6.9.2).
    Windows { by: i64 },
    /// Size of the peer's table of header fields.
    Table { bytes: u32 },
}

impl PeerSettings {
    /// Applies one setting: name and value. Unknown ones are ignored (RFC 9113 §6.5.2). `push_max`
    /// is the largest value of ENABLE_PUSH.
    pub(super) fn apply(
        &mut self,
        setting: [u8; SETTING_LENGTH],
        push_max: u32,
    ) -> Result<Option<Change>, ConnectionError> {
        let [a, b, value @ ..] = setting;
        let value = u32::from_be_bytes(value);
        match u16::from_be_bytes([a, b]) {
            name::HEADER_TABLE_SIZE => return Ok(Some(Change::Table { bytes: value })),
            name::ENABLE_PUSH if value > push_max => {
                return Err(ConnectionError::protocol("ENABLE_PUSH has a wrong value"));
            }
            // RFC 9218 §2.1.
            name::NO_RFC7540_PRIORITIES if value > 1 => {
                let why = "NO_RFC7540_PRIORITIES is neither 0 nor 1";
                return Err(ConnectionError::protocol(why));
            }
            name::MAX_CONCURRENT_STREAMS => self.streams_max = value,
            name::INITIAL_WINDOW_SIZE if value > WINDOW_MAX => {
                let code = ErrorCode::FlowControlError;
                let why = "INITIAL_WINDOW_SIZE is over 2^31-1";
                return Err(ConnectionError { code, why });
            }
            name::INITIAL_WINDOW_SIZE => {
                let by = i64::from(value).saturating_sub(i64::from(self.initial_window));
                self.initial_window = value;
                return Ok(Some(Change::Windows { by }));
            }
            name::MAX_FRAME_SIZE if !(PAYLOAD_MAX..=FRAME_SIZE_MAX).contains(&value) => {
                let why = "MAX_FRAME_SIZE is not between 2^14 and 2^24-1";
                return Err(ConnectionError::protocol(why));
            }
            // We send no larger frames than every peer accepts: streams share the connection.
            _ => {}
        }
        Ok(None)
    }
}
