//! Holds the state that the workers of a service share: pools, limits and queues. One lock protects
//! it, for waiting clients and for opening and closing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::limits::{ConnectionLimit, ConnectionLimits};
use super::queue::{Queue, Waiter};
use super::sync::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Mutex, MutexGuard, fence};
use super::types::{
    CancelOutcome, LimitScope, PoolKey, PoolLimits, PoolRefusal, PoolSettings, WaitTicket,
    WorkerTask,
};
use crate::load::Load;
use crate::permits::{Permits, UNLIMITED};

/// A worker to which a connection returned within this time is expected to have another one soon.
const ACTIVE_MS: u64 = 2;

/// Set of interchangeable connections.
#[derive(Debug)]
pub struct Pool {
    pub(super) id: u64,
    key: PoolKey,
    outdated: AtomicBool,
    /// Written only by the worker that owns the entry.
    by_worker: Box<[WorkerIdle]>,
}

/// State that a worker publishes about its part of a pool, on its own cache line.
#[derive(Debug)]
#[repr(align(64))]
struct WorkerIdle {
    /// Number of idle connections.
    idle: AtomicU32,
    /// Number of sessions that offer their connection.
    offers: AtomicU32,
    /// Time when a connection last returned to the worker.
    released_ms: AtomicU64,
}

impl WorkerIdle {
    fn new() -> WorkerIdle {
        WorkerIdle {
            idle: AtomicU32::new(0),
            offers: AtomicU32::new(0),
            released_ms: AtomicU64::new(0),
        }
    }
}

impl Pool {
    fn new(id: u64, key: PoolKey, workers: usize) -> Pool {
        Pool {
            id,
            key,
            outdated: AtomicBool::new(false),
            by_worker: (0..workers).map(|_| WorkerIdle::new()).collect(),
        }
    }

    /// Returns the number of the pool in its service.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the key of the pool.
    #[must_use]
    pub fn key(&self) -> &PoolKey {
        &self.key
    }

    /// Returns whether the credential or the server is outdated.
    #[must_use]
    pub fn is_retired(&self) -> bool {
        self.outdated.load(Relaxed)
    }

    /// Returns the last published number of idle connections at a worker.
    pub(super) fn idle_at(&self, worker: usize) -> u32 {
        self.by_worker[worker].idle.load(Relaxed)
    }

    pub(super) fn set_idle(&self, worker: usize, count: usize) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.by_worker[worker].idle.store(count, Relaxed);
    }

    pub(super) fn decrement_idle(&self, worker: usize) {
        let count = self.idle_at(worker).saturating_sub(1);
        self.by_worker[worker].idle.store(count, Relaxed);
    }

    pub(super) fn offers_at(&self, worker: usize) -> u32 {
        self.by_worker[worker].offers.load(Relaxed)
    }

    pub(super) fn set_offers(&self, worker: usize, count: usize) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.by_worker[worker].offers.store(count, Relaxed);
    }

    pub(super) fn record_release(&self, worker: usize, now_ms: u64) {
        self.by_worker[worker].released_ms.store(now_ms, Relaxed);
    }

    /// Returns whether connections return frequently to a worker.
    pub(super) fn is_active_at(&self, worker: usize, now_ms: u64) -> bool {
        let released_ms = self.by_worker[worker].released_ms.load(Relaxed);
        released_ms != 0 && now_ms <= released_ms + ACTIVE_MS
    }

    pub(super) fn idle(&self) -> u32 {
        (0..self.by_worker.len())
            .map(|worker| self.idle_at(worker))
            .sum()
    }
}

impl PartialEq for Pool {
    fn eq(&self, other: &Pool) -> bool {
        self.id == other.id
    }
}

impl Eq for Pool {}

/// Shared pools of one service.
#[derive(Debug)]
pub struct SharedPools {
    pressure: Arc<Pressure>,
    state: Mutex<State>,
}

/// Number of waiting clients, plus any other reason that closes the fast path.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Pressure(AtomicUsize);

impl SharedPools {
    /// Creates the pools without connections. `size` is the limit of the whole service.
    #[must_use]
    pub fn new(workers: usize, size: u32, settings: PoolSettings) -> SharedPools {
        let pressure = Arc::new(Pressure(AtomicUsize::new(0)));
        let state = State::new(workers, size, settings, Arc::clone(&pressure));
        SharedPools {
            pressure,
            state: Mutex::new(state),
        }
    }

    /// Returns the pool of a key, and creates it if needed.
    pub fn pool(&self, key: PoolKey, limits: &PoolLimits, server: &Arc<Load>) -> Arc<Pool> {
        self.lock().pool(key, limits, server)
    }

