//! Handles sessions of services with `protocol = "http"`: reads one request after another, sends
//! each to a server over a pooled connection, and passes the response on.
//!
//! A response is complete before the next request of the client is begun (RFC 9112 §9.3.2). During
//! an exchange, both directions are polled: a server may answer before it has read the request.

mod acquire;
mod admit;
mod answer;
mod auth;
mod bulk;
mod client;
mod compress;
mod download;
mod exchange;
mod finish;
mod forward;
mod greet;
mod grpc;
mod http2;
mod limits;
mod log;
mod mirror;
mod request;
mod request_id;
mod response;
mod server;
mod target;
mod tunnel;
mod upload;
mod websocket;

use std::cell::RefCell;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use evenkeel_engine::clock;
use evenkeel_engine::relay::ByteDirection;
use evenkeel_engine::socket::Socket;
use evenkeel_policy::connection_pool::Condition;
use evenkeel_wire::http::{RequestHead, ResponseHead};

use self::auth::{Checking, KnownPasswords};
use self::client::Client;
use self::download::Download;
use self::exchange::Exchange;
use self::greet::Greeted;
use self::server::ServerConnection;
use self::target::Target;
use self::tunnel::Tunnel;
use super::proxy_protocol;
use super::steps::poll_steps;
use crate::access_log::AccessLog;
use crate::record::{Record, TerminationReason};
use crate::server::Server;
use crate::service::http::HttpService;
use crate::service::http::stats::HttpStats;
use crate::service::{ClientPermit, Service};
use crate::session::handle::{SessionEvent, SessionHandle};
use crate::upstream::worker_pool::{WaitResult, WaitSlot};
use crate::worker::Worker;

/// Maximum length in bytes of input that a client may send in advance.
const HELD_LENGTH_MAX: usize = 64 * 1024;

/// Time, in milliseconds, in which a client may end its side after the last response.
const LINGER_MS: u64 = 1_000;

/// Heads that the sessions of a worker use one after another, so that no session has the memory.
#[derive(Default)]
struct Heads {
    request: RefCell<RequestHead>,
    /// Head of a request on its way to a server of HTTP/2.
    outgoing: RefCell<RequestHead>,
    response: RefCell<ResponseHead>,
}

/// Session of one client.
struct Session<'a> {
    worker: &'a Rc<Worker>,
    /// The service that the client has connected to.
    service: &'a Arc<Service>,
    handle: &'a SessionHandle,
    /// Servers of that service.
    own: Rc<Target>,
    slot: Rc<WaitSlot<ServerConnection>>,
    heads: Rc<Heads>,
    log: Rc<AccessLog>,
    passwords: Rc<KnownPasswords>,
    client: Client,
    peer: Peer,
    /// Bytes of the client that have not been processed.
    input: Vec<u8>,
    stage: Stage,
    exchange: Exchange,
}

/// Address of a client.
#[derive(Clone)]
struct Peer {
    address: Option<SocketAddr>,
    /// The address as text; empty on a Unix socket.
    text: Rc<str>,
}

/// Progress of a session with its current request.
enum Stage {
    /// The next request head is awaited.
    Head(HeadProgress),
    /// The password of the request's user is verified.
    Checking(Box<Checking>),
    /// The request waits for a connection, until this time in milliseconds of the clock.
    Waiting { until_ms: u64 },
    /// The request is sent, as far as received, and the head of the response is awaited.
    Response,
    /// The body of the response is passed on.
    Body(Download),
    /// Both sides send without order, after a change of the protocol.
    Tunnel(Tunnel),
    /// An answer of Evenkeel is sent instead of a response.
    Answer,
    /// The last bytes are sent; then the own side of the connection is ended.
    Closing(TerminationReason),
    /// The own side has ended, and the client's is awaited: a close before that would reset the
    /// connection if the client still sends, and could destroy the last bytes.
    Lingering(TerminationReason),
}

