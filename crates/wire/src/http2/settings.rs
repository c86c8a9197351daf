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
    /// RFC 8441 §3.
    pub(in crate::http2) const ENABLE_CONNECT_PROTOCOL: u16 = 0x8;
    /// RFC 9218 §2.1: no priorities of RFC 7540.
    pub(in crate::http2) const NO_RFC7540_PRIORITIES: u16 = 0x9;
}

/// The largest value of MAX_FRAME_SIZE.
const FRAME_SIZE_MAX: u32 = 0x00ff_ffff;

/// Whether a server accepts extended CONNECT (RFC 8441 §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ExtendedConnect {
    /// The SETTINGS of the server have not been received.
    #[default]
    Unknown,
    /// SETTINGS do not offer it.
    Refused,
    /// SETTINGS offer it.
    Offered,
}

/// Role of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    Client,
    Server,
}

impl Peer {
    /// Returns the largest value of ENABLE_PUSH that the peer may send: a server none but 0
    /// (RFC 9113 §6.5.2).
    fn push_max(self) -> u32 {
        match self {
            Peer::Client => 1,
            Peer::Server => 0,
        }
    }
}

/// Values of the peer that limit what is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PeerSettings {
    /// Window of each new stream.
    pub(super) initial_window: u32,
    /// Streams that are open concurrently. Without limit until SETTINGS say one.
    pub(super) streams_max: u32,
    /// Offer of a server.
    pub(super) connect: ExtendedConnect,
}

impl Default for PeerSettings {
    fn default() -> Self {
        PeerSettings {
            initial_window: WINDOW_INITIAL,
            streams_max: u32::MAX,
            connect: ExtendedConnect::Unknown,
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
    /// Notes the end of a SETTINGS frame.
    pub(super) fn end(&mut self) {
        if self.connect == ExtendedConnect::Unknown {
            self.connect = ExtendedConnect::Refused;
        }
    }

    /// Applies one setting: name and value. Unknown ones are ignored (RFC 9113 §6.5.2).
    pub(super) fn apply(
        &mut self,
        setting: [u8; SETTING_LENGTH],
        peer: Peer,
    ) -> Result<Option<Change>, ConnectionError> {
        let [a, b, value @ ..] = setting;
        let value = u32::from_be_bytes(value);
        match u16::from_be_bytes([a, b]) {
            name::HEADER_TABLE_SIZE => return Ok(Some(Change::Table { bytes: value })),
            // RFC 8441 §3: "Receipt of this parameter by a server does not have any impact".
            name::ENABLE_CONNECT_PROTOCOL if peer == Peer::Server => {
                self.connect = match (value, self.connect) {
                    (1, _) => ExtendedConnect::Offered,
                    (0, ExtendedConnect::Unknown | ExtendedConnect::Refused) => {
                        ExtendedConnect::Refused
                    }
                    _ => {
                        let why = "ENABLE_CONNECT_PROTOCOL has a wrong value";
                        return Err(ConnectionError::protocol(why));
                    }
                };
            }
            name::ENABLE_PUSH if value > peer.push_max() => {
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
