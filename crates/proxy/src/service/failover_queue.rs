//! Queues clients of all workers that wait for a primary.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use evenkeel_policy::failover_queue::{
    FailoverQueue, FailoverSettings, FailoverTicket, PrimaryError, PrimaryStatus, QueueDecision,
};

use crate::clock;

/// A waiting client; its turn may be announced by any thread.
#[derive(Debug, Default)]
pub(crate) struct FailoverWaiter {
    state: Mutex<TurnState>,
}

#[derive(Debug, Default)]
struct TurnState {
    outcome: Option<Result<(), PrimaryError>>,
    waker: Option<Waker>,
}

impl FailoverWaiter {
    /// Polls for the client's turn, or the end of its wait.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<Result<(), PrimaryError>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(outcome) = state.outcome {
            return Poll::Ready(outcome);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }

    fn comes(&self, outcome: Result<(), PrimaryError>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
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
    calm: AtomicBool,
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
            calm: AtomicBool::new(false),
        }
    }

    pub(crate) fn set_settings(&self, settings: FailoverSettings) {
        self.lock().0.set_settings(settings);
    }

    /// Returns whether there is a primary, and no queued client is served first.
    pub(crate) fn is_calm(&self) -> bool {
        self.calm.load(Relaxed)
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().0.len()
    }

    /// Admits or queues new work for the primary.
    pub(crate) fn ask(&self, now_ms: u64) -> FailoverAdmission {
        let mut line = self.lock();
        let told = match line.0.ask(now_ms) {
            QueueDecision::Go => FailoverAdmission::Go,
            QueueDecision::Fail(trouble) => FailoverAdmission::Fail(trouble),
            QueueDecision::Wait(ticket) => {
                let turn = Arc::<FailoverWaiter>::default();
                line.1.insert(ticket, Arc::clone(&turn));
                FailoverAdmission::Wait(ticket, turn)
            }
        };
        self.publish(&line.0);
        told
    }

    /// Applies the current roles of the servers.
    pub(crate) fn turn(&self, primary: PrimaryStatus) {
        let mut line = self.lock();
        let tickets = line.0.set_primary_status(primary, clock::now_ms());
        self.call(line, &tickets);
    }

    /// Reports that an admitted client has reached the primary, or has given up.
    pub(crate) fn done(&self, ticket: FailoverTicket) {
        let mut line = self.lock();
        let tickets = line.0.done(ticket, clock::now_ms());
        self.call(line, &tickets);
    }

    /// Requeues a client whose primary failed it, at its previous position.
    pub(crate) fn wait_on(&self, ticket: FailoverTicket) -> Arc<FailoverWaiter> {
        let mut line = self.lock();
        line.0.requeue(ticket);
        let turn = Arc::<FailoverWaiter>::default();
        line.1.insert(ticket, Arc::clone(&turn));
        self.publish(&line.0);
        turn
    }

    pub(crate) fn cancel(&self, ticket: FailoverTicket) {
        let mut line = self.lock();
        line.1.remove(&ticket);
        if line.0.cancel(ticket) {
            self.publish(&line.0);
            return;
        }
        // The client was admitted meanwhile: pass its turn on.
        let tickets = line.0.done(ticket, clock::now_ms());
        self.call(line, &tickets);
    }

    /// Ends waits that exceed the limit; runs about once a second.
    pub(crate) fn upkeep(&self, now_ms: u64) {
        if self.is_calm() {
            return;
        }
        self.expire(now_ms);
        let mut line = self.lock();
        let tickets = line.0.expire_resuming(now_ms);
        self.call(line, &tickets);
    }

    /// Notifies clients that have waited too long.
    fn expire(&self, now_ms: u64) {
        let mut line = self.lock();
        let expired = line.0.expire(now_ms);
        self.publish(&line.0);
        let turns: Vec<_> = expired
            .into_iter()
            .filter_map(|(ticket, trouble)| Some((line.1.remove(&ticket)?, trouble)))
            .collect();
        drop(line);
        for (turn, trouble) in turns {
            turn.comes(Err(trouble));
        }
    }

    fn call(
        &self,
        mut line: MutexGuard<'_, (FailoverQueue, BTreeMap<FailoverTicket, Arc<FailoverWaiter>>)>,
        tickets: &[FailoverTicket],
    ) {
        self.publish(&line.0);
        let turns: Vec<_> = tickets
            .iter()
            .filter_map(|ticket| line.1.remove(ticket))
            .collect();
        drop(line);
        for turn in turns {
            turn.comes(Ok(()));
        }
    }

    fn publish(&self, waiting: &FailoverQueue) {
        self.calm.store(waiting.is_empty_and_available(), Relaxed);
    }

    fn lock(
        &self,
    ) -> MutexGuard<'_, (FailoverQueue, BTreeMap<FailoverTicket, Arc<FailoverWaiter>>)> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
