//! PostgreSQL's frontend/backend protocol 3.0 and 3.2: codecs, logins of both sides, conversations.
//!
//! Section numbers are those of the PostgreSQL 18 manual, chapter 54, "Frontend/Backend Protocol".
//! Everything borrows from the caller's buffer. A large message need not be collected:
//! [`frame::header`] tells its kind and length, and [`boundaries::Boundaries`] walks a server's
//! bytes and stops only where a result or a transaction ends. [`requests::Requests`] does it for a
//! client's, and [`Flight`](crate::flight::Flight) says what becomes of them on their way.

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

/// What the bytes received so far are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed<T> {
    /// A whole one, and how many bytes it took.
    Frame(T, usize),
    /// A correct beginning.
    Incomplete {
        /// How many bytes there must be before asking again can help; always more than there are.
        need: usize,
    },
    /// No further byte can make this right.
    Invalid(ProtocolError),
}

/// The state of a server's transaction, from ReadyForQuery (§54.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionStatus {
    /// `I`: not in a transaction block.
    Idle,
    /// `T`: in a transaction block.
    InTransaction,
    /// `E`: in a failed transaction block; everything is refused until it ends.
    Failed,
}

impl TransactionStatus {
    /// The status that ReadyForQuery's byte stands for.
    #[must_use]
    pub fn of(byte: u8) -> Option<Self> {
        match byte {
            b'I' => Some(Self::Idle),
            b'T' => Some(Self::InTransaction),
            b'E' => Some(Self::Failed),
            _ => None,
        }
    }

    /// ReadyForQuery's byte.
    #[must_use]
    pub fn byte(self) -> u8 {
        match self {
            Self::Idle => b'I',
            Self::InTransaction => b'T',
            Self::Failed => b'E',
        }
    }
}

/// Why bytes are not what the protocol allows: always the fault of the peer that sent them, final.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolError {
    /// A length field below what its message needs.
    LengthTooSmall(u32),
    /// A message of this tag (0: before there are tags) may not be that long.
    TooLong {
        /// The message's tag.
        tag: u8,
        /// The length field as sent.
        length: u32,
    },
    /// No message of this direction has that tag.
    UnknownTag(u8),
    /// The body of a message of this tag is not built as the manual says.
    Malformed(u8),
    /// The first packet asks for a major version other than 3 (the number as sent).
    Version(u32),
    /// The startup packet's list of parameters is broken.
    Parameters,
    /// The startup packet names no user (SQLSTATE 28000).
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
