//! Text reader that tracks its position, for both GTID formats.

use super::{Expected, ParseError};

/// The longest tag: the MySQL manual allows 32 characters.
const TAG_LENGTH_MAX: usize = 32;

/// The rest of the text, and how many bytes were read before it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Text<'a> {
    rest: &'a [u8],
    offset: usize,
}

impl<'a> Text<'a> {
    pub(super) fn new(text: &'a [u8]) -> Text<'a> {
        Text {
            rest: text,
            offset: 0,
        }
    }

    pub(super) fn is_at_end(self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn is_at(self, byte: u8) -> bool {
        self.rest.first() == Some(&byte)
    }

    pub(super) fn fault(self, expected: Expected) -> ParseError {
        ParseError {
            offset: self.offset,
            expected,
        }
    }

    pub(super) fn skip_space(&mut self) {
        let _ = self.take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n'));
    }

    /// Consumes `byte` if it is the next byte. Returns whether it was.
    pub(super) fn take(&mut self, byte: u8) -> bool {
        let next = self.is_at(byte);
        if next {
            self.advance(1);
        }
        next
    }

    /// Reads a decimal number; more than 64 bits is an error.
    pub(super) fn number(&mut self, expected: Expected) -> Result<u64, ParseError> {
        let fault = self.fault(expected);
        let mut value: Option<u64> = None;
        for &digit in self.take_while(|byte| byte.is_ascii_digit()) {
            let shifted = value.unwrap_or(0).checked_mul(10).ok_or(fault)?;
            let digit = u64::from(digit.wrapping_sub(b'0'));
            value = Some(shifted.checked_add(digit).ok_or(fault)?);
        }
        value.ok_or(fault)
    }

    /// Reads a UUID with its dashes, as every server writes it.
    pub(super) fn uuid(&mut self) -> Result<&'a str, ParseError> {
        let fault = self.fault(Expected::Uuid);
        let bytes = self.rest.get(..36).ok_or(fault)?;
        let right = bytes.iter().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        });
        if !right {
            return Err(fault);
        }
        self.advance(36);
        str::from_utf8(bytes).map_err(|_| fault)
    }

    /// Reads a tag if one is next: a letter or underscore, then letters, digits and underscores.
    pub(super) fn tag(&mut self) -> Result<Option<&'a str>, ParseError> {
        let fault = self.fault(Expected::TagOrSequence);
        if self.rest.first().is_none_or(u8::is_ascii_digit) {
            return Ok(None);
        }
        let tag = self.take_while(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if tag.is_empty() || tag.len() > TAG_LENGTH_MAX {
            return Err(fault);
        }
        str::from_utf8(tag).map(Some).map_err(|_| fault)
    }

    fn take_while(&mut self, wanted: impl Fn(u8) -> bool) -> &'a [u8] {
        let end = self.rest.iter().position(|&byte| !wanted(byte));
        let end = end.unwrap_or(self.rest.len());
        let taken = self.rest.get(..end).unwrap_or_default();
        self.advance(end);
        taken
    }

    fn advance(&mut self, count: usize) {
        self.rest = self.rest.get(count..).unwrap_or_default();
        self.offset = self.offset.saturating_add(count);
    }
}
