//! Task of a connection: receives, sends, and starts a task for each request.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use evenkeel_engine::clock;
use evenkeel_engine::relay::ByteDirection;
use evenkeel_engine::stream::Stream;
use evenkeel_wire::http::{Fault, Limit};
use evenkeel_wire::http2::{
    Connection, ConnectionError, ErrorCode, Event, HeadFault, Read, StreamId,
};

use super::shared::{BodyEnd, OUTPUT_MAX, Shared, StreamState, add_line};
use super::stream::ClientStream;
use crate::record::TerminationReason;
use crate::service::Service;
use crate::session::handle::{SWEEP_INTERVAL, SessionEvent, SessionHandle};
use crate::session::http::acquire::http2_limits;
use crate::session::http::client::Client;
use crate::session::http::target::Target;
use crate::session::http::{Peer, Session};
use crate::session::lingering_close;
use crate::session::steps::poll_steps;
use crate::worker::Worker;

/// Time in milliseconds after which the limits of a connection with streams are checked again.
const CHECK_MS: u64 = 1_000;

/// Reason for the end of a stream whose connection has ended.
const DISCONNECTED: &str = "the client disconnected";

/// A connection, as its own task sees it.
struct Served<'a> {
    worker: &'a Rc<Worker>,
    service: &'a Arc<Service>,
    handle: &'a SessionHandle,
    own: Rc<Target>,
    peer: Peer,
    stream: Stream,
    /// Received bytes that are the beginning of a frame.
    input: Vec<u8>,
    shared: Rc<Shared>,
    phase: Phase,
    /// Time at which a connection without streams ends, in milliseconds of the clock. `None`: it
    /// has streams, as far as it was last seen.
    idle_until_ms: Option<u64>,
}

/// Progress of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The client may open streams.
    Open,
    /// The client was asked to open no more streams, which it may not know yet.
    Announced,
    /// No more streams are accepted. The connection ends after those that there are.
    Draining,
    /// The last bytes are sent; then the connection ends.
    Closing,
}

/// End of a connection.
enum End {
    /// All is sent.
    Done(TerminationReason),
    /// The client has ended it, or it has failed.
    Broken(TerminationReason),
}

/// Serves a connection until it ends, and returns the reason for its end. `early` are bytes that
/// the client has sent already.
pub(in crate::session::http) async fn serve_connection(
    (worker, service, handle): (&Rc<Worker>, &Arc<Service>, &SessionHandle),
    own: Rc<Target>,
    stream: Stream,
    peer: Peer,
    early: Vec<u8>,
) -> TerminationReason {
    let view = service.snapshot_owned();
    let Some(http) = view.http() else {
        return TerminationReason::NoServer;
    };
    let mut codec = Connection::server(http2_limits(http));
    let mut out = worker.take_spare();
    codec.begin(&mut out);
    let tls = (stream.is_encrypted(), stream.client_policy().copied());
    let mut served = Served {
        worker,
        service,
        handle,
        own,
        peer,
        stream,
        input: early,
        shared: Rc::new(Shared::new(codec, out, tls)),
        phase: Phase::Open,
        idle_until_ms: None,
    };
    served.check_idle();
    if let Err(end) = served.read_input() {
        return served.end(end);
    }
    let polling = poll_fn(|context| served.poll(context));
    let outcome = handle.run_interruptible(polling).await;
    match outcome {
        Ok(end) => served.end(end),
        Err(interrupt) => served.end(End::Broken(interrupt.ending())),
    }
}

