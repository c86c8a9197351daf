//! Samples the primary's position once for all sessions that wrote before.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use super::position::Position;
use super::token::CausalityToken;

/// Position of the primary at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Epoch of the primary.
    pub epoch: u64,
    /// Time when the query was sent: it covers every write whose reply had arrived before.
    pub queried_us: u64,
    /// Reported position. PostgreSQL: [`super::Lsn::of_insert`] of `pg_current_wal_insert_lsn()`,
    /// as the written and the flushed positions may precede a commit.
    pub position: Position,
}

/// Time of the service's last write; each worker writes its own cache line.
#[derive(Debug)]
pub struct Writes {
    last_us: Box<[Line]>,
    /// True if another process writes for the same service, without reporting the time.
    are_shared: AtomicBool,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Line(AtomicU64);

impl Writes {
    /// Creates the record without a write. It assumes a write now, because a predecessor may have
    /// written until now.
    #[must_use]
    pub fn new(workers: usize, now_us: u64) -> Writes {
        let writes = Writes {
            last_us: (0..workers).map(|_| Line::default()).collect(),
            are_shared: AtomicBool::new(false),
        };
        writes.wrote(0, now_us);
        writes
    }

    /// Sets whether another process writes, too.
    pub fn set_shared(&self, are_shared: bool, now_us: u64) {
        if self.are_shared.swap(are_shared, SeqCst) {
            self.wrote(0, now_us);
        }
    }

    /// Records that a write's reply arrived at this worker. Must be called before the reply is
    /// forwarded.
    pub fn wrote(&self, worker: usize, now_us: u64) {
        self.last_us[worker].0.fetch_max(now_us, SeqCst);
    }

    /// Returns the time of the last write over all workers; zero means never.
    #[must_use]
    pub fn last_us(&self) -> u64 {
        let each = self.last_us.iter().map(|line| line.0.load(SeqCst));
        each.max().unwrap_or(0)
    }

    /// Returns the token of a read that must see all earlier writes, in the current epoch.
    #[must_use]
    pub fn token(&self, epoch: u64, now_us: u64) -> CausalityToken {
        let last_us = match self.are_shared.load(SeqCst) {
            true => now_us,
            false => self.last_us(),
        };
        match last_us {
            0 => CausalityToken::new(),
            last_us => CausalityToken::written(last_us, epoch),
        }
    }
}

/// Time for which samples stay urgent after a read found no usable replica.
const WANTED_FOR_US: u64 = 1_000_000;

/// Minimum intervals between queries, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleIntervals {
    /// Interval while reads need a position.
    pub with_reads_us: u64,
    /// Interval while no read needs one.
    pub without_reads_us: u64,
}

/// Schedule of queries for the primary's position: soon after a write, one query at a time. A query
/// costs the primary as much as a small statement. So queries are rare while no session reads
/// recent writes.
#[derive(Debug, Clone)]
pub struct Sampler {
    intervals: SampleIntervals,
    under_way: bool,
    queried_us: u64,
    /// Epoch and time that the last reply covers.
    covered: Option<(u64, u64)>,
}

impl Sampler {
    /// Creates a schedule without a query.
    #[must_use]
    pub fn new(intervals: SampleIntervals) -> Sampler {
        Sampler {
            intervals,
            under_way: false,
            queried_us: 0,
            covered: None,
        }
    }

    /// Returns the time when the next query is due, if one is needed; it may be in the past.
    /// `last_wanted_us` is the time when a read last found no replica with all it must see, or
    /// zero.
    #[must_use]
    pub fn due_us(&self, epoch: u64, last_write_us: u64, last_wanted_us: u64) -> Option<u64> {
        let is_covered = |(of_epoch, queried_us)| of_epoch == epoch && queried_us > last_write_us;
        if self.under_way || last_write_us == 0 || self.covered.is_some_and(is_covered) {
            return None;
        }
        let is_wanted = last_wanted_us > 0 && last_wanted_us + WANTED_FOR_US >= last_write_us;
        let interval_us = match is_wanted {
            true => self.intervals.with_reads_us,
            false => self.intervals.without_reads_us,
        };
        // Strictly after the write: at the same moment, the order would be unknown.
        Some((self.queried_us + interval_us).max(last_write_us + 1))
    }

    /// Records that the query was sent.
    pub fn sent(&mut self, now_us: u64) {
        self.under_way = true;
        self.queried_us = now_us;
    }

    /// Records the reply; `None` if there was none.
    pub fn answered(&mut self, sample: Option<&Sample>) {
        self.under_way = false;
        if let Some(sample) = sample {
            self.covered = Some((sample.epoch, sample.queried_us));
        }
    }
}
