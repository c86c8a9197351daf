//! What a client sends.

use super::{packet, put_lenenc_bytes, put_short_bytes, put_text, put_u16, put_u32};
use crate::mysql::StatementId;
use crate::mysql::flags::Capabilities;
use crate::mysql::frontend::Code;
use crate::mysql::startup::Attributes;

/// What a handshake response says.
#[derive(Debug, Clone, Copy, Default)]
pub struct ResponseFields<'a> {
    /// What we can do and the server offered; which fields follow hangs on them.
    pub capabilities: Capabilities,
    /// The number of a collation.
    pub collation: u8,
    /// Who we are.
    pub user: &'a [u8],
    /// The proof of the password.
    pub proof: &'a [u8],
    /// The schema to begin in; written if the capabilities say so.
    pub schema: &'a [u8],
    /// What the proof was made with.
    pub plugin: &'a [u8],
    /// What we say about ourselves.
    pub attributes: Attributes<'a>,
    /// The level of zstd compression.
    pub zstd_level: u8,
}

/// What COM_CHANGE_USER says.
#[derive(Debug, Clone, Copy, Default)]
pub struct ChangeUserFields<'a> {
    /// What both can do; which fields follow hangs on them.
    pub capabilities: Capabilities,
    /// Who we want to be.
    pub user: &'a [u8],
    /// The proof of the password.
    pub proof: &'a [u8],
    /// The schema; empty: none.
    pub schema: &'a [u8],
    /// The number of a collation.
    pub collation: u16,
    /// What the proof was made with.
    pub plugin: &'a [u8],
    /// What we say about ourselves.
    pub attributes: Attributes<'a>,
}

/// The longest packet that we say we take: there is no limit, for nothing is collected.
const PACKET_LENGTH_MAX: u32 = 1 << 30;

/// The wish for TLS.
pub fn ssl_request(out: &mut Vec<u8>, sequence: u8, capabilities: Capabilities, collation: u8) {
    let capabilities = capabilities.with(Capabilities::SSL);
    packet(out, sequence, |out| {
        put_beginning(out, capabilities, collation);
    });
}

/// The wish to log in.
pub fn response(out: &mut Vec<u8>, sequence: u8, fields: &ResponseFields<'_>) {
    let has = |capability| fields.capabilities.has(capability);
    packet(out, sequence, |out| {
        put_beginning(out, fields.capabilities, fields.collation);
        put_text(out, fields.user);
        if has(Capabilities::PLUGIN_AUTH_LENENC) {
            put_lenenc_bytes(out, fields.proof);
        } else {
            put_short_bytes(out, fields.proof);
        }
        if has(Capabilities::CONNECT_WITH_DB) {
            put_text(out, fields.schema);
        }
        if has(Capabilities::PLUGIN_AUTH) {
            put_text(out, fields.plugin);
        }
        if has(Capabilities::CONNECT_ATTRS) {
            put_lenenc_bytes(out, fields.attributes.bytes());
        }
        if has(Capabilities::ZSTD) {
            out.push(fields.zstd_level);
        }
    });
}

fn put_beginning(out: &mut Vec<u8>, capabilities: Capabilities, collation: u8) {
    put_u32(out, capabilities.common());
    put_u32(out, PACKET_LENGTH_MAX);
    out.push(collation);
    out.extend_from_slice(&[0; 19]);
    // MariaDB's bits count only where the first one is not set.
    put_u32(
        out,
        Capabilities::of(capabilities.common(), capabilities.extended()).extended(),
    );
}

/// A command and what follows it.
pub fn command(out: &mut Vec<u8>, code: Code, body: &[u8]) {
    packet(out, 0, |out| {
        out.push(code as u8);
        out.extend_from_slice(body);
    });
}

/// COM_QUERY, on a connection without query attributes.
pub fn query(out: &mut Vec<u8>, text: &[u8]) {
    command(out, Code::Query, text);
}

/// COM_QUERY on a connection with query attributes. `attributes`: as read, empty: none.
pub fn query_with_attributes(out: &mut Vec<u8>, attributes: &[u8], text: &[u8]) {
    packet(out, 0, |out| {
        out.push(Code::Query as u8);
        match attributes {
            [] => out.extend_from_slice(&[0, 1]),
            _ => out.extend_from_slice(attributes),
        }
        out.extend_from_slice(text);
    });
}

/// COM_STMT_PREPARE
pub fn prepare(out: &mut Vec<u8>, text: &[u8]) {
    command(out, Code::StmtPrepare, text);
}

/// COM_STMT_EXECUTE; `values` from the number of executions on.
pub fn execute(out: &mut Vec<u8>, statement: StatementId, flags: u8, values: &[u8]) {
    packet(out, 0, |out| {
        out.push(Code::StmtExecute as u8);
        put_u32(out, statement.0);
        out.push(flags);
        out.extend_from_slice(values);
    });
}

/// COM_STMT_SEND_LONG_DATA
pub fn long_data(out: &mut Vec<u8>, statement: StatementId, parameter: u16, data: &[u8]) {
    packet(out, 0, |out| {
        out.push(Code::StmtSendLongData as u8);
        put_u32(out, statement.0);
        put_u16(out, parameter);
        out.extend_from_slice(data);
    });
}

/// COM_STMT_FETCH
pub fn fetch(out: &mut Vec<u8>, statement: StatementId, rows_max: u32) {
    packet(out, 0, |out| {
        out.push(Code::StmtFetch as u8);
        put_u32(out, statement.0);
        put_u32(out, rows_max);
    });
}

/// COM_STMT_CLOSE
pub fn close(out: &mut Vec<u8>, statement: StatementId) {
    command(out, Code::StmtClose, &statement.0.to_le_bytes());
}

/// COM_INIT_DB
pub fn init_db(out: &mut Vec<u8>, schema: &[u8]) {
    command(out, Code::InitDb, schema);
}

/// COM_SET_OPTION
pub fn set_option(out: &mut Vec<u8>, multi_statements: bool) {
    command(out, Code::SetOption, &[u8::from(!multi_statements), 0]);
}

/// COM_CHANGE_USER
pub fn change_user(out: &mut Vec<u8>, fields: &ChangeUserFields<'_>) {
    let has = |capability| fields.capabilities.has(capability);
    packet(out, 0, |out| {
        out.push(Code::ChangeUser as u8);
        put_text(out, fields.user);
        put_short_bytes(out, fields.proof);
        put_text(out, fields.schema);
        put_u16(out, fields.collation);
        if has(Capabilities::PLUGIN_AUTH) {
            put_text(out, fields.plugin);
        }
        if has(Capabilities::CONNECT_ATTRS) {
            put_lenenc_bytes(out, fields.attributes.bytes());
        }
    });
}
