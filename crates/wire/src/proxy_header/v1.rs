//! Version 1 of the PROXY header: one line of text, §2.1.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{AddressPair, Header, HeaderError, LINE_LENGTH_MAX, Outcome};

const GREETING: &[u8] = b"PROXY ";

/// The words that may follow the greeting.
const PROTOCOLS: [(&[u8], Protocol); 3] = [
    (b"TCP4", Protocol::Tcp4),
    (b"TCP6", Protocol::Tcp6),
    (b"UNKNOWN", Protocol::Unknown),
];

#[derive(Clone, Copy)]
enum Protocol {
    Tcp4,
    Tcp6,
    Unknown,
}

/// Parses a line that begins with `P`.
pub(super) fn parse(bytes: &[u8]) -> Outcome {
    let Some(rest) = after(bytes, GREETING, HeaderError::NotProxy)? else {
        return Ok(None);
    };
    let Some((protocol, rest)) = protocol(rest)? else {
        return Ok(None);
    };
    let Some((text, whole)) = line(bytes, rest)? else {
        return unfinished(protocol, rest);
    };
    let header = match protocol {
        Protocol::Unknown => Header::default(),
        Protocol::Tcp4 | Protocol::Tcp6 => addresses(protocol, text)?,
    };
    Ok(Some((header, whole)))
}

/// Returns the bytes after `word`; `None` while `bytes` is only the beginning of `word`.
fn after<'a>(
    bytes: &'a [u8],
    word: &[u8],
    fault: HeaderError,
) -> Result<Option<&'a [u8]>, HeaderError> {
    match bytes.strip_prefix(word) {
        Some(rest) => Ok(Some(rest)),
        None if word.starts_with(bytes) => Ok(None),
        None => Err(fault),
    }
}

/// Returns the protocol and the bytes after its word: a space or, after `UNKNOWN`, possibly the
/// line's end.
fn protocol(rest: &[u8]) -> Result<Option<(Protocol, &[u8])>, HeaderError> {
    for (word, protocol) in PROTOCOLS {
        if let Ok(rest) = after(rest, word, HeaderError::Protocol) {
            return match (rest.and_then(<[u8]>::first), protocol) {
                (None, _) => Ok(None),
                (Some(b' '), _) | (Some(b'\r'), Protocol::Unknown) => {
                    Ok(rest.map(|rest| (protocol, rest)))
                }
                (Some(b'\r' | b'\n'), _) => Err(HeaderError::LineEnd),
                (Some(_), _) => Err(HeaderError::Protocol),
            };
        }
    }
    Err(HeaderError::Protocol)
}

/// Returns the text before CR LF and the length of the whole line; `None` while there is no CR LF.
///
/// "The receiver must not tolerate a single CR or LF character to end the line."
fn line<'a>(bytes: &[u8], rest: &'a [u8]) -> Result<Option<(&'a [u8], usize)>, HeaderError> {
    let before = bytes.len().saturating_sub(rest.len());
    let end = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
    let length_min = before
        .saturating_add(end.unwrap_or(rest.len()))
        .saturating_add(2);
    let at = end.and_then(|end| rest.split_at_checked(end));
    match at {
        // "If the CRLF sequence is not found in the first 107 characters" the line is invalid. The
        // check is two bytes early, because those two are still to come.
        _ if length_min > LINE_LENGTH_MAX => Err(HeaderError::LineTooLong),
        None | Some((_, b"\r")) => Ok(None),
        Some((text, [b'\r', b'\n', ..])) => Ok(Some((text, length_min))),
        Some(_) => Err(HeaderError::LineEnd),
    }
}

/// Parses the two addresses and two ports, each after exactly one space.
fn addresses(protocol: Protocol, text: &[u8]) -> Result<Header, HeaderError> {
    let mut fields = text.split(|byte| *byte == b' ').skip(1);
    let mut next = |fault| fields.next().ok_or(fault);
    let source = address(protocol, next(HeaderError::Address)?)?;
    let destination = address(protocol, next(HeaderError::Address)?)?;
    let source_port = port(next(HeaderError::Port)?)?;
    let destination_port = port(next(HeaderError::Port)?)?;
    if fields.next().is_some() {
        return Err(HeaderError::LineEnd);
    }
    Ok(Header {
        source: Some(SocketAddr::new(source, source_port)),
        destination: Some(SocketAddr::new(destination, destination_port)),
    })
}

