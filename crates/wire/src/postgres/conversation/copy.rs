//! COPY IN, during which the server ignores Sync (§54.2.6); and what follows if it fails.
//!
//! A client that sends its Sync right behind the Execute, and another behind the data, may get one
//! ReadyForQuery or two if the COPY fails: the server has read the first Sync as a part of the
//! COPY, or it failed before it came to it. Whatever else is answered comes behind both: so a
//! request of ours follows the second Sync, and what comes before its reply is the client's.
//!
//! And COPY both ways, in which replication streams: each side sends until it says that it is done,
//! whichever is first, and the server's CommandComplete comes behind both.

use super::types::{Delivery, Origin, Reply, ReplyOutcome, Request, RequestToken, Sending};
use super::{Conversation, PendingReply, ends_in_ready};
use crate::postgres::TransactionStatus;
use crate::postgres::build;
use crate::postgres::frontend::Target;

/// There is no such portal: to close it does nothing, and is answered.
const NO_PORTAL: &[u8] = b"evenkeel fence";

/// Whether the server reads or writes COPY data, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CopyState {
    No,
    /// The server reads data; it ignores Sync and Flush, `syncs` of which may have been meant.
    In {
        syncs: u32,
        ended: bool,
    },
    Out,
    /// Both sides send; the client has ended what it sends.
    Both {
        ended: bool,
    },
}

impl Conversation {
    /// Whether the server waits for COPY data that has not ended.
    #[must_use]
    pub fn is_copying_in(&self) -> bool {
        matches!(self.copy, CopyState::In { ended: false, .. })
    }

    /// Whether client and server stream to each other, and the client has not ended that.
    #[must_use]
    pub fn is_streaming(&self) -> bool {
        self.copy == CopyState::Both { ended: false }
    }

    /// Whether a message that is neither data nor its end goes to a COPY that reads from the client
    /// instead of being answered.
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
            // A server that streams takes nothing else, and ends the connection for it.
            CopyState::Both { ended: false } => self.certain = false,
            _ => return false,
        }
        true
    }

    /// Whether a Sync that was sent just now needs [`Conversation::fence`] right behind it.
    #[must_use]
    pub fn needs_fence(&self) -> bool {
        let may_fail = matches!(self.copy, CopyState::In { syncs, ended: true } if syncs > 0);
        let is_sync = |owed| owed == PendingReply::Request(Request::Sync);
        let is_sent = self.queue.back().is_some_and(|last| is_sync(last.owed));
        self.certain && is_sent && (may_fail || self.strays > 0)
    }

    /// Writes what tells, by its reply, that nothing comes any more for what was sent before it.
    pub fn fence(&mut self, out: &mut Vec<u8>) {
        for request in [Request::Close, Request::Sync] {
            self.push(
                PendingReply::Request(request),
                Origin::Ours,
                RequestToken::default(),
            );
        }
        build::close(out, Target::Portal(NO_PORTAL));
        build::sync(out);
    }

    /// Whether the next reply but ReadyForQuery tells that no Sync before it is still answered.
    pub(super) fn is_fenced(&self) -> bool {
        matches!(self.front(), Some(PendingReply::Request(request)) if !ends_in_ready(request))
    }

    /// Whether a ReadyForQuery that comes now is for a Sync which the COPY has not passed over.
    pub(super) fn is_stray(&self) -> bool {
        let ends = |owed| matches!(owed, PendingReply::Request(request) if ends_in_ready(request));
        self.strays > 0 && !self.front().is_some_and(ends)
    }

    pub(super) fn stray(&mut self, status: TransactionStatus) -> Reply {
        self.status = status;
        self.strays = self.strays.saturating_sub(1);
        self.skipping = false;
        // Without a fence nobody can tell whether there are more.
        self.certain = self.strays == 0 || self.is_fenced();
        Reply {
            delivery: Delivery::Forward,
            settled: ReplyOutcome::Ready,
        }
    }

    /// An error has ended what ran, perhaps a COPY.
    pub(super) fn copy_failed(&mut self, request: Request) {
        if let CopyState::In { syncs, .. } = self.copy {
            self.strays = syncs;
            // ReadyForQuery follows at once, and what is sent behind that has no fence before it.
            self.certain &= syncs == 0 || !ends_in_ready(request);
        }
        self.copy = CopyState::No;
    }

    /// The server ignores it up to a Sync; but one that was sent before may have ended that.
    pub(super) fn sent_behind_error(&mut self, request: Request) -> Sending {
        let is_nothing = matches!(
            request,
            Request::CopyData | Request::CopyEnd | Request::Flush
        );
        if self.strays == 0 || is_nothing {
            return Sending::Drop;
        }
        self.certain = false;
        Sending::Forward
    }

    /// COPY data is for the COPY that runs or may begin; servers ignore it elsewhere (§54.2.6), and
    /// the client of a COPY that failed may not know yet.
    pub(super) fn sent_copy(&mut self, request: Request) -> Sending {
        let ends = request == Request::CopyEnd;
        match &mut self.copy {
            CopyState::In { ended, .. } | CopyState::Both { ended } if !*ended => *ended = ends,
            _ if self.queue.is_empty() => return Sending::Drop,
            // Sent before the server has said that it copies: remember where the data ends.
            _ if ends => self.push(
                PendingReply::Request(request),
                Origin::Client,
                RequestToken::default(),
            ),
            _ => {}
        }
        Sending::Forward
    }

    /// The server reads what was sent behind the COPY as its data: a Sync there is ignored, the
    /// first end of data ends it, and anything else in between is an error whose extent is unknown.
    pub(super) fn begin_copy_in(&mut self) {
        let mut syncs = 0_u32;
        let mut ended = false;
        while !ended {
            match self.queue.get(1).map(|entry| entry.owed) {
                Some(PendingReply::Request(Request::Sync)) => syncs = syncs.saturating_add(1),
                Some(PendingReply::Request(Request::CopyEnd)) => ended = true,
                None => break,
                Some(_) => {
                    self.certain = false;
                    break;
                }
            }
            self.queue.remove(1);
        }
        self.copy = CopyState::In { syncs, ended };
    }

    /// The client may have ended its side before it knew that there is one; anything else that it
    /// sent ahead is an error whose extent is unknown.
    pub(super) fn begin_copy_both(&mut self) {
        let next = self.queue.get(1).map(|entry| entry.owed);
        let ended = next == Some(PendingReply::Request(Request::CopyEnd));
        if ended {
            self.queue.remove(1);
        }
        self.certain &= ended || next.is_none();
        self.copy = CopyState::Both { ended };
    }

    /// The server has ended what it sends; what the client sends to it may go on.
    pub(super) fn copy_done(&mut self) {
        if !matches!(self.copy, CopyState::Both { .. }) {
            self.copy = CopyState::No;
        }
    }
}
