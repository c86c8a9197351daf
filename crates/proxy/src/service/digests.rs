//! Counts statements by digest: statements that differ only in literals are one. The table has a
//! fixed size; statements without an entry are counted together.
//!
//! Sessions take a lock only for statements that are not in the table.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};

use evenkeel_engine::clock;
use evenkeel_engine::panics::lock;
use evenkeel_sql::Dialect;
use evenkeel_sql::digest::normalised;

use crate::counters::work::{LocalCounter, TimedResult, WorkCounters, WorkTotals};
use crate::service::database::DatabaseService;

/// The digest of texts that have none.
pub(crate) const NONE: u64 = 0;

/// Maximum length of a kept text, in bytes.
const TEXT_LENGTH_MAX: usize = 1_000;

impl DatabaseService {
    /// Enters a text that is executed, which is counted under its digest from now on.
    pub(crate) fn enter(&self, digest: u64, text: &[u8], dialect: Option<Dialect>) {
        if let (Some(digests), Some(dialect)) = (&*self.digests(), dialect) {
            digests.enter(digest, || normalised(text, dialect));
        }
    }
}

/// The statements of a service.
#[derive(Debug)]
pub struct Digests {
    max: usize,
    /// Hash table of digests: a digest has the first free slot from its own on. The table has twice
    /// as many slots as digests, so that probes are short.
    slots: Box<[AtomicU64]>,
    taken: AtomicUsize,
    /// Counts by worker.
    counts: Box<[WorkerCounts]>,
    first: Mutex<HashMap<u64, First>>,
}

/// Counts of one worker.
#[derive(Debug)]
struct WorkerCounts {
    /// Counts by the digest's slot.
    by_slot: Box<[OnceLock<Box<Counted>>]>,
    other: Counted,
}

#[derive(Debug, Default)]
struct Counted {
    work: WorkCounters,
    on_replicas: LocalCounter,
    last_ms: LocalCounter,
}

/// First occurrence of a statement.
#[derive(Debug, Clone)]
struct First {
    text: Box<str>,
    at_ms: u64,
}

/// One statement with the counts of all workers.
#[derive(Debug, Clone, Default)]
pub struct Digest {
    /// Digest of the statement; zero: all statements without a slot.
    pub digest: u64,
    /// Text of the statement without literals.
    pub text: Box<str>,
    /// Execution counters.
    pub work: WorkTotals,
    /// Number of executions on replicas.
    pub on_replicas: u64,
    /// Time of the first execution, milliseconds of the clock.
    pub first_ms: u64,
    /// Time of the last execution, milliseconds of the clock.
    pub last_ms: u64,
}

impl Digests {
    /// Creates a table for up to `max` statements.
    pub(crate) fn new(max: usize, workers: usize) -> Self {
        let length = (max * 2).next_power_of_two();
        let counts = || WorkerCounts {
            by_slot: (0..length).map(|_| OnceLock::new()).collect(),
            other: Counted::default(),
        };
        Self {
            max,
            slots: (0..length).map(|_| AtomicU64::new(NONE)).collect(),
            taken: AtomicUsize::new(0),
            counts: (0..workers).map(|_| counts()).collect(),
            first: Mutex::default(),
        }
    }

    /// Returns the maximum number of statements.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Returns the slots that a digest may have, the likeliest first.
    fn slots_of(&self, digest: u64) -> impl Iterator<Item = usize> + use<> {
        let mask = self.slots.len() - 1;
        let own = digest as usize;
        (0..=mask).map(move |further| own.wrapping_add(further) & mask)
    }

    fn slot(&self, digest: u64) -> Option<usize> {
        for slot in self.slots_of(digest) {
            match self.slots[slot].load(Relaxed) {
                NONE => return None,
                found if found == digest => return Some(slot),
                _ => {}
            }
        }
        None
    }

    /// Enters a statement if there is a free entry.
    pub(crate) fn enter(&self, digest: u64, text: impl FnOnce() -> String) {
        if digest == NONE || self.slot(digest).is_some() {
            return;
        }
        // Two workers that enter two statements concurrently may leave one slot unused.
        if self.taken.load(Relaxed) >= self.max || self.taken.fetch_add(1, Relaxed) >= self.max {
            return;
        }
        for slot in self.slots_of(digest) {
            let slot = &self.slots[slot];
            match slot.compare_exchange(NONE, digest, Relaxed, Relaxed) {
                Ok(_) => return self.add_text(digest, text()),
                Err(found) if found == digest => {
                    self.taken.fetch_sub(1, Relaxed);
                    return;
                }
                Err(_) => {}
            }
        }
    }

