//! Pauses databases for an operator, and retires pools whose connections must be reopened.

use std::collections::{BTreeSet, HashMap};
use std::sync::MutexGuard;

use evenkeel_engine::clock;
use evenkeel_engine::panics::lock;
use evenkeel_policy::connection_pool::{WaitTicket, WorkerTask};

use super::{NameId, PoolHandle, PoolRegistry};

/// Databases that an operator has paused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Paused {
    /// True if all databases are paused.
    pub all: bool,
    /// Paused databases by name.
    pub databases: BTreeSet<String>,
}

impl Paused {
    /// Returns whether nothing is paused.
    pub fn is_empty(&self) -> bool {
        !self.all && self.databases.is_empty()
    }
}

impl PoolRegistry {
    /// Returns what is paused now.
    pub(crate) fn paused(&self) -> Paused {
        self.lock_paused().clone()
    }

    /// Makes clients of a database wait; `None`: all clients.
    pub(crate) fn pause(&self, database: Option<&str>) {
        let mut paused = self.lock_paused();
        match database {
            Some(name) => {
                let number = self.number(name.as_bytes());
                self.pools.pause(number.get());
                self.lock_numbers().insert(name.to_owned(), number);
                paused.databases.insert(name.to_owned());
            }
            None => {
                self.pools.pause_all();
                paused.all = true;
            }
        }
    }

    /// Ends a pause; `None`: every pause. Returns false if there was none.
    pub(crate) fn resume(&self, database: Option<&str>, tasks: &mut Vec<WorkerTask>) -> bool {
        let mut paused = self.lock_paused();
        let now_ms = clock::now_ms();
        match database {
            Some(name) => {
                if let Some(number) = self.lock_numbers().remove(name) {
                    self.pools.resume(number.get(), now_ms, tasks);
                }
                paused.databases.remove(name)
            }
            None => {
                self.pools.resume_all(now_ms, tasks);
                self.lock_numbers().clear();
                !std::mem::take(&mut *paused).is_empty()
            }
        }
    }

    /// Retires pools: they get no new clients, and close their connections when they are free.
    /// Returns the tickets of clients that waited for one and must repeat the request.
    pub(crate) fn retire_pools(&self, is_meant: impl Fn(&PoolHandle) -> bool) -> Vec<WaitTicket> {
        let all = self.all();
        let meant = all.iter().filter(|one| is_meant(one));
        meant.flat_map(|one| self.pools.retire(&one.pool)).collect()
    }

    fn lock_numbers(&self) -> MutexGuard<'_, HashMap<String, NameId>> {
        lock(&self.paused_numbers)
    }

    fn lock_paused(&self) -> MutexGuard<'_, Paused> {
        lock(&self.paused)
    }
}
