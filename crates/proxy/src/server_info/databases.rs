//! Keeps the databases of sessions, and their catalogs.

use std::collections::HashMap;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use evenkeel_engine::panics::lock;
use evenkeel_sql::catalog::Catalog;
use event_listener::Event;

use super::signal::Signal;

/// Maximum number of databases whose catalogs are read; all others are unknown. An unused entry
/// costs only its name, until another database needs its slot.
const DATABASES_MAX: usize = 4_096;

/// Maximum wait of clients for the first reading of their database's catalog.
pub(crate) const FIRST_READING_LIMIT: Duration = Duration::from_secs(2);

/// All databases of a service that sessions have requested.
#[derive(Debug, Default)]
pub struct Databases {
    known: ArcSwap<HashMap<Arc<str>, Arc<Database>>>,
    add_lock: Mutex<()>,
    change_notify: Arc<Signal>,
    /// True if there is a reader.
    reads: Arc<AtomicBool>,
}

/// One database.
#[derive(Debug)]
pub struct Database {
    name: Arc<str>,
    catalog: ArcSwapOption<Catalog>,
    used: AtomicBool,
    changed: AtomicBool,
    /// Number of times that earlier plans may have become invalid.
    plans: AtomicU64,
    /// Time when the last completed reading began, microseconds.
    read_us: AtomicU64,
    /// Time when a session last changed functions, microseconds; zero: never.
    functions_changed_us: AtomicU64,
    change_notify: Arc<Signal>,
    reads: Arc<AtomicBool>,
    /// True if a reading has ended or failed, and nothing was discarded since.
    has_been_read: AtomicBool,
    reading_ended: Event,
    /// Number of times that another database took over the name.
    replacements: AtomicU64,
    /// Value of `replacements` when the last reading began, and the one that sessions need not wait
    /// for.
    reading: AtomicU64,
    settled_replacement: AtomicU64,
    /// Until then no reader may be in the database, because a statement requires that.
    closed_until_ms: AtomicU64,
    closed: Event,
}

impl Database {
    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the catalog; `None`: not read yet, and everything is unknown.
    pub fn catalog(&self) -> Option<Arc<Catalog>> {
        let catalog = self.catalog.load_full();
        self.mark_used(catalog.is_some());
        catalog
    }

    /// Returns whether the catalog is known, without counting as use.
    pub fn is_known(&self) -> bool {
        self.catalog.load().is_some()
    }

    /// Returns the version of the catalog, which is cheaper than the catalog; zero: unknown.
    pub fn version(&self) -> u64 {
        let catalog = self.catalog.load();
        self.mark_used(catalog.is_some());
        catalog
            .as_ref()
            .map_or(0, |catalog| catalog.generation() + 1)
    }

    fn mark_used(&self, has_catalog: bool) {
        // Unused for a long time, so that its catalog was discarded.
        if !self.used.load(Relaxed) && !self.used.swap(true, Relaxed) && !has_catalog {
            self.change_notify.set();
        }
    }

    /// Waits until the catalog was read, or could not be; returns immediately if there is no
    /// reader. Without it, a session would be taken to leave no state through functions.
    pub async fn wait_for_first_reading(&self) {
        // The catalog may have been discarded as unused.
        let is_known = || self.catalog().is_some() || self.has_been_read.load(Acquire);
        if is_known() || !self.reads.load(Relaxed) {
            return;
        }
        let reading_ended = self.reading_ended.listen();
        // From here on no reading is missed.
        if !is_known() {
            reading_ended.await;
        }
    }

    /// Reports that a reading has ended, or failed.
    pub fn end_reading(&self) {
        let reading = self.reading.load(Acquire);
        if !self.is_current(reading) {
            return;
        }
        self.settled_replacement.store(reading, Release);
        self.has_been_read.store(true, Release);
        self.reading_ended.notify(usize::MAX);
    }

    /// Discards the catalog as unused: the next session waits for a new reading.
    pub fn forget(&self) {
        self.has_been_read.store(false, Release);
        self.set_catalog(None);
    }

    /// Reports that a session has changed the catalog, which is read again soon.
    pub fn changed(&self) {
        if !self.changed.swap(true, Relaxed) {
            self.change_notify.set();
        }
    }

    /// Reports that a session has changed functions at this time, in microseconds.
    pub fn functions_changed(&self, us: u64) {
        self.functions_changed_us.fetch_max(us, Release);
    }

    /// Returns whether functions were changed since the catalog was read.
    pub fn are_functions_changed(&self) -> bool {
        let changed_us = self.functions_changed_us.load(Acquire);
        changed_us > 0 && !self.is_read_since(changed_us)
    }

    /// Discards everything known, because the name belongs to another database, or to none.
    pub fn replaced(&self) {
        self.replacements.fetch_add(1, Release);
        self.forget();
        self.plans_changed();
        // Read again only if a session is in the database.
        self.used.store(false, Relaxed);
        self.changed();
        // A reading in progress concerns the predecessor.
        self.close_until(0);
    }

    /// Returns whether sessions of the name's previous database wait for a reading.
    pub fn is_awaited(&self) -> bool {
        self.settled_replacement.load(Acquire) != self.replacements.load(Acquire)
    }

    /// Ends that wait.
    pub(crate) fn stop_awaiting(&self) {
        let replacements = self.replacements.load(Acquire);
        self.settled_replacement.store(replacements, Release);
    }

