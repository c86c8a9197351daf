//! The primary's position, asked for once for all who wrote before.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use super::position::Position;
use super::token::CausalityToken;

/// Where the primary was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Whose position.
    pub epoch: u64,
    /// When the question was sent: it covers every write whose answer had come before.
    pub asked_us: u64,
    /// The answer. PostgreSQL: [`super::Lsn::of_insert`] of `pg_current_wal_insert_lsn()`, as the
    /// written and the flushed positions may be behind a commit.
    pub position: Position,
}

/// When the service's last write was: each worker writes its own cache line.
#[derive(Debug)]
pub struct Writes {
    last_us: Box<[Line]>,
    /// Another process writes for the same service, and does not tell when.
    are_shared: AtomicBool,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Line(AtomicU64);

impl Writes {
    /// None yet; but whoever served before may have written until now.
    #[must_use]
    pub fn new(workers: usize, now_us: u64) -> Writes {
        let writes = Writes {
            last_us: (0..workers).map(|_| Line::default()).collect(),
            are_shared: AtomicBool::new(false),
        };
        writes.wrote(0, now_us);
        writes
    }

    /// From now on another process writes as well, or does no longer.
    pub fn share(&self, are_shared: bool, now_us: u64) {
        if self.are_shared.swap(are_shared, SeqCst) {
            self.wrote(0, now_us);
        }
    }

    /// A write's answer has come to this worker, and was not sent on yet.
    pub fn wrote(&self, worker: usize, now_us: u64) {
        self.last_us[worker].0.fetch_max(now_us, SeqCst);
    }

    /// When the last one was, over all workers; zero is never.
    #[must_use]
    pub fn last_us(&self) -> u64 {
        let each = self.last_us.iter().map(|line| line.0.load(SeqCst));
        each.max().unwrap_or(0)
    }

    /// What a read must see that is to see all writes before it, in the current epoch.
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

/// After a read that found no replica it could use, answers are wanted soon for so long.
const WANTED_FOR_US: u64 = 1_000_000;

/// At most one question in each of these times, microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleIntervals {
    /// While reads want to know.
    pub wanted_us: u64,
    /// While none does.
    pub unwanted_us: u64,
}

/// When to ask the primary where it is: soon after a write, one question at a time. Questions cost
/// the primary as much as small statements do: while nobody reads what was just written, few do.
#[derive(Debug, Clone)]
pub struct Sampler {
    pace: SampleIntervals,
    under_way: bool,
    asked_us: u64,
    /// What the last answer covers.
    covered: Option<(u64, u64)>,
}

impl Sampler {
    /// Has asked nothing yet.
    #[must_use]
    pub fn new(pace: SampleIntervals) -> Sampler {
        Sampler {
            pace,
            under_way: false,
            asked_us: 0,
            covered: None,
        }
    }

    /// When the next question is due, if there is a need for one; may have passed.
    /// `last_wanted_us`: when a read last found no replica that has what it must see, or zero.
    #[must_use]
    pub fn due_us(&self, epoch: u64, last_write_us: u64, last_wanted_us: u64) -> Option<u64> {
        let is_covered = |(of_epoch, asked_us)| of_epoch == epoch && asked_us > last_write_us;
        if self.under_way || last_write_us == 0 || self.covered.is_some_and(is_covered) {
            return None;
        }
        let is_wanted = last_wanted_us > 0 && last_wanted_us + WANTED_FOR_US >= last_write_us;
        let interval_us = match is_wanted {
            true => self.pace.wanted_us,
            false => self.pace.unwanted_us,
        };
        // Strictly after the write: at the same moment, nobody knows which was first.
        Some((self.asked_us + interval_us).max(last_write_us + 1))
    }

    /// The question was sent.
    pub fn sent(&mut self, now_us: u64) {
        self.under_way = true;
        self.asked_us = now_us;
    }

    /// The answer has come; `None`: there was none.
    pub fn answered(&mut self, sample: Option<&Sample>) {
        self.under_way = false;
        if let Some(sample) = sample {
            self.covered = Some((sample.epoch, sample.asked_us));
        }
    }
}
