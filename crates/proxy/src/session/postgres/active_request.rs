//! Represents the request being processed: one query, or a batch up to its Sync.

use evenkeel_policy::route::retry::{Atomicity, Progress};
use evenkeel_wire::postgres::conversation::Request;

use super::pending_effects::atomicity;
use crate::service::rules::AppliedRules;
use crate::session::retry_history::RetryHistory;
use evenkeel_sql::session_state::analysis::TextAnalysis;

/// Bytes of buffer memory that a client keeps for its next request.
const SPARE_LENGTH_MAX: usize = 256;

/// Request being processed, and its progress.
pub(super) struct ActiveRequest {
    /// Bytes of the request while it can be retried.
    pub(super) kept: Option<Vec<u8>>,
    /// Buffer for reuse by the next request.
    spare: Vec<u8>,
    pub(super) access: Access,
    /// True if the whole request has been sent to a server.
    pub(super) is_sent: bool,
    pub(super) progress: Progress,
    pub(super) atomicity: Atomicity,
    /// True if the server's final error was forwarded.
    pub(super) fatal_was_sent: bool,
    pub(super) retries: RetryHistory,
    pub(super) since_us: u64,
    /// Result of the rules.
    pub(super) rules: Option<AppliedRules>,
    /// True if the analyzed part was checked against the rules.
    pub(super) has_applied_rules: bool,
    pub(super) tail: BatchTail,
    /// True if it creates portals.
    pub(super) binds: bool,
    /// True if a statement of it has completed.
    pub(super) has_done: bool,
    /// Batch of the last Execute.
    pub(super) executed_in: Option<u64>,
}

impl ActiveRequest {
    pub(super) fn new() -> Self {
        Self {
            kept: Some(Vec::new()),
            spare: Vec::new(),
            access: Access::default(),
            is_sent: false,
            progress: Progress::Unsent,
            atomicity: Atomicity::Whole,
            fatal_was_sent: false,
            retries: RetryHistory::default(),
            since_us: 0,
            rules: None,
            has_applied_rules: false,
            tail: BatchTail::None,
            binds: false,
            has_done: false,
            executed_in: None,
        }
    }

    /// Starts the next request and reuses the buffer, reduced to `SPARE_LENGTH_MAX`.
    pub(super) fn renew(&mut self) {
        self.cannot_run_again();
        *self = Self {
            kept: Some(std::mem::take(&mut self.spare)),
            ..Self::new()
        };
    }

    /// Releases the bytes kept for a retry.
    pub(super) fn cannot_run_again(&mut self) {
        if let Some(mut kept) = self.kept.take() {
            kept.clear();
            kept.shrink_to(SPARE_LENGTH_MAX);
            self.spare = kept;
        }
    }

    pub(super) fn has_sent(&mut self, request: Request) {
        self.tail.has_sent(request);
        self.binds |= request == Request::Bind;
    }

    /// Returns whether a part of it may write.
    pub(super) fn may_write(&self) -> bool {
        self.access == Access::Writes
    }

    /// Records a part that may write.
    pub(super) fn writes(&mut self) {
        self.access = Access::Writes;
    }

    /// Records that the text of the analysis is executed.
    pub(super) fn runs(&mut self, meaning: &TextAnalysis) {
        self.access.add(meaning.writes);
        self.atomicity = self.atomicity.max(atomicity(meaning));
    }
}

/// Access of a request to data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Access {
    /// The request is not known to only read, and no part of it that may write was found.
    #[default]
    Unclassified,
    /// The request is known to only read.
    Reads,
    /// A part of the request may write.
    Writes,
}

impl Access {
    /// Adds a part that writes or does not.
    pub(super) fn add(&mut self, may_write: bool) {
        if may_write {
            *self = Access::Writes;
        }
    }

    /// Adds a part that was routed.
    pub(super) fn add_routed(&mut self, is_read: bool, may_write: bool) {
        if *self == Access::Reads && !is_read {
            *self = Access::Unclassified;
        }
        self.add(may_write);
    }
}

/// Part of a batch after its analyzed beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BatchTail {
    /// There is none, or its routing does not matter.
    None,
    /// Begins after this number of analyzed messages, which are still to be sent.
    After(usize),
    /// Begins with a statement that cannot run on the server of the batch. It is held until the
    /// batch has been rerouted or the statement refused.
    Misrouted,
    /// Begins with a statement that is refused. The batch stays on its server.
    Refused,
    /// Discarded up to the Sync: the batch was refused before it reached a server.
    Discarded,
}

impl BatchTail {
    /// Records that the next message was sent.
    pub(super) fn has_sent(&mut self, request: Request) {
        *self = match self {
            BatchTail::None | BatchTail::Discarded => return,
            _ if ends_a_unit(request) => BatchTail::None,
            BatchTail::After(messages) => BatchTail::After(messages.saturating_sub(1)),
            BatchTail::Misrouted | BatchTail::Refused => BatchTail::After(0),
        };
    }

    /// Returns whether the next message was not analyzed.
    pub(super) fn begins(self) -> bool {
        match self {
            BatchTail::None | BatchTail::Discarded => false,
            BatchTail::After(messages) => messages == 0,
            BatchTail::Misrouted | BatchTail::Refused => true,
        }
    }
}

/// Returns whether a ReadyForQuery follows the request.
pub(super) fn ends_a_unit(request: Request) -> bool {
    matches!(
        request,
        Request::Query | Request::Sync | Request::FunctionCall
    )
}

/// Returns the text of a Query message.
pub(super) fn text_of_query(message: &[u8]) -> &[u8] {
    let text = message.get(5..).unwrap_or_default();
    text.strip_suffix(b"\0").unwrap_or(text)
}