/// Bytes of the next request head.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HeadProgress {
    /// None.
    Nothing,
    /// Some that have not been parsed.
    Unread,
    /// The beginning of a head.
    Partial,
}

/// Reason why a session ends without a complete response.
enum ExitReason {
    /// The client has disconnected.
    ClientLeft,
    /// The client's connection failed.
    ClientBroke(String),
    /// The server connection failed in the middle of a response: the client's is reset, so that it
    /// does not take a part for the whole.
    ServerBroke(String),
    /// All is sent; the session ends.
    Done(TerminationReason),
    /// Both sides have ended, or the client's had enough time.
    Closed(TerminationReason),
    /// A time limit has passed in the middle of a message: the client's connection is reset.
    TimedOut(TerminationReason),
}

/// Serves one client until the session ends, and returns the reason for its end.
pub(super) async fn serve_session(
    worker: &Rc<Worker>,
    permit: &ClientPermit,
    handle: &SessionHandle,
    shared: &Arc<HttpService>,
    socket: Socket,
    record: &mut Record,
) -> TerminationReason {
    let Some(own) = Target::own(worker, permit.service(), shared) else {
        return TerminationReason::NoServer;
    };
    if let Err(ending) = proxy_protocol::read_client_address(handle, &socket, record).await {
        return ending;
    }
    let address = record.client.map(|client| client.ip());
    if address.is_some_and(|address| is_refused(permit, address)) {
        socket.reset_on_close();
        return TerminationReason::Flooding;
    }
    let mut early = Vec::new();
    let greeting = Box::pin(greet::greet(worker, permit, socket, &mut early));
    let greeted = match handle.run_interruptible(greeting).await {
        Ok(Ok(greeted)) => greeted,
        Ok(Err(ending)) => return ending,
        Err(interrupt) => return interrupt.ending(),
    };
    handle.serve_requests();
    let peer = Peer::new(record.client);
    match greeted {
        Greeted::Http1(stream) => {
            let client = Client::Http1(stream);
            let mut session = Session::new((worker, permit.service(), handle), own, client, peer);
            session.begin_with(early);
            session.await_head();
            session.run().await
        }
        Greeted::Http2(stream) => {
            let server = (worker, permit.service(), handle);
            http2::serve_connection(server, own, stream, peer, early).await
        }
    }
}

/// Returns whether connections of this client are refused after too many floods.
fn is_refused(permit: &ClientPermit, address: IpAddr) -> bool {
    let view = permit.service().snapshot();
    view.http()
        .is_some_and(|http| http.clients.refuses(address))
}

impl Peer {
    fn new(address: Option<SocketAddr>) -> Self {
        let text = address.map(|peer| peer.ip().to_canonical().to_string());
        Self {
            address,
            text: text.unwrap_or_default().into(),
        }
    }
}

