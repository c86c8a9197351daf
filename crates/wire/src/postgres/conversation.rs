//! Tracks the replies that a server connection owes, and whether it may serve another session.
//!
//! Each server connection has one [`Conversation`]. The caller reports every message that is sent
//! ([`Conversation::sent`]) and every [`Event`] received ([`Conversation::reply`]). In between, the
//! conversation keeps the queue of pending replies (§54.2.3 "Extended Query", §54.2.4 "Pipelining",
//! §54.2.6 "COPY Operations"). Evenkeel's own requests are sent among the client's, and their
//! replies are discarded. Local replies, which Evenkeel gives itself, wait until they are first in
//! the queue.
//!
//! The protocol is ambiguous in one case: an error during COPY with a Sync on its way. A later
//! request of Evenkeel resolves it ([`Conversation::needs_fence`]). If none can,
//! [`Conversation::is_certain`] returns false: such a connection must not be used again.

use std::collections::VecDeque;

use super::TransactionStatus;
use super::backend::ErrorReport;
use super::server_scanner::Event;
use crate::reply_queue::ReplyQueue;

mod copy;
mod types;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

pub use crate::reply_queue::{Delivery, Origin, OutOfSync, RequestToken};
use copy::CopyState;
pub use types::{DueAction, LocalReply, Reply, ReplyOutcome, Request, Sending};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PendingReply {
    Request(Request),
    /// A local reply.
    Answer(LocalReply),
}

/// Pending replies of one server connection.
#[derive(Debug)]
pub struct Conversation {
    queue: ReplyQueue<PendingReply>,
    discarded: VecDeque<DueAction>,
    status: TransactionStatus,
    copy: CopyState,
    /// Syncs that a failed COPY has consumed, or that are still to be answered.
    stray_replies: u32,
    /// How many statements of the Query at the front of the queue have succeeded.
    completed: u32,
    /// True if the server discards all messages until a Sync that has not been sent yet.
    skipping: bool,
    /// True if extended requests were sent after the last one that ends in ReadyForQuery. Their
    /// implicit transaction is open, even if every reply has been received.
    open: bool,
    /// True if extended requests were sent after the last Sync: an error in one that is pending
    /// makes the server discard queries after it, too.
    unsynced: bool,
    /// True if the server's next replies can be predicted.
    certain: bool,
    /// True if the connection ends or has ended.
    ended: bool,
}

impl Conversation {
    /// Creates the conversation of a server connection that has just sent its first ReadyForQuery.
    #[must_use]
    pub fn new() -> Self {
        Conversation {
            queue: ReplyQueue::new(),
            discarded: VecDeque::new(),
            status: TransactionStatus::Idle,
            copy: CopyState::No,
            stray_replies: 0,
            completed: 0,
            skipping: false,
            open: false,
            unsynced: false,
            certain: true,
            ended: false,
        }
    }

    /// Returns the transaction status as of the last ReadyForQuery.
    #[must_use]
    pub fn status(&self) -> TransactionStatus {
        self.status
    }

    /// Returns how many replies are pending; the caller limits their number.
    #[must_use]
    pub fn pending_count(&self) -> usize {
        self.queue.len()
    }

    /// Returns whether the server itself owes a reply. Local replies that are due can be sent with
    /// that one; never after it, and not before the client sends Flush or Sync.
    #[must_use]
    pub fn is_reply_pending(&self) -> bool {
        let is_request = |pending| matches!(pending, PendingReply::Request(_));
        self.queue.any(is_request)
    }

    /// Returns whether a ReadyForQuery is pending: some batch or query that was sent has not ended.
    #[must_use]
    pub fn is_ready_pending(&self) -> bool {
        self.queue.any(ends_pending)
    }

