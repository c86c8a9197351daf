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
    CloseReason, ClosingConnection, LimitScope, PoolKey, PoolLimits, PoolSettings, WaitTicket,
    WorkerTask,
};
use crate::load::Load;
use crate::permits::{Permits, UNLIMITED};

/// Number of no pool: the connection is evicted for another service.
const ANOTHER_SERVICE: u64 = u64::MAX;

impl IdlePool {
    /// Returns the idle connections of this worker to close, each of which must then be reported as
    /// closed. Requests missing warm connections. Each worker calls this about once per second.
    pub fn maintain(
        &mut self,
        now_ms: u64,
        orders: &mut Vec<WorkerTask>,
    ) -> Vec<ClosingConnection> {
        let mut state = self.shared_pools.lock();
        let mut spent = 0;
        let unwanted = self.shelves.sort_out(|pool, idle| {
            let why = state.unwanted(pool, idle, now_ms, spent);
            spent += u32::from(why.is_some());
            why
        });
        // Unused pools first, so that they are not kept warm.
        state.forget_unused();
        state.warm(self.worker, now_ms, orders);
        state.look_for_excess();
        state.serve_all(now_ms, orders);
        let closing = unwanted.into_iter().map(|(loan, why)| close(loan, why));
        closing.collect()
    }

    /// Returns the idle connections of some pools to close; each must then be reported as closed.
    /// Connections in use remain, and so do the pools.
    pub fn vacate(&mut self, is_meant: impl Fn(&PoolKey) -> bool) -> Vec<ClosingConnection> {
        // The lock is held, so that no other worker counts on the connections that are removed.
        let _state = self.shared_pools.lock();
        let meant = self
            .shelves
            .sort_out(|pool, _| is_meant(pool.key()).then_some(CloseReason::Vacated));
        let closing = meant.into_iter().map(|(loan, why)| close(loan, why));
        closing.collect()
    }
}

impl State {
    /// Returns the reason for closing an idle connection; `spent` are those that already close.
    fn unwanted(
        &self,
        pool: &Pool,
        idle: &IdleConnection,
        now_ms: u64,
        spent: u32,
    ) -> Option<CloseReason> {
        let idle_ms = self.settings.idle_ms;
        if pool.is_retired() {
            Some(CloseReason::Outdated)
        } else if idle.expires_ms <= now_ms {
            Some(CloseReason::TooOld)
        } else if self.pools[&pool.id].ledgers.excess() > spent {
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
    fn warm(&mut self, worker: usize, now_ms: u64, orders: &mut Vec<WorkerTask>) {
        let ids: Vec<u64> = self.pools.keys().copied().collect();
        for id in ids {
            while !self.is_paused(id)
                && self.is_cold(id)
                && self.connect(id, worker, now_ms, orders)
            {}
        }
    }

    fn is_cold(&self, id: u64) -> bool {
        let record = &self.pools[&id];
        let warm = record.pool.idle() + record.opening.iter().sum::<u32>();
        warm < self.settings.min_idle && !record.pool.is_retired() && record.queue.len() == 0
    }

    /// Checks whether a limit is exceeded: every release then goes through the shared pools.
    pub(super) fn look_for_excess(&mut self) {
        let mut records = self.pools.values();
        let is_exceeded = records.any(|record| record.ledgers.are_exceeded());
        if is_exceeded != self.is_exceeded {
            self.is_exceeded = is_exceeded;
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
        self.limits
            .retain(|scope, places| *scope == LimitScope::Service || Arc::strong_count(places) > 1);
    }
}

impl SharedPools {
    /// Applies new settings after a reload.
    pub fn set_settings(&self, settings: PoolSettings) {
        self.lock().settings = settings;
    }

    /// Changes a limit. Connections above a lowered limit close when they are released, or at the
    /// next maintenance.
    pub fn set_limit(
        &self,
        scope: LimitScope,
        limit: u32,
        now_ms: u64,
        orders: &mut Vec<WorkerTask>,
    ) {
        let mut state = self.lock();
        let places = state.limits.entry(scope);
        places
            .or_insert_with(|| Arc::new(Permits::new(UNLIMITED)))
            .set_limit(limit);
        state.look_for_excess();
        state.serve_all(now_ms, orders);
    }

    /// Changes the limits of a pool, its user and its database after a reload. The caller must then
    /// call [`SharedPools::serve`].
    pub fn set_quotas(&self, pool: &Arc<Pool>, quotas: &PoolLimits) {
        let state = self.lock();
        if let Some(record) = state.pools.get(&pool.id) {
            record.ledgers.set_limits(quotas);
        }
    }

    /// Returns the limit of a scope with its permits in use; the part of other processes is set
    /// there.
    #[must_use]
    pub fn limit(&self, scope: LimitScope) -> Option<Arc<Permits>> {
        self.lock().limits.get(&scope).cloned()
    }

    /// Retires a pool whose credential or server was removed. Its connections close when they are
    /// released, or at the next maintenance. Returns the waiting clients, which no longer wait.
    pub fn retire(&self, pool: &Arc<Pool>) -> Vec<WaitTicket> {
        let mut state = self.lock();
        state.outdate(pool.id);
        self.turn_away_in(&mut state, pool.id)
    }

    /// Rejects the clients that wait for a server that is down. Returns them; they no longer wait
    /// and may use another server.
    pub fn reject_waiters(&self, pool: &Arc<Pool>) -> Vec<WaitTicket> {
        self.turn_away_in(&mut self.lock(), pool.id)
    }

    fn turn_away_in(&self, state: &mut State, id: u64) -> Vec<WaitTicket> {
        let mut turned_away = Vec::new();
        for worker in 0..state.workers {
            turned_away.extend(std::iter::from_fn(|| state.dequeue(id, worker)));
        }
        turned_away
    }

    /// Pauses the clients of a database until it is resumed.
    pub fn pause(&self, database: u64) {
        let mut state = self.lock();
        state.paused.insert(database);
        state.publish();
    }

    /// Pauses all clients, including those of databases without a pool.
    pub fn pause_all(&self) {
        let mut state = self.lock();
        state.all_paused = true;
        state.publish();
    }

    /// Ends every pause.
    pub fn resume_all(&self, now_ms: u64, orders: &mut Vec<WorkerTask>) {
        let mut state = self.lock();
        state.all_paused = false;
        state.paused.clear();
        state.publish();
        state.serve_all(now_ms, orders);
    }

    /// Ends the pause of one database.
    pub fn resume(&self, database: u64, now_ms: u64, orders: &mut Vec<WorkerTask>) {
        let mut state = self.lock();
        state.paused.remove(&database);
        state.publish();
        state.serve_all(now_ms, orders);
    }

    /// Requests that one idle connection to a server close, for another service whose client waits
    /// for a permit of that server. False if there is none.
    pub fn make_room(&self, server: &Arc<Load>, orders: &mut Vec<WorkerTask>) -> bool {
        let mut state = self.lock();
        // See `publish`: the client of the other service already waits.
        fence(SeqCst);
        let there = state.pools.values();
        let there = there.filter(|record| record.ledgers.include_server(server));
        let Some(victim) = most_idle_of(there) else {
            return false;
        };
        state.order_eviction(victim, ANOTHER_SERVICE, orders);
        true
    }
}
