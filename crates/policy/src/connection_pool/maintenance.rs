//! Maintains the pools: closes old connections, opens warm ones, changes limits, and pauses
//! databases.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use super::assign::most_idle_of;
use super::idle_lists::IdleConnection;
use super::idle_pool::{IdlePool, close};
use super::shared_pools::{Pool, SharedPools, State};
use super::sync::fence;
use super::types::{
    Checkout, CloseReason, ClosingConnection, LimitScope, PoolKey, PoolLimits, PoolSettings,
    WaitTicket, WorkerTask,
};
use crate::load::Load;
use crate::permits::{Permits, UNLIMITED};

/// Stands for the id of the waiting pool if a connection is evicted for another service.
const ANOTHER_SERVICE: u64 = u64::MAX;

impl IdlePool {
    /// Returns the idle connections of this worker to close, each of which must then be reported as
    /// closed. Requests missing warm connections. Each worker calls this about once per second.
    pub fn maintain(&mut self, now_ms: u64, tasks: &mut Vec<WorkerTask>) -> Vec<ClosingConnection> {
        let mut state = self.shared_pools.lock();
        let mut closing_count = 0;
        let unwanted = self.idle_lists.remove_where(|pool, idle| {
            let why = state.unwanted(pool, idle, now_ms, closing_count);
            closing_count += u32::from(why.is_some());
            why
        });
        // Unused pools first, so that they are not kept warm.
        state.forget_unused();
        state.open_warm(self.worker, now_ms, tasks);
        state.update_any_limit_exceeded();
        state.serve_all(now_ms, tasks);
        let closing = unwanted
            .into_iter()
            .map(|(checkout, why)| close(checkout, why));
        closing.collect()
    }

    /// Returns the idle connections of some pools to close; each must then be reported as closed.
    /// Connections in use remain, and so do the pools. Called before a database is dropped, renamed
    /// or copied.
    pub fn close_idle_of_database(
        &mut self,
        is_affected: impl Fn(&PoolKey) -> bool,
    ) -> Vec<ClosingConnection> {
        // The lock is held, so that no other worker counts on the connections that are removed.
        let _state = self.shared_pools.lock();
        let affected = self.idle_lists.remove_where(|pool, _| {
            is_affected(pool.key()).then_some(CloseReason::DatabaseChanged)
        });
        let closing = affected
            .into_iter()
            .map(|(checkout, why)| close(checkout, why));
        closing.collect()
    }
}

impl State {
    /// Returns the reason for closing an idle connection. `closing_count` idle connections have
    /// already been chosen to close.
    fn unwanted(
        &self,
        pool: &Pool,
        idle: &IdleConnection,
        now_ms: u64,
        closing_count: u32,
    ) -> Option<CloseReason> {
        let idle_ms = self.settings.idle_ms;
        if pool.is_retired() {
            Some(CloseReason::Outdated)
        } else if idle.expires_ms <= now_ms {
            Some(CloseReason::TooOld)
        } else if self.pools[&pool.id].pool_limits.excess() > closing_count {
            Some(CloseReason::OverLimit)
        } else if idle_ms != 0
            && idle.since_ms + idle_ms <= now_ms
            && pool.idle() > self.settings.min_idle
        {
            Some(CloseReason::TooIdle)
        } else {
            None
        }
    }

    /// Opens missing warm connections, without closing an idle connection for them.
    fn open_warm(&mut self, worker: usize, now_ms: u64, tasks: &mut Vec<WorkerTask>) {
        let ids: Vec<u64> = self.pools.keys().copied().collect();
        for id in ids {
            while !self.is_pool_paused(id)
                && self.is_cold(id)
                && self.connect(id, worker, now_ms, tasks)
            {}
        }
    }

    fn is_cold(&self, id: u64) -> bool {
        let record = &self.pools[&id];
        let warm = record.pool.idle() + record.opening.iter().sum::<u32>();
        warm < self.settings.min_idle && !record.pool.is_retired() && record.queue.len() == 0
    }

    /// Updates whether any limit is exceeded. While one is, workers return every connection through
    /// the shared pools instead of keeping it.
    pub(super) fn update_any_limit_exceeded(&mut self) {
        let mut records = self.pools.values();
        let any_limit_exceeded = records.any(|record| record.pool_limits.are_exceeded());
        if any_limit_exceeded != self.any_limit_exceeded {
            self.any_limit_exceeded = any_limit_exceeded;
            self.publish();
        }
    }

    fn forget_unused(&mut self) {
        let unused: Vec<u64> = self
            .pools
            .values()
            .filter(|record| record.connections == 0 && record.queue.len() == 0)
            .filter(|record| Arc::strong_count(&record.pool) == 1)
            .map(|record| record.pool.id)
            .collect();
        if unused.is_empty() {
            return;
        }
        unused.into_iter().for_each(|id| self.forget(id));
        // The next pool of the same user or database sets its limits again.
        self.limits.retain(|scope, permits| {
            *scope == LimitScope::Service || Arc::strong_count(permits) > 1
        });
    }
}

