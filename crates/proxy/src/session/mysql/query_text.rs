//! Analyzes SQL texts, and applies them and their replies to the session state.

use std::sync::Arc;

use evenkeel_engine::clock;
use evenkeel_policy::causality::{Consistency, Position};
use evenkeel_policy::cluster::Gtids;
use evenkeel_policy::pins::{Pin, UnpinEvent};
use evenkeel_policy::route::retry::Atomicity;
use evenkeel_sql::Dialect;
use evenkeel_sql::digest::digest;
use evenkeel_sql::mysql::{TokenKind, Tokens};
use evenkeel_wire::gtid;
use evenkeel_wire::mysql::flags::Status;
use evenkeel_wire::mysql::server_scanner::{End as ResultEnd, Event};
use evenkeel_wire::mysql::trackers::{Change, Trackers};

use super::Session;
use super::active_request::{CommandKind, CommandStatement};
use super::server::{ServerConnection, session_state};
use super::statements::{PrepareContext, READING, Statement};
use super::tracked::last_row;
use crate::session::pinning;
use evenkeel_sql::session_state::PinSource;
use evenkeel_sql::session_state::mysql::{
    self, CatalogLookup, DataChange, SessionState, StatementReply, TextAnalysis, TransactionPart,
};
use evenkeel_sql::session_state::settings::SettingSet;
use evenkeel_sql::session_state::templates;

