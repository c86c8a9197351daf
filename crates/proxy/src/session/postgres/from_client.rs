//! From the client to the server that it has: names of statements are ours there, what its texts
//! leave behind is noted, all else goes as it came.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use evenkeel_policy::pins::{Pin, Release};
use evenkeel_policy::route::{Kind, Statement, Traits};
use evenkeel_wire::postgres::conversation::{Answer, Due, Origin, Request, Sending, Token};
use evenkeel_wire::postgres::flight::{Flight, Outcome};
use evenkeel_wire::postgres::frame::Header;
use evenkeel_wire::postgres::frontend::Target;
use evenkeel_wire::postgres::names::{Name, names, parse_parts};
use evenkeel_wire::postgres::requests::Step;
use evenkeel_wire::postgres::{Parsed, TransactionStatus, build};

use super::card::Doing;
use evenkeel_wire::sql::facts::Discard;

use super::complaint::Complaint;
use super::server::ServerConnection;
use super::statements::{self, NAME_PREFIX, name_of, new_id};
use super::unit::{Look, text_of_query};
use super::{End, KEPT_LENGTH_MAX, Session, Stage};
use crate::socket::Chunk;
use crate::state::meaning::{self, Does, Effect, Lookup, Meaning};

/// Requests that may be on their way to a server: the client can be far ahead of it.
const OWED_MAX: usize = 10_000;

/// Bytes of a client.
pub(super) enum Input<'a> {
    /// As they were received.
    Chunk(Chunk<'a>),
    /// In memory of our own.
    Held(Vec<u8>),
}

impl Input<'_> {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Input::Chunk(chunk) => chunk.bytes(),
            Input::Held(bytes) => bytes,
        }
    }
}

/// The statement without a name, as the client knows it.
#[derive(Default)]
pub(super) struct Unnamed {
    pub(super) id: u64,
    text: Vec<u8>,
    types: Vec<u8>,
    pub(super) meaning: Option<Meaning>,
    /// The server has taken its Parse.
    pub(super) is_parsed: bool,
    /// In which batch a Parse of it is under way.
    pub(super) open: Option<u64>,
}

/// What requests that are under way will leave behind.
#[derive(Default)]
pub(super) struct Effects {
    /// The meaning of the Query that comes next, if it was read to decide where it runs.
    pub(super) read_ahead: Option<Meaning>,
    pending: VecDeque<(u64, Meaning)>,
    last: u64,
}

impl Effects {
    /// Notes what a request leaves behind; its token.
    fn note(&mut self, meaning: &Meaning) -> Token {
        if meaning.effects.is_empty() {
            return Token(0);
        }
        let token = self.next();
        self.pending.push_back((token, meaning.clone()));
        Token(token)
    }

    /// A token for something whose outcome matters.
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// What the request of a token meant, of whose statements one has ended well.
    pub(super) fn completed(&mut self, token: Token) -> Option<&Meaning> {
        if token.0 == 0 || token.0 & (PARSE | UNNAMED) != 0 {
            return None;
        }
        while self.pending.front().is_some_and(|(of, _)| *of < token.0) {
            self.pending.pop_front();
        }
        let (of, meaning) = self.pending.front()?;
        (*of == token.0).then_some(meaning)
    }

    /// Nothing is under way any more.
    pub(super) fn settled(&mut self) {
        self.pending.clear();
    }
}

/// Marks tokens of Parses that name a statement; the others' are not asked for.
const PARSE: u64 = 1 << 62;
/// Marks tokens of Parses of unnamed statements.
const UNNAMED: u64 = 1 << 63;
/// An unnamed statement that was too long to be kept: it is where it was parsed, or nowhere.
const UNREAD: u64 = u64::MAX;

/// The unnamed statement that a token stands for.
pub(super) fn unnamed_of(token: Token) -> Option<u64> {
    (token.0 & UNNAMED != 0).then_some(token.0 & !UNNAMED)
}

/// The statement that a token stands for.
pub(super) fn statement_of(token: Token) -> Option<u64> {
    (token.0 & PARSE != 0 && token.0 & UNNAMED == 0).then_some(token.0 & !PARSE)
}

