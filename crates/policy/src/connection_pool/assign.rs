//! Assigns free connections to waiting clients, and decides which connections to move, open or
//! close for them.

use std::sync::Arc;

use super::limits::ConnectionLimits;
use super::shared_pools::{PoolRecord, State};
use super::types::{CloseReason, TaskKind, WaitTicket, WorkerTask};

/// Reference to an idle connection that can be requested: pool and worker.
pub(super) type IdleRef = (u64, usize);

/// Use of a connection that has become free.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FreeConnectionUse {
    Keep,
    Hand(WaitTicket),
    Close(CloseReason, Option<u64>),
}

impl State {
    /// Decides about a usable connection that was released to a worker.
    pub(super) fn settle(
        &mut self,
        id: u64,
        worker: usize,
        now_ms: u64,
        orders: &mut Vec<WorkerTask>,
    ) -> FreeConnectionUse {
        if self.pools[&id].ledgers.are_exceeded() {
            return FreeConnectionUse::Close(CloseReason::OverLimit, None);
        }
        if let Some((rival, victims)) = self.competing_pool(id) {
            self.record(rival).promised += 1;
            self.order_evictions(&victims, rival, orders);
            return FreeConnectionUse::Close(CloseReason::MakeRoom, Some(rival));
        }
        match self.hand(id, worker, now_ms, orders) {
            Some(ticket) => FreeConnectionUse::Hand(ticket),
            None => FreeConnectionUse::Keep,
        }
    }

    /// Removes the client that gets a connection of `worker` from the queue.
    pub(super) fn hand(
        &mut self,
        id: u64,
        worker: usize,
        now_ms: u64,
        orders: &mut Vec<WorkerTask>,
    ) -> Option<WaitTicket> {
        if self.is_paused(id) {
            return None;
        }
        let patience_ms = self.settings.cross_worker_wait_ms;
        let queue = &self.pools[&id].queue;
        let line = queue.next_line(worker, patience_ms, now_ms)?;
        if line != worker && self.is_better_patient(id, now_ms, orders) {
            return None;
        }
        self.dequeue(id, line)
    }

    /// Returns whether a newly arrived client may take an idle connection of its worker.
    pub(super) fn may_take(&self, id: u64, worker: usize, now_ms: u64) -> bool {
        let Some(record) = self.pools.get(&id) else {
            return false;
        };
        let patience_ms = self.settings.cross_worker_wait_ms;
        let first = record.queue.oldest();
        let is_patient = |since_ms: u64| now_ms < since_ms + patience_ms;
        !self.is_paused(id)
            && record.queue.len_at(worker) == 0
            && first.is_none_or(|(_, waiter)| is_patient(waiter.since_ms))
    }

    /// Returns whether one more client would be served immediately, or a connection be opened for
    /// it. A paused pool counts as free, since the pause applies to all servers: another server
    /// would not help.
    pub(super) fn has_room(&self, id: u64, now_ms: u64) -> bool {
        let Some(record) = self.pools.get(&id).filter(|_| !self.is_paused(id)) else {
            return true;
        };
        let may_open = || now_ms >= record.hold_until_ms && self.may_take_place(id);
        self.unserved(id) == 0 && (self.has_spare(id) || may_open())
    }

    fn may_take_place(&self, id: u64) -> bool {
        self.pools[&id].ledgers.full().is_empty() || self.room(id, None).is_some()
    }

    /// Returns another pool whose client has waited long enough to get the permit of this pool's
    /// connection, with the connections that must be closed in addition.
    fn competing_pool(&self, id: u64) -> Option<(u64, Vec<IdleRef>)> {
        let own = &self.pools[&id];
        let own_since_ms = own.queue.oldest().map(|(_, waiter)| waiter.since_ms);
        let is_older = |since_ms: u64| {
            own_since_ms.is_none_or(|own| since_ms + self.settings.eviction_wait_ms <= own)
        };
        let others = self.pools_with_waiters.iter().filter(|other| **other != id);
        let rivals = others.filter_map(|&other| {
            let (_, first) = self.pools[&other].queue.oldest()?;
            let is_rival = is_older(first.since_ms) && self.unserved(other) > 0;
            if !is_rival || self.is_paused(other) {
                return None;
            }
            let victims = self.room(other, Some(&own.ledgers))?;
            Some((first.number, other, victims))
        });
        let (_, other, victims) = rivals.min_by_key(|(number, _, _)| *number)?;
        Some((other, victims))
    }

