//! Prepared statements on their way to the server: names are ours there, and a server that lacks a
//! statement gets it first.

use std::sync::Arc;

use evenkeel_wire::postgres::backend::{ErrorReport, SqlState};
use evenkeel_wire::postgres::conversation::{
    DueAction, LocalReply, Origin, Request, RequestToken, Sending,
};
use evenkeel_wire::postgres::frame::Header;
use evenkeel_wire::postgres::frontend::Target;
use evenkeel_wire::postgres::names::{Name, names, parse_parts};
use evenkeel_wire::postgres::server_scanner::Event;
use evenkeel_wire::postgres::{Parsed, build};
use evenkeel_wire::stream_editor::StreamEditor;

use super::error_reply::ErrorReply;
use super::pending_effects::{UnnamedStatement, takes_statements_away};
use super::server::ServerConnection;
use super::statements::ClientStatements;
use super::statements::{self, NAME_PREFIX, is_ours, name_of};
use super::{ExitReason, Session, sequences};
use crate::session_state::analysis::{EffectKind, TextAnalysis};

/// Marks tokens of Parses that name a statement; the others' are not asked for.
pub(super) const PARSE: u64 = 1 << 62;

/// Marks tokens of Parses of unnamed statements.
pub(super) const UNNAMED: u64 = 1 << 63;

/// An unnamed statement that was too long to be kept: it is where it was parsed, or nowhere.
pub(super) const UNREAD: u64 = u64::MAX;

/// What nobody prepares twice is called so.
const TAKEN: &[u8] = b"evenkeel has it";

/// The unnamed statement that a token stands for.
pub(super) fn unnamed_of(token: RequestToken) -> Option<u64> {
    (token.0 & UNNAMED != 0).then_some(token.0 & !UNNAMED)
}

/// The statement that a token stands for.
pub(super) fn statement_of(token: RequestToken) -> Option<u64> {
    (token.0 & PARSE != 0 && token.0 & UNNAMED == 0).then_some(token.0 & !PARSE)
}

/// Whether the name was one that was given to a statement on the server; now it is not.
pub(super) fn take_given(given: &mut Vec<(Box<[u8]>, u64)>, name: &[u8]) -> bool {
    let index = given.iter().position(|(one, _)| **one == *name);
    index.map(|index| given.swap_remove(index)).is_some()
}

/// What was prepared behind it waits, or is still to be answered.
pub(super) fn forget_statements(
    meaning: &TextAnalysis,
    statement: usize,
    server: &mut ServerConnection,
    names: &mut ClientStatements,
) {
    let effects = meaning.effects_of(statement);
    if effects.iter().any(takes_statements_away) {
        server.prepared.clear();
        server.given.clear();
        server.unnamed = 0;
        names.clear();
    }
}

/// Why a text is refused that would reach a statement of ours.
pub(super) const NOT_ITS_NAME: &str = "prepared statement names consisting of evenkeel and \
                                       a number are reserved for the connection pool";

/// Whether a text prepares, runs or takes away what is called as only we call statements.
pub(super) fn names_ours(meaning: &TextAnalysis) -> bool {
    meaning.effects.iter().any(|effect| match &effect.kind {
        EffectKind::Prepare(name) | EffectKind::Execute(name) | EffectKind::Deallocate(name) => {
            is_ours(name)
        }
        _ => false,
    })
}

/// A statement that the server had by our account is not there: a text that nobody could read has
/// taken it away.
pub(super) fn is_missing(sqlstate: SqlState, token: Option<RequestToken>) -> bool {
    sqlstate.0 == *b"26000" && token.and_then(statement_of).is_some()
}

/// "cached plan must not change result type": tables are other than when it was prepared.
pub(super) fn is_of_old_plan(sqlstate: SqlState, event: &Event<'_>) -> bool {
    let is_old = |report: &ErrorReport<'_>| report.field(b'R') == Some(b"RevalidateCachedQuery");
    sqlstate.0 == *b"0A000" && matches!(event, Event::Error(report) if is_old(report))
}

