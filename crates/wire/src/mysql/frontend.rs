//! Parses commands of a logged-in client ("Command Phase").

use super::cursor::Cursor;
use super::flags::Capabilities;
use super::{PacketKind, ProtocolError, StatementId};

mod attributes;

pub use attributes::{Parameters, parameters, typed};

/// The first byte of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[expect(
    missing_docs,
    reason = "the names are the protocol's own, COM_ before them"
)]
pub enum Code {
    Quit = 0x01,
    InitDb = 0x02,
    Query = 0x03,
    FieldList = 0x04,
    CreateDb = 0x05,
    DropDb = 0x06,
    Refresh = 0x07,
    Shutdown = 0x08,
    Statistics = 0x09,
    ProcessInfo = 0x0a,
    ProcessKill = 0x0c,
    Debug = 0x0d,
    Ping = 0x0e,
    ChangeUser = 0x11,
    BinlogDump = 0x12,
    RegisterSlave = 0x15,
    StmtPrepare = 0x16,
    StmtExecute = 0x17,
    StmtSendLongData = 0x18,
    StmtClose = 0x19,
    StmtReset = 0x1a,
    SetOption = 0x1b,
    StmtFetch = 0x1c,
    BinlogDumpGtid = 0x1e,
    ResetConnection = 0x1f,
    Clone = 0x20,
    StmtBulkExecute = 0xfa,
}

impl Code {
    /// Returns the command of a first byte.
    #[must_use]
    pub fn of(byte: u8) -> Option<Code> {
        Some(match byte {
            0x01 => Code::Quit,
            0x02 => Code::InitDb,
            0x03 => Code::Query,
            0x04 => Code::FieldList,
            0x05 => Code::CreateDb,
            0x06 => Code::DropDb,
            0x07 => Code::Refresh,
            0x08 => Code::Shutdown,
            0x09 => Code::Statistics,
            0x0a => Code::ProcessInfo,
            0x0c => Code::ProcessKill,
            0x0d => Code::Debug,
            0x0e => Code::Ping,
            0x11 => Code::ChangeUser,
            0x12 => Code::BinlogDump,
            0x15 => Code::RegisterSlave,
            0x16 => Code::StmtPrepare,
            0x17 => Code::StmtExecute,
            0x18 => Code::StmtSendLongData,
            0x19 => Code::StmtClose,
            0x1a => Code::StmtReset,
            0x1b => Code::SetOption,
            0x1c => Code::StmtFetch,
            0x1e => Code::BinlogDumpGtid,
            0x1f => Code::ResetConnection,
            0x20 => Code::Clone,
            0xfa => Code::StmtBulkExecute,
            _ => return None,
        })
    }
}

/// One command of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request<'a> {
    /// COM_QUERY: any number of statements, if the client may send several.
    Query {
        /// Query attributes as sent, counts included; empty: none were agreed on.
        attributes: &'a [u8],
        /// The SQL text.
        text: &'a [u8],
    },
    /// COM_STMT_PREPARE
    Prepare {
        /// The SQL text, of one statement.
        text: &'a [u8],
    },
    /// COM_STMT_EXECUTE
    Execute(Execute<'a>),
    /// COM_STMT_BULK_EXECUTE: several rows of parameters; a write.
    BulkExecute {
        /// The statement.
        statement: StatementId,
        /// Flags, types and rows, as sent.
        values: &'a [u8],
    },
    /// COM_STMT_SEND_LONG_DATA: there is no reply.
    LongData {
        /// The statement.
        statement: StatementId,
        /// Index of the parameter.
        parameter: u16,
        /// Further data of its value.
        data: &'a [u8],
    },
    /// COM_STMT_FETCH
    Fetch {
        /// The statement whose cursor is open.
        statement: StatementId,
        /// The most rows to return.
        rows_max: u32,
    },
    /// COM_STMT_CLOSE: there is no reply.
    Close(StatementId),
    /// COM_STMT_RESET: discards long data and closes the cursor.
    Reset(StatementId),
    /// COM_INIT_DB: USE.
    InitDb(&'a [u8]),
    /// COM_FIELD_LIST: the columns of a table.
    FieldList {
        /// The table.
        table: &'a [u8],
        /// Pattern of column names, with wildcards.
        wildcard: &'a [u8],
    },
    /// COM_SET_OPTION: allows or forbids several statements in one text. The reply is an EOF.
    SetOption {
        /// True if they are allowed from now on.
        multi_statements: bool,
    },
    /// COM_PROCESS_KILL: KILL; the id is one that Evenkeel has assigned.
    ProcessKill(u32),
    /// COM_CHANGE_USER
    ChangeUser(ChangeUser<'a>),
    /// COM_RESET_CONNECTION
    ResetConnection,
    /// COM_PING
    Ping,
    /// COM_QUIT: the client disconnects.
    Quit,
    /// COM_BINLOG_DUMP or COM_BINLOG_DUMP_GTID: an endless stream of events.
    BinlogDump {
        /// Command code.
        code: Code,
        /// Start position, as sent.
        body: &'a [u8],
    },
    /// COM_STATISTICS, COM_PROCESS_INFO, COM_DEBUG, COM_REGISTER_SLAVE, COM_CREATE_DB and others.
    Other {
        /// The command.
        code: Code,
        /// The bytes after the code.
        body: &'a [u8],
    },
}

/// COM_STMT_EXECUTE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Execute<'a> {
    /// The statement.
    pub statement: StatementId,
    /// Cursor type, and whether the number of parameters is present.
    pub flags: u8,
    /// The number of executions, always 1, and the parameters, as sent; see [`parameters`].
    pub values: &'a [u8],
}

impl Execute<'_> {
    /// `PARAMETER_COUNT_AVAILABLE`: query attributes may be among the parameters.
    pub const COUNT_AVAILABLE: u8 = 8;

    /// Returns whether a cursor is requested; the server may still return the rows directly.
    #[must_use]
    pub fn wants_cursor(&self) -> bool {
        self.flags & 7 != 0
    }
}