    /// Returns the idle connections of other pools that must close to free permits for this pool,
    /// in addition to one that counts against `given`; as few as possible. `None` if there are not
    /// enough.
    fn room(&self, id: u64, given: Option<&ConnectionLimits>) -> Option<Vec<IdleRef>> {
        let mut missing = self.pools[&id].ledgers.full();
        let in_the_way = missing.len();
        missing.retain(|one| !given.is_some_and(|given| given.has(one)));
        let is_useful = match given {
            Some(_) => missing.len() < in_the_way,
            None => in_the_way > 0,
        };
        let mut victims = Vec::new();
        while !missing.is_empty() {
            let others = self.pools.values().filter(|other| other.pool.id != id);
            let helps = others.filter_map(|other| {
                let covers = missing.iter().filter(|one| other.ledgers.has(one)).count();
                let (spare, worker) = other.most_idle().filter(|_| covers > 0)?;
                Some((covers, spare, other.pool.id, worker))
            });
            let (_, _, victim, worker) = helps.max()?;
            missing.retain(|one| !self.pools[&victim].ledgers.has(one));
            victims.push((victim, worker));
        }
        is_useful.then_some(victims)
    }

    /// Serves all waiting clients in the order of arrival.
    pub(super) fn serve_all(&mut self, now_ms: u64, orders: &mut Vec<WorkerTask>) {
        let first = |id: &u64| Some(self.pools[id].queue.oldest()?.1.number);
        let mut hungry: Vec<(Option<u64>, u64)> = self
            .pools_with_waiters
            .iter()
            .map(|id| (first(id), *id))
            .collect();
        hungry.sort_unstable();
        for (_, id) in hungry {
            self.serve(id, now_ms, orders);
        }
    }

    /// Requests a connection for each waiting client of a pool, as far as possible.
    pub(super) fn serve(&mut self, id: u64, now_ms: u64, orders: &mut Vec<WorkerTask>) {
        if self.is_paused(id) || self.has_spare(id) && self.is_better_patient(id, now_ms, orders) {
            return;
        }
        while self.unserved(id) > 0
            && (self.ask(id, orders)
                || self.connect_for_waiter(id, now_ms, orders)
                || self.make_room(id, now_ms, orders))
        {}
    }

    /// Returns whether the first client should briefly wait for a connection of its own worker, to
    /// which connections return frequently. A connection of another worker would have to be moved.
    /// A recheck is then scheduled.
    fn is_better_patient(&mut self, id: u64, now_ms: u64, orders: &mut Vec<WorkerTask>) -> bool {
        let patience_ms = self.settings.local_wait_ms;
        let record = self.record(id);
        let Some((worker, first)) = record.queue.oldest() else {
            return false;
        };
        let at_ms = first.since_ms + patience_ms;
        let will_come = record.pool.is_lively_at(worker, now_ms) && record.spare_at(worker) == 0;
        if now_ms >= at_ms || !will_come {
            return false;
        }
        if !record.recheck_scheduled {
            record.recheck_scheduled = true;
            orders.push(record.order(worker, TaskKind::Recheck { at_ms }));
        }
        true
    }

    fn has_spare(&self, id: u64) -> bool {
        self.pools[&id].most_idle().is_some()
    }

    /// Returns the number of waiting clients without a pending connection.
    fn unserved(&self, id: u64) -> usize {
        let record = &self.pools[&id];
        let coming: u32 = record.opening.iter().chain(&record.asked).sum();
        let coming = (coming + record.promised) as usize;
        record.queue.len().saturating_sub(coming)
    }

    /// Requests a connection from the worker with the most idle ones.
    fn ask(&mut self, id: u64, orders: &mut Vec<WorkerTask>) -> bool {
        let record = self.record(id);
        let Some((_, worker)) = record.most_idle() else {
            return false;
        };
        record.asked[worker] += 1;
        orders.push(record.order(worker, TaskKind::HandOverIdle));
        true
    }

