//! Determines the settings by which texts are parsed, and whether sessions may share a prepared
//! statement. The server converts literals to constants once, and keeps the types of parameters and
//! results.

use std::sync::Arc;

use evenkeel_policy::pins::Pin;
use evenkeel_sql::{Dialect, postgres};
use evenkeel_wire::postgres::conversation::Request;

use super::Session;
use super::server::ServerConnection;
use super::statements::{PrepareContext, Statement, new_id};
use evenkeel_sql::session_state::analysis::{CatalogChange, ParsingChange, TextAnalysis};

/// Changes in the open transaction that may affect the meaning of texts.
#[derive(Default)]
pub(super) struct TransactionNames {
    parsing: ParsingChange,
    /// True if the search path may contain `pg_temp`: it was set to a value that its text does not
    /// show.
    has_unknown_search_path: bool,
    /// True if temporary objects were created, which may hide other objects of the same name.
    hides_tables: bool,
}

impl TransactionNames {
    /// Records the changes by a text. Returns whether it may create temporary objects without a
    /// keyword for it. A plain CREATE does so if `pg_temp` is first in the search path. The
    /// transaction may have set that path without a text that shows it.
    pub(super) fn note(&mut self, analysis: &TextAnalysis) -> bool {
        let before = self.has_unknown_search_path;
        self.parsing = self.parsing.max(analysis.parsing_change);
        self.has_unknown_search_path |= analysis.may_set_search_path;
        let may_be_temporary = match analysis.creates_tables() {
            true => self.has_unknown_search_path,
            // A block of code may; settings that it makes itself are visible in its own code.
            false => analysis.changes_plans() && before,
        };
        self.hides_tables |= analysis.may_shadow_tables || may_be_temporary;
        may_be_temporary
    }

    /// Records the changes by a text that is unknown.
    pub(super) fn note_unknown(&mut self) {
        self.parsing = self.parsing.max(ParsingChange::Anything);
        self.has_unknown_search_path = true;
    }
}

impl Session<'_> {
    /// Returns how a text is parsed; `None`: it cannot be analyzed.
    pub(super) fn dialect(&self, text: &[u8]) -> Option<Dialect> {
        let backslashes = self.backslashes(text)?;
        Some(Dialect::Postgres { backslashes })
    }

    /// Returns whether backslashes escape in the plain strings of a text; `None`: it cannot be
    /// analyzed. A text of ASCII without one is the same in every encoding and under every setting.
    fn backslashes(&self, text: &[u8]) -> Option<bool> {
        let reported = &self.state.reported;
        // In the batch that sets it, the new value is not reported yet.
        let is_quiet = |server: &ServerConnection| server.conversation.is_quiet();
        let is_reported = self.names.parsing < ParsingChange::Texts
            || self.core.server.as_deref().is_none_or(is_quiet);
        if is_reported && reported.is_readable() {
            return Some(reported.backslashes());
        }
        (text.is_ascii() && !text.contains(&b'\\')).then_some(false)
    }

    /// Returns whether the request has a text whose parsing may depend on earlier requests. The
    /// server reports such settings with ReadyForQuery.
    pub(super) fn is_unreadable_yet(&self, request: Request) -> bool {
        let is_text = matches!(request, Request::Query | Request::Parse);
        is_text && self.names.parsing >= ParsingChange::Anything
    }

    /// Returns the context in which a text is prepared.
    pub(super) fn within(&self, text: &[u8], types: &[u8]) -> PrepareContext {
        let backslashes = self.backslashes(text);
        let means_own = |backslashes| {
            postgres::may_mean_now(text, backslashes)
                || postgres::is_described_by_session(text, backslashes)
        };
        // Statements that other sessions prepared predate the change in progress here.
        let changes_catalog = self.catalog_change > CatalogChange::None;
        let is_uncertain = self.reads_uncertainly() || changes_catalog || self.has_temporary();
        let is_own = is_uncertain || backslashes.is_none_or(means_own);
        PrepareContext {
            types: types.into(),
            database: self.account.pool_user.database_number.get(),
            plans: self.account.plans(),
            by: self.state.parse_settings(),
            backslashes,
            exclusive_id: if is_own { new_id() } else { 0 },
        }
    }

    /// Returns whether the settings at preparation may differ from the tracked ones.
    fn reads_uncertainly(&self) -> bool {
        self.names.parsing > ParsingChange::Nothing || self.state.has_unknown_parse_settings()
    }

    /// Returns whether names may refer to temporary objects of this session. An existing plan may
    /// ignore them: to the server a hidden name has not changed.
    fn has_temporary(&self) -> bool {
        self.names.hides_tables || self.state.pins.has(Pin::TemporaryTable)
    }

    /// Returns the client's statement in a form that can be prepared on this server. A shared one
    /// must be parsed there as it was first; otherwise the client gets one of its own.
    pub(super) fn fit(&mut self, name: &[u8], statement: Arc<Statement>) -> Arc<Statement> {
        let within = &statement.within;
        let is_same = within.by == self.state.parse_settings();
        let is_hidden = self.has_temporary();
        if within.exclusive_id != 0 || is_same && !self.reads_uncertainly() && !is_hidden {
            return statement;
        }
        let has = |server: &mut Box<ServerConnection>| server.prepared.has(statement.id);
        if !is_hidden && self.core.server.as_mut().is_none_or(has) {
            return statement;
        }
        let context = PrepareContext {
            exclusive_id: new_id(),
            ..self.within(&statement.text, &within.types)
        };
        let current = self.interned(&statement.text, &context);
        self.statements.renew(name, &current);
        current
    }

    /// Records that no transaction is open and no request in flight, so that the settings are
    /// known.
    pub(super) fn settings_settled(&mut self) {
        self.names = TransactionNames::default();
        self.state.end_deferred();
    }
}
