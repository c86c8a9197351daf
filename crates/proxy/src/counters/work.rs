//! Counts executed statements, their durations and rows. Each counter has one writing worker;
//! readers sum them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Limits of durations in microseconds: from a point select on loopback to a report of minutes.
pub(crate) const TIMES_US: &[u64; 17] = &[
    50,
    100,
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    5_000_000,
    30_000_000,
    300_000_000,
];

/// One slot per limit, and one for longer durations.
const SLOTS: usize = TIMES_US.len() + 1;

/// Counter with one writer.
#[derive(Debug, Default)]
pub struct LocalCounter(AtomicU64);

impl LocalCounter {
    pub(crate) fn add(&self, more: u64) {
        // A plain load and store is enough: there is one writer.
        self.0
            .store(self.0.load(Relaxed).wrapping_add(more), Relaxed);
    }

    pub(crate) fn set(&self, now: u64) {
        self.0.store(now, Relaxed);
    }

    /// Returns the count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Result of a statement, as the session knows it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StatementResult {
    /// The statement's digest; `None` if there is no statement.
    pub(crate) digest: Option<u64>,
    pub(crate) rows_sent: u64,
    pub(crate) rows_affected: u64,
    pub(crate) has_failed: bool,
}

/// Result of a statement with its duration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimedResult<'a> {
    ran: &'a StatementResult,
    took_us: u64,
    slot: usize,
}

impl<'a> TimedResult<'a> {
    pub(crate) fn new(took_us: u64, ran: &'a StatementResult) -> Self {
        let slot = TIMES_US.partition_point(|bound| *bound < took_us);
        Self { ran, took_us, slot }
    }
}

/// Counters of one worker for one kind of statements.
#[derive(Debug, Default)]
pub struct WorkCounters {
    errors: LocalCounter,
    rows_sent: LocalCounter,
    rows_affected: LocalCounter,
    busy_us: LocalCounter,
    times: [LocalCounter; SLOTS],
}

impl WorkCounters {
    pub(crate) fn add(&self, done: &TimedResult<'_>) {
        self.times[done.slot].add(1);
        self.busy_us.add(done.took_us);
        self.rows_sent.add(done.ran.rows_sent);
        self.rows_affected.add(done.ran.rows_affected);
        self.errors.add(u64::from(done.ran.has_failed));
    }
}

/// Totals of all workers for one kind of statements.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkTotals {
    /// Queries and batches.
    pub queries: u64,
    /// Failed queries and batches, included in `queries`.
    pub errors: u64,
    /// Rows that servers sent.
    pub rows_sent: u64,
    /// Rows that were changed.
    pub rows_affected: u64,
    /// Time that servers spent on them, microseconds.
    pub busy_us: u64,
    times: [u64; SLOTS],
}

impl WorkTotals {
    /// Returns the sum of the workers' counters.
    pub fn sum<'a>(parts: impl IntoIterator<Item = &'a WorkCounters>) -> Self {
        let mut sum = Self::default();
        parts.into_iter().for_each(|part| sum.add(part));
        sum
    }

    /// Adds the counters of one more worker.
    pub fn add(&mut self, part: &WorkCounters) {
        for (slot, more) in self.times.iter_mut().zip(&part.times) {
            *slot += more.get();
            self.queries += more.get();
        }
        self.errors += part.errors.get();
        self.rows_sent = self.rows_sent.wrapping_add(part.rows_sent.get());
        self.rows_affected = self.rows_affected.wrapping_add(part.rows_affected.get());
        self.busy_us += part.busy_us.get();
    }

    /// Returns the duration that `percent` of the queries do not exceed, in microseconds. The value
    /// is interpolated linearly within its histogram slot. Zero if there were no queries.
    pub fn percentile_us(&self, percent: u64) -> u64 {
        let due = (self.queries * percent).div_ceil(100);
        let mut before = 0;
        for (slot, count) in self.times.iter().enumerate() {
            if *count > 0 && before + count >= due {
                let low = slot.checked_sub(1).map_or(0, |below| TIMES_US[below]);
                // Durations above the last limit are not distinguished further.
                let high = TIMES_US.get(slot).copied().unwrap_or(low);
                return low + (high - low) * (due - before) / count;
            }
            before += count;
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(work: &WorkCounters, took_us: u64, ran: &StatementResult) {
        work.add(&TimedResult::new(took_us, ran));
    }

    #[test]
    fn what_workers_did_is_summed() {
        let (one, other) = (WorkCounters::default(), WorkCounters::default());
        let nothing = StatementResult::default();
        let reads = StatementResult {
            rows_sent: 3,
            ..nothing
        };
        let writes = StatementResult {
            rows_affected: 2,
            ..nothing
        };
        let fails = StatementResult {
            has_failed: true,
            ..nothing
        };
        run(&one, 40, &reads);
        run(&other, 60, &writes);
        run(&other, 2_000, &fails);
        let sum = WorkTotals::sum([&one, &other]);
        let figures = (sum.queries, sum.errors, sum.rows_sent, sum.rows_affected);
        assert_eq!(figures, (3, 1, 3, 2));
        assert_eq!(sum.busy_us, 2_100);
    }

    #[test]
    fn percentiles_lie_in_the_step_in_which_they_fall() {
        assert_eq!(WorkTotals::default().percentile_us(95), 0);
        let work = WorkCounters::default();
        for _ in 0..95 {
            run(&work, 80, &StatementResult::default());
        }
        for _ in 0..5 {
            run(&work, 400, &StatementResult::default());
        }
        let sum = WorkTotals::sum([&work]);
        assert_eq!(sum.percentile_us(95), 100);
        assert_eq!(sum.percentile_us(96), 300);
        assert_eq!(sum.percentile_us(100), 500);
        run(&work, u64::MAX / 2, &StatementResult::default());
        assert_eq!(WorkTotals::sum([&work]).percentile_us(100), 300_000_000);
    }
}
