//! Tracks the client's unnamed prepared statement, and the requests in flight that change it.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use evenkeel_sql::session_state::analysis::TextAnalysis;
use evenkeel_wire::postgres::conversation::RequestToken;

/// Unnamed prepared statement of a client.
#[derive(Debug)]
pub(super) struct UnnamedStatement {
    pub(super) id: u64,
    /// `None`: it was too long to be kept, and exists where it was parsed, or nowhere.
    pub(super) parsed: Option<ParsedText>,
}

/// Parse of an unnamed statement.
#[derive(Debug)]
pub(super) struct ParsedText {
    pub(super) text: Box<[u8]>,
    /// OIDs of the parameter types.
    pub(super) types: Box<[u8]>,
    pub(super) meaning: Arc<TextAnalysis>,
}

/// The unnamed statement over time: PostgreSQL executes or skips the requests in flight in their
/// order.
#[derive(Debug, Default)]
pub(super) struct UnnamedStatements {
    /// Statement after the requests that have been answered.
    settled: Option<Rc<UnnamedStatement>>,
    /// Requests in flight that change it, the oldest first. At most [`CHANGES_MAX`].
    changes: VecDeque<Change>,
}

/// A request in flight.
#[derive(Debug)]
struct Change {
    token: RequestToken,
    /// Batch of the request.
    segment: u64,
    /// Statement after the request. `None`: a Close, or a Query, which drops the statement.
    to: Option<Rc<UnnamedStatement>>,
}

/// Maximum of changes that are kept. After an error that follows more of them in one batch than
/// these, the client has to parse its statement again.
const CHANGES_MAX: usize = 32;

impl UnnamedStatements {
    /// Returns the statement after all requests in flight, unless the server skips some.
    pub(super) fn last(&self) -> Option<&Rc<UnnamedStatement>> {
        let last = self.changes.back();
        last.map_or(self.settled.as_ref(), |change| change.to.as_ref())
    }

    /// Returns the text of the statement. `None`: there is none, or it was too long to be kept.
    pub(super) fn text(&self) -> Option<&[u8]> {
        let parsed = self.last()?.parsed.as_ref()?;
        Some(&parsed.text)
    }

    /// Returns the analysis of that text.
    pub(super) fn meaning(&self) -> Option<&Arc<TextAnalysis>> {
        let parsed = self.last()?.parsed.as_ref()?;
        Some(&parsed.meaning)
    }

    /// Returns whether an error in an earlier batch may yet undo the last change of it.
    pub(super) fn is_open(&self, segment: u64) -> bool {
        let last = self.changes.back();
        last.is_some_and(|change| change.segment != segment)
    }

    /// Returns whether no request in flight changes it.
    pub(super) fn is_settled(&self) -> bool {
        self.changes.is_empty()
    }

    /// Records that a request is sent after which the statement is this one.
    pub(super) fn changes_to(
        &mut self,
        to: Option<Rc<UnnamedStatement>>,
        token: RequestToken,
        segment: u64,
    ) {
        if self.changes.len() == CHANGES_MAX {
            // Whether the server executes it will not be known.
            self.changes.pop_front();
            self.settled = None;
        }
        self.changes.push_back(Change { token, segment, to });
    }

    /// Records that a request which changes the statement was sent, and cannot be skipped.
    pub(super) fn drop_now(&mut self) {
        *self = Self::default();
    }

    /// Records that the server has executed the request of the token.
    pub(super) fn done(&mut self, token: RequestToken) {
        if let Some(index) = self.position(token) {
            let done = self.changes.drain(..=index).next_back();
            self.settled = done.and_then(|change| change.to);
        }
    }

    /// Records an error in the request of the token. PostgreSQL drops the statement before it
    /// parses the next one.
    pub(super) fn failed(&mut self, token: RequestToken) {
        let Some(index) = self.position(token) else {
            return;
        };
        let failed = self.changes.drain(..=index).next_back();
        let statement = failed.and_then(|change| change.to);
        let id = |statement: &Option<Rc<UnnamedStatement>>| statement.as_ref().map(|one| one.id);
        // A Parse by Evenkeel, which repeats one on another connection, ends nothing.
        if id(&statement) != id(&self.settled) {
            self.settled = None;
        }
    }

    /// Records that the server has skipped the request of the token.
    pub(super) fn skipped(&mut self, token: RequestToken) {
        if let Some(index) = self.position(token) {
            self.changes.remove(index);
        }
    }

    /// Records that all requests have been answered.
    pub(super) fn settle(&mut self) {
        if let Some(last) = self.changes.pop_back() {
            self.settled = last.to;
            self.changes.clear();
        }
    }

