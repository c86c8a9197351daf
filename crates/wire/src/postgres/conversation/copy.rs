//! Tracks COPY IN, during which the server ignores Sync (§54.2.6), its failures, and COPY in both
//! directions.
//!
//! A client may send a Sync directly after the Execute, and another after the data. If the COPY
//! fails, it then receives one ReadyForQuery or two: the server has read the first Sync as a part
//! of the COPY, or the COPY failed before it. Every other reply follows both. So a request of
//! Evenkeel (the fence) follows the second Sync, and all replies before that of the fence are the
//! client's.
//!
//! Replication streams with COPY in both directions: each side sends until it ends its data, in
//! either order, and the server's CommandComplete follows both.

use super::types::{Reply, ReplyOutcome, Request, Sending};
use super::{Conversation, PendingReply, ends_in_ready};
use super::{Delivery, Origin, RequestToken};
use crate::postgres::TransactionStatus;
use crate::postgres::build;
use crate::postgres::frontend::Target;

/// Name of a portal that does not exist: closing it has no effect, and is answered.
const NO_PORTAL: &[u8] = b"evenkeel fence";

/// Direction of the COPY data: the server reads or writes, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CopyState {
    No,
    /// The server reads data. It ignores Sync and Flush; `syncs` may have been ignored so far.
    In {
        syncs: u32,
        ended: bool,
    },
    Out,
    /// Both sides send; `ended` is true if the client has ended its data.
    Both {
        ended: bool,
    },
}

impl Conversation {
    /// Returns whether the server waits for COPY data that has not ended.
    #[must_use]
    pub fn is_copying_in(&self) -> bool {
        matches!(self.copy, CopyState::In { ended: false, .. })
    }

    /// Returns whether client and server stream to each other, and the client has not ended its
    /// data.
    #[must_use]
    pub fn is_streaming(&self) -> bool {
        self.copy == CopyState::Both { ended: false }
    }

    /// Returns whether a message that is neither data nor its end is consumed by a COPY IN instead
    /// of being answered.
    pub(super) fn takes_as_copy(&mut self, request: Request) -> bool {
        match &mut self.copy {
            // §54.2.6: "any other non-copy messages constitute an error", Flush and Sync excepted.
            CopyState::In {
                syncs,
                ended: false,
            } => match request {
                Request::Sync => *syncs = syncs.saturating_add(1),
                _ => self.certain = false,
            },
            // A streaming server accepts no other message, and terminates the connection after one.
            CopyState::Both { ended: false } => self.certain = false,
            _ => return false,
        }
        true
    }

    /// Returns whether a Sync that was just sent needs [`Conversation::fence`] directly after it.
    #[must_use]
    pub fn needs_fence(&self) -> bool {
        let may_fail = matches!(self.copy, CopyState::In { syncs, ended: true } if syncs > 0);
        let is_sent = self.queue.last() == Some(PendingReply::Request(Request::Sync));
        self.certain && is_sent && (may_fail || self.stray_replies > 0)
    }

    /// Writes the fence: requests whose reply proves that no reply to an earlier message follows.
    pub fn fence(&mut self, out: &mut Vec<u8>) {
        for request in [Request::Close, Request::Sync] {
            self.queue.push(
                PendingReply::Request(request),
                Origin::Ours,
                RequestToken::default(),
            );
        }
        build::close(out, Target::Portal(NO_PORTAL));
        build::sync(out);
    }

    /// Returns whether the next reply other than ReadyForQuery proves that no earlier Sync will be
    /// answered.
    pub(super) fn is_fenced(&self) -> bool {
        let front = self.queue.front();
        matches!(front, Some(PendingReply::Request(request)) if !ends_in_ready(request))
    }

    /// Returns whether a ReadyForQuery received now belongs to a Sync that the COPY has not
    /// consumed.
    pub(super) fn is_stray(&self) -> bool {
        let ends =
            |pending| matches!(pending, PendingReply::Request(request) if ends_in_ready(request));
        self.stray_replies > 0 && !self.queue.front().is_some_and(ends)
    }

    pub(super) fn handle_stray(&mut self, status: TransactionStatus) -> Reply {
        self.status = status;
        self.stray_replies = self.stray_replies.saturating_sub(1);
        self.skipping = false;
        // Without a fence, the number of further ones is unknown.
        self.certain = self.stray_replies == 0 || self.is_fenced();
        Reply {
            delivery: Delivery::Forward,
            outcome: ReplyOutcome::Ready,
        }
    }

    /// Ends a COPY after an error, if there was one.
    pub(super) fn copy_failed(&mut self, request: Request) {
        if let CopyState::In { syncs, .. } = self.copy {
            self.stray_replies = syncs;
            // ReadyForQuery follows immediately, and no fence precedes what is sent after that.
            self.certain &= syncs == 0 || !ends_in_ready(request);
        }
        self.copy = CopyState::No;
    }

    /// Registers a message that is sent after an error. The server ignores it up to a Sync, unless
    /// an earlier Sync has ended that state.
    pub(super) fn sent_behind_error(&mut self, request: Request) -> Sending {
        let is_nothing = matches!(
            request,
            Request::CopyData | Request::CopyEnd | Request::Flush
        );
        if self.stray_replies == 0 || is_nothing {
            return Sending::Drop;
        }
        self.certain = false;
        Sending::Forward
    }

    /// Registers COPY data, which belongs to the COPY that runs or may begin. Servers ignore it
    /// elsewhere (§54.2.6), and a client may not know yet that its COPY failed.
    pub(super) fn sent_copy(&mut self, request: Request) -> Sending {
        let ends = request == Request::CopyEnd;
        match &mut self.copy {
            CopyState::In { ended, .. } | CopyState::Both { ended } if !*ended => *ended = ends,
            _ if self.queue.is_empty() => return Sending::Drop,
            // Sent before the server has reported the COPY: remember where the data ends.
            _ if ends => self.queue.push(
                PendingReply::Request(request),
                Origin::Client,
                RequestToken::default(),
            ),
            _ => {}
        }
        Sending::Forward
    }

    /// Begins COPY IN. The server reads the messages sent after the COPY as its data: a Sync is
    /// ignored, and the first end of data ends it. Any other message in between is an error of
    /// unknown extent.
    pub(super) fn begin_copy_in(&mut self) {
        let mut syncs = 0_u32;
        let mut ended = false;
        while !ended {
            match self.queue.second() {
                Some(PendingReply::Request(Request::Sync)) => syncs = syncs.saturating_add(1),
                Some(PendingReply::Request(Request::CopyEnd)) => ended = true,
                None => break,
                Some(_) => {
                    self.certain = false;
                    break;
                }
            }
            self.queue.remove_second();
        }
        self.copy = CopyState::In { syncs, ended };
    }

    /// Begins COPY in both directions. The client may have ended its data before it knew of the
    /// COPY. Any other message that it sent ahead is an error of unknown extent.
    pub(super) fn begin_copy_both(&mut self) {
        let next = self.queue.second();
        let ended = next == Some(PendingReply::Request(Request::CopyEnd));
        if ended {
            self.queue.remove_second();
        }
        self.certain &= ended || next.is_none();
        self.copy = CopyState::Both { ended };
    }

    /// Marks the end of the server's data; the client's data may continue.
    pub(super) fn copy_done(&mut self) {
        if !matches!(self.copy, CopyState::Both { .. }) {
            self.copy = CopyState::No;
        }
    }
}
