//! What a server connection still owes, reply by reply, and whether it may serve someone else.
//!
//! One [`Conversation`] goes with each server connection. It is told of every message that is sent
//! ([`Conversation::sent`]) and of every [`Event`] that comes back ([`Conversation::reply`]), and
//! keeps the queue of replies that are due in between (§54.2.3 "Extended Query", §54.2.4
//! "Pipelining", §54.2.6 "COPY Operations"). Requests of ours travel among the client's and their
//! replies are swallowed; replies that we give ourselves wait for their turn.
//!
//! Where the protocol itself is ambiguous (an error during COPY, with a Sync on its way) a request
//! of ours behind it decides ([`Conversation::needs_fence`]). Where none can, the conversation says
//! so ([`Conversation::is_certain`]): such a connection must not be used again.

use std::collections::VecDeque;

use super::TransactionStatus;
use super::backend::ErrorReport;
use super::server_scanner::Event;

mod copy;
mod types;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use copy::CopyState;
pub use types::{
    Delivery, DueAction, LocalReply, Origin, OutOfSync, Reply, ReplyOutcome, Request, RequestToken,
    Sending,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PendingReply {
    Request(Request),
    /// A reply that we give.
    Answer(LocalReply),
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    owed: PendingReply,
    origin: Origin,
    token: RequestToken,
}

/// The replies that a server connection owes.
#[derive(Debug)]
pub struct Conversation {
    queue: VecDeque<Entry>,
    discarded: VecDeque<DueAction>,
    status: TransactionStatus,
    copy: CopyState,
    /// Syncs that a COPY which failed has passed over, or that are still to be answered.
    strays: u32,
    /// How many statements of the Query at the queue's front have ended well.
    completed: u32,
    /// The server passes over everything until a Sync that has not been sent yet.
    skipping: bool,
    /// Extended requests were sent behind the last that ends in ReadyForQuery: their implicit
    /// transaction is open, though every reply may have come.
    open: bool,
    /// What the server will reply to can be told.
    certain: bool,
    /// The connection ends or has ended.
    ended: bool,
}

impl Conversation {
    /// Of a server connection that has just said ReadyForQuery for the first time.
    #[must_use]
    pub fn new() -> Self {
        Conversation {
            queue: VecDeque::new(),
            discarded: VecDeque::new(),
            status: TransactionStatus::Idle,
            copy: CopyState::No,
            strays: 0,
            completed: 0,
            skipping: false,
            open: false,
            certain: true,
            ended: false,
        }
    }

    /// The transaction's state as of the last ReadyForQuery.
    #[must_use]
    pub fn status(&self) -> TransactionStatus {
        self.status
    }

    /// How many replies are owed; the caller limits how many it lets be.
    #[must_use]
    pub fn owed(&self) -> usize {
        self.queue.len()
    }

    /// Whether the server itself owes a reply, with which answers of ours that are due now may go
    /// out; not after it, and not before the client flushes or syncs.
    #[must_use]
    pub fn owes_reply(&self) -> bool {
        let is_request = |entry: &Entry| matches!(entry.owed, PendingReply::Request(_));
        self.queue.iter().any(is_request)
    }

    /// Whether a ReadyForQuery is on its way: some batch or query that was sent is not over.
    #[must_use]
    pub fn owes_ready(&self) -> bool {
        let ends = |entry: &Entry| matches!(entry.owed, PendingReply::Request(request) if ends_in_ready(request));
        self.queue.iter().any(ends)
    }

    /// Whether another client could be served next, as far as the protocol tells: outside a
    /// transaction, nothing owed, nothing ambiguous. Pins are the caller's to know.
    #[must_use]
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.status == TransactionStatus::Idle && self.is_quiet()
    }

    /// As [`Conversation::is_idle`], but perhaps inside a transaction: a request of ours would be
    /// answered before anything else.
    #[must_use]
    #[inline]
    pub fn is_quiet(&self) -> bool {
        // Almost always it is the first that says no.
        let settled = self.queue.is_empty() && !self.open && !self.skipping;
        let well = self.certain && !self.ended && self.copy == CopyState::No;
        settled && well && self.discarded.is_empty()
    }

    /// Whether all that was sent are whole queries and batches, answered or not: an answer of ours
    /// in place of a query can join the queue.
    #[must_use]
    pub fn is_between_batches(&self) -> bool {
        let settled = !self.open && !self.skipping;
        settled && self.certain && !self.ended && self.copy == CopyState::No
    }

    /// Whether replies can still be told apart. If not, the session has to end with the next error
    /// or ReadyForQuery: what belongs to what comes behind that nobody knows.
    #[must_use]
    pub fn is_certain(&self) -> bool {
        self.certain
    }

    /// Where rows and COPY data go that come now.
    #[must_use]
    pub fn delivery(&self) -> Delivery {
        match self.queue.front() {
            Some(Entry {
                origin: Origin::Ours,
                ..
            }) if self.certain => Delivery::Discard,
            _ => Delivery::Forward,
        }
    }

    /// A message is about to be sent. The token comes back in what is settled.
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
        self.push(PendingReply::Request(request), origin, token);
        Sending::Forward
    }

    /// Whether the server passes over everything up to a Sync that has not been sent: no reply
    /// comes before that.
    #[must_use]
    pub fn awaits_sync(&self) -> bool {
        self.skipping && self.queue.is_empty()
    }

    /// The caller will give this reply itself, when its turn comes ([`Due::Answer`]).
    ///
    /// `Drop`: never; it stands behind an error.
    #[must_use]
    pub fn answer(&mut self, answer: LocalReply, token: RequestToken) -> Sending {
        if self.skipping {
            return Sending::Drop;
        }
        self.push(PendingReply::Answer(answer), Origin::Client, token);
        Sending::Forward
    }

    /// What the caller has to do now.
    pub fn due(&mut self) -> Option<DueAction> {
        if let Some(discarded) = self.discarded.pop_front() {
            return Some(discarded);
        }
        let front = self.queue.front()?;
        let PendingReply::Answer(answer) = front.owed else {
            return None;
        };
        let token = front.token;
        self.pop();
        Some(DueAction::Answer(answer, token))
    }

    /// The server sent a message that matters.
    ///
    /// # Errors
    /// It answers nothing that was asked.
    pub fn reply(&mut self, event: &Event<'_>) -> Result<Reply, OutOfSync> {
        let delivery = self.delivery();
        let settled = match event {
            Event::Notification => {
                return Ok(Reply {
                    delivery: Delivery::Forward,
                    settled: ReplyOutcome::Nothing,
                });
            }
            Event::Notice(_) | Event::ParameterStatus(_) => ReplyOutcome::Nothing,
            Event::Login(_) => return Err(OutOfSync),
            Event::Error(report) if report.is_fatal() => self.fatal(*report),
            _ if !self.certain => self.uncertain_reply(event),
            Event::Error(report) => return self.error(*report),
            Event::ReadyForQuery(status) if self.is_stray() => return Ok(self.stray(*status)),
            Event::ReadyForQuery(status) => self.ready(*status)?,
            _ => self.progress(event)?,
        };
        Ok(Reply { delivery, settled })
    }

    fn push(&mut self, owed: PendingReply, origin: Origin, token: RequestToken) {
        self.queue.push_back(Entry {
            owed,
            origin,
            token,
        });
    }

    /// Takes the front entry away, and marks of COPY ends that no COPY waited for.
    fn pop(&mut self) {
        self.queue.pop_front();
        self.completed = 0;
        while self.front() == Some(PendingReply::Request(Request::CopyEnd)) {
            self.queue.pop_front();
        }
    }

    fn front(&self) -> Option<PendingReply> {
        self.queue.front().map(|entry| entry.owed)
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
        let Some(Entry {
            owed: PendingReply::Request(request),
            origin,
            token,
        }) = self.queue.front().copied()
        else {
            return Err(OutOfSync);
        };
        self.copy_failed(request);
        let mut owner = origin;
        if !ends_in_ready(request) {
            owner = self.skip_to_sync();
        }
        Ok(Reply {
            delivery: match owner {
                Origin::Client => Delivery::Forward,
                Origin::Ours => Delivery::Discard,
            },
            settled: ReplyOutcome::Failed {
                token: Some(token),
                sqlstate: report.sqlstate(),
            },
        })
    }

    /// §54.2.3: after an error the server discards messages until a Sync. The error belongs to
    /// whose Sync that is; one that is still to come is the client's.
    fn skip_to_sync(&mut self) -> Origin {
        while let Some(entry) = self.queue.front().copied() {
            match entry.owed {
                PendingReply::Request(Request::Sync) => return entry.origin,
                PendingReply::Request(Request::Parse) => {
                    self.discarded
                        .push_back(DueAction::ParseDiscarded(entry.token));
                }
                PendingReply::Request(Request::Close) => {
                    self.discarded
                        .push_back(DueAction::CloseDiscarded(entry.token));
                }
                PendingReply::Answer(answer) => {
                    let discarded = DueAction::AnswerDiscarded(answer, entry.token);
                    self.discarded.push_back(discarded);
                }
                PendingReply::Request(_) => {}
            }
            self.queue.pop_front();
        }
        self.skipping = true;
        Origin::Client
    }

    fn ready(&mut self, status: TransactionStatus) -> Result<ReplyOutcome, OutOfSync> {
        let entry = self.queue.front().copied().ok_or(OutOfSync)?;
        if !matches!(entry.owed, PendingReply::Request(request) if ends_in_ready(request)) {
            return Err(OutOfSync);
        }
        self.status = status;
        self.copy = CopyState::No;
        self.pop();
        self.certain &= self.strays == 0 || self.is_fenced();
        Ok(match entry.origin {
            Origin::Client => ReplyOutcome::Ready,
            Origin::Ours => ReplyOutcome::OursEnded(entry.token),
        })
    }

    /// A reply that is neither an error nor ReadyForQuery.
    fn progress(&mut self, event: &Event<'_>) -> Result<ReplyOutcome, OutOfSync> {
        let entry = self.queue.front().copied().ok_or(OutOfSync)?;
        let PendingReply::Request(request) = entry.owed else {
            return Err(OutOfSync);
        };
        let token = entry.token;
        let settled = match (request, event) {
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
        // Whatever is answered stands behind them.
        self.strays = 0;
        self.pop();
        Ok(settled)
    }

    /// A statement of a Query ended well; ReadyForQuery or another is still to come.
    fn completed(&mut self, token: RequestToken) -> ReplyOutcome {
        let nth = self.completed;
        self.completed = nth.saturating_add(1);
        self.copy = CopyState::No;
        ReplyOutcome::Completed { token, nth }
    }

    /// A reply after which its request goes on.
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

/// Whether the server says ReadyForQuery after it, error or not.
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