    /// Records that the requests in flight will be sent again, or were lost with their server.
    pub(super) fn undo(&mut self) {
        self.changes.clear();
    }

    fn position(&self, token: RequestToken) -> Option<usize> {
        self.changes.iter().position(|one| one.token == token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOSE: RequestToken = RequestToken(1_000);
    const NEXT_CLOSE: RequestToken = RequestToken(1_001);

    fn parse(unnamed: &mut UnnamedStatements, id: u64) {
        let statement = UnnamedStatement { id, parsed: None };
        unnamed.changes_to(Some(Rc::new(statement)), RequestToken(id), 1);
    }

    /// Returns the statements of a client whose Parses of these ids are in flight.
    fn in_flight(ids: &[u64]) -> UnnamedStatements {
        let mut unnamed = UnnamedStatements::default();
        ids.iter().for_each(|id| parse(&mut unnamed, *id));
        unnamed
    }

    fn id(unnamed: &UnnamedStatements) -> Option<u64> {
        unnamed.last().map(|statement| statement.id)
    }

    /// TO SEE THIS RED: forget the change before another one in `changes_to`.
    #[test]
    fn the_last_statement_that_was_parsed_exists_after_an_error_skipped_the_later_ones() {
        let mut unnamed = in_flight(&[1, 2, 3]);
        unnamed.done(RequestToken(1));
        unnamed.done(RequestToken(2));
        unnamed.skipped(RequestToken(3));
        assert_eq!(id(&unnamed), Some(2));
        unnamed.settle();
        assert_eq!(id(&unnamed), Some(2));
        let mut unnamed = in_flight(&[1, 2, 3]);
        unnamed.done(RequestToken(1));
        unnamed.skipped(RequestToken(2));
        unnamed.skipped(RequestToken(3));
        assert_eq!(id(&unnamed), Some(1));
    }

    /// TO SEE THIS RED: let a Close forget the statement before it.
    #[test]
    fn a_statement_exists_after_an_error_skipped_all_that_would_have_dropped_it() {
        let mut unnamed = in_flight(&[1]);
        unnamed.settle();
        unnamed.changes_to(None, CLOSE, 2);
        assert_eq!(id(&unnamed), None);
        parse(&mut unnamed, 2);
        unnamed.changes_to(None, NEXT_CLOSE, 2);
        for token in [CLOSE, RequestToken(2), NEXT_CLOSE] {
            unnamed.skipped(token);
        }
        assert_eq!(id(&unnamed), Some(1));
        unnamed.changes_to(None, CLOSE, 3);
        unnamed.done(CLOSE);
        parse(&mut unnamed, 3);
        unnamed.skipped(RequestToken(3));
        assert_eq!(id(&unnamed), None);
    }

    /// TO SEE THIS RED: keep the settled statement in `failed`.
    #[test]
    fn no_statement_exists_after_a_parse_failed_and_the_later_ones_were_skipped() {
        let mut unnamed = in_flight(&[1, 2, 3]);
        unnamed.done(RequestToken(1));
        unnamed.failed(RequestToken(2));
        unnamed.skipped(RequestToken(2));
        unnamed.skipped(RequestToken(3));
        assert_eq!(id(&unnamed), None);
    }

    /// TO SEE THIS RED: drop the settled statement in `failed` in any case.
    #[test]
    fn a_statement_remains_after_its_parse_on_another_connection_failed() {
        let mut unnamed = in_flight(&[1]);
        unnamed.done(RequestToken(1));
        parse(&mut unnamed, 1);
        unnamed.failed(RequestToken(1));
        assert_eq!(id(&unnamed), Some(1));
    }

    /// A statement that may have been replaced must not be executed in place of its successor.
    ///
    /// TO SEE THIS RED: keep the settled statement when `CHANGES_MAX` is reached.
    #[test]
    fn a_client_with_many_parses_in_flight_makes_no_long_list() {
        let mut unnamed = in_flight(&[1]);
        unnamed.settle();
        (2..=100).for_each(|id| parse(&mut unnamed, id));
        assert_eq!(unnamed.changes.len(), CHANGES_MAX);
        (2..=60).for_each(|id| unnamed.done(RequestToken(id)));
        (61..=100).for_each(|id| unnamed.skipped(RequestToken(id)));
        assert_eq!(id(&unnamed), None);
        let mut unnamed = in_flight(&(1..=100).collect::<Vec<_>>());
        (1..=100).for_each(|id| unnamed.done(RequestToken(id)));
        assert_eq!(id(&unnamed), Some(100));
    }
}