    fn connect_for_waiter(&mut self, id: u64, now_ms: u64, orders: &mut Vec<WorkerTask>) -> bool {
        let record = &self.pools[&id];
        let unserved_at = |worker: &usize| {
            let opening = record.opening[*worker] as usize;
            record.queue.len_at(*worker).saturating_sub(opening)
        };
        match (0..self.workers).max_by_key(unserved_at) {
            Some(worker) => self.connect(id, worker, now_ms, orders),
            None => false,
        }
    }

    /// Reserves permits and requests a new connection.
    pub(super) fn connect(
        &mut self,
        id: u64,
        worker: usize,
        now_ms: u64,
        orders: &mut Vec<WorkerTask>,
    ) -> bool {
        let record = self.record(id);
        if now_ms < record.hold_until_ms || !record.ledgers.try_take() {
            return false;
        }
        record.connections += 1;
        record.opening[worker] += 1;
        orders.push(record.order(worker, TaskKind::Connect));
        true
    }

    /// Requests that idle connections of other pools close: one, unless several limits are reached.
    fn make_room(&mut self, id: u64, now_ms: u64, orders: &mut Vec<WorkerTask>) -> bool {
        if now_ms < self.pools[&id].hold_until_ms {
            return false;
        }
        let Some(victims) = self.room(id, None) else {
            return false;
        };
        self.order_evictions(&victims, id, orders);
        true
    }

    fn order_evictions(
        &mut self,
        victims: &[IdleRef],
        on_behalf: u64,
        orders: &mut Vec<WorkerTask>,
    ) {
        for &victim in victims {
            self.record(on_behalf).promised += 1;
            self.order_eviction(victim, on_behalf, orders);
        }
    }

    pub(super) fn order_eviction(
        &mut self,
        (victim, worker): IdleRef,
        on_behalf: u64,
        orders: &mut Vec<WorkerTask>,
    ) {
        let record = self.record(victim);
        record.evicting[worker] += 1;
        orders.push(record.order(worker, TaskKind::Evict { on_behalf }));
    }

    /// Clears a promise that was kept, or could not be.
    pub(super) fn clear_promise(&mut self, on_behalf: Option<u64>) {
        let record = on_behalf.and_then(|id| self.pools.get_mut(&id));
        if let Some(record) = record {
            record.promised = record.promised.saturating_sub(1);
        }
    }

    pub(super) fn is_paused(&self, id: u64) -> bool {
        self.all_paused
            || !self.paused.is_empty() && self.paused.contains(&self.pools[&id].pool.key().database)
    }

    /// Returns the record of a pool that must exist: a pool with connections, clients or tasks is
    /// never removed.
    pub(super) fn record(&mut self, id: u64) -> &mut PoolRecord {
        self.pools.get_mut(&id).expect("the pool is in the books")
    }
}

/// Returns the pool and the worker with the most idle connections that were not requested yet.
pub(super) fn most_idle_of<'a>(records: impl Iterator<Item = &'a PoolRecord>) -> Option<IdleRef> {
    let most = records.filter_map(|record| Some((record.most_idle()?, record.pool.id)));
    let ((_, worker), id) = most.max()?;
    Some((id, worker))
}

impl PoolRecord {
    fn order(&self, worker: usize, task: TaskKind) -> WorkerTask {
        WorkerTask {
            worker,
            pool: Arc::clone(&self.pool),
            task,
        }
    }

    /// Returns the number of idle connections at a worker that were not requested from it yet.
    fn spare_at(&self, worker: usize) -> u32 {
        let taken = self.asked[worker] + self.evicting[worker];
        self.pool.idle_at(worker).saturating_sub(taken)
    }

    /// Returns the worker with the most of them, and their number. Each counter is read only once,
    /// because it can change concurrently.
    fn most_idle(&self) -> Option<(u32, usize)> {
        let workers = 0..self.opening.len();
        let spare = workers.map(|worker| (self.spare_at(worker), worker));
        spare.max().filter(|(spare, _)| *spare > 0)
    }
}
