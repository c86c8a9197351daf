//! Assigns free connections to waiting clients, and decides which connections to move, open or
//! close for them.

use std::sync::Arc;

use super::limits::ConnectionLimits;
use super::shared_pools::{PoolRecord, State};
use super::types::{CloseReason, Preference, TaskKind, WaitTicket, WorkerTask};

/// Reference to an idle connection that can be requested: pool and worker.
pub(super) type IdleRef = (u64, usize);

/// Use of a connection that has become free.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FreeConnectionUse {
    Keep,
    Assign(WaitTicket),
    Close(CloseReason, Option<u64>),
}

impl State {
    /// Decides about a usable connection that was released to a worker.
    pub(super) fn settle(
        &mut self,
        id: u64,
        worker: usize,
        now_ms: u64,
        tasks: &mut Vec<WorkerTask>,
    ) -> FreeConnectionUse {
        if self.pools[&id].pool_limits.are_exceeded() {
            return FreeConnectionUse::Close(CloseReason::OverLimit, None);
        }
        if let Some((rival, victims)) = self.competing_pool(id) {
            self.record(rival).promised += 1;
            self.request_evictions(&victims, rival, tasks);
            return FreeConnectionUse::Close(CloseReason::MakeRoom, Some(rival));
        }
        match self.assign(id, worker, now_ms, tasks) {
            Some(ticket) => FreeConnectionUse::Assign(ticket),
            None => FreeConnectionUse::Keep,
        }
    }

    /// Removes the client that gets a connection of `worker` from the queue.
    pub(super) fn assign(
        &mut self,
        id: u64,
        worker: usize,
        now_ms: u64,
        tasks: &mut Vec<WorkerTask>,
    ) -> Option<WaitTicket> {
        if self.is_pool_paused(id) {
            return None;
        }
        let delay_ms = self.settings.cross_worker_wait_ms;
        let queue = &self.pools[&id].queue;
        let next = queue.next_worker(worker, delay_ms, now_ms)?;
        if next != worker && self.should_wait(id, now_ms, tasks) {
            return None;
        }
        self.dequeue(id, next)
    }

    /// Returns whether a newly arrived client may take an idle connection of its worker.
    pub(super) fn may_take(&self, id: u64, worker: usize, now_ms: u64) -> bool {
        let Some(record) = self.pools.get(&id) else {
            return false;
        };
        let delay_ms = self.settings.cross_worker_wait_ms;
        let first = record.queue.oldest();
        let may_wait = |since_ms: u64| now_ms < since_ms + delay_ms;
        !self.is_pool_paused(id)
            && record.queue.len_at(worker) == 0
            && first.is_none_or(|(_, waiter)| may_wait(waiter.since_ms))
    }

    /// Returns whether one more client would be served immediately, or a connection be opened for
    /// it. A paused pool counts as free, since the pause applies to all servers: another server
    /// would not help.
    pub(super) fn has_capacity(&self, id: u64, now_ms: u64) -> bool {
        let Some(record) = self.pools.get(&id).filter(|_| !self.is_pool_paused(id)) else {
            return true;
        };
        let may_open = || now_ms >= record.retry_at_ms && self.may_acquire_permit(id);
        self.unserved(id) == 0 && (self.has_spare(id) || may_open())
    }