impl Session<'_> {
    /// Returns the analysis of a text.
    pub(super) fn read(&self, text: &[u8]) -> TextAnalysis {
        let routines = self.core.service.server_info.routines();
        let lookup = routines
            .as_deref()
            .map(|routines| routines as &dyn CatalogLookup);
        let meaning = self.state.read(text, lookup);
        self.shared.observed_reads.note(meaning.needs);
        meaning
    }

    /// Returns the analysis of a text that is executed, and counts it under its digest.
    pub(super) fn read_query(&self, text: &[u8]) -> Arc<TextAnalysis> {
        let Some(dialect) = self.state.dialect() else {
            return Arc::new(self.read(text));
        };
        let within = templates::TemplateContext {
            dialect,
            catalog: self.catalog(),
        };
        let mut templates = self.account.known.templates.borrow_mut();
        let is_fixed = |meaning: &Arc<TextAnalysis>| meaning.is_fixed();
        let meaning = templates.analysis(text, within, is_fixed, || {
            let mut meaning = self.read(text);
            meaning.digest = digest(text, dialect).0;
            meaning.name_source(text, Some(dialect));
            Arc::new(meaning)
        });
        self.shared.observed_reads.note(meaning.needs);
        self.core.service.enter(meaning.digest, text, Some(dialect));
        meaning
    }

    /// Returns the analysis of a text that was prepared in this context.
    fn read_prepared(&self, text: &[u8], within: &PrepareContext) -> TextAnalysis {
        let [mode, client, collation, ..] = &within.reading;
        let [mode, client, collation] =
            [mode, client, collation].map(|value| value.as_deref().unwrap_or_default());
        let dialect = self.state.dialect_in(mode, client);
        let routines = self.core.service.server_info.routines();
        let lookup = routines
            .as_deref()
            .map(|routines| routines as &dyn CatalogLookup);
        let mut meaning = match dialect {
            Some(Dialect::Mysql(modes)) => {
                let meaning = mysql::read(text, modes, lookup);
                meaning.of_prepared(mode, client, collation)
            }
            _ => TextAnalysis::unreadable(),
        };
        self.shared.observed_reads.note(meaning.needs);
        meaning.digest = dialect.map_or(0, |dialect| digest(text, dialect).0);
        meaning.name_source(text, dialect);
        meaning
    }

    /// Returns the version of the known stored functions and views; zero if none are known.
    pub(super) fn catalog(&self) -> u64 {
        self.core.service.server_info.routines_version()
    }

    pub(super) fn intern(&self, text: &[u8]) -> Arc<Statement> {
        let (within, catalog) = (self.within(), self.catalog());
        let read = || self.read_prepared(text, &within);
        let statement = self
            .shared
            .statements
            .statement(text, &within, catalog, read);
        match names_variables(text, self.state.dialect()) {
            true => Arc::new(statement.copy()),
            false => statement,
        }
    }

    /// Returns the context in which the session's texts are prepared.
    pub(super) fn within(&self) -> PrepareContext {
        within(self.state.schema(), self.state.settings())
    }

    /// Returns the statement with its analysis updated to the current catalog, but parsed in its
    /// original context. The analysis is shared with all users of the statement, and kept with the
    /// client's statement id.
    pub(super) fn current(&mut self, number: u32, statement: &Arc<Statement>) -> Arc<Statement> {
        let catalog = self.catalog();
        if statement.catalog == catalog {
            return Arc::clone(statement);
        }
        let read = || self.read_prepared(&statement.text, &statement.within);
        let current = self.shared.statements.renewed(statement, catalog, read);
        self.statements.renew(number, current)
    }

    pub(super) fn pins_changed(&self) {
        let source = |new| {
            let source = effective(&self.active.what, &self.active.statement)
                .and_then(|meaning| meaning.source.as_deref());
            let statement = source.map(|source| source.statement.clone());
            let object = self.state.names_of(new).into();
            PinSource {
                statement: statement.unwrap_or_default(),
                object,
            }
        };
        pinning::pin(self.core.handle, self.state.pins, source);
    }

    /// Applies the effects of the command to the session state as it is sent.
    pub(super) fn meant(&mut self) {
        self.active.pins_before = self.state.pins;
        self.active.word.clear();
        let Some(server) = &mut self.core.server else {
            return;
        };
        let nothing = TextAnalysis::default();
        let meaning = effective(&self.active.what, &self.active.statement).unwrap_or(&nothing);
        let is_text = matches!(
            self.active.what,
            CommandKind::Query | CommandKind::Execute(_)
        );
        let is_atomic = is_text && meaning.unit == TransactionPart::Atomic;
        self.active.atomicity = match is_atomic {
            true => Atomicity::Whole,
            false => Atomicity::Partial,
        };
        self.active.may_write = meaning.writes()
            || matches!(self.active.what, CommandKind::Simple | CommandKind::Bulk(_));
        if let Some(at) = &mut self.core.acquirer.at {
            at.written.is_some |= self.active.may_write;
        }
        self.state.sent(meaning, &mut server.settings);
        match self.active.what {
            CommandKind::Replica | CommandKind::Binlog => self.state.pins.add(Pin::Replication),
            CommandKind::LongData(_) => self.state.pins.add(Pin::LongData),
            _ => {}
        }
        self.pins_changed();
    }

    /// Pins the session while prepared statements hold cursors or long data.
    pub(super) fn statements_hold(&mut self, server: &ServerConnection) {
        match server.conversation.has_cursors() {
            true => self.state.pins.add(Pin::Cursor),
            false => self.state.pins.release(UnpinEvent::CursorsClosed),
        }
        match server.conversation.has_long_data() {
            true => self.state.pins.add(Pin::LongData),
            false => self.state.pins.release(UnpinEvent::LongDataUsed),
        }
        self.pins_changed();
    }

    /// Applies a result, or an OK, of the client's command.
    pub(super) fn result_came(&mut self, server: &mut ServerConnection, event: &Event<'_>) {
        let Some(mut reply) = reply_of(event, server.conversation.status()) else {
            return;
        };
        reply.value = lock_value(last_row(&self.active.word));
        let index = self.active.results;
        self.active.results += 1;
        let nothing = TextAnalysis::default();
        let meaning = effective(&self.active.what, &self.active.statement).unwrap_or(&nothing);
        if let Some(at) = &mut self.core.acquirer.at {
            let is_last = !reply.status.has(Status::MORE_RESULTS);
            at.written.is_partial |= !reply.has_trackers && meaning.may_write_at(index, is_last);
        }
        let interner = self.core.worker.interner();
        self.state
            .succeeded(meaning, index, &reply, &mut server.settings, interner);
        if meaning.change == DataChange::Catalog {
            self.core.service.server_info.routines_changed();
            self.changed_catalog = Some(self.catalog());
        }
        if meaning.sets_globals {
            self.shared.logins.baselines.outdate();
            self.core.acquirer.renew_server();
        }
    }

    /// Applies the failure of the client's command.
    pub(super) fn text_failed(&mut self, server: &mut ServerConnection, code: u16) {
        let nothing = TextAnalysis::default();
        let meaning = effective(&self.active.what, &self.active.statement).unwrap_or(&nothing);
        self.state.failed(meaning, code, &mut server.settings);
        if let Some(at) = &mut self.core.acquirer.at {
            // An error contains no session trackers.
            at.written.is_partial |= self.active.may_write;
        }
    }

    /// Applies the session trackers of a reply.
    pub(super) fn hear_trackers(&mut self, event: &Event<'_>) {
        if is_cut(event) {
            // The truncated part may contain any change of the session.
            self.state.pins.add(Pin::Unknown);
            if let Some(at) = &mut self.core.acquirer.at {
                at.written.is_partial = true;
            }
        }
        let Some(state) = session_state(event) else {
            return;
        };
        let interner = self.core.worker.interner();
        for tracker in Trackers::new(state) {
            self.state.record_report(&tracker.change, interner);
            match tracker.change {
                Change::Gtids(text) => self.committed(of_mysql(text)),
                Change::Variable { name, value } if name == b"last_gtid" => {
                    self.committed(of_mariadb(value));
                }
                Change::Schema(schema) => {
                    let schema = String::from_utf8_lossy(schema);
                    self.core.acquirer.set_database(&schema);
                }
                _ => {}
            }
        }
    }

    /// Records the log position of the session's write, as reported by the server.
    fn committed(&mut self, gtids: Option<Gtids>) {
        let gtids = gtids.filter(|gtids| !gtids.is_empty());
        let (Some(gtids), Some(at)) = (gtids, &mut self.core.acquirer.at) else {
            return;
        };
        match &mut at.written.gtids {
            Some(known) => known.merge(&gtids),
            known => *known = Some(gtids),
        }
    }

    /// Records a write of the session, before the reply is sent to the client, so that its next
    /// read sees it.
    pub(super) fn wrote(&mut self) {
        let view = self.core.permit.service().snapshot();
        let Some(database) = view.database() else {
            return;
        };
        let Some(at) = self.core.acquirer.at.as_mut() else {
            return;
        };
        let written = std::mem::take(&mut at.written);
        // The statement may have begun a transaction that is still open.
        at.written.is_some = self.is_doubtful;
        let is_causal = self
            .core
            .service
            .server_info
            .positions()
            .is_causal(at.server.id);
        if !(database.split.reads || is_causal) || database.consistency == Consistency::Eventual {
            return;
        }
        let now_us = clock::now_us();
        self.token
            .assume_writes_before(database.writes_recorded_since_us, at.epoch);
        // In Galera, each node counts log positions on its own.
        let is_known = !is_causal && !written.is_partial;
        match written.gtids.filter(|_| is_known) {
            Some(gtids) => self
                .token
                .wrote_at(&Position::Gtids(gtids), now_us, at.epoch),
            None => self.token.wrote(now_us, at.epoch),
        }
        self.core
            .service
            .server_info
            .record_write(self.core.worker.index(), now_us);
    }

    /// Resets the session state after COM_RESET_CONNECTION; the schema stays.
    pub(super) fn begin_anew(&mut self) {
        let interner = self.core.worker.interner();
        let schema = self.state.schema().map(Box::<[u8]>::from);
        let mut beginning = super::beginning(&self.begin);
        beginning.schema = schema.as_deref();
        if !beginning.mariadb {
            // MySQL returns to its own character set, MariaDB to that of the login.
            beginning.collation = 0;
        }
        self.state = SessionState::new(self.begin.baseline.pairs(), beginning, interner);
        self.postponed_error = None;
        self.row_count = None;
        self.limit_idleness();
        self.pins_changed();
    }
}

