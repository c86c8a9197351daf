//! Parses the server packets that follow the greeting; rows and column definitions stay bytes.

use super::cursor::Cursor;
use super::flags::{Capabilities, Status};
use super::{PacketKind, ProtocolError, StatementId};

mod error_report;
mod rows;

pub use error_report::{ErrorReport, SqlState};
pub use rows::{texts, values};

/// The first byte of an OK.
pub const OK: u8 = 0x00;
/// The first byte of AuthMoreData, additional data during a login.
pub const AUTH_MORE_DATA: u8 = 0x01;
/// The first byte of the request for a client's local file.
pub const LOCAL_INFILE: u8 = 0xfb;
/// The first byte of an EOF, of the OK that replaces it, and of AuthSwitchRequest.
pub const EOF: u8 = 0xfe;
/// The first byte of an error, or of MariaDB's progress report.
pub const ERROR: u8 = 0xff;

/// An OK packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OkPacket<'a> {
    /// How many rows were changed, or found.
    pub affected_rows: u64,
    /// The first AUTO_INCREMENT value.
    pub last_insert_id: u64,
    /// The status.
    pub status: Status,
    /// How many warnings there are.
    pub warnings: u16,
    /// Human-readable text.
    pub info: &'a [u8],
    /// Session state changes, parsed by [`Trackers`](super::trackers::Trackers).
    pub session_state: &'a [u8],
    /// True if the packet was too long to hold: its text and session state are unknown.
    pub is_cut: bool,
}

impl<'a> OkPacket<'a> {
    /// Parses an OK, whether it begins with 0 or, as the end of a result, with 0xfe. `capabilities`
    /// are those agreed on for the connection.
    ///
    /// # Errors
    ///
    /// Fails if the packet is malformed.
    pub fn read(payload: &'a [u8], capabilities: Capabilities) -> Result<Self, ProtocolError> {
        read_ok(Cursor(payload), capabilities).ok_or(ProtocolError::Malformed(PacketKind::Ok))
    }

    /// Parses the numbers of an OK that is too long to be held.
    ///
    /// # Errors
    ///
    /// Fails if the packet is malformed.
    pub fn read_beginning(payload: &'a [u8]) -> Result<Self, ProtocolError> {
        let ok =
            read_numbers(&mut Cursor(payload)).ok_or(ProtocolError::Malformed(PacketKind::Ok))?;
        Ok(OkPacket { is_cut: true, ..ok })
    }
}

fn read_numbers<'a>(body: &mut Cursor<'a>) -> Option<OkPacket<'a>> {
    body.byte()?;
    Some(OkPacket {
        affected_rows: body.lenenc()?,
        last_insert_id: body.lenenc()?,
        status: Status(body.le_u16()?),
        warnings: body.le_u16()?,
        ..OkPacket::default()
    })
}

fn read_ok(mut body: Cursor<'_>, capabilities: Capabilities) -> Option<OkPacket<'_>> {
    let mut ok = read_numbers(&mut body)?;
    if body.is_empty() {
        return Some(ok);
    }
    // Documented without a length if there are no trackers, but servers have always sent one.
    ok.info = body.lenenc_bytes()?;
    if !capabilities.has(Capabilities::SESSION_TRACK) {
        return Some(ok);
    }
    if ok.status.has(Status::SESSION_STATE_CHANGED) {
        ok.session_state = body.lenenc_bytes()?;
    }
    // Some versions of MariaDB append bytes here, which can be ignored.
    Some(ok)
}

/// An EOF packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Eof {
    /// How many warnings there are.
    pub warnings: u16,
    /// The status.
    pub status: Status,
}

impl Eof {
    /// Parses an EOF.
    ///
    /// # Errors
    ///
    /// Fails if the packet is malformed.
    pub fn read(payload: &[u8]) -> Result<Self, ProtocolError> {
        let mut body = Cursor(payload);
        let mut read = || {
            body.byte()?;
            let warnings = body.le_u16()?;
            let status = Status(body.le_u16()?);
            body.end(Eof { warnings, status })
        };
        read().ok_or(ProtocolError::Malformed(PacketKind::Eof))
    }
}

/// The first reply to COM_STMT_PREPARE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PrepareOk {
    /// Id of the statement.
    pub statement: StatementId,
    /// How many columns the result has. 0: none, or known only after execution.
    pub columns: u16,
    /// How many parameters the statement has.
    pub parameters: u16,
    /// How many warnings there are.
    pub warnings: u16,
}

impl PrepareOk {
    /// Parses the packet.
    ///
    /// # Errors
    ///
    /// Fails if the packet is malformed.
    pub fn read(payload: &[u8]) -> Result<Self, ProtocolError> {
        let mut body = Cursor(payload);
        let mut read = || {
            body.byte()?;
            let statement = StatementId(body.le_u32()?);
            let columns = body.le_u16()?;
            let parameters = body.le_u16()?;
            body.byte()?;
            let warnings = body.le_u16()?;
            Some(PrepareOk {
                statement,
                columns,
                parameters,
                warnings,
            })
        };
        read().ok_or(ProtocolError::Malformed(PacketKind::PrepareOk))
    }
}

/// Authentication packet of the server: one step of the login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Login<'a> {
    /// The login succeeded.
    Ok(OkPacket<'a>),
    /// The login failed.
    Error(ErrorReport<'a>),
    /// Request to authenticate with another plugin.
    Switch {
        /// Name of the plugin.
        plugin: &'a [u8],
        /// Data for the proof, usually a nonce.
        data: &'a [u8],
    },
    /// Additional data of the plugin.
    More(&'a [u8]),
}

/// Parses a server's packet during a login or COM_CHANGE_USER.
///
/// # Errors
///
/// Fails for a packet that does not belong to a login.
pub fn login(payload: &[u8], capabilities: Capabilities) -> Result<Login<'_>, ProtocolError> {
    let malformed = ProtocolError::Malformed(PacketKind::Login);
    match payload.split_first() {
        Some((&OK, _)) => OkPacket::read(payload, capabilities).map(Login::Ok),
        Some((&ERROR, _)) => ErrorReport::read(payload)
            .map(Login::Error)
            .ok_or(malformed),
        Some((&AUTH_MORE_DATA, data)) => Ok(Login::More(data)),
        // Without a name, the packet requests the authentication method of servers before 4.1.
        Some((&EOF, [])) => Err(ProtocolError::TooOld),
        Some((&EOF, rest)) => {
            let mut body = Cursor(rest);
            let plugin = body.text().ok_or(malformed)?;
            let data = body.rest();
            Ok(Login::Switch { plugin, data })
        }
        // MariaDB prefixes the 1 only to data that would be ambiguous.
        Some(_) => Ok(Login::More(payload)),
        None => Err(malformed),
    }
}

#[cfg(test)]
mod tests;
