//! Runs statements that name trackers. Meanwhile, the server connection has the client's trackers
//! and reports only the changes that these request; other changes are queried afterwards.

use evenkeel_policy::pins::Pin;
use evenkeel_wire::mysql::flags::Status;
use evenkeel_wire::mysql::trackers::Change;
use smallvec::SmallVec;

use super::super::analysis::{EffectKind, TextAnalysis};
use super::super::client_trackers;
use super::super::connection::{ResultOwners, ServerSessionState};
use super::super::variables;
use super::{SessionState, TrackerUpdate};
use crate::session_state::settings::Interner;

/// Error codes of a SET that set nothing: the server checks all names and rights first.
const UNKNOWN_VARIABLE: u16 = 1193;
const ACCESS_DENIED: u16 = 1227;

/// State of a session whose server connection has the client's trackers.
#[derive(Debug, Default)]
pub(super) struct TrackerSwap {
    /// True if the tracker of GTIDs is the client's, too.
    has_gtids: bool,
    /// True if the statement sets trackers, so that only the server knows their values.
    sets: bool,
    /// Variables that the statement may have set, and that the server has not reported.
    unreported: SmallVec<[Box<[u8]>; 4]>,
}

/// SQL texts to run after a statement that names trackers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrackerRestore {
    /// Queries the values of the client's trackers.
    pub query: Option<String>,
    /// Sets our trackers again.
    pub trackers: &'static str,
    /// Set variables to their present values, so that the server reports them. Each may fail: a
    /// variable that the client may not set was not changed.
    pub reports: Vec<Vec<u8>>,
}

impl TrackerSwap {
    /// Returns whether values must be queried that the server cannot report by trackers.
    fn needs_query(&self) -> bool {
        self.sets || self.unreported.iter().any(|name| must_query(name))
    }
}

fn must_query(name: &[u8]) -> bool {
    name == variables::RESULTS
}

impl SessionState {
    /// Returns the text that sets the client's trackers on the connection. MySQL does not allow a
    /// change of the GTID tracker in a transaction.
    pub fn show_trackers(&mut self, in_transaction: bool) -> Vec<u8> {
        let has_gtids = !in_transaction;
        self.swap = Some(TrackerSwap {
            has_gtids,
            ..TrackerSwap::default()
        });
        self.trackers.sql(self.modes.mariadb, has_gtids)
    }

    /// Records that a statement is sent. With the client's trackers set, the session is pinned
    /// afterwards.
    pub(super) fn record_tracker_sets(&mut self, analysis: &TextAnalysis) {
        let Some(swap) = &mut self.swap else {
            return;
        };
        let mut effects = analysis.effects.iter();
        swap.sets |= effects.any(|effect| effect.kind == EffectKind::SetTracker);
        self.pins.add(Pin::Settings);
    }

    /// Records that a called routine may have set variables. `has_trackers`: it is reported.
    pub(super) fn set_by_routine(&mut self, has_trackers: bool) {
        match self.swap.is_some() {
            true => self.pin(Pin::Settings),
            false => self.has_unreported |= !has_trackers,
        }
    }

    /// Records the variables that a failed statement may have set all the same. Our trackers would
    /// report them with the next OK.
    pub(super) fn may_have_set(&mut self, kind: &EffectKind, code: u16) {
        let _ = match kind {
            _ if matches!(code, UNKNOWN_VARIABLE | ACCESS_DENIED) => false,
            EffectKind::SetVariable(name) => self.mark_unreported(variables::canonical(name)),
            EffectKind::SetCharset => self.mark_charset(),
            _ => false,
        };
    }

    /// Records that the variable may have been set, so that it is queried later. Returns false if
    /// our trackers are on and report it, or if no query can contain such a name.
    pub(super) fn mark_unreported(&mut self, name: &[u8]) -> bool {
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let Some(swap) = self.swap.as_mut().filter(|_| name.iter().all(plain)) else {
            return false;
        };
        if !swap.unreported.iter().any(|own| **own == *name) {
            swap.unreported.push(name.into());
        }
        true
    }

    /// Records the same for the connection's character set, which consists of several variables.
    pub(super) fn mark_charset(&mut self) -> bool {
        let names = [variables::CLIENT, variables::RESULTS, variables::COLLATION];
        names.into_iter().all(|name| self.mark_unreported(name))
    }

    /// Returns the texts that the server must run now.
    #[must_use]
    pub fn restore_trackers(&mut self, version: u32, in_transaction: bool) -> TrackerRestore {
        self.received = TrackerUpdate::default();
        let mariadb = self.modes.mariadb;
        let swap = self.swap.take().unwrap_or_default();
        let names = swap.unreported.iter().filter(|name| !must_query(name));
        let restore = TrackerRestore {
            query: swap
                .needs_query()
                .then(|| client_trackers::values_of_trackers(mariadb)),
            trackers: client_trackers::trackers_again(mariadb, version, in_transaction),
            reports: names
                .map(|name| self.reporting_set(name, version))
                .collect(),
        };
        self.swap = Some(swap);
        restore
    }

    /// Handles a failure of these texts: the client's changes are unknown. `is_restored`: our
    /// trackers are set again.
    pub fn trackers_lost(&mut self, is_restored: bool) {
        self.pin(Pin::Unknown);
        if is_restored {
            self.swap = None;
        }
    }

    /// Processes the success of these texts, after their trackers were applied; `row` is the answer
    /// to the query.
    pub fn trackers_restored<'a>(
        &mut self,
        row: impl Iterator<Item = Option<&'a [u8]>>,
        server: &mut ServerSessionState,
        interner: &Interner,
    ) {
        let Some(swap) = self.swap.take() else {
            return;
        };
        if swap.needs_query() {
            let row: Vec<_> = row.collect();
            self.apply_tracker_values(&row, &swap, server, interner);
        }
        self.apply_collation(server, interner);
        for name in &swap.unreported {
            self.require_report(name, Status::IN_TRANSACTION);
        }
        self.received = TrackerUpdate::default();
        self.unpin(Pin::Settings);
    }

    fn apply_tracker_values(
        &mut self,
        row: &[Option<&[u8]>],
        swap: &TrackerSwap,
        server: &mut ServerSessionState,
        interner: &Interner,
    ) {
        server.owners.count_owner = ResultOwners::NO_CLIENT;
        let count = client_trackers::names(self.modes.mariadb).len();
        let columns = row.split_first();
        let Some((results, trackers)) = columns.filter(|(_, trackers)| trackers.len() == count)
        else {
            // The row was longer than the limit for stored answers.
            return self.pin(Pin::Unknown);
        };
        // NULL is reported as an empty string. A SET to its present value would change the
        // collation of results, which no variable shows.
        let (name, value) = (variables::RESULTS, results.unwrap_or_default());
        let change = Change::Variable { name, value };
        server.record_report(&change, interner);
        self.record_report(&change, interner);
        if swap.sets {
            let mariadb = self.modes.mariadb;
            self.trackers.learn(mariadb, swap.has_gtids, trackers);
            if self.trackers.wants_all_gtids() {
                // No other connection reports them.
                self.pin(Pin::Settings);
            }
        }
    }
}
