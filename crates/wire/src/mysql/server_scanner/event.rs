//! Expected replies of a server, and the relevant events in them.

use crate::mysql::backend::{Eof, ErrorReport, OkPacket, PrepareOk};
use crate::mysql::flags::Status;

/// Form of the reply to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedReply {
    /// OK, ERR, a request for a client's file, or rows; possibly several of these in sequence.
    Results,
    /// OK, ERR or EOF.
    Simple,
    /// Reply to COM_STMT_PREPARE.
    Prepare,
    /// Rows without a header: reply to COM_STMT_FETCH.
    Rows,
    /// Column definitions: reply to COM_FIELD_LIST.
    Definitions,
    /// One packet of text: reply to COM_STATISTICS.
    Text,
    /// Steps of a login: reply to COM_CHANGE_USER.
    Login,
    /// Events without an end: reply to COM_BINLOG_DUMP.
    Stream,
}

/// Packet, or position between packets, that is relevant to the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// OK that ends no result. With [`Status::MORE_RESULTS`] another result follows.
    Ok(OkPacket<'a>),
    /// EOF in place of an OK: reply to COM_SET_OPTION and COM_DEBUG.
    Eof(Eof),
    /// ERR: ends the command and all of its further results.
    Error(ErrorReport<'a>),
    /// MariaDB's progress report; the reply continues.
    Progress,
    /// Header of a result with rows, followed by `columns` definitions; 0 if the client has them.
    ResultHeader {
        /// Number of columns.
        columns: u64,
    },
    /// The end of the definitions.
    MetadataEnd {
        /// An EOF; `None` if there are no EOFs: the event then has length 0.
        eof: Option<Eof>,
        /// Sequence number that an EOF has here, or would have.
        sequence: u8,
    },
    /// The end of a result's rows. With [`Status::MORE_RESULTS`] another result follows. With
    /// [`Status::CURSOR_EXISTS`] the rows must be fetched.
    ResultEnd(End<'a>),
    /// Request for a file of the client; the reply continues after it.
    LocalInfile {
        /// Name of the file.
        name: &'a [u8],
    },
    /// Reply that the statement was prepared.
    PrepareOk(PrepareOk),
    /// End of the reply to COM_STMT_PREPARE, of length 0.
    Complete,
    /// One packet of text.
    Text,
    /// A step of a login (its first byte), to which the client may have to reply.
    Login(u8),
}

/// End of a result's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End<'a> {
    /// An EOF.
    Eof(Eof),
    /// An OK in place of an EOF (DEPRECATE_EOF).
    Ok(OkPacket<'a>),
}

impl End<'_> {
    /// Returns the status.
    #[must_use]
    pub fn status(self) -> Status {
        match self {
            End::Eof(eof) => eof.status,
            End::Ok(ok) => ok.status,
        }
    }
}

impl Event<'_> {
    /// Returns the server's status; `None` if the event has none.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        match self {
            Event::Ok(ok) => Some(ok.status),
            Event::Eof(eof) | Event::MetadataEnd { eof: Some(eof), .. } => Some(eof.status),
            Event::ResultEnd(end) => Some(end.status()),
            _ => None,
        }
    }
}
