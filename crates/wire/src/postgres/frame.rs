//! Parses a message's five-byte header, and whole messages where they are small (§54.2.1
//! "Messaging").

use super::{Parsed, ProtocolError, frontend};

/// Length of tag and length field, with which every message after the startup packet begins.
pub const HEADER_LENGTH: usize = 5;

/// The highest value of a length field: the server's own limit (`PQ_LARGE_MESSAGE_LIMIT`), 1 GiB.
pub const LENGTH_MAX: u32 = 0x3fff_ffff;

/// The longest message before its sender has authenticated, which limits the memory that an
/// unauthenticated peer can use. A SASL message or a password takes some hundred bytes.
pub const PRE_AUTH_LENGTH_MAX: u32 = 16 * 1024;

/// Kind and length of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The message's kind.
    pub tag: u8,
    /// The length of the body, without the header.
    pub body_length: u32,
}

impl Header {
    /// Returns the length of the whole message.
    #[must_use]
    pub fn frame_length(self) -> usize {
        HEADER_LENGTH.saturating_add(self.body_length as usize)
    }

    /// Returns the encoded header.
    #[must_use]
    pub fn bytes(self) -> [u8; HEADER_LENGTH] {
        let [a, b, c, d] = self.body_length.saturating_add(4).to_be_bytes();
        [self.tag, a, b, c, d]
    }
}

/// A whole message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The message's kind.
    pub tag: u8,
    /// The bytes after the header.
    pub body: &'a [u8],
}

/// Parses the header at the beginning of `bytes`; the message may have any length that the protocol
/// allows.
#[must_use]
#[inline]
pub fn header(bytes: &[u8]) -> Parsed<Header> {
    header_within(bytes, LENGTH_MAX)
}

/// Parses the header of a client's message. Its tag must be one that clients send, and its length
/// within the limit of servers for that kind (`SocketBackend` in the server's `postgres.c`).
#[must_use]
pub fn client_header(bytes: &[u8]) -> Parsed<Header> {
    let Some(tag) = bytes.first() else {
        return Parsed::Incomplete {
            need: HEADER_LENGTH,
        };
    };
    match frontend::length_max(*tag) {
        Some(length_max) => header_within(bytes, length_max),
        None => Parsed::Invalid(ProtocolError::UnknownTag(*tag)),
    }
}

/// Parses the whole message at the beginning of `bytes`, with a length field of up to `length_max`:
/// for logins and other small messages.
#[must_use]
pub fn frame(bytes: &[u8], length_max: u32) -> Parsed<Frame<'_>> {
    let (header, length) = match header_within(bytes, length_max) {
        Parsed::Frame(header, _) => (header, header.frame_length()),
        Parsed::Incomplete { need } => return Parsed::Incomplete { need },
        Parsed::Invalid(fault) => return Parsed::Invalid(fault),
    };
    match bytes.get(HEADER_LENGTH..length) {
        Some(body) => Parsed::Frame(
            Frame {
                tag: header.tag,
                body,
            },
            length,
        ),
        None => Parsed::Incomplete { need: length },
    }
}

#[inline]
fn header_within(bytes: &[u8], length_max: u32) -> Parsed<Header> {
    let Some(([tag, length @ ..], _)) = bytes.split_first_chunk::<HEADER_LENGTH>() else {
        return Parsed::Incomplete {
            need: HEADER_LENGTH,
        };
    };
    let length = u32::from_be_bytes(*length);
    let Some(body_length) = length.checked_sub(4) else {
        return Parsed::Invalid(ProtocolError::LengthTooSmall(length));
    };
    if length > length_max {
        return Parsed::Invalid(ProtocolError::TooLong { tag: *tag, length });
    }
    let header = Header {
        tag: *tag,
        body_length,
    };
    Parsed::Frame(header, HEADER_LENGTH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_message_is_read_and_any_beginning_of_it_says_what_it_needs() {
        let bytes = b"Q\0\0\0\x0dSELECT 1\0rest";
        let whole = Frame {
            tag: b'Q',
            body: b"SELECT 1\0",
        };
        assert_eq!(frame(bytes, LENGTH_MAX), Parsed::Frame(whole, 14));
        for cut in 0..14 {
            let need = if cut < 5 { 5 } else { 14 };
            assert_eq!(
                frame(&bytes[..cut], LENGTH_MAX),
                Parsed::Incomplete { need }
            );
        }
    }

    #[test]
    fn a_length_that_cannot_be_is_refused_before_the_body_arrives() {
        let too_small = Parsed::Invalid(ProtocolError::LengthTooSmall(3));
        assert_eq!(header(b"Q\0\0\0\x03"), too_small);
        let length = 0x4000_0000;
        let too_long = Parsed::Invalid(ProtocolError::TooLong { tag: b'D', length });
        assert_eq!(header(b"D\x40\0\0\0"), too_long);
        let length = 16_385;
        let too_long = Parsed::Invalid(ProtocolError::TooLong { tag: b'p', length });
        assert_eq!(frame(b"p\0\0\x40\x01", PRE_AUTH_LENGTH_MAX), too_long);
    }

    #[test]
    fn a_client_may_send_only_what_a_server_would_take() {
        assert_eq!(
            client_header(b"D\0\0\x27\x10"),
            Parsed::Frame(
                Header {
                    tag: b'D',
                    body_length: 9996
                },
                5
            )
        );
        let length = 10_001;
        let too_long = Parsed::Invalid(ProtocolError::TooLong { tag: b'D', length });
        assert_eq!(client_header(b"D\0\0\x27\x11"), too_long);
        assert_eq!(
            client_header(b"Z"),
            Parsed::Invalid(ProtocolError::UnknownTag(b'Z'))
        );
    }

    #[test]
    fn a_header_is_written_as_it_was_read() {
        let bytes = *b"d\0\x01\x02\x03";
        match header(&bytes) {
            Parsed::Frame(header, _) => assert_eq!(header.bytes(), bytes),
            other => panic!("{other:?}"),
        }
    }
}
