//! Gives statements of the protocol the client's names on the server, where SQL refers to them:
//! EXECUTE, PREPARE of a name that is taken, DEALLOCATE among other statements.
//!
//! The session keeps the connection meanwhile. `deallocate.rs` handles a DEALLOCATE alone.

use std::sync::Arc;

use evenkeel_policy::pins::Pin;
use evenkeel_sql::session_state::analysis::{Effect, EffectKind, TextAnalysis};
use evenkeel_wire::postgres::conversation::{Origin, Request, RequestToken, Sending};
use evenkeel_wire::postgres::frontend::Target;
use evenkeel_wire::postgres::names::parse_parts;
use evenkeel_wire::postgres::{TransactionStatus, build};
use evenkeel_wire::stream_editor::StreamEditor;

use super::active_request::text_of_query;
use super::server::ServerConnection;
use super::statements::Statement;
use super::tokens::NAMED_FOR_QUERY;
use super::{ExitReason, Session};

/// Words of which a text that needs a name contains one.
const WORDS: [&[u8]; 3] = [b"execute", b"prepare", b"deallocate"];

/// Request for which a statement gets its name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NamedFor {
    /// The batch whose next message refers to it. An error is the client's: the message that
    /// follows would fail too.
    Batch,
    /// A query outside of a batch. An error is not forwarded: the query fails by itself.
    Query,
    /// A query within a batch, which an error skips, although the client expects its end.
    QueryInBatch,
}

