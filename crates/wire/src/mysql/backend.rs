//! What a server sends behind its greeting; rows and column definitions stay bytes.

use super::cursor::Cursor;
use super::flags::{Capabilities, Status};
use super::{PacketKind, ProtocolError, StatementId};

mod error_report;
mod rows;

pub use error_report::{ErrorReport, SqlState};
pub use rows::{texts, values};

/// The first byte of an OK.
pub const OK: u8 = 0x00;
/// The first byte of what a server adds during a login.
pub const AUTH_MORE_DATA: u8 = 0x01;
/// The first byte of the request for a client's file.
pub const LOCAL_INFILE: u8 = 0xfb;
/// The first byte of an EOF, of the OK that stands for it, and of the wish for another plugin.
pub const EOF: u8 = 0xfe;
/// The first byte of an error, or of MariaDB's report of progress.
pub const ERROR: u8 = 0xff;

/// An OK packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OkPacket<'a> {
    /// How many rows it changed, or found.
    pub affected_rows: u64,
    /// The first AUTO_INCREMENT value.
    pub last_insert_id: u64,
    /// The status.
    pub status: Status,
    /// How many warnings there are.
    pub warnings: u16,
    /// Words for people.
    pub info: &'a [u8],
    /// What [`Trackers`](super::trackers::Trackers) reads.
    pub session_state: &'a [u8],
    /// It is longer than we hold: its words and what it says of the session are unknown.
    pub is_cut: bool,
}

impl<'a> OkPacket<'a> {
    /// Reads an OK, whether it begins with 0 or, as the end of a result, with 0xfe. Capabilities
    /// are those that the connection has agreed on.
    ///
    /// # Errors
    /// It is built otherwise.
    pub fn read(payload: &'a [u8], capabilities: Capabilities) -> Result<Self, ProtocolError> {
        read_ok(Cursor(payload), capabilities).ok_or(ProtocolError::Malformed(PacketKind::Ok))
    }

    /// Reads the numbers of an OK that is too long to be held.
    ///
    /// # Errors
    /// It is built otherwise.
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
        status: Status(body.u16()?),
        warnings: body.u16()?,
        ..OkPacket::default()
    })
}

fn read_ok(mut body: Cursor<'_>, capabilities: Capabilities) -> Option<OkPacket<'_>> {
    let mut ok = read_numbers(&mut body)?;
    if body.is_empty() {
        return Some(ok);
    }
    // The documentation has it without a length where there are no trackers; servers have always
    // sent one.
    ok.info = body.lenenc_bytes()?;
    if !capabilities.has(Capabilities::SESSION_TRACK) {
        return Some(ok);
    }
    if ok.status.has(Status::SESSION_STATE_CHANGED) {
        ok.session_state = body.lenenc_bytes()?;
    }
    // MariaDB leaves bytes here in some versions; nothing is lost with them.
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
    /// Reads an EOF.
    ///
    /// # Errors
    /// It is built otherwise.
    pub fn read(payload: &[u8]) -> Result<Self, ProtocolError> {
        let mut body = Cursor(payload);
        let mut read = || {
            body.byte()?;
            let warnings = body.u16()?;
            let status = Status(body.u16()?);
            body.end(Eof { warnings, status })
        };
        read().ok_or(ProtocolError::Malformed(PacketKind::Eof))
    }
}

/// The first answer to COM_STMT_PREPARE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PrepareOk {
    /// The statement's number.
    pub statement: StatementId,
    /// How many columns its result has; 0: none, or only the execution tells.
    pub columns: u16,
    /// How many parameters it has.
    pub parameters: u16,
    /// How many warnings there are.
    pub warnings: u16,
}

impl PrepareOk {
    /// Reads it.
    ///
    /// # Errors
    /// It is built otherwise.
    pub fn read(payload: &[u8]) -> Result<Self, ProtocolError> {
        let mut body = Cursor(payload);
        let mut read = || {
            body.byte()?;
            let statement = StatementId(body.u32()?);
            let columns = body.u16()?;
            let parameters = body.u16()?;
            body.byte()?;
            let warnings = body.u16()?;
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

/// A step of a login, as the server asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Login<'a> {
    /// Logged in.
    Ok(OkPacket<'a>),
    /// Not.
    Error(ErrorReport<'a>),
    /// Prove it with another plugin.
    Switch {
        /// The plugin's name.
        plugin: &'a [u8],
        /// What the proof is to be made with.
        data: &'a [u8],
    },
    /// What the plugin has to say.
    More(&'a [u8]),
}

/// Reads a server's packet during a login or COM_CHANGE_USER.
///
/// # Errors
/// It is none that belongs there.
pub fn login(payload: &[u8], capabilities: Capabilities) -> Result<Login<'_>, ProtocolError> {
    let malformed = ProtocolError::Malformed(PacketKind::Login);
    match payload.split_first() {
        Some((&OK, _)) => OkPacket::read(payload, capabilities).map(Login::Ok),
        Some((&ERROR, _)) => ErrorReport::read(payload)
            .map(Login::Error)
            .ok_or(malformed),
        Some((&AUTH_MORE_DATA, data)) => Ok(Login::More(data)),
        // Without a name it means the plugin of before 4.1.
        Some((&EOF, [])) => Err(ProtocolError::TooOld),
        Some((&EOF, rest)) => {
            let mut body = Cursor(rest);
            let plugin = body.text().ok_or(malformed)?;
            let data = body.rest();
            Ok(Login::Switch { plugin, data })
        }
        // MariaDB puts the 1 only before what would look like something else.
        Some(_) => Ok(Login::More(payload)),
        None => Err(malformed),
    }
}

#[cfg(test)]
mod tests;
