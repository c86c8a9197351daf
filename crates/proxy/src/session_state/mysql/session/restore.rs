//! From connection to connection: what is put in place on one, and asked before it is given away.

use evenkeel_policy::pins::Pin;

use super::super::connection::ServerSessionState;
use super::super::information::{InfoNeeds, InfoUsage, InsertId};
use super::super::variables;
use super::{SessionState, StateQuery, TrackerUpdate};
use crate::session_state::settings::{Interner, SettingSet};

impl SessionState {
    /// What the server must be asked before the connection is given away. `None`: all is known.
    #[must_use]
    pub fn question(&mut self, asked: &InfoUsage) -> Option<StateQuery> {
        let is_open = self.is_insert_id_open(asked);
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

    fn is_insert_id_open(&self, asked: &InfoUsage) -> bool {
        match self.insert_id {
            InsertId::Exact(_) => false,
            InsertId::Likely(_) => self.insert_on != 0 && asked.any(InfoNeeds::INSERT_ID),
            InsertId::Unknown => true,
        }
    }

    /// The answer to the question has come, its trackers heard.
    pub fn answered(&mut self, on: &mut ServerSessionState, interner: &Interner) {
        self.take_collation(on, interner);
        let switched = self.is_by_place && self.has_heard(variables::AUTOCOMMIT);
        let other = self.is_by_place && self.heard.position.is_some();
        if self.is_untold && (self.has_heard(variables::TIMESTAMP) || switched || other) {
            self.bind(Pin::Settings);
        }
        self.heard = TrackerUpdate::default();
        self.is_asked = false;
        self.is_untold = false;
        on.disturbed();
        self.loosen(Pin::Settings);
        self.loosen(Pin::InsertId);
    }

    /// The server has run what [`difference`](super::super::differing::difference) asked for,
    /// and its trackers were heard.
    pub fn restored(&mut self, on: &mut ServerSessionState, interner: &Interner) {
        if self.without_number.take().is_some() {
            self.take_charset(&on.now, interner);
        }
        on.now = self.now.clone();
        on.schema = self.schema.clone();
        on.is_doubtful = false;
        // Whoever had it last does not find it as it was left, though nothing more may be sent.
        on.leftovers.holder = self.number;
        if std::mem::take(&mut self.puts_leftovers) {
            self.has_insert_id(on);
            self.has_counted(on);
            on.leftovers.warned = false;
        }
    }

    /// Whether what is put in place has to count rows besides, so that FOUND_ROWS() is nobody
    /// else's: the SELECT in our SET counts on MariaDB only.
    #[must_use]
    pub fn must_count(&self) -> bool {
        self.puts_leftovers && !self.reading.mariadb
    }

    /// FOUND_ROWS() on the connection is about a SELECT of its own, or nobody's.
    pub(super) fn has_counted(&mut self, on: &mut ServerSessionState) {
        on.leftovers.counts_of = self.number;
        self.counted_on = on.number;
    }

    /// The connection has its insert id.
    pub(super) fn has_insert_id(&mut self, on: &mut ServerSessionState) {
        on.leftovers.insert_id_of = self.number;
        self.insert_on = on.number;
    }

    /// Whether the connection has its insert id, as far as that is known.
    pub(in crate::session_state::mysql) fn is_insert_id_on(&self, on: &ServerSessionState) -> bool {
        let own = on.leftovers.insert_id_of == self.number && self.insert_on == on.number;
        own || on.leftovers.insert_id_of == 0 && self.insert_id == InsertId::NONE
    }

    /// It could not be put in place. True: the client's number of a collation is none of this
    /// server, which then has what it has by itself; the difference can be made again.
    pub fn not_placed(&mut self, interner: &Interner) -> bool {
        let Some(without) = self.without_number.take() else {
            return false;
        };
        self.take_charset(&without, interner);
        true
    }

    /// What the number of its collation stands for.
    fn take_charset(&mut self, from: &SettingSet, interner: &Interner) {
        for name in [variables::CLIENT, variables::RESULTS, variables::COLLATION] {
            if let Some(value) = from.get(name) {
                self.now = interner.with(&self.now, name, value);
                self.begun = interner.with(&self.begun, name, value);
            }
        }
        self.look();
    }

    /// Whether it has kept the connection since its last statement: there all is as it made it,
    /// also what cannot be followed.
    pub(in crate::session_state::mysql) fn has_kept(&self, on: &ServerSessionState) -> bool {
        on.leftovers.holder == self.number && self.last_on == on.number
    }

    /// Whether the connection has what is somebody else's, or lacks what is its own, and a
    /// statement that asks `needs` would see that.
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
        // Not every statement clears what was there before it.
        let foreign = left.warned && left.last_user != self.number;
        insert_id || counts || last || foreign
    }
}