impl<'a> Session<'a> {
    fn new(
        (worker, service, handle): (&'a Rc<Worker>, &'a Arc<Service>, &'a SessionHandle),
        own: Rc<Target>,
        client: Client,
        peer: Peer,
    ) -> Self {
        Self {
            worker,
            service,
            handle,
            own,
            slot: WaitSlot::new(),
            heads: worker.local::<Heads>(),
            log: worker.local::<AccessLog>(),
            passwords: worker.local::<KnownPasswords>(),
            client,
            peer,
            stage: Stage::Head(HeadProgress::Nothing),
            input: Vec::new(),
            exchange: Exchange::default(),
        }
    }

    /// Continues with bytes that the client has sent already.
    fn begin_with(&mut self, early: Vec<u8>) {
        if !early.is_empty() {
            self.stage = Stage::Head(HeadProgress::Unread);
            self.input = early;
        }
    }

    /// Runs until the session ends.
    async fn run(mut self) -> TerminationReason {
        let handle = self.handle;
        let polling = poll_fn(|context| self.poll(context));
        let outcome = handle.run_interruptible(polling).await;
        match outcome {
            Ok(exit) => self.end(exit),
            Err(interrupt) => self.end_cut(interrupt.ending()),
        }
    }
}

impl Session<'_> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<ExitReason> {
        poll_steps(context, |context| self.step(context))
    }

    /// Runs one step that is possible now. Returns false if none is.
    fn step(&mut self, context: &mut Context<'_>) -> Result<bool, ExitReason> {
        if let Some(event) = self.handle.take_event() {
            self.handle_event(event)?;
            return Ok(true);
        }
        match &self.stage {
            Stage::Head(_) => self.step_head(context),
            Stage::Checking(_) => self.step_checking(context),
            Stage::Waiting { .. } => self.step_waiting(context),
            Stage::Response | Stage::Body(_) => self.step_exchange(context),
            Stage::Answer => self.step_answer(context),
            Stage::Tunnel(progress) => self.step_tunnel(*progress, context),
            Stage::Closing(_) => self.step_closing(context),
            Stage::Lingering(_) => self.step_lingering(context),
        }
    }

    fn step_waiting(&mut self, context: &mut Context<'_>) -> Result<bool, ExitReason> {
        match self.slot.take(context) {
            Some(WaitResult::Connection(connection)) => self.send_request(connection)?,
            Some(WaitResult::Again) => self.acquire()?,
            Some(WaitResult::Failed(error)) => self.connect_failed(error)?,
            None => return self.watch_client(context),
        }
        Ok(true)
    }

    fn step_exchange(&mut self, context: &mut Context<'_>) -> Result<bool, ExitReason> {
        if self.step_response(context)? {
            return Ok(true);
        }
        if self.exchange.upload.is_done() {
            return self.watch_client(context);
        }
        self.step_upload(context)
    }

    /// Waits until the last bytes are with the kernel, and ends the own side.
    fn step_closing(&mut self, context: &mut Context<'_>) -> Result<bool, ExitReason> {
        match self.client.poll_end(context) {
            Poll::Pending => return Ok(false),
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => return Err(ExitReason::ClientBroke(error.to_string())),
        }
        if let Stage::Closing(ending) = std::mem::replace(&mut self.stage, Stage::Answer) {
            if !self.client.serves_more() {
                return Err(ExitReason::Closed(ending));
            }
            self.handle
                .set_request_deadline(clock::now_ms() + LINGER_MS);
            self.stage = Stage::Lingering(ending);
        }
        Ok(true)
    }

    /// Discards what the client sends until its side ends.
    fn step_lingering(&mut self, context: &mut Context<'_>) -> Result<bool, ExitReason> {
        match self.client.poll_chunk(self.worker, context) {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(Some(_))) => Ok(true),
            Poll::Ready(Ok(None) | Err(_)) => Err(self.linger_over()),
        }
    }

    /// Returns the end of a client that was lingering.
    fn linger_over(&mut self) -> ExitReason {
        match std::mem::replace(&mut self.stage, Stage::Answer) {
            Stage::Lingering(ending) => ExitReason::Closed(ending),
            _ => ExitReason::ClientLeft,
        }
    }

    /// Receives what the client sends although its request is complete: requests in advance, or the
    /// end of the connection.
    fn watch_client(&mut self, context: &mut Context<'_>) -> Result<bool, ExitReason> {
        if self.input.len() >= HELD_LENGTH_MAX {
            return Ok(false);
        }
        match self.client.poll_chunk(self.worker, context) {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(Some(chunk))) => {
                if self.input.is_empty() {
                    self.input = self.worker.take_spare();
                }
                self.input.extend_from_slice(chunk.bytes());
                let length = chunk.bytes().len();
                drop(chunk);
                self.count(ByteDirection::FromClient, length);
                Ok(true)
            }
            Poll::Ready(Ok(None)) => Err(ExitReason::ClientLeft),
            Poll::Ready(Err(error)) => Err(ExitReason::ClientBroke(error.to_string())),
        }
    }

    fn handle_event(&mut self, event: SessionEvent) -> Result<(), ExitReason> {
        match event {
            SessionEvent::Recheck => self.handle_deadline(),
            SessionEvent::ServerAbandoned => self.handle_abandoned_server(),
            SessionEvent::LivenessCheck | SessionEvent::QueryOvertime | SessionEvent::Cancelled => {
                Ok(())
            }
        }
    }

    /// Returns the service whose servers answer the current request.
    fn target(&self) -> &Rc<Target> {
        self.exchange.target.as_ref().unwrap_or(&self.own)
    }

    /// Counts bytes between the client and the current server.
    fn count(&mut self, direction: ByteDirection, length: usize) {
        if length == 0 {
            return;
        }
        match direction {
            ByteDirection::ToClient => self.exchange.sent.bytes += length as u64,
            ByteDirection::FromClient if matches!(self.stage, Stage::Tunnel(_)) => {
                self.exchange.body_bytes += length as u64;
            }
            ByteDirection::FromClient => {}
        }
        let server = self.exchange.place.as_ref().map(|place| &*place.server);
        let length = length as u64;
        match &self.client {
            Client::Http1(_) => {
                let handle = self.handle;
                handle.count_bytes(self.worker, direction, length, server);
            }
            // The connection counts those of its client.
            Client::Http2(_) => count_server_bytes(self.worker, direction, length, server),
        }
    }

    fn stats(&self) -> &HttpStats {
        &self.own.shared.stats()[self.worker.index()]
    }

    /// Closes the client's connection, and returns the reason for the record.
    fn end(mut self, exit: ExitReason) -> TerminationReason {
        let is_whole = matches!(exit, ExitReason::Done(_) | ExitReason::Closed(_));
        self.log_exit(&exit);
        self.abandon_exchange(is_whole);
        let client = self.client;
        match exit {
            ExitReason::Done(ending) => {
                client.close(self.worker);
                ending
            }
            ExitReason::Closed(ending) => ending,
            ExitReason::ClientLeft => TerminationReason::ClientClosed,
            ExitReason::ClientBroke(why) => TerminationReason::ResetByClient(why),
            ExitReason::ServerBroke(why) => {
                client.reset();
                TerminationReason::ResetByServer(why)
            }
            ExitReason::TimedOut(ending) => {
                client.reset();
                ending
            }
        }
    }

    /// Ends a session that is interrupted from outside.
    fn end_cut(mut self, ending: TerminationReason) -> TerminationReason {
        let is_idle = matches!(
            self.stage,
            Stage::Head(HeadProgress::Nothing) | Stage::Lingering(_)
        );
        self.log_cut(&ending);
        self.abandon_exchange(is_idle);
        match is_idle {
            true => self.client.close(self.worker),
            false => self.client.reset(),
        }
        ending
    }

    /// Releases what the current request holds. A server connection in use is closed, which cancels
    /// the request there.
    fn abandon_exchange(&mut self, is_whole: bool) {
        if !is_whole && self.exchange.has_begun() {
            self.stats().aborted.add(1);
        }
        let target = Rc::clone(self.target());
        target.worker_pool.leave_queue(&self.slot);
        if let Some(WaitResult::Connection(connection)) = self.slot.take_late() {
            target.worker_pool.release(connection, Condition::Clean);
        }
        if let Some(server) = self.exchange.server.take() {
            server.abandon(&target.worker_pool);
        }
        if !is_whole && matches!(self.stage, Stage::Tunnel(_)) {
            self.client.cancel();
        }
        self.end_retry();
        self.exchange.place = None;
    }
}

fn count_server_bytes(
    worker: &Worker,
    direction: ByteDirection,
    length: u64,
    server: Option<&Server>,
) {
    let bytes = server.map(|server| server.counters.bytes.of(worker.index()));
    match (direction, bytes) {
        (ByteDirection::FromClient, Some(bytes)) => bytes.add_from_client(length),
        (ByteDirection::ToClient, Some(bytes)) => bytes.add_to_client(length),
        (_, None) => {}
    }
}
