//! Forwards the protocol's messages about prepared statements: replaces the client's names by
//! Evenkeel's, and prepares statements that the server lacks.

use std::sync::Arc;

use evenkeel_wire::postgres::backend::{ErrorReport, SqlState};
use evenkeel_wire::postgres::conversation::{LocalReply, Origin, Request, RequestToken, Sending};
use evenkeel_wire::postgres::frame::Header;
use evenkeel_wire::postgres::frontend::Target;
use evenkeel_wire::postgres::names::{Name, names, parse_parts};
use evenkeel_wire::postgres::server_scanner::Event;
use evenkeel_wire::postgres::{Parsed, build};
use evenkeel_wire::stream_editor::StreamEditor;

use super::error_reply::ErrorReply;
use super::pending_effects::takes_statements_away;
use super::portals::portal_of;
use super::sequences::SequenceRead;
use super::server::ServerConnection;
use super::statements::ClientStatements;
use super::statements::{NAME_PREFIX, Statement, is_ours, name_of};
use super::tokens::{PARSE, statement_of};
use super::{ExitReason, Session, sequences};
use crate::error_catalog;
use crate::session::statement_interner::OF_CLIENT_MAX;
use evenkeel_sql::session_state::analysis::{EffectKind, TextAnalysis};

/// Name of a statement that is prepared a second time to provoke the server's error, or
/// deallocated in place of the client's.
pub(super) const TAKEN: &[u8] = b"evenkeel has it";

/// Applies the effect of a text that discards statements. Later Parses are held, or their replies
/// are outstanding.
pub(super) fn forget_statements(
    meaning: &TextAnalysis,
    (token, statement): (RequestToken, usize),
    server: &mut ServerConnection,
    statements: &mut ClientStatements,
) {
    let effects = meaning.effects_of(statement);
    if effects.iter().any(takes_statements_away) {
        server.prepared.clear();
        server.given.all_deallocated(token.0);
        server.unnamed = 0;
        statements.clear();
    }
    for effect in effects {
        if let EffectKind::Deallocate(name) = &effect.kind
            && server.given.deallocated(name)
        {
            statements.deallocated(name);
        }
    }
}

/// Message for a text that would refer to one of Evenkeel's statements.
pub(super) const NOT_ITS_NAME: &str = "prepared statement names consisting of evenkeel and \
                                       a number are reserved for the connection pool";

/// Returns whether a text prepares, executes or discards a statement with a name reserved for
/// Evenkeel.
pub(super) fn names_ours(meaning: &TextAnalysis) -> bool {
    meaning.effects.iter().any(|effect| match &effect.kind {
        EffectKind::Prepare(name) | EffectKind::Execute(name) | EffectKind::Deallocate(name) => {
            is_ours(name)
        }
        _ => false,
    })
}

/// Returns whether the error reports a missing statement that should exist: a text that was not
/// analyzed has discarded it.
pub(super) fn is_missing(sqlstate: SqlState, token: Option<RequestToken>) -> bool {
    sqlstate.0 == *b"26000" && token.and_then(statement_of).is_some()
}

/// Returns whether the error is "cached plan must not change result type": tables changed after the
/// statement was prepared.
pub(super) fn is_of_old_plan(sqlstate: SqlState, event: &Event<'_>) -> bool {
    let is_old = |report: &ErrorReport<'_>| report.field(b'R') == Some(b"RevalidateCachedQuery");
    sqlstate.0 == *b"0A000" && matches!(event, Event::Error(report) if is_old(report))
}

