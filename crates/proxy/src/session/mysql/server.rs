//! Defines a logged-in server connection, which passes from session to session.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use evenkeel_wire::mysql::StatementId;
use evenkeel_wire::mysql::build;
use evenkeel_wire::mysql::conversation::{
    Conversation, Delivery, Origin, ReplyOutcome, Request, RequestToken,
};
use evenkeel_wire::mysql::flags::Capabilities;
use evenkeel_wire::mysql::frontend::Code;
use evenkeel_wire::mysql::rewrite;
use evenkeel_wire::mysql::server_scanner::{Event, ExpectedReply, ServerScanner, Step};
use evenkeel_wire::mysql::trackers::Trackers;

use super::cancel;
use super::error_reply::ErrorReply;
use super::server_greetings::Version;
use super::server_login::{self, Baseline, ServerLogin};
use super::statements::ServerStatements;
use super::user_state::UserState;
use crate::service::Service;
use crate::session::own_commands::OwnCommands;
use crate::upstream::cancel_target::CancelTarget;
use crate::upstream::connect_error::{ConnectError, ErrorCode};
use crate::upstream::pool_registry::PoolHandle;
use crate::upstream::worker_pool::{ConnectionCore, PoolableConnection};
use crate::worker::Worker;
use evenkeel_sql::session_state::mysql::{
    ExportedState, ServerSessionState, StateQuery, TrackerRestore, trackers,
};
use evenkeel_sql::session_state::settings::Interner;

/// Server connection that a session acquires exclusively.
pub(crate) struct ServerConnection {
    pub(crate) core: ConnectionCore,
    pub(crate) conversation: Conversation,
    pub(crate) boundaries: ServerScanner,
    /// Number of outstanding bytes of a packet whose delivery was decided from its beginning.
    pub(crate) remainder: usize,
    pub(crate) passing: Delivery,
    pub(crate) agreed: Capabilities,
    pub(crate) version: Arc<Version>,
    pub(crate) baseline: Arc<Baseline>,
    pub(crate) prepared: ServerStatements,
    /// Statements to close before the next command.
    pub(crate) closing: Vec<StatementId>,
    /// Statements to reset: the client closed them while they held a cursor or long data.
    pub(crate) resets: Vec<StatementId>,
    /// True if COM_PING must precede the next command: the client has reset a statement that the
    /// server does not have. Like COM_STMT_RESET, COM_PING sets ROW_COUNT() to 0.
    pub(crate) owes_ping: bool,
    /// Settings made on the connection, and the state it reports.
    pub(crate) settings: ServerSessionState,
    /// True if the server accepts several statements in one text.
    pub(crate) takes_several: bool,
    /// True if the client's session trackers are enabled, or may be; then Evenkeel receives no
    /// reports.
    pub(crate) shows_trackers: bool,
}

/// State that is transferred with a connection to another worker, in addition to the pool's own
/// state.
pub(crate) struct Parked {
    conversation: Conversation,
    boundaries: ServerScanner,
    agreed: Capabilities,
    version: Arc<Version>,
    baseline: Arc<Baseline>,
    prepared: ServerStatements,
    closing: Vec<StatementId>,
    settings: ExportedState,
    takes_several: bool,
}

/// Purpose of a command that Evenkeel itself sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Applies settings of the session, including its schema.
    Settings,
    /// Sets whether several statements may be sent in one text.
    Several(bool),
    /// Prepares a statement that the session will execute.
    Prepare,
    /// Waits until the server has the writes that the session must see.
    Wait,
    /// Enables Evenkeel's session trackers.
    Trackers,
    /// Makes the server report a variable; a failure is a sufficient result too.
    Telling,
    /// Any other command, of which only the success matters.
    Other,
}

impl Ask {
    /// Token of the client's own commands.
    pub(crate) const CLIENT: RequestToken = RequestToken(0);

    fn token(self) -> RequestToken {
        RequestToken(match self {
            Ask::Settings => 1,
            Ask::Several(false) => 2,
            Ask::Several(true) => 3,
            Ask::Prepare => 4,
            Ask::Wait => 5,
            Ask::Trackers => 6,
            Ask::Telling => 7,
            Ask::Other => 8,
        })
    }

