//! Encodes server packets.

use super::{packet, put_lenenc, put_lenenc_bytes, put_text, put_u16, put_u32};
use crate::mysql::backend::{self, Eof, OkPacket, PrepareOk, SqlState};
use crate::mysql::flags::{Capabilities, Status};

/// Fields of a greeting.
#[derive(Debug, Clone, Copy)]
pub struct GreetingFields<'a> {
    /// Server version; MariaDB's clients detect MariaDB by it.
    pub version: &'a [u8],
    /// Connection id.
    pub connection: u32,
    /// Capabilities that Evenkeel offers.
    pub capabilities: Capabilities,
    /// Number of a collation.
    pub collation: u8,
    /// The status.
    pub status: Status,
    /// Random nonce, without zero bytes.
    pub nonce: &'a [u8; 20],
    /// Initial authentication plugin.
    pub plugin: &'a [u8],
}

/// Error of Evenkeel.
#[derive(Debug, Clone, Copy)]
pub struct ErrorText<'a> {
    /// Error number.
    pub code: u16,
    /// SQLSTATE of the error.
    pub sqlstate: SqlState,
    /// Message: what failed, the cause, and the remedy.
    pub message: &'a [u8],
}

/// Writes HandshakeV10.
pub fn greeting(out: &mut Vec<u8>, fields: &GreetingFields<'_>) {
    let (first, second) = fields.nonce.split_at_checked(8).unwrap_or_default();
    let common = fields.capabilities.common();
    packet(out, 0, |out| {
        out.push(10);
        put_text(out, fields.version);
        put_u32(out, fields.connection);
        out.extend_from_slice(first);
        out.push(0);
        put_u16(out, common as u16);
        out.push(fields.collation);
        put_u16(out, fields.status.0);
        put_u16(out, (common >> 16) as u16);
        out.push(21);
        out.extend_from_slice(&[0; 6]);
        put_u32(out, fields.capabilities.extended());
        out.extend_from_slice(second);
        out.push(0);
        put_text(out, fields.plugin);
    });
}

/// Writes AuthSwitchRequest: authenticate with this plugin.
pub fn auth_switch(out: &mut Vec<u8>, sequence: u8, plugin: &[u8], data: &[u8]) {
    packet(out, sequence, |out| {
        out.push(backend::EOF);
        put_text(out, plugin);
        out.extend_from_slice(data);
    });
}

/// Writes AuthMoreData.
pub fn auth_more_data(out: &mut Vec<u8>, sequence: u8, data: &[u8]) {
    packet(out, sequence, |out| {
        out.push(backend::AUTH_MORE_DATA);
        out.extend_from_slice(data);
    });
}

/// Writes OK. `agreed` are the capabilities of the receiver's connection.
pub fn ok(out: &mut Vec<u8>, sequence: u8, ok: &OkPacket<'_>, agreed: Capabilities) -> u8 {
    packet(out, sequence, |out| put_ok(out, backend::OK, ok, agreed))
}

/// Writes the OK that ends a result where there are no EOF packets.
pub fn ok_as_eof(out: &mut Vec<u8>, sequence: u8, ok: &OkPacket<'_>, agreed: Capabilities) -> u8 {
    packet(out, sequence, |out| put_ok(out, backend::EOF, ok, agreed))
}

fn put_ok(out: &mut Vec<u8>, header: u8, ok: &OkPacket<'_>, agreed: Capabilities) {
    let tracks = agreed.has(Capabilities::SESSION_TRACK) && !ok.session_state.is_empty();
    let status = ok.status.without(Status::SESSION_STATE_CHANGED);
    let status = match tracks {
        true => status.with(Status::SESSION_STATE_CHANGED),
        false => status,
    };
    out.push(header);
    put_lenenc(out, ok.affected_rows);
    put_lenenc(out, ok.last_insert_id);
    put_u16(out, status.0);
    put_u16(out, ok.warnings);
    // Documented without a length if there are no trackers; servers and clients have always used
    // one.
    if tracks || !ok.info.is_empty() {
        put_lenenc_bytes(out, ok.info);
    }
    if tracks {
        put_lenenc_bytes(out, ok.session_state);
    }
}

