//! Represents the replication progress of a server: a WAL position, or a set of transactions.

use crate::cluster::Gtids;

/// PostgreSQL's WAL page size (`wal_block_size`), unless the source was changed.
const WAL_PAGE_BYTES: u64 = 8192;

/// Size of the header of a page; below, of the first page of a segment.
const PAGE_HEADER_BYTES: u64 = 24;
const SEGMENT_HEADER_BYTES: u64 = 40;

/// Default of `wal_segment_size`, which initdb can change.
pub const WAL_SEGMENT_BYTES: u64 = 16 << 20;

/// WAL position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lsn {
    /// Timeline: the same position means something else on another timeline.
    pub timeline: u32,
    /// Number of bytes of WAL before the position.
    pub at: u64,
}

impl Lsn {
    /// Returns the position that a replica must have replayed to have all that precedes an insert
    /// position.
    ///
    /// After a record that ends with its page, the insert position follows the next page's header,
    /// which is not written yet. A replica that has replayed everything is at the start of that
    /// page. A wait for the insert position would last until an unrelated record is written.
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

/// Position that a server has reached, or must reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Position {
    /// PostgreSQL.
    Lsn(Lsn),
    /// MySQL and MariaDB.
    Gtids(Gtids),
}

impl Position {
    /// Returns whether a server at `applied` has all that this position includes.
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

    /// Adds another position; false if the two cannot be combined.
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
