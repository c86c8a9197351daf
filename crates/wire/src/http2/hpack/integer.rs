//! Integers with a prefix in the first octet (RFC 7541 §5.1).

use super::CompressionError;

/// Places of the octets after the prefix, in bits. More are refused: 5 octets write any number of
/// 32 bits.
const SHIFTS: [u32; 5] = [0, 7, 14, 21, 28];

/// Reads an integer whose prefix has `prefix_bits` bits (1-8). Returns it and the bytes after it.
#[inline]
pub(super) fn read(input: &[u8], prefix_bits: u32) -> Result<(u32, &[u8]), CompressionError> {
    let (&first, rest) = input.split_first().ok_or(CompressionError::Truncated)?;
    let mask = mask(prefix_bits);
    match first & mask {
        prefix if prefix < mask => Ok((u32::from(prefix), rest)),
        prefix => read_rest(u64::from(prefix), rest),
    }
}

fn read_rest(prefix: u64, mut input: &[u8]) -> Result<(u32, &[u8]), CompressionError> {
    let mut value = prefix;
    for shift in SHIFTS {
        let (&octet, rest) = input.split_first().ok_or(CompressionError::Truncated)?;
        value = value.wrapping_add(u64::from(octet & 0x7f).wrapping_shl(shift));
        input = rest;
        if octet & 0x80 == 0 {
            let value = u32::try_from(value).map_err(|_| CompressionError::Integer)?;
            return Ok((value, input));
        }
    }
    Err(CompressionError::Integer)
}

/// Appends an integer, with `pattern` in the bits of the first octet before the prefix.
#[inline]
pub(super) fn write(out: &mut Vec<u8>, pattern: u8, prefix_bits: u32, value: u32) {
    let mask = mask(prefix_bits);
    match u8::try_from(value) {
        Ok(value) if value < mask => out.push(pattern | value),
        _ => {
            out.push(pattern | mask);
            let mut rest = value.wrapping_sub(u32::from(mask));
            while rest >= 0x80 {
                out.push((rest & 0x7f) as u8 | 0x80);
                rest >>= 7;
            }
            out.push(rest as u8);
        }
    }
}

#[inline]
fn mask(prefix_bits: u32) -> u8 {
    0xff_u8.wrapping_shr(8_u32.wrapping_sub(prefix_bits))
}