    /// Returns the purpose of a token; `None` for the client's commands.
    pub(crate) fn of(token: RequestToken) -> Option<Self> {
        Some(match token.0 {
            0 => return None,
            1 => Ask::Settings,
            2 => Ask::Several(false),
            3 => Ask::Several(true),
            4 => Ask::Prepare,
            5 => Ask::Wait,
            6 => Ask::Trackers,
            7 => Ask::Telling,
            _ => Ask::Other,
        })
    }
}

impl ServerConnection {
    /// Creates a connection from a completed login with trackers enabled.
    pub(super) fn new(worker: &Worker, joined: ServerLogin, pooled: &Arc<PoolHandle>) -> Box<Self> {
        let ServerLogin {
            stream,
            agreed,
            id,
            identity,
            version,
            status,
            baseline,
        } = joined;
        let core = ConnectionCore::new::<Self>(stream, pooled);
        core.cancel_target.key.replace(Some((id, identity)));
        let settings = ServerSessionState::new(baseline.pairs(), None, worker.interner())
            .with_version(version.mariadb, version.number());
        Box::new(Self {
            core,
            conversation: Conversation::new(status),
            boundaries: ServerScanner::new(agreed),
            remainder: 0,
            passing: Delivery::Forward,
            agreed,
            prepared: ServerStatements::default(),
            closing: Vec::new(),
            resets: Vec::new(),
            owes_ping: false,
            settings,
            version,
            baseline,
            takes_several: agreed.has(Capabilities::MULTI_STATEMENTS),
            shows_trackers: false,
        })
    }

    /// Returns whether the protocol state permits use by another client.
    pub(crate) fn is_idle(&self) -> bool {
        let is_quiet = self.conversation.is_idle() && self.is_between_replies();
        is_quiet && !self.shows_trackers && self.core.stream.is_sent()
    }

    /// Returns whether a reset restores the state of a new connection.
    pub(crate) fn can_be_renewed(&self) -> bool {
        !self.baseline.is_forgetful
    }

    /// Returns whether a cursor is open or long data was sent. Only the client knows for which
    /// statements, so none of them may be closed.
    pub(crate) fn holds_for_statements(&self) -> bool {
        self.conversation.has_cursors() || self.conversation.has_long_data()
    }

    /// Returns whether no part of a reply is buffered.
    pub(crate) fn is_between_replies(&self) -> bool {
        self.core.held.is_empty()
            && self.remainder == 0
            && self.boundaries.is_at_border()
            && self.core.stream.is_at_border()
    }

    /// Returns whether a client has received only a part of a packet or result.
    pub(crate) fn is_in_reply(&self) -> bool {
        let is_cut = self.remainder > 0 && self.passing == Delivery::Forward;
        is_cut
            || !self.boundaries.is_at_border() && self.conversation.delivery() == Delivery::Forward
    }

    /// Appends a query of Evenkeel to `out`; its replies are not forwarded.
    pub(crate) fn query(&mut self, what: Ask, text: &[u8], out: &mut Vec<u8>) {
        self.record_sent(Request::Query, what);
        rewrite::query(out, &[], text, self.agreed);
    }

    /// Appends COM_INIT_DB of Evenkeel.
    pub(crate) fn select_schema(&mut self, what: Ask, schema: &[u8], out: &mut Vec<u8>) {
        self.record_sent(Request::Simple, what);
        build::init_db(out, schema);
    }

    /// Appends COM_PING of Evenkeel; the reply contains the status.
    pub(crate) fn ping(&mut self, out: &mut Vec<u8>) {
        self.record_sent(Request::Simple, Ask::Other);
        build::command(out, Code::Ping, b"");
    }

    /// Appends COM_SET_OPTION of Evenkeel.
    pub(crate) fn set_multi_statements(&mut self, wanted: bool, out: &mut Vec<u8>) {
        self.record_sent(Request::Simple, Ask::Several(wanted));
        build::set_option(out, wanted);
    }

