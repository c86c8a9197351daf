//! Keeps the effects of requests in flight until the server reports whether they succeeded.

use std::collections::VecDeque;
use std::sync::Arc;

use evenkeel_policy::route::StatementClass;
use evenkeel_policy::route::retry::Atomicity;
use evenkeel_wire::postgres::conversation::RequestToken;

use evenkeel_sql::postgres::Discard;

use super::tokens::{NAMED_FOR_QUERY, PARSE, UNNAMED};
use evenkeel_sql::session_state::analysis::{Effect, EffectKind, TextAnalysis};

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
        if token.0 == 0 || token.0 & (PARSE | UNNAMED | NAMED_FOR_QUERY) != 0 {
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

    /// Returns whether a PREPARE is in flight or executing.
    pub(super) fn may_prepare(&self) -> bool {
        let prepares = |effect: &Effect| matches!(effect.kind, EffectKind::Prepare(_));
        let mut under_way = self.pending.iter();
        under_way.any(|(_, meaning)| meaning.effects.iter().any(prepares))
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
