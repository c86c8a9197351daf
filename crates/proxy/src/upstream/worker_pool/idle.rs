//! Describes the idle connections of a worker's part of a service.

use std::sync::Arc;

use evenkeel_engine::clock;

use super::{PoolableConnection, WorkerPool};

/// An idle server connection.
#[derive(Debug, Clone)]
pub struct IdleInfo {
    /// User name of the clients.
    pub user: String,
    /// Database name.
    pub database: String,
    /// Server name.
    pub server: Arc<str>,
    /// The server's number for the process.
    pub process: Option<u32>,
    /// Age of the connection, in milliseconds.
    pub age_ms: u64,
}

impl<C: PoolableConnection> WorkerPool<C> {
    /// Describes the connections that no session uses now.
    pub(super) fn describe_idle(&self, idle: &mut Vec<IdleInfo>) {
        let now_ms = clock::now_ms();
        for (_, connection) in self.connections.borrow().iter() {
            // An empty entry: a session has the connection, and describes it.
            let Some(connection) = connection else {
                continue;
            };
            let core = connection.core();
            let pool_user = &core.pool_handle.pool_user;
            idle.push(IdleInfo {
                user: pool_user.user.to_string(),
                database: pool_user.database.to_string(),
                server: Arc::clone(&core.pool_handle.server.name),
                process: core.cancel_target.process(),
                age_ms: now_ms.saturating_sub(core.since_ms),
            });
        }
    }
}
