//! Manages one worker's idle connections, and decides what happens to a released one.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use super::assign::FreeConnectionUse;
use super::idle_lists::IdleLists;
use super::shared_pools::{Pool, SharedPools};
use super::sync::fence;
use super::types::{
    AcquireDecision, Checkout, CloseReason, ClosingConnection, Condition, OpenFailure, WaitTicket,
    WorkerTask,
};

/// Idle connections of one worker.
#[derive(Debug)]
pub struct IdlePool {
    pub(super) worker: usize,
    pub(super) shared_pools: Arc<SharedPools>,
    pub(super) idle_lists: IdleLists,
}

/// Decision about a connection that has become free.
#[derive(Debug, PartialEq, Eq)]
pub enum ReleaseDecision {
    /// Keep it: the connection is stored as idle.
    Idle,
    /// Assign it to this waiting client. A client of another worker receives the connection there,
    /// together with the checkout; if it has disconnected meanwhile, that worker releases the
    /// connection.
    Assign(WaitTicket, Checkout),
    /// Close it, then call `IdlePool::closed`.
    Close(ClosingConnection),
}

impl IdlePool {
    /// Creates an empty idle pool. `worker` is one of those that the shared pools were created for;
    /// each has exactly one idle pool.
    #[must_use]
    pub fn new(worker: usize, shared_pools: Arc<SharedPools>) -> IdlePool {
        IdlePool {
            worker,
            shared_pools,
            idle_lists: IdleLists::new(worker),
        }
    }

    /// Returns whether a client that arrives now would get a connection without waiting for another
    /// client to release one.
    #[must_use]
    pub fn has_capacity(&self, pool: &Pool, now_ms: u64) -> bool {
        let has_idle = pool.idle_at(self.worker) > 0 && self.shared_pools.is_calm();
        has_idle || self.shared_pools.lock().has_capacity(pool.id, now_ms)
    }

    /// Acquires a connection for a client.
    pub fn acquire(
        &mut self,
        pool: &Arc<Pool>,
        now_ms: u64,
        tasks: &mut Vec<WorkerTask>,
    ) -> AcquireDecision {
        if self.shared_pools.is_calm()
            && let Some(checkout) = self.idle_lists.take_newest(pool.id)
        {
            return AcquireDecision::Take(checkout);
        }
        let mut state = self.shared_pools.lock();
        if state.may_take(pool.id, self.worker, now_ms)
            && let Some(checkout) = self.idle_lists.take_newest(pool.id)
        {
            return AcquireDecision::Take(checkout);
        }
        match state.enqueue(pool.id, self.worker, now_ms) {
            Err(refusal) => AcquireDecision::Refuse(refusal),
            Ok(ticket) => {
                state.serve(pool.id, now_ms, tasks);
                let until_ms = now_ms + state.settings.wait_ms;
                AcquireDecision::Wait { ticket, until_ms }
            }
        }
    }

    /// Releases a connection.
    pub fn release(
        &mut self,
        checkout: Checkout,
        condition: Condition,
        now_ms: u64,
        tasks: &mut Vec<WorkerTask>,
    ) -> ReleaseDecision {
        if let Some(why) = self.close_reason(&checkout, condition, now_ms) {
            return ReleaseDecision::Close(close(checkout, why));
        }
        self.idle_lists.record_release(checkout.pool, now_ms);
        if !self.shared_pools.is_calm() {
            return self.settle(checkout, now_ms, tasks);
        }
        let pool = checkout.pool;
        self.idle_lists.put(checkout, now_ms);
        // Either this worker sees the waiting client, or that client sees this idle connection:
        // `publish` has a fence between its two accesses, too.
        fence(SeqCst);
        if self.shared_pools.is_calm() {
            return ReleaseDecision::Idle;
        }
        match self.idle_lists.take_newest(pool) {
            Some(checkout) => self.settle(checkout, now_ms, tasks),
            None => ReleaseDecision::Idle,
        }
    }

