//! Defines the settings of server connection pools.

use std::collections::BTreeMap;

use crate::setting::{TEN_MINUTES_MS, WEEK_MS, number, settings, words};

settings! {
    /// `[service.pool]`: server connections, and the clients that wait for one.
    pub struct PoolPlan {
        /// Time for which a client keeps a server connection: until its transaction ends, or until
        /// it disconnects.
        mode: PoolMode = PoolMode::Transaction;
        /// Maximum server connections of one pool.
        size: u32 = 20, number(1, 100_000);
        /// Maximum server connections of the service; 0 = no limit.
        service_size: u32 = 0, number(0, 1_000_000);
        /// Maximum server connections of one user, over all servers and databases; 0 = no limit.
        user_size: u32 = 0, number(0, 1_000_000);
        /// Maximum server connections to one database, over all servers and users; 0 = no limit.
        database_size: u32 = 0, number(0, 1_000_000) => &["postgres"];
        /// Idle connections kept open in a pool that is in use; at most `size`.
        min_idle: u32 = 0, number(0, 100_000);
        /// Closes further connections that are idle this long; 0 = never.
        idle_ms: u64 = 600_000, number(0, WEEK_MS);
        /// Closes a connection of this age once it is idle; 0 = never.
        lifetime_ms: u64 = 3_600_000, number(0, WEEK_MS);
        /// Limit for the wait of a client for a connection.
        wait_ms: u64 = 10_000, number(1, TEN_MINUTES_MS);
        /// Maximum clients of the service that wait; 0 = clients are refused.
        queue_length: u32 = 10_000, number(0, 1_000_000);
        /// Prepared statements kept on one server connection; the least recently used one is closed
        /// first.
        statements_max: u32 = 500, number(1, 10_000);
    } also {
        /// `[service.pool.users.NAME]`: sizes that replace `user_size`; 0 = no limit.
        users: BTreeMap<String, u32> = BTreeMap::new();
        /// `[service.pool.databases.NAME]`: sizes that replace `database_size`; 0 = no limit.
        databases: BTreeMap<String, u32> = BTreeMap::new();
    }
}

impl PoolPlan {
    /// Returns the maximum number of server connections of a user over all servers and databases; 0
    /// = no limit.
    pub fn size_of_user(&self, name: &str) -> u32 {
        *self.users.get(name).unwrap_or(&self.user_size)
    }

    /// Returns the maximum number of server connections to a database over all servers and users; 0
    /// = no limit.
    pub fn size_of_database(&self, name: &str) -> u32 {
        *self.databases.get(name).unwrap_or(&self.database_size)
    }
}

words! {
    /// Time for which a client keeps a connection.
    pub enum PoolMode {
        /// Until its transaction ends.
        Transaction = "transaction",
        /// Until it disconnects.
        Session = "session",
    }
}
