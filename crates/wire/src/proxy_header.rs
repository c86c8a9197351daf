//! The PROXY protocol, versions 1 and 2: the original addresses of a forwarded connection.
//!
//! Section numbers are those of the HAProxy project's "The PROXY protocol, Versions 1 & 2" (edition
//! 2020/03/05). The parser keeps no state: pass it all bytes received so far, from the first one,
//! until it returns another result than [`Parsed::Incomplete`].

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

mod crc32c;
mod v1;
mod v2;

#[cfg(test)]
mod tests;

/// The longest header that [`parse`] accepts, in bytes: a buffer of this size is always enough.
pub const LENGTH_MAX: usize = 16 + BLOCK_LENGTH_MAX;

/// The longest text line, §2.1: "the worst case" is an `UNKNOWN` line of 107 characters.
pub const LINE_LENGTH_MAX: usize = 107;

/// The most bytes that a binary header may announce after its first 16.
///
/// The format allows 65,535. Addresses take 216 at most, and senders add some hundred bytes of TLVs
/// (names from certificates are the longest). The limit bounds the memory that an unauthenticated
/// peer can use.
pub const BLOCK_LENGTH_MAX: usize = 4096;

/// Version of the protocol, of a header to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProxyVersion {
    /// One line of text.
    V1,
    /// Binary.
    V2,
}

/// Result of parsing the bytes received so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed {
    /// A whole header, and how many bytes it took; the bytes after it belong to the connection.
    Frame(Header, usize),
    /// The beginning of a valid header; read more and parse again from the start.
    Incomplete,
    /// Invalid bytes: no further byte can make a valid header of them.
    Invalid(HeaderError),
}

/// The two addresses of the original connection, as the peer sent them.
///
/// `None` (v1 `UNKNOWN`; v2 `LOCAL`, or a family or transport other than TCP over IP) means: use
/// the socket's own addresses. Addresses are kept as they were sent: an IPv4 address that a peer
/// wrote as `::ffff:192.0.2.1` stays an IPv6 address here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Header {
    /// The client's address.
    pub source: Option<SocketAddr>,
    /// The address the client connected to.
    pub destination: Option<SocketAddr>,
}

/// Violation of the PROXY protocol; always an error of the peer, and final.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeaderError {
    /// Neither `PROXY ` nor the binary signature: the peer uses another protocol.
    NotProxy,
    /// v1: the word after `PROXY ` is not `TCP4`, `TCP6` or `UNKNOWN`.
    Protocol,
    /// v1: an address is not in the canonical form of its family.
    Address,
    /// v1: a port is not a canonical decimal number from 0 to 65535.
    Port,
    /// v1: the line does not end with CR LF, or ends too early.
    LineEnd,
    /// v1: no CR LF within [`LINE_LENGTH_MAX`] bytes.
    LineTooLong,
    /// v2: the version is not 2.
    Version(u8),
    /// v2: the command is neither `LOCAL` (0) nor `PROXY` (1).
    Command(u8),
    /// v2: an address family over 3 or a transport over 2 (the byte as sent).
    Family(u8),
    /// v2: the announced length is over [`BLOCK_LENGTH_MAX`].
    BlockTooLong(u16),
    /// v2: the announced length is too small for the addresses of its family.
    BlockTooShort(u16),
    /// v2: the TLVs do not fill the block exactly, or a checksum is not four bytes long or not the
    /// only one.
    Tlv,
    /// v2: the CRC32c in the header does not match the bytes.
    Checksum,
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HeaderError::NotProxy => {
                f.write_str("missing, the peer does not use the PROXY protocol")
            }
            HeaderError::Protocol => f.write_str("expected TCP4, TCP6 or UNKNOWN"),
            HeaderError::Address => f.write_str("malformed address"),
            HeaderError::Port => f.write_str("malformed port"),
            HeaderError::LineEnd => f.write_str("missing CR LF"),
            HeaderError::LineTooLong => write!(f, "line longer than {LINE_LENGTH_MAX} bytes"),
            HeaderError::Version(version) => write!(f, "unknown version {version}"),
            HeaderError::Command(command) => write!(f, "unknown command {command}"),
            HeaderError::Family(byte) => write!(f, "unknown address family {byte:#04x}"),
            HeaderError::BlockTooLong(length) => {
                write!(
                    f,
                    "announced length {length} exceeds {BLOCK_LENGTH_MAX} bytes"
                )
            }
            HeaderError::BlockTooShort(length) => {
                write!(
                    f,
                    "announced length {length} is too short for its addresses"
                )
            }
            HeaderError::Tlv => f.write_str("malformed TLVs"),
            HeaderError::Checksum => f.write_str("wrong CRC32c checksum"),
        }
    }
}

impl std::error::Error for HeaderError {}

/// Parses the header at the beginning of `bytes`.
///
/// §2: a "receiver MUST NOT start processing the connection before it receives a complete and
/// valid" header, and must not guess whether there is one. Call this only for peers that are
/// configured to send it.
#[must_use]
pub fn parse(bytes: &[u8]) -> Parsed {
    let parsed = match bytes.first() {
        None => return Parsed::Incomplete,
        Some(b'P') => v1::parse(bytes),
        Some(_) => v2::parse(bytes),
    };
    match parsed {
        Ok(Some((header, consumed))) => Parsed::Frame(header, consumed),
        Ok(None) => Parsed::Incomplete,
        Err(fault) => Parsed::Invalid(fault),
    }
}

/// Encodes a version 1 header (text); if the families differ, both addresses are written as IPv6.
#[must_use]
pub fn encode_v1(source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    v1::encode(AddressPair::of(source, destination))
}

/// Encodes a version 2 header (binary); if the families differ, both addresses are written as IPv6.
#[must_use]
pub fn encode_v2(source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    v2::encode(AddressPair::of(source, destination))
}

/// Returns the version 1 header without addresses, for a client that has no IP address.
#[must_use]
pub fn encode_v1_unknown() -> &'static [u8] {
    b"PROXY UNKNOWN\r\n"
}

/// Returns the version 2 header without addresses, for Evenkeel's own connections (health checks).
#[must_use]
pub fn encode_v2_local() -> &'static [u8] {
    v2::LOCAL
}

/// Two addresses of the same family: neither format can carry mixed families.
enum AddressPair {
    V4((Ipv4Addr, u16), (Ipv4Addr, u16)),
    V6((Ipv6Addr, u16), (Ipv6Addr, u16)),
}

impl AddressPair {
    fn of(source: SocketAddr, destination: SocketAddr) -> Self {
        match (source.ip(), destination.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                AddressPair::V4((from, source.port()), (to, destination.port()))
            }
            (from, to) => AddressPair::V6(
                (mapped(from), source.port()),
                (mapped(to), destination.port()),
            ),
        }
    }
}

fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// Result of the parsers of both formats: a header, `None` for incomplete, or an error.
type Outcome = Result<Option<(Header, usize)>, HeaderError>;
