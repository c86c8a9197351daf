//! What the workers of a service share: its pools, the limits, the queue. One lock, for whoever has
//! to wait and whoever opens or closes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, PoisonError};

use super::limits::{ConnectionLimit, ConnectionLimits};
use super::queue::{Queue, Waiter};
use super::sync::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Mutex, MutexGuard, fence};
use super::types::{
    CancelOutcome, LimitScope, PoolKey, PoolLimits, PoolRefusal, PoolSettings, WaitTicket,
    WorkerTask,
};
use crate::load::Load;
use crate::permits::{Permits, UNLIMITED};

/// A worker to which a connection came back so lately will have another one soon.
const LIVELY_MS: u64 = 2;

/// Connections that are interchangeable.
#[derive(Debug)]
pub struct Pool {
    pub(super) id: u64,
    key: PoolKey,
    outdated: AtomicBool,
    /// Written by the worker alone whose it is.
    at: Box<[AtWorker]>,
}

/// What a worker tells of its part of a pool, alone on its cache line.
#[derive(Debug)]
#[repr(align(64))]
struct AtWorker {
    /// How many idle ones it has.
    idle: AtomicU32,
    /// When one came back to it last.
    back_ms: AtomicU64,
}

impl AtWorker {
    fn new() -> AtWorker {
        AtWorker {
            idle: AtomicU32::new(0),
            back_ms: AtomicU64::new(0),
        }
    }
}

impl Pool {
    fn new(id: u64, key: PoolKey, workers: usize) -> Pool {
        Pool {
            id,
            key,
            outdated: AtomicBool::new(false),
            at: (0..workers).map(|_| AtWorker::new()).collect(),
        }
    }

    /// What its connections are.
    #[must_use]
    pub fn key(&self) -> &PoolKey {
        &self.key
    }

    /// Its credential or server is no longer current.
    #[must_use]
    pub fn is_retired(&self) -> bool {
        self.outdated.load(Relaxed)
    }

    /// Idle connections that a worker was last known to have.
    pub(super) fn idle_at(&self, worker: usize) -> u32 {
        self.at[worker].idle.load(Relaxed)
    }

    pub(super) fn set_idle(&self, worker: usize, count: usize) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.at[worker].idle.store(count, Relaxed);
    }

    pub(super) fn count_one_less(&self, worker: usize) {
        let count = self.idle_at(worker).saturating_sub(1);
        self.at[worker].idle.store(count, Relaxed);
    }

    pub(super) fn came_back(&self, worker: usize, now_ms: u64) {
        self.at[worker].back_ms.store(now_ms, Relaxed);
    }

    /// Whether connections come back to a worker all the time.
    pub(super) fn is_lively_at(&self, worker: usize, now_ms: u64) -> bool {
        let back_ms = self.at[worker].back_ms.load(Relaxed);
        back_ms != 0 && now_ms <= back_ms + LIVELY_MS
    }

    pub(super) fn idle(&self) -> u32 {
        (0..self.at.len()).map(|worker| self.idle_at(worker)).sum()
    }
}

impl PartialEq for Pool {
    fn eq(&self, other: &Pool) -> bool {
        self.id == other.id
    }
}

impl Eq for Pool {}

/// One service's books.
#[derive(Debug)]
pub struct SharedPools {
    pressure: Arc<Pressure>,
    state: Mutex<State>,
}

/// How many wait, and whatever else keeps connections from going the short way.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Pressure(AtomicUsize);

impl SharedPools {
    /// Nothing is open. `size` is the limit of the whole service.
    #[must_use]
    pub fn new(workers: usize, size: u32, settings: PoolSettings) -> SharedPools {
        let pressure = Arc::new(Pressure(AtomicUsize::new(0)));
        let state = State::new(workers, size, settings, Arc::clone(&pressure));
        SharedPools {
            pressure,
            state: Mutex::new(state),
        }
    }

    /// The pool of that key, made if there is none.
    pub fn pool(&self, key: PoolKey, quotas: &PoolLimits, server: &Arc<Load>) -> Arc<Pool> {
        self.lock().pool(key, quotas, server)
    }

    /// A client gives up waiting: it left, or its time is over.
    pub fn cancel(&self, ticket: WaitTicket) -> CancelOutcome {
        self.lock().cancel(ticket)
    }

    /// Looks after who waits: to be called when places at a server became free elsewhere, or its
    /// limit changed.
    pub fn serve(&self, now_ms: u64, orders: &mut Vec<WorkerTask>) {
        let mut state = self.lock();
        state.look_for_excess();
        state.serve_all(now_ms, orders);
    }

    /// How many wait, over all pools.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.lock().waiting
    }

    /// What there is of each pool.
    #[must_use]
    pub fn figures(&self) -> Vec<PoolStats> {
        self.lock()
            .pools
            .values()
            .map(PoolRecord::figures)
            .collect()
    }

    pub(super) fn is_calm(&self) -> bool {
        self.pressure.0.load(Relaxed) == 0
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One pool for the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolStats {
    /// Which.
    pub key: PoolKey,
    /// Connections, those that open and close among them.
    pub connections: u32,
    /// Of these, idle.
    pub idle: u32,
    /// Of these, opening.
    pub opening: u32,
    /// Clients that wait.
    pub waiting: usize,
    /// Since when the longest waiting one does.
    pub waiting_since_ms: Option<u64>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) settings: PoolSettings,
    pub(super) workers: usize,
    pub(super) pools: BTreeMap<u64, PoolRecord>,
    /// Pools for which somebody waits.
    pub(super) pools_with_waiters: BTreeSet<u64>,
    /// Databases whose clients are made to wait.
    pub(super) paused: BTreeSet<u64>,
    /// All clients are made to wait.
    pub(super) all_paused: bool,
    /// Some limit is exceeded since it was lowered.
    pub(super) is_exceeded: bool,
    pub(super) limits: BTreeMap<LimitScope, Arc<Permits>>,
    waiting: usize,
    ids: BTreeMap<PoolKey, u64>,
    next_pool: u64,
    next_ticket: u64,
    pressure: Arc<Pressure>,
}

