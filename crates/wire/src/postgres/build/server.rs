//! Encodes server messages (§54.7, those marked (B)) for Evenkeel's own replies to clients.

use super::{message, put_count, put_text, put_u16, put_u32, put_value};
use crate::postgres::TransactionStatus;
use crate::postgres::backend::SqlState;
use crate::postgres::startup::Startup;

/// Text fields of an error or a notice that Evenkeel sends (§54.8).
#[derive(Debug, Clone, Copy)]
pub struct ErrorText<'a> {
    /// `ERROR`, `FATAL`, `WARNING`, `NOTICE`…
    pub severity: &'a str,
    /// SQLSTATE of the error.
    pub sqlstate: SqlState,
    /// Message that states what failed, in one line.
    pub message: &'a str,
    /// Further information; empty for none.
    pub detail: &'a str,
    /// Hint that states the remedy; empty for none.
    pub hint: &'a str,
}

/// Writes ErrorResponse.
pub fn error(out: &mut Vec<u8>, text: &ErrorText<'_>) {
    message(out, Some(b'E'), |out| put_report(out, text));
}

/// Writes NoticeResponse.
pub fn notice(out: &mut Vec<u8>, text: &ErrorText<'_>) {
    message(out, Some(b'N'), |out| put_report(out, text));
}

/// Writes AuthenticationOk.
pub fn authentication_ok(out: &mut Vec<u8>) {
    authentication(out, 0, &[]);
}

/// Writes AuthenticationCleartextPassword.
pub fn authentication_cleartext(out: &mut Vec<u8>) {
    authentication(out, 3, &[]);
}

/// Writes AuthenticationMD5Password.
pub fn authentication_md5(out: &mut Vec<u8>, salt: [u8; 4]) {
    authentication(out, 5, &salt);
}

/// Writes AuthenticationSASL with these mechanisms.
pub fn authentication_sasl(out: &mut Vec<u8>, mechanisms: &[&[u8]]) {
    message(out, Some(b'R'), |out| {
        put_u32(out, 10);
        for mechanism in mechanisms {
            put_text(out, mechanism);
        }
        out.push(0);
    });
}

/// Writes AuthenticationSASLContinue.
pub fn authentication_sasl_continue(out: &mut Vec<u8>, challenge: &[u8]) {
    authentication(out, 11, challenge);
}

/// Writes AuthenticationSASLFinal.
pub fn authentication_sasl_final(out: &mut Vec<u8>, outcome: &[u8]) {
    authentication(out, 12, outcome);
}

/// Writes BackendKeyData; 3.0 clients need a secret of four bytes.
pub fn backend_key_data(out: &mut Vec<u8>, process: u32, secret: &[u8]) {
    message(out, Some(b'K'), |out| {
        put_u32(out, process);
        out.extend_from_slice(secret);
    });
}

/// Writes NegotiateProtocolVersion if this startup needs one; call it once, before any other
/// message.
///
/// Returns the agreed minor version.
pub fn negotiate_protocol_version(out: &mut Vec<u8>, startup: &Startup<'_>, minor_max: u16) -> u16 {
    let minor = startup.agreed_minor(minor_max);
    if startup.must_negotiate(minor_max) {
        message(out, Some(b'v'), |out| {
            put_u16(out, 3);
            put_u16(out, minor);
            let options = startup.protocol_options().count();
            put_u32(out, u32::try_from(options).unwrap_or(0));
            for option in startup.protocol_options() {
                put_text(out, option);
            }
        });
    }
    minor
}

/// Writes ParameterStatus.
pub fn parameter_status(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    message(out, Some(b'S'), |out| {
        put_text(out, name);
        put_text(out, value);
    });
}

/// Writes ReadyForQuery.
pub fn ready_for_query(out: &mut Vec<u8>, status: TransactionStatus) {
    message(out, Some(b'Z'), |out| out.push(status.byte()));
}

/// Writes CommandComplete.
pub fn command_complete(out: &mut Vec<u8>, tag: &[u8]) {
    message(out, Some(b'C'), |out| put_text(out, tag));
}

/// Writes a message that is only its tag: ParseComplete `1`, BindComplete `2`, CloseComplete `3`,
/// NoData `n`, EmptyQueryResponse `I`, PortalSuspended `s`.
pub fn empty(out: &mut Vec<u8>, tag: u8) {
    message(out, Some(tag), |_| {});
}

/// Writes RowDescription of text columns (type OID 25).
pub fn row_description(out: &mut Vec<u8>, names: &[&[u8]]) {
    message(out, Some(b'T'), |out| {
        put_count(out, names.len());
        for name in names {
            put_text(out, name);
            put_u32(out, 0);
            put_u16(out, 0);
            put_u32(out, 25);
            put_u16(out, u16::MAX);
            put_u32(out, u32::MAX);
            put_u16(out, 0);
        }
    });
}

/// Writes DataRow.
pub fn data_row(out: &mut Vec<u8>, values: &[Option<&[u8]>]) {
    message(out, Some(b'D'), |out| {
        put_count(out, values.len());
        for value in values {
            put_value(out, *value);
        }
    });
}

fn authentication(out: &mut Vec<u8>, kind: u32, rest: &[u8]) {
    message(out, Some(b'R'), |out| {
        put_u32(out, kind);
        out.extend_from_slice(rest);
    });
}

fn put_report(out: &mut Vec<u8>, text: &ErrorText<'_>) {
    let mut field = |code: u8, value: &[u8]| {
        if !value.is_empty() {
            out.push(code);
            put_text(out, value);
        }
    };
    field(b'S', text.severity.as_bytes());
    field(b'V', text.severity.as_bytes());
    field(b'C', &text.sqlstate.0);
    field(b'M', text.message.as_bytes());
    field(b'D', text.detail.as_bytes());
    field(b'H', text.hint.as_bytes());
    out.push(0);
}
