//! Handles sessions of services with `protocol = "mysql"`: logs the client in, then acquires a
//! server connection for each transaction.
//!
//! A MySQL client waits for each reply, so a session processes one command at a time. [`Stage`]
//! records the progress of that command; input received meanwhile is queued.

mod acquire;
mod active_request;
pub(crate) mod cancel;
mod catch_up;
mod command_end;
mod commands;
pub(crate) mod error_reply;
mod execution_history;
mod failure;
mod from_client;
mod from_server;
mod held_state;
pub(crate) mod id;
mod kill;
mod login;
mod long_text;
mod own_id;
mod pending_input;
mod poll;
mod prepared;
mod query_text;
mod retry;
mod row_count;
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

use evenkeel_engine::stream::Stream;
use evenkeel_policy::causality;
use evenkeel_policy::route::retry::RetryTarget;
use evenkeel_wire::mysql::flags::{Capabilities, Status};
use evenkeel_wire::mysql::rewrite::Transcoder;

use self::active_request::ActiveRequest;
use self::error_reply::ErrorReply;
use self::from_client::RemainingPayload;
use self::held_state::UserVariableListing;
use self::login::{ClientHandshake, InitialState, LoginHandler, SessionParts};
use self::pending_input::PendingInput;
use self::server::ServerConnection;
use self::shared::MysqlService;
use self::statements::ClientStatements;
use self::user_state::Account;
use crate::record::TerminationReason;
use crate::service::rules::AppliedRules;
use crate::session::Arrival;
use crate::session::cancel::KillOutcome;
use crate::session::core::{self, Core};
use crate::upstream::connect_error::ErrorCode;
use evenkeel_sql::session_state::mysql::{InitialSettings, SessionState};

/// Length in bytes up to which a text is parsed. A longer one is forwarded unparsed and pins its
/// session.
const TEXT_LENGTH_MAX: usize = 1024 * 1024;

/// Maximum length in bytes of input that a client may send in advance.
const HELD_LENGTH_MAX: usize = 64 * 1024;

/// Length in bytes up to which a command is kept until its reply begins, so that it can be retried
/// on another server. Only the beginning of a longer command is parsed, unless it is a text.
const KEPT_LENGTH_MAX: usize = 16 * 1024;

/// Reason of MySQL alone why a session ends.
enum MysqlExit {
    /// An error that is sent unsolicited before the session ends.
    Unasked(ErrorReply),
    /// The client requests another user (the payload of COM_CHANGE_USER).
    ChangesUser(Vec<u8>),
}

type ExitReason = core::ExitReason<ErrorCode, MysqlExit>;

/// Session of one client.
struct Session<'a> {
    core: Core<'a, ServerConnection>,
    shared: Arc<MysqlService>,
    account: Rc<Account>,
    handshake: ClientHandshake,
    /// State after login, restored by COM_RESET_CONNECTION.
    begin: InitialState,
    stage: Stage<'a>,
    /// Client bytes that have not been processed.
    pending_input: PendingInput,
    /// Remainder of the current command or file that has not been received.
    rest: RemainingPayload,
    /// Error to send for the current command after its remainder has been received.
    refusal: Option<ErrorReply>,
    /// Error that the next command receives instead of being executed.
    postponed_error: Option<ErrorReply>,
    /// Command that is being processed.
    active: ActiveRequest,
    /// Effect of the rules on the current command.
    rules: Option<AppliedRules>,
    transcoder: Transcoder,
    statements: ClientStatements,
    state: SessionState,
    token: causality::CausalityToken,
    /// ROW_COUNT() after the last command. `None`: only the server knows it.
    row_count: Option<i64>,
    /// True if an error left open whether the transaction is still active or was committed.
    is_doubtful: bool,
    /// Timer that ends the hold of the server connection for a follow-up query; `None` if not held.
    holding: Option<Pin<Box<dyn Future<Output = ()>>>>,
    /// Time at which a replica could not be prepared for this session.
    unfit_since_ms: Option<u64>,
    /// Catalog version at the time when this session changed the catalog.
    changed_catalog: Option<u64>,
    /// True if the client may send several statements in one text.
    takes_several: bool,
}

/// Progress of a session with its current command.
enum Stage<'a> {
    /// No command is active; the client's next command is awaited.
    Command,
    /// The session waits for a connection, or for a primary.
    Waiting,
    /// The server receives the required state before the command is sent.
    Preparing,
    /// The command is sent, as far as received, and the server's reply is awaited.
    Answer,
    /// The server reads a file from the client.
    File,
    /// Remaining server output is discarded; the given action follows.
    DiscardReply(AfterDiscard),
    /// A KILL of another session is being executed.
    Killing(Pin<Box<dyn Future<Output = KillOutcome> + 'a>>, u64),
    /// Both sides send without replies (replication).
    Streaming,
}