    fn may_acquire_permit(&self, id: u64) -> bool {
        self.pools[&id].pool_limits.full().is_empty() || self.find_victims(id, None).is_some()
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
            if !is_rival || self.is_pool_paused(other) {
                return None;
            }
            let victims = self.find_victims(other, Some(&own.pool_limits))?;
            Some((first.number, other, victims))
        });
        let (_, other, victims) = rivals.min_by_key(|(number, _, _)| *number)?;
        Some((other, victims))
    }

    /// Returns the idle connections of other pools that must close to free permits for this pool,
    /// in addition to one that counts against `freed`; as few as possible. `None` if there are not
    /// enough.
    fn find_victims(&self, id: u64, freed: Option<&ConnectionLimits>) -> Option<Vec<IdleRef>> {
        let mut missing = self.pools[&id].pool_limits.full();
        let full_count = missing.len();
        missing.retain(|one| !freed.is_some_and(|freed| freed.has(one)));
        let is_useful = match freed {
            Some(_) => missing.len() < full_count,
            None => full_count > 0,
        };
        let mut victims = Vec::new();
        while !missing.is_empty() {
            let others = self.pools.values().filter(|other| other.pool.id != id);
            let evictable = others.filter_map(|other| {
                let covers = missing
                    .iter()
                    .filter(|one| other.pool_limits.has(one))
                    .count();
                let (spare, worker) = other.most_idle().filter(|_| covers > 0)?;
                Some((covers, spare, other.pool.id, worker))
            });
            let (_, _, victim, worker) = evictable.max()?;
            missing.retain(|one| !self.pools[&victim].pool_limits.has(one));
            victims.push((victim, worker));
        }
        is_useful.then_some(victims)
    }

    /// Serves all waiting clients in the order of arrival.
    pub(super) fn serve_all(&mut self, now_ms: u64, tasks: &mut Vec<WorkerTask>) {
        let first = |id: &u64| Some(self.pools[id].queue.oldest()?.1.number);
        let mut waiting_pools: Vec<(Option<u64>, u64)> = self
            .pools_with_waiters
            .iter()
            .map(|id| (first(id), *id))
            .collect();
        waiting_pools.sort_unstable();
        for (_, id) in waiting_pools {
            self.serve(id, now_ms, tasks);
        }
    }

    /// Requests a connection for each waiting client of a pool, as far as possible.
    pub(super) fn serve(&mut self, id: u64, now_ms: u64, tasks: &mut Vec<WorkerTask>) {
        if self.is_pool_paused(id) {
            return;
        }
        let opens = self.settings.preference == Preference::New;
        while opens && self.unserved(id) > 0 && self.connect_for_waiter(id, now_ms, tasks) {}
        if self.has_spare(id) && self.should_wait(id, now_ms, tasks) {
            return;
        }
        while self.unserved(id) > 0
            && (self.request_idle(id, tasks)
                || self.connect_for_waiter(id, now_ms, tasks)
                || self.evict_for(id, now_ms, tasks))
        {}
        while self.unserved(id) > self.pools[&id].accepted as usize && self.accept_for(id, tasks) {}
    }

    /// Takes up the offer of a session whose connection, or its permits, the pool's clients can
    /// use.
    fn accept_for(&mut self, id: u64, tasks: &mut Vec<WorkerTask>) -> bool {
        let record = &self.pools[&id];
        let full = record.pool_limits.full();
        let is_useful = |other: &&PoolRecord| {
            other.pool.id == id || full.iter().any(|limit| other.pool_limits.has(limit))
        };
        let first = record.queue.oldest().map(|(worker, _)| worker);
        let offers = self.pools.values().filter(is_useful).flat_map(|other| {
            let at = |worker| (other.pool.id == id, first == Some(worker), worker);
            let with_any = (0..self.workers).filter(|worker| other.offers_at(*worker) > 0);
            with_any.map(move |worker| (at(worker), other.pool.id))
        });
        let Some(((_, _, worker), holder)) = offers.max() else {
            return false;
        };
        self.record(id).accepted += 1;
        let record = self.record(holder);
        record.accepting[worker] += 1;
        tasks.push(record.new_task(worker, TaskKind::AcceptOffer { on_behalf: id }));
        true
    }

    /// Returns whether the first client should briefly wait for a connection of its own worker, to
    /// which connections return frequently. A connection of another worker would have to be moved.
    /// A recheck is then scheduled.
    fn should_wait(&mut self, id: u64, now_ms: u64, tasks: &mut Vec<WorkerTask>) -> bool {
        let delay_ms = self.settings.local_wait_ms;
        let record = self.record(id);
        let Some((worker, first)) = record.queue.oldest() else {
            return false;
        };
        let at_ms = first.since_ms + delay_ms;
        let will_come = record.pool.is_active_at(worker, now_ms) && record.spare_at(worker) == 0;
        if now_ms >= at_ms || !will_come {
            return false;
        }
        if !record.recheck_scheduled {
            record.recheck_scheduled = true;
            tasks.push(record.new_task(worker, TaskKind::Recheck { at_ms }));
        }
        true
    }

    fn has_spare(&self, id: u64) -> bool {
        self.pools[&id].most_idle().is_some()
    }

    /// Returns the number of waiting clients without a pending connection.
    fn unserved(&self, id: u64) -> usize {
        let record = &self.pools[&id];
        let pending: u32 = record.opening.iter().chain(&record.requested).sum();
        let pending = (pending + record.promised) as usize;
        record.queue.len().saturating_sub(pending)
    }

    /// Requests a connection from the worker with the most idle ones.
    fn request_idle(&mut self, id: u64, tasks: &mut Vec<WorkerTask>) -> bool {
        let record = self.record(id);
        let Some((_, worker)) = record.most_idle() else {
            return false;
        };
        record.requested[worker] += 1;
        tasks.push(record.new_task(worker, TaskKind::HandOverIdle));
        true
    }

    fn connect_for_waiter(&mut self, id: u64, now_ms: u64, tasks: &mut Vec<WorkerTask>) -> bool {
        let record = &self.pools[&id];
        let unserved_at = |worker: &usize| {
            let opening = record.opening[*worker] as usize;
            record.queue.len_at(*worker).saturating_sub(opening)
        };
        match (0..self.workers).max_by_key(unserved_at) {
            Some(worker) => self.connect(id, worker, now_ms, tasks),
            None => false,
        }
    }

    /// Reserves permits and requests a new connection.
    pub(super) fn connect(
        &mut self,
        id: u64,
        worker: usize,
        now_ms: u64,
        tasks: &mut Vec<WorkerTask>,
    ) -> bool {
        let record = self.record(id);
        if now_ms < record.retry_at_ms || !record.pool_limits.try_acquire() {
            return false;
        }
        record.connections += 1;
        record.opening[worker] += 1;
        tasks.push(record.new_task(worker, TaskKind::Connect));
        true
    }

    /// Requests that idle connections of other pools close: one, unless several limits are reached.
    fn evict_for(&mut self, id: u64, now_ms: u64, tasks: &mut Vec<WorkerTask>) -> bool {
        if now_ms < self.pools[&id].retry_at_ms {
            return false;
        }
        let Some(victims) = self.find_victims(id, None) else {
            return false;
        };
        self.request_evictions(&victims, id, tasks);
        true
    }

    fn request_evictions(
        &mut self,
        victims: &[IdleRef],
        on_behalf: u64,
        tasks: &mut Vec<WorkerTask>,
    ) {
        for &victim in victims {
            self.record(on_behalf).promised += 1;
            self.request_eviction(victim, on_behalf, tasks);
        }
    }

    pub(super) fn request_eviction(
        &mut self,
        (victim, worker): IdleRef,
        on_behalf: u64,
        tasks: &mut Vec<WorkerTask>,
    ) {
        let record = self.record(victim);
        record.evicting[worker] += 1;
        tasks.push(record.new_task(worker, TaskKind::Evict { on_behalf }));
    }

    /// Clears a promise that was kept, or could not be.
    pub(super) fn clear_promise(&mut self, on_behalf: Option<u64>) {
        let record = on_behalf.and_then(|id| self.pools.get_mut(&id));
        if let Some(record) = record {
            record.promised = record.promised.saturating_sub(1);
        }
    }

    pub(super) fn is_pool_paused(&self, pool_id: u64) -> bool {
        self.all_paused
            || !self.paused.is_empty()
                && self
                    .paused
                    .contains(&self.pools[&pool_id].pool.key().database)
    }

    /// Returns the record of a pool that must exist: a pool with connections, clients or tasks is
    /// never removed.
    pub(super) fn record(&mut self, id: u64) -> &mut PoolRecord {
        self.pools.get_mut(&id).expect("the pool must exist")
    }
}

