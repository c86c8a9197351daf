//! CRC32c (Castagnoli), the checksum of RFC 4960 Appendix B, a bit at a time.
//!
//! No table: a header is at most some hundred bytes, once per connection, and only if the peer
//! sends a checksum at all.

const POLYNOMIAL_REFLECTED: u32 = 0x82f6_3b78;

/// The checksum of the parts, one after the other.
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