    /// Appends COM_STMT_PREPARE of Evenkeel.
    pub(crate) fn prepare(&mut self, text: &[u8], out: &mut Vec<u8>) {
        self.record_sent(Request::Prepare, Ask::Prepare);
        build::prepare(out, text);
    }

    /// Appends the due resets, ping and closes. COM_STMT_CLOSE has no reply. COM_STMT_RESET has
    /// one, and discards the cursor and long data.
    pub(crate) fn close_statements(&mut self, out: &mut Vec<u8>) {
        for statement in std::mem::take(&mut self.resets) {
            self.record_sent(Request::ResetStatement(statement), Ask::Other);
            build::command(out, Code::StmtReset, &statement.0.to_le_bytes());
        }
        if std::mem::take(&mut self.owes_ping) {
            self.ping(out);
        }
        for statement in std::mem::take(&mut self.closing) {
            self.record_sent(Request::Close(statement), Ask::Other);
            build::close(out, statement);
        }
    }

    fn record_sent(&mut self, request: Request, what: Ask) {
        self.conversation.sent(request, Origin::Ours, what.token());
    }

    /// Runs queries of Evenkeel on a connection that no session uses.
    pub(crate) async fn run(&mut self, worker: &Worker, texts: &[&[u8]]) -> Result<(), ErrorReply> {
        let mut out = Vec::new();
        for text in texts {
            self.query(Ask::Other, text, &mut out);
        }
        let finished = self.finish(worker, out).await;
        match finished {
            Ok(()) => self.settings.disown_results(),
            Err(_) => self.settings.failed(),
        }
        finished
    }

    /// Appends COM_RESET_CONNECTION, which restores the state after login except for the schema.
    pub(crate) fn reset_connection(&mut self, out: &mut Vec<u8>) {
        self.record_sent(Request::ResetConnection, Ask::Other);
        build::command(out, Code::ResetConnection, b"");
        self.set_trackers(out);
        let baseline = Arc::clone(&self.baseline);
        if let Some(calming) = &baseline.calming {
            self.query(Ask::Other, calming.as_bytes(), out);
        }
    }

    fn set_trackers(&mut self, out: &mut Vec<u8>) {
        let trackers = trackers(self.version.mariadb, self.version.number());
        self.query(Ask::Trackers, trackers.as_bytes(), out);
    }

    /// Enables the client's trackers instead of Evenkeel's.
    pub(super) fn show_trackers(&mut self, text: &[u8], out: &mut Vec<u8>) {
        self.shows_trackers = true;
        self.query(Ask::Other, text, out);
    }

    /// Restores Evenkeel's trackers, and queries the changes that they have missed.
    pub(super) fn restore_trackers(&mut self, back: &TrackerRestore, out: &mut Vec<u8>) {
        if let Some(question) = &back.query {
            self.query(Ask::Other, question.as_bytes(), out);
        }
        self.query(Ask::Trackers, back.trackers.as_bytes(), out);
        for report in &back.reports {
            self.query(Ask::Telling, report, out);
        }
    }

    /// Appends a state query, and further texts that make the server report settings. Trackers that
    /// the query changes are restored after it.
    pub(super) fn query_state(
        &mut self,
        question: StateQuery,
        settings: &[Vec<u8>],
        out: &mut Vec<u8>,
    ) {
        self.query(Ask::Other, question.text(), out);
        if question.moves_trackers() {
            self.set_trackers(out);
        }
        for text in settings {
            self.query(Ask::Other, text, out);
        }
    }

    /// Resets a connection that no session uses, which rolls back an open transaction.
    pub(crate) async fn renew(&mut self, worker: &Worker) -> Result<(), ErrorReply> {
        let mut out = Vec::new();
        self.reset_connection(&mut out);
        self.finish(worker, out).await
    }

    /// Applies the session state that a reply reports.
    pub(crate) fn apply_trackers(&mut self, event: &Event<'_>, interner: &Interner) {
        let Some(state) = session_state(event) else {
            return;
        };
        for tracker in Trackers::new(state) {
            self.settings.record_report(&tracker.change, interner);
        }
    }