    /// Records that a requested connection is open. `random`: 64 random bits, for its lifetime.
    pub fn opened(
        &mut self,
        pool: &Arc<Pool>,
        connection: u32,
        now_ms: u64,
        random: u64,
        tasks: &mut Vec<WorkerTask>,
    ) -> ReleaseDecision {
        let lifetime_ms = {
            let mut state = self.shared_pools.lock();
            state.record(pool.id).opening[self.worker] -= 1;
            state.settings.lifetime_ms
        };
        self.idle_lists.add(pool);
        let checkout = Checkout {
            connection,
            pool: pool.id,
            expires_ms: expiry_ms(now_ms, lifetime_ms, random),
        };
        if pool.is_retired() {
            return ReleaseDecision::Close(close(checkout, CloseReason::Outdated));
        }
        self.settle(checkout, now_ms, tasks)
    }

    /// Records that a requested connection could not be opened. Returns the client to notify, if
    /// any; it no longer waits.
    pub fn connect_failed(
        &mut self,
        pool: &Arc<Pool>,
        failure: OpenFailure,
        now_ms: u64,
        tasks: &mut Vec<WorkerTask>,
    ) -> Option<WaitTicket> {
        let mut state = self.shared_pools.lock();
        let record = state.record(pool.id);
        record.opening[self.worker] -= 1;
        record.connections -= 1;
        record.pool_limits.release();
        let failed_waiter = match failure {
            OpenFailure::Full { pause_ms } => {
                record.retry_at_ms = now_ms + pause_ms;
                None
            }
            OpenFailure::Failed => {
                let first = record.queue.oldest();
                first.and_then(|(worker, _)| state.dequeue(pool.id, worker))
            }
        };
        state.update_any_limit_exceeded();
        state.serve_all(now_ms, tasks);
        failed_waiter
    }

    /// Executes a [`super::TaskKind::HandOverIdle`]: assigns an idle connection to its client.
    /// `None` if no idle connection is left or no client waits.
    pub fn hand_over_idle(
        &mut self,
        pool: &Arc<Pool>,
        now_ms: u64,
        tasks: &mut Vec<WorkerTask>,
    ) -> Option<(WaitTicket, Checkout)> {
        let mut state = self.shared_pools.lock();
        state.record(pool.id).requested[self.worker] -= 1;
        let Some(checkout) = self.idle_lists.take_newest(pool.id) else {
            state.serve(pool.id, now_ms, tasks);
            return None;
        };
        let Some(ticket) = state.assign(pool.id, self.worker, now_ms, tasks) else {
            self.idle_lists.put(checkout, now_ms);
            // The connection was reserved until now; another pool's client may be able to use its
            // permit.
            state.serve_all(now_ms, tasks);
            return None;
        };
        Some((ticket, checkout))
    }

    /// Executes a [`super::TaskKind::Recheck`] when its time has come.
    pub fn recheck(&mut self, pool: &Arc<Pool>, now_ms: u64, tasks: &mut Vec<WorkerTask>) {
        let mut state = self.shared_pools.lock();
        state.record(pool.id).recheck_scheduled = false;
        state.serve(pool.id, now_ms, tasks);
    }

    /// Executes a [`super::TaskKind::Evict`]: returns the connection to close, which must then be
    /// reported as closed. `None` if no idle connection is left.
    pub fn evict(
        &mut self,
        pool: &Arc<Pool>,
        on_behalf: u64,
        now_ms: u64,
        tasks: &mut Vec<WorkerTask>,
    ) -> Option<ClosingConnection> {
        let mut state = self.shared_pools.lock();
        state.record(pool.id).evicting[self.worker] -= 1;
        let Some(checkout) = self.idle_lists.take_oldest(pool.id) else {
            state.clear_promise(Some(on_behalf));
            state.serve_all(now_ms, tasks);
            return None;
        };
        let on_behalf = Some(on_behalf);
        Some(ClosingConnection {
            on_behalf,
            ..close(checkout, CloseReason::MakeRoom)
        })
    }

    /// Records that a connection is closed, which releases its permits.
    pub fn closed(&mut self, closing: ClosingConnection, now_ms: u64, tasks: &mut Vec<WorkerTask>) {
        let mut state = self.shared_pools.lock();
        let record = state.record(closing.pool);
        record.connections -= 1;
        record.pool_limits.release();
        state.clear_promise(closing.on_behalf);
        state.update_any_limit_exceeded();
        state.serve_all(now_ms, tasks);
    }

