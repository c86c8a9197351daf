//! Reads the server name that a TLS client asks for from its first message, the ClientHello (RFC
//! 8446 §4.1.2, RFC 6066 §3).
//!
//! The parser keeps no state: pass it all bytes received so far, from the first one, until it
//! returns another result than [`Parsed::Incomplete`]. It reads what routing needs, and leaves
//! versions, suites and all other extensions to the server.

use std::borrow::Cow;
use std::fmt;

#[cfg(test)]
mod tests;

/// The longest message that [`parse`] reads, with the headers of its records, in bytes. Browsers
/// send 2 kB at most.
pub const LENGTH_MAX: usize = 16 * 1024;

/// First byte of a record with a handshake message (RFC 8446 §5.1).
pub const HANDSHAKE_RECORD: u8 = 22;

/// Length of a record's header: type, version, length.
const RECORD_HEADER: usize = 5;

/// Type of a ClientHello among handshake messages.
const CLIENT_HELLO: u8 = 1;

/// Number of the extension `server_name`.
const SERVER_NAME: u16 = 0;

/// Number of the extension `application_layer_protocol_negotiation` (RFC 7301 §3.1).
const ALPN: u16 = 16;

/// Type of a DNS name in that extension.
const HOST_NAME: u8 = 0;

/// Result of parsing the bytes received so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed {
    /// A whole ClientHello.
    Hello {
        /// The server name, in lower case and without a dot at its end. `None`: the client sends
        /// none, or one that is not a DNS name.
        server_name: Option<Box<str>>,
    },
    /// The beginning of a possible ClientHello; read more and parse again from the start.
    Incomplete,
    /// Invalid bytes: no further byte can make a ClientHello of them.
    Invalid(HelloError),
}

/// Reason why bytes are no ClientHello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HelloError {
    /// The first byte is not that of a TLS handshake.
    NotTls,
    /// A record is not one of a handshake, or is empty.
    Record,
    /// The first message is another one.
    Message,
    /// The message exceeds [`LENGTH_MAX`].
    TooLong,
    /// Lengths in the message contradict each other, or the server name occurs twice.
    Malformed,
}

impl fmt::Display for HelloError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HelloError::NotTls => f.write_str("the client does not begin with a TLS handshake"),
            HelloError::Record => f.write_str("the first TLS message is interrupted"),
            HelloError::Message => f.write_str("the first TLS message is no ClientHello"),
            HelloError::TooLong => {
                write!(f, "ClientHello exceeds the limit of {LENGTH_MAX} bytes")
            }
            HelloError::Malformed => f.write_str("ClientHello is malformed"),
        }
    }
}

impl std::error::Error for HelloError {}

/// Parses the first bytes of a client.
#[must_use]
pub fn parse(bytes: &[u8]) -> Parsed {
    let message = match message(bytes) {
        Ok(Some(message)) => message,
        Ok(None) => return Parsed::Incomplete,
        Err(error) => return Parsed::Invalid(error),
    };
    match server_name(&message) {
        Some(server_name) => Parsed::Hello { server_name },
        None => Parsed::Invalid(HelloError::Malformed),
    }
}

/// Returns whether a whole ClientHello offers this protocol, and no other, by ALPN (RFC 7301).
#[must_use]
pub fn offers_only(bytes: &[u8], protocol: &[u8]) -> bool {
    let Ok(Some(message)) = message(bytes) else {
        return false;
    };
    offered(&message).is_some_and(|names| {
        short_vector(names).is_some_and(|(name, rest)| name == protocol && rest.is_empty())
    })
}

/// Returns the list of the protocols that the body of a ClientHello offers by ALPN.
fn offered(body: &[u8]) -> Option<&[u8]> {
    let mut extensions = extensions(body)?;
    while !extensions.is_empty() {
        let (kind, rest) = extensions.split_first_chunk::<2>()?;
        let (content, rest) = vector(rest)?;
        if u16::from_be_bytes(*kind) == ALPN {
            let (names, rest) = vector(content)?;
            return rest.is_empty().then_some(names);
        }
        extensions = rest;
    }
    None
}

