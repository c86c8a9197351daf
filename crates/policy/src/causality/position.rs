//! How far a server is: a place in the WAL, or a set of transactions.

use crate::cluster::Gtids;

/// PostgreSQL's WAL page (`wal_block_size`), as it is built unless somebody changed the source.
const WAL_PAGE_BYTES: u64 = 8192;

/// The header of a page, and of the first page of a segment.
const PAGE_HEADER_BYTES: u64 = 24;
const SEGMENT_HEADER_BYTES: u64 = 40;

/// `wal_segment_size` unless initdb was told otherwise.
pub const WAL_SEGMENT_BYTES: u64 = 16 << 20;

/// A place in the WAL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lsn {
    /// The history that it is of: the same number means something else on another timeline.
    pub timeline: u32,
    /// Bytes of WAL before it.
    pub at: u64,
}

impl Lsn {
    /// What a replica must have replayed to have all that was before an insert position.
    ///
    /// After a record that ends with its page, the insert position is behind the next page's
    /// header, which is not written yet: a replica that has replayed everything is at the page's
    /// start, and would be waited for until something unrelated is written.
    #[must_use]
    pub fn of_insert(timeline: u32, at: u64, segment_bytes: u64) -> Lsn {
        let in_page = at % WAL_PAGE_BYTES;
        let is_behind_header = in_page == PAGE_HEADER_BYTES
            || (in_page == SEGMENT_HEADER_BYTES
                && at % segment_bytes.max(1) == SEGMENT_HEADER_BYTES);
        let at = if is_behind_header { at - in_page } else { at };
        Lsn { timeline, at }
    }
}

/// How far a server is, or must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Position {
    /// PostgreSQL.
    Lsn(Lsn),
    /// MySQL and MariaDB.
    Gtids(Gtids),
}

impl Position {
    /// Whether a server that is at `applied` has all that this stands for.
    #[must_use]
    pub fn is_reached_by(&self, applied: &Position) -> bool {
        match (self, applied) {
            (Position::Lsn(target), Position::Lsn(applied)) => {
                applied.timeline == target.timeline && applied.at >= target.at
            }
            (Position::Gtids(target), Position::Gtids(applied)) => applied.contains(target),
            _ => false,
        }
    }

    /// Adds what another one stands for; false: they cannot be added.
    pub(super) fn merge(&mut self, other: &Position) -> bool {
        match (self, other) {
            (Position::Lsn(own), Position::Lsn(other)) if own.timeline == other.timeline => {
                own.at = own.at.max(other.at);
                true
            }
            (Position::Gtids(own), Position::Gtids(other)) => {
                own.merge(other);
                own.contains(other)
            }
            _ => false,
        }
    }
}
