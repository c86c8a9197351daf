//! Parses global transaction identifiers (GTIDs) as text: MariaDB's lists and MySQL's sets.
//!
//! Both parsers are iterators over borrowed text. They end after an error: a caller that collects
//! into a `Result` never takes half a set for a whole one.

use std::fmt;

mod mariadb;
mod mysql;
mod text;

#[cfg(test)]
mod tests;

pub use mariadb::{Mariadb, Position};
pub use mysql::{Interval, Mysql};

/// Reads a MariaDB list: `gtid_binlog_state`, `gtid_slave_pos`, `last_gtid`. "0-1-100,1-2-7".
#[must_use]
pub fn mariadb(text: &[u8]) -> Mariadb<'_> {
    Mariadb::new(text)
}

/// Reads a MySQL set: `gtid_executed`, `gtid_purged`, a tracked `SESSION_TRACK_GTIDS`.
/// "uuid:1-5:7,uuid:tag:1-3", with spaces and line ends anywhere the server puts them.
#[must_use]
pub fn mysql(text: &[u8]) -> Mysql<'_> {
    Mysql::new(text)
}

/// Parse error: what was expected, and at which byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseError {
    /// Offset of the error in bytes, from 0.
    pub offset: usize,
    /// The expected element.
    pub expected: Expected,
}

/// Element that a parser expected at the position of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Expected {
    /// MariaDB: a domain or server id, 0 to 4294967295.
    Id,
    /// A sequence number (MySQL: from 1), 64 bits.
    Sequence,
    /// MariaDB: the dash between two numbers.
    Dash,
    /// MySQL: a UUID, 36 characters with four dashes.
    Uuid,
    /// MySQL: the colon before an interval or a tag.
    Colon,
    /// MySQL: a tag, or a sequence number from 1.
    TagOrSequence,
    /// MySQL: a number that is not below the first of its interval.
    HigherLast,
    /// A comma, or the end.
    CommaOrEnd,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expected = match self.expected {
            Expected::Id => "a domain or server id",
            Expected::Sequence => "a sequence number",
            Expected::Dash => "a dash",
            Expected::Uuid => "a UUID",
            Expected::Colon => "a colon",
            Expected::TagOrSequence => "a tag or a sequence number",
            Expected::HigherLast => "a last number that is not below the first",
            Expected::CommaOrEnd => "a comma or the end",
        };
        write!(
            f,
            "malformed GTIDs: expected {expected} at byte {}",
            self.offset
        )
    }
}

impl std::error::Error for ParseError {}
