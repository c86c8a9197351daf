//! Reads the numbers and texts of a payload. Numbers are little-endian.

pub(crate) use crate::cursor::Cursor;

impl<'a> Cursor<'a> {
    pub(crate) fn le_u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn le_u24(&mut self) -> Option<u32> {
        let [a, b, c] = self.array()?;
        Some(u32::from_le_bytes([a, b, c, 0]))
    }

    pub(crate) fn le_u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn le_u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads a length-encoded number (`int<lenenc>`). NULL (0xfb) and 0xff are no numbers.
    #[inline]
    pub(crate) fn lenenc(&mut self) -> Option<u64> {
        match self.byte()? {
            small @ 0..=0xfa => Some(u64::from(small)),
            0xfc => self.le_u16().map(u64::from),
            0xfd => self.le_u24().map(u64::from),
            0xfe => self.le_u64(),
            0xfb | 0xff => None,
        }
    }

    /// Reads a length-encoded number and that many bytes (`string<lenenc>`).
    pub(crate) fn lenenc_bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.lenenc()?).ok()?;
        self.bytes(length)
    }

    /// Reads a length byte and that many bytes.
    pub(crate) fn short_bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.byte()?;
        self.bytes(usize::from(length))
    }

    /// Reads a C string whose final zero may be missing at the end.
    pub(crate) fn text_or_rest(&mut self) -> &'a [u8] {
        self.text().unwrap_or_else(|| std::mem::take(&mut self.0))
    }
}