impl Session<'_> {
    /// Names the statements to which a message of a batch refers.
    pub(super) fn name_for_batch(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        analysis: &TextAnalysis,
    ) {
        self.give_names(flight, analysis, NamedFor::Batch);
    }

    /// Names the statements to which a query refers.
    pub(super) fn name_for_query(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        analysis: &TextAnalysis,
    ) {
        let is_quiet = |server: &ServerConnection| server.conversation.is_quiet();
        let reason = match self.core.server.as_deref().is_some_and(is_quiet) {
            true => NamedFor::Query,
            false => NamedFor::QueryInBatch,
        };
        self.give_names(flight, analysis, reason);
    }

    fn give_names(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        analysis: &TextAnalysis,
        reason: NamedFor,
    ) {
        if reason == NamedFor::Batch && analysis.statements.len() > 1 {
            // The server refuses to prepare it.
            return;
        }
        for effect in &analysis.effects {
            if let Some(statement) = self.lacks_name(analysis, effect)
                && let Some(name) = name_of(effect)
            {
                let statement = Arc::clone(statement);
                self.give_name(flight, name, &statement, reason);
            }
        }
    }

    /// Returns the statement of the protocol to which the effect refers by a name that it does not
    /// have on the server.
    fn lacks_name(&self, analysis: &TextAnalysis, effect: &Effect) -> Option<&Arc<Statement>> {
        let server = self.core.server.as_deref()?;
        let name = name_of(effect).filter(|name| !server.given.has(name))?;
        let is_alone = self.deallocated(analysis).is_some();
        self.statements.taken(name).filter(|_| !is_alone)
    }

    /// Returns whether the effect is that of a DEALLOCATE among other statements of its text, of a
    /// statement of the protocol.
    pub(super) fn is_deallocated_by_name(&self, analysis: &TextAnalysis, effect: &Effect) -> bool {
        let EffectKind::Deallocate(name) = &effect.kind else {
            return false;
        };
        analysis.statements.len() > 1 && self.statements.taken(name).is_some()
    }

    fn give_name(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        name: &[u8],
        statement: &Statement,
        reason: NamedFor,
    ) {
        let token = match (self.effects.next(), reason) {
            (token, NamedFor::QueryInBatch) => token | NAMED_FOR_QUERY,
            (token, _) => token,
        };
        let Some(server) = &mut self.core.server else {
            return;
        };
        let (conversation, by) = (&mut server.conversation, RequestToken(token));
        // In a failed transaction the server refuses the client's text in any case.
        if conversation.status() == TransactionStatus::Failed
            || conversation.sent(Request::Parse, Origin::Ours, by) == Sending::Drop
        {
            return;
        }
        let types = &statement.within.types;
        build::parse(flight.writer(), name, &statement.text, types);
        if reason == NamedFor::Query
            && conversation.sent(Request::Sync, Origin::Ours, by) == Sending::Forward
        {
            build::sync(flight.writer());
        }
        server.given.give(name, token);
        // Messages after such a query would be skipped with it.
        self.effects
            .discard_statements(reason == NamedFor::QueryInBatch);
        self.state.record_prepared(&statement.meaning.effects);
        // Also if a DEALLOCATE ALL before it is about to be committed.
        self.state.pin(Pin::Prepared);
        self.pins_changed();
    }

    /// Returns whether the text refers to a statement that can be given its name only after all
    /// replies to earlier requests.
    pub(super) fn runs_by_name(&self, request: Request, message: &[u8]) -> bool {
        let Some(server) = self
            .core
            .server
            .as_deref()
            .filter(|_| self.statements.has_any())
        else {
            return false;
        };
        let text = match request {
            Request::Query => text_of_query(message),
            // Within a batch waiting is impossible: its Sync may come after this message.
            Request::Parse if server.conversation.is_between_batches() => {
                let parts = parse_parts(message);
                let text = parts.and_then(|parts| message.get(parts.text));
                text.unwrap_or_default()
            }
            _ => return false,
        };
        let has = |word: &&[u8]| {
            let mut all = text.windows(word.len());
            all.any(|part| part.eq_ignore_ascii_case(word))
        };
        if !WORDS.iter().any(has) {
            return false;
        }
        let analysis = self.read_query(text);
        let mut effects = analysis.effects.iter();
        effects.any(|effect| self.lacks_name(&analysis, effect).is_some())
    }

    /// Returns whether a statement of SQL may have the name that a Parse defines: only the server
    /// knows.
    pub(super) fn may_be_of_sql(&self, name: &[u8]) -> bool {
        let has_given = |server: &ServerConnection| server.given.has(name);
        let may_have = self.state.pins.has(Pin::Prepared) || self.effects.may_prepare();
        may_have && !self.core.server.as_deref().is_some_and(has_given)
    }

    /// Sends a Parse under the client's name, which the server refuses if SQL has it, and frees the
    /// name again.
    pub(super) fn parse_under_own_name(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        name: &[u8],
        statement: Arc<Statement>,
        length: usize,
    ) -> Sending {
        let token = RequestToken(self.effects.next());
        let (text, types) = (&statement.text, &statement.within.types);
        let sending = self.replace(flight, (Request::Parse, token), length, |out| {
            build::parse(out, name, text, types);
        });
        let Some(server) = self
            .core
            .server
            .as_mut()
            .filter(|_| sending == Sending::Forward)
        else {
            return sending;
        };
        self.statements
            .set((token.0, self.segment), name, statement);
        let close = RequestToken(0);
        if server
            .conversation
            .sent(Request::Close, Origin::Ours, close)
            == Sending::Forward
        {
            build::close(flight.writer(), Target::Statement(name));
        }
        sending
    }

    /// Ends the batch in which a query was skipped because its statement could not be named.
    pub(super) fn end_skipped_query(&mut self) -> Result<(), ExitReason> {
        let mut out = self.core.worker.take_spare();
        if let Some(server) = &mut self.core.server {
            let (request, token) = (Request::Sync, RequestToken(0));
            if server.conversation.sent(request, Origin::Client, token) == Sending::Forward {
                build::sync(&mut out);
            }
        }
        self.send_to_server(out)
    }
}

/// Returns the name by which SQL refers to a prepared statement.
fn name_of(effect: &Effect) -> Option<&[u8]> {
    match &effect.kind {
        EffectKind::Prepare(name) | EffectKind::Execute(name) | EffectKind::Deallocate(name) => {
            Some(name)
        }
        _ => None,
    }
}