/// Returns the body of the first handshake message, without its header; it may be spread over
/// several records. `None`: it is incomplete.
fn message(bytes: &[u8]) -> Result<Option<Cow<'_, [u8]>>, HelloError> {
    let visible = bytes.get(..LENGTH_MAX).unwrap_or(bytes);
    let mut message = Cow::Borrowed(&[][..]);
    let mut rest = visible;
    loop {
        let header_error = match message.is_empty() {
            true => HelloError::NotTls,
            false => HelloError::Record,
        };
        // The type and the major version do not change between versions of TLS.
        for (byte, expected) in rest.iter().zip([HANDSHAKE_RECORD, 3]) {
            if *byte != expected {
                return Err(header_error);
            }
        }
        let Some((header, after)) = rest.split_first_chunk::<RECORD_HEADER>() else {
            break;
        };
        let [_, _, _, high, low] = *header;
        let length = usize::from(u16::from_be_bytes([high, low]));
        if length == 0 {
            return Err(HelloError::Record);
        }
        let (part, after) = after.split_at_checked(length).unwrap_or((after, &[]));
        match message.is_empty() {
            true => message = Cow::Borrowed(part),
            false => message.to_mut().extend_from_slice(part),
        }
        if let Some(body) = body(&message)? {
            return Ok(Some(match message {
                Cow::Borrowed(message) => Cow::Borrowed(message.get(body).unwrap_or_default()),
                Cow::Owned(message) => Cow::Owned(message.get(body).unwrap_or_default().to_vec()),
            }));
        }
        if part.len() < length {
            break;
        }
        rest = after;
    }
    match bytes.len() < LENGTH_MAX {
        true => Ok(None),
        false => Err(HelloError::TooLong),
    }
}

/// Returns the range of the message's body, if all of it is there.
fn body(message: &[u8]) -> Result<Option<std::ops::Range<usize>>, HelloError> {
    if message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
        return Err(HelloError::Message);
    }
    let Some([_, high, middle, low]) = message.first_chunk() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
    let end = length.saturating_add(4);
    if end.saturating_add(RECORD_HEADER) > LENGTH_MAX {
        return Err(HelloError::TooLong);
    }
    Ok((message.len() >= end).then_some(4..end))
}

/// Returns the extensions in the body of a ClientHello. `None`: it is malformed.
fn extensions(body: &[u8]) -> Option<&[u8]> {
    // Version and random number.
    let (_, rest) = body.split_at_checked(2 + 32)?;
    let (_session, rest) = short_vector(rest)?;
    let (_suites, rest) = vector(rest)?;
    let (_compressions, rest) = short_vector(rest)?;
    if rest.is_empty() {
        return Some(rest);
    }
    let (extensions, rest) = vector(rest)?;
    rest.is_empty().then_some(extensions)
}

/// Reads the name from the body of a ClientHello. `None`: it is malformed.
fn server_name(body: &[u8]) -> Option<Option<Box<str>>> {
    let mut extensions = extensions(body)?;
    let mut name = None;
    while !extensions.is_empty() {
        let (kind, rest) = extensions.split_first_chunk::<2>()?;
        let (content, rest) = vector(rest)?;
        if u16::from_be_bytes(*kind) == SERVER_NAME && name.replace(host_name(content)?).is_some() {
            return None;
        }
        extensions = rest;
    }
    Some(name.flatten())
}

/// Reads the DNS name in the extension's content (RFC 6066 §3). `None`: the content is malformed.
fn host_name(content: &[u8]) -> Option<Option<Box<str>>> {
    let (mut names, rest) = vector(content)?;
    if names.is_empty() || !rest.is_empty() {
        return None;
    }
    let mut found = None;
    while let Some((kind, rest)) = names.split_first() {
        let (name, rest) = vector(rest)?;
        // "MUST NOT contain more than one name of the same name_type"
        if *kind == HOST_NAME && found.replace(name).is_some() {
            return None;
        }
        names = rest;
    }
    Some(found.and_then(dns_name))
}

/// Returns the name in lower case, if it is a DNS name and not an address.
fn dns_name(name: &[u8]) -> Option<Box<str>> {
    let name = name.strip_suffix(b".").unwrap_or(name);
    let fits = |label: &[u8]| {
        let mut bytes = label.iter();
        (1..=63).contains(&label.len())
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    let last = name.rsplit(|byte| *byte == b'.').next()?;
    if name.len() > 253
        || !name.split(|byte| *byte == b'.').all(fits)
        || last.iter().all(u8::is_ascii_digit)
    {
        return None;
    }
    let name = std::str::from_utf8(name).ok()?;
    Some(name.to_ascii_lowercase().into())
}

/// Splits after a vector with a length of one byte.
fn short_vector(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*length))
}

/// Splits after a vector with a length of two bytes.
fn vector(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
}
