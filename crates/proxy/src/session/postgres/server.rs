//! Represents a logged-in server connection, which is assigned to one session after another.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use evenkeel_engine::stream::Stream;
use evenkeel_wire::postgres::TransactionStatus;
use evenkeel_wire::postgres::backend::SqlState;
use evenkeel_wire::postgres::build;
use evenkeel_wire::postgres::conversation::{
    Conversation, Delivery, Origin, ReplyOutcome, Request, RequestToken, Sending,
};
use evenkeel_wire::postgres::server_scanner::{Event, ServerScanner, Step};

use super::cancel;
use super::error_reply::ErrorReply;
use super::given_names::GivenNames;
use super::sequences::SequenceState;
use super::server_login;
use super::statements::ServerStatements;
use super::user_state::{Reports, UserState};
use crate::service::Service;
use crate::session::own_commands::OwnCommands;
use crate::upstream::cancel_target::CancelTarget;
use crate::upstream::connect_error::ConnectError;
use crate::upstream::pool_registry::PoolHandle;
use crate::upstream::worker_pool::{ConnectionCore, PoolableConnection};
use crate::worker::Worker;
use evenkeel_sql::session_state::settings::{
    ExportedState, Interner, ServerSessionState, is_of_server,
};

/// Server connection and the state that is tracked of it.
pub(crate) struct ServerConnection {
    pub(crate) core: ConnectionCore,
    pub(crate) conversation: Conversation,
    pub(crate) boundaries: ServerScanner,
    /// Delivery of the rest of a message whose beginning has been processed.
    pub(crate) passing: Delivery,
    pub(crate) prepared: ServerStatements,
    /// Id of the current unnamed statement; zero: none of Evenkeel's.
    pub(crate) unnamed: u64,
    /// Statements that the client can execute under its own names in SQL.
    pub(crate) given: GivenNames,
    /// Sequence state that the connection may hold.
    pub(crate) sequence_state: SequenceState,
    /// Settings made on the connection, and settings that it reports.
    pub(crate) settings: ServerSessionState,
    /// Parameters reported in the login, as the server spells them.
    pub(crate) reported: Reports,
}

/// State of a connection that is being moved to another worker.
pub(crate) struct Parked {
    conversation: Conversation,
    boundaries: ServerScanner,
    prepared: ServerStatements,
    unnamed: u64,
    sequence_state: SequenceState,
    settings: ExportedState,
    reported: Reports,
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
            prepared: parts.prepared,
            unnamed: parts.unnamed,
            sequence_state: parts.sequence_state,
            settings: parts.settings.export(),
            reported: parts.reported,
        };
        (parts.core, parked)
    }

    fn unpark(worker: &Worker, core: ConnectionCore, parked: Parked) -> Box<Self> {
        Box::new(Self {
            core,
            conversation: parked.conversation,
            boundaries: parked.boundaries,
            passing: Delivery::Forward,
            prepared: parked.prepared,
            unnamed: parked.unnamed,
            given: GivenNames::default(),
            sequence_state: parked.sequence_state,
            settings: ServerSessionState::import(&parked.settings, worker.interner()),
            reported: parked.reported,
        })
    }

    fn send_cancel(
        worker: Rc<Worker>,
        service: Arc<Service>,
        target: Rc<CancelTarget>,
    ) -> Pin<Box<dyn Future<Output = bool>>> {
        Box::pin(async move {
            cancel::send(&worker, &service, &target).await;
            true
        })
    }

    fn write_terminate(out: &mut Vec<u8>) {
        build::terminate(out);
    }
}

impl ServerConnection {
    /// Creates the state of a connection that is about to log in.
    pub(crate) fn new(worker: &Worker, stream: Stream, pooled: &Arc<PoolHandle>) -> Box<Self> {
        Box::new(Self {
            core: ConnectionCore::new::<Self>(stream, pooled),
            conversation: Conversation::new(),
            boundaries: ServerScanner::new(),
            passing: Delivery::Forward,
            prepared: ServerStatements::default(),
            unnamed: 0,
            given: GivenNames::default(),
            sequence_state: SequenceState::None,
            settings: ServerSessionState::new([], worker.interner()),
            reported: Vec::new(),
        })
    }

