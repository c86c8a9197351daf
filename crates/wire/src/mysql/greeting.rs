//! Parses the server's first packet ("HandshakeV10"), or the error that it sends instead.

use super::backend::ErrorReport;
use super::cursor::Cursor;
use super::flags::{Capabilities, Status};
use super::{PacketKind, ProtocolError};

/// First packet of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum First<'a> {
    /// A greeting.
    Greeting(Greeting<'a>),
    /// Refusal of the connection: too many connections (1040), this host is blocked (1129) or not
    /// allowed (1130).
    Error(ErrorReport<'a>),
}

/// A server's greeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Greeting<'a> {
    /// The version, which MariaDB up to 10.11 begins with `5.5.5-`.
    pub version: &'a [u8],
    /// Connection id, as in KILL and CONNECTION_ID().
    pub connection: u32,
    /// Capabilities of the server.
    pub capabilities: Capabilities,
    /// Number of a collation.
    pub collation: u8,
    /// Initial status.
    pub status: Status,
    /// Random bytes for the proof of the password.
    pub nonce: Nonce<'a>,
    /// Initial authentication plugin of the server.
    pub plugin: &'a [u8],
}

/// Random bytes of a greeting, which are in two fields of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nonce<'a> {
    /// The first eight bytes.
    pub first: [u8; 8],
    /// The other bytes, usually twelve.
    pub second: &'a [u8],
}

impl Nonce<'_> {
    /// Returns the 20 bytes for native and SHA-2 logins; `None` if the nonce has another length.
    #[must_use]
    pub fn whole(self) -> Option<[u8; 20]> {
        let mut whole = [0; 20];
        let (first, second) = whole.split_at_mut(8);
        first.copy_from_slice(&self.first);
        (self.second.len() == second.len()).then(|| second.copy_from_slice(self.second))?;
        Some(whole)
    }
}

/// Parses a server's first packet.
///
/// # Errors
///
/// Fails if the packet is neither a greeting of protocol 10 nor an error.
pub fn first(payload: &[u8]) -> Result<First<'_>, ProtocolError> {
    match payload.first() {
        Some(0xff) => ErrorReport::read(payload).map(First::Error),
        Some(10) => read(Cursor(payload)).map(First::Greeting),
        Some(9) => return Err(ProtocolError::TooOld),
        _ => None,
    }
    .ok_or(ProtocolError::Malformed(PacketKind::Greeting))
}

fn read(mut body: Cursor<'_>) -> Option<Greeting<'_>> {
    body.byte()?;
    let version = body.text()?;
    let connection = body.le_u32()?;
    let first = body.array::<8>()?;
    body.byte()?;
    let lower = body.le_u16()?;
    let collation = body.byte()?;
    let status = Status(body.le_u16()?);
    let upper = body.le_u16()?;
    let nonce_length = body.byte()?;
    body.bytes(6)?;
    let extended = body.le_u32()?;
    let common = u32::from(lower) | u32::from(upper) << 16;
    // The second part has 13 bytes at least, the last of which ends the string.
    let second_length = usize::from(nonce_length).saturating_sub(8).max(13);
    let second = body.bytes(second_length)?;
    let second = second.strip_suffix(&[0]).unwrap_or(second);
    let capabilities = Capabilities::of(common, extended);
    let plugin = match capabilities.has(Capabilities::PLUGIN_AUTH) {
        true => body.text_or_rest(),
        false => b"mysql_native_password",
    };
    Some(Greeting {
        version,
        connection,
        capabilities,
        collation,
        status,
        nonce: Nonce { first, second },
        plugin,
    })
}
