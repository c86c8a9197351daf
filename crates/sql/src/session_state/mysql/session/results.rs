//! Records which results of a session's statements its server connection has, and determines which
//! of them outlast the next statement.
//!
//! Warnings: MySQL clears them at any statement but those that show them, MariaDB at one that uses
//! a table. FOUND_ROWS() is about the last SELECT at both; MySQL also counts at UPDATE and DO.

use evenkeel_policy::route::{RoutedStatement, RoutingTraits, StatementClass};

use super::super::analysis::TextAnalysis;
use super::super::connection::{ResultOwners, ServerSessionState};
use super::super::previous_results::{
    Diagnostics, FoundRows, HoldPolicy, ObservedResultReads, ResultReads, StatementResults,
};
use super::SessionState;

impl SessionState {
    /// Returns whether a text leaves results in place for which its connection is held. The
    /// connection should then also run the text.
    #[must_use]
    pub fn keeps_results(&self, analysis: &TextAnalysis, observed: &ObservedResultReads) -> bool {
        let mut left = StatementResults {
            was_executed: false,
            ..self.results
        };
        for statement in &analysis.statements {
            if counts(analysis, statement) {
                left.found_rows = FoundRows::None;
            }
            if !self.keeps_diagnostics(analysis, statement) {
                left.diagnostics = Diagnostics::None;
            }
        }
        left.hold(observed) != HoldPolicy::Release
    }

    /// Records the results of a statement that succeeded; `None` for a command without a text, such
    /// as COM_STMT_PREPARE.
    pub(super) fn record_results(
        &mut self,
        analysis: &TextAnalysis,
        statement: Option<&RoutedStatement>,
        warnings: u16,
        server: &mut ServerSessionState,
    ) {
        let is_kept = statement.is_none_or(|one| self.keeps_diagnostics(analysis, one));
        let is_shown = analysis.needs.certainly(ResultReads::DIAGNOSTICS);
        self.results.diagnostics = match self.results.diagnostics {
            _ if warnings > 0 => Diagnostics::Unread,
            Diagnostics::Unread if is_kept && is_shown => Diagnostics::Read,
            before if is_kept => before,
            _ => Diagnostics::None,
        };
        self.results.was_executed = true;
        if statement.is_some_and(|one| counts(analysis, one)) {
            self.results.found_rows = FoundRows::Counted;
            self.claim_found_rows(server);
        } else if !analysis.is_counted || !statement.is_some_and(never_counts) {
            self.disown_found_rows(server);
        }
        let is_clean = warnings == 0 && statement.is_some_and(|one| self.clears(one));
        server.owners.has_warnings = !is_clean && (server.owners.has_warnings || warnings > 0);
    }

    /// Records the results of a statement that failed.
    pub(super) fn record_failed_results(&mut self, server: &mut ServerSessionState) {
        server.owners.has_warnings = true;
        self.disown_found_rows(server);
        self.results = StatementResults {
            diagnostics: Diagnostics::Unread,
            found_rows: self.results.found_rows.max(FoundRows::Counted),
            was_executed: true,
        };
    }

    /// Records that a command of this session runs on the connection. Results on another one, or
    /// before another session's command, are lost.
    pub(super) fn use_connection(&mut self, server: &mut ServerSessionState) {
        if !self.is_last_user(server) {
            self.results = StatementResults::default();
        }
        server.owners.holder = self.number;
        server.owners.last_user = self.number;
        self.last_connection = server.number;
    }

    /// Returns whether this session's statement was the last on the connection.
    pub(super) fn is_last_user(&self, server: &ServerSessionState) -> bool {
        server.owners.last_user == self.number && self.last_connection == server.number
    }

    /// Records that FOUND_ROWS() on the connection is about a SELECT of this session or of none.
    pub(super) fn claim_found_rows(&mut self, server: &mut ServerSessionState) {
        server.owners.count_owner = self.number;
        self.count_connection = server.number;
    }

    /// Returns whether FOUND_ROWS() on the connection is about a statement of this session.
    pub(super) fn owns_found_rows(&self, server: &ServerSessionState) -> bool {
        server.owners.count_owner == self.number && self.count_connection == server.number
    }

    /// Records that the connection's count, if it was another session's, may now be this one's.
    fn disown_found_rows(&self, server: &mut ServerSessionState) {
        if !self.owns_found_rows(server) {
            server.owners.count_owner = ResultOwners::NO_CLIENT;
        }
    }

    /// Returns whether earlier warnings probably outlast the statement, if it causes none.
    fn keeps_diagnostics(&self, analysis: &TextAnalysis, statement: &RoutedStatement) -> bool {
        match statement.kind {
            StatementClass::Write | StatementClass::Ddl => false,
            _ if !self.modes.mariadb => analysis.needs.certainly(ResultReads::DIAGNOSTICS),
            // Some forms of SHOW and EXPLAIN use a table.
            StatementClass::Read | StatementClass::Asks => {
                analysis.is_tableless || !analysis.counts_rows
            }
            _ => true,
        }
    }

    /// Returns whether the statement certainly clears earlier warnings. In MariaDB a SELECT may
    /// name DUAL or a view without a table.
    fn clears(&self, statement: &RoutedStatement) -> bool {
        match statement.kind {
            StatementClass::Write => true,
            StatementClass::Read | StatementClass::Setting | StatementClass::EndTransaction => {
                !self.modes.mariadb && !statement.traits.any(RoutingTraits::REMEMBERS)
            }
            _ => false,
        }
    }
}

/// Returns whether FOUND_ROWS() is about this statement after it succeeded.
fn counts(analysis: &TextAnalysis, statement: &RoutedStatement) -> bool {
    let is_read = matches!(statement.kind, StatementClass::Read | StatementClass::Asks);
    is_read && analysis.counts_rows
}

/// Returns whether the statement leaves FOUND_ROWS() as it was.
fn never_counts(statement: &RoutedStatement) -> bool {
    matches!(
        statement.kind,
        StatementClass::Begin(_) | StatementClass::EndTransaction | StatementClass::Setting
    )
}
