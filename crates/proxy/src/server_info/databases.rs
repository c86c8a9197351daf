//! The databases that sessions are in, and their catalogs.

use std::collections::HashMap;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::sync::Notify;

use super::Catalog;

/// More are not read: what is in the others is unknown. One that nobody uses costs its name, until
/// another one needs its place.
const DATABASES_MAX: usize = 4_096;

/// So long clients wait for the first reading of their database's catalog.
pub(crate) const FIRST_READING_LIMIT: Duration = Duration::from_secs(2);

/// All databases of a service that anybody asked for.
#[derive(Debug, Default)]
pub struct Databases {
    known: ArcSwap<HashMap<Arc<str>, Arc<Database>>>,
    adding: Mutex<()>,
    bell: Arc<Notify>,
    /// Somebody reads them.
    reads: Arc<AtomicBool>,
}

/// One database.
#[derive(Debug)]
pub struct Database {
    name: Arc<str>,
    catalog: ArcSwapOption<Catalog>,
    used: AtomicBool,
    changed: AtomicBool,
    /// How often plans of before were found, or made, to be good no more.
    plans: AtomicU64,
    /// When the last reading that came to its end began.
    read_us: AtomicU64,
    bell: Arc<Notify>,
    reads: Arc<AtomicBool>,
    /// It was read, or could not be, and nothing was forgotten since.
    was_tried: AtomicBool,
    tried: Notify,
    /// How often it has become another one.
    replacements: AtomicU64,
    /// The same when the last reading began, and of the one that sessions need not wait for.
    reading: AtomicU64,
    settled: AtomicU64,
    /// Until then no reader is in it: others act on the whole of it.
    left_until_ms: AtomicU64,
    left: Notify,
}

impl Database {
    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What is known of it; `None`: nobody has read it yet, and everything is unknown.
    pub fn catalog(&self) -> Option<Arc<Catalog>> {
        let catalog = self.catalog.load_full();
        self.is_looked_at(catalog.is_some());
        catalog
    }

    /// Whether anything is. Nobody uses it by that.
    pub fn is_known(&self) -> bool {
        self.catalog.load().is_some()
    }

    /// Which state of that; zero: nothing is known. Cheaper than to have it.
    pub fn version(&self) -> u64 {
        let catalog = self.catalog.load();
        self.is_looked_at(catalog.is_some());
        catalog
            .as_ref()
            .map_or(0, |catalog| catalog.generation() + 1)
    }

    fn is_looked_at(&self, is_there: bool) {
        // Nobody used it for long, and it was thrown away.
        if !self.used.load(Relaxed) && !self.used.swap(true, Relaxed) && !is_there {
            self.bell.notify_one();
        }
    }

    /// Waits until it was read, or could not be; not at all where nobody reads it. Whoever comes in
    /// before would be taken to leave nothing behind by functions.
    pub async fn first_reading(&self) {
        let tried = self.tried.notified();
        let mut tried = std::pin::pin!(tried);
        // From here on no reading is missed.
        tried.as_mut().enable();
        // It may be one that nobody used for long.
        let is_known = self.catalog().is_some() || self.was_tried.load(Acquire);
        if !is_known && self.reads.load(Relaxed) {
            tried.await;
        }
    }

    /// A reading has come to its end, or to none.
    pub fn was_tried(&self) {
        let reading = self.reading.load(Acquire);
        if !self.is_of_this(reading) {
            return;
        }
        self.settled.store(reading, Release);
        self.was_tried.store(true, Release);
        self.tried.notify_waiters();
    }

    /// Nobody uses it: who comes in next waits for a new reading.
    pub fn forget(&self) {
        self.was_tried.store(false, Release);
        self.learn(None);
    }

    /// A session has changed the catalog: it is read anew soon.
    pub fn changed(&self) {
        if !self.changed.swap(true, Relaxed) {
            self.bell.notify_one();
        }
    }

    /// Its name is another database's, or nobody's: nothing holds that was known of it.
    pub fn replaced(&self) {
        self.replacements.fetch_add(1, Release);
        self.forget();
        self.plans_changed();
        // It is read if somebody is in it.
        self.used.store(false, Relaxed);
        self.changed();
        // A reading that is under way is of the former one.
        self.leave_until(0);
    }

    /// Whether a reading is awaited by sessions that were in the former one of its name.
    pub fn is_awaited(&self) -> bool {
        self.settled.load(Acquire) != self.replacements.load(Acquire)
    }

    /// They have waited long enough.
    pub(crate) fn waits_no_more(&self) {
        let replacements = self.replacements.load(Acquire);
        self.settled.store(replacements, Release);
    }

    /// No reader may be in it until then: somebody drops, renames or copies it.
    pub fn leave_until(&self, until_ms: u64) {
        self.left_until_ms.store(until_ms, Relaxed);
        self.left.notify_waiters();
    }

    /// See [`Database::leave_until`].
    pub fn left_until_ms(&self) -> u64 {
        self.left_until_ms.load(Relaxed)
    }