/// Returns the pool and the worker with the most idle connections that were not requested yet.
pub(super) fn most_idle_of<'a>(records: impl Iterator<Item = &'a PoolRecord>) -> Option<IdleRef> {
    let most = records.filter_map(|record| Some((record.most_idle()?, record.pool.id)));
    let ((_, worker), id) = most.max()?;
    Some((id, worker))
}

impl PoolRecord {
    fn new_task(&self, worker: usize, task: TaskKind) -> WorkerTask {
        WorkerTask {
            worker,
            pool: Arc::clone(&self.pool),
            task,
        }
    }

    /// Returns the number of idle connections at a worker that were not requested from it yet.
    fn spare_at(&self, worker: usize) -> u32 {
        let taken = self.requested[worker] + self.evicting[worker];
        self.pool.idle_at(worker).saturating_sub(taken)
    }

    /// Returns the number of offers at a worker that were not taken up yet.
    fn offers_at(&self, worker: usize) -> u32 {
        let offers = self.pool.offers_at(worker);
        offers.saturating_sub(self.accepting[worker])
    }

    /// Returns the worker with the most unrequested idle connections, and their number. Each
    /// counter is read only once, because it can change concurrently.
    fn most_idle(&self) -> Option<(u32, usize)> {
        let workers = 0..self.opening.len();
        let spare = workers.map(|worker| (self.spare_at(worker), worker));
        spare.max().filter(|(spare, _)| *spare > 0)
    }
}
