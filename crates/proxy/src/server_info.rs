//! Provides sessions with information about a service's servers that the control plane collects:
//! catalogs, positions, logins. Sessions never query a server themselves.

mod auth_lookup_queue;
mod databases;
mod positions;
mod signal;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use arc_swap::{ArcSwapOption, Guard};
use evenkeel_engine::panics::lock;
use evenkeel_policy::accounts::{LookupError, MysqlAuthRecords, PostgresAuthRecord};
use evenkeel_policy::causality::Writes;
use evenkeel_sql::catalog::Catalog;
use evenkeel_sql::routines::Routines;
use event_listener::Event;

pub use auth_lookup_queue::LookupRequest;
pub(crate) use databases::FIRST_READING_LIMIT;
pub use databases::{Database, Databases};
pub use positions::{PositionTracker, Positions, ReplicaProgress};

use auth_lookup_queue::LookupQueue;
use signal::Signal;

/// Reason why no server of a service can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServersFault {
    /// Reasons by server.
    pub why: Arc<str>,
    /// True if only a change of the configuration or of a server helps, so that it is useless to
    /// wait.
    pub is_lasting: bool,
}

/// Server info of one service, shared by all workers.
#[derive(Debug)]
pub struct ServerInfo {
    databases: Databases,
    track: PositionTracker,
    logins: LookupQueue<PostgresAuthRecord>,
    accounts: LookupQueue<MysqlAuthRecords>,
    routines: ArcSwapOption<Routines>,
    routines_changed: Signal,
    /// True while the first reading is in progress.
    routines_pending: AtomicBool,
    routines_read: Event,
    problems: Mutex<Vec<String>>,
    fault: Mutex<Option<ServersFault>>,
    role_checks: Mutex<BTreeSet<u64>>,
    role_check_due: Signal,
}

impl ServerInfo {
    /// Creates an empty server info that assumes that other writers were active until now.
    #[must_use]
    pub fn new(workers: usize, now_us: u64) -> Arc<Self> {
        Arc::new(Self {
            databases: Databases::default(),
            track: PositionTracker::new(workers, now_us),
            logins: LookupQueue::default(),
            accounts: LookupQueue::default(),
            routines: ArcSwapOption::empty(),
            routines_changed: Signal::default(),
            routines_pending: AtomicBool::new(false),
            routines_read: Event::new(),
            problems: Mutex::default(),
            fault: Mutex::default(),
            role_checks: Mutex::default(),
            role_check_due: Signal::default(),
        })
    }

    /// Returns the databases whose catalogs are kept. A session should keep its [`Database`].
    pub fn databases(&self) -> &Databases {
        &self.databases
    }

    /// Returns a database's catalog; `None`: not read yet, and everything is unknown.
    pub fn catalog(&self, database: &str) -> Option<Arc<Catalog>> {
        self.databases.get(database)?.catalog()
    }

    /// Reports that a session has changed the catalog, which is read again soon.
    pub fn catalog_changed(&self, database: &str) {
        if let Some(database) = self.databases.get(database) {
            database.changed();
        }
    }

    /// Returns the routines, views and tables of MySQL servers; `None`: not read yet, and
    /// everything is unknown.
    pub fn routines(&self) -> Option<Arc<Routines>> {
        self.routines.load_full()
    }

    /// Returns the version of the routines, which is cheaper than the routines; zero: unknown.
    pub fn routines_version(&self) -> u64 {
        let routines = self.routines.load();
        routines
            .as_ref()
            .map_or(0, |routines| routines.generation())
    }

    /// Reports that a session has changed MySQL routines, views or tables, so that they are read
    /// again soon.
    pub fn routines_changed(&self) {
        self.routines_changed.set();
    }

    /// Waits until the routines should be read again; for the control plane, one caller at a time.
    pub async fn wait_for_routines_change(&self) {
        self.routines_changed.wait().await;
    }

