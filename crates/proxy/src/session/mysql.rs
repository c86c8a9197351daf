//! `protocol = "mysql"`: log the client in, then lend it a server connection for each transaction.
//!
//! A client of MySQL waits for each reply, so a session does one command at a time: [`Stage`] says
//! where that is. What the client sends meanwhile waits.

mod acquire;
mod active_request;
pub(crate) mod cancel;
mod catch_up;
mod command_end;
mod commands;
pub(crate) mod error_reply;
mod execution_history;
mod from_client;
mod from_server;
pub(crate) mod id;
mod login;
mod pending_input;
mod poll;
mod prepared;
mod query_text;
mod retry;
mod ruled;
pub(crate) mod server;
pub(crate) mod server_greetings;
pub(crate) mod server_login;
pub(crate) mod shared;
pub(crate) mod statements;
mod teardown;
mod tracked;
pub(crate) mod user_state;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use evenkeel_policy::causality;
use evenkeel_wire::mysql::flags::{Capabilities, Status};
use evenkeel_wire::mysql::rewrite::Transcoder;

use self::active_request::ActiveRequest;
use self::error_reply::ErrorReply;
use self::from_client::RemainingPayload;
use self::login::{ClientHandshake, InitialState, LoginHandler, SessionParts};
use self::pending_input::PendingInput;
use self::server::ServerConnection;
use self::shared::PostgresService;
use self::statements::ClientStatements;
use self::user_state::Account;
use crate::engine::live_session::LiveSession;
use crate::engine::worker::Worker;
use crate::numbers::Place;
use crate::record::{Record, TerminationReason};
use crate::relay::ByteDirection;
use crate::service::ClientPermit;
use crate::service::database::DatabaseService;
use crate::service::rules::Ruling;
use crate::service::stats::ServiceStats;
use crate::session::acquirer::Acquirer;
use crate::session::cancel::{KillOutcome, generation};
use crate::session::handle::{SessionActivity, SessionHandle};
use crate::session::proxy_protocol;
use crate::session_state::mysql::{InitialSettings, SessionState};
use crate::socket::Socket;
use crate::stream::Stream;

/// A text longer than this is not read but passed on, and binds its session.
const TEXT_LENGTH_MAX: usize = 1024 * 1024;

/// What a client may send ahead.
const HELD_LENGTH_MAX: usize = 64 * 1024;

/// A command of up to so many bytes is kept until its answer begins, so that it can run elsewhere;
/// of a longer one that is no text only the beginning is looked at.
const KEPT_LENGTH_MAX: usize = 16 * 1024;

/// Why a session is over.
enum ExitReason {
    /// The client said so, or left.
    ClientLeft,
    /// The client's connection broke.
    ClientBroke(String),
    /// The server's connection broke in the middle of a reply: nothing can be said behind that.
    ServerBroke(String),
    /// It is told this as the answer to its command, and that was it.
    Fatal(ErrorReply),
    /// The same unasked.
    Unasked(ErrorReply),
    /// It wants to be somebody else (the payload of COM_CHANGE_USER).
    ChangesUser(Vec<u8>),
}

/// One client.
struct Session<'a> {
    worker: &'a Rc<Worker>,
    permit: &'a ClientPermit,
    live: &'a LiveSession,
    service: Arc<DatabaseService>,
    shared: Arc<PostgresService>,
    account: Rc<Account>,
    card: Rc<SessionHandle>,
    /// Taken only when the session is over.
    client: Option<Stream>,
    entrance: ClientHandshake,
    /// What it began with, and is again after COM_RESET_CONNECTION.
    begin: InitialState,
    stage: Stage<'a>,
    /// Bytes of the client that wait.
    pending_input: PendingInput,
    /// What is still to come of the command, or of the file, that is under way.
    rest: RemainingPayload,
    /// What the command is told whose rest is still to come.
    refusal: Option<ErrorReply>,
    /// What the next command is told instead of being run.
    lost: Option<ErrorReply>,
    /// Answers of ours that have not gone out.
    answers: Vec<u8>,
    /// The command that is under way.
    unit: ActiveRequest,
    /// What the rules say of it.
    ruling: Option<Ruling>,
    server: Option<Box<ServerConnection>>,
    borrower: Acquirer<'a, ServerConnection>,
    transcoder: Transcoder,
    numbers: ClientStatements,
    journal: SessionState,
    token: causality::CausalityToken,
    /// An error does not say whether its transaction is still open, or was committed.
    is_doubtful: bool,
    /// Until then its connection is kept for a question.
    holding: Option<Pin<Box<dyn Future<Output = ()>>>>,
    /// A replica could not be made fit for it then.
    unfit_since_ms: Option<u64>,
    /// It has changed the catalog while this was known of it.
    changed_catalog: Option<u64>,
    /// Its client may send several statements in one text.
    takes_several: bool,
}

