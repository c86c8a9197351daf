//! Parses a packet's four-byte header, whole packets where they are small, and payloads of over 16
//! MiB.

use super::{Parsed, ProtocolError};

/// Length of the header of every packet: three bytes of length, one of sequence number.
pub const HEADER_LENGTH: usize = 4;

/// The longest payload of one packet. A payload of this many bytes or more continues in the next
/// packet. A packet that is not full, perhaps empty, ends it.
pub const PAYLOAD_LENGTH_MAX: u32 = 0x00ff_ffff;

/// The longest packet before its sender has authenticated, which limits the memory that an
/// unauthenticated peer can use. A handshake with all its attributes takes some thousand bytes.
pub const PRE_AUTH_LENGTH_MAX: u32 = 16 * 1024;

/// Length and sequence number of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The length of the payload, without the header.
    pub payload_length: u32,
    /// Sequence number: counts the packets of a command and its reply, from 0.
    pub sequence: u8,
}

impl Header {
    /// Returns the length of the whole packet.
    #[must_use]
    #[inline]
    pub fn frame_length(self) -> usize {
        HEADER_LENGTH.saturating_add(self.payload_length as usize)
    }

    /// Returns whether the payload continues in the next packet.
    #[must_use]
    #[inline]
    pub fn is_continued(self) -> bool {
        self.payload_length == PAYLOAD_LENGTH_MAX
    }

    /// Returns the encoded header.
    #[must_use]
    pub fn bytes(self) -> [u8; HEADER_LENGTH] {
        let [a, b, c, _] = self.payload_length.to_le_bytes();
        [a, b, c, self.sequence]
    }
}

/// A whole packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Sequence number of the packet.
    pub sequence: u8,
    /// The bytes after the header.
    pub payload: &'a [u8],
}

/// Parses the header at the beginning of `bytes`.
#[must_use]
#[inline]
pub fn header(bytes: &[u8]) -> Parsed<Header> {
    let Some(([a, b, c, sequence], _)) = bytes.split_first_chunk::<HEADER_LENGTH>() else {
        return Parsed::Incomplete {
            need: HEADER_LENGTH,
        };
    };
    let header = Header {
        payload_length: u32::from_le_bytes([*a, *b, *c, 0]),
        sequence: *sequence,
    };
    Parsed::Frame(header, HEADER_LENGTH)
}

/// Parses the whole packet at the beginning of `bytes`, with a complete payload of up to
/// `length_max` bytes: for logins and other small packets.
#[must_use]
pub fn frame(bytes: &[u8], length_max: u32) -> Parsed<Frame<'_>> {
    let header = match header(bytes) {
        Parsed::Frame(header, _) => header,
        Parsed::Incomplete { need } => return Parsed::Incomplete { need },
        Parsed::Invalid(fault) => return Parsed::Invalid(fault),
    };
    let length = header.payload_length;
    if length > length_max || header.is_continued() {
        return Parsed::Invalid(ProtocolError::TooLong { length, length_max });
    }
    match bytes.get(HEADER_LENGTH..header.frame_length()) {
        Some(payload) => Parsed::Frame(
            Frame {
                sequence: header.sequence,
                payload,
            },
            header.frame_length(),
        ),
        None => Parsed::Incomplete {
            need: header.frame_length(),
        },
    }
}

/// Follows a payload through its packets, however the bytes are split.
#[derive(Debug, Clone, Copy, Default)]
pub struct Joiner {
    /// Bytes of the current packet that are still to come.
    left: usize,
    /// True if the current packet ends the payload.
    last: bool,
    /// Expected sequence number of the next packet.
    next_sequence: u8,
}

/// Next piece of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'a> {
    /// `passed` bytes of header, then this part of the payload. `ends`: it is the last part.
    Bytes {
        /// Header bytes before the payload.
        passed: usize,
        /// Bytes of the payload.
        payload: &'a [u8],
        /// True if the payload ends here.
        ends: bool,
    },
    /// More bytes are needed.
    Wait {
        /// How many bytes there must be.
        need: usize,
    },
    /// A packet of the payload has the wrong sequence number.
    Invalid(ProtocolError),
}