impl SharedPools {
    /// Applies new settings after a reload.
    pub fn set_settings(&self, settings: PoolSettings) {
        self.lock().settings = settings;
    }

    /// Returns the settings.
    #[must_use]
    pub fn settings(&self) -> PoolSettings {
        self.lock().settings
    }

    /// Returns whether a connection in use should be released and closed: its pool is outdated, its
    /// lifetime has passed, or it serves no client since a time in milliseconds of the clock, and
    /// this is too long or more connections are open than a lowered limit allows. For holders that
    /// keep a connection for several clients.
    #[must_use]
    pub fn is_unwanted(
        &self,
        pool: &Pool,
        checkout: &Checkout,
        idle_since_ms: Option<u64>,
        now_ms: u64,
    ) -> bool {
        if pool.is_retired() || checkout.expires_ms <= now_ms {
            return true;
        }
        let Some(since_ms) = idle_since_ms else {
            return false;
        };
        let state = self.lock();
        let idle_ms = state.settings.idle_ms;
        let is_idle = idle_ms != 0 && since_ms.saturating_add(idle_ms) <= now_ms;
        let record = state.pools.get(&pool.id);
        is_idle || record.is_none_or(|record| record.pool_limits.excess() > 0)
    }

    /// Changes a limit. Connections above a lowered limit close when they are released, or at the
    /// next maintenance.
    pub fn set_limit(
        &self,
        scope: LimitScope,
        limit: u32,
        now_ms: u64,
        tasks: &mut Vec<WorkerTask>,
    ) {
        let mut state = self.lock();
        let permits = state.limits.entry(scope);
        permits
            .or_insert_with(|| Arc::new(Permits::new(UNLIMITED)))
            .set_limit(limit);
        state.update_any_limit_exceeded();
        state.serve_all(now_ms, tasks);
    }

    /// Changes the limits of a pool, its user and its database after a reload. The caller must then
    /// call [`SharedPools::serve`].
    pub fn set_pool_limits(&self, pool: &Arc<Pool>, limits: &PoolLimits) {
        let state = self.lock();
        if let Some(record) = state.pools.get(&pool.id) {
            record.pool_limits.set_limits(limits);
        }
    }

    /// Returns the permits of a scope. Callers also store in them how many permits other processes
    /// use.
    #[must_use]
    pub fn limit(&self, scope: LimitScope) -> Option<Arc<Permits>> {
        self.lock().limits.get(&scope).cloned()
    }

    /// Retires a pool whose credential or server was removed. Its connections close when they are
    /// released, or at the next maintenance. Returns the waiting clients, which no longer wait.
    pub fn retire(&self, pool: &Arc<Pool>) -> Vec<WaitTicket> {
        let mut state = self.lock();
        state.retire(pool.id);
        self.dequeue_all(&mut state, pool.id)
    }

    /// Rejects the clients that wait for a server that is down. Returns them; they no longer wait
    /// and may use another server.
    pub fn reject_waiters(&self, pool: &Arc<Pool>) -> Vec<WaitTicket> {
        self.dequeue_all(&mut self.lock(), pool.id)
    }

    fn dequeue_all(&self, state: &mut State, id: u64) -> Vec<WaitTicket> {
        let mut tickets = Vec::new();
        for worker in 0..state.workers {
            tickets.extend(std::iter::from_fn(|| state.dequeue(id, worker)));
        }
        tickets
    }

    /// Pauses the clients of a database until it is resumed.
    pub fn pause(&self, database_id: u64) {
        let mut state = self.lock();
        state.paused.insert(database_id);
        state.publish();
    }

    /// Pauses all clients, including those of databases without a pool.
    pub fn pause_all(&self) {
        let mut state = self.lock();
        state.all_paused = true;
        state.publish();
    }

    /// Ends every pause.
    pub fn resume_all(&self, now_ms: u64, tasks: &mut Vec<WorkerTask>) {
        let mut state = self.lock();
        state.all_paused = false;
        state.paused.clear();
        state.publish();
        state.serve_all(now_ms, tasks);
    }

    /// Ends the pause of one database.
    pub fn resume(&self, database_id: u64, now_ms: u64, tasks: &mut Vec<WorkerTask>) {
        let mut state = self.lock();
        state.paused.remove(&database_id);
        state.publish();
        state.serve_all(now_ms, tasks);
    }

    /// Requests that one idle connection to a server close, for another service whose client waits
    /// for a permit of that server. False if there is none.
    pub fn evict_for_server(&self, server: &Arc<Load>, tasks: &mut Vec<WorkerTask>) -> bool {
        let mut state = self.lock();
        // The fence of `publish`: the waiting client is already counted, so a worker that releases
        // a connection from now on sees it.
        fence(SeqCst);
        let records = state.pools.values();
        let records = records.filter(|record| record.pool_limits.include_server(server));
        let Some(victim) = most_idle_of(records) else {
            return false;
        };
        state.request_eviction(victim, ANOTHER_SERVICE, tasks);
        true
    }
}