/// Action after the server has sent its last reply.
enum AfterDiscard {
    /// The command is retried.
    RunAgain(RetryTarget),
    /// The client receives this error, and the connection is not used again.
    SendError(ErrorReply),
    /// The client is notified that its session was reset; `is_clean`: the connection was reset too.
    Renewed { is_clean: bool },
    /// The session state is known, from a state query or from the server status alone.
    Answered { is_question: bool },
    /// Session tracking is enabled again; `is_whole`: all statements for it succeeded.
    TookBack { is_whole: bool },
    /// The server has been asked for user variables, because another client needs the connection.
    Listed(Box<UserVariableListing>),
    /// The state query failed, possibly due to a KILL QUERY of the command before it. The session
    /// stays pinned.
    Unanswered,
}

/// Serves one client until the session ends, and returns the reason for its end.
pub(super) async fn serve_session(arrival: Arrival<'_>) -> TerminationReason {
    // Boxed, so that a session does not have the size of its beginning.
    let (door, _number, socket) = match Box::pin(LoginHandler::of(arrival)).await {
        Ok(arrived) => arrived,
        Err(ending) => return ending,
    };
    let handle = door.context.handle;
    let admitting = Box::pin(door.clone().admit(Stream::plain(socket)));
    let mut session = match handle.run_interruptible(admitting).await {
        Ok(Ok(session)) => session,
        Ok(Err(ending)) => return ending,
        Err(interrupt) => return interrupt.ending(),
    };
    loop {
        let polling = poll_fn(|context| session.poll(context));
        let outcome = handle.run_interruptible(polling).await;
        handle.log_out();
        let payload = match outcome {
            Ok(ExitReason::Other(MysqlExit::ChangesUser(payload))) => payload,
            // Boxed, so that a session does not have the size of its end.
            Ok(end) => return Box::pin(session.end(end)).await,
            Err(interrupt) => return Box::pin(session.end_cut(interrupt.ending())).await,
        };
        // Writes of the previous user must be visible to the new user.
        session.count_writes(Status::default());
        let token = session.token.clone();
        let Some(changing) = session.leave_as_user(payload) else {
            return TerminationReason::ClientClosed;
        };
        let changing = Box::pin(door.clone().change_user(changing));
        session = match handle.run_interruptible(changing).await {
            Ok(Ok(session)) => session,
            Ok(Err(ending)) => return ending,
            Err(interrupt) => return interrupt.ending(),
        };
        session.token = token;
    }
}

/// Returns the initial settings of a session.
fn beginning(begin: &InitialState) -> InitialSettings<'_> {
    InitialSettings {
        collation: begin.collation,
        schema: begin.schema.as_deref(),
        mariadb: begin.version.mariadb,
        version: begin.version.number(),
    }
}

impl<'a> Session<'a> {
    /// Creates the session of a client that has logged in.
    fn new(parts: SessionParts<'a>) -> Self {
        let agreed = parts.handshake.agreed;
        let begin = &parts.begin;
        let baseline = begin.baseline.pairs();
        let state = SessionState::new(baseline, beginning(begin), parts.core.worker.interner());
        let mut session = Self {
            core: parts.core,
            shared: parts.shared,
            account: parts.account,
            handshake: parts.handshake,
            stage: Stage::Command,
            pending_input: PendingInput::default(),
            rest: RemainingPayload::default(),
            refusal: None,
            postponed_error: None,
            active: ActiveRequest::default(),
            rules: None,
            transcoder: Transcoder::new(agreed, agreed),
            statements: ClientStatements::default(),
            state,
            token: causality::CausalityToken::new(),
            unfit_since_ms: None,
            changed_catalog: None,
            row_count: None,
            is_doubtful: false,
            holding: None,
            takes_several: agreed.has(Capabilities::MULTI_STATEMENTS),
            begin: parts.begin,
        };
        session.hold(&parts.ahead);
        session
    }

    /// Returns whether no command of the client is active or pending.
    fn is_waiting_idle(&self) -> bool {
        matches!(self.stage, Stage::Command) && self.pending_input.is_empty() && self.rest.is_over()
    }

    fn hold(&mut self, bytes: &[u8]) {
        self.pending_input
            .push(bytes, || self.core.worker.take_spare());
    }
}