    /// Cancels the wait of a client that disconnected or timed out.
    pub fn cancel(&self, ticket: WaitTicket) -> CancelOutcome {
        self.lock().cancel(ticket)
    }

    /// Serves waiting clients. Must be called when another service released permits of a server, or
    /// a server's limit changed.
    pub fn serve(&self, now_ms: u64, tasks: &mut Vec<WorkerTask>) {
        let mut state = self.lock();
        state.update_any_limit_exceeded();
        state.serve_all(now_ms, tasks);
    }

    /// Returns the number of waiting clients over all pools.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.lock().waiting
    }

    /// Returns the statistics of each pool.
    #[must_use]
    pub fn stats(&self) -> Vec<PoolStats> {
        self.lock().pools.values().map(PoolRecord::stats).collect()
    }

    pub(super) fn is_calm(&self) -> bool {
        self.pressure.0.load(Relaxed) == 0
    }

    /// Locks the state.
    ///
    /// # Panics
    ///
    /// A panic has left the state half-changed: two sessions could get one connection.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        let state = self.state.lock();
        state.unwrap_or_else(|_| panic!("the pools are half-changed"))
    }
}

/// Statistics of one pool for the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolStats {
    /// Key of the pool.
    pub key: PoolKey,
    /// Number of connections, including those that open or close.
    pub connections: u32,
    /// Number of idle connections.
    pub idle: u32,
    /// Number of connections being opened.
    pub opening: u32,
    /// Number of waiting clients.
    pub waiting: usize,
    /// Time when the longest waiting client started to wait; `None` if no client waits.
    pub waiting_since_ms: Option<u64>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) settings: PoolSettings,
    pub(super) workers: usize,
    pub(super) pools: BTreeMap<u64, PoolRecord>,
    /// Pools with waiting clients.
    pub(super) pools_with_waiters: BTreeSet<u64>,
    /// Databases that are paused.
    pub(super) paused: BTreeSet<u64>,
    /// True if all clients are paused.
    pub(super) all_paused: bool,
    /// True if a limit is exceeded since it was lowered.
    pub(super) any_limit_exceeded: bool,
    pub(super) limits: BTreeMap<LimitScope, Arc<Permits>>,
    waiting: usize,
    ids: BTreeMap<PoolKey, u64>,
    next_pool: u64,
    next_ticket: u64,
    pressure: Arc<Pressure>,
}

/// Shared record of one pool.
#[derive(Debug)]
pub(super) struct PoolRecord {
    pub(super) pool: Arc<Pool>,
    pub(super) pool_limits: ConnectionLimits,
    pub(super) queue: Queue,
    /// Number of connections, from the request to open until reported as closed.
    pub(super) connections: u32,
    /// Pending tasks of each worker: to open, to hand over an idle connection, to close one.
    pub(super) opening: Vec<u32>,
    pub(super) requested: Vec<u32>,
    pub(super) evicting: Vec<u32>,
    /// Pending tasks of each worker to take up an offer.
    pub(super) accepting: Vec<u32>,
    /// Number of offers of any pool that are taken up for clients of this one.
    pub(super) accepted: u32,
    /// Number of permits that other pools are releasing for this one.
    pub(super) promised: u32,
    /// True if a worker has a pending task to recheck the queue.
    pub(super) recheck_scheduled: bool,
    /// Time before which no connection is opened, since the server reported that it is full.
    pub(super) retry_at_ms: u64,
}

impl PoolRecord {
    fn new(pool: Arc<Pool>, pool_limits: ConnectionLimits, workers: usize) -> PoolRecord {
        PoolRecord {
            pool,
            pool_limits,
            queue: Queue::new(workers),
            connections: 0,
            opening: vec![0; workers],
            requested: vec![0; workers],
            evicting: vec![0; workers],
            accepting: vec![0; workers],
            accepted: 0,
            promised: 0,
            recheck_scheduled: false,
            retry_at_ms: 0,
        }
    }

    fn stats(&self) -> PoolStats {
        PoolStats {
            key: *self.pool.key(),
            connections: self.connections,
            idle: self.pool.idle(),
            opening: self.opening.iter().sum(),
            waiting: self.queue.len(),
            waiting_since_ms: self.queue.oldest().map(|(_, waiter)| waiter.since_ms),
        }
    }
}

impl State {
    fn new(workers: usize, size: u32, settings: PoolSettings, pressure: Arc<Pressure>) -> State {
        State {
            settings,
            workers,
            pools: BTreeMap::new(),
            pools_with_waiters: BTreeSet::new(),
            paused: BTreeSet::new(),
            all_paused: false,
            any_limit_exceeded: false,
            limits: BTreeMap::from([(LimitScope::Service, Arc::new(Permits::new(size)))]),
            waiting: 0,
            ids: BTreeMap::new(),
            next_pool: 0,
            next_ticket: 0,
            pressure,
        }
    }

