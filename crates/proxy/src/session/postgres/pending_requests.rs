//! Tracks the queries and batches in flight and their statements, for the statistics.

use std::collections::VecDeque;

use evenkeel_wire::postgres::backend::CommandTag;
use evenkeel_wire::postgres::conversation::Request;

use crate::counters::work::StatementResult;

/// Requests of a client that have not ended.
#[derive(Default)]
pub(super) struct PendingRequests {
    /// Request being sent, up to its end.
    draft: PendingRequest,
    /// Requests that a ReadyForQuery will answer.
    sent: VecDeque<PendingRequest>,
    /// Results so far of the first of them.
    came: StatementResult,
    /// Number of completed statements of its last text.
    statements: usize,
}

/// Digests of the statements of a query or batch: of several, the first counts.
#[derive(Clone, Copy, Default)]
struct PendingRequest {
    parsed: Option<u64>,
    run: Option<u64>,
    /// Number of statements in its text as analyzed; zero: unknown, or none.
    statements: usize,
    /// True if a message of it was sent, or answered by Evenkeel.
    has_begun: bool,
}

impl PendingRequests {
    /// Records a Parse.
    pub(super) fn parses(&mut self, digest: u64) {
        self.draft.parsed.get_or_insert(digest);
    }

    /// Records a query or a Bind.
    pub(super) fn runs(&mut self, digest: u64) {
        self.draft.run.get_or_insert(digest);
    }

    /// Records a query and its number of statements.
    pub(super) fn runs_text(&mut self, digest: u64, statements: usize) {
        self.runs(digest);
        self.draft.statements = statements;
    }

    /// Records a message that does not end the request.
    pub(super) fn begins(&mut self, request: Request) {
        let is_data = matches!(
            request,
            Request::CopyData | Request::CopyEnd | Request::Flush
        );
        self.draft.has_begun |= !is_data;
    }

    /// Returns whether part of a batch was sent whose Sync has not arrived.
    pub(super) fn has_begun(&self) -> bool {
        self.draft.has_begun
    }

    /// Records that the request was sent completely.
    pub(super) fn is_sent(&mut self) {
        self.sent.push_back(std::mem::take(&mut self.draft));
    }

    /// Returns how many requests were sent and have not ended.
    pub(super) fn under_way(&self) -> usize {
        self.sent.len()
    }

    /// Records a completed statement of the first request: `nth` of its text, from 0.
    pub(super) fn completed(&mut self, tag: CommandTag<'_>, nth: usize) {
        self.statements = nth.saturating_add(1);
        let rows = tag.rows().unwrap_or(0);
        match tag.command() {
            b"SELECT" | b"FETCH" => self.came.rows_sent += rows,
            b"MOVE" => {}
            _ => self.came.rows_affected += rows,
        }
    }

    /// Records a failed statement.
    pub(super) fn failed(&mut self) {
        self.came.has_failed = true;
    }

    /// Returns whether the first request, which has ended, executed what was analyzed.
    pub(super) fn is_as_read(&self) -> bool {
        let read = self.sent.front().map_or(0, |first| first.statements);
        self.came.has_failed || read == 0 || read == self.statements
    }

    /// Removes the first request, which has ended, and returns its result. Preparing a statement
    /// counts only if it fails.
    pub(super) fn ended(&mut self) -> StatementResult {
        let PendingRequest { parsed, run, .. } = self.sent.pop_front().unwrap_or_default();
        self.statements = 0;
        let came = std::mem::take(&mut self.came);
        let prepared = parsed.filter(|_| came.has_failed);
        StatementResult {
            digest: run.or(prepared),
            ..came
        }
    }

    /// Records that all requests have ended: during a COPY the server ignores a Sync.
    pub(super) fn settled(&mut self) {
        self.sent.clear();
    }

    /// Clears all state after a loss: the requests are sent again, or never.
    pub(super) fn forget(&mut self) {
        self.draft = PendingRequest::default();
        self.sent.clear();
        self.came = StatementResult::default();
        self.statements = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_is_that_of_the_first_that_was_sent() {
        let mut pending = PendingRequests::default();
        pending.parses(1);
        pending.is_sent();
        pending.parses(2);
        pending.runs(3);
        pending.runs(4);
        pending.is_sent();
        pending.parses(5);
        pending.is_sent();
        assert_eq!(pending.under_way(), 3);
        assert_eq!(pending.ended().digest, None, "it was only prepared");
        pending.completed(CommandTag(b"SELECT 7"), 0);
        pending.completed(CommandTag(b"INSERT 0 2"), 0);
        pending.completed(CommandTag(b"CREATE TABLE"), 0);
        let ran = pending.ended();
        let rows = (ran.rows_sent, ran.rows_affected);
        assert_eq!((ran.digest, rows), (Some(3), (7, 2)));
        pending.failed();
        let ran = pending.ended();
        assert_eq!((ran.digest, ran.rows_sent), (Some(5), 0));
        assert!(ran.has_failed);
        assert!(!pending.ended().has_failed);
    }

    #[test]
    fn a_text_with_other_statements_than_were_read_is_noticed() {
        let mut pending = PendingRequests::default();
        for (read, ended, fails, expect) in [
            (2, 2, false, true),
            (1, 2, false, false),
            (3, 2, false, false),
            (3, 2, true, true),
            (0, 0, false, true),
        ] {
            pending.runs_text(1, read);
            pending.is_sent();
            for nth in 0..ended {
                pending.completed(CommandTag(b"SET"), nth);
            }
            if fails {
                pending.failed();
            }
            assert_eq!(pending.is_as_read(), expect, "{read} {ended}");
            let _ = pending.ended();
        }
    }
}
