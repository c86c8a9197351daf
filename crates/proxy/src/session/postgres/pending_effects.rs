//! Keeps the effects of requests in flight until the server reports whether they succeeded.

use std::collections::VecDeque;
use std::sync::Arc;

use evenkeel_policy::route::StatementClass;
use evenkeel_policy::route::retry::Atomicity;
use evenkeel_wire::postgres::conversation::RequestToken;

use evenkeel_sql::facts::Discard;

use super::prepared::{PARSE, UNNAMED, UNREAD, unnamed_of};
use evenkeel_sql::session_state::analysis::{Effect, EffectKind, TextAnalysis};

/// Client's unnamed prepared statement.
#[derive(Default)]
pub(super) struct UnnamedStatement {
    pub(super) id: u64,
    pub(super) text: Vec<u8>,
    pub(super) types: Vec<u8>,
    pub(super) meaning: Option<Arc<TextAnalysis>>,
    /// True if the server has completed its Parse.
    pub(super) is_parsed: bool,
    /// Batch in which a Parse or Close of it, or a Query that drops it, is in flight.
    pub(super) open: Option<u64>,
    /// True if a Close of it is in flight.
    pub(super) is_closing: bool,
    /// Queries in flight that drop it, unless an error before them makes the server skip them.
    pub(super) dropped_by: Vec<RequestToken>,
    /// Statements before this one, the oldest first: the last one with a Parse that the server does
    /// not skip exists again if the server skips all later ones. At most [`BEFORE_MAX`], of which
    /// only the first can be parsed; each has an empty list.
    pub(super) before: VecDeque<UnnamedStatement>,
}

/// Maximum of earlier unnamed statements that are kept. After an error that follows more Parses in
/// one batch than these, the client has to parse its statement again.
const BEFORE_MAX: usize = 32;

impl UnnamedStatement {
    /// Returns its text; `None`: it was too long to be analyzed.
    pub(super) fn known_text(&self) -> Option<&[u8]> {
        (self.id != UNREAD).then_some(&self.text)
    }

    /// Returns whether the statement no longer exists, or is being closed.
    pub(super) fn is_gone(&self) -> bool {
        self.id == 0 || self.is_closing || !self.dropped_by.is_empty()
    }

    /// Records a new statement in place of this one.
    pub(super) fn replace(&mut self, id: u64, text: &[u8], types: &[u8], segment: u64) {
        let mut before = std::mem::take(&mut self.before);
        if self.is_gone() || self.is_parsed {
            before.clear();
        }
        if !self.is_gone() && (self.is_parsed || self.open.is_some()) {
            if before.len() == BEFORE_MAX {
                before.pop_front();
            }
            before.push_back(std::mem::take(self));
        }
        self.before = before;
        self.id = id;
        self.text.clear();
        self.text.extend_from_slice(text);
        self.types.clear();
        self.types.extend_from_slice(types);
        self.is_parsed = false;
        self.is_closing = false;
        self.dropped_by.clear();
        self.open = Some(segment);
    }

    /// Records a Query within a batch, which drops the statement if the server executes it.
    pub(super) fn drop_by(&mut self, query: RequestToken, segment: u64) {
        if self.id != 0 {
            self.dropped_by.push(query);
            self.open = Some(segment);
        }
    }

    /// Records that the server skipped a Query.
    pub(super) fn query_skipped(&mut self, query: RequestToken) {
        self.dropped_by.retain(|one| *one != query);
    }

    /// Records that the server has prepared the statement of the token: none before it is left.
    pub(super) fn parsed(&mut self, token: RequestToken) {
        let id = unnamed_of(token);
        if id.is_some_and(|id| id == self.id) {
            self.before.clear();
            self.is_parsed = true;
            if !self.is_gone() {
                self.open = None;
            }
        } else if let Some(index) = self.position(id) {
            self.before.drain(..index);
            if let Some(first) = self.before.front_mut() {
                first.is_parsed = true;
                first.open = None;
            }
        }
    }

    /// Records an error in the request of the token. If it was a Parse, neither its statement nor
    /// one before it exists.
    pub(super) fn failed(&mut self, token: RequestToken) {
        let id = unnamed_of(token);
        if id.is_some_and(|id| id == self.id) {
            self.before.clear();
        } else if let Some(index) = self.position(id) {
            self.before.drain(..index);
            // A Parse that repeats one on another connection ends nothing.
            if self.before.front().is_some_and(|first| !first.is_parsed) {
                self.before.pop_front();
            }
        }
    }

