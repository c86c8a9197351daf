//! Parses a client's first packet: SSLRequest or a login ("HandshakeResponse41").

use super::cursor::Cursor;
use super::flags::Capabilities;
use super::{PacketKind, ProtocolError};

/// How long an SSLRequest is: the beginning of a handshake response, and nothing more.
pub const SSL_REQUEST_LENGTH: usize = 32;

/// First packet of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum First<'a> {
    /// A TLS handshake follows at once. Bytes that the client sent in the clear behind this packet
    /// are an attack or a fault and end the connection.
    SslRequest(SslRequest),
    /// A login.
    Response(Response<'a>),
}

/// The fields that come before TLS; they are sent again within it, and those count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SslRequest {
    /// What the client can do.
    pub capabilities: Capabilities,
    /// The longest packet that it takes.
    pub packet_length_max: u32,
    /// The number of a collation.
    pub collation: u8,
}

/// A handshake response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response<'a> {
    /// What the client can do; what the server did not offer does not count.
    pub capabilities: Capabilities,
    /// The longest packet that it takes.
    pub packet_length_max: u32,
    /// The number of a collation.
    pub collation: u8,
    /// Claimed user.
    pub user: &'a [u8],
    /// The proof of its password, made for `plugin`.
    pub proof: &'a [u8],
    /// The schema to begin in.
    pub schema: Option<&'a [u8]>,
    /// The plugin that the proof was made with; servers without plugins mean the native one.
    pub plugin: Option<&'a [u8]>,
    /// What the client says about itself.
    pub attributes: Attributes<'a>,
    /// The level of zstd compression, if the client can do that.
    pub zstd_level: Option<u8>,
}

/// Connection attributes of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attributes<'a>(pub(crate) &'a [u8]);

impl<'a> Attributes<'a> {
    /// Names and values by turns, each behind its length.
    #[must_use]
    pub fn of(bytes: &'a [u8]) -> Self {
        Attributes(bytes)
    }

    /// Returns the pairs in order, up to the first malformed one.
    pub fn pairs(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let mut rest = Cursor(self.0);
        std::iter::from_fn(move || Some((rest.lenenc_bytes()?, rest.lenenc_bytes()?)))
    }

    /// The bytes, as they are sent behind their length.
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
    let common = u32::from(body.u16().ok_or(malformed)?);
    if common & Capabilities::PROTOCOL_41.common() == 0 {
        return Err(ProtocolError::TooOld);
    }
    read(payload).ok_or(malformed)
}

fn read(payload: &[u8]) -> Option<First<'_>> {
    let mut body = Cursor(payload);
    let common = body.u32()?;
    let packet_length_max = body.u32()?;
    let collation = body.byte()?;
    body.bytes(19)?;
    let capabilities = Capabilities::of(common, body.u32()?);
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
