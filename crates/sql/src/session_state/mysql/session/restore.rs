//! Restores session state on another server connection, and determines what to query before
//! release.

use evenkeel_policy::pins::Pin;

use super::super::connection::ServerSessionState;
use super::super::previous_results::{InsertId, ObservedResultReads, ResultReads};
use super::super::variables;
use super::{SessionState, StateQuery, TrackerUpdate};
use crate::session_state::settings::{Interner, SettingSet};

impl SessionState {
    /// Returns the query to run before the connection is released. `None`: all state is known.
    #[must_use]
    pub fn state_query(&mut self, observed: &ObservedResultReads) -> Option<StateQuery> {
        let is_open = self.is_insert_id_open(observed);
        self.is_querying = is_open && self.has_merged_reports;
        match (self.has_unknown_settings(), is_open) {
            (_, true) if self.is_querying && !self.has_unreported => Some(StateQuery::BothByName),
            (true, true) if self.is_querying => Some(StateQuery::Collation),
            (true, true) => Some(StateQuery::Both),
            (true, false) => Some(StateQuery::Collation),
            (false, true) => Some(StateQuery::InsertId),
            (false, false) => None,
        }
    }

    /// Returns texts to run with the query: they set variables to their present values, so that the
    /// server reports them. MariaDB does not report `SET @@name = …` without a scope.
    #[must_use]
    pub fn setting_queries(&self, version: u32) -> Vec<Vec<u8>> {
        let names = self.unknown.settings.iter();
        names
            .map(|name| self.reporting_set(name, version))
            .collect()
    }

    /// Returns the text that sets a variable to its present value.
    pub(super) fn reporting_set(&self, name: &[u8], version: u32) -> Vec<u8> {
        let name = variables::spelling(name, self.modes.mariadb, version);
        [b"SET @@session.", name, b"=@@session.", name].concat()
    }

    fn is_insert_id_open(&self, observed: &ObservedResultReads) -> bool {
        match self.insert_id {
            InsertId::Exact(_) => false,
            InsertId::Uncertain(_) => {
                self.insert_connection != 0 && observed.intersects(ResultReads::INSERT_ID)
            }
            InsertId::Unknown => true,
        }
    }

    /// Pins for the settings that the server did not report.
    pub fn query_failed(&mut self) {
        for name in std::mem::take(&mut self.unknown.settings) {
            self.pin_setting(name);
        }
    }

    /// Processes the answer to the query, after its trackers were applied.
    pub fn query_answered(&mut self, server: &mut ServerSessionState, interner: &Interner) {
        self.apply_collation(server, interner);
        let switched = self.has_merged_reports && self.was_reported(variables::AUTOCOMMIT);
        let other = self.has_merged_reports && self.received.position.is_some();
        if self.has_unreported && (self.was_reported(variables::TIMESTAMP) || switched || other) {
            self.pin(Pin::Settings);
        }
        for name in std::mem::take(&mut self.unknown.settings) {
            if !self.is_reported(&name) {
                self.pin_setting(name);
            }
        }
        self.received = TrackerUpdate::default();
        self.is_querying = false;
        self.has_unreported = false;
        server.disown_results();
        self.unpin(Pin::Settings);
        self.unpin(Pin::InsertId);
    }

    /// Records that the server ran the text of [`settings_diff`](super::super::settings_diff),
    /// after its trackers were applied.
    pub fn restored(&mut self, server: &mut ServerSessionState, interner: &Interner) {
        if self.fallback_settings.take().is_some() {
            self.copy_charset(&server.settings, interner);
        }
        server.settings = self.settings.clone();
        server.schema = self.schema.clone();
        server.must_restore = false;
        // The previous user no longer finds the state it left, even if nothing more is sent.
        server.owners.holder = self.number;
        let missing = std::mem::take(&mut self.missing_results);
        if !missing.is_empty() {
            self.claim_insert_id(server);
        }
        if missing.intersects(ResultReads::FOUND_ROWS) {
            self.claim_found_rows(server);
        }
        if missing.intersects(ResultReads::DIAGNOSTICS) {
            server.owners.has_warnings = false;
        }
    }

    /// Returns whether the restoring text must also count rows, so that FOUND_ROWS() returns no
    /// value of another session. The SELECT that clears warnings counts rows on MariaDB only.
    #[must_use]
    pub fn must_count(&self) -> bool {
        let missing = self.missing_results;
        let is_counted = self.modes.mariadb && missing.intersects(ResultReads::DIAGNOSTICS);
        missing.intersects(ResultReads::FOUND_ROWS) && !is_counted
    }

    /// Records that the connection has the insert id of this session.
    pub(super) fn claim_insert_id(&mut self, server: &mut ServerSessionState) {
        server.owners.insert_id_owner = self.number;
        self.insert_connection = server.number;
    }

    /// Returns whether the connection has the insert id of this session, as far as is known.
    pub(in crate::session_state::mysql) fn is_insert_id_on(
        &self,
        server: &ServerSessionState,
    ) -> bool {
        let own =
            server.owners.insert_id_owner == self.number && self.insert_connection == server.number;
        own || server.owners.insert_id_owner == 0 && self.insert_id == InsertId::NONE
    }

    /// Handles a failure to restore the settings. Returns true if the server does not have the
    /// client's collation number. The session then has the server's default, and the difference can
    /// be computed again.
    pub fn restore_failed(&mut self, interner: &Interner) -> bool {
        let Some(without) = self.fallback_settings.take() else {
            return false;
        };
        self.copy_charset(&without, interner);
        true
    }

    /// Sets the character set and collation of the session to those in `from`.
    fn copy_charset(&mut self, from: &SettingSet, interner: &Interner) {
        for name in [variables::CLIENT, variables::RESULTS, variables::COLLATION] {
            if let Some(value) = from.get(name) {
                self.settings = interner.with(&self.settings, name, value);
                self.initial = interner.with(&self.initial, name, value);
            }
        }
        self.update_modes();
    }

    /// Returns whether no other session has used the connection since this session's last
    /// statement. Everything on it is then as this session left it, including state that cannot be
    /// tracked.
    pub(in crate::session_state::mysql) fn is_undisturbed(
        &self,
        server: &ServerSessionState,
    ) -> bool {
        server.owners.holder == self.number && self.last_connection == server.number
    }

    /// Returns the results that the connection lacks for a statement that reads `needs`: it has
    /// those of another session, or lacks those of this one. Others are this session's own.
    pub(in crate::session_state::mysql) fn lacks(
        &self,
        server: &ServerSessionState,
        needs: ResultReads,
    ) -> ResultReads {
        let lacks = |results: ResultReads, is_lacking: bool| match is_lacking {
            true => results,
            false => ResultReads::NONE,
        };
        let is_last = self.is_last_user(server);
        let insert_id = needs.intersects(ResultReads::INSERT_ID) && !self.is_insert_id_on(server);
        let counts = needs.intersects(ResultReads::FOUND_ROWS) && !self.owns_found_rows(server);
        let last =
            needs.intersects(ResultReads::DIAGNOSTICS.and(ResultReads::ROW_COUNT)) && !is_last;
        // Not every statement clears earlier warnings, which may be older ones of this session.
        let foreign = server.owners.has_warnings && !is_last;
        // The SELECT that clears warnings counts rows, too.
        let cleared = ResultReads::DIAGNOSTICS.and(ResultReads::FOUND_ROWS);
        lacks(ResultReads::INSERT_ID, insert_id)
            .and(lacks(ResultReads::FOUND_ROWS, counts))
            .and(lacks(cleared, last || foreign))
    }
}
