//! Serves sessions of `protocol = "postgres"`: logs the client in, then assigns it a server
//! connection for each transaction.

mod acquire;
mod active_request;
mod batch_tail;
pub(super) mod cancel;
mod deallocate;
mod dispatch;
mod error_reply;
mod from_client;
mod from_server;
mod given_names;
mod held;
mod held_state;
mod listening;
mod local_parse;
mod login;
mod parsed_statements;
mod pending_effects;
mod pending_requests;
mod poll;
mod portals;
mod prepare_context;
mod prepared;
mod process_ids;
mod query_text;
mod release;
mod replication;
mod retry;
mod ruled;
mod scan_result;
mod sequences;
pub(crate) mod server;
mod server_login;
pub(crate) mod shared;
mod sql_names;
mod statements;
mod teardown;
mod tokens;
mod undecided;
mod undo;
mod unnamed;
mod unnamed_statement;
mod user_state;
mod write_tracking;

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;

use evenkeel_engine::stream::Stream;
use evenkeel_policy::causality;
use evenkeel_policy::route::retry::RetryTarget;
use evenkeel_wire::postgres::backend::SqlState;
use evenkeel_wire::postgres::client_scanner::ClientScanner;
use evenkeel_wire::postgres::conversation::Sending;
use rustc_hash::FxHashMap;

use self::active_request::ActiveRequest;
use self::error_reply::ErrorReply;
use self::held::HeldUntil;
use self::held_state::{Asking, Knowledge};
use self::listening::Listening;
use self::pending_effects::PendingEffects;
use self::pending_requests::PendingRequests;
use self::portals::Portals;
use self::prepare_context::TransactionNames;
use self::sequences::Sequences;
use self::server::ServerConnection;
use self::shared::PostgresService;
use self::statements::ClientStatements;
use self::unnamed_statement::UnnamedStatements;
use self::user_state::Account;
use crate::record::TerminationReason;
use crate::service::rules::AppliedRules;
use crate::session::Arrival;
use crate::session::core::{self, Core};
use crate::upstream::database_change::ActiveDatabaseChange;
use evenkeel_sql::session_state::PinSource;
use evenkeel_sql::session_state::analysis::CatalogChange;
use evenkeel_sql::session_state::settings::{SessionState, SettingSet};

/// Maximum length of a Query or Parse that is analyzed. A longer one is forwarded and pins its
/// session.
const TEXT_LENGTH_MAX: usize = 1024 * 1024;

/// Description of such a text in pin causes.
const LONG_TEXT: &str = "a text of more than 1 MiB";

/// Maximum amount of input that is held for a client that waits.
const HELD_LENGTH_MAX: usize = 64 * 1024;

/// Maximum length of a request that is kept until its reply begins, so that it can be retried on
/// another server.
const KEPT_LENGTH_MAX: usize = 16 * 1024;

/// Maximum number of requests sent to a server while its replies wait for a slow client.
const PIPELINED_MAX: usize = 1_000;

/// Final error of a server, which was forwarded to the client.
struct ServerEnded(String);

type ExitReason = core::ExitReason<SqlState, ServerEnded>;