    /// Records that the server skipped the Parse of the token.
    pub(super) fn parse_skipped(&mut self, token: RequestToken) {
        let id = unnamed_of(token);
        if id.is_some_and(|id| id == self.id) {
            match self.before.pop_back().filter(|_| !self.is_parsed) {
                Some(last) => {
                    let before = std::mem::take(&mut self.before);
                    *self = UnnamedStatement { before, ..last };
                }
                None => self.undo_unanswered(),
            }
        } else if let Some(index) = self.position(id)
            && !self.before[index].is_parsed
        {
            self.before.remove(index);
        }
    }

    fn position(&self, id: Option<u64>) -> Option<usize> {
        self.before.iter().position(|one| Some(one.id) == id)
    }

    /// Records that the server has closed the statement of the token.
    pub(super) fn closed(&mut self, token: RequestToken) {
        if unnamed_of(token).is_some_and(|id| id == self.id) {
            *self = UnnamedStatement::default();
        }
    }

    /// Records that the server skipped a Close of the token's statement.
    pub(super) fn stays(&mut self, token: RequestToken) {
        if unnamed_of(token).is_some_and(|id| id == self.id) {
            self.remain();
        }
    }

    /// Records that no request is in flight.
    pub(super) fn settled(&mut self) {
        if self.dropped_by.is_empty() {
            self.remain();
        } else {
            *self = UnnamedStatement::default();
        }
    }

    /// Records that the requests in flight will be sent again.
    pub(super) fn repeated(&mut self) {
        self.dropped_by.clear();
        self.remain();
    }

    fn remain(&mut self) {
        self.is_closing = false;
        self.open = self.open.filter(|_| !self.dropped_by.is_empty());
    }

    /// Records that the server skipped the Parse, or was lost. A Parse by Evenkeel can be repeated,
    /// the client's has failed.
    pub(super) fn undo_unanswered(&mut self) {
        if self.open.is_some() {
            self.id *= u64::from(self.is_parsed);
        }
        self.remain();
    }
}

/// Effects of the requests in flight.
#[derive(Default)]
pub(super) struct PendingEffects {
    /// Analysis of the next Query, if it was analyzed for routing.
    pub(super) read_ahead: Option<Arc<TextAnalysis>>,
    pending: VecDeque<(u64, Arc<TextAnalysis>)>,
    pub(super) last: u64,
    /// True if a request in flight discards prepared statements or startup settings. Later requests
    /// wait for its end.
    discards_statements: bool,
}

impl PendingEffects {
    /// Records the effects of a text and returns the token of its request.
    pub(super) fn note(&mut self, meaning: &Arc<TextAnalysis>) -> RequestToken {
        if !meaning.has_effects() {
            return RequestToken(0);
        }
        let token = self.next();
        self.pending.push_back((token, Arc::clone(meaning)));
        RequestToken(token)
    }

    /// Returns a token for a request whose outcome matters.
    pub(super) fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Returns the analysis of the token's request, of which a statement has completed.
    pub(super) fn completed(&mut self, token: RequestToken) -> Option<&TextAnalysis> {
        if token.0 == 0 || token.0 & (PARSE | UNNAMED) != 0 {
            return None;
        }
        while self.pending.front().is_some_and(|(of, _)| *of < token.0) {
            self.pending.pop_front();
        }
        let (of, meaning) = self.pending.front()?;
        (*of == token.0).then_some(meaning)
    }

    /// Returns whether a COMMIT is in flight or executing.
    pub(super) fn may_end_transaction(&self) -> bool {
        let commits = |effect: &Effect| effect.kind == EffectKind::Commit;
        let mut under_way = self.pending.iter();
        under_way.any(|(_, meaning)| meaning.effects.iter().any(commits))
    }

    /// Records that no request is in flight.
    pub(super) fn settled(&mut self) {
        self.pending.clear();
    }

    /// Records that a request is sent, and whether it discards prepared statements or startup
    /// settings.
    pub(super) fn discard_statements(&mut self, discards: bool) {
        self.discards_statements |= discards;
    }