impl Session<'_> {
    pub(super) fn parse(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        header: Header,
        message: &[u8],
        is_whole: bool,
    ) -> Result<Sending, ExitReason> {
        let parts = parse_parts(message).filter(|_| is_whole);
        let Some(parts) = parts else {
            if is_whole {
                let what = "malformed message 'P'";
                return Err(ExitReason::Fatal(ErrorReply::protocol(what)));
            }
            return Ok(self.parse_unread(flight, message));
        };
        let text = message.get(parts.text.clone()).unwrap_or_default();
        let types = message.get(parts.types.clone()).unwrap_or_default();
        let replaced = self.prepared_text_of_processes(text);
        if !parts.statement.is_named() {
            return Ok(self.parse_unnamed(flight, (text, replaced), types, message.len()));
        }
        let text = replaced.as_deref().unwrap_or(text);
        let statement = self.prepares(text, types);
        if let Some(words) = self.apply_rules_to_parse(|session| session.rules_of(&statement)) {
            return Ok(self.refuse_parse(flight, &words, message.len()));
        }
        if let Some(words) = self.refuses_meaning(flight, &statement.meaning) {
            return Ok(self.refuse_parse(flight, words, message.len()));
        }
        let name = parts.statement.of(message);
        if self.statements.taken(name).is_some() {
            return Ok(self.parse_taken(flight, header, parts.statement, message.len()));
        }
        if !self.statements.has_room(name, &statement) {
            let entry = &error_catalog::STATEMENTS_OVER_LIMIT;
            let reply = ErrorReply::with(entry, &[&OF_CLIENT_MAX]);
            return Err(ExitReason::Fatal(reply));
        }
        self.name_for_batch(flight, &statement.meaning);
        if self.may_be_of_sql(name) {
            return Ok(self.parse_under_own_name(flight, name, statement, message.len()));
        }
        Ok(self.parse_shared(flight, name, statement, message.len()))
    }

    /// Sends a Parse under Evenkeel's name, unless the server has the statement.
    fn parse_shared(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        name: &[u8],
        statement: Arc<Statement>,
        length: usize,
    ) -> Sending {
        let id = statement.id;
        let by = (PARSE | id, self.segment);
        let Some(server) = &mut self.core.server else {
            return Sending::Drop;
        };
        if server.prepared.has(id) {
            let sending = server
                .conversation
                .add_local_reply(LocalReply::ParseComplete, RequestToken(PARSE | id));
            if sending == Sending::Forward {
                self.statements.set(by, name, statement);
            }
            flight.drop(length);
            return Sending::Drop;
        }
        self.close_oldest(flight, id);
        let Some(server) = &mut self.core.server else {
            return Sending::Drop;
        };
        let (token, conversation) = (RequestToken(PARSE | id), &mut server.conversation);
        let sending = conversation.sent(Request::Parse, Origin::Client, token);
        if sending == Sending::Drop {
            server.prepared.not_sent(id);
            flight.drop(length);
            return sending;
        }
        flight.drop(length);
        let types = &statement.within.types;
        build::parse(flight.writer(), &name_of(id), &statement.text, types);
        self.statements.set(by, name, statement);
        sending
    }

    /// Returns the message with which a Parse is refused independently of the rules.
    pub(super) fn refuses_meaning(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        meaning: &TextAnalysis,
    ) -> Option<&'static str> {
        if names_ours(meaning) {
            return Some(NOT_ITS_NAME);
        }
        let is_behind_others = self.guard_sequences(flight, meaning, SequenceRead::Other);
        is_behind_others.then_some(sequences::REFUSAL)
    }

    /// Sends a Parse of a name that the client already uses as a Parse of [`TAKEN`], so that the
    /// server rejects it. The shared name cannot be used: the server would accept it if the
    /// statement was discarded unnoticed.
    fn parse_taken(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        header: Header,
        name: Name,
        length: usize,
    ) -> Sending {
        self.prepare_own(flight, TAKEN, b"");
        let named = (header, name, length);
        // The server may reject more of it than the name.
        self.send_renamed(flight, Request::Parse, RequestToken(0), named, TAKEN)
    }

    /// Closes the statements that are over the server's limit, before a new one or a new plan is
    /// prepared.
    pub(super) fn close_oldest(&mut self, flight: &mut StreamEditor<'_, '_>, id: u64) {
        let max = self.core.statements_max();
        let Some(server) = &mut self.core.server else {
            return;
        };
        let gone = server.prepared.add(id, max, self.segment);
        for gone in gone.into_iter().flatten() {
            let token = RequestToken(PARSE | gone);
            let sending = server
                .conversation
                .sent(Request::Close, Origin::Ours, token);
            match sending {
                Sending::Forward => {
                    build::close(flight.writer(), Target::Statement(&name_of(gone)));
                }
                Sending::Drop => server.prepared.not_sent(gone),
            }
        }
    }

    /// Handles Bind, Describe and Close of a statement or a portal.
    pub(super) fn named(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        header: Header,
        request: Request,
        message: &[u8],
    ) -> Result<Sending, ExitReason> {
        let Parsed::Frame(found, _) = names(header, message) else {
            let what = "malformed name in message";
            return Err(ExitReason::Fatal(ErrorReply::protocol(what)));
        };
        let Some(name) = found.statement else {
            if request == Request::Close {
                self.portals.close(portal_of(header, message));
            }
            return Ok(self.send(flight, request, RequestToken(0), message.len()));
        };
        if let Some(words) = self.refuses_bind(request, name.of(message)) {
            let named = (header, name, message.len());
            let words = words.as_bytes();
            return Ok(self.send_renamed(flight, request, RequestToken(0), named, words));
        }
        if !name.is_named() {
            return Ok(self.use_unnamed(flight, (header, name), request, message));
        }
        let known = self.statements.taken(name.of(message)).map(Arc::clone);
        let Some(statement) = known else {
            return Ok(self.named_unknown(flight, header, request, message));
        };
        if request == Request::Close {
            return Ok(self.close(flight, name.of(message), message.len()));
        }
        let statement = self.current(&statement);
        let read = SequenceRead::Other;
        if request == Request::Bind && self.guard_sequences(flight, &statement.meaning, read) {
            return Ok(self.refuse_asking(flight, header, name, message.len()));
        }
        let statement = self.fit(name.of(message), statement);
        if !self.replay(flight, &statement) {
            flight.drop(message.len());
            return Ok(Sending::Drop);
        }
        self.name_for_batch(flight, &statement.meaning);
        if request == Request::Bind {
            self.bind(header, message, &statement);
            let named = (header, name);
            let sending = self.bind_deallocate(flight, &statement.meaning, named, message);
            if let Some(sending) = sending {
                return Ok(sending);
            }
        }
        let named = (header, name, message.len());
        let token = RequestToken(PARSE | statement.id);
        Ok(self.send_renamed(flight, request, token, named, &statement.name()))
    }

    /// Sends a Bind with the message as its statement name. No such statement exists, so the
    /// server's error contains the message.
    pub(super) fn refuse_asking(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        header: Header,
        name: Name,
        length: usize,
    ) -> Sending {
        let named = (header, name, length);
        let words = sequences::REFUSAL.as_bytes();
        self.send_renamed(flight, Request::Bind, RequestToken(0), named, words)
    }

    /// Sends a message with another name.
    pub(super) fn send_renamed(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        request: Request,
        token: RequestToken,
        (header, name, length): (Header, Name, usize),
        new: &[u8],
    ) -> Sending {
        let Some(server) = &mut self.core.server else {
            return Sending::Drop;
        };
        let sending = server.conversation.sent(request, Origin::Client, token);
        match sending {
            Sending::Forward => {
                flight.rename(header, name, new);
                flight.keep(length - name.end);
            }
            Sending::Drop => flight.drop(length),
        }
        sending
    }

    /// Handles a name that is unknown here: SQL's PREPARE has created it, or the server reports an
    /// error. A name that looks like Evenkeel's is changed, so that it cannot refer to another
    /// session's statement.
    pub(super) fn named_unknown(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        header: Header,
        request: Request,
        message: &[u8],
    ) -> Sending {
        if request == Request::Bind {
            self.bind_unknown(header, message);
        }
        self.active.writes();
        let Parsed::Frame(found, _) = names(header, message) else {
            return Sending::Drop;
        };
        let Some(name) = found.statement else {
            return Sending::Drop;
        };
        if !name.of(message).starts_with(NAME_PREFIX) {
            return self.send(flight, request, RequestToken(0), message.len());
        }
        let other = [b"client's ", name.of(message)].concat();
        let named = (header, name, message.len());
        self.send_renamed(flight, request, RequestToken(0), named, &other)
    }

    /// Closes the client's name; the statement remains for other sessions.
    pub(super) fn close(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        name: &[u8],
        length: usize,
    ) -> Sending {
        let name: Box<[u8]> = name.into();
        let Some(server) = &mut self.core.server else {
            return Sending::Drop;
        };
        let token = RequestToken(self.effects.next());
        if server.given.close(&name, token.0) {
            self.statements.remove((token.0, self.segment), &name);
            return self.send(flight, Request::Close, token, length);
        }
        let sending = server
            .conversation
            .add_local_reply(LocalReply::CloseComplete, token);
        if sending == Sending::Forward {
            self.statements.remove((token.0, self.segment), &name);
        }
        flight.drop(length);
        Sending::Drop
    }

    /// Prepares a statement on the server if it lacks it. Returns false if there is no server.
    pub(super) fn replay(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        statement: &Arc<Statement>,
    ) -> bool {
        let Some(server) = &mut self.core.server else {
            return false;
        };
        if server.prepared.has(statement.id) {
            return true;
        }
        self.close_oldest(flight, statement.id);
        let Some(server) = &mut self.core.server else {
            return false;
        };
        let token = RequestToken(PARSE | statement.id);
        let sending = server
            .conversation
            .sent(Request::Parse, Origin::Ours, token);
        match sending {
            Sending::Forward => {
                let name = statement.name();
                let types = &statement.within.types;
                build::parse(flight.writer(), &name, &statement.text, types);
                true
            }
            Sending::Drop => {
                server.prepared.not_sent(statement.id);
                // It follows an error, so messages that refer to it are skipped, too.
                true
            }
        }
    }

    pub(super) fn forget_name(&mut self, name: &[u8]) {
        if name.is_empty() {
            self.unnamed.drop_now();
        }
        self.statements.remove((0, self.segment), name);
        self.statements.settled();
    }
}
