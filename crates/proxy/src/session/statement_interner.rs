//! Interns the prepared statements that all sessions of a service share, under whichever names
//! clients use.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use evenkeel_engine::panics::lock;

/// Number of unused statements that are kept, so that the next client that prepares one finds it on
/// the servers.
const UNUSED_MAX: usize = 10_000;

/// Size in bytes of unused statements that are kept.
const UNUSED_WEIGHT_MAX: usize = 64 * 1024 * 1024;

/// Maximum number of statements per client.
pub(crate) const OF_CLIENT_MAX: usize = 10_000;

/// Maximum size in bytes of a client's statements.
const OF_CLIENT_WEIGHT_MAX: usize = 64 * 1024 * 1024;

/// Approximate memory that a value owns, in bytes, besides its own size.
pub(crate) trait MemorySize {
    fn weight(&self) -> usize;
}

/// Statement shared by all clients that prepare the same text in the same context.
#[derive(Debug, Clone)]
pub(crate) struct SharedStatement<W, M> {
    /// Number unique in this process.
    pub(crate) id: u64,
    pub(crate) text: Box<[u8]>,
    /// Context that distinguishes statements of the same text.
    pub(crate) within: W,
    pub(crate) meaning: M,
    /// Version of the catalog that it was analyzed with.
    pub(crate) catalog: u64,
}

/// Returns a new number for a statement; never zero.
pub(crate) fn new_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Relaxed)
}

impl<W: MemorySize, M: MemorySize> MemorySize for SharedStatement<W, M> {
    fn weight(&self) -> usize {
        size_of::<Self>() + self.text.len() + self.within.weight() + self.meaning.weight()
    }
}

/// All statements of a service.
#[derive(Debug)]
pub(crate) struct StatementInterner<W, M> {
    known: Mutex<Known<W, M>>,
    hasher: RandomState,
}

#[derive(Debug)]
struct Known<W, M> {
    by_hash: HashMap<u64, Vec<Arc<SharedStatement<W, M>>>>,
    count: usize,
    weight: usize,
    /// Limit on the count before unused statements are removed: twice the count left after the last
    /// removal. The next field limits the size likewise.
    count_max: usize,
    weight_max: usize,
}

impl<W, M> Default for StatementInterner<W, M> {
    fn default() -> Self {
        let known = Known {
            by_hash: HashMap::new(),
            count: 0,
            weight: 0,
            count_max: UNUSED_MAX,
            weight_max: UNUSED_WEIGHT_MAX,
        };
        Self {
            known: Mutex::new(known),
            hasher: RandomState::new(),
        }
    }
}

impl<W: Hash + Eq + Clone + MemorySize, M: MemorySize> StatementInterner<W, M> {
    /// Returns the statement of the text. `read` analyzes it if it is new, or if the catalog has
    /// changed.
    pub(crate) fn statement(
        &self,
        text: &[u8],
        within: &W,
        catalog: u64,
        read: impl FnOnce() -> M,
    ) -> Arc<SharedStatement<W, M>> {
        let key = self.hasher.hash_one((text, within));
        let known = self.lock().find(key, text, within).map(Arc::clone);
        if let Some(known) = known.filter(|known| known.catalog == catalog) {
            return known;
        }
        // Analysis of a long text takes time, so the lock is not held.
        let meaning = read();
        self.lock().add(
            key,
            SharedStatement {
                id: 0,
                text: text.into(),
                within: within.clone(),
                meaning,
                catalog,
            },
        )
    }

    /// Returns the statement analyzed with the current catalog.
    pub(crate) fn renewed(
        &self,
        statement: &SharedStatement<W, M>,
        catalog: u64,
        read: impl FnOnce() -> M,
    ) -> Arc<SharedStatement<W, M>> {
        self.statement(&statement.text, &statement.within, catalog, read)
    }

    fn lock(&self) -> MutexGuard<'_, Known<W, M>> {
        lock(&self.known)
    }
}

impl<W: Eq, M> Known<W, M>
where
    SharedStatement<W, M>: MemorySize,
{
    fn find(&self, key: u64, text: &[u8], within: &W) -> Option<&Arc<SharedStatement<W, M>>> {
        let mut alike = self.by_hash.get(&key)?.iter();
        alike.find(|one| *one.text == *text && one.within == *within)
    }

    /// Adds an analyzed statement, unless another session was faster. An existing statement keeps
    /// its number, by which servers know it.
    fn add(&mut self, key: u64, mut new: SharedStatement<W, M>) -> Arc<SharedStatement<W, M>> {
        self.tidy();
        let known = self.find(key, &new.text, &new.within).map(Arc::clone);
        if let Some(known) = known.as_ref().filter(|known| known.catalog == new.catalog) {
            return Arc::clone(known);
        }
        let alike = self.by_hash.entry(key).or_default();
        new.id = match &known {
            Some(known) => known.id,
            None => new_id(),
        };
        if let Some(known) = known {
            alike.retain(|one| one.id != known.id);
            self.count -= 1;
            self.weight -= known.weight();
        }
        self.count += 1;
        self.weight += new.weight();
        let new = Arc::new(new);
        alike.push(Arc::clone(&new));
        new
    }

    /// Removes unused statements if a limit is reached.
    fn tidy(&mut self) {
        if self.count < self.count_max && self.weight < self.weight_max {
            return;
        }
        (self.count, self.weight) = (0, 0);
        self.by_hash.retain(|_, alike| {
            alike.retain(|one| Arc::strong_count(one) > 1);
            self.count += alike.len();
            self.weight += alike.iter().map(|one| one.weight()).sum::<usize>();
            !alike.is_empty()
        });
        self.count_max = UNUSED_MAX.max(2 * self.count);
        self.weight_max = UNUSED_WEIGHT_MAX.max(2 * self.weight);
    }
}

/// Approximate size of one client's statements; it is computed exactly only if it may exceed the
/// limit.
#[derive(Debug, Default)]
pub(crate) struct StatementBudget {
    weight: usize,
}

impl StatementBudget {
    /// Returns whether `more` bytes fit within the limit, and adds them if so.
    pub(crate) fn takes(&mut self, more: usize, has: impl FnOnce() -> usize) -> bool {
        if self.weight + more > OF_CLIENT_WEIGHT_MAX {
            self.weight = has();
        }
        let has_room = self.weight + more <= OF_CLIENT_WEIGHT_MAX;
        if has_room {
            self.weight += more;
        }
        has_room
    }
}

#[cfg(test)]
mod tests;
