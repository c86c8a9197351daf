//! What a service that speaks a database's protocol counts: each worker for itself, summed when
//! read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use evenkeel_policy::pins::Pin;

use crate::clock;
use crate::counters::Histogram;
use crate::counters::work::{TIMES_US, WorkCounters};
use crate::service::database::{DatabaseService, Paused};
use crate::session::handle::SessionActivity;

pub use crate::counters::work::LocalCounter;

/// A pool of server connections.
#[derive(Debug, Clone)]
pub struct PoolInfo {
    /// As its user is called by clients.
    pub user: String,
    /// Its database.
    pub database: String,
    /// Where its connections go.
    pub server: Arc<str>,
    /// Connections, those that open and close among them.
    pub connections: u32,
    /// Of these, idle.
    pub idle: u32,
    /// Of these, opening.
    pub opening: u32,
    /// Clients that wait for one.
    pub waiting: usize,
    /// How long the first of them has waited, milliseconds.
    pub longest_wait_ms: u64,
}

impl DatabaseService {
    /// Every pool, one entry for a user in a database at a server.
    pub fn pools(&self) -> Vec<PoolInfo> {
        let now_ms = clock::now_ms();
        let mut pools = BTreeMap::new();
        for figures in self.lender.books.figures() {
            let Some(pooled) = self.lender.pooled(&figures.key) else {
                continue;
            };
            let (who, server) = (&pooled.who, &pooled.server);
            let name = Arc::clone(&server.name);
            let key = (figures.key.database, figures.key.user, name);
            // After a change of password there are two for a while, and of a server that has come
            // back.
            let pool = pools.entry(key).or_insert_with(|| PoolInfo {
                user: who.user.to_string(),
                database: who.database.to_string(),
                server: Arc::clone(&server.name),
                connections: 0,
                idle: 0,
                opening: 0,
                waiting: 0,
                longest_wait_ms: 0,
            });
            let since_ms = figures.waiting_since_ms.unwrap_or(now_ms);
            pool.connections += figures.connections;
            pool.idle += figures.idle;
            pool.opening += figures.opening;
            pool.waiting += figures.waiting;
            pool.longest_wait_ms = pool.longest_wait_ms.max(now_ms.saturating_sub(since_ms));
        }
        pools.into_values().collect()
    }

    /// What an operator has paused.
    pub fn paused(&self) -> Paused {
        self.lender.paused()
    }
}

/// What one worker counts of one service.
#[derive(Debug)]
#[repr(align(64))]
pub struct ServiceStats {
    /// Queries and batches that were answered.
    pub queries: LocalCounter,
    /// Transactions that ended, those of a single query among them.
    pub transactions: LocalCounter,
    /// Units sent to replicas.
    pub on_replicas: LocalCounter,
    /// Units run again elsewhere after a server had failed or refused them.
    pub rescued: LocalCounter,
    /// Clients that waited for a connection in vain.
    pub gave_up: LocalCounter,
    /// Transactions lost with their server.
    pub lost: LocalCounter,
    /// Logins that were refused.
    pub refused_logins: LocalCounter,
    /// Waits for a connection, microseconds; those who need not wait are not among them.
    pub wait_us: Histogram,
    /// From the first byte of a query to the end of its answer, microseconds.
    pub query_us: Histogram,
    /// From the beginning of a transaction to its end, microseconds.
    pub transaction_us: Histogram,
    /// What its clients do.
    pub census: ActivityCounts,
}

impl ServiceStats {
    pub(crate) fn new() -> Self {
        Self {
            queries: LocalCounter::default(),
            transactions: LocalCounter::default(),
            on_replicas: LocalCounter::default(),
            rescued: LocalCounter::default(),
            gave_up: LocalCounter::default(),
            lost: LocalCounter::default(),
            refused_logins: LocalCounter::default(),
            wait_us: Histogram::new(TIMES_US),
            query_us: Histogram::new(TIMES_US),
            transaction_us: Histogram::new(TIMES_US),
            census: ActivityCounts::default(),
        }
    }
}

/// What the clients of one worker did when they were last counted, half a second ago at most.
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

    /// How many did that.
    pub fn doing(&self, what: SessionActivity) -> u64 {
        self.doing[what as usize].load(Relaxed)
    }

    /// How many were bound by that; one client may be by several.
    pub fn bound_by(&self, pin: Pin) -> u64 {
        self.pins[pin as usize].load(Relaxed)
    }
}

/// What one user did in one database, as one worker has seen it.
#[derive(Debug, Default)]
pub struct UserStats {
    /// Queries and batches.
    pub work: WorkCounters,
    /// Transactions.
    pub transactions: LocalCounter,
    /// Bytes from its clients.
    pub from_clients: LocalCounter,
    /// Bytes to them.
    pub to_clients: LocalCounter,
}
