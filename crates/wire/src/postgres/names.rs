//! Finds the names of statements and portals in a message, so that a relay can rename them.
//!
//! Only the beginning of a message is needed: the values of a Bind may have any length.

use std::ops::Range;

use super::cursor::Cursor;
use super::frame::{self, HEADER_LENGTH, Header};
use super::{Parsed, ProtocolError};
use crate::stream_editor::StreamEditor;

/// Position of a name in a message, counted from the message's first byte, without its final zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name {
    /// Offset of its first byte.
    pub start: usize,
    /// Offset of its final zero.
    pub end: usize,
}

impl Name {
    /// Returns whether it is not the empty name, which means the unnamed statement or portal.
    #[must_use]
    pub fn is_named(self) -> bool {
        self.start < self.end
    }

    /// Returns the name's length in bytes.
    #[must_use]
    pub fn length(self) -> usize {
        self.end.saturating_sub(self.start)
    }

    /// Returns the name itself, from the message in which it was found.
    #[must_use]
    pub fn of(self, message: &[u8]) -> &[u8] {
        message.get(self.start..self.end).unwrap_or_default()
    }
}

/// Positions of the names in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Names {
    /// The prepared statement's name (Parse, Bind, Describe and Close of a statement).
    pub statement: Option<Name>,
    /// The portal's name (Bind, Execute, Describe and Close of a portal).
    pub portal: Option<Name>,
}

/// Positions of the parts of a Parse, counted from the message's first byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseParts {
    /// The statement's name.
    pub statement: Name,
    /// The SQL text, without its final zero.
    pub text: Range<usize>,
    /// The OIDs of the parameter types that the client gives, four bytes each.
    pub types: Range<usize>,
}

/// Finds the names in the message that begins with `bytes`; messages without names return none.
///
/// The consumed length ends after the last name's zero.
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
            Some(_) => return Parsed::Invalid(ProtocolError::Malformed(header.tag)),
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
        let name = Some(Name { start: at, end });
        match kind {
            Kind::Statement => names.statement = name,
            Kind::Portal => names.portal = name,
        }
        at = end.saturating_add(1);
    }
    Parsed::Frame(names, at)
}

/// Finds the parts of the Parse in `message`; `None` unless it is a whole and well-formed Parse.
#[must_use]
pub fn parse_parts(message: &[u8]) -> Option<ParseParts> {
    let Parsed::Frame(header, _) = frame::client_header(message) else {
        return None;
    };
    let Parsed::Frame(names, start) = names(header, message) else {
        return None;
    };
    if header.tag != b'P' || header.frame_length() != message.len() {
        return None;
    }
    let text_length = memchr::memchr(0, message.get(start..)?)?;
    let end = start.saturating_add(text_length);
    let mut rest = Cursor(message.get(end.saturating_add(1)..)?);
    let count = usize::from(rest.be_u16()?);
    let types_start = end.saturating_add(3);
    rest.bytes(count.saturating_mul(4))?;
    rest.end(ParseParts {
        statement: names.statement?,
        text: start..end,
        types: types_start..message.len(),
    })
}

/// Writes the message at the beginning of `bytes` up to the end of `old`, with `new` in its place
/// and an adjusted length in the header. The caller sends the bytes from `old.end` on after it.
pub fn write_renamed(out: &mut Vec<u8>, header: Header, bytes: &[u8], old: Name, new: &[u8]) {
    let grown = u32::try_from(new.len()).unwrap_or(u32::MAX);
    let shrunk = u32::try_from(old.length()).unwrap_or(u32::MAX);
    let body_length = header
        .body_length
        .saturating_add(grown)
        .saturating_sub(shrunk);
    let header = Header {
        tag: header.tag,
        body_length,
    };
    out.extend_from_slice(&header.bytes());
    out.extend_from_slice(bytes.get(HEADER_LENGTH..old.start).unwrap_or_default());
    out.extend_from_slice(new);
}

impl StreamEditor<'_, '_> {
    /// Replaces the name `old` in the next message by `new`; the message is then decided up to the
    /// end of that name.
    pub fn rename(&mut self, header: Header, old: Name, new: &[u8]) {
        let message = self.rest();
        write_renamed(self.writer(), header, message, old, new);
        self.drop(old.end);
    }
}

enum Kind {
    Statement,
    Portal,
}

fn cut_short(header: Header, have: usize, more: usize) -> Parsed<Names> {
    if have >= header.frame_length() {
        return Parsed::Invalid(ProtocolError::Malformed(header.tag));
    }
    Parsed::Incomplete {
        need: have.max(HEADER_LENGTH).saturating_add(more),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::build;
    use crate::stream_editor::EditOutcome;

    #[test]
    fn the_parts_of_a_parse_are_found_and_of_nothing_less() {
        for (name, text, types) in [
            (
                &b"name"[..],
                &b"select $1"[..],
                &[0, 0, 0, 25, 0, 0, 0, 23][..],
            ),
            (b"", b"", b""),
        ] {
            let mut message = Vec::new();
            build::parse(&mut message, name, text, types);
            let parts = parse_parts(&message).unwrap();
            assert_eq!(parts.statement.of(&message), name);
            assert_eq!(parts.statement.is_named(), !name.is_empty());
            assert_eq!(&message[parts.text], text);
            assert_eq!(&message[parts.types], types);
            for cut in 0..message.len() {
                assert_eq!(parse_parts(&message[..cut]), None, "cut at {cut}");
            }
            message.push(0);
            assert_eq!(parse_parts(&message), None, "a byte too many");
        }
        assert_eq!(parse_parts(b"P\0\0\0\x09a\0b\0\0"), None, "half a count");
        assert_eq!(parse_parts(b"P\0\0\0\x0ba\0b\0\0\0"), None, "not all of it");
        assert_eq!(parse_parts(b"B\0\0\0\x0b\0a\0b\0\0\0"), None, "no Parse");
    }

    #[test]
    fn a_message_is_renamed_between_others() {
        let mut input = Vec::new();
        build::sync(&mut input);
        let start = input.len();
        build::bind(&mut input, b"", b"short", &[Some(b"value")]);
        build::sync(&mut input);
        let Parsed::Frame(header, _) = frame::header(&input[start..]) else {
            panic!()
        };
        let Parsed::Frame(found, shown) = names(header, &input[start..]) else {
            panic!()
        };
        let mut out = Vec::new();
        let mut editor = StreamEditor::new(&input, &mut out);
        editor.keep(start);
        let statement = found.statement.unwrap();
        editor.rename(header, statement, b"a longer name");
        editor.keep(shown - statement.end);
        let rest = editor.rest().len();
        editor.keep(rest);
        assert_eq!(editor.finish(), EditOutcome::Edited);
        let mut expect = Vec::new();
        build::sync(&mut expect);
        build::bind(&mut expect, b"", b"a longer name", &[Some(b"value")]);
        build::sync(&mut expect);
        assert_eq!(out, expect);
    }
}
