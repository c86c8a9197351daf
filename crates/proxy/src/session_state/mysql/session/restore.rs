//! Restores session state on another server connection, and determines what to query before
//! release.

use evenkeel_policy::pins::Pin;

use super::super::connection::ServerSessionState;
use super::super::information::{InfoNeeds, InfoUsage, InsertId};
use super::super::variables;
use super::{SessionState, StateQuery, TrackerUpdate};
use crate::session_state::settings::{Interner, SettingSet};

impl SessionState {
    /// Returns the query to run before the connection is released. `None`: all state is known.
    #[must_use]
    pub fn question(&mut self, pending: &InfoUsage) -> Option<StateQuery> {
        let is_open = self.is_insert_id_open(pending);
        self.is_asked = is_open && self.is_by_place;
        match (self.owes_settings(), is_open) {
            (_, true) if self.is_asked && !self.is_untold => Some(StateQuery::BothByName),
            (true, true) if self.is_asked => Some(StateQuery::Collation),
            (true, true) => Some(StateQuery::Both),
            (true, false) => Some(StateQuery::Collation),
            (false, true) => Some(StateQuery::InsertId),
            (false, false) => None,
        }
    }

    fn is_insert_id_open(&self, pending: &InfoUsage) -> bool {
        match self.insert_id {
            InsertId::Exact(_) => false,
            InsertId::Likely(_) => self.insert_on != 0 && pending.any(InfoNeeds::INSERT_ID),
            InsertId::Unknown => true,
        }
    }

    /// Processes the answer to the query, after its trackers were applied.
    pub fn answered(&mut self, on: &mut ServerSessionState, interner: &Interner) {
        self.take_collation(on, interner);
        let switched = self.is_by_place && self.has_heard(variables::AUTOCOMMIT);
        let other = self.is_by_place && self.received.position.is_some();
        if self.is_untold && (self.has_heard(variables::TIMESTAMP) || switched || other) {
            self.bind(Pin::Settings);
        }
        self.received = TrackerUpdate::default();
        self.is_asked = false;
        self.is_untold = false;
        on.disturbed();
        self.loosen(Pin::Settings);
        self.loosen(Pin::InsertId);
    }

    /// Records that the server ran the text of [`settings_diff`](super::super::settings_diff),
    /// after its trackers were applied.
    pub fn restored(&mut self, on: &mut ServerSessionState, interner: &Interner) {
        if self.without_number.take().is_some() {
            self.take_charset(&on.now, interner);
        }
        on.now = self.now.clone();
        on.schema = self.schema.clone();
        on.is_doubtful = false;
        // The previous user no longer finds the state it left, even if nothing more is sent.
        on.leftovers.holder = self.number;
        if std::mem::take(&mut self.puts_leftovers) {
            self.has_insert_id(on);
            self.has_counted(on);
            on.leftovers.warned = false;
        }
    }

    /// Returns whether the restoring text must also count rows, so that FOUND_ROWS() returns no
    /// value of another session. The SELECT in our SET counts rows on MariaDB only.
    #[must_use]
    pub fn must_count(&self) -> bool {
        self.puts_leftovers && !self.reading.mariadb
    }

    /// Records that FOUND_ROWS() on the connection is about a SELECT of this session or of none.
    pub(super) fn has_counted(&mut self, on: &mut ServerSessionState) {
        on.leftovers.counts_of = self.number;
        self.counted_on = on.number;
    }

    /// Records that the connection has the insert id of this session.
    pub(super) fn has_insert_id(&mut self, on: &mut ServerSessionState) {
        on.leftovers.insert_id_of = self.number;
        self.insert_on = on.number;
    }

    /// Returns whether the connection has the insert id of this session, as far as is known.
    pub(in crate::session_state::mysql) fn is_insert_id_on(&self, on: &ServerSessionState) -> bool {
        let own = on.leftovers.insert_id_of == self.number && self.insert_on == on.number;
        own || on.leftovers.insert_id_of == 0 && self.insert_id == InsertId::NONE
    }

    /// Handles a failure to restore the settings. Returns true if the server does not have the
    /// client's collation number. The session then has the server's default, and the difference can
    /// be computed again.
    pub fn not_placed(&mut self, interner: &Interner) -> bool {
        let Some(without) = self.without_number.take() else {
            return false;
        };
        self.take_charset(&without, interner);
        true
    }

    /// Sets the character set and collation of the session to those in `from`.
    fn take_charset(&mut self, from: &SettingSet, interner: &Interner) {
        for name in [variables::CLIENT, variables::RESULTS, variables::COLLATION] {
            if let Some(value) = from.get(name) {
                self.now = interner.with(&self.now, name, value);
                self.begun = interner.with(&self.begun, name, value);
            }
        }
        self.look();
    }

    /// Returns whether no other session has used the connection since this session's last
    /// statement. Everything on it is then as this session left it, including state that cannot be
    /// tracked.
    pub(in crate::session_state::mysql) fn has_kept(&self, on: &ServerSessionState) -> bool {
        on.leftovers.holder == self.number && self.last_on == on.number
    }

    /// Returns whether a statement that reads `needs` would see values of another session on the
    /// connection, or miss values of its own.
    pub(in crate::session_state::mysql) fn lacks(
        &self,
        on: &ServerSessionState,
        needs: InfoNeeds,
    ) -> bool {
        let left = on.leftovers;
        let is_last = left.last_user == self.number && self.last_on == on.number;
        let insert_id = needs.any(InfoNeeds::INSERT_ID) && !self.is_insert_id_on(on);
        let has_counted = left.counts_of == self.number && self.counted_on == on.number;
        let counts = needs.any(InfoNeeds::FOUND_ROWS) && !has_counted;
        let last = needs.any(InfoNeeds::DIAGNOSTICS.and(InfoNeeds::ROW_COUNT)) && !is_last;
        // Not every statement clears earlier warnings.
        let foreign = left.warned && left.last_user != self.number;
        insert_id || counts || last || foreign
    }
}
