//! The PROXY protocol, versions 1 and 2: who a forwarded connection really comes from.

use std::net::SocketAddr;

/// What the bytes received so far are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed {
    /// A whole header, and how many bytes it took; what follows belongs to the connection.
    Frame(Header, usize),
    /// A correct beginning; read more and parse again from the start.
    Incomplete,
    /// No further byte can make this a header.
    Invalid(Fault),
}

/// The two ends of the original connection, as the peer tells them.
///
/// `None` (v1 `UNKNOWN`, v2 `LOCAL`, unspecified and Unix families) means: use the socket's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Header {
    /// The client's address.
    pub source: Option<SocketAddr>,
    /// The address the client connected to.
    pub destination: Option<SocketAddr>,
}

/// Why bytes are not a PROXY header; always the peer's fault, and final.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Neither `PROXY ` nor the binary signature: the peer speaks something else.
    NotProxy,
}

/// Reads the header at the beginning of `bytes`.
#[must_use]
pub fn parse(_bytes: &[u8]) -> Parsed {
    Parsed::Incomplete
}

/// The longest header [`parse`] accepts, in bytes: a buffer of this size is always enough.
pub const LENGTH_MAX: usize = 16 + 4096;

/// A version 1 header (text); families that differ are both written as IPv6.
#[must_use]
pub fn encode_v1(_source: SocketAddr, _destination: SocketAddr) -> Vec<u8> {
    Vec::new()
}

/// A version 2 header (binary); families that differ are both written as IPv6.
#[must_use]
pub fn encode_v2(_source: SocketAddr, _destination: SocketAddr) -> Vec<u8> {
    Vec::new()
}

/// The version 1 header that tells no addresses, for a client without an IP address.
#[must_use]
pub fn encode_v1_unknown() -> &'static [u8] {
    b"PROXY UNKNOWN\r\n"
}

/// The version 2 header that tells no addresses, for connections of our own (health checks).
#[must_use]
pub fn encode_v2_local() -> &'static [u8] {
    b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"
}
