//! Encodes client packets.

use super::{packet, put_lenenc_bytes, put_short_bytes, put_text, put_u16, put_u32};
use crate::mysql::StatementId;
use crate::mysql::flags::Capabilities;
use crate::mysql::frontend::Code;
use crate::mysql::startup::Attributes;

/// Fields of a handshake response.
#[derive(Debug, Clone, Copy, Default)]
pub struct ResponseFields<'a> {
    /// Capabilities that Evenkeel supports and the server offered; they determine which fields
    /// follow.
    pub capabilities: Capabilities,
    /// Number of a collation.
    pub collation: u8,
    /// User name.
    pub user: &'a [u8],
    /// Proof of the password.
    pub proof: &'a [u8],
    /// Initial schema; written if the capabilities include it.
    pub schema: &'a [u8],
    /// Authentication plugin of the proof.
    pub plugin: &'a [u8],
    /// Connection attributes of Evenkeel.
    pub attributes: Attributes<'a>,
    /// Level of zstd compression.
    pub zstd_level: u8,
}

/// Fields of COM_CHANGE_USER.
#[derive(Debug, Clone, Copy, Default)]
pub struct ChangeUserFields<'a> {
    /// Agreed capabilities; they determine which fields follow.
    pub capabilities: Capabilities,
    /// The new user.
    pub user: &'a [u8],
    /// Proof of the password.
    pub proof: &'a [u8],
    /// Schema; empty for none.
    pub schema: &'a [u8],
    /// Number of a collation.
    pub collation: u16,
    /// Authentication plugin of the proof.
    pub plugin: &'a [u8],
    /// Connection attributes of Evenkeel.
    pub attributes: Attributes<'a>,
}

/// The longest packet announced to servers: Evenkeel has no limit, because it does not collect
/// packets.
const PACKET_LENGTH_MAX: u32 = 1 << 30;

/// Writes SSLRequest.
pub fn ssl_request(out: &mut Vec<u8>, sequence: u8, capabilities: Capabilities, collation: u8) {
    let capabilities = capabilities.with(Capabilities::SSL);
    packet(out, sequence, |out| {
        put_beginning(out, capabilities, collation);
    });
}

/// Writes a handshake response.
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
    // MariaDB's capability bits are valid only where the first bit is not set.
    put_u32(
        out,
        Capabilities::of(capabilities.common(), capabilities.extended()).extended(),
    );
}

/// Writes a command and its body.
pub fn command(out: &mut Vec<u8>, code: Code, body: &[u8]) {
    packet(out, 0, |out| {
        out.push(code as u8);
        out.extend_from_slice(body);
    });
}

/// Writes COM_QUERY, for a connection without query attributes.
pub fn query(out: &mut Vec<u8>, text: &[u8]) {
    command(out, Code::Query, text);
}

/// Writes COM_QUERY, for a connection with query attributes. `attributes` are as parsed; empty for
/// none.
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

/// Writes COM_STMT_PREPARE.
pub fn prepare(out: &mut Vec<u8>, text: &[u8]) {
    command(out, Code::StmtPrepare, text);
}

/// Writes COM_STMT_EXECUTE; `values` begin with the number of executions.
pub fn execute(out: &mut Vec<u8>, statement: StatementId, flags: u8, values: &[u8]) {
    packet(out, 0, |out| {
        out.push(Code::StmtExecute as u8);
        put_u32(out, statement.0);
        out.push(flags);
        out.extend_from_slice(values);
    });
}

/// Writes COM_STMT_SEND_LONG_DATA.
pub fn long_data(out: &mut Vec<u8>, statement: StatementId, parameter: u16, data: &[u8]) {
    packet(out, 0, |out| {
        out.push(Code::StmtSendLongData as u8);
        put_u32(out, statement.0);
        put_u16(out, parameter);
        out.extend_from_slice(data);
    });
}

/// Writes COM_STMT_FETCH.
pub fn fetch(out: &mut Vec<u8>, statement: StatementId, rows_max: u32) {
    packet(out, 0, |out| {
        out.push(Code::StmtFetch as u8);
        put_u32(out, statement.0);
        put_u32(out, rows_max);
    });
}

/// Writes COM_STMT_CLOSE.
pub fn close(out: &mut Vec<u8>, statement: StatementId) {
    command(out, Code::StmtClose, &statement.0.to_le_bytes());
}

/// Writes COM_INIT_DB.
pub fn init_db(out: &mut Vec<u8>, schema: &[u8]) {
    command(out, Code::InitDb, schema);
}

/// Writes COM_SET_OPTION.
pub fn set_option(out: &mut Vec<u8>, multi_statements: bool) {
    command(out, Code::SetOption, &[u8::from(!multi_statements), 0]);
}

/// Writes COM_CHANGE_USER.
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
