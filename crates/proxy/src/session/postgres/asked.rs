//! Which queries and batches are under way, and which statements they run: for the figures.

use std::collections::VecDeque;

use evenkeel_wire::postgres::backend::CommandTag;

use crate::counters::work::Ran;

/// What a client has asked for.
#[derive(Default)]
pub(super) struct Asked {
    /// What is being sent, up to its end.
    draft: Unit,
    /// For each a ReadyForQuery will come.
    sent: VecDeque<Unit>,
    /// What has come for the first of them.
    came: Ran,
}

/// The digests of a query's or a batch's statement: of several, the first counts.
#[derive(Clone, Copy, Default)]
struct Unit {
    parsed: Option<u64>,
    run: Option<u64>,
}

impl Asked {
    /// It has a Parse of this.
    pub(super) fn parses(&mut self, digest: u64) {
        self.draft.parsed.get_or_insert(digest);
    }

    /// It is a query of this, or has a Bind of it.
    pub(super) fn runs(&mut self, digest: u64) {
        self.draft.run.get_or_insert(digest);
    }

    /// All of it is sent.
    pub(super) fn is_sent(&mut self) {
        self.sent.push_back(std::mem::take(&mut self.draft));
    }

    /// How many are sent and have not ended.
    pub(super) fn under_way(&self) -> usize {
        self.sent.len()
    }

    /// A statement of the first of them has ended well.
    pub(super) fn completed(&mut self, tag: CommandTag<'_>) {
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

    /// The first of them has ended: what it was. To prepare a statement counts as one only if it
    /// fails.
    pub(super) fn ended(&mut self) -> Ran {
        let Unit { parsed, run } = self.sent.pop_front().unwrap_or_default();
        let came = std::mem::take(&mut self.came);
        let prepared = parsed.filter(|_| came.has_failed);
        Ran {
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
        self.draft = Unit::default();
        self.sent.clear();
        self.came = Ran::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_is_that_of_the_first_that_was_sent() {
        let mut asked = Asked::default();
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
        asked.completed(CommandTag(b"SELECT 7"));
        asked.completed(CommandTag(b"INSERT 0 2"));
        asked.completed(CommandTag(b"CREATE TABLE"));
        let ran = asked.ended();
        let rows = (ran.rows_sent, ran.rows_affected);
        assert_eq!((ran.digest, rows), (Some(3), (7, 2)));
        asked.failed();
        let ran = asked.ended();
        assert_eq!((ran.digest, ran.rows_sent), (Some(5), 0));
        assert!(ran.has_failed);
        assert!(!asked.ended().has_failed);
    }
}