    /// Publishes the number of sessions at this worker that offer their connections of a pool: they
    /// keep them between transactions, and can find out whether they must. `is_new`: one was added,
    /// which a waiting client may need.
    pub fn set_offers(
        &self,
        pool: &Pool,
        count: usize,
        is_new: bool,
        now_ms: u64,
        tasks: &mut Vec<WorkerTask>,
    ) {
        pool.set_offers(self.worker, count);
        if !is_new {
            return;
        }
        // Either this worker sees the waiting client, or that client sees the offer: `publish` has
        // a fence between its two accesses, too.
        fence(SeqCst);
        if !self.shared_pools.is_calm() {
            self.shared_pools.lock().serve_all(now_ms, tasks);
        }
    }

    /// Begins a [`super::TaskKind::AcceptOffer`]: the caller interrupts the session that has
    /// offered its connection for the longest time, and then publishes the number of offers.
    pub fn accept_offer(&self, pool: &Pool) {
        self.shared_pools.lock().record(pool.id).accepting[self.worker] -= 1;
    }

    /// Ends a [`super::TaskKind::AcceptOffer`]: the session has released its connection, or must
    /// keep it, or no session offered one.
    pub fn offer_settled(&self, on_behalf: u64, now_ms: u64, tasks: &mut Vec<WorkerTask>) {
        let mut state = self.shared_pools.lock();
        if let Some(record) = state.pools.get_mut(&on_behalf) {
            record.accepted = record.accepted.saturating_sub(1);
            state.serve_all(now_ms, tasks);
        }
    }

    /// Removes an idle connection that failed (the server closed it, or sent an unexpected
    /// message).
    pub fn idle_ended(&mut self, pool: &Pool, connection: u32) -> Option<ClosingConnection> {
        let checkout = self.idle_lists.take_connection(pool.id, connection)?;
        Some(close(checkout, CloseReason::Unclean))
    }

    /// Returns the number of idle connections of a pool at this worker.
    #[must_use]
    pub fn idle(&self, pool: &Pool) -> usize {
        self.idle_lists.len(pool.id)
    }

    /// Keeps, assigns or closes a connection, with the lock held.
    fn settle(
        &mut self,
        checkout: Checkout,
        now_ms: u64,
        tasks: &mut Vec<WorkerTask>,
    ) -> ReleaseDecision {
        let mut state = self.shared_pools.lock();
        match state.settle(checkout.pool, self.worker, now_ms, tasks) {
            FreeConnectionUse::Assign(ticket) => ReleaseDecision::Assign(ticket, checkout),
            FreeConnectionUse::Close(why, on_behalf) => ReleaseDecision::Close(ClosingConnection {
                on_behalf,
                ..close(checkout, why)
            }),
            // The lock is held, so that a client that starts to wait after this sees the
            // connection.
            FreeConnectionUse::Keep => {
                self.idle_lists.put(checkout, now_ms);
                ReleaseDecision::Idle
            }
        }
    }

    fn close_reason(
        &mut self,
        checkout: &Checkout,
        condition: Condition,
        now_ms: u64,
    ) -> Option<CloseReason> {
        if condition == Condition::Unclean {
            Some(CloseReason::Unclean)
        } else if self.is_outdated(checkout.pool) {
            Some(CloseReason::Outdated)
        } else if checkout.expires_ms <= now_ms {
            Some(CloseReason::TooOld)
        } else {
            None
        }
    }

    fn is_outdated(&mut self, pool: u64) -> bool {
        if let Some(list) = self.idle_lists.get(pool) {
            return list.pool.is_retired();
        }
        // This is the first connection of its pool that is released at this worker.
        let pool = Arc::clone(&self.shared_pools.lock().record(pool).pool);
        self.idle_lists.add(&pool);
        pool.is_retired()
    }
}

pub(super) fn close(checkout: Checkout, why: CloseReason) -> ClosingConnection {
    ClosingConnection {
        connection: checkout.connection,
        why,
        pool: checkout.pool,
        on_behalf: None,
    }
}

/// Returns the time of expiry: up to a fifth less than the lifetime.
fn expiry_ms(now_ms: u64, lifetime_ms: u64, random: u64) -> u64 {
    if lifetime_ms == 0 {
        return u64::MAX;
    }
    let less_ms = random % (lifetime_ms / 5).max(1);
    now_ms + (lifetime_ms - less_ms)
}