/// Writes EOF.
pub fn eof(out: &mut Vec<u8>, sequence: u8, eof: Eof) -> u8 {
    packet(out, sequence, |out| {
        out.push(backend::EOF);
        put_u16(out, eof.warnings);
        put_u16(out, eof.status.without(Status::SESSION_STATE_CHANGED).0);
    })
}

/// Writes ERR.
pub fn error(out: &mut Vec<u8>, sequence: u8, error: &ErrorText<'_>) -> u8 {
    packet(out, sequence, |out| {
        out.push(backend::ERROR);
        put_u16(out, error.code);
        out.push(b'#');
        out.extend_from_slice(&error.sqlstate.0);
        out.extend_from_slice(error.message);
    })
}

/// Writes the first packet of a result that has column definitions.
pub fn column_count(out: &mut Vec<u8>, sequence: u8, count: u64, agreed: Capabilities) -> u8 {
    packet(out, sequence, |out| {
        put_lenenc(out, count);
        if agreed.has(Capabilities::CACHE_METADATA) {
            out.push(1);
        }
    })
}

/// Writes the definition of a text column (VARCHAR, utf8mb4) that belongs to no table.
pub fn column(out: &mut Vec<u8>, sequence: u8, name: &[u8], agreed: Capabilities) -> u8 {
    packet(out, sequence, |out| {
        put_lenenc_bytes(out, b"def");
        put_lenenc_bytes(out, b"");
        put_lenenc_bytes(out, b"");
        put_lenenc_bytes(out, b"");
        put_lenenc_bytes(out, name);
        put_lenenc_bytes(out, name);
        if agreed.has(Capabilities::EXTENDED_METADATA) {
            put_lenenc_bytes(out, b"");
        }
        // Twelve bytes follow: collation, width, type, flags, decimals, filler.
        out.push(12);
        put_u16(out, 45);
        put_u32(out, 1024);
        out.push(253);
        put_u16(out, 0);
        out.extend_from_slice(&[31, 0, 0]);
    })
}

/// Writes a row of a text result; `None` is NULL.
pub fn text_row(out: &mut Vec<u8>, sequence: u8, values: &[Option<&[u8]>]) -> u8 {
    packet(out, sequence, |out| {
        for value in values {
            match value {
                Some(value) => put_lenenc_bytes(out, value),
                None => out.push(0xfb),
            }
        }
    })
}

/// Writes the end of a result's rows, or of its columns where EOFs are not deprecated.
pub fn result_end(out: &mut Vec<u8>, sequence: u8, status: Status, agreed: Capabilities) -> u8 {
    if !agreed.has(Capabilities::DEPRECATE_EOF) {
        let warnings = 0;
        return eof(out, sequence, Eof { warnings, status });
    }
    let ok = OkPacket {
        status,
        ..OkPacket::default()
    };
    ok_as_eof(out, sequence, &ok, agreed)
}

/// Writes the reply to COM_STMT_PREPARE; column definitions follow if the counts are not zero.
pub fn prepare_ok(out: &mut Vec<u8>, sequence: u8, ok: &PrepareOk) -> u8 {
    packet(out, sequence, |out| {
        out.push(backend::OK);
        put_u32(out, ok.statement.0);
        put_u16(out, ok.columns);
        put_u16(out, ok.parameters);
        out.push(0);
        put_u16(out, ok.warnings);
    })
}

/// Writes the request for a client's local file.
pub fn local_infile(out: &mut Vec<u8>, sequence: u8, name: &[u8]) -> u8 {
    packet(out, sequence, |out| {
        out.push(backend::LOCAL_INFILE);
        out.extend_from_slice(name);
    })
}