impl Served<'_> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<End> {
        self.shared.state().watch(context);
        poll_steps(context, |context| self.step(context))
    }

    /// Runs one step that is possible now. Returns false if none is.
    fn step(&mut self, context: &mut Context<'_>) -> Result<bool, End> {
        if let Some(event) = self.handle.take_event() {
            self.handle_event(event);
            return Ok(true);
        }
        // The client may not know of the end yet; the next check takes the second step.
        if self.phase == Phase::Open && self.own.shared.is_draining() {
            self.announce_end();
        }
        let is_sent = match self.stream.poll_sent(context) {
            Poll::Pending => false,
            Poll::Ready(Ok(())) => {
                if self.flush()? {
                    return Ok(true);
                }
                true
            }
            Poll::Ready(Err(error)) => return Err(reset(&error)),
        };
        if self.phase == Phase::Draining && self.shared.state().streams.is_empty() {
            self.phase = Phase::Closing;
        }
        if self.phase == Phase::Closing && is_sent {
            return Err(End::Done(TerminationReason::ServerClosed));
        }
        self.receive(context)
    }

    /// Sends what is there. Returns whether it has sent bytes. Streams that had to wait continue.
    fn flush(&mut self) -> Result<bool, End> {
        let mut state = self.shared.state();
        if state.out.is_empty() {
            return Ok(false);
        }
        // An idle connection holds no memory for sends.
        let next = match state.streams.is_empty() {
            true => Vec::new(),
            false => self.worker.take_spare(),
        };
        let out = state.take_output(next);
        if out.len() >= OUTPUT_MAX {
            state.wake_streams();
        }
        drop(state);
        self.count(ByteDirection::ToClient, out.len());
        match self.stream.send_own(self.worker, out) {
            Ok(()) => Ok(true),
            Err(error) => Err(reset(&error)),
        }
    }

    /// Receives, unless the client does not take what it has caused.
    fn receive(&mut self, context: &mut Context<'_>) -> Result<bool, End> {
        if self.shared.state().out.len() >= OUTPUT_MAX {
            return Ok(false);
        }
        let chunk = match self.stream.poll_chunk(self.worker, context) {
            Poll::Pending => return Ok(false),
            Poll::Ready(Ok(Some(chunk))) => chunk,
            Poll::Ready(Ok(None)) => return Err(End::Broken(TerminationReason::ClientClosed)),
            Poll::Ready(Err(error)) => return Err(reset(&error)),
        };
        let length = chunk.bytes().len();
        if self.input.is_empty() {
            let used = self.read(chunk.bytes());
            let rest = chunk.bytes().get(used..).unwrap_or_default();
            self.input.extend_from_slice(rest);
            drop(chunk);
        } else {
            self.input.extend_from_slice(chunk.bytes());
            drop(chunk);
            self.read_input()?;
        }
        // With streams, the limits are checked all the time.
        if self.idle_until_ms.is_some() && self.shared.state().codec.due_ms().is_some() {
            self.check_idle();
        }
        self.count(ByteDirection::FromClient, length);
        Ok(true)
    }

    fn read_input(&mut self) -> Result<(), End> {
        let input = std::mem::take(&mut self.input);
        let used = self.read(&input);
        self.input = input;
        self.input.drain(..used);
        if self.input.is_empty() {
            self.worker.keep_spare(std::mem::take(&mut self.input));
        }
        Ok(())
    }

    /// Reads frames, and returns the number of bytes that were used.
    fn read(&mut self, bytes: &[u8]) -> usize {
        let now_ms = clock::now_ms();
        let mut used = 0;
        while self.phase != Phase::Closing {
            let rest = bytes.get(used..).unwrap_or_default();
            let mut state = self.shared.state();
            let shared = &mut *state;
            match shared.codec.read(rest, now_ms, &mut shared.out) {
                Read::Incomplete => return used,
                Read::Used { length, event } => {
                    drop(state);
                    if let Some(event) = event {
                        self.handle_frame(event, rest);
                    }
                    used += length;
                }
                Read::Failed(error) => {
                    drop(state);
                    self.record_failure(error);
                    self.phase = Phase::Closing;
                }
            }
        }
        bytes.len()
    }

    fn handle_frame(&mut self, event: Event, bytes: &[u8]) {
        match event {
            Event::Request {
                stream,
                end,
                content_length,
            } => self.begin_request(stream, StreamState::new(end, content_length)),
            Event::Refused { stream, why } => self.refuse(stream, why),
            Event::Data { stream, range, end } => {
                let mut state = self.shared.state();
                state.receive(stream, bytes.get(range).unwrap_or_default());
                if end {
                    state.end_body(stream, BodyEnd::Ended(Vec::new()));
                }
            }
            Event::Trailers { stream } => {
                let mut state = self.shared.state();
                let mut lines = Vec::new();
                let trailers = state.codec.trailers().fields();
                trailers.for_each(|field| add_line(&mut lines, field));
                state.end_body(stream, BodyEnd::Ended(lines));
            }
            Event::Reset { stream, why, .. } => {
                let why = why.unwrap_or("the client has reset the stream");
                self.shared.state().end_body(stream, BodyEnd::Broken(why));
            }
            Event::WindowOpened { stream } => self.shared.state().window_opened(stream),
            Event::GoAway { .. } => self.phase = Phase::Draining,
            // Events of the client side.
            Event::Response { .. } | Event::Unprocessed { .. } => {}
        }
    }

    fn begin_request(&mut self, id: StreamId, stream: StreamState) {
        let mut head = self.worker.take_spare();
        {
            let mut state = self.shared.state();
            head.extend_from_slice(state.codec.head_text());
            state.streams.insert(id, stream);
        }
        self.spawn(id, Begin::Head(head));
        if self.idle_until_ms.take().is_some() {
            self.check_idle();
        }
    }

    /// Answers a request whose head exceeds a limit.
    fn refuse(&mut self, id: StreamId, why: HeadFault) {
        let view = self.service.snapshot();
        let size = view.http().map_or(0, |http| http.size_limits.head);
        tracing::debug!(service = %self.service.name, "HTTP/2 request refused: {why:?}");
        let mut state = self.shared.state();
        state.streams.insert(id, StreamState::new(true, None));
        drop(state);
        self.spawn(id, Begin::Fault(Fault::Limit(Limit::HeadBytes(size))));
    }

    /// Starts the task of a request.
    fn spawn(&self, id: StreamId, begin: Begin) {
        let client = Client::Http2(ClientStream::new(Rc::clone(&self.shared), id));
        let (worker, service) = (Rc::clone(self.worker), Arc::clone(self.service));
        let (own, peer) = (Rc::clone(&self.own), self.peer.clone());
        let handle = Rc::new(SessionHandle::new(Arc::clone(&service)));
        let registered = self.worker.register_stream(Rc::clone(&handle));
        self.worker.spawn(async move {
            let _registered = registered;
            handle.serve_requests();
            let mut session = Session::new((&worker, &service, &handle), own, client, peer);
            match begin {
                Begin::Head(head) => session.begin_with(head),
                Begin::Fault(fault) => session.begin_refused(&fault),
            }
            session.run().await;
        });
    }

    fn handle_event(&mut self, event: SessionEvent) {
        if !matches!(event, SessionEvent::Recheck) {
            return;
        }
        let now_ms = clock::now_ms();
        if let Err(error) = self.check_codec(now_ms) {
            self.record_failure(error);
            self.phase = Phase::Closing;
        }
        let is_over = self
            .idle_until_ms
            .is_some_and(|until_ms| now_ms >= until_ms);
        if is_over || self.own.shared.is_draining() {
            self.announce_end();
        }
        self.check_idle();
    }

    /// Checks the time limits of the codec.
    fn check_codec(&self, now_ms: u64) -> Result<(), ConnectionError> {
        let mut state = self.shared.state();
        let shared = &mut *state;
        while let Some(event) = shared.codec.check(now_ms, &mut shared.out)? {
            if let Event::Reset { stream, why, .. } = event {
                let why = why.unwrap_or(DISCONNECTED);
                shared.end_body(stream, BodyEnd::Broken(why));
            }
        }
        Ok(())
    }

    /// Logs the reason for the end of the connection, and counts a flood.
    fn record_failure(&self, error: ConnectionError) {
        let address = self.peer.address.map(|client| client.ip());
        if let Some(address) = address.filter(|_| error.code == ErrorCode::EnhanceYourCalm) {
            let view = self.service.snapshot();
            view.http()
                .inspect(|http| http.clients.count_flood(address));
        }
        let client = &*self.peer.text;
        let (service, why) = (&self.service.name, error.why);
        tracing::info!(%service, client, "HTTP/2 connection ended: {why}");
    }

    /// Asks the client to open no more streams; a second time, later streams are refused. A stream
    /// that the client has opened meanwhile is served (RFC 9113 §6.8).
    fn announce_end(&mut self) {
        let next = match self.phase {
            Phase::Open => Phase::Announced,
            Phase::Announced => Phase::Draining,
            Phase::Draining | Phase::Closing => return,
        };
        self.phase = next;
        let mut state = self.shared.state();
        let shared = &mut *state;
        shared.codec.close_gracefully(&mut shared.out);
    }

    /// Sets the time of the next check: the limit of a connection without streams, or soon.
    fn check_idle(&mut self) {
        let view = self.service.snapshot();
        let keepalive = view.http().map(|http| http.time_limits.keepalive);
        let now_ms = self.worker.last_sweep_ms() + SWEEP_INTERVAL.as_millis() as u64;
        let (is_idle, due_ms) = {
            let state = self.shared.state();
            (state.streams.is_empty(), state.codec.due_ms())
        };
        self.idle_until_ms = match (is_idle, keepalive) {
            (false, _) | (true, None | Some(Duration::ZERO)) => None,
            (true, Some(limit)) => {
                let until_ms = now_ms + limit.as_millis() as u64;
                Some(self.idle_until_ms.unwrap_or(until_ms))
            }
        };
        let until_ms = match self.phase {
            Phase::Open => {
                let until_ms = self.idle_until_ms.unwrap_or(now_ms + CHECK_MS);
                until_ms.min(due_ms.unwrap_or(u64::MAX))
            }
            Phase::Announced | Phase::Draining | Phase::Closing => now_ms + CHECK_MS,
        };
        self.handle.set_request_deadline(until_ms);
    }

    fn count(&self, direction: ByteDirection, length: usize) {
        self.handle
            .count_bytes(self.worker, direction, length as u64, None);
    }

    /// Ends the connection and its streams, and returns the reason for the record.
    fn end(self, end: End) -> TerminationReason {
        self.shared.state().break_all(DISCONNECTED);
        match end {
            End::Done(ending) => {
                let mut stream = self.stream;
                stream.send_and_close(&[]);
                lingering_close::close_gracefully(self.worker, stream.into_parts().0);
                ending
            }
            End::Broken(ending) => {
                if !matches!(ending, TerminationReason::ClientClosed) {
                    self.stream.socket().reset_on_close();
                }
                ending
            }
        }
    }
}

/// First step of a stream.
enum Begin {
    /// The text of a request head.
    Head(Vec<u8>),
    /// A request that is refused.
    Fault(Fault),
}

fn reset(error: &std::io::Error) -> End {
    End::Broken(TerminationReason::ResetByClient(error.to_string()))
}
