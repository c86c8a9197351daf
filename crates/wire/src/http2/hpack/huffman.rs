//! The Huffman code of strings (RFC 7541 §5.2, appendix B).
//!
//! The code is canonical: codes of the same length are consecutive, in the order of their symbols,
//! and longer codes are larger. The lengths therefore define it, and all tables are made of them.

use super::CompressionError;

/// Length of each symbol's code, in bits. The last one is EOS.
pub(super) const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, // 0x00
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28, // 0x10
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, // 0x20
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, // 0x30
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, // 0x40
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, // 0x50
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, // 0x60
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, // 0x70
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, // 0x80
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, // 0x90
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, // 0xa0
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, // 0xb0
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, // 0xc0
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, // 0xd0
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, // 0xe0
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, // 0xf0
    30,
];

const LENGTH_MAX: usize = 30;
/// Bits of the code that one look-up reads.
const LOOKUP_BITS: u32 = 10;

static CODES: [Code; 256] = codes();
static SHORT: [Short; 1 << LOOKUP_BITS] = short_codes();
static LONG: [Group; LENGTH_MAX - LOOKUP_BITS as usize] = long_codes();
/// Symbols in the order of their codes.
static ORDER: [u16; 257] = order();

/// Code of a symbol, in the lowest bits.
#[derive(Clone, Copy)]
struct Code {
    bits: u32,
    length: u32,
}

/// Symbol whose code begins the bits of a look-up. The length is zero if it is longer.
#[derive(Clone, Copy)]
struct Short {
    symbol: u8,
    length: u8,
}

/// Codes of the same length.
#[derive(Clone, Copy)]
struct Group {
    /// The first code after them, in the highest bits of 32; none is larger than those of 30 bits.
    end: u64,
    /// The first of them, in the highest bits of 32.
    first: u64,
    /// Place of the first symbol in `ORDER`.
    place: usize,
    length: u32,
}

/// Appends the code of a text.
#[inline]
pub(super) fn encode(out: &mut Vec<u8>, text: impl Iterator<Item = u8>) {
    let (mut word, mut count) = (0_u64, 0_u32);
    for byte in text {
        let Some(code) = CODES.get(usize::from(byte)) else {
            continue;
        };
        word = word.wrapping_shl(code.length) | u64::from(code.bits);
        count = count.wrapping_add(code.length);
        if count >= 32 {
            count = count.wrapping_sub(32);
            out.extend_from_slice(&(word.wrapping_shr(count) as u32).to_be_bytes());
        }
    }
    // RFC 7541 §5.2: the most significant bits of EOS, which are ones, fill the last octet.
    let free = 32_u32.wrapping_sub(count);
    let last = word.wrapping_shl(free) as u32 | u32::MAX.checked_shr(count).unwrap_or(0);
    let octets = count.div_ceil(8) as usize;
    out.extend_from_slice(last.to_be_bytes().get(..octets).unwrap_or_default());
}

/// Appends the text of a code.
pub(super) fn decode(out: &mut Vec<u8>, mut code: &[u8]) -> Result<(), CompressionError> {
    // No symbol has fewer than 5 bits.
    out.reserve(code.len().saturating_mul(8) / 5);
    // The unread bits in the highest places, and their number. Lower bits are zero, or those that
    // follow.
    let (mut word, mut count) = (0_u64, 0_u32);
    while let Some(octets) = code.first_chunk::<8>() {
        word |= u64::from_be_bytes(*octets).wrapping_shr(count);
        let taken = 63_u32.wrapping_sub(count) >> 3;
        code = code.get(taken as usize..).unwrap_or_default();
        count = count.wrapping_add(taken << 3);
        // There are 56 bits and more: five short codes, or a long one.
        let mut symbols = [0; 5];
        let mut known = 0_usize;
        for place in &mut symbols {
            let short = short(word);
            if short.length == 0 {
                break;
            }
            *place = short.symbol;
            known = known.wrapping_add(1);
            word = word.wrapping_shl(u32::from(short.length));
            count = count.wrapping_sub(u32::from(short.length));
        }
        match known {
            5 => out.extend_from_slice(&symbols),
            known => out.extend_from_slice(symbols.get(..known).unwrap_or_default()),
        }
        if known == 0 {
            let (symbol, length) = long(word);
            out.push(u8::try_from(symbol).map_err(|_| CompressionError::Huffman)?);
            word = word.wrapping_shl(length);
            count = count.wrapping_sub(length);
        }
    }
    decode_end(out, code, word, count)
}

