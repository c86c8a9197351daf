//! Sends copies of requests to the mirror of their route, and discards the responses.
//!
//! A copy is a task of its own, with a connection from the mirror's pool: the client's exchange
//! does not wait for it, and does not notice its failure. A copy is sent once. It goes to a server
//! of the mirror, whose routes do not apply to it: no copy is copied.

mod connect;
mod response;

use std::rc::Rc;
use std::time::Duration;

use evenkeel_engine::{clock, fast_random, timers};
use evenkeel_policy::connection_pool::Condition;
use evenkeel_policy::http::eject::Outcome;
use evenkeel_policy::http::split::choose;
use evenkeel_wire::http::{HeadLimits, Method, Parsed, RequestEdit, write_request};

use self::response::Response;
use super::Session;
use super::exchange::Place;
use super::forward::pairs;
use super::server::{ServerConnection, ServerTransport};
use super::target::Target;
use crate::service::http::now_s;
use crate::service::http::route_stats::{CopyOutcome, CopySlot};
use crate::service::http::routes::{Mirror, RouteAction};
use crate::upstream::worker_pool::{WaitResult, WaitSlot};
use crate::worker::Worker;

/// Limit from the client's request to the end of the response to a copy, unless `request_ms` of the
/// mirror is shorter.
const COPY_TIME_MAX: Duration = Duration::from_secs(30);

/// Copy of a request, without a body.
struct RequestCopy {
    worker: Rc<Worker>,
    target: Rc<Target>,
    copy_slot: CopySlot,
    /// Head for the server.
    request: Vec<u8>,
    method: Method,
    /// Key that the `source` algorithm hashes.
    hash_key: u64,
    wait_slot: Rc<WaitSlot<ServerConnection>>,
    place: Option<Place>,
    server: Option<ServerTransport>,
    /// Time of the send, in microseconds of the clock.
    sent_us: u64,
    /// Number of bytes received so far.
    received: u64,
    response: Response,
}

/// Failure of a copy.
enum Failure {
    /// The server connection has failed.
    Broken(String),
    /// The response did not begin in time.
    Late,
    /// Another one, which shows nothing of the server's health.
    Other(String),
}

impl Session<'_> {
    /// Sends a copy of the current request to the mirror of its route, if it has one, and if the
    /// request has no body and is no change of the protocol.
    pub(super) fn mirror_request(&self) {
        let Some(action) = self.exchange.action() else {
            return;
        };
        let Some(mirror) = &action.mirror else {
            return;
        };
        let is_whole = self.exchange.upload.is_done() && self.exchange.websocket.is_none();
        let shares = [mirror.percent, 100_u32.saturating_sub(mirror.percent)];
        if !is_whole || choose(shares.into_iter(), fast_random()) != Some(0) {
            return;
        }
        match self.copy_for(mirror, action) {
            Some(copy) => self.worker.spawn(copy.run()),
            None => action
                .stats
                .count_copy(self.worker.index(), CopyOutcome::Dropped),
        }
    }

    /// Returns a copy of the current request. `None`: there are too many, the service of the mirror
    /// was removed, or the changes of the mirror cannot be made.
    fn copy_for(&self, mirror: &Mirror, action: &RouteAction) -> Option<RequestCopy> {
        let service = mirror.service.upgrade()?;
        let target = Target::routed(self.worker, &service, service.http()?)?;
        let copy_slot = action.stats.begin_copy(mirror.in_flight_max)?;
        Some(RequestCopy {
            worker: Rc::clone(self.worker),
            target,
            copy_slot,
            request: self.copied_head(mirror)?,
            method: self.exchange.method,
            hash_key: self.exchange.hash_key,
            wait_slot: WaitSlot::new(),
            place: None,
            server: None,
            sent_us: 0,
            received: 0,
            response: Response::default(),
        })
    }

    /// Returns the head that the server of the request gets, with the changes of the mirror.
    /// `None`: they cannot be made, and the mirror must not get what they remove.
    fn copied_head(&self, mirror: &Mirror) -> Option<Vec<u8>> {
        let request = &self.exchange.outgoing;
        if mirror.set_request.is_empty() && mirror.remove_request.is_empty() {
            return Some(request.clone());
        }
        let limits = HeadLimits {
            head_bytes_max: usize::MAX,
            target_bytes_max: usize::MAX,
            fields_max: usize::MAX,
            ..HeadLimits::default()
        };
        let head = &mut *self.heads.outgoing.borrow_mut();
        head.clear();
        if !matches!(head.parse(request, &limits), Parsed::Complete) {
            return None;
        }
        let remove: Vec<&[u8]> = mirror
            .remove_request
            .iter()
            .map(|name| name.as_bytes())
            .collect();
        let edit = RequestEdit {
            remove: &remove,
            set: &pairs(&mirror.set_request),
            ..RequestEdit::default()
        };
        let mut out = Vec::with_capacity(request.len());
        write_request(&mut out, head, request, &edit);
        Some(out)
    }
}

