//! Byte tables and scans of the grammar of HTTP/1.1 (RFC 9110 §5, RFC 9112 §2-5).

use super::fault::Fault;

/// A byte of a token (RFC 9110 §5.6.2): method, field name, connection option.
const TOKEN: u8 = 1;
/// `_` or `.`, which some programs read as `-` in a field name.
const ALIAS: u8 = 2;
/// A byte of a request target: 0x21-0x7e without `#`.
const TARGET: u8 = 4;
/// A byte of a registered name: unreserved of RFC 3986 §2.3.
const HOST: u8 = 8;
/// A byte of a field value: no control but HTAB.
const VALUE: u8 = 16;

static CLASSES: [u8; 256] = classes();

#[expect(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "runs when the program is compiled"
)]
const fn classes() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let value = byte as u8;
        let alphanumeric = value.is_ascii_alphanumeric();
        if alphanumeric || in_list(value, b"!#$%&'*+-.^_`|~") {
            table[byte] |= TOKEN;
        }
        if in_list(value, b"_.") {
            table[byte] |= ALIAS;
        }
        if value > b' ' && value < 0x7f && value != b'#' {
            table[byte] |= TARGET;
        }
        if alphanumeric || in_list(value, b"-._~") {
            table[byte] |= HOST;
        }
        if value == b'\t' || (value >= b' ' && value != 0x7f) {
            table[byte] |= VALUE;
        }
        byte += 1;
    }
    table
}

#[expect(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "runs when the program is compiled"
)]
const fn in_list(byte: u8, list: &[u8]) -> bool {
    let mut at = 0;
    while at < list.len() {
        if list[at] == byte {
            return true;
        }
        at += 1;
    }
    false
}

#[inline]
fn class(byte: u8) -> u8 {
    CLASSES.get(usize::from(byte)).copied().unwrap_or_default()
}

/// Returns whether the byte may stand in a token.
#[inline]
pub(crate) fn is_token(byte: u8) -> bool {
    class(byte) & TOKEN != 0
}

/// Returns whether the byte may stand in a registered name of a host.
#[inline]
pub(crate) fn is_host(byte: u8) -> bool {
    class(byte) & HOST != 0
}

/// Returns whether all of the bytes form a token.
pub(crate) fn is_token_text(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&byte| is_token(byte))
}

/// Returns whether all of the bytes form a token without upper-case letters, as HTTP/2 has field
/// names.
pub(crate) fn is_lower_token_text(bytes: &[u8]) -> bool {
    let mut at = 0_usize;
    while let Some(word) = word(bytes, at)
        && not_in_names(word) | upper_in_names(word) == 0
    {
        at = at.wrapping_add(8);
    }
    let rest = bytes.get(at..).unwrap_or_default();
    let is_lower = |&byte: &u8| is_token(byte) && !byte.is_ascii_uppercase();
    !bytes.is_empty() && rest.iter().all(is_lower)
}

/// Returns whether the bytes form a field value, which may be empty.
pub(crate) fn is_value_text(bytes: &[u8]) -> bool {
    value_end(bytes, 0) >= bytes.len()
}

/// Returns the offset of the first byte from `at` on that is not of a class.
#[inline]
fn end_of(bytes: &[u8], at: usize, wanted: u8) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    let length = rest.iter().position(|&byte| class(byte) & wanted == 0);
    at.wrapping_add(length.unwrap_or(rest.len()))
}

/// Returns the end of the token that begins at `at`.
#[inline]
pub(crate) fn token_end(bytes: &[u8], at: usize) -> usize {
    end_of(bytes, at, TOKEN)
}

/// Returns the end of the token that begins at `at`, and whether it has a `_` or a `.`. Most names
/// have letters, digits and `-` only, and are read by words of 8 bytes.
#[inline]
pub(crate) fn name_end(bytes: &[u8], mut at: usize) -> (usize, bool) {
    while let Some(word) = word(bytes, at) {
        let stops = not_in_names(word);
        if stops == 0 {
            at = at.wrapping_add(8);
            continue;
        }
        at = at.wrapping_add(stops.trailing_zeros() as usize >> 3);
        if bytes.get(at) == Some(&b':') {
            return (at, false);
        }
        break;
    }
    let rest = bytes.get(at..).unwrap_or_default();
    let mut seen = 0;
    for (offset, &byte) in rest.iter().enumerate() {
        let class = class(byte);
        if class & TOKEN == 0 {
            return (at.wrapping_add(offset), seen & ALIAS != 0);
        }
        seen |= class;
    }
    (bytes.len(), seen & ALIAS != 0)
}

/// Returns the end of the target that begins at `at`.
#[inline]
pub(crate) fn target_end(bytes: &[u8], at: usize) -> usize {
    end_of(bytes, at, TARGET)
}

