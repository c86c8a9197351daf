//! Holds the limits of a service's server connections.

use std::collections::HashMap;

use evenkeel_policy::connection_pool;

/// Limits of server connections; [`u32::MAX`]: no limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Limit for one user and database at one server.
    pub pool: u32,
    /// Limit for the service.
    pub service: u32,
    /// Limit for one user, unless listed in `users`.
    pub user: u32,
    /// Limit for one database, unless listed in `databases`.
    pub database: u32,
    /// Users with their own limit.
    pub users: HashMap<String, u32>,
    /// Databases with their own limit.
    pub databases: HashMap<String, u32>,
}

impl ConnectionLimits {
    pub(crate) fn limits_of(&self, user: &str, database: &str) -> connection_pool::PoolLimits {
        connection_pool::PoolLimits {
            pool: self.pool,
            user: *self.users.get(user).unwrap_or(&self.user),
            database: *self.databases.get(database).unwrap_or(&self.database),
        }
    }
}
