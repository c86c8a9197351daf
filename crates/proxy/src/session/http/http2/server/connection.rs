//! Task of a connection to a server: receives and sends for all its streams.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use evenkeel_engine::{clock, timers};
use evenkeel_policy::connection_pool::Condition;
use evenkeel_wire::http2::{ConnectionError, ErrorCode, Event, ExtendedConnect, Read};

use super::connections::SharedConnection;
use crate::session::http::http2::shared::{BodyEnd, OUTPUT_MAX, add_line};
use crate::session::http::server::ServerConnection;
use crate::session::steps::poll_steps;
use crate::upstream::worker_pool::{OfferSlot, WorkerPool};
use crate::worker::Worker;

/// Time between two checks of the limits of a connection.
const CHECK: Duration = Duration::from_secs(1);

/// Reason for the end of a stream whose connection the server has closed.
const CLOSED: &str = "the server closed the connection";

/// Reason for the end of a stream whose connection has failed.
const FAILED: &str = "the connection to the server failed";

/// Reason for the end of a stream that the server has reset.
const RESET: &str = "the server has reset the stream";

/// A connection, as its own task sees it.
pub(super) struct Serving {
    worker: Rc<Worker>,
    worker_pool: Rc<WorkerPool<ServerConnection>>,
    connection: Box<ServerConnection>,
    shared: Rc<SharedConnection>,
    /// Received bytes that are the beginning of a frame.
    input: Vec<u8>,
    phase: Phase,
    /// Time since when the connection has had no stream, as far as the checks have seen, in
    /// milliseconds of the clock.
    idle_since_ms: Option<u64>,
    /// Whether the server accepts extended CONNECT, as far as the exchanges know.
    connect: ExtendedConnect,
    /// Offer of a connection without streams to requests that wait for another one.
    offer: Rc<OfferSlot>,
}

/// Progress of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// The last bytes are sent; then the connection ends.
    Closing,
}

impl Serving {
    pub(super) fn new(
        worker: &Rc<Worker>,
        worker_pool: &Rc<WorkerPool<ServerConnection>>,
        mut connection: Box<ServerConnection>,
        shared: &Rc<SharedConnection>,
    ) -> Self {
        Self {
            worker: Rc::clone(worker),
            worker_pool: Rc::clone(worker_pool),
            input: std::mem::take(&mut connection.early),
            connection,
            shared: Rc::clone(shared),
            phase: Phase::Open,
            idle_since_ms: None,
            connect: ExtendedConnect::Unknown,
            offer: Rc::default(),
        }
    }

    /// Serves the streams until the connection ends.
    pub(super) async fn run(mut self) {
        let _ended = EndGuard(Rc::clone(&self.shared));
        self.read_input();
        let why = loop {
            let polling = poll_fn(|context| self.poll(context));
            match timers::timeout(CHECK, polling).await {
                Ok(why) => break why,
                Err(_) => self.check(),
            }
        };
        self.shared.state().end_by_server(why);
        // A request that has accepted the offer is served after the release.
        self.worker_pool
            .release(self.connection, Condition::Unclean);
        self.worker_pool.end_offer(&self.offer);
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<&'static str> {
        self.shared.state().watch(context);
        if self.offer.poll_accepted(context) {
            self.give_up_if_idle();
        }
        poll_steps(context, |context| self.step(context))
    }

    /// Runs one step that is possible now. Returns false if none is. Fails at the end of the
    /// connection, with the reason for its streams.
    fn step(&mut self, context: &mut Context<'_>) -> Result<bool, &'static str> {
        if self.phase == Phase::Open
            && !self.shared.accepts()
            && self.shared.state().streams.is_empty()
        {
            self.close();
        }
        let is_sent = match self.connection.core.stream.poll_sent(context) {
            Poll::Pending => false,
            Poll::Ready(Ok(())) => {
                if self.flush()? {
                    return Ok(true);
                }
                true
            }
            Poll::Ready(Err(_)) => return Err(FAILED),
        };
        if self.phase == Phase::Closing && is_sent {
            return Err(FAILED);
        }
        self.receive(context)
    }

    /// Sends what is there. Returns whether it has sent bytes. Streams that had to wait continue.
    fn flush(&mut self) -> Result<bool, &'static str> {
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
        match self.connection.core.stream.send_own(&self.worker, out) {
            Ok(()) => Ok(true),
            Err(_) => Err(FAILED),
        }
    }

