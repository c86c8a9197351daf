//! Parses the columns of a result and the values of its rows, for the few results that Evenkeel
//! reads itself.

use crate::postgres::Parsed;
use crate::postgres::cursor::Cursor;
use crate::postgres::frame::{self, LENGTH_MAX};

/// A column of a RowDescription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column<'a> {
    /// Name of the column.
    pub name: &'a [u8],
    /// OID of the column's type.
    pub type_oid: u32,
    /// 0: text, 1: binary.
    pub format: u16,
}

/// Returns the columns in a RowDescription's body; ends at the first malformed one.
pub fn columns(body: &[u8]) -> impl Iterator<Item = Column<'_>> {
    let mut rest = Cursor(body);
    let count = rest.be_u16().unwrap_or(0);
    let one = move |_| {
        let name = rest.text()?;
        let (_table, _attribute) = (rest.be_u32()?, rest.be_u16()?);
        let type_oid = rest.be_u32()?;
        let (_size, _modifier) = (rest.be_u16()?, rest.be_u32()?);
        let format = rest.be_u16()?;
        Some(Column {
            name,
            type_oid,
            format,
        })
    };
    (0..count).map_while(one)
}

/// Returns the bodies of the rows among a server's messages. The messages are the reply to one of
/// Evenkeel's own queries, collected from discarded bytes
/// ([`Delivery::Discard`](crate::postgres::conversation::Delivery)), both events and passed bytes.
/// Ends at the first incomplete message.
pub fn rows(messages: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = messages;
    let next = move || {
        let Parsed::Frame(message, length) = frame::frame(rest, LENGTH_MAX) else {
            return None;
        };
        rest = rest.get(length..).unwrap_or_default();
        Some(message)
    };
    let all = std::iter::from_fn(next);
    all.filter(|message| message.tag == b'D')
        .map(|message| message.body)
}

/// Returns the values in a DataRow's body, `None` for NULL; ends at the first malformed one.
pub fn values(body: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    let mut rest = Cursor(body);
    let count = rest.be_u16().unwrap_or(0);
    let one = move |_| match rest.be_i32()? {
        -1 => Some(None),
        length => rest.bytes(usize::try_from(length).ok()?).map(Some),
    };
    (0..count).map_while(one)
}
