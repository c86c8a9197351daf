//! Checks of one field, which heads and trailers have in common (RFC 9113 §8.2).

use super::{HeadFault, HeadListLimits};
use crate::http::{KnownName, Limit, grammar};
use crate::http2::hpack::FIELD_OVERHEAD_BYTES;

/// Parts of the limits that a list has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Spent {
    bytes: u32,
    fields: u32,
}

impl Spent {
    /// Counts the bytes of a field.
    #[inline]
    pub(super) fn add_bytes(
        &mut self,
        name: &[u8],
        value: &[u8],
        limits: &HeadListLimits,
    ) -> Result<(), HeadFault> {
        let length = u32::try_from(name.len().saturating_add(value.len())).unwrap_or(u32::MAX);
        let bytes = (self.bytes).saturating_add(length.saturating_add(FIELD_OVERHEAD_BYTES));
        self.bytes = bytes;
        match bytes > limits.bytes_max {
            false => Ok(()),
            true => Err(HeadFault::TooLarge(Limit::HeadBytes(
                limits.bytes_max as usize,
            ))),
        }
    }

    /// Counts a field.
    #[inline]
    pub(super) fn add_field(&mut self, limits: &HeadListLimits) -> Result<(), HeadFault> {
        self.fields = self.fields.saturating_add(1);
        match self.fields > limits.fields_max {
            false => Ok(()),
            true => Err(HeadFault::TooLarge(Limit::Fields(
                limits.fields_max as usize,
            ))),
        }
    }
}

/// Checks the grammar of a field, and that it does not belong to a connection. Returns its name.
#[inline]
pub(super) fn check_field(name: &[u8], value: &[u8]) -> Result<KnownName, HeadFault> {
    if !grammar::is_lower_token_text(name) {
        return Err(HeadFault::Malformed("a name is no token in lower case"));
    }
    check_value(value)?;
    match KnownName::of_token(name) {
        // RFC 9113 §8.2.2.
        KnownName::Connection
        | KnownName::Http2Settings
        | KnownName::KeepAlive
        | KnownName::ProxyConnection
        | KnownName::TransferEncoding
        | KnownName::Upgrade => Err(HeadFault::Malformed("a field of a connection")),
        KnownName::Te if !value.eq_ignore_ascii_case(b"trailers") => {
            Err(HeadFault::Malformed("TE has another value than trailers"))
        }
        known => Ok(known),
    }
}

/// Checks a value: no control but HTAB, and no space around it (RFC 9113 §8.2.1).
#[inline]
pub(super) fn check_value(value: &[u8]) -> Result<(), HeadFault> {
    let around = [value.first(), value.last()];
    if around
        .into_iter()
        .flatten()
        .any(|&byte| grammar::is_space(byte))
    {
        return Err(HeadFault::Malformed("a space around a value"));
    }
    match grammar::is_value_text(value) {
        true => Ok(()),
        false => Err(HeadFault::Malformed("a control character in a value")),
    }
}

/// Appends a line with a field.
#[inline]
pub(super) fn write_line(text: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    text.extend_from_slice(name);
    text.extend_from_slice(b": ");
    text.extend_from_slice(value);
    text.extend_from_slice(b"\r\n");
}
