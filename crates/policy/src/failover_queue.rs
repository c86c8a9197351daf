//! Queues new work for the primary while there is none, in order and within limits.
//!
//! Reads that a replica may serve never enter the queue. While
//! [`FailoverQueue::is_empty_and_available`] holds, no other work enters it either; the caller can
//! publish that to its workers as one flag.
//!
//! Times are milliseconds of one monotonic clock.

use std::collections::BTreeMap;

/// Limits of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailoverSettings {
    /// Maximum time that a client waits for a primary.
    pub wait_ms: u64,
    /// Maximum number of clients that wait.
    pub queue_length: usize,
    /// Number of clients that resume concurrently when a primary is available again; at least one.
    /// The next ones follow after [`FailoverQueue::done`] or after a second, since a new primary
    /// has cold caches.
    pub resume_at_once: usize,
}

/// Maximum time for which a resumed client holds its slot: slow statements must not delay all
/// others.
const RESUMING_MS: u64 = 1_000;

impl Default for FailoverSettings {
    fn default() -> FailoverSettings {
        FailoverSettings {
            wait_ms: 10_000,
            queue_length: 10_000,
            resume_at_once: 32,
        }
    }
}

/// State of the primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrimaryStatus {
    /// There is a primary.
    Available,
    /// There is no primary.
    Unavailable,
}

/// Position in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FailoverTicket {
    number: u64,
    since_ms: u64,
}

/// Decision about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueDecision {
    /// Send the request.
    Proceed,
    /// Wait until the ticket is returned by [`FailoverQueue::set_primary_status`],
    /// [`FailoverQueue::done`], [`FailoverQueue::expire_resuming`] or [`FailoverQueue::expire`].
    Wait(FailoverTicket),
    /// Return the error to the client.
    Fail(PrimaryError),
}

/// Error returned to a client. Its connection remains; only its statement or transaction failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrimaryError {
    /// No server became the primary in time. The statement was not executed.
    NoPrimary {
        /// Time that the client waited.
        waited_ms: u64,
    },
    /// The queue is full. The statement was not executed.
    QueueFull,
    /// The server that ran the transaction failed, and has rolled it back.
    TransactionLost,
    /// The server failed, and it is unknown whether the statement or COMMIT was executed.
    OutcomeUnknown,
}

/// Clients of one service that wait for a primary.
#[derive(Debug)]
pub struct FailoverQueue {
    settings: FailoverSettings,
    primary: PrimaryStatus,
    /// Time of entry by ticket number, in the order of arrival, including clients that were
    /// requeued.
    queue: BTreeMap<u64, u64>,
    /// Clients that were resumed and are not done: time of the resumption by ticket number.
    resuming: BTreeMap<u64, u64>,
    next: u64,
}

impl FailoverQueue {
    /// Creates an empty queue without a primary.
    #[must_use]
    pub fn new(settings: FailoverSettings) -> FailoverQueue {
        FailoverQueue {
            settings,
            primary: PrimaryStatus::Unavailable,
            queue: BTreeMap::new(),
            resuming: BTreeMap::new(),
            next: 0,
        }
    }

    /// Applies new limits after a reload.
    pub fn set_settings(&mut self, settings: FailoverSettings) {
        self.settings = settings;
    }

    /// Returns whether new work may be sent without a call of [`Self::admit`].
    #[must_use]
    pub fn is_empty_and_available(&self) -> bool {
        self.primary == PrimaryStatus::Available && self.queue.is_empty()
    }

    /// Returns the number of waiting clients.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns whether no client waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Decides about a request for the primary that no server has received any part of.
    pub fn admit(&mut self, now_ms: u64) -> QueueDecision {
        if self.is_empty_and_available() {
            return QueueDecision::Proceed;
        }
        if self.queue.len() >= self.settings.queue_length {
            return QueueDecision::Fail(PrimaryError::QueueFull);
        }
        QueueDecision::Wait(self.enqueue(now_ms))
    }

    /// Sets the state of the primary, after each check of it. Returns the clients to resume.
    pub fn set_primary_status(
        &mut self,
        primary: PrimaryStatus,
        now_ms: u64,
    ) -> Vec<FailoverTicket> {
        self.primary = primary;
        self.resume(now_ms)
    }

    /// Records that a resumed client has its reply or has disconnected. Returns the next clients to
    /// resume.
    pub fn done(&mut self, ticket: FailoverTicket, now_ms: u64) -> Vec<FailoverTicket> {
        self.resuming.remove(&ticket.number);
        self.resume(now_ms)
    }

    /// Releases the slots of clients that were resumed a second ago. Returns the next clients to
    /// resume.
    pub fn expire_resuming(&mut self, now_ms: u64) -> Vec<FailoverTicket> {
        let is_recent = |since_ms: u64| now_ms.saturating_sub(since_ms) < RESUMING_MS;
        self.resuming.retain(|_, since_ms| is_recent(*since_ms));
        self.resume(now_ms)
    }

    /// Returns a resumed client to its old position, with its old start time. Used if the primary
    /// failed again before any of the request was sent. No client is resumed before the next
    /// [`Self::set_primary_status`].
    pub fn requeue(&mut self, ticket: FailoverTicket) {
        self.primary = PrimaryStatus::Unavailable;
        self.resuming.remove(&ticket.number);
        self.queue.insert(ticket.number, ticket.since_ms);
    }

    /// Removes a client from the queue; false if it was already resumed.
    pub fn cancel(&mut self, ticket: FailoverTicket) -> bool {
        self.queue.remove(&ticket.number).is_some()
    }

    /// Removes the clients whose wait has timed out, and returns them with their error.
    pub fn expire(&mut self, now_ms: u64) -> Vec<(FailoverTicket, PrimaryError)> {
        let mut expired = Vec::new();
        while let Some(first) = self.queue.first_entry() {
            let waited_ms = now_ms.saturating_sub(*first.get());
            if waited_ms < self.settings.wait_ms {
                break;
            }
            let (number, since_ms) = first.remove_entry();
            let ticket = FailoverTicket { number, since_ms };
            expired.push((ticket, PrimaryError::NoPrimary { waited_ms }));
        }
        expired
    }

    /// Returns the time of the next timeout.
    #[must_use]
    pub fn expires_ms(&self) -> Option<u64> {
        let (_, since_ms) = self.queue.first_key_value()?;
        Some(since_ms + self.settings.wait_ms)
    }

    fn enqueue(&mut self, now_ms: u64) -> FailoverTicket {
        let ticket = FailoverTicket {
            number: self.next,
            since_ms: now_ms,
        };
        self.next += 1;
        self.queue.insert(ticket.number, ticket.since_ms);
        ticket
    }

    fn resume(&mut self, now_ms: u64) -> Vec<FailoverTicket> {
        let mut resumed = Vec::new();
        while self.primary == PrimaryStatus::Available
            && self.has_slot()
            && let Some((number, since_ms)) = self.queue.pop_first()
        {
            self.resuming.insert(number, now_ms);
            resumed.push(FailoverTicket { number, since_ms });
        }
        resumed
    }

    fn has_slot(&self) -> bool {
        self.resuming.len() < self.settings.resume_at_once.max(1)
    }
}

#[cfg(test)]
mod tests;