    /// Keeps readers out until the given time: a statement drops, renames or copies the database.
    pub fn close_until(&self, until_ms: u64) {
        self.closed_until_ms.store(until_ms, Relaxed);
        self.closed.notify(usize::MAX);
    }

    /// See [`Database::close_until`].
    pub fn closed_until_ms(&self) -> u64 {
        self.closed_until_ms.load(Relaxed)
    }

    /// Waits until a reader must leave.
    pub async fn closing(&self) {
        self.closed.listen().await;
    }

    /// Returns the version of plans: statements prepared from now on differ from those of other
    /// versions.
    pub fn plans(&self) -> u64 {
        self.plans.load(Acquire)
    }

    /// Reports that earlier prepared statements may have other plans or types.
    pub fn plans_changed(&self) {
        self.plans.fetch_add(1, Release);
    }

    /// Returns whether a session has used it since the last call.
    pub fn take_used(&self) -> bool {
        self.used.swap(false, Relaxed)
    }

    /// Returns whether a session has used it, without resetting that.
    pub fn is_used(&self) -> bool {
        self.used.load(Relaxed)
    }

    /// Returns whether a session has changed the catalog.
    pub fn is_changed(&self) -> bool {
        self.changed.load(Relaxed)
    }

    /// Starts counting changes from zero; must be called before a reading.
    pub fn begin_reading(&self) {
        let replacements = self.replacements.load(Acquire);
        self.reading.store(replacements, Release);
        self.changed.store(false, Relaxed);
    }

    /// Records the completion of a reading that began then and was passed to
    /// [`Database::set_catalog`].
    pub fn record_reading(&self, began_us: u64) {
        self.read_us.fetch_max(began_us, Relaxed);
    }

    /// Returns whether all changes until then are known.
    pub fn is_read_since(&self, us: u64) -> bool {
        self.read_us.load(Relaxed) > us
    }

    /// Stores the result of a reading; `None`: it cannot be read, or is not used, and is unknown.
    pub fn set_catalog(&self, catalog: Option<Arc<Catalog>>) {
        let reading = self.reading.load(Acquire);
        if catalog.is_none() || self.is_current(reading) {
            self.catalog.store(catalog);
        }
    }

    /// Returns whether that reading concerned the current database of the name.
    fn is_current(&self, reading: u64) -> bool {
        reading == self.replacements.load(Acquire)
    }
}

impl Databases {
    /// Returns a database that was requested before.
    pub fn get(&self, name: &str) -> Option<Arc<Database>> {
        self.known.load().get(name).cloned()
    }

    /// Adds an existing database, which is read from now on. `None`: too many are in use.
    pub fn get_or_add(&self, name: &str) -> Option<Arc<Database>> {
        if let Some(known) = self.get(name) {
            return Some(known);
        }
        let _add_guard = lock(&self.add_lock);
        let mut known = HashMap::clone(&self.known.load());
        if known.len() >= DATABASES_MAX && !known.contains_key(name) {
            // Two references exist: the list's, and this copy's.
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
                functions_changed_us: AtomicU64::new(0),
                change_notify: Arc::clone(&self.change_notify),
                reads: Arc::clone(&self.reads),
                has_been_read: AtomicBool::new(false),
                reading_ended: Event::new(),
                replacements: AtomicU64::new(0),
                reading: AtomicU64::new(0),
                settled_replacement: AtomicU64::new(0),
                closed_until_ms: AtomicU64::new(0),
                closed: Event::new(),
            })
        });
        let added = Arc::clone(added);
        self.known.store(Arc::new(known));
        self.change_notify.set();
        Some(added)
    }

    /// Announces a reader.
    pub fn expect(&self) {
        self.reads.store(true, Relaxed);
    }

    /// Returns all databases that are read.
    pub fn all(&self) -> Vec<Arc<Database>> {
        self.known.load().values().cloned().collect()
    }

    /// Waits until one was added, changed or used again since the last call; for one caller.
    pub async fn news(&self) {
        self.change_notify.wait().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_of_the_former_database_of_a_name_is_not_taken_for_the_next_one() {
        let databases = Databases::default();
        let database = databases.get_or_add("shop").unwrap();
        let catalog = || Some(Arc::new(evenkeel_sql::catalog::Builder::default().build(7)));
        database.begin_reading();
        database.replaced();
        database.set_catalog(catalog());
        database.end_reading();
        assert!(database.is_awaited() && !database.is_known());
        database.begin_reading();
        database.set_catalog(catalog());
        database.end_reading();
        assert!(!database.is_awaited() && database.is_known());
        database.replaced();
        assert!(database.is_awaited() && !database.is_known());
    }

    #[test]
    fn a_database_that_nobody_uses_makes_room_for_another() {
        let databases = Databases::default();
        let used = databases.get_or_add("used").unwrap();
        for number in 0..DATABASES_MAX {
            assert!(databases.get_or_add(&format!("gone {number}")).is_some());
        }
        assert!(Arc::ptr_eq(&used, &databases.get_or_add("used").unwrap()));
        let others = 0..DATABASES_MAX;
        let others: Vec<_> = others
            .map(|one| databases.get_or_add(&one.to_string()))
            .collect();
        assert!(databases.get_or_add("one more").is_none());
        drop(others);
        assert!(databases.get_or_add("one more").is_some());
    }
}
