//! What a client's requests leave behind in its session, until the server has said whether they
//! did.

use std::collections::VecDeque;
use std::sync::Arc;

use evenkeel_policy::route::StatementClass;
use evenkeel_wire::postgres::conversation::RequestToken;

use evenkeel_wire::sql::facts::Discard;

use super::prepared::{PARSE, UNNAMED, UNREAD, unnamed_of};
use crate::session_state::analysis::{Effect, EffectKind, TextAnalysis};

/// The statement without a name, as the client knows it.
#[derive(Default)]
pub(super) struct UnnamedStatement {
    pub(super) id: u64,
    pub(super) text: Vec<u8>,
    pub(super) types: Vec<u8>,
    pub(super) meaning: Option<Arc<TextAnalysis>>,
    /// The server has taken its Parse.
    pub(super) is_parsed: bool,
    /// In which batch a Parse or Close of it is under way.
    pub(super) open: Option<u64>,
    /// A Close of it is under way.
    pub(super) is_closing: bool,
}

impl UnnamedStatement {
    /// `None`: it was too long to be read.
    pub(super) fn known_text(&self) -> Option<&[u8]> {
        (self.id != UNREAD).then_some(&self.text)
    }

    /// Whether nobody may have it any more.
    pub(super) fn is_gone(&self) -> bool {
        self.id == 0 || self.is_closing
    }

    /// The server has prepared what a token stands for.
    pub(super) fn parsed(&mut self, token: RequestToken) {
        if unnamed_of(token).is_some_and(|id| id == self.id) {
            self.is_parsed = true;
            if !self.is_closing {
                self.open = None;
            }
        }
    }

    /// It has closed that.
    pub(super) fn closed(&mut self, token: RequestToken) {
        if unnamed_of(token).is_some_and(|id| id == self.id) {
            *self = UnnamedStatement::default();
        }
    }

    /// The server passed over a Close of what a token stands for.
    pub(super) fn stays(&mut self, token: RequestToken) {
        if unnamed_of(token).is_some_and(|id| id == self.id) {
            self.settled();
        }
    }

    /// Nothing is under way any more.
    pub(super) fn settled(&mut self) {
        self.open = None;
        self.is_closing = false;
    }

    /// The server passed over its Parse, or is gone. A Parse of ours can be repeated; the client's
    /// was for nothing.
    pub(super) fn lost(&mut self) {
        if self.open.is_some() {
            self.id *= u64::from(self.is_parsed);
        }
        self.settled();
    }
}

/// What requests that are under way will leave behind.
#[derive(Default)]
pub(super) struct PendingEffects {
    /// The meaning of the Query that comes next, if it was read to decide where it runs.
    pub(super) read_ahead: Option<Arc<TextAnalysis>>,
    pending: VecDeque<(u64, Arc<TextAnalysis>)>,
    pub(super) last: u64,
}

impl PendingEffects {
    /// Notes what a text leaves behind; the token of its request.
    pub(super) fn note(&mut self, meaning: &Arc<TextAnalysis>) -> RequestToken {
        if !meaning.is_of_consequence() {
            return RequestToken(0);
        }
        let token = self.next();
        self.pending.push_back((token, Arc::clone(meaning)));
        RequestToken(token)
    }

    /// A token for something whose outcome matters.
    pub(super) fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// What the request of a token meant, of whose statements one has ended well.
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

    /// A COMMIT is under way, or its end is.
    pub(super) fn may_end_transaction(&self) -> bool {
        let commits = |effect: &Effect| effect.kind == EffectKind::Commit;
        let mut under_way = self.pending.iter();
        under_way.any(|(_, meaning)| meaning.effects.iter().any(commits))
    }

    /// Nothing is under way any more.
    pub(super) fn settled(&mut self) {
        self.pending.clear();
    }
}

/// DEALLOCATE ALL and DISCARD ALL take the protocol's statements along.
pub(super) fn takes_statements_away(effect: &Effect) -> bool {
    matches!(
        effect.kind,
        EffectKind::DeallocateAll | EffectKind::Discard(Discard::All)
    )
}

/// Whether a statement of it makes the connection forget what it drew from sequences.
pub(super) fn discards_draws(meaning: &TextAnalysis, statement: usize) -> bool {
    let discards =
        |does: &EffectKind| matches!(does, EffectKind::Discard(Discard::All | Discard::Sequences));
    let of_statement = |effect: &&Effect| usize::try_from(effect.statement) == Ok(statement);
    let mut own = meaning.effects.iter().filter(of_statement);
    own.any(|effect| discards(&effect.kind))
}

/// Whether a part of it may be committed before it ends.
pub(super) fn may_commit(meaning: &TextAnalysis) -> bool {
    meaning
        .statements
        .iter()
        .any(|one| one.kind == StatementClass::Ddl)
}

/// Whether it was run as a whole or not at all: it has no COMMIT of its own, and acts nowhere else.
pub(super) fn is_atomic(meaning: &TextAnalysis) -> bool {
    let is_plain = |kind| {
        !matches!(
            kind,
            StatementClass::Routine | StatementClass::Unknown | StatementClass::EndTransaction
        )
    };
    !meaning.has_external_effects
        && matches!(meaning.statements.as_slice(), [one] if is_plain(one.kind))
}