    /// Receives, unless the server does not take what it has caused.
    fn receive(&mut self, context: &mut Context<'_>) -> Result<bool, &'static str> {
        if self.shared.state().out.len() >= OUTPUT_MAX {
            return Ok(false);
        }
        let worker = Rc::clone(&self.worker);
        let chunk = match self.connection.core.stream.poll_chunk(&worker, context) {
            Poll::Pending => return Ok(false),
            Poll::Ready(Ok(Some(chunk))) => chunk,
            Poll::Ready(Ok(None)) => return Err(CLOSED),
            Poll::Ready(Err(_)) => return Err(FAILED),
        };
        self.shared.note_received(worker.last_sweep_ms());
        if self.input.is_empty() {
            let used = self.read(chunk.bytes());
            let rest = chunk.bytes().get(used..).unwrap_or_default();
            self.input.extend_from_slice(rest);
        } else {
            self.input.extend_from_slice(chunk.bytes());
            drop(chunk);
            self.read_input();
        }
        Ok(true)
    }

    fn read_input(&mut self) {
        let input = std::mem::take(&mut self.input);
        let used = self.read(&input);
        self.input = input;
        self.input.drain(..used);
        if self.input.is_empty() {
            self.worker.keep_spare(std::mem::take(&mut self.input));
        }
    }

    fn read(&mut self, bytes: &[u8]) -> usize {
        let used = self.read_frames(bytes);
        let connect = self.shared.offers_connect();
        if connect != self.connect {
            self.connect = connect;
            self.shared.note_settings(connect);
        }
        used
    }

    /// Reads frames, and returns the number of bytes that were used.
    fn read_frames(&mut self, bytes: &[u8]) -> usize {
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
                    self.fail(error);
                }
            }
        }
        bytes.len()
    }

    fn handle_frame(&mut self, event: Event, bytes: &[u8]) {
        let mut state = self.shared.state();
        match event {
            Event::Response {
                stream,
                end,
                content_length,
            } => state.receive_head(stream, content_length, end),
            Event::Data { stream, range, end } => {
                state.receive(stream, bytes.get(range).unwrap_or_default());
                if end {
                    state.end_body(stream, BodyEnd::Ended(Vec::new()));
                }
            }
            Event::Trailers { stream } => {
                let mut lines = Vec::new();
                let trailers = state.codec.trailers().fields();
                trailers.for_each(|field| add_line(&mut lines, field));
                state.end_body(stream, BodyEnd::Ended(lines));
            }
            Event::Reset {
                stream,
                code: ErrorCode::Cancel,
                why: None,
            } => state.cancel_by_server(stream),
            Event::Reset { stream, why, .. } => {
                state.reset_by_server(stream, why.unwrap_or(RESET));
            }
            Event::Unprocessed { stream } => state.end_body(stream, BodyEnd::Unprocessed),
            Event::WindowOpened { stream } => state.window_opened(stream),
            Event::GoAway { .. } => {
                drop(state);
                self.shared.stop_accepting();
            }
            // Of clients only.
            Event::Request { .. } | Event::Refused { .. } => {}
        }
    }

    /// Checks the limits of the codec and of the pool.
    fn check(&mut self) {
        let now_ms = clock::now_ms();
        if let Err(error) = self.check_codec(now_ms) {
            return self.fail(error);
        }
        self.idle_since_ms = match self.shared.state().streams.is_empty() {
            true => Some(self.idle_since_ms.unwrap_or(now_ms)),
            false => None,
        };
        if self
            .worker_pool
            .is_unwanted(&self.connection, self.idle_since_ms)
        {
            self.shared.stop_accepting();
        }
        match self.idle_since_ms {
            Some(_) => self.worker_pool.offer(&*self.connection, &self.offer),
            None => self.worker_pool.end_offer(&self.offer),
        }
    }

    fn check_codec(&self, now_ms: u64) -> Result<(), ConnectionError> {
        let mut state = self.shared.state();
        let shared = &mut *state;
        while let Some(event) = shared.codec.check(now_ms, &mut shared.out)? {
            if let Event::Reset { stream, why, .. } = event {
                shared.reset_by_server(stream, why.unwrap_or(FAILED));
            }
        }
        Ok(())
    }

    /// Ends a connection that a request of another pool or worker needs, unless it has streams.
    fn give_up_if_idle(&mut self) {
        let is_idle = self.shared.state().streams.is_empty();
        match is_idle {
            true => self.close(),
            false => self.worker_pool.end_offer(&self.offer),
        }
    }

    /// Ends a connection without streams.
    fn close(&mut self) {
        self.shared.stop_accepting();
        let mut state = self.shared.state();
        let shared = &mut *state;
        shared.codec.close_gracefully(&mut shared.out);
        drop(state);
        self.phase = Phase::Closing;
    }

    fn fail(&mut self, error: ConnectionError) {
        let server = &self.connection.core.pool_handle.server.name;
        tracing::warn!(%server, "HTTP/2 connection to a server ended: {}", error.why);
        self.shared.state().end_by_server(error.why);
        self.phase = Phase::Closing;
    }
}

/// Removes the connection from those of its worker when its task ends.
struct EndGuard(Rc<SharedConnection>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.remove();
    }
}