impl Session<'_> {
    /// Bytes of a client that has no server connection.
    pub(super) fn begin(&mut self, input: Input<'_>) -> Result<(), End> {
        let mut at = 0;
        loop {
            let rest = input.bytes().get(at..).unwrap_or_default();
            if rest.is_empty() {
                return self.used_up(input);
            }
            match self.look(rest)? {
                Look::Local(length) => at += length,
                Look::Leave => return Err(End::ClientLeft),
                Look::More => {
                    self.hold(&input.bytes()[at..]);
                    return Ok(());
                }
                Look::Unit(wanted, view) => {
                    let is_there = self.obtain(wanted, &view)?;
                    if is_there && at == 0 {
                        return self.forward(input);
                    }
                    self.hold(&input.bytes()[at..]);
                    drop(input);
                    return if is_there { self.go_on() } else { Ok(()) };
                }
            }
        }
    }

    fn used_up(&mut self, input: Input<'_>) -> Result<(), End> {
        if let Input::Held(bytes) = input {
            self.worker.keep_spare(bytes);
        }
        Ok(())
    }

    /// Bytes of a client that has one.
    pub(super) fn forward(&mut self, input: Input<'_>) -> Result<(), End> {
        if matches!(self.card.doing(), Doing::InTransaction | Doing::Bound) {
            self.begins_work();
        }
        let mut out = self.worker.spare();
        let (is_whole, taken) = {
            let bytes = input.bytes();
            let mut flight = Flight::new(bytes, &mut out);
            self.messages(&mut flight)?;
            let taken = flight.at();
            self.keep_for_rescue(&bytes[..taken]);
            let is_whole = match flight.finish() {
                Outcome::Whole(whole) => {
                    if whole.len() < bytes.len() {
                        out.extend_from_slice(&bytes[..taken]);
                    }
                    taken == bytes.len()
                }
                Outcome::Edited => false,
            };
            (is_whole, taken)
        };
        if taken < input.bytes().len() {
            self.hold(&input.bytes()[taken..]);
        }
        self.give_answers();
        if is_whole && out.is_empty() {
            self.worker.keep_spare(out);
            self.send_input(input)?;
            self.look_for_the_end();
            return Ok(());
        }
        drop(input);
        if taken == 0 && out.is_empty() {
            // The beginning of a message, or more than may be sent now: something else goes on.
            self.worker.keep_spare(out);
            return Ok(());
        }
        self.send_to_server(out)
    }

    fn send_input(&mut self, input: Input<'_>) -> Result<(), End> {
        let worker = self.worker;
        let Some(server) = &mut self.server else {
            return Ok(());
        };
        self.unit.reached_server = true;
        let sent = match input {
            Input::Chunk(chunk) => server.stream.send_chunk(worker, chunk),
            Input::Held(bytes) => server.stream.send_own(worker, bytes),
        };
        match sent {
            Ok(()) => Ok(()),
            Err(error) => self.server_lost(&error.to_string()),
        }
    }

    fn send_to_server(&mut self, out: Vec<u8>) -> Result<(), End> {
        let worker = self.worker;
        let Some(server) = &mut self.server else {
            return Ok(());
        };
        if out.is_empty() {
            worker.keep_spare(out);
            // All of it was answered by us: nothing will come that could end the loan.
            return self.release_if_idle();
        }
        self.unit.reached_server = true;
        match server.stream.send_own(worker, out) {
            Ok(()) => {
                self.look_for_the_end();
                Ok(())
            }
            Err(error) => self.server_lost(&error.to_string()),
        }
    }

    /// What was sent last may be owed no reply: the rest of a COPY that has failed.
    fn look_for_the_end(&mut self) {
        let is_idle = |server: &ServerConnection| server.conversation.is_idle();
        self.releases |= self.server.as_deref().is_some_and(is_idle);
    }

    /// What is not answered yet can be run again elsewhere while it is known.
    fn keep_for_rescue(&mut self, bytes: &[u8]) {
        let unit = &mut self.unit;
        let fits = |kept: &Vec<u8>| kept.len() + bytes.len() <= KEPT_LENGTH_MAX;
        match &mut unit.kept {
            Some(kept) if !unit.reached_client && fits(kept) => kept.extend_from_slice(bytes),
            kept => *kept = None,
        }
    }

    /// Takes messages as long as the server takes more.
    fn messages(&mut self, flight: &mut Flight<'_, '_>) -> Result<(), End> {
        while self.takes_more() && !self.stalled {
            let mut walker = self.walker;
            let step = walker.next(flight.rest());
            let (passed, header, request, length, is_whole) = match step {
                Step::Message {
                    passed,
                    header,
                    request,
                    length,
                } => (passed, header, request, length, true),
                Step::Beginning {
                    passed,
                    header,
                    request,
                    length,
                } => (passed, header, request, length, false),
                Step::Wait { passed, .. } => {
                    self.walker = walker;
                    self.pass(flight, passed);
                    return Ok(());
                }
                Step::Invalid(fault) => return Err(End::Fatal(Complaint::protocol(fault))),
            };
            let message = flight.rest().get(passed..passed + length);
            let message = message.unwrap_or_default();
            if self.is_next_unit_of_replica() || self.is_undecided(header, request, message) {
                self.stalled = !self.is_next_unit_of_replica();
                // Up to the border before it.
                let _ = self.walker.next(&flight.rest()[..passed]);
                self.pass(flight, passed);
                return Ok(());
            }
            self.walker = walker;
            self.pass(flight, passed);
            if request == Request::Terminate {
                if flight.at() == 0 {
                    return Err(End::ClientLeft);
                }
                flight.drop(length);
                self.leaving = true;
                return Ok(());
            }
            if self.unit.is_sent {
                // Sent ahead of the answer: both cannot be run again as one.
                self.unit.kept = None;
            }
            let sending = self.message(flight, header, request, message, is_whole)?;
            // Up to here the message has decided of itself; what is left of it follows.
            self.passing = sending;
        }
        Ok(())
    }

    /// The rest of the last message of a replica's unit has gone; what comes behind waits.
    fn is_next_unit_of_replica(&self) -> bool {
        let is_replica = self.at.as_ref().is_some_and(|at| at.is_replica);
        is_replica && self.unit.is_sent
    }

    /// A replica gets one unit at a time: the next one may have to go elsewhere.
    pub(super) fn takes_more(&self) -> bool {
        let Some(server) = &self.server else {
            return false;
        };
        let is_ready = matches!(self.stage, Stage::Ready) && !self.is_paused();
        is_ready && server.conversation.owed() < OWED_MAX
    }

    /// Whether what a name means is still being decided: in a batch before this one, of which an
    /// error may undo all that comes behind it.
    fn is_undecided(&self, header: Header, request: Request, message: &[u8]) -> bool {
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

    fn id_of(&self, parse: &[u8]) -> Option<u64> {
        let parts = parse_parts(parse)?;
        let text = parse.get(parts.text)?;
        Some(self.intern(text, parse.get(parts.types)?).id)
    }

    /// The rest of a message goes where its beginning went.
    fn pass(&self, flight: &mut Flight<'_, '_>, length: usize) {
        match self.passing {
            Sending::Forward => flight.keep(length),
            Sending::Drop => flight.drop(length),
        }
    }

    fn message(
        &mut self,
        flight: &mut Flight<'_, '_>,
        header: Header,
        request: Request,
        message: &[u8],
        is_whole: bool,
    ) -> Result<Sending, End> {
        match request {
            Request::Query => self.query(flight, message, is_whole),
            Request::Parse => self.parse(flight, header, message, is_whole),
            Request::Bind | Request::DescribeStatement | Request::Close => {
                self.named(flight, header, request, message)
            }
            Request::Execute => Ok(self.execute(flight, message.len())),
            Request::Sync => {
                self.unit.is_sent = true;
                self.segment += 1;
                Ok(self.send(flight, request, Token(0), message.len()))
            }
            Request::FunctionCall => {
                // Nobody looks up what it calls.
                self.pin(Pin::Unknown);
                self.unit.is_sent = true;
                self.unit.may_write = true;
                Ok(self.send(flight, request, Token(0), message.len()))
            }
            _ => Ok(self.send(flight, request, Token(0), message.len())),
        }
    }

    /// Sends a message as it is.
    fn send(
        &mut self,
        flight: &mut Flight<'_, '_>,
        request: Request,
        token: Token,
        length: usize,
    ) -> Sending {
        let Some(server) = &mut self.server else {
            return Sending::Drop;
        };
        let sending = server.conversation.sent(request, Origin::Client, token);
        match sending {
            Sending::Forward => flight.keep(length),
            Sending::Drop => flight.drop(length),
        }
        if request == Request::Query {
            server.unnamed = 0;
        }
        if sending == Sending::Forward && ends_a_unit(request) {
            self.in_flight += 1;
            // What is prepared behind it must not be taken for what it takes away.
            self.stalled |= std::mem::take(&mut self.clears);
        }
        sending
    }

    fn query(
        &mut self,
        flight: &mut Flight<'_, '_>,
        message: &[u8],
        is_whole: bool,
    ) -> Result<Sending, End> {
        self.unit.is_sent = true;
        self.unnamed.id = 0;
        self.unnamed.open = None;
        // Behind requests without a Sync it is one of them: an error passes over it, too.
        let begins_anew = |server: &ServerConnection| server.conversation.is_between_batches();
        self.segment += u64::from(self.server.as_deref().is_none_or(begins_anew));
        if !is_whole {
            self.unit.may_write = true;
            self.pin(Pin::Unknown);
            return Ok(self.send(flight, Request::Query, Token(0), message.len()));
        }
        let meaning = match self.effects.read_ahead.take() {
            Some(meaning) => meaning,
            None => self.read(text_of_query(message)),
        };
        if let Some(sending) = self.deallocate(flight, &meaning, message.len()) {
            return Ok(sending);
        }
        self.guard_sequences(flight, &meaning);
        self.prepare_for_execute(flight, &meaning);
        let token = self.meant(&meaning);
        Ok(self.send(flight, Request::Query, token, message.len()))
    }

    /// What a text means takes hold as it is sent.
    fn meant(&mut self, meaning: &Meaning) -> Token {
        self.unit.may_write |= meaning.writes;
        self.unit.is_atomic &= is_atomic(meaning);
        self.changes_catalog |= meaning.changes_catalog;
        if !meaning.effects.is_empty() {
            self.take_pins(meaning);
        }
        self.effects.note(meaning)
    }

    pub(super) fn pin(&mut self, pin: Pin) {
        self.journal.pins.add(pin);
        self.card.set_pins(self.journal.pins);
    }

    fn execute(&mut self, flight: &mut Flight<'_, '_>, length: usize) -> Sending {
        let token = match &self.bound.meaning {
            Some(meaning) => match self.deallocated(meaning).map(Box::from) {
                Some(name) => return self.execute_deallocate(flight, &name, length),
                None => self.effects.note(meaning),
            },
            None => Token(0),
        };
        self.send(flight, Request::Execute, token, length)
    }

    /// The name of a DEALLOCATE, if the client has prepared it by the protocol.
    fn deallocated<'m>(&self, meaning: &'m Meaning) -> Option<&'m [u8]> {
        let [effect] = meaning.effects.as_slice() else {
            return None;
        };
        let Does::Deallocate(name) = &effect.does else {
            return None;
        };
        let is_ours = meaning.statements.len() == 1 && self.names.get(name).is_some();
        is_ours.then_some(&**name)
    }

    fn execute_deallocate(
        &mut self,
        flight: &mut Flight<'_, '_>,
        name: &[u8],
        length: usize,
    ) -> Sending {
        let Some(server) = &mut self.server else {
            return Sending::Drop;
        };
        let token = Token(self.effects.next());
        if take_given(&mut server.given, name) {
            self.names.remove((token.0, self.segment), name);
            return self.send(flight, Request::Execute, token, length);
        }
        let answer = Answer::Command("DEALLOCATE");
        if server.conversation.answer(answer, token) == Sending::Forward {
            self.names.remove((token.0, self.segment), name);
        }
        flight.drop(length);
        Sending::Drop
    }

    /// DEALLOCATE of a statement that the client has prepared by the protocol: its name is ours on
    /// the servers, so that we answer.
    fn deallocate(
        &mut self,
        flight: &mut Flight<'_, '_>,
        meaning: &Meaning,
        length: usize,
    ) -> Option<Sending> {
        let name = self.deallocated(meaning)?;
        let server = self.server.as_mut()?;
        let has_failed = server.conversation.status() == TransactionStatus::Failed;
        if !server.conversation.is_between_batches() || has_failed {
            return None;
        }
        self.names.remove((0, self.segment), name);
        if take_given(&mut server.given, name) {
            return None;
        }
        let sending = server
            .conversation
            .answer(Answer::Query("DEALLOCATE"), Token(0));
        flight.drop(length);
        Some(sending)
    }

    /// EXECUTE of a statement that the client has prepared by the protocol: it is given its own name
    /// on this server, which the client keeps from then on.
    fn prepare_for_execute(&mut self, flight: &mut Flight<'_, '_>, meaning: &Meaning) {
        for effect in &meaning.effects {
            let Does::Execute(name) = &effect.does else {
                continue;
            };
            let Some(statement) = self.names.get(name).map(Arc::clone) else {
                continue;
            };
            let Some(server) = &mut self.server else {
                return;
            };
            if !server.conversation.is_quiet() || server.given.contains(name) {
                continue;
            }
            server.given.push(name.clone());
            let token = Token(0);
            let sent = server
                .conversation
                .sent(Request::Parse, Origin::Ours, token);
            if sent == Sending::Forward {
                build::parse(flight.writer(), name, &statement.text, &statement.types);
                let sync = server.conversation.sent(Request::Sync, Origin::Ours, token);
                if sync == Sending::Forward {
                    build::sync(flight.writer());
                }
            }
            self.pin(Pin::Prepared);
        }
    }

    fn parse(
        &mut self,
        flight: &mut Flight<'_, '_>,
        header: Header,
        message: &[u8],
        is_whole: bool,
    ) -> Result<Sending, End> {
        let parts = parse_parts(message).filter(|_| is_whole);
        let Some(parts) = parts else {
            if is_whole {
                let what = "a malformed message 'P'";
                return Err(End::Fatal(Complaint::protocol(what)));
            }
            // Too long to be read: it is prepared here under its own name, and stays here.
            self.unit.may_write = true;
            self.pin(Pin::Unknown);
            if message.get(5) == Some(&0) {
                self.unnamed.id = UNREAD;
                self.unnamed.meaning = None;
                if let Some(server) = &mut self.server {
                    server.unnamed = UNREAD;
                }
            }
            return Ok(self.send(flight, Request::Parse, Token(0), message.len()));
        };
        let text = message.get(parts.text.clone()).unwrap_or_default();
        let types = message.get(parts.types.clone()).unwrap_or_default();
        if !parts.statement.is_named() {
            return Ok(self.parse_unnamed(flight, text, types, message.len()));
        }
        let statement = self.intern(text, types);
        self.guard_sequences(flight, &statement.meaning);
        let name = parts.statement.of(message);
        if let Some(known) = self.names.get(name).map(Arc::clone) {
            return Ok(self.parse_taken(flight, header, parts.statement, &known, message.len()));
        }
        let id = statement.id;
        let Some(server) = &mut self.server else {
            return Ok(Sending::Drop);
        };
        if server.prepared.has(id) {
            let sending = server
                .conversation
                .answer(Answer::ParseComplete, Token(PARSE | id));
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
        let token = Token(PARSE | id);
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

    /// A Parse of a name that the client has already: the server refuses it, as it would without us.
    fn parse_taken(
        &mut self,
        flight: &mut Flight<'_, '_>,
        header: Header,
        name: Name,
        known: &Arc<statements::Statement>,
        length: usize,
    ) -> Sending {
        self.replay(flight, known);
        let Some(server) = &mut self.server else {
            return Sending::Drop;
        };
        let sending = server
            .conversation
            .sent(Request::Parse, Origin::Client, Token(0));
        match sending {
            Sending::Forward => {
                flight.rename(header, name, &known.name());
                flight.keep(length - name.end);
            }
            Sending::Drop => flight.drop(length),
        }
        sending
    }

    fn parse_unnamed(
        &mut self,
        flight: &mut Flight<'_, '_>,
        text: &[u8],
        types: &[u8],
        length: usize,
    ) -> Sending {
        let meaning = self.read(text);
        self.guard_sequences(flight, &meaning);
        self.unit.may_write |= meaning.writes;
        let id = new_id();
        let unnamed = &mut self.unnamed;
        unnamed.id = id;
        unnamed.text.clear();
        unnamed.text.extend_from_slice(text);
        unnamed.types.clear();
        unnamed.types.extend_from_slice(types);
        unnamed.meaning = Some(meaning);
        unnamed.is_parsed = false;
        let sending = self.send(flight, Request::Parse, Token(UNNAMED | id), length);
        if sending == Sending::Forward
            && let Some(server) = &mut self.server
        {
            server.unnamed = id;
            self.unnamed.open = Some(self.segment);
        }
        sending
    }

    /// Makes room for one more prepared statement on the server, or for a new plan of an old one.
    fn close_oldest(&mut self, flight: &mut Flight<'_, '_>, id: u64) {
        let view = self.seat.service().view();
        let max = view.postgres.as_ref().map_or(1, |own| own.statements_max);
        let Some(server) = &mut self.server else {
            return;
        };
        let gone = server.prepared.add(id, max, self.segment);
        for gone in gone.into_iter().flatten() {
            let token = Token(PARSE | gone);
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
    fn named(
        &mut self,
        flight: &mut Flight<'_, '_>,
        header: Header,
        request: Request,
        message: &[u8],
    ) -> Result<Sending, End> {
        let Parsed::Frame(found, _) = names(header, message) else {
            let what = "a message whose names are malformed";
            return Err(End::Fatal(Complaint::protocol(what)));
        };
        let Some(name) = found.statement else {
            return Ok(self.send(flight, request, Token(0), message.len()));
        };
        if !name.is_named() {
            if request != Request::Close {
                self.guard_unnamed(flight, request);
                self.replay_unnamed(flight);
                self.bind_unnamed(request);
            }
            return Ok(self.send(flight, request, Token(0), message.len()));
        }
        let known = self.names.get(name.of(message)).map(Arc::clone);
        let Some(statement) = known else {
            return Ok(self.named_unknown(flight, header, request, message));
        };
        if request == Request::Close {
            return Ok(self.close(flight, name.of(message), message.len()));
        }
        let statement = self.current(&statement);
        if !self.replay(flight, &statement) {
            flight.drop(message.len());
            return Ok(Sending::Drop);
        }
        if request == Request::Bind {
            self.guard_sequences(flight, &statement.meaning);
            self.bind(&statement);
        }
        let Some(server) = &mut self.server else {
            return Ok(Sending::Drop);
        };
        let sending = server.conversation.sent(request, Origin::Client, Token(0));
        match sending {
            Sending::Forward => {
                flight.rename(header, name, &statement.name());
                flight.keep(message.len() - name.end);
            }
            Sending::Drop => flight.drop(message.len()),
        }
        Ok(sending)
    }

    /// A name that we do not know: PREPARE in SQL has made it, or nobody, which the server will say.
    /// One that looks like ours must not reach a statement of somebody else.
    fn named_unknown(
        &mut self,
        flight: &mut Flight<'_, '_>,
        header: Header,
        request: Request,
        message: &[u8],
    ) -> Sending {
        self.bound.unknown();
        self.unit.may_write = true;
        let Parsed::Frame(found, _) = names(header, message) else {
            return Sending::Drop;
        };
        let Some(name) = found.statement else {
            return Sending::Drop;
        };
        if !name.of(message).starts_with(NAME_PREFIX) {
            return self.send(flight, request, Token(0), message.len());
        }
        let Some(server) = &mut self.server else {
            return Sending::Drop;
        };
        let sending = server.conversation.sent(request, Origin::Client, Token(0));
        match sending {
            Sending::Forward => {
                let other = [b"client's ", name.of(message)].concat();
                flight.rename(header, name, &other);
                flight.keep(message.len() - name.end);
            }
            Sending::Drop => flight.drop(message.len()),
        }
        sending
    }

    /// The client closes its name; the statement stays for others.
    fn close(&mut self, flight: &mut Flight<'_, '_>, name: &[u8], length: usize) -> Sending {
        let name: Box<[u8]> = name.into();
        let Some(server) = &mut self.server else {
            return Sending::Drop;
        };
        let token = Token(self.effects.next());
        if take_given(&mut server.given, &name) {
            self.names.remove((token.0, self.segment), &name);
            return self.send(flight, Request::Close, token, length);
        }
        let sending = server.conversation.answer(Answer::CloseComplete, token);
        if sending == Sending::Forward {
            self.names.remove((token.0, self.segment), &name);
        }
        flight.drop(length);
        Sending::Drop
    }

    /// Sees to it that the server has a statement. False: nothing would come of it.
    fn replay(
        &mut self,
        flight: &mut Flight<'_, '_>,
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
        let token = Token(PARSE | statement.id);
        let sending = server
            .conversation
            .sent(Request::Parse, Origin::Ours, token);
        match sending {
            Sending::Forward => {
                let name = statement.name();
                build::parse(flight.writer(), &name, &statement.text, &statement.types);
                true
            }
            Sending::Drop => {
                server.prepared.not_sent(statement.id);
                // It stands behind an error: whatever refers to it is passed over, too.
                true
            }
        }
    }

    /// A Bind of the unnamed statement that was parsed on another connection.
    fn replay_unnamed(&mut self, flight: &mut Flight<'_, '_>) {
        let Some(server) = &mut self.server else {
            return;
        };
        if self.unnamed.id == 0 {
            // What the server may have is another client's.
            let close = server
                .conversation
                .sent(Request::Close, Origin::Ours, Token(0));
            if close == Sending::Forward {
                server.unnamed = 0;
                build::close(flight.writer(), Target::Statement(b""));
            }
            return;
        }
        if server.unnamed == self.unnamed.id {
            return;
        }
        let token = Token(UNNAMED | self.unnamed.id);
        let sending = server
            .conversation
            .sent(Request::Parse, Origin::Ours, token);
        if sending == Sending::Forward {
            server.unnamed = self.unnamed.id;
            self.unnamed.open = Some(self.segment);
            build::parse(
                flight.writer(),
                b"",
                &self.unnamed.text,
                &self.unnamed.types,
            );
        }
    }

    fn guard_unnamed(&mut self, flight: &mut Flight<'_, '_>, request: Request) {
        if request == Request::Bind
            && let Some(meaning) = self.unnamed.meaning.take()
        {
            self.guard_sequences(flight, &meaning);
            self.unnamed.meaning = Some(meaning);
        }
    }

    /// The next Execute runs this statement, as far as can be told.
    fn bind(&mut self, statement: &statements::Statement) {
        self.unit.may_write |= statement.meaning.writes;
        self.unit.is_atomic &= is_atomic(&statement.meaning);
        self.bound.is(&statement.meaning);
        self.take_hold();
    }

    fn bind_unnamed(&mut self, request: Request) {
        if request != Request::Bind {
            return;
        }
        match &self.unnamed.meaning {
            // The server will say that there is none.
            _ if self.unnamed.id == 0 => self.bound.nothing(),
            Some(meaning) => {
                self.unit.may_write |= meaning.writes;
                self.unit.is_atomic &= is_atomic(meaning);
                self.bound.is(meaning);
            }
            None => self.bound.unknown(),
        }
        self.take_hold();
    }

    /// Pins hold from the Bind on: what runs later is not looked up by its portal.
    fn take_hold(&mut self) {
        if let Some(meaning) = &self.bound.meaning {
            self.changes_catalog |= meaning.changes_catalog;
            let meaning = meaning.clone();
            self.take_pins(&meaning);
        }
    }

    fn take_pins(&mut self, meaning: &Meaning) {
        let had = self.journal.pins.has(Pin::Sequence);
        self.clears |= meaning.effects.iter().any(takes_statements_away);
        self.journal.sent(meaning);
        if !had && self.journal.pins.has(Pin::Sequence) {
            self.drew = true;
            if !self.shared.asks_sequences() {
                self.journal.pins.release(Release::DiscardSequences);
            }
        }
        self.card.set_pins(self.journal.pins);
    }

    /// currval and lastval must never answer with another session's value. Where nobody has asked
    /// for them yet, drawing from a sequence has bound nobody to its connection: this one has what
    /// others drew, unless it was drawn here just now.
    fn guard_sequences(&mut self, flight: &mut Flight<'_, '_>, meaning: &Meaning) {
        let asks = |one: &Statement| one.traits.any(Traits::REMEMBERS);
        if !meaning.statements.iter().any(asks) {
            return;
        }
        self.shared.asked_sequences();
        let is_own = self.drew || self.journal.pins.has(Pin::Sequence);
        let Some(server) = self.server.as_mut().filter(|_| !is_own) else {
            return;
        };
        if server.conversation.is_quiet() {
            server.ask(b"DISCARD SEQUENCES", Token(0), flight.writer());
        }
    }

    /// Answers of ours whose turn it is.
    fn give_answers(&mut self) {
        let Some(mut server) = self.server.take() else {
            return;
        };
        // They go with the next reply if there is one to come, and never into one.
        if !server.conversation.owes_reply() && server.boundaries.is_at_border() {
            let mut out = std::mem::take(&mut self.answers);
            while let Some(due) = server.conversation.due() {
                match due {
                    Due::Answer(answer, _) => {
                        // What we answer else belongs to what came before, and stays true.
                        self.unit.reached_client = true;
                        answer.write(&mut out, server.conversation.status());
                    }
                    due => self.passed_over(due, &mut server),
                }
            }
            self.answers = out;
            if server.conversation.is_quiet() {
                self.names.settled();
                server.prepared.settled();
            }
        }
        self.server = Some(server);
    }

    /// What a text means; of a session whose encoding hides it, nothing can be told.
    pub(super) fn read(&self, text: &[u8]) -> Meaning {
        let reported = &self.journal.reported;
        if !reported.is_readable() {
            return Meaning::unreadable();
        }
        let backslashes = reported.backslashes();
        let catalog = self.account.catalog();
        let lookup = catalog.as_deref().map(|catalog| catalog as &dyn Lookup);
        meaning::read(text, backslashes, lookup)
    }

    fn intern(&self, text: &[u8], types: &[u8]) -> Arc<statements::Statement> {
        let digest = self.digest();
        let catalog = self.account.catalog_version();
        self.shared
            .statements
            .statement(text, types, digest, catalog, || self.read(text))
    }

    /// The statement with what is known of the catalog now.
    pub(super) fn current(
        &self,
        statement: &Arc<statements::Statement>,
    ) -> Arc<statements::Statement> {
        let catalog = self.account.catalog_version();
        if statement.catalog == catalog {
            return Arc::clone(statement);
        }
        self.shared
            .statements
            .renewed(statement, catalog, || self.read(&statement.text))
    }

    /// The settings that names in a text are looked up by.
    fn digest(&self) -> u64 {
        let settings = self.journal.settings();
        let mut hasher = DefaultHasher::new();
        self.account.who.database_number.hash(&mut hasher);
        settings.get(b"search_path").hash(&mut hasher);
        settings.get(b"role").hash(&mut hasher);
        hasher.finish()
    }

    pub(super) fn forget_name(&mut self, name: &[u8]) {
        self.names.remove((0, self.segment), name);
        self.names.settled();
    }
}

/// Whether the name was one that was given to a statement on the server; now it is not.
fn take_given(given: &mut Vec<Box<[u8]>>, name: &[u8]) -> bool {
    let index = given.iter().position(|one| **one == *name);
    index.map(|index| given.swap_remove(index)).is_some()
}

/// DEALLOCATE ALL and DISCARD ALL take the protocol's statements along.
pub(super) fn takes_statements_away(effect: &Effect) -> bool {
    matches!(
        effect.does,
        Does::DeallocateAll | Does::Discard(Discard::All)
    )
}

/// Whether a ReadyForQuery comes for it.
fn ends_a_unit(request: Request) -> bool {
    matches!(
        request,
        Request::Query | Request::Sync | Request::FunctionCall
    )
}

/// Whether it was run as a whole or not at all: it has no COMMIT of its own.
fn is_atomic(meaning: &Meaning) -> bool {
    let is_plain = |kind| !matches!(kind, Kind::Routine | Kind::Unknown | Kind::EndTransaction);
    matches!(meaning.statements.as_slice(), [one] if is_plain(one.kind))
}

/// What the last Bind bound, if it leaves anything behind; an Execute of another portal is taken for
/// the same.
#[derive(Default)]
pub(super) struct Bound {
    meaning: Option<Meaning>,
}

impl Bound {
    fn is(&mut self, meaning: &Meaning) {
        let matters = !meaning.effects.is_empty() || meaning.changes_catalog;
        self.meaning = matters.then(|| meaning.clone());
    }

    fn nothing(&mut self) {
        self.meaning = None;
    }

    fn unknown(&mut self) {
        self.is(&Meaning::unreadable());
    }
}
