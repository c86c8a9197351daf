//! Where a message names a statement or a portal, so that a relay can rename it.
//!
//! Only the beginning of a message is needed: the values of a Bind may be as long as they like.

use std::ops::Range;

use super::frame::{HEADER_LENGTH, Header};
use super::{Fault, Parsed};

/// Where names are in a message, counted from the message's first byte, without their final zeros.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Names {
    /// The prepared statement's name (Parse, Bind, Describe and Close of a statement).
    pub statement: Option<Range<usize>>,
    /// The portal's name (Bind, Execute, Describe and Close of a portal).
    pub portal: Option<Range<usize>>,
}

/// Finds the names in the message that begins with `bytes`; other messages have none.
///
/// The consumed length is where the last name's zero ends.
#[must_use]
pub fn names(header: Header, bytes: &[u8]) -> Parsed<Names> {
    let whole = header.frame_length();
    let bytes = bytes.get(..whole).unwrap_or(bytes);
    let mut names = Names::default();
    let mut at = HEADER_LENGTH;
    let expected: &[Kind] = match header.tag {
        b'P' => &[Kind::Statement],
        b'B' => &[Kind::Portal, Kind::Statement],
        b'E' => &[Kind::Portal],
        b'D' | b'C' => match bytes.get(HEADER_LENGTH) {
            Some(b'S') => &[Kind::Statement],
            Some(b'P') => &[Kind::Portal],
            Some(_) => return Parsed::Invalid(Fault::Malformed(header.tag)),
            None => return cut_short(header, bytes.len(), 1),
        },
        _ => &[],
    };
    if matches!(header.tag, b'D' | b'C') {
        at = at.saturating_add(1);
    }
    for kind in expected {
        let rest = bytes.get(at..).unwrap_or_default();
        let Some(length) = memchr::memchr(0, rest) else {
            return cut_short(header, bytes.len(), 1);
        };
        let end = at.saturating_add(length);
        match kind {
            Kind::Statement => names.statement = Some(at..end),
            Kind::Portal => names.portal = Some(at..end),
        }
        at = end.saturating_add(1);
    }
    Parsed::Frame(names, at)
}

/// Writes the message `bytes` begins with, up to where `range` ends and with `name` in its place,
/// under a header of the right length; the caller sends the bytes from `range.end` on after it.
pub fn write_renamed(
    out: &mut Vec<u8>,
    header: Header,
    bytes: &[u8],
    range: &Range<usize>,
    name: &[u8],
) {
    let grown = u32::try_from(name.len()).unwrap_or(u32::MAX);
    let shrunk = u32::try_from(range.len()).unwrap_or(u32::MAX);
    let body_length = header
        .body_length
        .saturating_add(grown)
        .saturating_sub(shrunk);
    let header = Header {
        tag: header.tag,
        body_length,
    };
    out.extend_from_slice(&header.bytes());
    out.extend_from_slice(bytes.get(HEADER_LENGTH..range.start).unwrap_or_default());
    out.extend_from_slice(name);
}

enum Kind {
    Statement,
    Portal,
}

fn cut_short(header: Header, have: usize, more: usize) -> Parsed<Names> {
    if have >= header.frame_length() {
        return Parsed::Invalid(Fault::Malformed(header.tag));
    }
    Parsed::Incomplete {
        need: have.max(HEADER_LENGTH).saturating_add(more),
    }
}
