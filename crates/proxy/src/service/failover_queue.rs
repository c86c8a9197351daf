//! Queues clients of all workers that wait for a primary.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use evenkeel_policy::failover_queue::{
    FailoverQueue, FailoverSettings, FailoverTicket, PrimaryError, PrimaryStatus, QueueDecision,
};

use evenkeel_engine::clock;
use evenkeel_engine::panics::lock;

/// A waiting client; its turn may be announced by any thread.
#[derive(Debug, Default)]
pub(crate) struct FailoverWaiter {
    state: Mutex<WaiterState>,
}

#[derive(Debug, Default)]
struct WaiterState {
    outcome: Option<Result<(), PrimaryError>>,
    waker: Option<Waker>,
}

impl FailoverWaiter {
    /// Polls for the client's turn, or the end of its wait.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<Result<(), PrimaryError>> {
        let mut state = lock(&self.state);
        if let Some(outcome) = state.outcome {
            return Poll::Ready(outcome);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }

    fn resolve(&self, outcome: Result<(), PrimaryError>) {
        let mut state = lock(&self.state);
        state.outcome = Some(outcome);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// One service's queue.
#[derive(Debug)]
pub(crate) struct SharedFailoverQueue {
    waiting: Mutex<(FailoverQueue, BTreeMap<FailoverTicket, Arc<FailoverWaiter>>)>,
    is_idle: AtomicBool,
}

/// Result of a request for the primary.
pub(crate) enum FailoverAdmission {
    Go,
    Wait(FailoverTicket, Arc<FailoverWaiter>),
    Fail(PrimaryError),
}

impl SharedFailoverQueue {
    pub(crate) fn new(settings: FailoverSettings) -> Self {
        Self {
            waiting: Mutex::new((FailoverQueue::new(settings), BTreeMap::new())),
            is_idle: AtomicBool::new(false),
        }
    }

    pub(crate) fn set_settings(&self, settings: FailoverSettings) {
        self.lock().0.set_settings(settings);
    }

    /// Returns whether there is a primary, and no queued client is served first.
    pub(crate) fn is_idle(&self) -> bool {
        self.is_idle.load(Relaxed)
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().0.len()
    }

    /// Admits or queues new work for the primary.
    pub(crate) fn admit(&self, now_ms: u64) -> FailoverAdmission {
        let mut queue = self.lock();
        let admission = match queue.0.admit(now_ms) {
            QueueDecision::Proceed => FailoverAdmission::Go,
            QueueDecision::Fail(error) => FailoverAdmission::Fail(error),
            QueueDecision::Wait(ticket) => {
                let waiter = Arc::<FailoverWaiter>::default();
                queue.1.insert(ticket, Arc::clone(&waiter));
                FailoverAdmission::Wait(ticket, waiter)
            }
        };
        self.publish(&queue.0);
        admission
    }

    /// Applies the current roles of the servers.
    pub(crate) fn set_primary(&self, primary: PrimaryStatus) {
        let mut queue = self.lock();
        let tickets = queue.0.set_primary_status(primary, clock::now_ms());
        self.admit_waiters(queue, &tickets);
    }

    /// Reports that an admitted client has reached the primary, or has given up.
    pub(crate) fn done(&self, ticket: FailoverTicket) {
        let mut queue = self.lock();
        let tickets = queue.0.done(ticket, clock::now_ms());
        self.admit_waiters(queue, &tickets);
    }

    /// Requeues a client whose primary failed it, at its previous position.
    pub(crate) fn requeue(&self, ticket: FailoverTicket) -> Arc<FailoverWaiter> {
        let mut queue = self.lock();
        queue.0.requeue(ticket);
        let waiter = Arc::<FailoverWaiter>::default();
        queue.1.insert(ticket, Arc::clone(&waiter));
        self.publish(&queue.0);
        waiter
    }

    pub(crate) fn cancel(&self, ticket: FailoverTicket) {
        let mut queue = self.lock();
        queue.1.remove(&ticket);
        if queue.0.cancel(ticket) {
            self.publish(&queue.0);
            return;
        }
        // The client was admitted meanwhile: pass its turn on.
        let tickets = queue.0.done(ticket, clock::now_ms());
        self.admit_waiters(queue, &tickets);
    }

    /// Ends waits that exceed the limit; runs about once a second.
    pub(crate) fn run_maintenance(&self, now_ms: u64) {
        if self.is_idle() {
            return;
        }
        self.expire(now_ms);
        let mut queue = self.lock();
        let tickets = queue.0.expire_resuming(now_ms);
        self.admit_waiters(queue, &tickets);
    }

    /// Notifies clients that have waited too long.
    fn expire(&self, now_ms: u64) {
        let mut queue = self.lock();
        let expired = queue.0.expire(now_ms);
        self.publish(&queue.0);
        let waiters: Vec<_> = expired
            .into_iter()
            .filter_map(|(ticket, error)| Some((queue.1.remove(&ticket)?, error)))
            .collect();
        drop(queue);
        for (waiter, error) in waiters {
            waiter.resolve(Err(error));
        }
    }

    fn admit_waiters(
        &self,
        mut queue: MutexGuard<'_, (FailoverQueue, BTreeMap<FailoverTicket, Arc<FailoverWaiter>>)>,
        tickets: &[FailoverTicket],
    ) {
        self.publish(&queue.0);
        let waiters: Vec<_> = tickets
            .iter()
            .filter_map(|ticket| queue.1.remove(ticket))
            .collect();
        drop(queue);
        for waiter in waiters {
            waiter.resolve(Ok(()));
        }
    }

    fn publish(&self, waiting: &FailoverQueue) {
        self.is_idle
            .store(waiting.is_empty_and_available(), Relaxed);
    }

    fn lock(
        &self,
    ) -> MutexGuard<'_, (FailoverQueue, BTreeMap<FailoverTicket, Arc<FailoverWaiter>>)> {
        lock(&self.waiting)
    }
}
