//! `protocol = "postgres"`: log the client in, then lend it a server connection for each
//! transaction.

mod acquire;
mod active_request;
mod batch_tail;
pub(super) mod cancel;
mod error_reply;
mod from_client;
mod from_server;
mod held;
mod leftover_check;
mod login;
mod pending_effects;
mod pending_requests;
mod portals;
mod prepare_context;
mod prepared;
mod query_text;
mod release;
mod replication;
mod retry;
mod ruled;
mod sequences;
pub(crate) mod server;
mod server_login;
pub(crate) mod shared;
mod statements;
mod teardown;
mod unnamed;
mod user_state;
mod write_tracking;

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use evenkeel_policy::causality;
use evenkeel_wire::postgres::client_scanner::ClientScanner;
use evenkeel_wire::postgres::conversation::Sending;
use rustc_hash::FxHashMap;

use self::active_request::ActiveRequest;
use self::error_reply::ErrorReply;
use self::leftover_check::Trial;
use self::pending_effects::{PendingEffects, UnnamedStatement};
use self::pending_requests::PendingRequests;
use self::portals::Portals;
use self::server::ServerConnection;
use self::shared::PostgresService;
use self::statements::ClientStatements;
use self::user_state::Account;
use crate::engine::live_session::LiveSession;
use crate::engine::worker::Worker;
use crate::record::{Record, TerminationReason};
use crate::relay::ByteDirection;
use crate::service::ClientPermit;
use crate::service::database::DatabaseService;
use crate::service::rules::Ruling;
use crate::service::stats::ServiceStats;
use crate::session::STEPS_MAX;
use crate::session::acquirer::Acquirer;
use crate::session::handle::{SessionActivity, SessionHandle};
use crate::session::input::Input;
use crate::session::proxy_protocol;
use crate::session_state::PinSource;
use crate::session_state::analysis::ParsingChange;
use crate::session_state::settings::leftover_query::Rows;
use crate::session_state::settings::{SessionState, SettingSet};
use crate::socket::{Chunk, Socket};
use crate::stream::Stream;
use crate::upstream::vacating::Vacating;

/// A Query or Parse longer than this is not read but passed on, and binds its session.
const TEXT_LENGTH_MAX: usize = 1024 * 1024;

/// Such a text, for people.
const LONG_TEXT: &str = "a text of more than 1 MiB";

/// What a waiting client may send ahead.
const HELD_LENGTH_MAX: usize = 64 * 1024;

/// A unit of up to so many bytes is kept until its answer begins, so that it can run elsewhere.
const KEPT_LENGTH_MAX: usize = 16 * 1024;

/// Requests that may be on their way to a server while its answers wait for a slow client.
const PIPELINED_MAX: usize = 1_000;

/// Why a session is over.
enum ExitReason {
    /// The client said so, or left.
    ClientLeft,
    /// The client's connection broke.
    ClientBroke(String),
    /// The server's connection broke in the middle of a message: nothing can be said behind that.
    ServerBroke(String),
    /// It is told this, and that was it.
    Fatal(ErrorReply),
    /// Its server's last word was passed on to it: that was it.
    ServerEnded(String),
}

/// One client.
struct Session<'a> {
    worker: &'a Rc<Worker>,
    permit: &'a ClientPermit,
    live: &'a LiveSession,
    shared: Arc<DatabaseService>,
    protocol: Arc<PostgresService>,
    account: Rc<Account>,
    client: Stream,
    walker: ClientScanner,
    /// What became of the message whose rest is still to come.
    passing: Sending,
    /// Bytes of the client that wait.
    pending_input: Vec<u8>,
    /// They can go on now.
    can_continue: bool,
    /// They wait for answers to what was sent before them.
    is_waiting_for_replies: bool,
    /// A unit that is being sent, or is under way, takes prepared statements away, or settings that
    /// the client began with: what comes behind it waits for its end.
    discards_statements: bool,
    /// The connection is to go back when its last send has gone.
    release_after_send: bool,
    /// The client has said goodbye behind what it still wants to know.
    is_terminating: bool,
    /// Units sent to the server whose ReadyForQuery has not come.
    asked: PendingRequests,
    /// Our SETs put back what was reset: they are not there to begin with a connection.
    restoring: bool,
    /// How many queries and batches the client has sent; what follows an error begins a new one.
    segment: u64,
    /// Answers of ours that have not gone out.
    answers: Vec<u8>,
    server: Option<Box<ServerConnection>>,
    borrower: Acquirer<'a, ServerConnection>,
    stage: Stage,
    names: ClientStatements,
    unnamed: UnnamedStatement,
    portals: Portals,
    journal: SessionState,
    effects: PendingEffects,
    /// What it reset is to be as the client began with.
    must_restore_startup: bool,
    /// What the open transaction may have changed about how texts are read.
    rereads: ParsingChange,
    /// The transaction's search path may hold `pg_temp`: it was set by what its text does not tell.
    has_unknown_search_path: bool,
    /// Statements that were run on the connection that it has.
    trial: Trial,
    /// The statement that pins if anything does now.
    source: Option<Arc<PinSource>>,
    /// It drew from a sequence on the connection that it has, for all that is known.
    used_nextval: bool,
    /// What others drew may be remembered on that connection.
    inherits_sequence_state: bool,
    token: causality::CausalityToken,
    /// It changes the catalog in what it runs now.
    changes_catalog: bool,
    /// When it did so last: until the catalog was read again, what is known of it is old. Zero:
    /// never.
    changed_catalog_us: u64,
    /// It changes tables or types, which others' prepared statements may be of.
    changes_plans: bool,
    /// It changes functions, which may leave behind what the catalog does not tell.
    changes_functions: bool,
    /// When it did so last, as above.
    changed_functions_us: u64,
    /// It makes something temporary in what is under way, which may hide what others see.
    hides_tables: bool,
    /// It drops, renames or copies a database in what is under way.
    vacating: Option<Vacating>,
    /// What runs now.
    unit: ActiveRequest,
    /// What the rules say of its prepared statements, by their numbers.
    rulings: FxHashMap<u64, Ruling>,
    /// Why the unit that was held is not run.
    refusal: Option<ErrorReply>,
    /// It was cancelled since our SETs began.
    was_cancelled: bool,
    /// What a server said about a setting of ours.
    refused_setting: ([u8; 5], String),
    card: Rc<SessionHandle>,
}