impl RequestCopy {
    /// Sends the copy, discards the response, and counts the outcome.
    async fn run(mut self) {
        let limit = self.time_limit();
        let exchanged = timers::timeout(limit, self.exchange()).await;
        let exchanged = exchanged.unwrap_or_else(|_| Err(self.overtime(limit)));
        let outcome = match exchanged {
            Ok(()) => {
                self.finish();
                CopyOutcome::Answered
            }
            Err(failure) => {
                self.abandon(&failure);
                CopyOutcome::Failed
            }
        };
        let worker = self.worker.index();
        self.copy_slot.stats().count_copy(worker, outcome);
    }

    /// Returns the limit of the whole exchange.
    fn time_limit(&self) -> Duration {
        let view = self.target.service.snapshot();
        let configured = view.http().map(|http| http.time_limits.request);
        let configured = configured.filter(|limit| !limit.is_zero());
        configured.map_or(COPY_TIME_MAX, |limit| limit.min(COPY_TIME_MAX))
    }

    /// Sends the request, and receives all of the response.
    async fn exchange(&mut self) -> Result<(), Failure> {
        self.send().await?;
        let first_byte = self.first_byte_limit();
        let begun = timers::timeout(first_byte, self.receive(Response::has_begun)).await;
        begun.unwrap_or(Err(Failure::Late))?;
        self.receive(Response::is_complete).await
    }

    fn first_byte_limit(&self) -> Duration {
        let view = self.target.service.snapshot();
        let configured = view.http().map(|http| http.time_limits.first_byte);
        let configured = configured.filter(|limit| !limit.is_zero());
        configured.unwrap_or(COPY_TIME_MAX)
    }

    /// Returns the failure of a copy whose time is over.
    fn overtime(&self, limit: Duration) -> Failure {
        match self.server.is_some() && !self.response.has_begun() {
            true => Failure::Late,
            false => Failure::Other(format!("no complete response within {limit:?}")),
        }
    }

    /// Releases the connection after a complete response.
    fn finish(&mut self) {
        let status = self.response.status();
        self.judge(Outcome::Answered { status });
        if let Some(server) = self.server.take() {
            let is_clean = self.response.is_clean();
            let now_ms = clock::now_ms();
            server.finish(&self.target.worker_pool, is_clean, now_ms);
        }
    }

    /// Releases what a copy without a complete response holds.
    fn abandon(&mut self, failure: &Failure) {
        self.judge_failure(failure);
        let why = match failure {
            Failure::Broken(why) | Failure::Other(why) => why,
            Failure::Late => "the response does not begin in time",
        };
        let (mirror, route) = (&self.target.service.name, &self.copy_slot.stats().name);
        tracing::debug!(service = %mirror, route, "copy of a request failed: {why}");
        let pool = &self.target.worker_pool;
        pool.leave_queue(&self.wait_slot);
        if let Some(WaitResult::Connection(connection)) = self.wait_slot.take_late() {
            pool.release(connection, Condition::Clean);
        }
        if let Some(server) = self.server.take() {
            server.abandon(pool);
        }
    }

    fn judge_failure(&self, failure: &Failure) {
        let Some(server) = &self.server else { return };
        match failure {
            Failure::Other(_) => {}
            Failure::Late => {
                if let ServerTransport::Http2(stream) = server {
                    stream.give_up();
                }
                self.judge(Outcome::Late);
            }
            Failure::Broken(_) if self.response.has_begun() => self.judge(Outcome::Cut),
            Failure::Broken(_) if server.is_unprocessed() => {}
            Failure::Broken(_) => {
                if let (Some(usage), Some(place)) = (server.idle_usage(), &self.place) {
                    let idle_us = self.sent_us.saturating_sub(usage.last_ms * 1_000);
                    place.of_service.idle.closed(now_s(), idle_us / 1_000);
                }
                let was_reused = server.was_used();
                self.judge(Outcome::NoAnswer { was_reused });
            }
        }
    }

    fn judge(&self, outcome: Outcome) {
        if let Some(place) = &self.place {
            let shared = &self.worker.shared;
            place.of_service.judge(shared, &place.server, outcome);
        }
    }
}

fn other(why: impl Into<String>) -> Failure {
    Failure::Other(why.into())
}