/// Appends the text of the last bits of a code: `count` bits of `word`, and fewer than 8 octets.
fn decode_end(
    out: &mut Vec<u8>,
    mut code: &[u8],
    mut word: u64,
    mut count: u32,
) -> Result<(), CompressionError> {
    loop {
        while count <= 56
            && let Some((&octet, rest)) = code.split_first()
        {
            word |= u64::from(octet).wrapping_shl(56_u32.wrapping_sub(count));
            count = count.wrapping_add(8);
            code = rest;
        }
        // After the end there are ones, as if EOS followed.
        let bits = word | u64::MAX.checked_shr(count).unwrap_or(0);
        if count < 8 && bits == u64::MAX {
            return Ok(());
        }
        let short = short(bits);
        let (symbol, length) = match short.length {
            0 => long(bits),
            length => (u16::from(short.symbol), u32::from(length)),
        };
        match u8::try_from(symbol) {
            Ok(symbol) if length <= count => out.push(symbol),
            _ => return Err(CompressionError::Huffman),
        }
        word = word.wrapping_shl(length);
        count = count.wrapping_sub(length);
    }
}

/// Returns the symbol whose code begins `bits`, if it is short.
#[inline]
fn short(bits: u64) -> Short {
    let index = bits.wrapping_shr(64_u32.wrapping_sub(LOOKUP_BITS)) as usize;
    SHORT.get(index).copied().unwrap_or(Short::NONE)
}

/// Returns the symbol whose code begins `bits`, where the code is longer than a look-up reads.
#[cold]
fn long(bits: u64) -> (u16, u32) {
    let bits = bits >> 32;
    for group in &LONG {
        if bits < group.end {
            let shift = 32_u32.wrapping_sub(group.length);
            let offset = bits.wrapping_sub(group.first).wrapping_shr(shift) as usize;
            let symbol = ORDER.get(group.place.wrapping_add(offset)).copied();
            return (symbol.unwrap_or(EOS), group.length);
        }
    }
    (EOS, LENGTH_MAX as u32)
}

const EOS: u16 = 256;

impl Short {
    const NONE: Short = Short {
        symbol: 0,
        length: 0,
    };
}

#[expect(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "runs when the program is compiled"
)]
const fn order() -> [u16; 257] {
    let mut order = [0; 257];
    let mut place = 0;
    let mut length = 1;
    while length <= LENGTH_MAX {
        let mut symbol = 0;
        while symbol < 257 {
            if LENGTHS[symbol] as usize == length {
                order[place] = symbol as u16;
                place += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    order
}

#[expect(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "runs when the program is compiled"
)]
const fn codes() -> [Code; 256] {
    let order = order();
    let mut codes = [Code { bits: 0, length: 0 }; 256];
    let mut next = 0_u32;
    let mut length = 0;
    let mut place = 0;
    while place < 257 {
        let symbol = order[place] as usize;
        next <<= LENGTHS[symbol] as u32 - length;
        length = LENGTHS[symbol] as u32;
        if symbol < 256 {
            codes[symbol] = Code { bits: next, length };
        }
        next += 1;
        place += 1;
    }
    assert!(next == 1 << LENGTH_MAX, "the code is not complete");
    codes
}

#[expect(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "runs when the program is compiled"
)]
const fn short_codes() -> [Short; 1 << LOOKUP_BITS] {
    let codes = codes();
    let mut short = [Short::NONE; 1 << LOOKUP_BITS];
    let mut symbol = 0;
    while symbol < 256 {
        let code = codes[symbol];
        if code.length <= LOOKUP_BITS {
            let first = (code.bits << (LOOKUP_BITS - code.length)) as usize;
            let mut offset = 0;
            while offset < 1 << (LOOKUP_BITS - code.length) {
                short[first + offset] = Short {
                    symbol: symbol as u8,
                    length: code.length as u8,
                };
                offset += 1;
            }
        }
        symbol += 1;
    }
    short
}

#[expect(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "runs when the program is compiled"
)]
const fn long_codes() -> [Group; LENGTH_MAX - LOOKUP_BITS as usize] {
    let mut groups = [Group {
        end: 0,
        first: 0,
        place: 0,
        length: 0,
    }; LENGTH_MAX - LOOKUP_BITS as usize];
    let mut end = 0_u64;
    let mut place = 0;
    let mut length = 1;
    while length <= LENGTH_MAX {
        let mut count = 0;
        let mut symbol = 0;
        while symbol < 257 {
            if LENGTHS[symbol] as usize == length {
                count += 1;
            }
            symbol += 1;
        }
        let first = end;
        end += (count as u64) << (32 - length);
        if length > LOOKUP_BITS as usize {
            groups[length - LOOKUP_BITS as usize - 1] = Group {
                end,
                first,
                place,
                length: length as u32,
            };
        }
        place += count;
        length += 1;
    }
    groups
}
