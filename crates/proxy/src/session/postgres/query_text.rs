//! What a client's SQL texts mean for its session, as they are sent.

use std::sync::Arc;

use evenkeel_policy::pins::Pin;
use evenkeel_wire::postgres::conversation::{LocalReply, Origin, Request, RequestToken, Sending};
use evenkeel_wire::postgres::names::parse_parts;
use evenkeel_wire::postgres::{TransactionStatus, build};
use evenkeel_wire::sql::Dialect;
use evenkeel_wire::sql::digest::digest;
use evenkeel_wire::stream_editor::StreamEditor;

use super::active_request::text_of_query;
use super::pending_effects::{is_atomic, may_commit, takes_statements_away};
use super::prepared::{NOT_ITS_NAME, names_ours, take_given};
use super::server::ServerConnection;
use super::statements::{self};
use super::{ExitReason, LONG_TEXT, Session, sequences};
use crate::session::pinning;
use crate::session_state::PinSource;
use crate::session_state::analysis::{self, CatalogLookup, Effect, EffectKind, TextAnalysis};
use crate::session_state::templates::TemplateContext;
use crate::upstream::vacating::Vacating;

impl Session<'_> {
    pub(super) fn query(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        message: &[u8],
        is_whole: bool,
    ) -> Result<Sending, ExitReason> {
        self.unit.is_sent = true;
        self.unnamed.id = 0;
        self.unnamed.open = None;
        // Behind requests without a Sync it is one of them: an error passes over it, too.
        let begins_anew = |server: &ServerConnection| server.conversation.is_between_batches();
        self.segment += u64::from(self.server.as_deref().is_none_or(begins_anew));
        let text = is_whole.then(|| text_of_query(message));
        if let Some(words) = self.obey(|session| session.ruling(text)) {
            self.effects.read_ahead = None;
            return Ok(self.refuse_query(flight, &words, message.len()));
        }
        if !is_whole {
            self.forget_draws(flight);
            self.unit.may_write = true;
            self.pin_for(Pin::Unknown, LONG_TEXT);
            self.asked.runs(0);
            return Ok(self.send(flight, Request::Query, RequestToken(0), message.len()));
        }
        let analysis = match self.effects.read_ahead.take() {
            Some(analysis) => analysis,
            None => self.read_query(text_of_query(message)),
        };
        if names_ours(&analysis) {
            return Ok(self.refuse_query(flight, NOT_ITS_NAME, message.len()));
        }
        if let Some(sending) = self.deallocate(flight, &analysis, message.len()) {
            return Ok(sending);
        }
        if self.guard_sequences(flight, &analysis) {
            return Ok(self.refuse_query(flight, sequences::REFUSAL, message.len()));
        }
        self.asked
            .runs_text(analysis.digest, analysis.statements.len());
        self.runs(analysis.digest);
        self.prepare_for_execute(flight, &analysis);
        let token = self.meant(&analysis);
        Ok(self.send(flight, Request::Query, token, message.len()))
    }

    /// What a text means takes hold as it is sent.
    pub(super) fn meant(&mut self, analysis: &Arc<TextAnalysis>) -> RequestToken {
        self.unit.may_write |= analysis.writes;
        self.unit.is_atomic &= is_atomic(analysis);
        self.unit.may_commit |= may_commit(analysis);
        self.changes_catalog |= analysis.changes_catalog;
        self.changes_plans |= analysis.changes_plans();
        self.changes_functions |= analysis.changes_functions;
        self.hides_tables |= analysis.may_shadow_tables;
        self.used_nextval |= analysis.uses_nextval;
        self.vacates(analysis);
        self.take_rereads(analysis);
        if !analysis.effects.is_empty() {
            self.take_pins(analysis);
        }
        self.effects.note(analysis)
    }

    /// Others are to leave the database that it acts on.
    pub(super) fn vacates(&mut self, analysis: &TextAnalysis) {
        if let (Some(does), Some(at)) = (&analysis.vacating, &self.borrower.at) {
            self.vacating = Some(Vacating::begin(self.worker, at.server.id, does));
        }
    }

    /// What a plain CREATE makes is temporary where `pg_temp` comes first in a search path that is
    /// the transaction's alone, and of which a text need not tell.
    pub(super) fn take_rereads(&mut self, analysis: &TextAnalysis) {
        let before = self.has_unknown_search_path;
        self.rereads = self.rereads.max(analysis.parsing_change);
        self.has_unknown_search_path |= analysis.may_set_search_path;
        let may_be_temporary = match analysis.makes_tables() {
            true => self.has_unknown_search_path,
            // A block of code may; of what it sets itself its own code tells.
            false => analysis.changes_plans() && before,
        };
        if may_be_temporary {
            self.hides_tables = true;
            self.source.clone_from(&analysis.source);
            self.journal.takes(Pin::TemporaryTable);
            self.pins_changed();
        }
    }

    /// The card shows the pins of the journal.
    pub(super) fn pins_changed(&self) {
        let (service, source) = (self.permit.service(), self.source.as_deref());
        pinning::pin_by(service, &self.card, self.journal.pins, source);
    }

    /// Pins for something that is not a statement that was read, in words.
    pub(super) fn pin_for(&mut self, pin: Pin, words: &str) {
        self.source = Some(PinSource::unread(words));
        self.pin(pin);
    }

    pub(super) fn pin(&mut self, pin: Pin) {
        self.journal.pins.add(pin);
        self.pins_changed();
    }

    /// The name of a DEALLOCATE, if the client has prepared it by the protocol.
    pub(super) fn deallocated<'m>(&self, analysis: &'m TextAnalysis) -> Option<&'m [u8]> {
        let [effect] = analysis.effects.as_slice() else {
            return None;
        };
        let EffectKind::Deallocate(name) = &effect.kind else {
            return None;
        };
        let is_ours = analysis.statements.len() == 1 && self.names.taken(name).is_some();
        is_ours.then_some(&**name)
    }

    pub(super) fn execute_deallocate(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        name: &[u8],
        length: usize,
    ) -> Sending {
        let Some(server) = &mut self.server else {
            return Sending::Drop;
        };
        let token = RequestToken(self.effects.next());
        if take_given(&mut server.given, name) {
            self.names.remove((token.0, self.segment), name);
            return self.send(flight, Request::Execute, token, length);
        }
        let answer = LocalReply::Command("DEALLOCATE");
        if server.conversation.answer(answer, token) == Sending::Forward {
            self.names.remove((token.0, self.segment), name);
        }
        flight.drop(length);
        Sending::Drop
    }

    /// DEALLOCATE of a statement that the client has prepared by the protocol: its name is ours on
    /// the servers, so that we answer.
    pub(super) fn deallocate(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        analysis: &TextAnalysis,
        length: usize,
    ) -> Option<Sending> {
        let name = self.deallocated(analysis)?;
        let server = self.server.as_mut()?;
        let has_failed = server.conversation.status() == TransactionStatus::Failed;
        if !server.conversation.is_between_batches() || has_failed {
            return None;
        }
        let token = RequestToken(self.effects.next());
        self.names.remove((token.0, self.segment), name);
        if take_given(&mut server.given, name) {
            return None;
        }
        let answer = LocalReply::Query("DEALLOCATE");
        let sending = server.conversation.answer(answer, token);
        flight.drop(length);
        Some(sending)
    }

    /// EXECUTE of statements that the client has prepared by the protocol: they are given their own
    /// names on this server, which the client keeps from then on.
    pub(super) fn prepare_for_execute(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        analysis: &TextAnalysis,
    ) {
        if !self.server.as_deref().is_some_and(takes_parses) {
            return;
        }
        for effect in &analysis.effects {
            if let EffectKind::Execute(name) = &effect.kind {
                self.give_name(flight, name);
            }
        }
    }

    fn give_name(&mut self, flight: &mut StreamEditor<'_, '_>, name: &[u8]) {
        let Some(statement) = self.names.get(name).map(Arc::clone) else {
            return;
        };
        let given = self.effects.next();
        let Some(server) = &mut self.server else {
            return;
        };
        if server.has_given(name) {
            return;
        }
        server.given.push((name.into(), given));
        let (conversation, token) = (&mut server.conversation, RequestToken(given));
        if conversation.sent(Request::Parse, Origin::Ours, token) == Sending::Forward {
            let types = &statement.within.types;
            build::parse(flight.writer(), name, &statement.text, types);
            if conversation.sent(Request::Sync, Origin::Ours, token) == Sending::Forward {
                build::sync(flight.writer());
            }
        }
        self.journal.prepares(&statement.meaning.effects);
        // Though a DEALLOCATE ALL before it is about to be committed.
        self.journal.bind(Pin::Prepared);
        self.pins_changed();
    }

    /// Whether it runs what can be given its name only once all that was sent is answered.
    pub(super) fn runs_by_name(&self, request: Request, message: &[u8]) -> bool {
        let Some(server) = self.server.as_deref().filter(|_| self.names.has_any()) else {
            return false;
        };
        let text = match request {
            Request::Query => text_of_query(message),
            // In the midst of a batch there is no waiting: its Sync may be behind it.
            Request::Parse if server.conversation.is_between_batches() => {
                let parts = parse_parts(message);
                let text = parts.and_then(|parts| message.get(parts.text));
                text.unwrap_or_default()
            }
            _ => return false,
        };
        let is_word = |word: &[u8]| word.eq_ignore_ascii_case(b"execute");
        if !text.windows(b"execute".len()).any(is_word) {
            return false;
        }
        let analysis = self.read_query(text);
        analysis.effects.iter().any(|effect| match &effect.kind {
            EffectKind::Execute(name) => self.names.get(name).is_some() && !server.has_given(name),
            _ => false,
        })
    }

    pub(super) fn take_pins(&mut self, analysis: &TextAnalysis) {
        self.discards_statements |= self.is_to_be_awaited(analysis);
        self.journal.sent(analysis);
        self.source.clone_from(&analysis.source);
        self.pins_changed();
    }

    /// Whether what comes behind it must not be sent before its end.
    pub(super) fn is_to_be_awaited(&self, analysis: &TextAnalysis) -> bool {
        let journal = &self.journal;
        let takes_away =
            |one: &Effect| takes_statements_away(one) || journal.is_to_restore(&one.kind);
        analysis.effects.iter().any(takes_away)
    }

    /// What a text means; of a session whose encoding hides it, nothing can be told.
    pub(super) fn read(&self, text: &[u8]) -> TextAnalysis {
        self.read_as(text, self.dialect())
    }

    fn read_as(&self, text: &[u8], dialect: Option<Dialect>) -> TextAnalysis {
        let Some(Dialect::Postgres { backslashes }) = dialect else {
            return TextAnalysis::unreadable();
        };
        let catalog = self.account.catalog();
        let lookup = catalog
            .as_deref()
            .map(|catalog| catalog as &dyn CatalogLookup);
        analysis::read_in_doubt(text, backslashes, lookup, self.doubts_functions())
    }

    /// Whether it has changed functions since the catalog was read, or does so now.
    fn doubts_functions(&self) -> bool {
        let changed_us = self.changed_functions_us;
        self.changes_functions || changed_us > 0 && !self.account.knows_catalog_until(changed_us)
    }

    /// By what texts are read: the state of the catalog, and whether it is doubted.
    fn catalog_version(&self) -> u64 {
        2 * self.account.catalog_version() + u64::from(self.doubts_functions())
    }

    /// What a text means that is run, and counted under its digest.
    pub(super) fn read_query(&self, text: &[u8]) -> Arc<TextAnalysis> {
        let Some(dialect) = self.dialect() else {
            return Arc::new(self.read(text));
        };
        let within = TemplateContext {
            dialect,
            catalog: self.catalog_version(),
        };
        let mut templates = self.account.known.templates.borrow_mut();
        let is_fixed = |analysis: &Arc<TextAnalysis>| analysis.is_fixed();
        let analysis = templates.meaning(text, within, is_fixed, || {
            Arc::new(self.read_prepared(text, Some(dialect)))
        });
        self.shared.enter(analysis.digest, text, Some(dialect));
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
        (within.own == 0).then(|| self.interned(text, &within).id)
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

    /// What a Parse prepares, which is counted if it fails or is run.
    pub(super) fn prepares(&mut self, text: &[u8], types: &[u8]) -> Arc<statements::Statement> {
        let statement = self.intern(text, types);
        let digest = statement.meaning.digest;
        self.shared.enter(digest, text, statement.within.dialect());
        self.asked.parses(digest);
        statement
    }

    /// The statement with what is known of the catalog now.
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

/// Whether Parses of ours can be sent, and their end be told from all else.
fn takes_parses(server: &ServerConnection) -> bool {
    let conversation = &server.conversation;
    conversation.is_quiet() && conversation.status() != TransactionStatus::Failed
}
