//! Statistics of a service with a database protocol: each worker counts separately, and readers sum
//! up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use evenkeel_engine::clock;
use evenkeel_policy::pins::Pin;

use crate::counters::Histogram;
use crate::counters::work::{TIMES_US, WorkCounters};
use crate::service::activity::SessionActivity;
use crate::service::database::{DatabaseService, Paused};
use crate::upstream::pool_registry::PoolRegistry;

pub use crate::counters::work::LocalCounter;

/// A pool of server connections.
#[derive(Debug, Clone)]
pub struct PoolInfo {
    /// User name of the clients.
    pub user: String,
    /// Database name.
    pub database: String,
    /// Server name.
    pub server: Arc<str>,
    /// Number of connections, including those that are opening or closing.
    pub connections: u32,
    /// Number of idle connections.
    pub idle: u32,
    /// Number of opening connections.
    pub opening: u32,
    /// Number of clients that wait for a connection.
    pub waiting: usize,
    /// Longest wait of a queued client, in milliseconds.
    pub longest_wait_ms: u64,
}

impl PoolRegistry {
    /// Returns all pools, one entry for a user in a database at a server.
    pub(crate) fn describe(&self) -> Vec<PoolInfo> {
        let now_ms = clock::now_ms();
        let mut pools = BTreeMap::new();
        for stats in self.pools.stats() {
            let Some(pool_handle) = self.pool_handle(&stats.key) else {
                continue;
            };
            let (pool_user, server) = (&pool_handle.pool_user, &pool_handle.server);
            let name = Arc::clone(&server.name);
            let key = (stats.key.database, stats.key.user, name);
            // There are two for a while after a change of the password, or after a server has
            // returned.
            let pool = pools.entry(key).or_insert_with(|| PoolInfo {
                user: pool_user.user.to_string(),
                database: pool_user.database.to_string(),
                server: Arc::clone(&server.name),
                connections: 0,
                idle: 0,
                opening: 0,
                waiting: 0,
                longest_wait_ms: 0,
            });
            let since_ms = stats.waiting_since_ms.unwrap_or(now_ms);
            pool.connections += stats.connections;
            pool.idle += stats.idle;
            pool.opening += stats.opening;
            pool.waiting += stats.waiting;
            pool.longest_wait_ms = pool.longest_wait_ms.max(now_ms.saturating_sub(since_ms));
        }
        pools.into_values().collect()
    }
}

impl DatabaseService {
    /// Returns all pools, one entry for a user in a database at a server.
    pub fn pools(&self) -> Vec<PoolInfo> {
        self.pool_registry.describe()
    }

    /// Returns what an operator has paused.
    pub fn paused(&self) -> Paused {
        self.pool_registry.paused()
    }
}

/// Statistics of one service at one worker.
#[derive(Debug)]
#[repr(align(64))]
pub struct ServiceStats {
    /// Completed queries and batches.
    pub queries: LocalCounter,
    /// Ended transactions, including those of a single query.
    pub transactions: LocalCounter,
    /// Requests sent to replicas.
    pub on_replicas: LocalCounter,
    /// Requests retried on another server after a failure or a refusal.
    pub rescued: LocalCounter,
    /// Clients whose wait for a connection ended without one.
    pub timed_out: LocalCounter,
    /// Transactions lost with their server.
    pub transactions_lost: LocalCounter,
    /// Rejected logins.
    pub refused_logins: LocalCounter,
    /// Waits for a connection, microseconds, without those of zero length.
    pub wait_us: Histogram,
    /// Time from the first byte of a query to the end of its reply, microseconds.
    pub query_us: Histogram,
    /// Time from the beginning of a transaction to its end, microseconds.
    pub transaction_us: Histogram,
    /// Activity of its clients.
    pub activities: ActivityCounts,
}

impl ServiceStats {
    pub(crate) fn new() -> Self {
        Self {
            queries: LocalCounter::default(),
            transactions: LocalCounter::default(),
            on_replicas: LocalCounter::default(),
            rescued: LocalCounter::default(),
            timed_out: LocalCounter::default(),
            transactions_lost: LocalCounter::default(),
            refused_logins: LocalCounter::default(),
            wait_us: Histogram::new(TIMES_US),
            query_us: Histogram::new(TIMES_US),
            transaction_us: Histogram::new(TIMES_US),
            activities: ActivityCounts::default(),
        }
    }
}

/// Activity of one worker's clients at the last count, which is at most half a second old.
#[derive(Debug, Default)]
pub struct ActivityCounts {
    doing: [AtomicU64; Self::DOINGS],
    pins: [AtomicU64; Self::PINS],
}

impl ActivityCounts {
    pub(crate) const DOINGS: usize = SessionActivity::ALL.len();
    pub(crate) const PINS: usize = Pin::ALL.len();

    pub(crate) fn set(&self, doing: &[u64; Self::DOINGS], pins: &[u64; Self::PINS]) {
        for (known, now) in self.doing.iter().zip(doing) {
            known.store(*now, Relaxed);
        }
        for (known, now) in self.pins.iter().zip(pins) {
            known.store(*now, Relaxed);
        }
    }

    /// Returns the number of clients with this activity.
    pub fn count(&self, activity: SessionActivity) -> u64 {
        self.doing[activity as usize].load(Relaxed)
    }

    /// Returns the number of clients with this pin; one client may have several.
    pub fn pinned_by(&self, pin: Pin) -> u64 {
        self.pins[pin as usize].load(Relaxed)
    }
}

/// Statistics of one user in one database at one worker.
#[derive(Debug, Default)]
pub struct UserStats {
    /// Queries and batches.
    pub work: WorkCounters,
    /// Transactions.
    pub transactions: LocalCounter,
    /// Bytes from its clients.
    pub from_clients: LocalCounter,
    /// Bytes to its clients.
    pub to_clients: LocalCounter,
}