    /// Stores the result of reading the routines; `None`: they cannot be read, and are unknown.
    pub fn set_routines(&self, routines: Option<Arc<Routines>>) {
        self.routines.store(routines);
        self.routines_pending.store(false, Ordering::Release);
        self.routines_read.notify(usize::MAX);
    }

    /// Announces the first reading of MySQL routines.
    pub fn expect_routines(&self) {
        let is_first = self.routines.load().is_none();
        self.routines_pending.store(is_first, Ordering::Release);
    }

    /// Waits for the end of the first reading of MySQL routines, if one is due. Without it, a
    /// session would be taken to leave no state through triggers, and any state through functions.
    pub async fn wait_for_routines(&self) {
        if !self.routines_pending.load(Ordering::Acquire) {
            return;
        }
        let read = self.routines_read.listen();
        // From here on no reading is missed.
        if self.routines_pending.load(Ordering::Acquire) {
            read.await;
        }
    }

    /// Returns the facts that the servers do not reveal, for the status.
    pub fn problems(&self) -> Vec<String> {
        lock(&self.problems).clone()
    }

    /// Replaces all problems.
    pub fn set_problems(&self, problems: Vec<String>) {
        *lock(&self.problems) = problems;
    }

    /// Returns why no server can be used. `None`: one can, or the reason is not known yet.
    pub fn fault(&self) -> Option<ServersFault> {
        lock(&self.fault).clone()
    }

    /// Replaces the reason why no server can be used.
    pub fn set_fault(&self, fault: Option<ServersFault>) {
        *lock(&self.fault) = fault;
    }

    /// Returns the positions of the primary and the replicas: one snapshot, replaced as a whole.
    /// Each decision uses one snapshot only.
    pub fn positions(&self) -> Guard<Arc<Positions>> {
        self.track.positions()
    }

    /// Returns the epoch of the current primary; see `policy::causality`.
    pub fn epoch(&self) -> u64 {
        self.track.positions().epoch
    }

    /// Records that a worker has received the reply to a write, before the reply is forwarded.
    pub fn record_write(&self, worker: usize, now_us: u64) {
        self.track.record_write(worker, now_us);
    }

    /// Returns the times of the workers' last writes.
    pub fn writes(&self) -> &Writes {
        self.track.writes()
    }

    /// Returns the control plane's side of the positions.
    pub fn track(&self) -> &PositionTracker {
        &self.track
    }

    /// Returns a user's authentication record from a server, queried after this call.
    ///
    /// # Errors
    /// If there is no such user, or no server can be queried.
    pub async fn login(&self, user: &str) -> Result<PostgresAuthRecord, LookupError> {
        self.logins.look_up(user).await
    }

    /// Waits for the next request for an authentication record; for the control plane. Skips
    /// requests whose session has ended.
    pub async fn next_login(&self) -> LookupRequest<PostgresAuthRecord> {
        self.logins.next().await
    }

    /// Returns a user's account rows from a MySQL or MariaDB server, queried after this call. A
    /// result without rows is valid: there is no such user.
    ///
    /// # Errors
    /// If no server can be queried.
    pub async fn accounts(&self, user: &str) -> Result<MysqlAuthRecords, LookupError> {
        self.accounts.look_up(user).await
    }

    /// Waits for the next request for account rows, like [`Self::next_login`].
    pub async fn next_accounts(&self) -> LookupRequest<MysqlAuthRecords> {
        self.accounts.next().await
    }

    /// Requests an immediate check of a server's role, because traffic contradicts the known role
    /// (25006, 57P01, a broken connection).
    pub fn request_role_check(&self, server_id: u64) {
        let mut pending = lock(&self.role_checks);
        if pending.insert(server_id) {
            self.role_check_due.set();
        }
    }

    /// Waits for servers whose role sessions doubt, without duplicates; for the control plane, one
    /// caller at a time.
    pub async fn next_role_checks(&self) -> BTreeSet<u64> {
        loop {
            let pending = {
                let mut pending = lock(&self.role_checks);
                std::mem::take(&mut *pending)
            };
            if !pending.is_empty() {
                return pending;
            }
            self.role_check_due.wait().await;
        }
    }
}
