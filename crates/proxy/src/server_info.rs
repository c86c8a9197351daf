//! What the control plane learns of a database service's servers, for the sessions: catalogs,
//! positions, logins. Sessions read it and say what they need; they never ask a server themselves.

mod accounts;
mod catalog;
mod databases;
mod logins;
mod positions;
pub mod routines;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwapOption, Guard};
use evenkeel_policy::causality::Writes;
use tokio::sync::Notify;

pub use accounts::{AuthMethod, MysqlAuthRecord, MysqlAuthRecords, TlsRequirement};
pub use catalog::{Builder, Catalog, Changes, Function, Relation, RelationKind};
pub(crate) use databases::FIRST_READING_LIMIT;
pub use databases::{Database, Databases};
pub use logins::{LookupError, LookupRequest, PostgresAuthRecord, Verifier};
pub use positions::{PositionTracker, Positions, ReplicaProgress};
pub use routines::Routines;

use logins::LookupQueue;

/// One service's, shared by all workers.
#[derive(Debug)]
pub struct ServerInfo {
    databases: Databases,
    track: PositionTracker,
    logins: LookupQueue<PostgresAuthRecord>,
    accounts: LookupQueue<MysqlAuthRecords>,
    routines: ArcSwapOption<Routines>,
    routines_changed: Notify,
    /// Their first reading is under way.
    routines_pending: AtomicBool,
    routines_read: Notify,
    problems: Mutex<Vec<String>>,
    role_checks: Mutex<BTreeSet<u64>>,
    doubted: Notify,
}

impl ServerInfo {
    /// Nothing is known yet, but that others may have written until now.
    #[must_use]
    pub fn new(workers: usize, now_us: u64) -> Arc<Self> {
        Arc::new(Self {
            databases: Databases::default(),
            track: PositionTracker::new(workers, now_us),
            logins: LookupQueue::default(),
            accounts: LookupQueue::default(),
            routines: ArcSwapOption::empty(),
            routines_changed: Notify::new(),
            routines_pending: AtomicBool::new(false),
            routines_read: Notify::new(),
            problems: Mutex::default(),
            role_checks: Mutex::default(),
            doubted: Notify::new(),
        })
    }

    /// The databases whose catalogs are kept. A session does best to hold on to its [`Database`].
    pub fn databases(&self) -> &Databases {
        &self.databases
    }

    /// What is known of a database; `None`: nobody has read it yet, and everything is unknown.
    pub fn catalog(&self, database: &str) -> Option<Arc<Catalog>> {
        self.databases.get(database)?.catalog()
    }

    /// A session has changed the catalog: it is read anew soon.
    pub fn catalog_changed(&self, database: &str) {
        if let Some(database) = self.databases.get(database) {
            database.changed();
        }
    }

    /// MySQL: what is known of the servers' routines, views and tables; `None`: nobody has read
    /// them yet, and everything is unknown.
    pub fn routines(&self) -> Option<Arc<Routines>> {
        self.routines.load_full()
    }

    /// Which state of that; zero: nothing is known. Cheaper than to have it.
    pub fn routines_version(&self) -> u64 {
        let routines = self.routines.load();
        routines
            .as_ref()
            .map_or(0, |routines| routines.generation())
    }

    /// MySQL: a session has changed something among them: they are read anew soon.
    pub fn routines_changed(&self) {
        self.routines_changed.notify_one();
    }

    /// Waits until they are worth reading anew; for the control plane, one caller at a time.
    pub async fn routines_news(&self) {
        self.routines_changed.notified().await;
    }

    /// They were read; `None`: they cannot be, and nothing is known of them.
    pub fn learn_routines(&self, routines: Option<Arc<Routines>>) {
        self.routines.store(routines);
        self.routines_pending.store(false, Ordering::Release);
        self.routines_read.notify_waiters();
    }

    /// MySQL: they are going to be read for the first time.
    pub fn expect_routines(&self) {
        let is_first = self.routines.load().is_none();
        self.routines_pending.store(is_first, Ordering::Release);
    }

    /// MySQL: waits until they were read for the first time, or cannot be; not at all where nobody
    /// reads them. Whoever comes in before would be taken to leave nothing behind by triggers, and
    /// anything by functions.
    pub async fn routines_expected(&self) {
        let read = self.routines_read.notified();
        let mut read = std::pin::pin!(read);
        // From here on no reading is missed.
        read.as_mut().enable();
        if self.routines_pending.load(Ordering::Acquire) {
            read.await;
        }
    }

    /// What the servers do not let us know, for the status.
    pub fn problems(&self) -> Vec<String> {
        self.problems
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// All of it, as it is now.
    pub fn set_problems(&self, problems: Vec<String>) {
        *self.problems.lock().unwrap_or_else(PoisonError::into_inner) = problems;
    }

    /// Where the primary and the replicas are: one picture, replaced as a whole. A decision looks
    /// at one picture only.
    pub fn positions(&self) -> Guard<Arc<Positions>> {
        self.track.positions()
    }

    /// The present primary's time; see `policy::causality`.
    pub fn epoch(&self) -> u64 {
        self.track.positions().epoch
    }

    /// A write's answer has come to a worker, and is not sent on yet.
    pub fn wrote(&self, worker: usize, now_us: u64) {
        self.track.wrote(worker, now_us);
    }

    /// When workers wrote last.
    pub fn writes(&self) -> &Writes {
        self.track.writes()
    }

    /// The control plane's side of the positions.
    pub fn track(&self) -> &PositionTracker {
        &self.track
    }

    /// What a server has of a user who wants to log in, asked for after this call.
    ///
    /// # Errors
    /// If there is no such user, or nobody can tell.
    pub async fn login(&self, user: &str) -> Result<PostgresAuthRecord, LookupError> {
        self.logins.ask(user).await
    }

    /// The next request for a login; for the control plane. Those who went meanwhile are left out.
    pub async fn next_login(&self) -> LookupRequest<PostgresAuthRecord> {
        self.logins.next().await
    }

    /// What a MySQL or MariaDB server has of a user who wants to log in, asked for after this call.
    /// An answer without rows is one too: there is no such user.
    ///
    /// # Errors
    /// If nobody can tell.
    pub async fn accounts(&self, user: &str) -> Result<MysqlAuthRecords, LookupError> {
        self.accounts.ask(user).await
    }

    /// The next request for a user's account rows; for the control plane, as [`Self::next_login`].
    pub async fn next_accounts(&self) -> LookupRequest<MysqlAuthRecords> {
        self.accounts.next().await
    }

    /// Something in the traffic says that a server's role is not what was thought (25006, 57P01, a
    /// broken connection): it is asked at once.
    pub fn request_role_check(&self, server_id: u64) {
        let mut doubts = self
            .role_checks
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if doubts.insert(server_id) {
            self.doubted.notify_one();
        }
    }

    /// The servers that sessions doubt, each once; for the control plane, one caller at a time.
    pub async fn next_role_checks(&self) -> BTreeSet<u64> {
        loop {
            let doubts = {
                let mut doubts = self
                    .role_checks
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                std::mem::take(&mut *doubts)
            };
            if !doubts.is_empty() {
                return doubts;
            }
            self.doubted.notified().await;
        }
    }
}
