//! Statements that name trackers: the server connection has the client's while they run, and tells
//! nothing but what these ask for. What such a statement has set is asked for behind it.

use evenkeel_policy::pins::Pin;
use evenkeel_wire::mysql::trackers::Change;
use smallvec::SmallVec;

use super::super::analysis::{EffectKind, TextAnalysis};
use super::super::client_trackers;
use super::super::connection::{InfoOwners, ServerSessionState};
use super::super::variables;
use super::{SessionState, TrackerUpdate};
use crate::session_state::settings::Interner;

/// Of a SET that is refused so, nothing was set: all names and rights are looked at before.
const UNKNOWN_VARIABLE: u16 = 1193;
const ACCESS_DENIED: u16 = 1227;

/// What is known of a connection that has the client's trackers.
#[derive(Debug, Default)]
pub(super) struct Shown {
    /// That of GTIDs is the client's too.
    has_gtids: bool,
    /// The statement sets some: what they are now only the server knows.
    sets: bool,
    /// Variables that it may have set and the server has not told of.
    untold: SmallVec<[Box<[u8]>; 4]>,
}

/// What the server is to run behind such a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakeBack {
    /// Asks for the client's trackers.
    pub question: Option<String>,
    /// Puts ours on again.
    pub ours: &'static str,
    /// Sets variables to what they are, so that the server tells of them. Each may fail: of what
    /// the client may not set it has set nothing.
    pub tellings: Vec<Vec<u8>>,
}

impl Shown {
    /// Whether the server must be asked for more than it can be made to tell.
    fn asks(&self) -> bool {
        self.sets || self.untold.iter().any(|name| is_asked(name))
    }
}

fn is_asked(name: &[u8]) -> bool {
    name == variables::RESULTS
}

impl SessionState {
    /// What puts the client's trackers on the connection. In a transaction, MySQL lets nobody set
    /// the one of GTIDs.
    pub fn show_trackers(&mut self, in_transaction: bool) -> Vec<u8> {
        let has_gtids = !in_transaction;
        self.shown = Some(Shown {
            has_gtids,
            ..Shown::default()
        });
        self.tracking.sql(self.reading.mariadb, has_gtids)
    }

    /// A statement is sent; if the client's trackers are on, it may go nowhere else after it.
    pub(super) fn runs_shown(&mut self, meaning: &TextAnalysis) {
        let Some(shown) = &mut self.shown else {
            return;
        };
        let mut effects = meaning.effects.iter();
        shown.sets |= effects.any(|effect| effect.does == EffectKind::Track);
        self.pins.add(Pin::Settings);
    }

    /// A routine that it runs may have set variables, of which the reply `tells`.
    pub(super) fn sets_within(&mut self, tells: bool) {
        match self.shown.is_some() {
            true => self.bind(Pin::Settings),
            false => self.is_untold |= !tells,
        }
    }

    /// It has failed with this number, and may have set some all the same, of which our trackers
    /// would tell with the next OK.
    pub(super) fn may_have_set(&mut self, does: &EffectKind, code: u16) {
        let _ = match does {
            _ if matches!(code, UNKNOWN_VARIABLE | ACCESS_DENIED) => false,
            EffectKind::Told(name) => self.is_untold_of(variables::canonical(name)),
            EffectKind::Collation => self.is_untold_of_charset(),
            _ => false,
        };
    }

    /// It may have set this variable, which is asked for later. False: our trackers are on, which
    /// tell; or nobody can ask for such a name.
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

    /// The same of the connection's character set, which is several variables.
    pub(super) fn is_untold_of_charset(&mut self) -> bool {
        let names = [variables::CLIENT, variables::RESULTS, variables::COLLATION];
        names.into_iter().all(|name| self.is_untold_of(name))
    }

    /// What the server is to run now.
    #[must_use]
    pub fn take_back(&mut self, version: u32, in_transaction: bool) -> TakeBack {
        self.heard = TrackerUpdate::default();
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

    /// Not all of that was run: nobody knows what the client has set. `is_ours`: our trackers are
    /// on again.
    pub fn lost_trackers(&mut self, is_ours: bool) {
        self.bind(Pin::Unknown);
        if is_ours {
            self.shown = None;
        }
    }

    /// All of that was run, its trackers heard; `row` is the answer to the question.
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
        self.heard = TrackerUpdate::default();
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
            // It was longer than is kept.
            return self.bind(Pin::Unknown);
        };
        // NULL is told as an empty string. A SET of it to what it is would change the collation of
        // results, which no variable shows.
        let (name, value) = (variables::RESULTS, results.unwrap_or_default());
        let change = Change::Variable { name, value };
        on.hear(&change, interner);
        self.hear(&change, interner);
        if shown.sets {
            let mariadb = self.reading.mariadb;
            self.tracking.learn(mariadb, shown.has_gtids, trackers);
            if self.tracking.wants_all_gtids() {
                // No other connection tells them.
                self.bind(Pin::Settings);
            }
        }
    }
}