/// What the books have of one pool.
#[derive(Debug)]
pub(super) struct PoolRecord {
    pub(super) pool: Arc<Pool>,
    pub(super) ledgers: ConnectionLimits,
    pub(super) queue: Queue,
    /// Connections that count: from the order to open until told closed.
    pub(super) connections: u32,
    /// Ordered of each worker, and not answered yet: to open, to give an idle one away, to close.
    pub(super) opening: Vec<u32>,
    pub(super) asked: Vec<u32>,
    pub(super) evicting: Vec<u32>,
    /// Places that other pools are making for this one.
    pub(super) promised: u32,
    /// A worker was told to look again after who waits.
    pub(super) recheck_scheduled: bool,
    /// The server said that it is full: nothing is opened before.
    pub(super) hold_until_ms: u64,
}

impl PoolRecord {
    fn new(pool: Arc<Pool>, ledgers: ConnectionLimits, workers: usize) -> PoolRecord {
        PoolRecord {
            pool,
            ledgers,
            queue: Queue::new(workers),
            connections: 0,
            opening: vec![0; workers],
            asked: vec![0; workers],
            evicting: vec![0; workers],
            promised: 0,
            recheck_scheduled: false,
            hold_until_ms: 0,
        }
    }

    fn figures(&self) -> PoolStats {
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
            is_exceeded: false,
            limits: BTreeMap::from([(LimitScope::Service, Arc::new(Permits::new(size)))]),
            waiting: 0,
            ids: BTreeMap::new(),
            next_pool: 0,
            next_ticket: 0,
            pressure,
        }
    }

    fn pool(&mut self, key: PoolKey, quotas: &PoolLimits, server: &Arc<Load>) -> Arc<Pool> {
        if let Some(id) = self.ids.get(&key) {
            return Arc::clone(&self.pools[id].pool);
        }
        let id = self.next_pool;
        self.next_pool += 1;
        let pool = Arc::new(Pool::new(id, key, self.workers));
        let ledgers = self.ledgers(&key, quotas, server);
        let record = PoolRecord::new(Arc::clone(&pool), ledgers, self.workers);
        self.pools.insert(id, record);
        self.ids.insert(key, id);
        pool
    }

    fn ledgers(
        &mut self,
        key: &PoolKey,
        quotas: &PoolLimits,
        server: &Arc<Load>,
    ) -> ConnectionLimits {
        let own = [
            ConnectionLimit::Own(Arc::new(Permits::new(quotas.pool))),
            self.ledger(LimitScope::Service, UNLIMITED),
            self.ledger(LimitScope::User(key.user), quotas.user),
            self.ledger(LimitScope::Database(key.database), quotas.database),
        ];
        ConnectionLimits::new(own, ConnectionLimit::Server(Arc::clone(server)))
    }

    fn ledger(&mut self, scope: LimitScope, limit: u32) -> ConnectionLimit {
        let places = self.limits.entry(scope);
        ConnectionLimit::Own(Arc::clone(
            places.or_insert_with(|| Arc::new(Permits::new(limit))),
        ))
    }

    /// Takes a pool out of the books; it has no connections and nobody waits for one.
    pub(super) fn forget(&mut self, id: u64) {
        if let Some(record) = self.pools.remove(&id) {
            self.disown(id, record.pool.key());
        }
    }

    /// The next client with that key gets a new pool.
    pub(super) fn outdate(&mut self, id: u64) {
        let Some(record) = self.pools.get(&id) else {
            return;
        };
        record.pool.outdated.store(true, Relaxed);
        let key = *record.pool.key();
        self.disown(id, &key);
    }

    fn disown(&mut self, id: u64, key: &PoolKey) {
        if self.ids.get(key) == Some(&id) {
            self.ids.remove(key);
        }
    }

    /// Puts a client in the queue, if there is any use in waiting.
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
        if record.ledgers.allow_none() {
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

    /// Takes the first client out of a worker's line of a pool.
    pub(super) fn dequeue(&mut self, id: u64, worker: usize) -> Option<WaitTicket> {
        let waiter = self.pools.get_mut(&id)?.queue.pop(worker)?;
        self.left(id);
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
        self.left(ticket.pool);
        CancelOutcome::Left
    }

    fn left(&mut self, id: u64) {
        self.waiting -= 1;
        if self.pools[&id].queue.len() == 0 {
            self.pools_with_waiters.remove(&id);
        }
        self.publish();
    }

    /// Tells all workers whether the short way is open. The fence is the one of the two that
    /// `Desk::give_back` speaks of: whoever looks for idle connections after this sees those that
    /// were put away by workers who did not see it.
    pub(super) fn publish(&self) {
        let flags = usize::from(self.is_exceeded) + usize::from(self.all_paused);
        let pressure = self.waiting + self.paused.len() + flags;
        self.pressure.0.store(pressure, Relaxed);
        fence(SeqCst);
    }
}
