//! Holds what every session of a database has, whichever its protocol: both peers, the way to
//! server connections, and the answers of Evenkeel that the client has not received.

use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use evenkeel_engine::socket::Chunk;
use evenkeel_engine::stream::Stream;
use evenkeel_policy::connection_pool::Condition;
use evenkeel_policy::pins::ReleaseAction;

use super::acquirer::Acquirer;
use super::cancel;
use super::error_reply::{ErrorReply, ReplyCode};
use super::handle::{SessionEvent, SessionHandle};
use super::input::ServerInput;
use super::steps::{VanishedPeer, vanished_peer};
use crate::service::ClientPermit;
use crate::service::activity::SessionActivity;
use crate::service::database::DatabaseService;
use crate::service::stats::ServiceStats;
use crate::upstream::worker_pool::PoolableConnection;
use crate::worker::Worker;

/// Peers and surroundings of one session with a database.
pub(super) struct Core<'a, C: PoolableConnection> {
    pub(super) worker: &'a Rc<Worker>,
    pub(super) permit: &'a ClientPermit,
    pub(super) service: Arc<DatabaseService>,
    pub(super) handle: &'a SessionHandle,
    /// Connection of the client; `None` only after the session has ended.
    pub(super) client: Option<Stream>,
    /// Answers of Evenkeel that have not been sent.
    pub(super) answers: Vec<u8>,
    pub(super) server: Option<Box<C>>,
    pub(super) acquirer: Acquirer<'a, C>,
}

/// End of a client's connection.
pub(super) enum ClientLoss {
    /// The client closed its connection.
    Left,
    /// The connection failed.
    Broke(String),
}

/// Reason why a session ends. `C`: code of an error; `O`: reasons of one protocol alone.
pub(super) enum ExitReason<C: ReplyCode, O> {
    /// The client terminated the session or closed its connection.
    ClientLeft,
    /// The client's connection failed.
    ClientBroke(String),
    /// The server's connection failed in the middle of a reply, after which no error can be sent.
    ServerBroke(String),
    /// The session ends with this error.
    Fatal(ErrorReply<C>),
    Other(O),
}

impl<C: ReplyCode, O> From<ClientLoss> for ExitReason<C, O> {
    fn from(loss: ClientLoss) -> Self {
        match loss {
            ClientLoss::Left => ExitReason::ClientLeft,
            ClientLoss::Broke(why) => ExitReason::ClientBroke(why),
        }
    }
}

/// Result of polling for replies to the client.
pub(super) enum Replies<'a> {
    /// Answers of Evenkeel were sent.
    Answered,
    /// Input of the server.
    Server(Chunk<'a>),
    /// The server's connection has ended, for this reason.
    ServerLost(String),
    /// There are none now. `is_client_ready`: the client has taken all that was sent.
    None { is_client_ready: bool },
}

/// End of a session's wait for a connection.
pub(super) enum WaitEnd {
    /// The client has cancelled it. The session is in no queue any more.
    Cancelled,
    TimedOut,
    /// Another server may have a connection earlier.
    Reroute,
}

impl<'a, C: PoolableConnection> Core<'a, C> {
    /// Returns the client's connection.
    pub(super) fn client(&mut self) -> Result<&mut Stream, ClientLoss> {
        self.client.as_mut().ok_or(ClientLoss::Left)
    }

    pub(super) fn stats(&self) -> &ServiceStats {
        &self.service.stats()[self.worker.index()]
    }

    pub(super) fn set_activity(&self, activity: SessionActivity) {
        self.handle.set_activity(activity, self.worker);
    }

    /// Returns whether the service has `mode = "session"`.
    pub(super) fn keeps_connection(&self) -> bool {
        self.permit.service().keeps_connections()
    }

    /// Returns how many prepared statements a server connection may have.
    pub(super) fn statements_max(&self) -> usize {
        let view = self.permit.service().snapshot();
        let database = view.database();
        database.map_or(1, |database| database.statements_max)
    }

    /// Returns the buffer for answers of Evenkeel.
    pub(super) fn answers(&mut self) -> &mut Vec<u8> {
        if self.answers.capacity() == 0 {
            self.answers = self.worker.take_spare();
        }
        &mut self.answers
    }