/// Returns the preparation context for the given schema and settings.
pub(super) fn within(schema: Option<&[u8]>, settings: &SettingSet) -> PrepareContext {
    PrepareContext {
        schema: schema.map(Box::from),
        reading: READING.map(|name| settings.get(name).map(Box::from)),
    }
}

/// Returns whether a text names user variables. A server takes their types and collations from the
/// preparing session, so the statement must not be shared.
fn names_variables(text: &[u8], dialect: Option<Dialect>) -> bool {
    if !text.contains(&b'@') {
        return false;
    }
    let Some(Dialect::Mysql(modes)) = dialect else {
        return true;
    };
    let mut tokens = Tokens::new(text, modes);
    loop {
        match tokens.next_token().kind {
            TokenKind::End => return false,
            TokenKind::UserVariable | TokenKind::Broken => return true,
            _ => {}
        }
    }
}

/// Returns the analysis whose effects the command has; preparing a statement has none.
pub(super) fn effective<'u>(
    what: &CommandKind,
    statement: &'u CommandStatement,
) -> Option<&'u TextAnalysis> {
    match what {
        CommandKind::Query | CommandKind::Execute(_) | CommandKind::Bulk(_) => statement.meaning(),
        _ => None,
    }
}

/// Returns whether the event is an OK packet that was truncated.
fn is_cut(event: &Event<'_>) -> bool {
    match event {
        Event::Ok(ok) | Event::ResultEnd(ResultEnd::Ok(ok)) => ok.is_cut,
        _ => false,
    }
}

