//! What happens to new work for the primary while there is none: it waits, in order and within
//! limits.
//!
//! Reads that a replica may answer never come here. While all [`Waiting::is_calm`], which the
//! caller can publish to its workers as one flag, nothing else comes here either.
//!
//! Times are milliseconds of one monotonic clock.

use std::collections::BTreeMap;
use std::fmt;

/// Limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailoverSettings {
    /// A client waits this long at most for a primary.
    pub wait_ms: u64,
    /// So many may wait at a time.
    pub queue_length: usize,
    /// So many are let go at once when there is a primary again, the next ones as these are
    /// [`Waiting::done`], or after a second: a server that has just become the primary is cold.
    /// At least one.
    pub resume_at_once: usize,
}

/// Who has been let go is waited for so long: slow statements must not hold up everybody else.
const GOING_MS: u64 = 1_000;

impl Default for FailoverSettings {
    fn default() -> FailoverSettings {
        FailoverSettings {
            wait_ms: 10_000,
            queue_length: 10_000,
            resume_at_once: 32,
        }
    }
}

/// How the primary is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrimaryStatus {
    /// There is one.
    Here,
    /// There is none.
    Away,
}

/// A place in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FailoverTicket {
    number: u64,
    since_ms: u64,
}

/// What to do with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueDecision {
    /// Send it.
    Go,
    /// Wait until the ticket is named by [`Waiting::turn`], [`Waiting::done`],
    /// [`Waiting::hurry`] or [`Waiting::expire`].
    Wait(FailoverTicket),
    /// Tell the client.
    Fail(PrimaryError),
}

/// What a client is told. Its connection stays; only its statement or transaction has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrimaryError {
    /// No server became the primary within the time. Nothing was run.
    NoPrimary {
        /// How long it has waited.
        waited_ms: u64,
    },
    /// Too many wait already. Nothing was run.
    QueueFull,
    /// The server that ran its transaction is gone, and has rolled it back.
    TransactionLost,
    /// The server is gone, and nobody knows whether the statement or COMMIT was run.
    OutcomeUnknown,
}

/// What, and what to do.
impl fmt::Display for PrimaryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PrimaryError::NoPrimary { waited_ms } => write!(
                f,
                "no primary available after {waited_ms} ms; statement not executed, retry"
            ),
            PrimaryError::QueueFull => f.write_str(
                "no primary available and too many clients are waiting for one (queue_length); \
                 statement not executed, retry later",
            ),
            PrimaryError::TransactionLost => f.write_str(
                "lost the server that ran this transaction; transaction rolled back, retry it from \
                 the beginning",
            ),
            PrimaryError::OutcomeUnknown => f.write_str(
                "lost the server before it answered; the statement may or may not have been \
                 executed, check before retrying",
            ),
        }
    }
}

/// The clients of one service that wait for a primary.
#[derive(Debug)]
pub struct FailoverQueue {
    settings: FailoverSettings,
    primary: PrimaryStatus,
    /// Since when, by number: in the order of coming, whoever comes back included.
    queue: BTreeMap<u64, u64>,
    /// Let go, and not done yet: since when, by number.
    resuming: BTreeMap<u64, u64>,
    next: u64,
}

impl FailoverQueue {
    /// Nobody waits; there is no primary yet.
    #[must_use]
    pub fn new(settings: FailoverSettings) -> FailoverQueue {
        FailoverQueue {
            settings,
            primary: PrimaryStatus::Away,
            queue: BTreeMap::new(),
            resuming: BTreeMap::new(),
            next: 0,
        }
    }

    /// Other limits, from a reload.
    pub fn set_settings(&mut self, settings: FailoverSettings) {
        self.settings = settings;
    }

    /// Whether new work may go without asking.
    #[must_use]
    pub fn is_empty_and_available(&self) -> bool {
        self.primary == PrimaryStatus::Here && self.queue.is_empty()
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// A client wants something of the primary of which no server has seen anything.
    pub fn ask(&mut self, now_ms: u64) -> QueueDecision {
        if self.is_empty_and_available() {
            return QueueDecision::Go;
        }
        if self.queue.len() >= self.settings.queue_length {
            return QueueDecision::Fail(PrimaryError::QueueFull);
        }
        QueueDecision::Wait(self.enqueue(now_ms))
    }

    /// How the primary is, to be told after each look at it. Whose turn it is.
    pub fn set_primary_status(
        &mut self,
        primary: PrimaryStatus,
        now_ms: u64,
    ) -> Vec<FailoverTicket> {
        self.primary = primary;
        self.resume(now_ms)
    }

    /// One whose turn it was has its answer, or has left. Whose turn it is next.
    pub fn done(&mut self, ticket: FailoverTicket, now_ms: u64) -> Vec<FailoverTicket> {
        self.resuming.remove(&ticket.number);
        self.resume(now_ms)
    }

    /// Those who were let go a second ago are waited for no more. Whose turn it is next.
    pub fn expire_resuming(&mut self, now_ms: u64) -> Vec<FailoverTicket> {
        let is_recent = |since_ms: u64| now_ms.saturating_sub(since_ms) < GOING_MS;
        self.resuming.retain(|_, since_ms| is_recent(*since_ms));
        self.resume(now_ms)
    }

    /// One whose turn it was found the primary gone again, and nothing of its work was sent: it
    /// waits on where it was, its time running. Nobody follows it before the next [`Self::turn`].
    pub fn requeue(&mut self, ticket: FailoverTicket) {
        self.primary = PrimaryStatus::Away;
        self.resuming.remove(&ticket.number);
        self.queue.insert(ticket.number, ticket.since_ms);
    }

    /// A client leaves the queue. False: it was its turn already.
    pub fn cancel(&mut self, ticket: FailoverTicket) -> bool {
        self.queue.remove(&ticket.number).is_some()
    }

    /// Those whose time is over: they wait no more, and are told so.
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

    /// When somebody's time is over next.
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
        let mut turn = Vec::new();
        while self.primary == PrimaryStatus::Here
            && self.has_room()
            && let Some((number, since_ms)) = self.queue.pop_first()
        {
            self.resuming.insert(number, now_ms);
            turn.push(FailoverTicket { number, since_ms });
        }
        turn
    }

    fn has_room(&self) -> bool {
        self.resuming.len() < self.settings.resume_at_once.max(1)
    }
}

#[cfg(test)]
mod tests;