    fn send_answers(&mut self) -> Result<(), ClientLoss> {
        let worker = self.worker;
        let out = std::mem::take(&mut self.answers);
        self.acquirer.count_answered(out.len());
        let sent = self.client()?.send_own(worker, out);
        sent.map_err(|error| ClientLoss::Broke(error.to_string()))
    }

    /// Sends bytes of the server to the client.
    pub(super) fn forward(&mut self, input: ServerInput<'_>) -> Result<(), ClientLoss> {
        let worker = self.worker;
        self.acquirer.count_forwarded(input.length());
        let sent = input.send(worker, self.client()?);
        sent.map_err(|error| ClientLoss::Broke(error.to_string()))
    }

    fn poll_client_sent(
        &mut self,
        context: &mut Context<'_>,
        is_idle: bool,
    ) -> Result<bool, ClientLoss> {
        let client = self.client()?;
        let sent = match is_idle {
            true => client.poll_sent_silently(context),
            false => client.poll_sent(context),
        };
        match sent {
            Poll::Ready(Ok(())) => Ok(true),
            Poll::Ready(Err(error)) => Err(ClientLoss::Broke(error.to_string())),
            Poll::Pending => Ok(false),
        }
    }

    /// Returns input of the client, if there is any. A client that has ended its sending may still
    /// read a reply if `is_reading`.
    pub(super) fn poll_client(
        &mut self,
        context: &mut Context<'_>,
        is_reading: bool,
    ) -> Result<Option<Chunk<'a>>, ClientLoss> {
        let worker = self.worker;
        let client = self.client()?;
        match client.poll_chunk(worker, context) {
            Poll::Ready(Ok(Some(chunk))) => Ok(Some(chunk)),
            Poll::Ready(Ok(None)) if is_reading => {
                let _ = client.poll_sent(context);
                Ok(None)
            }
            Poll::Ready(Ok(None)) => Err(ClientLoss::Left),
            Poll::Ready(Err(error)) => Err(ClientLoss::Broke(error.to_string())),
            Poll::Pending => Ok(None),
        }
    }

    /// Sends the answers of Evenkeel, or receives input of the server, once the client has taken
    /// all that was sent before. An idle session is not woken when it has.
    pub(super) fn poll_replies(
        &mut self,
        context: &mut Context<'_>,
        is_idle: bool,
    ) -> Result<Replies<'a>, ClientLoss> {
        if !self.poll_client_sent(context, is_idle)? {
            return Ok(Replies::None {
                is_client_ready: false,
            });
        }
        if !self.answers.is_empty() {
            self.send_answers()?;
            return Ok(Replies::Answered);
        }
        Ok(self.poll_server(context))
    }

    fn poll_server(&mut self, context: &mut Context<'_>) -> Replies<'a> {
        let none = Replies::None {
            is_client_ready: true,
        };
        let worker = self.worker;
        let Some(server) = &mut self.server else {
            return none;
        };
        match server.core_mut().stream.poll_chunk(worker, context) {
            Poll::Ready(Ok(Some(chunk))) => Replies::Server(chunk),
            Poll::Ready(Ok(None)) => Replies::ServerLost("closed the connection".to_owned()),
            Poll::Ready(Err(error)) => Replies::ServerLost(error.to_string()),
            Poll::Pending => none,
        }
    }

    /// Takes the server connection and its input out, for a scan of the input.
    pub(super) fn take_input<'i>(&mut self, chunk: Chunk<'i>) -> Option<(Box<C>, ServerInput<'i>)> {
        let mut server = self.server.take()?;
        let input = ServerInput::behind(&mut server.core_mut().held, chunk, self.worker);
        Some((server, input))
    }

    /// Takes the server connection out because it was lost, and records that.
    pub(super) fn take_lost_server(&mut self, why: &str) -> Option<Box<C>> {
        let server = self.server.take()?;
        self.acquirer.note_loss(&server, why);
        Some(server)
    }

    /// Marks the start of work on this connection. Returns the time in microseconds.
    pub(super) fn begins_work(&self, server: &C) -> u64 {
        self.handle.set_target(Some(&server.core().cancel_target));
        self.acquirer.begins_work()
    }

    /// Releases the connection on which a request has failed. One that is not idle is unclean.
    pub(super) fn release_failed(
        &mut self,
        is_idle: impl FnOnce(&C) -> bool,
        condition: Condition,
    ) {
        let server = self.server.take();
        self.acquirer.release_failed(server, is_idle, condition);
    }

    /// Returns the reason why an event from outside means the loss of the server. An event that
    /// only asks for a cancellation of the query is passed on.
    pub(super) fn loss_by(&self, event: SessionEvent) -> Result<Option<String>, ClientLoss> {
        match event {
            SessionEvent::ServerAbandoned => {
                let why = || "went down or is no longer the primary".to_owned();
                Ok(self.server.is_some().then(why))
            }
            SessionEvent::LivenessCheck => self.check_peers(),
            SessionEvent::QueryOvertime => {
                cancel::cancel(self.worker, self.handle);
                Ok(None)
            }
            SessionEvent::Cancelled | SessionEvent::Recheck => Ok(None),
        }
    }

    /// Checks that both peers are alive. Returns the reason if the server is not.
    fn check_peers(&self) -> Result<Option<String>, ClientLoss> {
        let client = self.client.as_ref().ok_or(ClientLoss::Left)?;
        let server = self.server.as_ref().map(|server| &server.core().stream);
        match vanished_peer(self.permit.service(), client, server) {
            Some(VanishedPeer::Client(why)) => Err(ClientLoss::Broke(why)),
            Some(VanishedPeer::Server(why)) => Ok(Some(why)),
            None => Ok(None),
        }
    }

    /// Returns how the wait for a connection ends, if the event or the time ends it.
    pub(super) fn wait_end(&mut self, event: SessionEvent) -> Option<WaitEnd> {
        if event == SessionEvent::Cancelled && self.acquirer.is_waiting() {
            self.acquirer.leave_queues();
            return Some(WaitEnd::Cancelled);
        }
        if self.acquirer.has_timed_out() {
            return Some(WaitEnd::TimedOut);
        }
        self.acquirer.should_reroute().then_some(WaitEnd::Reroute)
    }

    /// Sends these last bytes to the client.
    pub(super) async fn send_final(&mut self, out: &[u8]) {
        if let Some(client) = &mut self.client {
            client.send_final(self.worker, out).await;
        }
    }

    /// Sends bytes to the server. Returns the reason if its connection has failed.
    pub(super) fn send_to_server(&mut self, out: Vec<u8>) -> Result<(), String> {
        let Some(server) = &mut self.server else {
            self.worker.keep_spare(out);
            return Ok(());
        };
        let sent = server.core_mut().stream.send_own(self.worker, out);
        sent.map_err(|error| error.to_string())
    }

    /// Takes the server connection at the end of the session. After a panic it is closed, because
    /// the recorded state of the session may be incomplete.
    pub(super) fn take_server_at_end(&mut self) -> Option<Box<C>> {
        let server = self.server.take()?;
        if std::thread::panicking() {
            self.acquirer.release(server, Condition::Unclean);
            return None;
        }
        Some(server)
    }

    /// Returns how the server connection is released at the end of the session. `wanted`: what the
    /// pins require; `is_quiet`: neither side owes anything; `is_open`: a transaction is open, or
    /// something else that a reset ends.
    pub(super) fn end_action(
        &self,
        wanted: ReleaseAction,
        is_quiet: bool,
        is_open: bool,
    ) -> ReleaseAction {
        match wanted {
            _ if !is_quiet => ReleaseAction::Close,
            ReleaseAction::Keep if is_open || self.keeps_connection() => ReleaseAction::Reset,
            wanted => wanted,
        }
    }

    /// Releases the server connection at the end of the session. `renew` resets it, and returns
    /// whether another session can have it then.
    pub(super) fn release_at_end(
        &self,
        server: Box<C>,
        action: ReleaseAction,
        renew: impl AsyncFnOnce(&mut C) -> bool + 'static,
    ) {
        match action {
            ReleaseAction::Keep => self.acquirer.release(server, Condition::Clean),
            ReleaseAction::Reset => self.acquirer.release_renewed(server, renew),
            ReleaseAction::Close => self.acquirer.release(server, Condition::Unclean),
        }
    }
}
