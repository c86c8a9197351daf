//! Parses a client's first packet: SSLRequest or a login ("HandshakeResponse41").

use super::cursor::Cursor;
use super::flags::Capabilities;
use super::{PacketKind, ProtocolError};

/// Length of an SSLRequest in bytes: the beginning of a handshake response without the rest.
pub const SSL_REQUEST_LENGTH: usize = 32;

/// First packet of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum First<'a> {
    /// Request for a TLS handshake, which follows immediately. Unencrypted bytes after this packet
    /// are an attack or a fault and end the connection.
    SslRequest(SslRequest),
    /// A login.
    Response(Response<'a>),
}

/// Fields that precede TLS. The client sends them again within TLS, and only those are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SslRequest {
    /// Capabilities of the client.
    pub capabilities: Capabilities,
    /// Maximum packet length that the client accepts, in bytes.
    pub packet_length_max: u32,
    /// Number of a collation.
    pub collation: u8,
}

/// A handshake response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response<'a> {
    /// Capabilities of the client. Those that the server did not offer are ignored.
    pub capabilities: Capabilities,
    /// Maximum packet length that the client accepts, in bytes.
    pub packet_length_max: u32,
    /// Number of a collation.
    pub collation: u8,
    /// Claimed user.
    pub user: &'a [u8],
    /// Proof of the password, made for `plugin`.
    pub proof: &'a [u8],
    /// Initial schema.
    pub schema: Option<&'a [u8]>,
    /// Plugin that made the proof; servers without plugins use the native one.
    pub plugin: Option<&'a [u8]>,
    /// Connection attributes of the client.
    pub attributes: Attributes<'a>,
    /// Level of zstd compression, if the client supports it.
    pub zstd_level: Option<u8>,
}

/// Connection attributes of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attributes<'a>(pub(crate) &'a [u8]);

impl<'a> Attributes<'a> {
    /// Returns attributes from alternating names and values, each preceded by its length.
    #[must_use]
    pub fn of(bytes: &'a [u8]) -> Self {
        Attributes(bytes)
    }

    /// Returns the pairs in order, up to the first malformed one.
    pub fn pairs(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let mut rest = Cursor(self.0);
        std::iter::from_fn(move || Some((rest.lenenc_bytes()?, rest.lenenc_bytes()?)))
    }

    /// Returns the bytes as sent, without the length that precedes them.
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }
}

/// Parses a client's first packet, or the one that follows within TLS.
///
/// # Errors
///
/// Fails if the packet is malformed, or of a protocol before 4.1.
pub fn first(payload: &[u8]) -> Result<First<'_>, ProtocolError> {
    let malformed = ProtocolError::Malformed(PacketKind::HandshakeResponse);
    let mut body = Cursor(payload);
    let common = u32::from(body.le_u16().ok_or(malformed)?);
    if common & Capabilities::PROTOCOL_41.common() == 0 {
        return Err(ProtocolError::TooOld);
    }
    read(payload).ok_or(malformed)
}

/// Marks a handshake response as one within TLS, and returns the SSLRequest that precedes it.
/// Returns `None` if the payload is too short for a response.
pub fn announce_tls(response: &mut [u8]) -> Option<[u8; SSL_REQUEST_LENGTH]> {
    let beginning: &mut [u8; SSL_REQUEST_LENGTH] = response.first_chunk_mut()?;
    let [a, b, ..] = beginning;
    let [low, high, ..] = Capabilities::SSL.common().to_le_bytes();
    *a |= low;
    *b |= high;
    Some(*beginning)
}

fn read(payload: &[u8]) -> Option<First<'_>> {
    let mut body = Cursor(payload);
    let common = body.le_u32()?;
    let packet_length_max = body.le_u32()?;
    let collation = body.byte()?;
    body.bytes(19)?;
    let capabilities = Capabilities::of(common, body.le_u32()?);
    if body.is_empty() {
        return capabilities
            .has(Capabilities::SSL)
            .then_some(First::SslRequest(SslRequest {
                capabilities,
                packet_length_max,
                collation,
            }));
    }
    let user = body.text()?;
    let proof = read_proof(&mut body, capabilities)?;
    let with_schema = capabilities.has(Capabilities::CONNECT_WITH_DB);
    let schema = with_schema.then(|| body.text_or_rest());
    let with_plugin = capabilities.has(Capabilities::PLUGIN_AUTH);
    let plugin = with_plugin.then(|| body.text_or_rest());
    let attributes = read_attributes(&mut body, capabilities)?;
    let with_level = capabilities.has(Capabilities::ZSTD);
    let zstd_level = if with_level { body.byte() } else { None };
    Some(First::Response(Response {
        capabilities,
        packet_length_max,
        collation,
        user,
        proof,
        schema: schema.filter(|name| !name.is_empty()),
        plugin: plugin.filter(|name| !name.is_empty()),
        attributes,
        zstd_level,
    }))
}

fn read_proof<'a>(body: &mut Cursor<'a>, capabilities: Capabilities) -> Option<&'a [u8]> {
    if capabilities.has(Capabilities::PLUGIN_AUTH_LENENC) {
        body.lenenc_bytes()
    } else if capabilities.has(Capabilities::SECURE_CONNECTION) {
        body.short_bytes()
    } else {
        Some(body.text_or_rest())
    }
}

pub(super) fn read_attributes<'a>(
    body: &mut Cursor<'a>,
    capabilities: Capabilities,
) -> Option<Attributes<'a>> {
    if !capabilities.has(Capabilities::CONNECT_ATTRS) || body.is_empty() {
        return Some(Attributes::default());
    }
    let attributes = Attributes(body.lenenc_bytes()?);
    let mut inside = Cursor(attributes.0);
    while !inside.is_empty() {
        inside.lenenc_bytes()?;
        inside.lenenc_bytes()?;
    }
    Some(attributes)
}
