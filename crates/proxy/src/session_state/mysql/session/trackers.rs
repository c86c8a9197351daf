//! Runs statements that name trackers. Meanwhile, the server connection has the client's trackers
//! and reports only the changes that these request; other changes are queried afterwards.

use evenkeel_policy::pins::Pin;
use evenkeel_wire::mysql::trackers::Change;
use smallvec::SmallVec;

use super::super::analysis::{EffectKind, TextAnalysis};
use super::super::client_trackers;
use super::super::connection::{InfoOwners, ServerSessionState};
use super::super::variables;
use super::{SessionState, TrackerUpdate};
use crate::session_state::settings::Interner;

/// Error codes of a SET that set nothing: the server checks all names and rights first.
const UNKNOWN_VARIABLE: u16 = 1193;
const ACCESS_DENIED: u16 = 1227;

/// State of a session whose server connection has the client's trackers.
#[derive(Debug, Default)]
pub(super) struct Shown {
    /// True if the tracker of GTIDs is the client's, too.
    has_gtids: bool,
    /// True if the statement sets trackers, so that only the server knows their values.
    sets: bool,
    /// Variables that the statement may have set, and that the server has not reported.
    untold: SmallVec<[Box<[u8]>; 4]>,
}

/// SQL texts to run after a statement that names trackers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakeBack {
    /// Queries the values of the client's trackers.
    pub question: Option<String>,
    /// Sets our trackers again.
    pub ours: &'static str,
    /// Set variables to their present values, so that the server reports them. Each may fail: a
    /// variable that the client may not set was not changed.
    pub tellings: Vec<Vec<u8>>,
}

impl Shown {
    /// Returns whether values must be queried that the server cannot report by trackers.
    fn asks(&self) -> bool {
        self.sets || self.untold.iter().any(|name| is_asked(name))
    }
}

fn is_asked(name: &[u8]) -> bool {
    name == variables::RESULTS
}

impl SessionState {
    /// Returns the text that sets the client's trackers on the connection. MySQL does not allow a
    /// change of the GTID tracker in a transaction.
    pub fn show_trackers(&mut self, in_transaction: bool) -> Vec<u8> {
        let has_gtids = !in_transaction;
        self.shown = Some(Shown {
            has_gtids,
            ..Shown::default()
        });
        self.tracking.sql(self.reading.mariadb, has_gtids)
    }

    /// Records that a statement is sent. With the client's trackers set, the session is pinned
    /// afterwards.
    pub(super) fn runs_shown(&mut self, meaning: &TextAnalysis) {
        let Some(shown) = &mut self.shown else {
            return;
        };
        let mut effects = meaning.effects.iter();
        shown.sets |= effects.any(|effect| effect.does == EffectKind::Track);
        self.pins.add(Pin::Settings);
    }

    /// Records that a called routine may have set variables; `tells`: the reply reports them.
    pub(super) fn sets_within(&mut self, tells: bool) {
        match self.shown.is_some() {
            true => self.bind(Pin::Settings),
            false => self.is_untold |= !tells,
        }
    }

    /// Records the variables that a failed statement may have set all the same. Our trackers would
    /// report them with the next OK.
    pub(super) fn may_have_set(&mut self, does: &EffectKind, code: u16) {
        let _ = match does {
            _ if matches!(code, UNKNOWN_VARIABLE | ACCESS_DENIED) => false,
            EffectKind::Told(name) => self.is_untold_of(variables::canonical(name)),
            EffectKind::Collation => self.is_untold_of_charset(),
            _ => false,
        };
    }

    /// Records that the variable may have been set, so that it is queried later. Returns false if
    /// our trackers are on and report it, or if no query can contain such a name.
    pub(super) fn is_untold_of(&mut self, name: &[u8]) -> bool {
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let Some(shown) = self.shown.as_mut().filter(|_| name.iter().all(plain)) else {
            return false;
        };
        if !shown.untold.iter().any(|own| **own == *name) {
            shown.untold.push(name.into());
        }
        true
    }

    /// Records the same for the connection's character set, which consists of several variables.
    pub(super) fn is_untold_of_charset(&mut self) -> bool {
        let names = [variables::CLIENT, variables::RESULTS, variables::COLLATION];
        names.into_iter().all(|name| self.is_untold_of(name))
    }

    /// Returns the texts that the server must run now.
    #[must_use]
    pub fn take_back(&mut self, version: u32, in_transaction: bool) -> TakeBack {
        self.received = TrackerUpdate::default();
        let mariadb = self.reading.mariadb;
        let shown = self.shown.get_or_insert_default();
        let telling = |name: &[u8]| {
            let name = variables::spelling(name, mariadb, version);
            [b"SET @@session.", name, b"=@@session.", name].concat()
        };
        let told = shown.untold.iter().filter(|name| !is_asked(name));
        TakeBack {
            question: shown
                .asks()
                .then(|| client_trackers::values_of_trackers(mariadb)),
            ours: client_trackers::trackers_again(mariadb, version, in_transaction),
            tellings: told.map(|name| telling(name)).collect(),
        }
    }

    /// Handles a failure of these texts: the client's changes are unknown. `is_ours`: our trackers
    /// are set again.
    pub fn lost_trackers(&mut self, is_ours: bool) {
        self.bind(Pin::Unknown);
        if is_ours {
            self.shown = None;
        }
    }

    /// Processes the success of these texts, after their trackers were applied; `row` is the answer
    /// to the query.
    pub fn took_back<'a>(
        &mut self,
        row: impl Iterator<Item = Option<&'a [u8]>>,
        on: &mut ServerSessionState,
        interner: &Interner,
    ) {
        let Some(shown) = self.shown.take() else {
            return;
        };
        if shown.asks() {
            let row: Vec<_> = row.collect();
            self.answered_of_trackers(&row, &shown, on, interner);
        }
        self.take_collation(on, interner);
        for name in &shown.untold {
            self.expect(name);
        }
        self.received = TrackerUpdate::default();
        self.loosen(Pin::Settings);
    }

    fn answered_of_trackers(
        &mut self,
        row: &[Option<&[u8]>],
        shown: &Shown,
        on: &mut ServerSessionState,
        interner: &Interner,
    ) {
        on.leftovers.counts_of = InfoOwners::NOBODYS;
        let count = 1 + client_trackers::names(self.reading.mariadb).len();
        let Some((results, trackers)) = row.split_first().filter(|_| row.len() == count) else {
            // The row was longer than the limit for stored answers.
            return self.bind(Pin::Unknown);
        };
        // NULL is reported as an empty string. A SET to its present value would change the
        // collation of results, which no variable shows.
        let (name, value) = (variables::RESULTS, results.unwrap_or_default());
        let change = Change::Variable { name, value };
        on.hear(&change, interner);
        self.hear(&change, interner);
        if shown.sets {
            let mariadb = self.reading.mariadb;
            self.tracking.learn(mariadb, shown.has_gtids, trackers);
            if self.tracking.wants_all_gtids() {
                // No other connection reports them.
                self.bind(Pin::Settings);
            }
        }
    }
}