    fn add_text(&self, digest: u64, text: String) {
        let at_ms = clock::now_ms();
        let length = text.floor_char_boundary(TEXT_LENGTH_MAX);
        let text = text[..length].into();
        let mut first = lock(&self.first);
        first.insert(digest, First { text, at_ms });
    }

    /// Counts an execution by a worker.
    pub(crate) fn count(
        &self,
        worker: usize,
        digest: u64,
        done: &TimedResult<'_>,
        (is_on_replica, now_ms): (bool, u64),
    ) {
        let counts = &self.counts[worker];
        let counted = match self.slot(digest) {
            Some(slot) if digest != NONE => counts.by_slot[slot].get_or_init(Box::default),
            _ => &counts.other,
        };
        counted.work.add(done);
        counted.on_replicas.add(u64::from(is_on_replica));
        counted.last_ms.set(now_ms);
    }

    /// Returns all executed statements; the last entry sums those without a slot.
    pub fn all(&self) -> Vec<Digest> {
        let first = lock(&self.first);
        let known = first.iter().filter_map(|(digest, first)| {
            let slot = self.slot(*digest)?;
            let parts = self
                .counts
                .iter()
                .filter_map(|counts| counts.by_slot[slot].get());
            Some(Digest {
                digest: *digest,
                text: first.text.clone(),
                first_ms: first.at_ms,
                ..sum(parts.map(|counted| &**counted))
            })
        });
        let others = sum(self.counts.iter().map(|counts| &counts.other));
        let all = known.chain([others]);
        all.filter(|one| one.work.queries > 0).collect()
    }
}

fn sum<'a>(parts: impl Iterator<Item = &'a Counted>) -> Digest {
    let mut sum = Digest::default();
    for part in parts {
        sum.work.add(&part.work);
        sum.on_replicas += part.on_replicas.get();
        sum.last_ms = sum.last_ms.max(part.last_ms.get());
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::work::StatementResult;

    fn run(digests: &Digests, worker: usize, digest: u64, is_on_replica: bool) {
        digests.enter(digest, || format!("statement {digest}"));
        let ran = StatementResult::default();
        let done = TimedResult::new(100, &ran);
        digests.count(worker, digest, &done, (is_on_replica, 5));
    }

    fn of(digests: &Digests, digest: u64) -> Option<Digest> {
        digests.all().into_iter().find(|one| one.digest == digest)
    }

    #[test]
    fn workers_count_for_themselves_and_are_summed() {
        let digests = Digests::new(10, 2);
        run(&digests, 0, 7, false);
        run(&digests, 1, 7, true);
        // This digest has the same slot in the table.
        run(&digests, 1, 7 + 32, false);
        let seven = of(&digests, 7).unwrap();
        assert_eq!((seven.work.queries, seven.on_replicas), (2, 1));
        assert_eq!(&*seven.text, "statement 7");
        assert_eq!(of(&digests, 39).unwrap().work.queries, 1);
        assert_eq!(digests.all().len(), 2, "nothing else");
    }

    #[test]
    fn what_finds_no_place_is_counted_as_one_other() {
        let digests = Digests::new(10, 1);
        for digest in 1..=5_000 {
            run(&digests, 0, digest * 0x9e37_79b9, false);
        }
        run(&digests, 0, NONE, false);
        let all = digests.all();
        assert_eq!(all.len(), 11);
        assert_eq!(of(&digests, NONE).unwrap().work.queries, 4_991);
        let first = of(&digests, 0x9e37_79b9).unwrap();
        assert_eq!(first.work.queries, 1);
    }

    #[test]
    fn workers_that_enter_the_same_at_once_enter_it_once() {
        let digests = Digests::new(100, 4);
        std::thread::scope(|scope| {
            for worker in 0..4 {
                let digests = &digests;
                scope.spawn(move || (1..=1_000).for_each(|one| run(digests, worker, one, false)));
            }
        });
        let all = digests.all();
        let known = all.iter().filter(|one| one.digest != NONE).count();
        assert!((90..=100).contains(&known), "{known}");
        let queries: u64 = all.iter().map(|one| one.work.queries).sum();
        assert_eq!(queries, 4_000);
    }
}