impl Joiner {
    /// Starts at the beginning of a payload whose first packet has this sequence number.
    #[must_use]
    pub fn new(sequence: u8) -> Self {
        Joiner {
            next_sequence: sequence,
            ..Joiner::default()
        }
    }

    /// Returns the sequence number that the next packet must have.
    #[must_use]
    pub fn next_sequence(&self) -> u8 {
        self.next_sequence
    }

    /// Returns the next piece in `bytes`, which begin where the last piece ended.
    pub fn next<'a>(&mut self, bytes: &'a [u8]) -> Piece<'a> {
        let mut passed = 0_usize;
        if self.left == 0 {
            let header = match header(bytes) {
                Parsed::Frame(header, _) => header,
                Parsed::Incomplete { need } => return Piece::Wait { need },
                Parsed::Invalid(fault) => return Piece::Invalid(fault),
            };
            if header.sequence != self.next_sequence {
                return Piece::Invalid(ProtocolError::Sequence(header.sequence));
            }
            self.next_sequence = self.next_sequence.wrapping_add(1);
            self.left = header.payload_length as usize;
            self.last = !header.is_continued();
            passed = HEADER_LENGTH;
        }
        let rest = bytes.get(passed..).unwrap_or_default();
        let payload = rest.get(..self.left).unwrap_or(rest);
        if payload.is_empty() && self.left > 0 && passed == 0 {
            return Piece::Wait { need: 1 };
        }
        self.left = self.left.saturating_sub(payload.len());
        let ends = self.last && self.left == 0;
        Piece::Bytes {
            passed,
            payload,
            ends,
        }
    }
}

/// Iterator over the headers that split a payload of known length into packets.
#[derive(Debug, Clone)]
pub struct Splitter {
    left: u64,
    sequence: u8,
    ended: bool,
}

impl Splitter {
    /// Creates the headers of a payload of `length` bytes, whose first packet has this sequence
    /// number.
    #[must_use]
    pub fn new(length: u64, sequence: u8) -> Self {
        Splitter {
            left: length,
            sequence,
            ended: false,
        }
    }
}

impl Iterator for Splitter {
    type Item = Header;

    fn next(&mut self) -> Option<Header> {
        if self.ended {
            return None;
        }
        let length = self.left.min(u64::from(PAYLOAD_LENGTH_MAX));
        self.left = self.left.saturating_sub(length);
        self.ended = length < u64::from(PAYLOAD_LENGTH_MAX);
        let header = Header {
            payload_length: length as u32,
            sequence: self.sequence,
        };
        self.sequence = self.sequence.wrapping_add(1);
        Some(header)
    }
}

/// Renumbers the packets of a streamed reply that became longer or shorter in its middle.
#[derive(Debug, Clone, Copy, Default)]
pub struct Renumber {
    /// Bytes of the current packet that are still to come.
    skip: usize,
}

impl Renumber {
    /// Changes `bytes`, which begin where the last ones ended, and which contain no partial header.
    pub fn apply(&mut self, bytes: &mut [u8], difference: u8) {
        let mut at = 0_usize;
        loop {
            let step = self.skip.min(bytes.len().saturating_sub(at));
            at = at.saturating_add(step);
            self.skip = self.skip.saturating_sub(step);
            let rest = bytes.get_mut(at..).unwrap_or_default();
            let Some(([a, b, c, sequence], _)) = rest.split_first_chunk_mut::<HEADER_LENGTH>()
            else {
                return;
            };
            *sequence = sequence.wrapping_add(difference);
            let length = u32::from_le_bytes([*a, *b, *c, 0]) as usize;
            self.skip = HEADER_LENGTH.saturating_add(length);
        }
    }
}

#[cfg(test)]
mod tests;