/// What a session waits for.
enum Stage {
    /// The client: no connection is lent, or one that takes more.
    Ready,
    /// A connection, or a primary.
    Waiting,
    /// Our own SETs, which make these settings; `None`: within a transaction, whose end decides.
    Preparing(Option<SettingSet>),
    /// The rows that report what is left on its connection.
    Asking(Rows),
    /// The end of what failed, to run it elsewhere.
    Rescue,
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
    let service = seat.service();
    let (Some(shared), Some(lending)) = (service.database.clone(), worker.lending(service)) else {
        return TerminationReason::NoServer;
    };
    let Some(own) = shared.of_postgres().cloned() else {
        return TerminationReason::NoServer;
    };
    if let Err(ending) = proxy_protocol::read_client_address(live, service, &socket, record).await {
        return ending;
    }
    let door = login::LoginHandler {
        worker,
        seat,
        live,
        shared,
        own,
        lending,
        peer: record.client,
        slot,
    };
    let mut session = match Box::pin(live.unless_cut(door.admit(Stream::plain(socket)))).await {
        Ok(Ok(session)) => session,
        Ok(Err(ending)) => return ending,
        Err(interrupt) => return interrupt.ending(),
    };
    live.take_card(&session.card);
    session.check_primary();
    let outcome = live
        .unless_cut(poll_fn(|context| session.poll(context)))
        .await;
    live.drop_card();
    let (ending, last_word) = match outcome {
        Ok(ExitReason::ClientLeft) => (TerminationReason::ClientClosed, None),
        Ok(ExitReason::ClientBroke(why)) => (TerminationReason::ResetByClient(why), None),
        Ok(ExitReason::ServerEnded(why)) => (TerminationReason::Rejected(why), None),
        Ok(ExitReason::ServerBroke(why)) => (TerminationReason::ResetByServer(why), None),
        Ok(ExitReason::Fatal(complaint)) => {
            let why = complaint.message.clone();
            (TerminationReason::Rejected(why), Some(complaint))
        }
        Err(interrupt) => {
            let ending = interrupt.ending();
            let complaint = ErrorReply::of_ending(&ending);
            (ending, Some(complaint))
        }
    };
    if let Some(complaint) = last_word {
        Box::pin(session.send_final_error(&complaint)).await;
    }
    ending
}