    /// Returns whether another client can be served next according to the protocol: outside a
    /// transaction, with no pending reply and no ambiguity. Pins are tracked by the caller.
    #[must_use]
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.status == TransactionStatus::Idle && self.is_quiet()
    }

    /// Returns whether a request of Evenkeel would be answered next: like
    /// [`Conversation::is_idle`], but possibly inside a transaction.
    #[must_use]
    #[inline]
    pub fn is_quiet(&self) -> bool {
        // The first condition decides in nearly all calls.
        let is_settled = self.queue.is_empty() && !self.open && !self.skipping;
        let well = self.certain && !self.ended && self.copy == CopyState::No;
        is_settled && well && self.discarded.is_empty()
    }

    /// Returns whether only whole queries and batches were sent, answered or not, and no error can
    /// make the server discard the next query. If so, a local reply in place of a query can join
    /// the queue.
    #[must_use]
    pub fn is_between_batches(&self) -> bool {
        let is_settled = !self.open && !self.skipping;
        let is_certain_to_run = !self.unsynced || self.queue.is_empty();
        is_settled && is_certain_to_run && self.certain && !self.ended && self.copy == CopyState::No
    }

    /// Returns whether replies can still be attributed to requests. If not, the session has to end
    /// with the next error or ReadyForQuery, because later replies cannot be attributed.
    #[must_use]
    pub fn is_certain(&self) -> bool {
        self.certain
    }

    /// Returns the destination of the rows and COPY data that are received now.
    #[must_use]
    pub fn delivery(&self) -> Delivery {
        self.queue.delivery(self.certain)
    }

    /// Registers a message that is about to be sent. The token is returned with the outcome.
    #[must_use]
    pub fn sent(&mut self, request: Request, origin: Origin, token: RequestToken) -> Sending {
        if !self.certain || request == Request::Terminate {
            self.ended |= request == Request::Terminate;
            return Sending::Forward;
        }
        if self.skipping && request != Request::Sync {
            return self.sent_behind_error(request);
        }
        match request {
            Request::Flush => return Sending::Forward,
            Request::CopyData | Request::CopyEnd => return self.sent_copy(request),
            _ => {}
        }
        if self.takes_as_copy(request) {
            return Sending::Forward;
        }
        self.skipping = false;
        self.open = !ends_in_ready(request);
        self.unsynced &= request != Request::Sync && !self.queue.is_empty();
        self.unsynced |= self.open;
        self.queue
            .push(PendingReply::Request(request), origin, token);
        Sending::Forward
    }

    /// Returns whether the server discards everything up to a Sync that has not been sent: no reply
    /// is received before that.
    #[must_use]
    pub fn awaits_sync(&self) -> bool {
        self.skipping && self.queue.is_empty()
    }

    /// Registers a reply that the caller gives itself when it is due ([`DueAction::Answer`]).
    ///
    /// Returns `Drop` if it is never due, because it follows an error.
    #[must_use]
    pub fn add_local_reply(&mut self, answer: LocalReply, token: RequestToken) -> Sending {
        if self.skipping {
            return Sending::Drop;
        }
        self.queue
            .push(PendingReply::Answer(answer), Origin::Client, token);
        Sending::Forward
    }

    /// Returns the next action that is due, or `None`.
    pub fn due(&mut self) -> Option<DueAction> {
        if let Some(discarded) = self.discarded.pop_front() {
            return Some(discarded);
        }
        let front = self.queue.first()?;
        let PendingReply::Answer(answer) = front.pending else {
            return None;
        };
        let token = front.token;
        self.pop();
        Some(DueAction::Answer(answer, token))
    }

    /// Processes a message of the server that may affect the queue.
    ///
    /// # Errors
    ///
    /// Fails if the message answers no request.
    pub fn reply(&mut self, event: &Event<'_>) -> Result<Reply, OutOfSync> {
        let delivery = self.delivery();
        let outcome = match event {
            Event::Notification => {
                return Ok(Reply {
                    delivery: Delivery::Forward,
                    outcome: ReplyOutcome::Nothing,
                });
            }
            Event::Notice(_) | Event::ParameterStatus(_) => ReplyOutcome::Nothing,
            Event::Login(_) => return Err(OutOfSync),
            Event::Error(report) if report.is_fatal() => self.fatal(*report),
            _ if !self.certain => self.uncertain_reply(event),
            Event::Error(report) => return self.error(*report),
            Event::ReadyForQuery(status) if self.is_stray() => {
                return Ok(self.handle_stray(*status));
            }
            Event::ReadyForQuery(status) => self.ready(*status)?,
            _ => self.progress(event)?,
        };
        Ok(Reply { delivery, outcome })
    }

    /// Removes the front entry, and ends of COPY data that no COPY was waiting for.
    fn pop(&mut self) {
        self.queue.pop();
        self.completed = 0;
        while self.queue.front() == Some(PendingReply::Request(Request::CopyEnd)) {
            self.queue.pop();
        }
    }

    fn fatal(&mut self, report: ErrorReport<'_>) -> ReplyOutcome {
        self.ended = true;
        self.certain = false;
        ReplyOutcome::Fatal(report.sqlstate())
    }

    fn uncertain_reply(&mut self, event: &Event<'_>) -> ReplyOutcome {
        match event {
            Event::ReadyForQuery(status) => {
                self.status = *status;
                ReplyOutcome::Ready
            }
            Event::Error(report) => ReplyOutcome::Failed {
                token: None,
                sqlstate: report.sqlstate(),
            },
            _ => ReplyOutcome::Nothing,
        }
    }

    fn error(&mut self, report: ErrorReport<'_>) -> Result<Reply, OutOfSync> {
        let entry = self.queue.answered()?;
        let PendingReply::Request(request) = entry.pending else {
            return Err(OutOfSync);
        };
        self.copy_failed(request);
        let mut owner = entry.origin;
        if !ends_in_ready(request) {
            owner = self.skip_to_sync();
        }
        Ok(Reply {
            delivery: match owner {
                Origin::Client => Delivery::Forward,
                Origin::Ours => Delivery::Discard,
            },
            outcome: ReplyOutcome::Failed {
                token: Some(entry.token),
                sqlstate: report.sqlstate(),
            },
        })
    }

    /// Skips to the next Sync and returns its origin: the error belongs to it. A Sync that is still
    /// to come is the client's. §54.2.3: after an error the server discards messages until a Sync.
    fn skip_to_sync(&mut self) -> Origin {
        while let Some(entry) = self.queue.first().copied() {
            match entry.pending {
                PendingReply::Request(Request::Sync) => return entry.origin,
                PendingReply::Request(Request::Parse) => {
                    self.discarded
                        .push_back(DueAction::ParseDiscarded(entry.token));
                }
                PendingReply::Request(Request::Close) => {
                    self.discarded
                        .push_back(DueAction::CloseDiscarded(entry.token));
                }
                PendingReply::Request(Request::Query | Request::Execute) => {
                    self.discarded
                        .push_back(DueAction::RunDiscarded(entry.token));
                }
                PendingReply::Answer(answer) => {
                    let discarded = DueAction::AnswerDiscarded(answer, entry.token);
                    self.discarded.push_back(discarded);
                }
                PendingReply::Request(_) => {}
            }
            self.queue.pop();
        }
        self.skipping = true;
        Origin::Client
    }

    fn ready(&mut self, status: TransactionStatus) -> Result<ReplyOutcome, OutOfSync> {
        let entry = self.queue.answered()?;
        if !ends_pending(entry.pending) {
            return Err(OutOfSync);
        }
        self.status = status;
        self.copy = CopyState::No;
        self.pop();
        self.certain &= self.stray_replies == 0 || self.is_fenced();
        Ok(match entry.origin {
            Origin::Client => ReplyOutcome::Ready,
            Origin::Ours => ReplyOutcome::OursEnded(entry.token),
        })
    }

    /// Processes a reply that is neither an error nor ReadyForQuery.
    fn progress(&mut self, event: &Event<'_>) -> Result<ReplyOutcome, OutOfSync> {
        let entry = self.queue.answered()?;
        let PendingReply::Request(request) = entry.pending else {
            return Err(OutOfSync);
        };
        let token = entry.token;
        let outcome = match (request, event) {
            (Request::Parse, Event::ParseComplete) => ReplyOutcome::Parsed(token),
            (Request::Close, Event::CloseComplete) => ReplyOutcome::Closed(token),
            (Request::Execute, Event::CommandComplete(_) | Event::EmptyQuery) => {
                ReplyOutcome::Completed { token, nth: 0 }
            }
            (Request::Execute, Event::PortalSuspended) => ReplyOutcome::Suspended(token),
            (Request::Bind, Event::BindComplete)
            | (
                Request::DescribeStatement | Request::DescribePortal,
                Event::RowDescription | Event::NoData,
            ) => ReplyOutcome::Nothing,
            (Request::Query, Event::CommandComplete(_) | Event::EmptyQuery) => {
                return Ok(self.completed(token));
            }
            _ => return self.inside(request, event),
        };
        self.copy = CopyState::No;
        // Stray Syncs precede every request that is answered now.
        self.stray_replies = 0;
        self.pop();
        Ok(outcome)
    }

    /// Counts a successful statement of a Query; ReadyForQuery or another statement follows.
    fn completed(&mut self, token: RequestToken) -> ReplyOutcome {
        let nth = self.completed;
        self.completed = nth.saturating_add(1);
        self.copy = CopyState::No;
        ReplyOutcome::Completed { token, nth }
    }

    /// Processes a reply after which its request continues.
    fn inside(&mut self, request: Request, event: &Event<'_>) -> Result<ReplyOutcome, OutOfSync> {
        match (request, event) {
            (Request::Query, Event::RowDescription)
            | (Request::DescribeStatement, Event::ParameterDescription)
            | (Request::FunctionCall, Event::FunctionResult) => {}
            (Request::Query | Request::Execute, Event::CopyIn) => self.begin_copy_in(),
            (Request::Query | Request::Execute, Event::CopyOut) => self.copy = CopyState::Out,
            (Request::Query | Request::Execute, Event::CopyBoth) => self.begin_copy_both(),
            (Request::Query | Request::Execute, Event::CopyDone) => self.copy_done(),
            _ => return Err(OutOfSync),
        }
        Ok(ReplyOutcome::Nothing)
    }
}

fn ends_pending(pending: PendingReply) -> bool {
    matches!(pending, PendingReply::Request(request) if ends_in_ready(request))
}

/// Returns whether the server sends ReadyForQuery after the request, with or without an error.
fn ends_in_ready(request: Request) -> bool {
    matches!(
        request,
        Request::Query | Request::Sync | Request::FunctionCall
    )
}

impl Default for Conversation {
    fn default() -> Self {
        Conversation::new()
    }
}
