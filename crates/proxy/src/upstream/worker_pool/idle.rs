//! What a worker's part of a service looks like from outside: its idle connections.

use std::sync::Arc;

use super::{PoolableConnection, WorkerPool};
use crate::clock;
use crate::engine::describe::IdleInfo;

impl<C: PoolableConnection> WorkerPool<C> {
    /// Tells of the connections that nobody uses now.
    pub(super) fn describe_idle(&self, idle: &mut Vec<IdleInfo>) {
        let now_ms = clock::now_ms();
        for (_, connection) in self.connections.borrow().iter() {
            // An empty place: it is lent, and its session tells of it.
            let Some(connection) = connection else {
                continue;
            };
            let lent = connection.lent();
            let who = &lent.pooled.who;
            idle.push(IdleInfo {
                user: who.user.to_string(),
                database: who.database.to_string(),
                server: Arc::clone(&lent.pooled.server.name),
                process: lent.cancels.process(),
                age_ms: now_ms.saturating_sub(lent.since_ms),
            });
        }
    }
}