    fn pool(&mut self, key: PoolKey, limits: &PoolLimits, server: &Arc<Load>) -> Arc<Pool> {
        if let Some(id) = self.ids.get(&key) {
            return Arc::clone(&self.pools[id].pool);
        }
        let id = self.next_pool;
        self.next_pool += 1;
        let pool = Arc::new(Pool::new(id, key, self.workers));
        let pool_limits = self.pool_limits(&key, limits, server);
        let record = PoolRecord::new(Arc::clone(&pool), pool_limits, self.workers);
        self.pools.insert(id, record);
        self.ids.insert(key, id);
        pool
    }

    fn pool_limits(
        &mut self,
        key: &PoolKey,
        limits: &PoolLimits,
        server: &Arc<Load>,
    ) -> ConnectionLimits {
        let own = [
            ConnectionLimit::Own(Arc::new(Permits::new(limits.pool))),
            self.limit(LimitScope::Service, UNLIMITED),
            self.limit(LimitScope::User(key.user), limits.user),
            self.limit(LimitScope::Database(key.database), limits.database),
        ];
        ConnectionLimits::new(own, ConnectionLimit::Server(Arc::clone(server)))
    }

    fn limit(&mut self, scope: LimitScope, limit: u32) -> ConnectionLimit {
        let permits = self.limits.entry(scope);
        ConnectionLimit::Own(Arc::clone(
            permits.or_insert_with(|| Arc::new(Permits::new(limit))),
        ))
    }

    /// Removes a pool that has no connections and no waiting clients.
    pub(super) fn forget(&mut self, id: u64) {
        if let Some(record) = self.pools.remove(&id) {
            self.remove_key(id, record.pool.key());
        }
    }

    /// Marks a pool as outdated: the next client with that key gets a new pool.
    pub(super) fn retire(&mut self, id: u64) {
        let Some(record) = self.pools.get(&id) else {
            return;
        };
        record.pool.outdated.store(true, Relaxed);
        let key = *record.pool.key();
        self.remove_key(id, &key);
    }

    fn remove_key(&mut self, id: u64, key: &PoolKey) {
        if self.ids.get(key) == Some(&id) {
            self.ids.remove(key);
        }
    }

    /// Queues a client, if waiting can succeed.
    pub(super) fn enqueue(
        &mut self,
        id: u64,
        worker: usize,
        now_ms: u64,
    ) -> Result<WaitTicket, PoolRefusal> {
        let Some(record) = self.pools.get_mut(&id) else {
            return Err(PoolRefusal::Outdated);
        };
        if record.pool.is_retired() {
            return Err(PoolRefusal::Outdated);
        }
        if record.pool_limits.is_any_zero() {
            return Err(PoolRefusal::LimitIsZero);
        }
        if self.waiting >= self.settings.queue_length {
            return Err(PoolRefusal::QueueFull);
        }
        let number = self.next_ticket;
        self.next_ticket += 1;
        let since_ms = now_ms;
        record.queue.push(worker, Waiter { number, since_ms });
        self.pools_with_waiters.insert(id);
        self.waiting += 1;
        self.publish();
        Ok(WaitTicket {
            number,
            worker,
            pool: id,
        })
    }

    /// Removes the first client from a worker's queue of a pool.
    pub(super) fn dequeue(&mut self, id: u64, worker: usize) -> Option<WaitTicket> {
        let waiter = self.pools.get_mut(&id)?.queue.pop(worker)?;
        self.waiter_left(id);
        Some(WaitTicket {
            number: waiter.number,
            worker,
            pool: id,
        })
    }

    fn cancel(&mut self, ticket: WaitTicket) -> CancelOutcome {
        let record = self.pools.get_mut(&ticket.pool);
        if !record.is_some_and(|record| record.queue.remove(ticket)) {
            return CancelOutcome::Answered;
        }
        self.waiter_left(ticket.pool);
        CancelOutcome::Left
    }

    fn waiter_left(&mut self, id: u64) {
        self.waiting -= 1;
        if self.pools[&id].queue.len() == 0 {
            self.pools_with_waiters.remove(&id);
        }
        self.publish();
    }

    /// Publishes to all workers whether the fast path is open. The fence pairs with the one in
    /// `IdlePool::release`. A thread that checks for idle connections after this sees those stored
    /// by workers that did not see it.
    pub(super) fn publish(&self) {
        let flags = usize::from(self.any_limit_exceeded) + usize::from(self.all_paused);
        let pressure = self.waiting + self.paused.len() + flags;
        self.pressure.0.store(pressure, Relaxed);
        fence(SeqCst);
    }
}