    /// Returns whether a request in flight discards prepared statements or startup settings.
    pub(super) fn discards_statements(&self) -> bool {
        self.discards_statements
    }

    /// Records that no request in flight discards any.
    pub(super) fn discards_ended(&mut self) {
        self.discards_statements = false;
    }
}

/// Returns whether the effect removes protocol-level prepared statements too: DEALLOCATE ALL,
/// DISCARD ALL.
pub(super) fn takes_statements_away(effect: &Effect) -> bool {
    matches!(
        effect.kind,
        EffectKind::DeallocateAll | EffectKind::Discard(Discard::All)
    )
}

/// Returns whether the statement discards the connection's sequence state.
pub(super) fn discards_sequences(meaning: &TextAnalysis, statement: usize) -> bool {
    let discards =
        |does: &EffectKind| matches!(does, EffectKind::Discard(Discard::All | Discard::Sequences));
    let of_statement = |effect: &&Effect| usize::try_from(effect.statement) == Ok(statement);
    let mut effects = meaning.effects.iter().filter(of_statement);
    effects.any(|effect| discards(&effect.kind))
}

/// Returns which part of the text may have been executed although it was rejected. DDL may commit
/// parts before its end: CREATE INDEX CONCURRENTLY, VACUUM.
pub(super) fn atomicity(meaning: &TextAnalysis) -> Atomicity {
    let is_plain = |kind| {
        !matches!(
            kind,
            StatementClass::Routine | StatementClass::Unknown | StatementClass::EndTransaction
        )
    };
    match meaning.statements.as_slice() {
        [one] if is_plain(one.kind) && !meaning.has_external_effects => match one.kind {
            StatementClass::Ddl => Atomicity::CommitsParts,
            _ => Atomicity::Whole,
        },
        _ => Atomicity::Partial,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: RequestToken = RequestToken(UNNAMED | 1);
    const TWO: RequestToken = RequestToken(UNNAMED | 2);
    const THREE: RequestToken = RequestToken(UNNAMED | 3);

    /// Returns a statement whose Parses of these ids are in flight.
    fn in_flight(ids: &[u64]) -> UnnamedStatement {
        let mut unnamed = UnnamedStatement::default();
        for id in ids {
            unnamed.replace(*id, b"select 1", b"", 1);
        }
        unnamed
    }

    /// TO SEE THIS RED: keep only parsed statements in `replace`.
    #[test]
    fn the_last_statement_that_was_parsed_exists_after_an_error_skipped_the_later_ones() {
        let mut unnamed = in_flight(&[1, 2, 3]);
        unnamed.parsed(ONE);
        unnamed.parsed(TWO);
        unnamed.parse_skipped(THREE);
        assert_eq!((unnamed.id, unnamed.is_gone()), (2, false));
        unnamed.settled();
        assert_eq!((unnamed.id, unnamed.is_gone()), (2, false));
        let mut unnamed = in_flight(&[1, 2, 3]);
        unnamed.parsed(ONE);
        unnamed.parse_skipped(TWO);
        unnamed.parse_skipped(THREE);
        assert_eq!((unnamed.id, unnamed.is_parsed), (1, true));
    }

    /// PostgreSQL drops the unnamed statement before it parses the next one.
    ///
    /// TO SEE THIS RED: keep the statement of the Parse in `failed`.
    #[test]
    fn no_statement_exists_after_a_parse_failed_and_the_later_ones_were_skipped() {
        let mut unnamed = in_flight(&[1, 2, 3]);
        unnamed.parsed(ONE);
        unnamed.failed(TWO);
        unnamed.parse_skipped(THREE);
        assert!(unnamed.is_gone());
    }

    /// TO SEE THIS RED: remove the check of `BEFORE_MAX`.
    #[test]
    fn a_client_with_many_parses_in_flight_makes_no_long_list() {
        let ids: Vec<u64> = (1..=100).collect();
        let mut unnamed = in_flight(&ids);
        assert_eq!(unnamed.before.len(), BEFORE_MAX);
        unnamed.parsed(RequestToken(UNNAMED | 5));
        unnamed.parsed(RequestToken(UNNAMED | 90));
        assert_eq!(unnamed.before.len(), 10);
        unnamed.parsed(RequestToken(UNNAMED | 100));
        assert!(unnamed.before.is_empty());
    }
}
