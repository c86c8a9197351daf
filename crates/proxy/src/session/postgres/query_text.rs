//! Analyzes the client's SQL texts and applies their effects to the session as they are sent.

use std::sync::Arc;

use evenkeel_policy::pins::Pin;
use evenkeel_sql::Dialect;
use evenkeel_sql::digest::digest;
use evenkeel_wire::postgres::build;
use evenkeel_wire::postgres::conversation::{Request, RequestToken, Sending};
use evenkeel_wire::postgres::names::parse_parts;
use evenkeel_wire::stream_editor::StreamEditor;

use super::active_request::text_of_query;
use super::pending_effects::takes_statements_away;
use super::prepared::{NOT_ITS_NAME, names_ours};
use super::sequences::SequenceRead;
use super::server::ServerConnection;
use super::statements::{self};
use super::{ExitReason, LONG_TEXT, Session, sequences};
use crate::session::pinning;
use crate::upstream::database_change::ActiveDatabaseChange;
use evenkeel_sql::session_state::PinSource;
use evenkeel_sql::session_state::analysis::{
    self, CatalogChange, CatalogLookup, Effect, TextAnalysis,
};
use evenkeel_sql::session_state::templates::TemplateContext;

impl Session<'_> {
    pub(super) fn query(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        message: &[u8],
        is_whole: bool,
    ) -> Result<Sending, ExitReason> {
        self.active.is_sent = true;
        // After requests without a Sync it belongs to their batch: an error skips it, too.
        let begins_anew = |server: &ServerConnection| server.conversation.is_between_batches();
        if self.core.server.as_deref().is_none_or(begins_anew) {
            self.segment += 1;
            self.unnamed.drop_now();
        }
        let text = is_whole.then(|| text_of_query(message));
        if let Some(words) = self.apply_rules(|session| session.rules(text)) {
            self.effects.read_ahead = None;
            return Ok(self.refuse_query(flight, &words, message.len()));
        }
        if !is_whole {
            self.forget_sequences(flight);
            self.active.writes();
            self.pin_for(Pin::Unknown, LONG_TEXT);
            self.pending.runs(0);
            let token = self.drop_unnamed(RequestToken(0));
            return Ok(self.send(flight, Request::Query, token, message.len()));
        }
        let analysis = match self.effects.read_ahead.take() {
            Some(analysis) => analysis,
            None => self.read_query(text_of_query(message)),
        };
        if names_ours(&analysis) {
            return Ok(self.refuse_query(flight, NOT_ITS_NAME, message.len()));
        }
        if let Some(name) = self.deallocated(&analysis) {
            self.pending.runs_text(analysis.digest, 1);
            return Ok(self.query_deallocate(flight, name, message.len()));
        }
        if let Some(text) = self.known_last_value(&analysis, text_of_query(message)) {
            self.pending.runs_text(analysis.digest, 1);
            let request = (Request::Query, self.drop_unnamed(RequestToken(0)));
            return Ok(self.replace(flight, request, message.len(), |out| {
                build::query(out, &text);
            }));
        }
        let read = SequenceRead::of(&analysis, text_of_query(message));
        if self.guard_sequences(flight, &analysis, read) {
            return Ok(self.refuse_query(flight, sequences::REFUSAL, message.len()));
        }
        if self.query_channels(flight, message) {
            return Ok(Sending::Drop);
        }
        self.pending
            .runs_text(analysis.digest, analysis.statements.len());
        self.name_for_query(flight, &analysis);
        let token = self.meant(&analysis);
        let token = self.drop_unnamed(token);
        match self.text_of_processes(text_of_query(message)) {
            Some(text) => Ok(
                self.replace(flight, (Request::Query, token), message.len(), |out| {
                    build::query(out, &text);
                }),
            ),
            None => Ok(self.send(flight, Request::Query, token, message.len())),
        }
    }

    /// Applies those effects of a text that hold as soon as it is sent. Returns the token of its
    /// request.
    pub(super) fn meant(&mut self, analysis: &Arc<TextAnalysis>) -> RequestToken {
        self.active.runs(analysis);
        self.note_changes(analysis);
        self.effects.note(analysis)
    }

    /// Records the changes that a text may make until its end.
    pub(super) fn note_changes(&mut self, analysis: &TextAnalysis) {
        self.catalog_change = self.catalog_change.max(analysis.catalog_change);
        self.changes_plans |= analysis.changes_plans();
        self.sequences.used_nextval |= analysis.sequences.draws;
        self.start_database_change(analysis);
        self.note_names(analysis);
        if !analysis.effects.is_empty() {
            self.take_pins(analysis);
        }
    }

    /// Starts the removal of other sessions' connections from the database that the text acts on.
    fn start_database_change(&mut self, analysis: &TextAnalysis) {
        if let (Some(does), Some(at)) = (&analysis.database_change, &self.core.acquirer.at) {
            self.database_change = Some(ActiveDatabaseChange::begin(
                self.core.worker,
                at.server.id,
                does,
            ));
        }
    }

    /// Records that a text may change how later texts are parsed, and pins the session if it may
    /// create temporary objects.
    fn note_names(&mut self, analysis: &TextAnalysis) {
        if self.names.note(analysis) {
            self.source.clone_from(&analysis.source);
            self.state.pin_deferred(Pin::TemporaryTable);
            self.pins_changed();
        }
    }

    /// Copies the pins of the session state to the session handle.
    pub(super) fn pins_changed(&self) {
        pinning::pin_by(self.core.handle, self.state.pins, self.source.as_deref());
    }

    /// Pins the session for something other than an analyzed statement, with a description.
    pub(super) fn pin_for(&mut self, pin: Pin, words: &str) {
        self.source = Some(PinSource::unread(words));
        self.pin(pin);
    }

    pub(super) fn pin(&mut self, pin: Pin) {
        self.state.pins.add(pin);
        self.pins_changed();
    }

    pub(super) fn take_pins(&mut self, analysis: &TextAnalysis) {
        let discards = self.is_to_be_awaited(analysis);
        self.effects.discard_statements(discards);
        self.state.sent(analysis);
        self.source.clone_from(&analysis.source);
        self.pins_changed();
    }

    /// Returns whether later messages must not be sent before the end of the text.
    pub(super) fn is_to_be_awaited(&self, analysis: &TextAnalysis) -> bool {
        let session_state = &self.state;
        let takes_away = |one: &Effect| {
            takes_statements_away(one)
                || session_state.is_startup_reset(&one.kind)
                || self.is_deallocated_by_name(analysis, one)
        };
        analysis.effects.iter().any(takes_away)
    }

    /// Returns the analysis of a text, which is [`TextAnalysis::unreadable`] if the client's
    /// encoding prevents it.
    pub(super) fn read(&self, text: &[u8]) -> TextAnalysis {
        self.read_as(text, self.dialect(text))
    }

    fn read_as(&self, text: &[u8], dialect: Option<Dialect>) -> TextAnalysis {
        let Some(Dialect::Postgres { backslashes }) = dialect else {
            return TextAnalysis::unreadable();
        };
        let catalog = self.account.catalog();
        let lookup = catalog
            .as_deref()
            .map(|catalog| catalog as &dyn CatalogLookup);
        analysis::analyze_with_doubts(text, backslashes, lookup, self.doubts_functions())
    }

    /// Returns whether the session changes functions now, or any has since the catalog was read.
    fn doubts_functions(&self) -> bool {
        self.catalog_change == CatalogChange::Functions || self.account.are_functions_changed()
    }

    /// Returns the version of the catalog used for analysis, which includes whether it is out of
    /// date.
    fn catalog_version(&self) -> u64 {
        2 * self.account.catalog_version() + u64::from(self.doubts_functions())
    }

    /// Returns the analysis of a text to be executed, and registers its digest.
    pub(super) fn read_query(&self, text: &[u8]) -> Arc<TextAnalysis> {
        let Some(dialect) = self.dialect(text) else {
            return Arc::new(self.read(text));
        };
        let within = TemplateContext {
            dialect,
            catalog: self.catalog_version(),
        };
        let mut templates = self.account.known.templates.borrow_mut();
        let is_fixed = |analysis: &Arc<TextAnalysis>| analysis.is_fixed();
        let analysis = templates.analysis(text, within, is_fixed, || {
            Arc::new(self.read_prepared(text, Some(dialect)))
        });
        self.core
            .service
            .enter(analysis.digest, text, Some(dialect));
        analysis
    }

    fn read_prepared(&self, text: &[u8], dialect: Option<Dialect>) -> TextAnalysis {
        let mut analysis = self.read_as(text, dialect);
        analysis.digest = dialect.map_or(0, |dialect| digest(text, dialect).0);
        analysis.name_source(text, dialect);
        analysis
    }

    pub(super) fn intern(&self, text: &[u8], types: &[u8]) -> Arc<statements::Statement> {
        self.interned(text, &self.within(text, types))
    }

    pub(super) fn id_of(&self, parse: &[u8]) -> Option<u64> {
        let parts = parse_parts(parse)?;
        let text = parse.get(parts.text)?;
        let within = self.within(text, parse.get(parts.types)?);
        (within.exclusive_id == 0).then(|| self.interned(text, &within).id)
    }

    pub(super) fn interned(
        &self,
        text: &[u8],
        within: &statements::PrepareContext,
    ) -> Arc<statements::Statement> {
        let catalog = self.catalog_version();
        let read = || Arc::new(self.read_prepared(text, within.dialect()));
        self.protocol
            .statements
            .statement(text, within, catalog, read)
    }

    /// Returns the statement of a Parse. It is counted if it fails or is executed.
    pub(super) fn prepares(&mut self, text: &[u8], types: &[u8]) -> Arc<statements::Statement> {
        let statement = self.intern(text, types);
        let digest = statement.meaning.digest;
        self.core
            .service
            .enter(digest, text, statement.within.dialect());
        self.pending.parses(digest);
        statement
    }

    /// Returns the statement with an analysis by the current catalog.
    pub(super) fn current(
        &self,
        statement: &Arc<statements::Statement>,
    ) -> Arc<statements::Statement> {
        let catalog = self.catalog_version();
        if statement.catalog == catalog {
            return Arc::clone(statement);
        }
        let dialect = statement.within.dialect();
        let read = || Arc::new(self.read_prepared(&statement.text, dialect));
        self.protocol.statements.renewed(statement, catalog, read)
    }
}
