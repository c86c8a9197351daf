//! By which settings texts are read, and who may share what was prepared of them: the server makes
//! constants of literals once, and keeps the types of parameters and results.

use std::sync::Arc;

use evenkeel_policy::pins::Pin;
use evenkeel_wire::postgres::conversation::Request;
use evenkeel_wire::sql::{Dialect, postgres};

use super::Session;
use super::server::ServerConnection;
use super::statements::{PrepareContext, Statement, new_id};
use crate::session_state::analysis::{ParsingChange, sets_anything};

impl Session<'_> {
    /// How texts are read; `None`: they cannot be.
    pub(super) fn dialect(&self) -> Option<Dialect> {
        let backslashes = self.backslashes()?;
        Some(Dialect::Postgres { backslashes })
    }

    /// Whether backslashes escape in plain strings; `None`: texts cannot be read.
    fn backslashes(&self) -> Option<bool> {
        let reported = &self.journal.reported;
        // In the batch of what sets it nobody tells whether it is set.
        let is_quiet = |server: &ServerConnection| server.conversation.is_quiet();
        let is_told =
            self.rereads < ParsingChange::Texts || self.server.as_deref().is_none_or(is_quiet);
        (is_told && reported.is_readable()).then(|| reported.backslashes())
    }

    /// Whether it is a text, and what it is read by may be set by what was sent before it: a report
    /// of that comes with ReadyForQuery.
    pub(super) fn is_unreadable_yet(&self, request: Request) -> bool {
        let is_text = matches!(request, Request::Query | Request::Parse);
        is_text && self.rereads >= ParsingChange::Anything
    }

    /// What a text is prepared in.
    pub(super) fn within(&self, text: &[u8], types: &[u8]) -> PrepareContext {
        let backslashes = self.backslashes();
        let means_own = |backslashes| {
            postgres::tells_moment(text, backslashes)
                || postgres::is_described_by_session(text, backslashes)
        };
        // What others have prepared is from before the change that is under way here.
        let is_uncertain = self.reads_uncertainly() || self.changes_catalog || self.has_temporary();
        let is_own = is_uncertain || backslashes.is_none_or(means_own);
        PrepareContext {
            types: types.into(),
            database: self.account.who.database_number.get(),
            plans: self.account.plans(),
            by: self.journal.read_by(),
            backslashes,
            own: if is_own { new_id() } else { 0 },
        }
    }

    /// Whether what is prepared now may be read by other settings than are known.
    fn reads_uncertainly(&self) -> bool {
        self.rereads > ParsingChange::Nothing || sets_anything(self.journal.pins)
    }

    /// Whether names may mean something temporary, here and to nobody else. A plan of before need
    /// not know: to the server a name that is hidden has not changed.
    fn has_temporary(&self) -> bool {
        self.hides_tables || self.journal.pins.has(Pin::TemporaryTable)
    }

    /// What the client's name stands for, fit to be prepared on this server: what others share must
    /// be read there as it was first, else the client has one of its own from now on.
    pub(super) fn fit(&mut self, name: &[u8], statement: Arc<Statement>) -> Arc<Statement> {
        let within = &statement.within;
        let is_same = within.by == self.journal.read_by();
        let is_hidden = self.has_temporary();
        if within.own != 0 || is_same && !self.reads_uncertainly() && !is_hidden {
            return statement;
        }
        let has = |server: &mut Box<ServerConnection>| server.prepared.has(statement.id);
        if !is_hidden && self.server.as_mut().is_none_or(has) {
            return statement;
        }
        let own = PrepareContext {
            own: new_id(),
            ..self.within(&statement.text, &within.types)
        };
        let own = self.interned(&statement.text, &own);
        self.names.renew(name, &own);
        own
    }

    /// No transaction is open and nothing under way: the settings are what they are known to be.
    pub(super) fn settings_settled(&mut self) {
        self.rereads = ParsingChange::Nothing;
        self.has_unknown_search_path = false;
        self.hides_tables = false;
        self.journal.settled();
    }
}
