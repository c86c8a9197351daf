//! What a service that speaks a database's protocol counts: each worker for itself, summed when read.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::counters::Histogram;

/// Bounds of times in microseconds: from a point select on loopback to a report of minutes.
const TIMES_US: &[u64] = &[
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

/// A count with one writer.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, more: u64) {
        // A plain load and store is enough: there is one writer.
        self.0.store(self.0.load(Relaxed) + more, Relaxed);
    }

    /// The count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// What one worker counts of one service.
#[derive(Debug)]
#[repr(align(64))]
pub struct Figures {
    /// Queries and batches that were answered.
    pub queries: Count,
    /// Transactions that ended, those of a single query among them.
    pub transactions: Count,
    /// Units sent to replicas.
    pub on_replicas: Count,
    /// Units run again elsewhere after a server had failed or refused them.
    pub rescued: Count,
    /// Clients that waited for a connection in vain.
    pub gave_up: Count,
    /// Transactions lost with their server.
    pub lost: Count,
    /// Logins that were refused.
    pub refused_logins: Count,
    /// Waits for a connection, microseconds; those who need not wait are not among them.
    pub wait_us: Histogram,
    /// From the first byte of a query to the end of its answer, microseconds.
    pub query_us: Histogram,
    /// From the beginning of a transaction to its end, microseconds.
    pub transaction_us: Histogram,
}

impl Figures {
    pub(crate) fn new() -> Self {
        Self {
            queries: Count::default(),
            transactions: Count::default(),
            on_replicas: Count::default(),
            rescued: Count::default(),
            gave_up: Count::default(),
            lost: Count::default(),
            refused_logins: Count::default(),
            wait_us: Histogram::new(TIMES_US),
            query_us: Histogram::new(TIMES_US),
            transaction_us: Histogram::new(TIMES_US),
        }
    }
}

/// What one user did in one database, as one worker has seen it.
#[derive(Debug, Default)]
pub struct Usage {
    /// Queries and batches.
    pub queries: Count,
    /// Transactions.
    pub transactions: Count,
    /// Time in which a server worked for it, microseconds.
    pub busy_us: Count,
    /// Bytes from its clients.
    pub from_clients: Count,
    /// Bytes to them.
    pub to_clients: Count,
}
