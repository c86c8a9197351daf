//! Version 2 of the PROXY header: 16 fixed bytes, addresses, and optional TLVs, §2.2.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use super::{AddressPair, BLOCK_LENGTH_MAX, Header, HeaderError, Outcome, crc32c};

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// "When a sender presents a LOCAL connection, it should not present any address."
pub(super) const LOCAL: &[u8; 16] = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";

/// Length of the fixed part: signature, version and command, family and transport, length of the
/// rest.
const FIXED_LENGTH: usize = 16;

const VERSION_2: u8 = 0x20;
const COMMAND_LOCAL: u8 = 0x0;
const COMMAND_PROXY: u8 = 0x1;
const TCP_OVER_IPV4: u8 = 0x11;
const TCP_OVER_IPV6: u8 = 0x21;
const IPV4_LENGTH: u16 = 12;
const IPV6_LENGTH: u16 = 36;
const UNIX_LENGTH: u16 = 216;

/// Type of the TLV that holds the header's checksum (§2.2.3).
const TYPE_CRC32C: u8 = 0x03;

/// Length of a TLV's type (one byte) and length field (two).
const TLV_HEAD_LENGTH: usize = 3;

/// Parses a header that does not begin with `P`.
pub(super) fn parse(bytes: &[u8]) -> Outcome {
    let (signature, fixed) = bytes
        .split_at_checked(SIGNATURE.len())
        .unwrap_or((bytes, &[]));
    if !SIGNATURE.starts_with(signature) {
        return Err(HeaderError::NotProxy);
    }
    let &[version_and_command, ref family @ ..] = fixed else {
        return Ok(None);
    };
    let command = command(version_and_command)?;
    let &[family, ref length @ ..] = family else {
        return Ok(None);
    };
    check_family(command, family)?;
    let &[high, low, ref rest @ ..] = length else {
        return Ok(None);
    };
    let length = u16::from_be_bytes([high, low]);
    let addresses_length = addresses_length(command, family, length)?;
    let block = rest.get(..usize::from(length));
    let after_checksum = match addresses_length {
        Some(skip) => {
            let tlvs = block.unwrap_or(rest).get(skip..).unwrap_or_default();
            check_tlvs(tlvs, usize::from(length).saturating_sub(skip))?
        }
        None => None,
    };
    let Some(block) = block else {
        return Ok(None);
    };
    let consumed = FIXED_LENGTH.saturating_add(block.len());
    if let (Some(after_checksum), Some(whole)) = (after_checksum, bytes.get(..consumed)) {
        check_checksum(whole, after_checksum)?;
    }
    let addresses = if command == COMMAND_PROXY {
        header(family, block)
    } else {
        None
    };
    Ok(Some((addresses.unwrap_or_default(), consumed)))
}

fn command(version_and_command: u8) -> Result<u8, HeaderError> {
    let (version, command) = (version_and_command >> 4, version_and_command & 0x0f);
    match (version_and_command & 0xf0, command) {
        (VERSION_2, COMMAND_LOCAL | COMMAND_PROXY) => Ok(command),
        (VERSION_2, _) => Err(HeaderError::Command(command)),
        _ => Err(HeaderError::Version(version)),
    }
}

/// Rejects unspecified families: "Other values are unspecified and must be rejected". With `LOCAL`
/// the family "is ignored".
fn check_family(command: u8, family: u8) -> Result<(), HeaderError> {
    if command == COMMAND_PROXY && (family >> 4 > 3 || family & 0x0f > 2) {
        return Err(HeaderError::Family(family));
    }
    Ok(())
}

/// Returns the length of the addresses in the block. `None` means that the block is skipped unread
/// (`LOCAL`, or an unspecified family or transport).
fn addresses_length(command: u8, family: u8, length: u16) -> Result<Option<usize>, HeaderError> {
    if usize::from(length) > BLOCK_LENGTH_MAX {
        return Err(HeaderError::BlockTooLong(length));
    }
    let needed = match (command, family >> 4, family & 0x0f) {
        (COMMAND_LOCAL, _, _) | (_, 0, _) | (_, _, 0) => return Ok(None),
        (_, 1, _) => IPV4_LENGTH,
        (_, 2, _) => IPV6_LENGTH,
        _ => UNIX_LENGTH,
    };
    if length < needed {
        return Err(HeaderError::BlockTooShort(length));
    }
    Ok(Some(usize::from(needed)))
}

