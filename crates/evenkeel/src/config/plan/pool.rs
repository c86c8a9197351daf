//! Defines the settings of server connection pools.

use std::collections::BTreeMap;

/// `[service.pool]`: server connections, and the clients that wait for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolPlan {
    /// Time for which a client keeps a connection. Default transaction.
    pub mode: PoolMode,
    /// Server connections of one pool: one user and database at one server. Default 20.
    pub size: u32,
    /// Server connections of the whole service. Default 0 = no limit.
    pub service_size: u32,
    /// Server connections of one user, over all servers and databases. Default 0 = no limit.
    pub user_size: u32,
    /// Server connections to one database, over all servers and users. Default 0 = no limit.
    pub database_size: u32,
    /// Idle connections that each pool in use keeps open, up to `size`. Default 0.
    pub min_idle: u32,
    /// Time after which an idle connection beyond `min_idle` is closed. Default 600 000; 0 = never.
    pub idle_ms: u64,
    /// Age at which a connection is closed when it becomes idle. Default 3 600 000; 0 = never.
    pub lifetime_ms: u64,
    /// Limit for the wait for a connection, 1 ms to 10 minutes. Default 10 000.
    pub wait_ms: u64,
    /// Maximum number of waiting clients of the service. Default 10 000; 0 = no queue.
    pub queue_length: u32,
    /// Prepared statements kept on one server connection, 1 to 10 000. Default 500.
    pub statements_max: u32,
    /// `[service.pool.users.NAME]`: sizes that replace `user_size`; 0 = no limit.
    pub users: BTreeMap<String, u32>,
    /// `[service.pool.databases.NAME]`: sizes that replace `database_size`; 0 = no limit.
    pub databases: BTreeMap<String, u32>,
}

impl Default for PoolPlan {
    fn default() -> PoolPlan {
        PoolPlan {
            mode: PoolMode::Transaction,
            size: 20,
            service_size: 0,
            user_size: 0,
            database_size: 0,
            min_idle: 0,
            idle_ms: 600_000,
            lifetime_ms: 3_600_000,
            wait_ms: 10_000,
            queue_length: 10_000,
            statements_max: 500,
            users: BTreeMap::new(),
            databases: BTreeMap::new(),
        }
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

/// Time for which a client keeps a server connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolMode {
    /// Until its transaction ends.
    Transaction,
    /// Until it disconnects.
    Session,
}

impl PoolMode {
    /// Returns the word in the file.
    pub fn name(self) -> &'static str {
        match self {
            PoolMode::Transaction => "transaction",
            PoolMode::Session => "session",
        }
    }
}