/// Where a session is with its command.
enum Stage<'a> {
    /// Its client is to say what it wants.
    Command,
    /// It waits for a connection, or for a primary.
    Waiting,
    /// The server is told what must be in place before the command is sent.
    Preparing,
    /// The command is sent, as far as it is here, and the server answers it.
    Answer,
    /// The server reads a file of the client's.
    File,
    /// Whatever the server still says is nobody's; then this.
    DiscardReply(AfterDiscard),
    /// A session is being killed for it.
    Killing(Pin<Box<dyn Future<Output = KillOutcome> + 'a>>, u64),
    /// Both sides talk without replies (replication).
    Streaming,
}

/// What follows once the server has nothing more to say.
enum AfterDiscard {
    /// The command is run elsewhere.
    RunAgain,
    /// Its client is told this; the connection is not used again.
    Tell(ErrorReply),
    /// Its client is told that its session is as new; whether the connection is.
    Renewed { is_clean: bool },
    /// What it was asked about the session is known: by a question, or by its status alone.
    Answered { is_question: bool },
    /// Our trackers are on again, if all of what was asked succeeded.
    TookBack { is_whole: bool },
    /// The question failed, be it by a KILL QUERY of what ran before it: what binds stays.
    Unanswered,
}

/// One conversation; what is left to say is why it ended.
pub(super) async fn serve_session(
    worker: &Rc<Worker>,
    seat: &ClientPermit,
    live: &LiveSession,
    slot: usize,
    socket: Socket,
    record: &mut Record,
) -> TerminationReason {
    let (Some(service), Some(lending)) = (
        seat.service().database.clone(),
        worker.lending::<ServerConnection>(seat.service()),
    ) else {
        return TerminationReason::NoServer;
    };
    let Some(shared) = service.of_mysql().cloned() else {
        return TerminationReason::NoServer;
    };
    if let Err(ending) =
        proxy_protocol::read_client_address(live, seat.service(), &socket, record).await
    {
        return ending;
    }
    // No other client has it until this one is gone.
    let place = Place::new(worker.index, slot);
    let Some(number) = worker.shared.connection_numbers.draw(place) else {
        return TerminationReason::NoServer;
    };
    let door = LoginHandler {
        worker,
        seat,
        live,
        service,
        shared,
        lending,
        peer: record.client,
        id: id::of(&number, generation(worker)),
    };
    let admitting = Box::pin(door.clone().admit(Stream::plain(socket)));
    let mut session = match live.unless_cut(admitting).await {
        Ok(Ok(session)) => session,
        Ok(Err(ending)) => return ending,
        Err(interrupt) => return interrupt.ending(),
    };
    loop {
        live.take_card(&session.card);
        let polling = poll_fn(|context| session.poll(context));
        let outcome = live.unless_cut(polling).await;
        live.drop_card();
        let payload = match outcome {
            Ok(ExitReason::ChangesUser(payload)) => payload,
            Ok(end) => return session.end(end).await,
            Err(interrupt) => return session.end_cut(interrupt.ending()).await,
        };
        // Whoever it is then, what it wrote is to be seen.
        session.counts_writes(Status::default());
        let token = session.token.clone();
        let Some(changing) = session.leave_as_user(payload) else {
            return TerminationReason::ClientClosed;
        };
        let changing = Box::pin(door.clone().change_user(changing));
        session = match live.unless_cut(changing).await {
            Ok(Ok(session)) => session,
            Ok(Err(ending)) => return ending,
            Err(interrupt) => return interrupt.ending(),
        };
        session.token = token;
    }
}

