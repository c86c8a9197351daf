//! A position in PostgreSQL's write-ahead log as text: "16/B374D848" is 0x16_B374D848.

use std::fmt;

/// Error of [`parse`]: the text is not a log position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseError {
    /// Offset of the error in bytes, from 0.
    pub offset: usize,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "invalid LSN: unexpected byte {}; expected two hexadecimal numbers of 1 to 8 digits \
             separated by a slash",
            self.offset
        )
    }
}

impl std::error::Error for ParseError {}

/// Parses a whole text of type `pg_lsn`.
///
/// # Errors
///
/// Fails unless the text is two hexadecimal numbers of 1 to 8 digits with a slash between them.
pub fn parse(text: &[u8]) -> Result<u64, ParseError> {
    let slash = text.iter().position(|&byte| byte == b'/');
    let slash = slash.ok_or(ParseError { offset: text.len() })?;
    let (high, rest) = text.split_at(slash);
    let low_at = slash.saturating_add(1);
    let high = half(high, 0)?;
    let low = half(rest.get(1..).unwrap_or_default(), low_at)?;
    Ok(u64::from(high) << 32 | u64::from(low))
}

/// Formats a position as PostgreSQL does.
pub fn display(lsn: u64) -> impl fmt::Display {
    Text(lsn)
}

/// Parses one of the two numbers; `offset` is that of its first digit.
fn half(digits: &[u8], offset: usize) -> Result<u32, ParseError> {
    let mut value: u32 = 0;
    for (index, &byte) in digits.iter().enumerate() {
        let error = ParseError {
            offset: offset.saturating_add(index),
        };
        let digit = char::from(byte).to_digit(16).ok_or(error)?;
        if index >= 8 {
            return Err(error);
        }
        value = value << 4 | digit;
    }
    match digits {
        [] => Err(ParseError { offset }),
        _ => Ok(value),
    }
}

struct Text(u64);

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xFFFF_FFFF)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: Result<u64, usize>) {
        assert_eq!(parse(text.as_bytes()).map_err(|fault| fault.offset), expect);
    }

    #[test]
    fn a_position_is_two_hexadecimal_numbers() {
        check("16/B374D848", Ok(0x16_B374_D848));
        check("0/0", Ok(0));
        check("0/1a", Ok(0x1A));
        check("FFFFFFFF/FFFFFFFF", Ok(u64::MAX));
        check("00000001/00000002", Ok(0x1_0000_0002));
    }

    #[test]
    fn anything_else_is_refused_where_it_goes_wrong() {
        check("", Err(0));
        check("16", Err(2));
        check("/1", Err(0));
        check("1/", Err(2));
        check("1/2/3", Err(3));
        check("1/2 ", Err(3));
        check(" 1/2", Err(0));
        check("123456789/1", Err(8));
        check("1/123456789", Err(10));
        check("+1/2", Err(0));
        check("1/\u{e9}", Err(2));
    }

    #[test]
    fn what_is_written_reads_back() {
        let mut value: u64 = 1;
        for _ in 0..10_000 {
            value = value
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let shifted = value >> (value % 64);
            let text = display(shifted).to_string();
            assert_eq!(parse(text.as_bytes()), Ok(shifted), "{text}");
        }
    }
}
