//! MySQL's and MariaDB's client/server protocol: codecs, logins of both sides, conversations.
//!
//! The names are those of the MySQL 9 source documentation ("Client/Server Protocol") and of
//! MariaDB's knowledge base. Everything borrows from the caller's buffer. A large packet need not
//! be collected: [`frame::header`] tells its length, and [`boundaries::Boundaries`] walks a
//! server's bytes and stops only where a result or a statement ends. What a server's bytes mean
//! hangs on the command that they answer, which [`conversation::Conversation`] knows.

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
pub mod server_scanner;
pub mod startup;
pub mod trackers;

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

/// A prepared statement's number, as a server gave it; each connection has its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct StatementId(pub u32);

impl StatementId {
    /// MariaDB: the statement that this connection prepared last, so that a client may send
    /// COM_STMT_PREPARE and COM_STMT_EXECUTE at once.
    pub const LAST: StatementId = StatementId(u32::MAX);
}

/// Why bytes are not what the protocol allows: always the fault of the peer that sent them, final.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolError {
    /// A packet that is longer than may be here.
    TooLong {
        /// Its payload's length as sent.
        length: u32,
        /// What there may be.
        length_max: u32,
    },
    /// A packet whose number is not the next (the number as sent).
    Sequence(u8),
    /// A packet that is not built as documented.
    Malformed(PacketKind),
    /// A command that we do not know (its byte).
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
