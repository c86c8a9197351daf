//! Parses the rows of a result.

use crate::mysql::cursor::Cursor;

/// The first byte of a NULL.
const NULL: u8 = 0xfb;

/// Returns the values of a row of the text protocol, `None` for NULL; ends at the first malformed
/// one.
pub fn values(payload: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    let mut rest = Cursor(payload);
    std::iter::from_fn(move || match rest.0.first()? {
        &NULL => rest.byte().map(|_| None),
        _ => rest.lenenc_bytes().map(Some),
    })
}

/// Returns the values of a row of the binary protocol in which all columns are texts.
pub fn texts(payload: &[u8], columns: usize) -> impl Iterator<Item = Option<&[u8]>> {
    // In the NULL bitmap after the header, the first two bits are reserved.
    let nulls = payload.get(1..).unwrap_or_default();
    let mut rest = Cursor(
        nulls
            .get(columns.saturating_add(9) / 8..)
            .unwrap_or_default(),
    );
    (0..columns).map_while(move |column| {
        let bit = column.saturating_add(2);
        match nulls.get(bit / 8)? & 1 << (bit % 8) {
            0 => rest.lenenc_bytes().map(Some),
            _ => Some(None),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_in_either_protocol_and_nulls_among_them() {
        let expected = [Some(&b"ab"[..]), None, Some(&b""[..])];
        let text = b"\x02ab\xfb\x00";
        assert_eq!(values(text).collect::<Vec<_>>(), expected);
        let binary = b"\x00\x08\x02ab\x00";
        assert_eq!(texts(binary, 3).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_row_that_is_cut_ends_early() {
        assert_eq!(values(b"\x02a").count(), 0);
        assert_eq!(texts(b"\x00\x00\x01a\x02b", 2).count(), 1);
        assert_eq!(texts(b"", 2).count(), 0);
    }
}
