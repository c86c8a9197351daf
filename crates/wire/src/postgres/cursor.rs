//! Reads the numbers of a message's body, which are big-endian.

pub(crate) use crate::cursor::Cursor;

impl Cursor<'_> {
    pub(crate) fn be_u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn be_u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn be_i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_be_bytes)
    }
}
