//! PostgreSQL's frontend/backend protocol 3.0 and 3.2: codecs, logins of both sides, conversations.
//!
//! Section numbers are those of the PostgreSQL 18 manual, chapter 54, "Frontend/Backend Protocol".
//! All types borrow from the caller's buffer. A large message need not be collected:
//! [`frame::header`] returns its kind and length. [`server_scanner::ServerScanner`] scans a
//! server's bytes and stops only at the end of a result or of a transaction.
//! [`client_scanner::ClientScanner`] scans a client's bytes, and
//! [`StreamEditor`](crate::stream_editor::StreamEditor) edits them on their way.

use std::fmt;

pub mod backend;
pub mod build;
pub mod client_scanner;
pub mod conversation;
mod cursor;
pub mod frame;
pub mod frontend;
pub mod login;
pub mod md5;
pub mod names;
pub mod scram;
pub mod server_scanner;
pub mod startup;

/// Result of parsing the bytes received so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed<T> {
    /// A whole frame, and how many bytes it took.
    Frame(T, usize),
    /// The beginning of a valid frame.
    Incomplete {
        /// How many bytes there must be before another attempt can succeed; always more than there
        /// are.
        need: usize,
    },
    /// Invalid bytes: no further byte can make a valid frame of them.
    Invalid(ProtocolError),
}

/// The state of a server's transaction, from ReadyForQuery (§54.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionStatus {
    /// `I`: not in a transaction block.
    Idle,
    /// `T`: in a transaction block.
    InTransaction,
    /// `E`: in a failed transaction block; every statement is refused until the block ends.
    Failed,
}

impl TransactionStatus {
    /// Returns the status that a byte of ReadyForQuery encodes, or `None` for an unknown byte.
    #[must_use]
    pub fn of(byte: u8) -> Option<Self> {
        match byte {
            b'I' => Some(Self::Idle),
            b'T' => Some(Self::InTransaction),
            b'E' => Some(Self::Failed),
            _ => None,
        }
    }

    /// Returns the byte of ReadyForQuery for this status.
    #[must_use]
    pub fn byte(self) -> u8 {
        match self {
            Self::Idle => b'I',
            Self::InTransaction => b'T',
            Self::Failed => b'E',
        }
    }
}

/// Violation of the protocol: always an error of the peer that sent the bytes, and final.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolError {
    /// A length field below the minimum of its message.
    LengthTooSmall(u32),
    /// A message that is longer than its tag (0: before there are tags) allows.
    TooLong {
        /// The message's tag.
        tag: u8,
        /// The length field as sent.
        length: u32,
    },
    /// A tag that no message of this direction has.
    UnknownTag(u8),
    /// A message of this tag with a body that does not have the documented format.
    Malformed(u8),
    /// A first packet with a major version other than 3 (the number as sent).
    Version(u32),
    /// A malformed parameter list in the startup packet.
    Parameters,
    /// A startup packet without a user (SQLSTATE 28000).
    NoUser,
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProtocolError::LengthTooSmall(length) => {
                write!(f, "invalid message length {length}")
            }
            ProtocolError::TooLong { tag: 0, length } => {
                write!(f, "startup packet too long ({length} bytes)")
            }
            ProtocolError::TooLong { tag, length } => {
                write!(f, "message '{}' too long ({length} bytes)", Tag(*tag))
            }
            ProtocolError::UnknownTag(tag) => write!(f, "invalid message type '{}'", Tag(*tag)),
            ProtocolError::Malformed(tag) => write!(f, "malformed message '{}'", Tag(*tag)),
            ProtocolError::Version(code) => {
                let (major, minor) = (code >> 16, code & 0xffff);
                write!(f, "unsupported frontend protocol {major}.{minor}")
            }
            ProtocolError::Parameters => f.write_str("malformed parameter list in startup packet"),
            ProtocolError::NoUser => f.write_str("no user name specified in startup packet"),
        }
    }
}

impl std::error::Error for ProtocolError {}

struct Tag(u8);

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.escape_ascii().fmt(f)
    }
}
