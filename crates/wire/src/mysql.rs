//! MySQL's and MariaDB's client/server protocol: codecs, logins of both sides, conversations.
//!
//! The names are those of the MySQL 9 source documentation ("Client/Server Protocol") and of
//! MariaDB's knowledge base. All types borrow from the caller's buffer. A large packet need not be
//! collected: [`frame::header`] returns its length. [`server_scanner::ServerScanner`] scans a
//! server's bytes and stops only at the end of a result or of a statement. The meaning of a
//! server's bytes depends on the command that they answer, which [`conversation::Conversation`]
//! tracks.

use std::fmt;

pub mod backend;
pub mod build;
pub mod conversation;
mod cursor;
pub mod flags;
pub mod frame;
pub mod frontend;
pub mod greeting;
pub mod login;
pub mod password;
pub mod rewrite;
pub mod rows;
pub mod server_scanner;
pub mod startup;
pub mod trackers;

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

/// Id of a prepared statement, assigned by a server; each connection has its own ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct StatementId(pub u32);

impl StatementId {
    /// MariaDB: the last statement prepared on this connection. Clients use it to send
    /// COM_STMT_PREPARE and COM_STMT_EXECUTE together.
    pub const LAST: StatementId = StatementId(u32::MAX);
}

/// Violation of the protocol: always an error of the peer that sent the bytes, and final.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolError {
    /// A packet that is longer than allowed at this point.
    TooLong {
        /// The payload's length as sent.
        length: u32,
        /// The allowed length.
        length_max: u32,
    },
    /// A packet with another sequence number than the next (the number as sent).
    Sequence(u8),
    /// A packet that does not have the documented format.
    Malformed(PacketKind),
    /// An unknown command (its byte).
    UnknownCommand(u8),
    /// A client or server older than MySQL 4.1 (2004).
    TooOld,
}

/// A kind of packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PacketKind {
    /// The server's first packet.
    Greeting,
    /// The client's first packet.
    HandshakeResponse,
    /// A step of a login.
    Login,
    /// OK.
    Ok,
    /// ERR.
    Error,
    /// EOF.
    Eof,
    /// The session trackers in an OK.
    SessionState,
    /// The first packet of a result.
    ResultHeader,
    /// The first answer to COM_STMT_PREPARE.
    PrepareOk,
    /// A packet without payload where there must be one.
    Empty,
    /// This command.
    Command(u8),
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProtocolError::TooLong { length, length_max } => {
                write!(
                    f,
                    "packet of {length} bytes exceeds the limit of {length_max}"
                )
            }
            ProtocolError::Sequence(number) => {
                write!(f, "packet out of order (sequence number {number})")
            }
            ProtocolError::Malformed(what) => write!(f, "malformed {what}"),
            ProtocolError::UnknownCommand(byte) => write!(f, "unknown command {byte:#04x}"),
            ProtocolError::TooOld => f.write_str("protocol older than MySQL 4.1"),
        }
    }
}

impl fmt::Display for PacketKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PacketKind::Greeting => "greeting",
            PacketKind::HandshakeResponse => "handshake response",
            PacketKind::Login => "login packet",
            PacketKind::Ok => "OK packet",
            PacketKind::Error => "ERR packet",
            PacketKind::Eof => "EOF packet",
            PacketKind::SessionState => "session tracker list",
            PacketKind::ResultHeader => "result set header",
            PacketKind::PrepareOk => "response to COM_STMT_PREPARE",
            PacketKind::Empty => "reply (empty packet)",
            PacketKind::Command(byte) => return write!(f, "command {byte:#04x}"),
        })
    }
}

impl std::error::Error for ProtocolError {}
