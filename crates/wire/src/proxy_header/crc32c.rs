//! CRC32c (Castagnoli), the checksum of RFC 4960 Appendix B, computed bit by bit.
//!
//! No table is needed: a header has at most some hundred bytes, is read once per connection, and
//! rarely has a checksum.

const POLYNOMIAL_REFLECTED: u32 = 0x82f6_3b78;

/// Returns the checksum of the concatenated parts.
pub(super) fn of(parts: &[&[u8]]) -> u32 {
    let mut crc = u32::MAX;
    for byte in parts.iter().copied().flatten() {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            let carry = crc & 1 == 1;
            crc >>= 1;
            if carry {
                crc ^= POLYNOMIAL_REFLECTED;
            }
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_the_check_value_of_the_algorithm() {
        assert_eq!(of(&[b"123456789"]), 0xe306_9283);
        assert_eq!(of(&[b"1234", b"", b"56789"]), 0xe306_9283);
    }
}
