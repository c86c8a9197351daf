//! What is done now and then: old connections close, warm ones open, limits change, databases
//! pause.

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

/// No pool has this number: room is made for another service.
const ANOTHER_SERVICE: u64 = u64::MAX;

impl IdlePool {
    /// Once a second or so, by each worker: what to close of its idle connections (each then to be
    /// told closed). Orders what is missing of the warm ones.
    pub fn maintain(
        &mut self,
        now_ms: u64,
        orders: &mut Vec<WorkerTask>,
    ) -> Vec<ClosingConnection> {
        let mut state = self.books.lock();
        let mut spent = 0;
        let unwanted = self.shelves.sort_out(|pool, idle| {
            let why = state.unwanted(pool, idle, now_ms, spent);
            spent += u32::from(why.is_some());
            why
        });
        // First: what is of no use is not to be kept warm.
        state.forget_unused();
        state.warm(self.worker, now_ms, orders);
        state.look_for_excess();
        state.serve_all(now_ms, orders);
        let closing = unwanted.into_iter().map(|(loan, why)| close(loan, why));
        closing.collect()
    }

    /// Idle connections of some pools, to be closed (each then to be told closed). Those that are
    /// in use stay, and so do the pools.
    pub fn vacate(&mut self, is_meant: impl Fn(&PoolKey) -> bool) -> Vec<ClosingConnection> {
        // With the books open, as nobody is to count on what is taken off here.
        let _state = self.books.lock();
        let meant = self
            .shelves
            .sort_out(|pool, _| is_meant(pool.key()).then_some(CloseReason::Vacated));
        let closing = meant.into_iter().map(|(loan, why)| close(loan, why));
        closing.collect()
    }
}

impl State {
    /// Why an idle connection is not to be kept; `spent` are those that close already.
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

    /// Opens what is missing of the warm connections. Nobody's idle connection is closed for it.
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

    /// Whether a limit is exceeded: then all that comes back goes through the books.
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
        // The next pool of the same user or database brings its limits along.
        self.limits
            .retain(|scope, places| *scope == LimitScope::Service || Arc::strong_count(places) > 1);
    }
}

impl SharedPools {
    /// Other settings, from a reload.
    pub fn set_settings(&self, settings: PoolSettings) {
        self.lock().settings = settings;
    }

    /// Another limit. What is open above a lowered one closes as it comes back, or at the next
    /// upkeep.
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

    /// Other limits for a pool, its user and its database, from a reload; then [`Books::serve`].
    pub fn set_quotas(&self, pool: &Arc<Pool>, quotas: &PoolLimits) {
        let state = self.lock();
        if let Some(record) = state.pools.get(&pool.id) {
            record.ledgers.set_limits(quotas);
        }
    }

    /// The limit of a scope and what is taken of it; other processes' part is set there.
    #[must_use]
    pub fn limit(&self, scope: LimitScope) -> Option<Arc<Permits>> {
        self.lock().limits.get(&scope).cloned()
    }

    /// The credential or the server of a pool is gone. Its connections close as they come back, or
    /// at the next upkeep; the clients that waited for one, which wait no more.
    pub fn retire(&self, pool: &Arc<Pool>) -> Vec<WaitTicket> {
        let mut state = self.lock();
        state.outdate(pool.id);
        self.turn_away_in(&mut state, pool.id)
    }

    /// The server of a pool is down: the clients that waited for a connection to it, which wait no
    /// more and may go elsewhere.
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

    /// Makes the clients of a database wait, until it is resumed.
    pub fn pause(&self, database: u64) {
        let mut state = self.lock();
        state.paused.insert(database);
        state.publish();
    }

    /// Makes all clients wait, those of databases that nobody has asked for yet among them.
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

    /// Ends a pause of one database.
    pub fn resume(&self, database: u64, now_ms: u64, orders: &mut Vec<WorkerTask>) {
        let mut state = self.lock();
        state.paused.remove(&database);
        state.publish();
        state.serve_all(now_ms, orders);
    }

    /// Has one idle connection to a server closed, for another service whose client waits for a
    /// place there. False: there is none.
    pub fn make_room(&self, server: &Arc<Load>, orders: &mut Vec<WorkerTask>) -> bool {
        let mut state = self.lock();
        // As in `State::publish`: the client elsewhere waits already.
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
