//! Error codes, and faults that end a connection (RFC 9113 §5.4, §7).

use std::num::NonZeroU32;

/// Number of a stream: 1 to 2^31-1. A client's streams are odd (RFC 9113 §5.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(NonZeroU32);

impl StreamId {
    /// Returns the stream of a number from a frame, without the reserved bit. `None` for 0, which
    /// is the connection.
    #[must_use]
    #[inline]
    pub fn new(number: u32) -> Option<Self> {
        NonZeroU32::new(number & 0x7fff_ffff).map(StreamId)
    }

    /// Returns the number.
    #[must_use]
    #[inline]
    pub fn get(self) -> u32 {
        self.0.get()
    }

    /// Returns whether a client opens it.
    #[must_use]
    #[inline]
    pub(super) fn is_of_client(self) -> bool {
        self.get() & 1 == 1
    }
}

/// Reason of a RST_STREAM or GOAWAY frame (RFC 9113 §7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorCode {
    /// Not an error.
    NoError,
    /// The peer broke the protocol.
    ProtocolError,
    /// The sender of the frame failed.
    InternalError,
    /// The peer sent more than the window, or made the window too large.
    FlowControlError,
    /// No acknowledgement of SETTINGS in time.
    SettingsTimeout,
    /// A frame on a stream whose sender had ended it.
    StreamClosed,
    /// A frame of a wrong length.
    FrameSizeError,
    /// Not processed: may be sent again.
    RefusedStream,
    /// No longer wanted.
    Cancel,
    /// The header compression state is lost.
    CompressionError,
    /// The connection of a CONNECT request was reset.
    ConnectError,
    /// The peer causes too much work.
    EnhanceYourCalm,
    /// TLS is too weak.
    InadequateSecurity,
    /// The request needs HTTP/1.1.
    Http11Required,
    /// A code that RFC 9113 does not have.
    Unknown(u32),
}

impl ErrorCode {
    /// Returns the error of a code.
    #[must_use]
    pub fn of(code: u32) -> Self {
        match code {
            0x0 => ErrorCode::NoError,
            0x1 => ErrorCode::ProtocolError,
            0x2 => ErrorCode::InternalError,
            0x3 => ErrorCode::FlowControlError,
            0x4 => ErrorCode::SettingsTimeout,
            0x5 => ErrorCode::StreamClosed,
            0x6 => ErrorCode::FrameSizeError,
            0x7 => ErrorCode::RefusedStream,
            0x8 => ErrorCode::Cancel,
            0x9 => ErrorCode::CompressionError,
            0xa => ErrorCode::ConnectError,
            0xb => ErrorCode::EnhanceYourCalm,
            0xc => ErrorCode::InadequateSecurity,
            0xd => ErrorCode::Http11Required,
            code => ErrorCode::Unknown(code),
        }
    }

    /// Returns the code.
    #[must_use]
    pub fn code(self) -> u32 {
        match self {
            ErrorCode::NoError => 0x0,
            ErrorCode::ProtocolError => 0x1,
            ErrorCode::InternalError => 0x2,
            ErrorCode::FlowControlError => 0x3,
            ErrorCode::SettingsTimeout => 0x4,
            ErrorCode::StreamClosed => 0x5,
            ErrorCode::FrameSizeError => 0x6,
            ErrorCode::RefusedStream => 0x7,
            ErrorCode::Cancel => 0x8,
            ErrorCode::CompressionError => 0x9,
            ErrorCode::ConnectError => 0xa,
            ErrorCode::EnhanceYourCalm => 0xb,
            ErrorCode::InadequateSecurity => 0xc,
            ErrorCode::Http11Required => 0xd,
            ErrorCode::Unknown(code) => code,
        }
    }
}

/// Fault that ends the connection: GOAWAY was written, and the connection must be closed after it
/// was sent (RFC 9113 §5.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionError {
    /// Code in the GOAWAY frame.
    pub code: ErrorCode,
    /// The fault in words, for logs; also the debug data of the GOAWAY frame.
    pub why: &'static str,
}

impl ConnectionError {
    pub(super) const fn protocol(why: &'static str) -> Self {
        let code = ErrorCode::ProtocolError;
        ConnectionError { code, why }
    }

    pub(super) const fn frame_size(why: &'static str) -> Self {
        let code = ErrorCode::FrameSizeError;
        ConnectionError { code, why }
    }

    pub(super) const fn flow_control(why: &'static str) -> Self {
        let code = ErrorCode::FlowControlError;
        ConnectionError { code, why }
    }

    pub(super) const fn too_much(why: &'static str) -> Self {
        let code = ErrorCode::EnhanceYourCalm;
        ConnectionError { code, why }
    }
}