/// Returns the offset of the first byte from `at` on that no field value has.
#[inline]
pub(crate) fn value_end(bytes: &[u8], mut at: usize) -> usize {
    while let Some(block) = bytes.get(at..).and_then(|rest| rest.first_chunk::<32>()) {
        // The compiler makes vector instructions of this.
        let is_control = |byte: u8| u8::from(byte < b' ') | u8::from(byte == 0x7f);
        if block.iter().fold(0, |seen, &byte| seen | is_control(byte)) != 0 {
            break;
        }
        at = at.wrapping_add(32);
    }
    while let Some(word) = word(bytes, at) {
        let stops = not_in_values(word);
        if stops == 0 {
            at = at.wrapping_add(8);
            continue;
        }
        at = at.wrapping_add(stops.trailing_zeros() as usize >> 3);
        if bytes.get(at) != Some(&b'\t') {
            return at;
        }
        at = at.wrapping_add(1);
    }
    end_of(bytes, at, VALUE)
}

/// Returns the 8 bytes from `at` on, the first one in the lowest place, if there are 8.
#[inline]
fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let chunk = bytes.get(at..).and_then(|rest| rest.first_chunk());
    chunk.map(|chunk| u64::from_le_bytes(*chunk))
}

const HIGH: u64 = all(0x80);

/// Returns a word with the same byte in all places.
const fn all(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// Returns a word whose lowest set bit is in the first byte that is a control, HTAB included, or
/// zero. Bits of later bytes mean nothing.
#[inline]
fn not_in_values(word: u64) -> u64 {
    let below_space = word.wrapping_sub(all(b' ')) & !word;
    let differs = word ^ all(0x7f);
    let delete = differs.wrapping_sub(all(1)) & !differs;
    (below_space | delete) & HIGH
}

/// Returns a word with the high bit of each byte set that is no letter, digit or `-`.
#[inline]
fn not_in_names(word: u64) -> u64 {
    // Without its high bit, a byte and at most 0x7f have no carry.
    let low = word & !HIGH;
    let at_least = |bytes: u64, first: u8| bytes.wrapping_add(all(0x80_u8.wrapping_sub(first)));
    let lower = low | all(0x20);
    let letter = at_least(lower, b'a') & !at_least(lower, b'z'.wrapping_add(1));
    let digit = at_least(low, b'0') & !at_least(low, b'9'.wrapping_add(1));
    let differs_from_dash = at_least(low ^ all(b'-'), 1);
    (!(letter | digit) & differs_from_dash | word) & HIGH
}

/// Returns a word that is not zero if one of the bytes, which are letters, digits or `-`, is an
/// upper-case letter.
#[inline]
fn upper_in_names(word: u64) -> u64 {
    (word >> 1) & !word & all(0x20)
}

/// Returns whether the byte is optional whitespace (RFC 9110 §5.6.3).
#[inline]
pub(crate) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// Returns the bytes without optional whitespace around them.
#[inline]
pub(crate) fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = bytes
        && is_space(*first)
    {
        bytes = rest;
    }
    while let [rest @ .., last] = bytes
        && is_space(*last)
    {
        bytes = rest;
    }
    bytes
}

/// Reads CR LF at `at`, where a line must end. Returns the offset of the next line, or `None` if
/// more bytes are needed.
///
/// RFC 9112 §2.2 permits a bare LF; it is refused here, because a program that does not permit it
/// would read other lines.
#[inline]
pub(crate) fn line_end(bytes: &[u8], at: usize) -> Result<Option<usize>, Fault> {
    match bytes.get(at..).unwrap_or_default() {
        [b'\r', b'\n', ..] => Ok(Some(at.wrapping_add(2))),
        [] | [b'\r'] => Ok(None),
        [b'\r', ..] => Err(Fault::BareCarriageReturn { at: offset(at) }),
        [b'\n', ..] => Err(Fault::BareLineFeed { at: offset(at) }),
        [byte, ..] => Err(Fault::Byte {
            at: offset(at),
            byte: *byte,
        }),
    }
}

/// Returns the elements of a comma-separated list without quoted strings. Empty elements, which
/// RFC 9110 §5.6.1.2 has recipients ignore, are left out.
pub(crate) fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let elements = value.split(|&byte| byte == b',').map(trim);
    elements.filter(|element| !element.is_empty())
}

/// Returns whether two field names are equal to a program that reads `-`, `_` and `.` as one.
pub(crate) fn folded_eq(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(&a, &b)| fold(a) == fold(b))
}

fn fold(byte: u8) -> u8 {
    match byte {
        b'_' | b'.' => b'-',
        byte => byte.to_ascii_lowercase(),
    }
}

/// Returns the number that decimal digits write, if it fits into 63 bits.
pub(crate) fn decimal(digits: &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for byte in digits {
        let digit = u64::from(byte.wrapping_sub(b'0'));
        if digit > 9 {
            return None;
        }
        number = number.checked_mul(10)?.checked_add(digit)?;
    }
    (!digits.is_empty() && number <= i64::MAX as u64).then_some(number)
}

/// Returns an offset in a head as a span has it. Heads are shorter than 16 MB.
#[inline]
pub(crate) fn offset(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}