/// Returns whether the only value of a row is 1: in the text or the binary protocol, where 4 or 8
/// bytes follow the header and the NULL bitmap. Returns `None` if it is not such a row.
fn lock_value(row: &[u8]) -> Option<bool> {
    match row {
        [1, b'1'] | [0, 0, 1, 0, 0, 0] | [0, 0, 1, 0, 0, 0, 0, 0, 0, 0] => Some(true),
        [1, b'0'] | [0xfb] | [0, 4] => Some(false),
        [0, 0, 0, 0, 0, 0] | [0, 0, 0, 0, 0, 0, 0, 0, 0, 0] => Some(false),
        _ => None,
    }
}

/// Parses the value of MySQL's GTID tracker; `None` if it is invalid.
fn of_mysql(text: &[u8]) -> Option<Gtids> {
    let parts: Vec<_> = gtid::mysql(text).collect::<Result<_, _>>().ok()?;
    let parts = parts.iter();
    Some(Gtids::mysql(
        parts.map(|one| (one.uuid, one.tag, one.first, one.last)),
    ))
}

/// Parses MariaDB's `last_gtid`.
fn of_mariadb(text: &[u8]) -> Option<Gtids> {
    mariadb_positions(text).map(Gtids::mariadb)
}

/// Parses a list of (domain, server, sequence); `None` if it is invalid.
pub(super) fn mariadb_positions(text: &[u8]) -> Option<Vec<(u32, u32, u64)>> {
    let positions = gtid::mariadb(text);
    let read = positions.map(|one| one.map(|one| (one.domain, one.server, one.sequence)));
    read.collect::<Result<_, _>>().ok()
}

/// Returns the statement's reply. `known`: the status from the last reply that contained one.
fn reply_of(event: &Event<'_>, known: Status) -> Option<StatementReply> {
    let (status, ok, warnings) = match event {
        Event::Ok(ok) => (ok.status, Some(ok), ok.warnings),
        Event::ResultEnd(ResultEnd::Ok(ok)) => (ok.status, Some(ok), ok.warnings),
        Event::Eof(eof) | Event::ResultEnd(ResultEnd::Eof(eof)) => (eof.status, None, eof.warnings),
        Event::Text | Event::Complete => (known, None, 0),
        _ => return None,
    };
    Some(StatementReply {
        status,
        insert_id: ok.map_or(0, |ok| ok.last_insert_id),
        value: None,
        warnings,
        has_trackers: ok.is_some(),
        is_result: matches!(event, Event::ResultEnd(_)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_row_of_a_lock_has_a_value() {
        assert_eq!(lock_value(b"\x011"), Some(true));
        assert_eq!(lock_value(b"\x010"), Some(false));
        assert_eq!(lock_value(b"\xfb"), Some(false));
        assert_eq!(lock_value(b"\0\0\x01\0\0\0\0\0\0\0"), Some(true));
        assert_eq!(lock_value(b"\0\0\0\0\0\0"), Some(false));
        assert_eq!(lock_value(b"\0\x04"), Some(false));
        assert_eq!(lock_value(b"\x03def"), None, "a definition");
        assert_eq!(lock_value(b""), None);
    }
}