/// What a session's settings begin with.
fn beginning(begin: &InitialState) -> InitialSettings<'_> {
    InitialSettings {
        collation: begin.collation,
        schema: begin.schema.as_deref(),
        mariadb: begin.version.mariadb,
        version: begin.version.number(),
    }
}

impl<'a> Session<'a> {
    /// Of a client that was let in.
    fn new(parts: SessionParts<'a>) -> Self {
        let agreed = parts.entrance.agreed;
        let begin = &parts.begin;
        let fresh = begin.fresh.pairs();
        let journal = SessionState::new(fresh, beginning(begin), parts.worker.interner());
        let borrower = Acquirer::new(
            parts.worker,
            &parts.service,
            parts.lending,
            &parts.account,
            &parts.card,
        );
        let mut session = Self {
            worker: parts.worker,
            permit: parts.seat,
            live: parts.live,
            service: parts.service,
            shared: parts.shared,
            account: parts.account,
            card: parts.card,
            client: Some(parts.client),
            entrance: parts.entrance,
            stage: Stage::Command,
            pending_input: PendingInput::default(),
            rest: RemainingPayload::default(),
            refusal: None,
            lost: None,
            answers: Vec::new(),
            unit: ActiveRequest::default(),
            ruling: None,
            server: None,
            borrower,
            transcoder: Transcoder::new(agreed, agreed),
            numbers: ClientStatements::default(),
            journal,
            token: causality::CausalityToken::new(),
            unfit_since_ms: None,
            changed_catalog: None,
            is_doubtful: false,
            holding: None,
            takes_several: agreed.has(Capabilities::MULTI_STATEMENTS),
            begin: parts.begin,
        };
        session.hold(&parts.ahead);
        session
    }

    /// Its client has not asked for anything.
    fn is_waiting_idle(&self) -> bool {
        matches!(self.stage, Stage::Command) && self.pending_input.is_empty() && self.rest.is_over()
    }

    fn hold(&mut self, bytes: &[u8]) {
        self.pending_input.push(bytes, || self.worker.spare());
    }

    /// So many bytes have come from the client.
    fn count_received(&self, length: usize) {
        let length = length as u64;
        let server = self.borrower.server();
        self.live
            .moved_at(self.worker, ByteDirection::FromClient, length, server);
        self.borrower.usage.from_clients.add(length);
    }

    fn client(&mut self) -> Result<&mut Stream, ExitReason> {
        self.client.as_mut().ok_or(ExitReason::ClientLeft)
    }

    /// Sends what we have to say ourselves.
    fn send_answers(&mut self) -> Result<(), ExitReason> {
        let worker = self.worker;
        let out = std::mem::take(&mut self.answers);
        let length = out.len() as u64;
        self.live
            .moved_at(worker, ByteDirection::ToClient, length, None);
        self.borrower.usage.to_clients.add(length);
        let sent = self.client()?.send_own(worker, out);
        sent.map_err(|error| ExitReason::ClientBroke(error.to_string()))
    }

    /// Where answers of ours go.
    fn answers(&mut self) -> &mut Vec<u8> {
        if self.answers.capacity() == 0 {
            self.answers = self.worker.spare();
        }
        &mut self.answers
    }

    fn figures(&self) -> &ServiceStats {
        &self.service.figures()[self.worker.index]
    }

    fn does(&self, doing: SessionActivity) {
        self.card.set_activity(doing, self.worker);
    }

    /// `mode = "session"`.
    fn keeps_connection(&self) -> bool {
        let view = self.permit.service().snapshot();
        view.database.as_ref().is_some_and(|own| own.session_mode)
    }
}