/// COM_CHANGE_USER.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangeUser<'a> {
    /// The new user.
    pub user: &'a [u8],
    /// Proof of the user's password, made for `plugin`.
    pub proof: &'a [u8],
    /// Schema; empty for none.
    pub schema: &'a [u8],
    /// Number of a collation.
    pub collation: Option<u16>,
    /// Authentication plugin of the proof.
    pub plugin: Option<&'a [u8]>,
    /// Connection attributes of the client.
    pub attributes: super::startup::Attributes<'a>,
}

/// Parses a command. `capabilities` are those agreed on with the client.
///
/// Only the beginning of a long payload may be passed; texts and values then end with it.
///
/// # Errors
///
/// Fails for an unknown command or a malformed one.
pub fn request(payload: &[u8], capabilities: Capabilities) -> Result<Request<'_>, ProtocolError> {
    let (byte, body) = payload
        .split_first()
        .ok_or(ProtocolError::Malformed(PacketKind::Empty))?;
    let code = Code::of(*byte).ok_or(ProtocolError::UnknownCommand(*byte))?;
    read(code, Cursor(body), capabilities)
        .ok_or(ProtocolError::Malformed(PacketKind::Command(*byte)))
}

fn read<'a>(code: Code, mut body: Cursor<'a>, agreed: Capabilities) -> Option<Request<'a>> {
    Some(match code {
        Code::Query => {
            let attributes = match agreed.has(Capabilities::QUERY_ATTRIBUTES) {
                true => attributes::take(&mut body)?,
                false => &[],
            };
            let text = body.rest();
            Request::Query { attributes, text }
        }
        Code::StmtPrepare => Request::Prepare { text: body.rest() },
        Code::StmtExecute => Request::Execute(Execute {
            statement: StatementId(body.le_u32()?),
            flags: body.byte()?,
            values: body.rest(),
        }),
        Code::StmtBulkExecute => Request::BulkExecute {
            statement: StatementId(body.le_u32()?),
            values: body.rest(),
        },
        Code::StmtSendLongData => Request::LongData {
            statement: StatementId(body.le_u32()?),
            parameter: body.le_u16()?,
            data: body.rest(),
        },
        Code::StmtFetch => Request::Fetch {
            statement: StatementId(body.le_u32()?),
            rows_max: body.le_u32()?,
        },
        Code::StmtClose => Request::Close(StatementId(body.le_u32()?)),
        Code::StmtReset => Request::Reset(StatementId(body.le_u32()?)),
        Code::InitDb => Request::InitDb(body.rest()),
        Code::FieldList => Request::FieldList {
            table: body.text()?,
            wildcard: body.rest(),
        },
        Code::SetOption => Request::SetOption {
            multi_statements: match body.le_u16()? {
                0 => true,
                1 => false,
                _ => return None,
            },
        },
        Code::ProcessKill => Request::ProcessKill(body.le_u32()?),
        Code::ChangeUser => Request::ChangeUser(read_change_user(body, agreed)?),
        Code::ResetConnection => Request::ResetConnection,
        Code::Ping => Request::Ping,
        Code::Quit => Request::Quit,
        Code::BinlogDump | Code::BinlogDumpGtid => Request::BinlogDump {
            code,
            body: body.rest(),
        },
        _ => Request::Other {
            code,
            body: body.rest(),
        },
    })
}

fn read_change_user<'a>(mut body: Cursor<'a>, agreed: Capabilities) -> Option<ChangeUser<'a>> {
    let user = body.text()?;
    let proof = match agreed.has(Capabilities::SECURE_CONNECTION) {
        true => body.short_bytes()?,
        false => body.text()?,
    };
    let schema = body.text_or_rest();
    let collation = body.le_u16();
    let with_plugin = agreed.has(Capabilities::PLUGIN_AUTH) && !body.is_empty();
    let plugin = with_plugin.then(|| body.text_or_rest());
    let attributes = super::startup::read_attributes(&mut body, agreed)?;
    Some(ChangeUser {
        user,
        proof,
        schema,
        collation,
        plugin: plugin.filter(|name| !name.is_empty()),
        attributes,
    })
}

#[cfg(test)]
mod tests;