    /// Ends when a reader is to leave.
    pub async fn leave(&self) {
        self.left.notified().await;
    }

    /// Which plans are good: what is prepared from now on must not be taken for what was before.
    pub fn plans(&self) -> u64 {
        self.plans.load(Acquire)
    }

    /// What was prepared until now may be planned otherwise, or have other types.
    pub fn plans_changed(&self) {
        self.plans.fetch_add(1, Release);
    }

    /// Whether a session has looked since the last call.
    pub fn take_used(&self) -> bool {
        self.used.swap(false, Relaxed)
    }

    /// The same, and it stays so.
    pub fn is_used(&self) -> bool {
        self.used.load(Relaxed)
    }

    /// Whether a session has changed the catalog.
    pub fn is_changed(&self) -> bool {
        self.changed.load(Relaxed)
    }

    /// From here on changes count anew: to be called before it is read.
    pub fn begin_reading(&self) {
        let replacements = self.replacements.load(Acquire);
        self.reading.store(replacements, Release);
        self.changed.store(false, Relaxed);
    }

    /// A reading that began then has come to its end, and is known to [`Database::learn`].
    pub fn was_read(&self, began_us: u64) {
        self.read_us.fetch_max(began_us, Relaxed);
    }

    /// Whether what was changed in it until then is known.
    pub fn knows_until(&self, us: u64) -> bool {
        self.read_us.load(Relaxed) > us
    }

    /// It was read; `None`: it cannot be, or nobody uses it, and nothing is known of it.
    pub fn learn(&self, catalog: Option<Arc<Catalog>>) {
        let reading = self.reading.load(Acquire);
        if catalog.is_none() || self.is_of_this(reading) {
            self.catalog.store(catalog);
        }
    }

    /// Whether what was read then was not another database of the name.
    fn is_of_this(&self, reading: u64) -> bool {
        reading == self.replacements.load(Acquire)
    }
}

impl Databases {
    /// One that was asked for before.
    pub fn get(&self, name: &str) -> Option<Arc<Database>> {
        self.known.load().get(name).cloned()
    }

    /// One that is read from now on, since it is there: somebody has been in it. `None`: too many
    /// are used.
    pub fn want(&self, name: &str) -> Option<Arc<Database>> {
        if let Some(known) = self.get(name) {
            return Some(known);
        }
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = HashMap::clone(&self.known.load());
        if known.len() >= DATABASES_MAX && !known.contains_key(name) {
            // Two have it: the list, and this copy of it.
            known.retain(|_, database| Arc::strong_count(database) > 2);
            if known.len() >= DATABASES_MAX {
                return None;
            }
        }
        let added = known.entry(name.into()).or_insert_with_key(|name| {
            Arc::new(Database {
                name: Arc::clone(name),
                catalog: ArcSwapOption::empty(),
                used: AtomicBool::new(true),
                changed: AtomicBool::new(false),
                plans: AtomicU64::new(0),
                read_us: AtomicU64::new(0),
                bell: Arc::clone(&self.bell),
                reads: Arc::clone(&self.reads),
                was_tried: AtomicBool::new(false),
                tried: Notify::new(),
                replacements: AtomicU64::new(0),
                reading: AtomicU64::new(0),
                settled: AtomicU64::new(0),
                left_until_ms: AtomicU64::new(0),
                left: Notify::new(),
            })
        });
        let added = Arc::clone(added);
        self.known.store(Arc::new(known));
        self.bell.notify_one();
        Some(added)
    }

    /// From now on somebody reads them.
    pub fn expect(&self) {
        self.reads.store(true, Relaxed);
    }

    /// All that are read.
    pub fn all(&self) -> Vec<Arc<Database>> {
        self.known.load().values().cloned().collect()
    }

    /// Ends when one was added, changed or used again since the last call; for one caller.
    pub async fn news(&self) {
        self.bell.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_of_the_former_database_of_a_name_is_not_taken_for_the_next_one() {
        let databases = Databases::default();
        let database = databases.want("shop").unwrap();
        let catalog = || Some(Arc::new(super::super::Builder::default().build(7)));
        database.begin_reading();
        database.replaced();
        database.learn(catalog());
        database.was_tried();
        assert!(database.is_awaited() && !database.is_known());
        database.begin_reading();
        database.learn(catalog());
        database.was_tried();
        assert!(!database.is_awaited() && database.is_known());
        database.replaced();
        assert!(database.is_awaited() && !database.is_known());
    }

    #[test]
    fn a_database_that_nobody_uses_makes_room_for_another() {
        let databases = Databases::default();
        let used = databases.want("used").unwrap();
        for number in 0..DATABASES_MAX {
            assert!(databases.want(&format!("gone {number}")).is_some());
        }
        assert!(Arc::ptr_eq(&used, &databases.want("used").unwrap()));
        let others = 0..DATABASES_MAX;
        let others: Vec<_> = others.map(|one| databases.want(&one.to_string())).collect();
        assert!(databases.want("one more").is_none());
        drop(others);
        assert!(databases.want("one more").is_some());
    }
}
