//! Digests of SQL texts: texts that differ only in their literals have the same number and the same
//! normalized text.
//!
//! A digest ignores white space, comments that no server executes, the case of words, literals with
//! their signs, and semicolons at the end. The number of literals in a list and the number of
//! repeated rows of equal shape are also ignored. The number is the same in every process and
//! version, because operators write it into files. It is no cryptographic hash: an attacker can
//! construct two texts with the same number.

pub(super) mod piece;
mod shape;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use self::piece::Pieces;
use self::shape::{Shape, Written};
use super::{Dialect, mysql, postgres};

/// Number shared by all texts of the same shape, displayed as 16 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub u64);

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}", self.0)
    }
}

/// Error: the text is not 16 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoDigest;

impl FromStr for Digest {
    type Err = NoDigest;

    fn from_str(written: &str) -> Result<Self, NoDigest> {
        let is_hex = written.bytes().all(|byte| byte.is_ascii_hexdigit());
        match u64::from_str_radix(written, 16) {
            Ok(number) if is_hex && written.len() == 16 => Ok(Digest(number)),
            _ => Err(NoDigest),
        }
    }
}

/// Returns the digest of a text; allocates nothing.
#[must_use]
pub fn digest(text: &[u8], dialect: Dialect) -> Digest {
    shape(text, dialect, ()).0
}

/// Returns the normalized text: words in lower case, and `?` for each literal and each list of
/// literals.
#[must_use]
pub fn normalised(text: &[u8], dialect: Dialect) -> String {
    let (_, written) = shape(text, dialect, Written::default());
    String::from_utf8_lossy(&written.text).into_owned()
}

fn shape<T: shape::Text>(text: &[u8], dialect: Dialect, out: T) -> (Digest, T) {
    match dialect {
        Dialect::Mysql(modes) => run(text, mysql::Tokens::new(text, modes), out),
        Dialect::Postgres { backslashes } => {
            run(text, postgres::Tokens::new(text, backslashes), out)
        }
    }
}

fn run<T: shape::Text>(text: &[u8], mut pieces: impl Pieces, out: T) -> (Digest, T) {
    let mut shape = Shape::new(out);
    while let Some(piece) = pieces.next_piece() {
        shape.take(piece, piece.span.of(text));
    }
    shape.end()
}