    /// Records a parameter that the server reports in its login.
    pub(crate) fn report(&mut self, name: &[u8], value: &[u8]) {
        let known = self.reported.iter_mut().find(|(known, _)| **known == *name);
        match known {
            Some((_, known)) => *known = value.into(),
            None => self.reported.push((name.into(), value.into())),
        }
    }

    /// Records a reported setting. A parameter of the server itself also changes what was reported
    /// in the login: a promoted standby reports its new role.
    pub(crate) fn hear_setting(&mut self, name: &[u8], value: &[u8], interner: &Interner) {
        if is_of_server(name) {
            self.report(name, value);
        }
        self.settings.record_report(name, value, interner);
    }

    /// Initializes the settings at the end of the login.
    pub(crate) fn begins(&mut self, worker: &Worker) {
        let reports = self.reported.iter();
        let reports = reports.map(|(name, value)| (&**name, &**value));
        self.settings = ServerSessionState::new(reports, worker.interner());
    }

    /// Returns whether the connection could be assigned to another client, as far as the protocol
    /// shows.
    pub(crate) fn is_idle(&self) -> bool {
        self.conversation.is_idle()
            && self.core.held.is_empty()
            && self.boundaries.is_at_border()
            && self.core.stream.is_at_border()
            && self.core.stream.is_sent()
    }

    /// Returns whether the connection is idle except for unsent bytes.
    pub(crate) fn is_idle_but_sending(&self) -> bool {
        self.conversation.is_idle() && !self.core.stream.is_sent()
    }

    /// Returns whether the client has received part of a message whose rest has not arrived.
    pub(crate) fn is_in_message(&self) -> bool {
        !self.boundaries.is_at_border() && self.passing == Delivery::Forward
    }

    /// Appends a query of Evenkeel's own to `out`; its replies are not forwarded. Returns false if
    /// no query may be sent now.
    pub(crate) fn query(&mut self, text: &[u8], token: RequestToken, out: &mut Vec<u8>) -> bool {
        let sending = self.conversation.sent(Request::Query, Origin::Ours, token);
        self.unnamed = 0;
        if sending == Sending::Forward {
            build::query(out, text);
        }
        sending == Sending::Forward
    }

    /// Executes queries on a connection without a session.
    pub(crate) async fn run(&mut self, worker: &Worker, texts: &[&[u8]]) -> Result<(), ErrorReply> {
        let mut out = Vec::new();
        for text in texts {
            if !self.query(text, RequestToken::default(), &mut out) {
                return Err(self.broken("cannot accept a query now"));
            }
        }
        self.finish(worker, out).await
    }

    /// Resets a connection without a session to its state after the login; an open transaction is
    /// rolled back.
    pub(crate) async fn renew(&mut self, worker: &Worker) -> Result<(), ErrorReply> {
        let texts: &[&[u8]] = match self.conversation.status() {
            TransactionStatus::Idle => &[b"DISCARD ALL"],
            _ => &[b"ROLLBACK", b"DISCARD ALL"],
        };
        self.run(worker, texts).await?;
        self.prepared.clear();
        self.unnamed = 0;
        self.given.clear();
        self.sequence_state = SequenceState::None;
        self.settings.discarded(worker.interner());
        Ok(())
    }
}

impl OwnCommands for ServerConnection {
    type Code = SqlState;

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
            let (event, length) = match self.boundaries.next(rest) {
                Step::Event {
                    passed,
                    event,
                    length,
                } => (event, passed + length),
                Step::Wait { passed, .. } => return Ok(at + passed),
                Step::Invalid(fault) => return Err(self.broken(fault)),
            };
            at += length;
            while self.conversation.due().is_some() {}
            match &event {
                Event::ParameterStatus(Some((name, value))) => {
                    self.hear_setting(name, value, worker.interner());
                }
                Event::Error(report) => {
                    let text = String::from_utf8_lossy(report.text());
                    let error_reply = ErrorReply::from_server(report.sqlstate(), text);
                    refused.get_or_insert(error_reply);
                }
                _ => {}
            }
            match self.conversation.reply(&event).map(|reply| reply.outcome) {
                Ok(ReplyOutcome::Fatal(_)) | Err(_) => {
                    return Err(self.broken("closed the connection"));
                }
                Ok(_) => {}
            }
        }
    }
}
