//! Which queries and batches are under way, and which statements they run: for the figures.

use std::collections::VecDeque;

use evenkeel_wire::postgres::backend::CommandTag;
use evenkeel_wire::postgres::conversation::Request;

use crate::counters::work::StatementResult;

/// What a client has asked for.
#[derive(Default)]
pub(super) struct PendingRequests {
    /// What is being sent, up to its end.
    draft: PendingRequest,
    /// For each a ReadyForQuery will come.
    sent: VecDeque<PendingRequest>,
    /// What has come for the first of them.
    came: StatementResult,
    /// So many statements of its last text have ended well.
    statements: usize,
}

/// The digests of a query's or a batch's statement: of several, the first counts.
#[derive(Clone, Copy, Default)]
struct PendingRequest {
    parsed: Option<u64>,
    run: Option<u64>,
    /// How many statements its text has as we read it; zero: that is not known, or none.
    statements: usize,
    /// A message of it was sent, or answered by us.
    has_begun: bool,
}

impl PendingRequests {
    /// It has a Parse of this.
    pub(super) fn parses(&mut self, digest: u64) {
        self.draft.parsed.get_or_insert(digest);
    }

    /// It is a query of this, or has a Bind of it.
    pub(super) fn runs(&mut self, digest: u64) {
        self.draft.run.get_or_insert(digest);
    }

    /// It is a query of this, with so many statements.
    pub(super) fn runs_text(&mut self, digest: u64, statements: usize) {
        self.runs(digest);
        self.draft.statements = statements;
    }

    /// A message was sent that ends nothing.
    pub(super) fn begins(&mut self, request: Request) {
        let is_data = matches!(
            request,
            Request::CopyData | Request::CopyEnd | Request::Flush
        );
        self.draft.has_begun |= !is_data;
    }

    /// Whether a part of a batch is sent whose Sync has not come.
    pub(super) fn has_begun(&self) -> bool {
        self.draft.has_begun
    }

    /// All of it is sent.
    pub(super) fn is_sent(&mut self) {
        self.sent.push_back(std::mem::take(&mut self.draft));
    }

    /// How many are sent and have not ended.
    pub(super) fn under_way(&self) -> usize {
        self.sent.len()
    }

    /// A statement of the first of them has ended well: which one of its text, from 0.
    pub(super) fn completed(&mut self, tag: CommandTag<'_>, nth: usize) {
        self.statements = nth.saturating_add(1);
        let rows = tag.rows().unwrap_or(0);
        match tag.command() {
            b"SELECT" | b"FETCH" => self.came.rows_sent += rows,
            b"MOVE" => {}
            _ => self.came.rows_affected += rows,
        }
    }

    /// One has failed.
    pub(super) fn failed(&mut self) {
        self.came.has_failed = true;
    }

    /// Whether the first of them, which has ended, was what we have read.
    pub(super) fn is_as_read(&self) -> bool {
        let read = self.sent.front().map_or(0, |first| first.statements);
        self.came.has_failed || read == 0 || read == self.statements
    }

    /// The first of them has ended: what it was. To prepare a statement counts as one only if it
    /// fails.
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

    /// All that was sent has ended: a COPY takes a Sync for a part of its data.
    pub(super) fn settled(&mut self) {
        self.sent.clear();
    }

    /// Nothing is under way any more: what was will be asked again, or never.
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
        let mut asked = PendingRequests::default();
        asked.parses(1);
        asked.is_sent();
        asked.parses(2);
        asked.runs(3);
        asked.runs(4);
        asked.is_sent();
        asked.parses(5);
        asked.is_sent();
        assert_eq!(asked.under_way(), 3);
        assert_eq!(asked.ended().digest, None, "it was only prepared");
        asked.completed(CommandTag(b"SELECT 7"), 0);
        asked.completed(CommandTag(b"INSERT 0 2"), 0);
        asked.completed(CommandTag(b"CREATE TABLE"), 0);
        let ran = asked.ended();
        let rows = (ran.rows_sent, ran.rows_affected);
        assert_eq!((ran.digest, rows), (Some(3), (7, 2)));
        asked.failed();
        let ran = asked.ended();
        assert_eq!((ran.digest, ran.rows_sent), (Some(5), 0));
        assert!(ran.has_failed);
        assert!(!asked.ended().has_failed);
    }

    #[test]
    fn a_text_with_other_statements_than_were_read_is_noticed() {
        let mut asked = PendingRequests::default();
        for (read, ended, fails, expect) in [
            (2, 2, false, true),
            (1, 2, false, false),
            (3, 2, false, false),
            (3, 2, true, true),
            (0, 0, false, true),
        ] {
            asked.runs_text(1, read);
            asked.is_sent();
            for nth in 0..ended {
                asked.completed(CommandTag(b"SET"), nth);
            }
            if fails {
                asked.failed();
            }
            assert_eq!(asked.is_as_read(), expect, "{read} {ended}");
            let _ = asked.ended();
        }
    }
}