impl Session<'_> {
    /// Whether what a name means is still being decided: in a batch before this one, of which an
    /// error may undo all that comes behind it.
    pub(super) fn is_undecided(&self, header: Header, request: Request, message: &[u8]) -> bool {
        let Some(server) = &self.server else {
            return false;
        };
        let is_settled = self.names.is_settled() && server.prepared.is_settled();
        if is_settled && self.unnamed.open.is_none() || !server.conversation.owes_ready() {
            return false;
        }
        let is_of_statement = matches!(
            request,
            Request::Parse | Request::Bind | Request::DescribeStatement | Request::Close
        );
        let Parsed::Frame(found, _) = names(header, message) else {
            return false;
        };
        let Some(name) = found.statement.filter(|_| is_of_statement) else {
            return false;
        };
        if !name.is_named() {
            let binds = matches!(request, Request::Bind | Request::DescribeStatement);
            let is_before = |segment| segment != self.segment;
            return binds && self.unnamed.open.is_some_and(is_before);
        }
        let name = name.of(message);
        let is_open = |id| server.prepared.is_open(id, self.segment);
        let known = self.names.get(name).map(|statement| statement.id);
        self.names.is_open(name, self.segment)
            || known.is_some_and(is_open)
            || request == Request::Parse && self.id_of(message).is_some_and(is_open)
    }

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
        if !parts.statement.is_named() {
            return Ok(self.parse_unnamed(flight, text, types, message.len()));
        }
        let statement = self.prepares(text, types);
        if let Some(words) = self.obey_parse(|session| session.ruling_of(&statement)) {
            return Ok(self.refuse_parse(flight, &words, message.len()));
        }
        if let Some(words) = self.refuses_meaning(flight, &statement.meaning) {
            return Ok(self.refuse_parse(flight, words, message.len()));
        }
        let name = parts.statement.of(message);
        if self.names.taken(name).is_some() {
            return Ok(self.parse_taken(flight, header, parts.statement, message.len()));
        }
        if !self.names.has_room(name, &statement) {
            return Err(ExitReason::Fatal(ErrorReply::too_many_statements()));
        }
        self.prepare_for_execute(flight, &statement.meaning);
        let id = statement.id;
        let Some(server) = &mut self.server else {
            return Ok(Sending::Drop);
        };
        if server.prepared.has(id) {
            let sending = server
                .conversation
                .answer(LocalReply::ParseComplete, RequestToken(PARSE | id));
            if sending == Sending::Forward {
                self.names.set((PARSE | id, self.segment), name, statement);
            }
            flight.drop(message.len());
            return Ok(Sending::Drop);
        }
        self.close_oldest(flight, id);
        let Some(server) = &mut self.server else {
            return Ok(Sending::Drop);
        };
        let token = RequestToken(PARSE | id);
        let sending = server
            .conversation
            .sent(Request::Parse, Origin::Client, token);
        if sending == Sending::Drop {
            server.prepared.not_sent(id);
            flight.drop(message.len());
            return Ok(sending);
        }
        self.names.set((PARSE | id, self.segment), name, statement);
        flight.rename(header, parts.statement, &name_of(id));
        flight.keep(message.len() - parts.statement.end);
        Ok(sending)
    }

    /// With which words what a Parse prepares is refused, whatever the rules say.
    pub(super) fn refuses_meaning(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        meaning: &TextAnalysis,
    ) -> Option<&'static str> {
        if names_ours(meaning) {
            return Some(NOT_ITS_NAME);
        }
        let is_behind_others = self.guard_sequences(flight, meaning);
        is_behind_others.then_some(sequences::REFUSAL)
    }

    /// A Parse of a name that the client has already: the server refuses it, as without us. Under
    /// the name that others share it could be taken, where a statement was taken away unseen.
    fn parse_taken(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        header: Header,
        name: Name,
        length: usize,
    ) -> Sending {
        let Some(server) = &mut self.server else {
            return Sending::Drop;
        };
        // Made anew, so that ours is never what the server refuses: of the client's it may dislike
        // more than the name.
        let conversation = &mut server.conversation;
        if conversation.sent(Request::Close, Origin::Ours, RequestToken(0)) == Sending::Forward {
            build::close(flight.writer(), Target::Statement(TAKEN));
        }
        if conversation.sent(Request::Parse, Origin::Ours, RequestToken(0)) == Sending::Forward {
            build::parse(flight.writer(), TAKEN, b"", &[]);
        }
        let named = (header, name, length);
        self.send_renamed(flight, Request::Parse, RequestToken(0), named, TAKEN)
    }

    /// Makes room for one more prepared statement on the server, or for a new plan of an old one.
    pub(super) fn close_oldest(&mut self, flight: &mut StreamEditor<'_, '_>, id: u64) {
        let view = self.permit.service().snapshot();
        let max = view.database.as_ref().map_or(1, |own| own.statements_max);
        let Some(server) = &mut self.server else {
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

    /// Bind, Describe and Close, of a statement or a portal.
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
            return Ok(self.send(flight, request, RequestToken(0), message.len()));
        };
        if let Some(words) = self.refuses_bind(request, name.of(message)) {
            let named = (header, name, message.len());
            let words = words.as_bytes();
            return Ok(self.send_renamed(flight, request, RequestToken(0), named, words));
        }
        if !name.is_named() {
            if self.guard_unnamed(flight, request) {
                return Ok(self.refuse_asking(flight, header, name, message.len()));
            }
            if request == Request::Close {
                return Ok(self.close_unnamed(flight, message.len()));
            }
            self.replay_unnamed(flight);
            if request == Request::Bind {
                self.bind_unnamed(header, message);
            }
            return Ok(self.send(flight, request, RequestToken(0), message.len()));
        }
        let known = self.names.taken(name.of(message)).map(Arc::clone);
        let Some(statement) = known else {
            return Ok(self.named_unknown(flight, header, request, message));
        };
        if request == Request::Close {
            return Ok(self.close(flight, name.of(message), message.len()));
        }
        let statement = self.current(&statement);
        if request == Request::Bind && self.guard_sequences(flight, &statement.meaning) {
            return Ok(self.refuse_asking(flight, header, name, message.len()));
        }
        let statement = self.fit(name.of(message), statement);
        if !self.replay(flight, &statement) {
            flight.drop(message.len());
            return Ok(Sending::Drop);
        }
        if request == Request::Bind {
            self.bind(header, message, &statement);
        }
        let named = (header, name, message.len());
        let token = RequestToken(PARSE | statement.id);
        Ok(self.send_renamed(flight, request, token, named, &statement.name()))
    }

    /// No statement is called so: the server's own error tells the words.
    fn refuse_asking(
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

    /// Sends a message with another name in it.
    fn send_renamed(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        request: Request,
        token: RequestToken,
        (header, name, length): (Header, Name, usize),
        new: &[u8],
    ) -> Sending {
        let Some(server) = &mut self.server else {
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

    /// A name that we do not know: PREPARE in SQL has made it, or nobody: the server will say.
    /// One that looks like ours must not reach a statement of somebody else.
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
        self.unit.may_write = true;
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

    /// The client closes its name; the statement stays for others.
    pub(super) fn close(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        name: &[u8],
        length: usize,
    ) -> Sending {
        let name: Box<[u8]> = name.into();
        let Some(server) = &mut self.server else {
            return Sending::Drop;
        };
        let token = RequestToken(self.effects.next());
        if take_given(&mut server.given, &name) {
            self.names.remove((token.0, self.segment), &name);
            return self.send(flight, Request::Close, token, length);
        }
        let sending = server.conversation.answer(LocalReply::CloseComplete, token);
        if sending == Sending::Forward {
            self.names.remove((token.0, self.segment), &name);
        }
        flight.drop(length);
        Sending::Drop
    }

    /// Sees to it that the server has a statement. False: nothing would come of it.
    pub(super) fn replay(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        statement: &Arc<statements::Statement>,
    ) -> bool {
        let Some(server) = &mut self.server else {
            return false;
        };
        if server.prepared.has(statement.id) {
            return true;
        }
        self.close_oldest(flight, statement.id);
        let Some(server) = &mut self.server else {
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
                // It stands behind an error: whatever refers to it is passed over, too.
                true
            }
        }
    }

    /// An error has made a request undone.
    pub(super) fn passed_over(&mut self, due: DueAction, server: &mut ServerConnection) {
        match due {
            DueAction::ParseDiscarded(token) => {
                if let Some(id) = unnamed_of(token) {
                    if server.unnamed == id {
                        server.unnamed = 0;
                    }
                    if self.unnamed.id == id {
                        self.unnamed.lost();
                    }
                } else if let Some(id) = statement_of(token) {
                    server.prepared.undo(id);
                    let _ = self.names.discarded(token.0);
                }
            }
            DueAction::CloseDiscarded(token) if unnamed_of(token).is_some() => {
                self.unnamed.stays(token);
            }
            DueAction::CloseDiscarded(token) => match statement_of(token) {
                Some(id) => server.prepared.undo(id),
                // Of names only those are closed at servers that SQL was given.
                None => {
                    let name = self.names.discarded(token.0);
                    server.given.extend(name.map(|name| (name, token.0)));
                }
            },
            DueAction::AnswerDiscarded(_, token) => {
                let _ = self.names.discarded(token.0);
            }
            DueAction::Answer(..) => {}
        }
    }

    pub(super) fn forget_name(&mut self, name: &[u8]) {
        if name.is_empty() {
            self.unnamed = UnnamedStatement::default();
        }
        self.names.remove((0, self.segment), name);
        self.names.settled();
    }
}