/// Checks the TLVs that have arrived: they must fill the block to its last byte.
///
/// Returns how many bytes of the block follow the checksum's value, if there is a checksum.
fn check_tlvs(arrived: &[u8], length: usize) -> Result<Option<usize>, HeaderError> {
    let (mut arrived, mut left) = (arrived, length);
    let mut after_checksum = None;
    while left > 0 {
        left = left.checked_sub(TLV_HEAD_LENGTH).ok_or(HeaderError::Tlv)?;
        let &[kind, high, low, ref value @ ..] = arrived else {
            break;
        };
        let value_length = usize::from(u16::from_be_bytes([high, low]));
        left = left.checked_sub(value_length).ok_or(HeaderError::Tlv)?;
        if kind == TYPE_CRC32C {
            if value_length != 4 || after_checksum.is_some() {
                return Err(HeaderError::Tlv);
            }
            after_checksum = Some(left);
        }
        arrived = value.get(value_length..).unwrap_or_default();
    }
    Ok(after_checksum)
}

/// Verifies the checksum, which is calculated with four zeroes in its own position. §2.2.3: "verify
/// that the calculated CRC32c checksum is the same as the received".
fn check_checksum(header: &[u8], after_checksum: usize) -> Result<(), HeaderError> {
    let at = header.len().saturating_sub(after_checksum);
    let (before, after) = header.split_at_checked(at).ok_or(HeaderError::Tlv)?;
    let (before, sent) = before.split_last_chunk::<4>().ok_or(HeaderError::Tlv)?;
    if crc32c::of(&[before, &[0; 4], after]) == u32::from_be_bytes(*sent) {
        Ok(())
    } else {
        Err(HeaderError::Checksum)
    }
}

/// Parses the addresses of the two families that TCP has; for UDP and Unix sockets a receiver
/// "falls back to the UNSPEC mode".
fn header(family: u8, block: &[u8]) -> Option<Header> {
    let (source, destination) = match family {
        TCP_OVER_IPV4 => {
            let (source, rest) = block.split_first_chunk::<4>()?;
            let (destination, rest) = rest.split_first_chunk::<4>()?;
            let (source_port, destination_port) = ports(rest)?;
            (
                SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::from(*source), source_port)),
                SocketAddr::V4(SocketAddrV4::new(
                    Ipv4Addr::from(*destination),
                    destination_port,
                )),
            )
        }
        TCP_OVER_IPV6 => {
            let (source, rest) = block.split_first_chunk::<16>()?;
            let (destination, rest) = rest.split_first_chunk::<16>()?;
            let (source_port, destination_port) = ports(rest)?;
            let address = |ip: &[u8; 16], port| {
                SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::from(*ip), port, 0, 0))
            };
            (
                address(source, source_port),
                address(destination, destination_port),
            )
        }
        _ => return None,
    };
    Some(Header {
        source: Some(source),
        destination: Some(destination),
    })
}

fn ports(bytes: &[u8]) -> Option<(u16, u16)> {
    let &[a, b, c, d, ..] = bytes else {
        return None;
    };
    Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
}

/// Encodes the header, without TLVs.
pub(super) fn encode(pair: AddressPair) -> Vec<u8> {
    let mut header = Vec::with_capacity(FIXED_LENGTH.saturating_add(usize::from(IPV6_LENGTH)));
    header.extend_from_slice(SIGNATURE);
    header.push(VERSION_2 | COMMAND_PROXY);
    let (from_port, to_port) = match pair {
        AddressPair::V4((from, from_port), (to, to_port)) => {
            header.push(TCP_OVER_IPV4);
            header.extend_from_slice(&IPV4_LENGTH.to_be_bytes());
            header.extend_from_slice(&from.octets());
            header.extend_from_slice(&to.octets());
            (from_port, to_port)
        }
        AddressPair::V6((from, from_port), (to, to_port)) => {
            header.push(TCP_OVER_IPV6);
            header.extend_from_slice(&IPV6_LENGTH.to_be_bytes());
            header.extend_from_slice(&from.octets());
            header.extend_from_slice(&to.octets());
            (from_port, to_port)
        }
    };
    header.extend_from_slice(&from_port.to_be_bytes());
    header.extend_from_slice(&to_port.to_be_bytes());
    header
}