impl Session<'_> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<ExitReason> {
        for _ in 0..STEPS_MAX {
            match self.step(context) {
                Ok(true) => {}
                Ok(false) => return Poll::Pending,
                Err(end) => return Poll::Ready(end),
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// One thing that can be done now. False: nothing can.
    fn step(&mut self, context: &mut Context<'_>) -> Result<bool, ExitReason> {
        let service = self.permit.service();
        if let Some(got) = self.borrower.poll_connection(context, service) {
            self.follow(got)?;
            return Ok(true);
        }
        if self.card.take_notification(context) {
            self.handle_notification()?;
            return Ok(true);
        }
        if let Some(got) = self.borrower.poll_primary(context) {
            self.follow(got)?;
            return Ok(true);
        }
        let is_client_ready = match self.client.poll_sent(context) {
            Poll::Ready(Ok(())) => true,
            Poll::Ready(Err(error)) => return Err(ExitReason::ClientBroke(error.to_string())),
            Poll::Pending => false,
        };
        if is_client_ready && !self.answers.is_empty() {
            self.send_answers()?;
            return Ok(true);
        }
        if is_client_ready && self.step_server(context)? {
            return Ok(true);
        }
        if self.release_after_send && self.is_server_sent(context) {
            self.release_after_send = false;
            self.release_if_idle()?;
            return Ok(true);
        }
        let may_send = self.server.is_some() || is_client_ready;
        if self.can_continue && may_send && self.is_server_sent(context) {
            self.can_continue = false;
            self.go_on()?;
            return Ok(true);
        }
        if self.is_terminating && !self.is_told_more() {
            return Err(ExitReason::ClientLeft);
        }
        self.step_client(context, is_client_ready)
    }

    /// Whether a reply is still to come to a client that says nothing any more: not where the
    /// server waits for a Sync, or for data to copy, or streams on and on.
    fn is_told_more(&self) -> bool {
        let Some(server) = &self.server else {
            return false;
        };
        let conversation = &server.conversation;
        let waits = conversation.is_copying_in() || conversation.is_streaming();
        conversation.owes_ready() && !waits
    }

    /// Whether the server has all that was sent to it. One that has failed never has: the next
    /// receive finds that, and what it said before.
    fn is_server_sent(&mut self, context: &mut Context<'_>) -> bool {
        let server = self.server.as_mut();
        server.is_none_or(|server| {
            let sent = server.lent.stream.poll_sent(context);
            matches!(sent, Poll::Ready(Ok(())))
        })
    }

    /// Takes what the server says. False: it says nothing.
    fn step_server(&mut self, context: &mut Context<'_>) -> Result<bool, ExitReason> {
        let worker = self.worker;
        let Some(server) = &mut self.server else {
            return Ok(false);
        };
        let Poll::Ready(chunk) = server.lent.stream.poll_chunk(worker, context) else {
            return Ok(false);
        };
        match chunk {
            Ok(Some(chunk)) => self.receive(chunk)?,
            Ok(None) => self.server_lost("closed the connection")?,
            Err(error) => self.server_lost(&error.to_string())?,
        }
        Ok(true)
    }

    /// Takes what the client says. False: it says nothing, or must wait.
    fn step_client(
        &mut self,
        context: &mut Context<'_>,
        is_client_ready: bool,
    ) -> Result<bool, ExitReason> {
        let takes_more = match (&self.stage, &mut self.server) {
            (Stage::Ready, None) => is_client_ready,
            (Stage::Ready, Some(server)) => match server.lent.stream.poll_sent(context) {
                Poll::Ready(Ok(())) => {
                    is_client_ready || server.conversation.owed() < PIPELINED_MAX
                }
                Poll::Ready(Err(error)) => {
                    self.server_lost(&error.to_string())?;
                    return Ok(true);
                }
                Poll::Pending => false,
            },
            (Stage::Asking(_), _) => {
                // For a moment only; who sends on and leaves at once is to have it done.
                self.is_server_sent(context);
                false
            }
            _ => {
                // Our SETs can be longer than what goes out at once.
                self.is_server_sent(context);
                true
            }
        };
        let takes_more = takes_more && self.answers.len() < HELD_LENGTH_MAX && !self.is_terminating;
        if !takes_more || self.pending_input.len() >= self.held_max() {
            return Ok(false);
        }
        let worker = self.worker;
        let chunk = match self.client.poll_chunk(worker, context) {
            Poll::Ready(Ok(Some(chunk))) => chunk,
            Poll::Ready(Ok(None)) => return Err(ExitReason::ClientLeft),
            Poll::Ready(Err(error)) => return Err(ExitReason::ClientBroke(error.to_string())),
            Poll::Pending => return Ok(false),
        };
        self.received(chunk)?;
        Ok(true)
    }

    fn received(&mut self, chunk: Chunk<'_>) -> Result<(), ExitReason> {
        self.count_received(chunk.bytes().len());
        if !matches!(self.stage, Stage::Ready) {
            self.hold(chunk.bytes());
            return Ok(());
        }
        if self.pending_input.is_empty() {
            return self.take(Input::Chunk(chunk));
        }
        self.hold(chunk.bytes());
        drop(chunk);
        self.go_on()
    }

    /// Goes on with what was held.
    fn go_on(&mut self) -> Result<(), ExitReason> {
        if self.pending_input.is_empty() || self.is_paused() {
            return Ok(());
        }
        let held = std::mem::take(&mut self.pending_input);
        self.take(Input::Owned(held))
    }

    /// Bytes of the client, from where the last ones ended: all of them are sent on, answered, or
    /// held.
    fn take(&mut self, input: Input<'_>) -> Result<(), ExitReason> {
        match &self.server {
            Some(_) if self.replicates() => self.forward_replication(input),
            Some(_) => self.forward(input),
            None => self.begin(input),
        }
    }

    /// Sends what we have to say ourselves.
    fn send_answers(&mut self) -> Result<(), ExitReason> {
        let out = std::mem::take(&mut self.answers);
        let length = out.len() as u64;
        self.live
            .moved_at(self.worker, ByteDirection::ToClient, length, None);
        self.borrower.usage.to_clients.add(length);
        let sent = self.client.send_own(self.worker, out);
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
        &self.shared.figures()[self.worker.index]
    }

    /// A replica works at a unit: the next one may have to go elsewhere.
    fn is_paused(&self) -> bool {
        self.is_next_unit_of_replica() && self.walker.is_at_border()
    }

    fn does(&self, doing: SessionActivity) {
        self.card.set_activity(doing, self.worker);
    }
}
