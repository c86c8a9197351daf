//! What is expected of a server, and what it says that matters.

use crate::mysql::backend::{Eof, ErrorReport, OkPacket, PrepareOk};
use crate::mysql::flags::Status;

/// What answers a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedReply {
    /// OK, ERR, a client's file, or rows; perhaps several of these one after the other.
    Results,
    /// OK, ERR or EOF.
    Simple,
    /// To COM_STMT_PREPARE.
    Prepare,
    /// Rows without a beginning: to COM_STMT_FETCH.
    Rows,
    /// Definitions of columns: to COM_FIELD_LIST.
    Definitions,
    /// One packet of text: to COM_STATISTICS.
    Text,
    /// The steps of a login: to COM_CHANGE_USER.
    Login,
    /// Events without an end: to COM_BINLOG_DUMP.
    Stream,
}

/// A packet, or a place between packets, that matters to whoever follows the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// OK, which is no end of a result. With [`Status::MORE_RESULTS`] another follows.
    Ok(OkPacket<'a>),
    /// EOF where OK might be: to COM_SET_OPTION and COM_DEBUG.
    Eof(Eof),
    /// ERR: the command, and all of its further results, ended.
    Error(ErrorReport<'a>),
    /// MariaDB: a report of progress; the reply goes on.
    Progress,
    /// Rows are to come, behind so many definitions of columns; 0: the client knows them.
    ResultHeader {
        /// How many columns.
        columns: u64,
    },
    /// The end of the definitions.
    MetadataEnd {
        /// An EOF; `None`: the event is of length 0, for there are no EOFs.
        eof: Option<Eof>,
        /// The number that an EOF here has, or would have.
        sequence: u8,
    },
    /// The end of a result's rows. With [`Status::MORE_RESULTS`] another result follows, with
    /// [`Status::CURSOR_EXISTS`] the rows are to be fetched.
    ResultEnd(End<'a>),
    /// The server wants a file of the client's; then it goes on.
    LocalInfile {
        /// Its name.
        name: &'a [u8],
    },
    /// The statement exists.
    PrepareOk(PrepareOk),
    /// Nothing (of length 0): the answer to COM_STMT_PREPARE is complete.
    Complete,
    /// One packet of text.
    Text,
    /// A step of a login (its first byte): the client has to answer, or something.
    Login(u8),
}

/// How a result's rows end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End<'a> {
    /// By an EOF.
    Eof(Eof),
    /// By an OK in its place (DEPRECATE_EOF).
    Ok(OkPacket<'a>),
}

impl End<'_> {
    /// The status.
    #[must_use]
    pub fn status(self) -> Status {
        match self {
            End::Eof(eof) => eof.status,
            End::Ok(ok) => ok.status,
        }
    }
}

impl Event<'_> {
    /// The server's status, if it tells.
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