/// Session of one client.
struct Session<'a> {
    core: Core<'a, ServerConnection>,
    protocol: Arc<PostgresService>,
    account: Rc<Account>,
    scanner: ClientScanner,
    /// Disposition of the message whose rest is still to come.
    passing: Sending,
    /// Input of the client that is held.
    pending_input: Vec<u8>,
    held_until: HeldUntil,
    /// True if the server connection must be released when its last send is complete.
    release_after_send: bool,
    /// True if the client has sent Terminate while replies are still outstanding.
    is_terminating: bool,
    /// Requests sent to the server whose ReadyForQuery has not arrived.
    pending: PendingRequests,
    /// Number of queries and batches that the client has sent; an error begins a new one.
    segment: u64,
    stage: Stage,
    statements: ClientStatements,
    unnamed: UnnamedStatements,
    portals: Portals,
    state: SessionState,
    effects: PendingEffects,
    /// True if settings that were reset must be restored to their startup values.
    must_restore_startup: bool,
    names: TransactionNames,
    /// Reports of the server about the session's state on the current connection.
    knowledge: Knowledge,
    /// Statement that is the cause of any pin set now.
    source: Option<Arc<PinSource>>,
    /// The session's use of sequences.
    sequences: Sequences,
    token: causality::CausalityToken,
    /// Change of the catalog by the current request. Functions may then have new bodies, which may
    /// leave session state that the catalog does not show.
    catalog_change: CatalogChange,
    /// True if that change is of tables or types, and may outdate prepared statements of other
    /// sessions.
    changes_plans: bool,
    /// Time of the last catalog change, in microseconds; zero: never. Until the catalog has been
    /// read again, the cached information is out of date.
    changed_catalog_us: u64,
    /// Set while the current request drops, renames or copies a database.
    database_change: Option<ActiveDatabaseChange>,
    /// Listening by the database's shared connection; `None`: the client has never listened so.
    listening: Option<Box<Listening>>,
    /// Request being processed.
    active: ActiveRequest,
    /// Rule results of prepared statements, by statement number.
    rules_cache: FxHashMap<u64, AppliedRules>,
    /// Error for the held request, which is not executed.
    refusal: Option<ErrorReply>,
    /// Error of the server for a setting sent by Evenkeel: SQLSTATE and message.
    refused_setting: ([u8; 5], String),
}

/// State of a session: what it waits for.
enum Stage {
    /// Input from the client: there is no server connection, or one that can take more.
    Ready,
    /// Server connection, or a primary.
    Waiting,
    /// End of Evenkeel's SETs.
    Preparing(Preparation),
    /// The server's answer to the question which state the session has on its connection.
    Asking(Box<Asking>),
    /// The answer of the shared connection to a LISTEN, which is held.
    Listening,
    /// End of the failed request, before it is retried.
    Rescue(RetryTarget),
}

/// Settings that Evenkeel's SETs establish.
enum Preparation {
    /// All of the session, on a newly acquired connection, from which the client has received
    /// nothing.
    Acquired {
        wanted: SettingSet,
        /// True if the session was cancelled since the SETs began.
        is_cancelled: bool,
    },
    /// Startup values that a RESET has changed, on the connection that the session keeps; `None`:
    /// in a transaction, whose end decides.
    Restored(Option<SettingSet>),
}

/// Serves one session and returns the reason for its end.
pub(super) async fn serve_session(arrival: Arrival<'_>) -> TerminationReason {
    // Boxed, so that a session does not have the size of its beginning.
    let (door, socket) = match Box::pin(login::LoginHandler::of(arrival)).await {
        Ok(arrived) => arrived,
        Err(ending) => return ending,
    };
    let handle = door.context.handle;
    let admitting = Box::pin(handle.run_interruptible(door.admit(Stream::plain(socket))));
    let mut session = match admitting.await {
        Ok(Ok(session)) => session,
        Ok(Err(ending)) => return ending,
        Err(interrupt) => return interrupt.ending(),
    };
    session.check_primary();
    let outcome = handle
        .run_interruptible(poll_fn(|context| session.poll(context)))
        .await;
    handle.log_out();
    let (ending, last_word) = match outcome {
        Ok(ExitReason::ClientLeft) => (TerminationReason::ClientClosed, None),
        Ok(ExitReason::ClientBroke(why)) => (TerminationReason::ResetByClient(why), None),
        Ok(ExitReason::Other(ServerEnded(why))) => (TerminationReason::Rejected(why), None),
        Ok(ExitReason::ServerBroke(why)) => (TerminationReason::ResetByServer(why), None),
        Ok(ExitReason::Fatal(error_reply)) => {
            let why = error_reply.message.clone();
            (TerminationReason::Rejected(why), Some(error_reply))
        }
        Err(interrupt) => {
            let ending = interrupt.ending();
            let error_reply = ErrorReply::of_ending(&ending);
            (ending, Some(error_reply))
        }
    };
    if let Some(error_reply) = last_word {
        Box::pin(session.send_final_error(&error_reply)).await;
    }
    ending
}

impl Session<'_> {
    /// Returns whether a replica is processing a request: the next one may need another server.
    fn is_paused(&self) -> bool {
        self.is_next_unit_of_replica() && self.scanner.is_at_border()
    }
}