/// Parses one whole address.
///
/// The standard library's parser refuses the forms that §2.1 forbids (leading zeroes, missing
/// parts). It also accepts `::ffff:192.0.2.1`, which §2.1 does not name and which proxies on
/// dual-stack sockets send.
fn address(protocol: Protocol, field: &[u8]) -> Result<IpAddr, HeaderError> {
    let text = std::str::from_utf8(field).map_err(|_| HeaderError::Address)?;
    let address = match protocol {
        Protocol::Tcp4 => text.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
        Protocol::Tcp6 => text.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        Protocol::Unknown => None,
    };
    address.ok_or(HeaderError::Address)
}

/// Parses one whole port: "Heading zeroes are not permitted."
fn port(field: &[u8]) -> Result<u16, HeaderError> {
    let canonical = match field {
        [b'0'] => true,
        [b'0', ..] => false,
        digits => digits.iter().all(u8::is_ascii_digit),
    };
    let text = std::str::from_utf8(field).ok().filter(|_| canonical);
    text.and_then(|text| text.parse().ok())
        .ok_or(HeaderError::Port)
}

/// Distinguishes a line that can still become valid from one that cannot. Whole fields must be
/// valid; the last one, which `rest` may have truncated, must be the beginning of a valid field.
fn unfinished(protocol: Protocol, rest: &[u8]) -> Outcome {
    if matches!(protocol, Protocol::Unknown) {
        return Ok(None);
    }
    let (text, ended) = match rest.strip_suffix(b"\r") {
        Some(text) => (text, true),
        None => (rest, false),
    };
    let mut fields = text
        .split(|byte| *byte == b' ')
        .skip(1)
        .enumerate()
        .peekable();
    while let Some((index, field)) = fields.next() {
        let whole = ended || fields.peek().is_some();
        match index {
            0 | 1 if whole => address(protocol, field).map(drop)?,
            0 | 1 => address_begun(protocol, field)?,
            2 | 3 if whole => port(field).map(drop)?,
            2 | 3 => port_begun(field)?,
            _ => return Err(HeaderError::LineEnd),
        }
        if ended && fields.peek().is_none() && index < 3 {
            return Err(HeaderError::LineEnd);
        }
    }
    Ok(None)
}

/// Endings that complete any beginning of an address that can be completed.
const ENDINGS: [&[u8]; 9] = [
    b"", b"0", b":", b"::", b".0", b"0.0", b".0.0", b"0.0.0", b".0.0.0",
];

fn address_begun(protocol: Protocol, field: &[u8]) -> Result<(), HeaderError> {
    let completes = |ending: &[u8]| {
        let mut text = [0_u8; 64];
        let whole = text.get_mut(..field.len().saturating_add(ending.len()))?;
        let (head, tail) = whole.split_at_mut_checked(field.len())?;
        head.copy_from_slice(field);
        tail.copy_from_slice(ending);
        address(protocol, whole).ok()
    };
    if field.is_empty() || ENDINGS.iter().any(|ending| completes(ending).is_some()) {
        return Ok(());
    }
    Err(HeaderError::Address)
}

fn port_begun(field: &[u8]) -> Result<(), HeaderError> {
    if field.is_empty() {
        Ok(())
    } else {
        port(field).map(drop)
    }
}

/// Encodes the line; an IPv6 address always as groups, never with an IPv4 tail (§2.1 has no such
/// form).
pub(super) fn encode(pair: AddressPair) -> Vec<u8> {
    match pair {
        AddressPair::V4((from, from_port), (to, to_port)) => {
            format!("PROXY TCP4 {from} {to} {from_port} {to_port}\r\n")
        }
        AddressPair::V6((from, from_port), (to, to_port)) => {
            let (from, to) = (groups(from), groups(to));
            format!("PROXY TCP6 {from} {to} {from_port} {to_port}\r\n")
        }
    }
    .into_bytes()
}

fn groups(address: Ipv6Addr) -> String {
    match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low] => format!("::ffff:{high:x}:{low:x}"),
        _ => address.to_string(),
    }
}