    /// Resets the recorded state after the session was reset.
    pub(crate) fn renewed(&mut self, interner: &Interner) {
        self.prepared.clear();
        self.closing.clear();
        self.shows_trackers = false;
        self.settings.apply_reset(self.baseline.pairs(), interner);
    }
}

impl OwnCommands for ServerConnection {
    type Code = ErrorCode;

    fn pending_count(&self) -> usize {
        self.conversation.pending_count()
    }

    fn handle_replies(
        &mut self,
        worker: &Worker,
        bytes: &[u8],
        refused: &mut Option<ErrorReply>,
    ) -> Result<usize, ErrorReply> {
        let mut at = 0;
        loop {
            let rest = bytes.get(at..).unwrap_or_default();
            let answer = self
                .conversation
                .expected_reply()
                .unwrap_or(ExpectedReply::Simple);
            let (event, length) = match self.boundaries.next(rest, answer) {
                Step::Event {
                    passed,
                    event,
                    length,
                } => (event, passed + length),
                Step::Wait { passed, .. } => return Ok(at + passed),
                Step::Invalid(fault) => return Err(self.broken(fault)),
            };
            at += length;
            let settled = self.conversation.reply(&event);
            if let Event::Error(report) = &event {
                refused.get_or_insert(ErrorReply::of_report(report, ""));
            }
            if matches!(settled, Ok(reply) if matches!(reply.outcome, ReplyOutcome::Renewed(_))) {
                self.renewed(worker.interner());
            }
            self.apply_trackers(&event, worker.interner());
            let is_over = matches!(&event, Event::Error(report) if report.is_fatal());
            if settled.is_err() || is_over {
                return Err(self.broken("closed the connection"));
            }
        }
    }
}

/// Returns the session trackers in a reply.
pub(crate) fn session_state<'a>(event: &Event<'a>) -> Option<&'a [u8]> {
    use evenkeel_wire::mysql::server_scanner::End;
    match event {
        Event::Ok(ok) | Event::ResultEnd(End::Ok(ok)) if !ok.session_state.is_empty() => {
            Some(ok.session_state)
        }
        _ => None,
    }
}

impl PoolableConnection for ServerConnection {
    type Known = UserState;
    type Parked = Parked;

    async fn open(
        worker: &Rc<Worker>,
        service: &Arc<Service>,
        pooled: &Arc<PoolHandle>,
    ) -> Result<Box<Self>, ConnectError> {
        server_login::open(worker, service, pooled).await
    }

    fn core(&self) -> &ConnectionCore {
        &self.core
    }

    fn core_mut(&mut self) -> &mut ConnectionCore {
        &mut self.core
    }

    fn park(self: Box<Self>) -> (ConnectionCore, Parked) {
        let parts = *self;
        let parked = Parked {
            conversation: parts.conversation,
            boundaries: parts.boundaries,
            agreed: parts.agreed,
            version: parts.version,
            baseline: parts.baseline,
            prepared: parts.prepared,
            closing: parts.closing,
            settings: parts.settings.export(),
            takes_several: parts.takes_several,
        };
        (parts.core, parked)
    }

    fn unpark(worker: &Worker, core: ConnectionCore, parked: Parked) -> Box<Self> {
        Box::new(Self {
            core,
            conversation: parked.conversation,
            boundaries: parked.boundaries,
            remainder: 0,
            passing: Delivery::Forward,
            agreed: parked.agreed,
            version: parked.version,
            baseline: parked.baseline,
            prepared: parked.prepared,
            closing: parked.closing,
            resets: Vec::new(),
            owes_ping: false,
            settings: ServerSessionState::import(&parked.settings, worker.interner()),
            takes_several: parked.takes_several,
            shows_trackers: false,
        })
    }

    fn send_cancel(
        worker: Rc<Worker>,
        service: Arc<Service>,
        target: Rc<CancelTarget>,
    ) -> Pin<Box<dyn Future<Output = bool>>> {
        Box::pin(async move { cancel::send(&worker, &service, &target).await })
    }

    fn write_terminate(out: &mut Vec<u8>) {
        build::command(out, Code::Quit, b"");
    }
}
