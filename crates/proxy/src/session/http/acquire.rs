//! Picks a server for a request, acquires a connection to it, and decides what follows a failure.

use std::rc::Rc;
use std::sync::Arc;

use evenkeel_engine::clock;
use evenkeel_policy::connection_pool::PoolRefusal;
use evenkeel_policy::http::eject::Outcome;
use evenkeel_policy::http::replay::{self, Body, Facts, Progress, Replay};
use evenkeel_policy::http::sticky::Sticky;
use evenkeel_policy::server_set::Pick;
use evenkeel_wire::http::Method;
use evenkeel_wire::http2::{ExtendedConnect, Limits};

use super::exchange::{Kept, Place};
use super::http2::{Acquired, ServerConnections, ServerStream, SharedConnection};
use super::server::{ServerConnection, ServerProtocol, ServerTransport};
use super::{ExitReason, Session, Stage};
use crate::access_log::RequestEnd;
use crate::record::TerminationReason;
use crate::service::ServiceSnapshot;
use crate::service::http::{HttpSnapshot, ServerHttp2, now_s};
use crate::session::handle::RequestServer;
use crate::upstream::connect_error::{ConnectError, ConnectErrorKind};
use crate::upstream::pool_registry::PoolHandle;
use crate::upstream::worker_pool::AcquireResult;

/// Reason for a refusal.
pub(super) const QUEUE_FULL: &str =
    "too many requests wait for a connection ([service.pool] queue_length)";

impl Session<'_> {
    /// Picks a server, and requests a connection to it.
    pub(super) fn acquire(&mut self) -> Result<(), ExitReason> {
        let target = Rc::clone(self.target());
        let view = target.service.snapshot_owned();
        let Some(http) = view.http() else {
            return Err(ExitReason::Done(TerminationReason::NoServer));
        };
        let Some(index) = self.pick(&view, http) else {
            return self.no_server();
        };
        let place = Place::reserved(&view, http, index);
        let server = Arc::clone(&place.server);
        self.exchange.place = Some(place);
        let pooled = target.pool_handle(&server, http, http.server_http2);
        if http.server_http2 == ServerHttp2::Off {
            return self.acquire_alone(&pooled);
        }
        let connections = self.worker.local::<ServerConnections>();
        let pool = (target.service.id, &target.worker_pool);
        if self.exchange.websocket.is_some()
            && connections.offers_connect(target.service.id, &pooled) == ExtendedConnect::Refused
        {
            return self.acquire_for_upgrade();
        }
        let limits = http2_limits(http);
        match connections.acquire(self.worker, pool, &pooled, (&self.slot, limits)) {
            Acquired::Connection(connection) => self.send_stream(&connection),
            Acquired::Later(until_ms) => {
                self.wait_until(until_ms);
                Ok(())
            }
            Acquired::QueueFull => self.answer(503, QUEUE_FULL),
            Acquired::Http1 => self.acquire_alone(&pooled),
        }
    }

    /// Requests a connection that no other exchange uses meanwhile.
    pub(super) fn acquire_alone(&mut self, pooled: &Arc<PoolHandle>) -> Result<(), ExitReason> {
        let target = Rc::clone(self.target());
        match target.worker_pool.acquire(pooled, &self.slot) {
            AcquireResult::Now(connection) => self.send_request(connection),
            AcquireResult::Later(until_ms) => {
                self.wait_until(until_ms);
                Ok(())
            }
            AcquireResult::Refused(PoolRefusal::Outdated) => self.acquire(),
            AcquireResult::Refused(PoolRefusal::QueueFull) => self.answer(503, QUEUE_FULL),
            AcquireResult::Refused(PoolRefusal::LimitIsZero) => self.answer(
                503,
                "no connection to the server is allowed (max_connections)",
            ),
        }
    }

    /// Picks a server, and reserves a slot of its load: the one that the client's cookie names, or
    /// one by the algorithm.
    fn pick(&mut self, view: &ServiceSnapshot, http: &HttpSnapshot) -> Option<usize> {
        let tried_ids = &self.exchange.attempts.tried;
        let Some(sticky) = &http.sticky else {
            return picked(view.pick(self.exchange.hash_key, tried_ids));
        };
        let members = view.pool.members();
        let cookie = self.exchange.sticky.as_deref();
        let tried = view.members_of(tried_ids);
        if let Sticky::Server(index) = sticky.servers.decide(members, cookie, &tried) {
            // There is no limit here: the slot only counts load.
            let _ = members[index].load.try_reserve();
            return Some(index);
        }
        let index = picked(view.pick(self.exchange.hash_key, tried_ids))?;
        let value = sticky.servers.value(index);
        let value = String::from_utf8_lossy(&value);
        let secure = match self.client.is_encrypted() {
            true => "; Secure",
            false => "",
        };
        let cookie = format!("{}={value}{}{secure}", sticky.name, sticky.attributes);
        self.exchange.set_cookie = Some(cookie);
        Some(index)
    }

    /// Answers a request for which no server is left.
    fn no_server(&mut self) -> Result<(), ExitReason> {
        let counters = &Rc::clone(self.target()).service.counters;
        if self.exchange.attempts.failures > 0 {
            counters.connect_failed.add(1);
            return self.answer_unconnected("no server could be reached");
        }
        counters.no_server.add(1);
        self.answer(503, "no server is available")
    }

    /// Answers a request for which no connection could be opened. The log states the last error
    /// with the server's name.
    fn answer_unconnected(&mut self, why: &str) -> Result<(), ExitReason> {
        let error = self.exchange.attempts.connect_error.take();
        if let Some(error) = &error {
            self.note_own_end(RequestEnd::Answered, &error.message);
        }
        match error.map(|error| error.kind) {
            Some(ConnectErrorKind::Untrusted) => {
                let why = "the certificate of the server is not accepted";
                self.answer_error((502, "tls_certificate_error"), why, &[])
            }
            Some(ConnectErrorKind::Tls) => {
                let why = "TLS with the server has failed";
                self.answer_error((502, "tls_protocol_error"), why, &[])
            }
            _ => self.answer(502, why),
        }
    }

    /// Sends the request, as far as it was received.
    pub(super) fn send_request(
        &mut self,
        connection: Box<ServerConnection>,
    ) -> Result<(), ExitReason> {
        if connection.protocol == ServerProtocol::Http2 {
            let target = Rc::clone(self.target());
            let view = target.service.snapshot_owned();
            let limits = view.http().map(http2_limits).unwrap_or_default();
            let connections = self.worker.local::<ServerConnections>();
            let pool = (target.service.id, &target.worker_pool);
            let shared = connections.share(self.worker, pool, connection, limits);
            return self.send_stream(&shared);
        }
        if !self.may_use(&connection) {
            // The server may be about to close it, and this request cannot be sent again.
            let target = Rc::clone(self.target());
            target
                .worker_pool
                .replace_connection(connection, &self.slot);
            self.handle.set_request_deadline(0);
            self.stage = Stage::Waiting { until_ms: u64::MAX };
            return Ok(());
        }
        let out = std::mem::take(&mut self.exchange.outgoing);
        self.exchange.kept.add(&out, self.kept_length_max());
        self.note_sent(out.len());
        let mut transport = ServerTransport::Http1(connection);
        let sent = transport.send_own(self.worker, out);
        self.exchange.server = Some(transport);
        match sent {
            Ok(()) => Ok(()),
            Err(error) => self.server_failed(&error.to_string()),
        }
    }

    /// Sends the request, as far as it was received, over a stream of a connection.
    fn send_stream(&mut self, connection: &Rc<SharedConnection>) -> Result<(), ExitReason> {
        if self.exchange.websocket.is_some() {
            match connection.offers_connect() {
                ExtendedConnect::Offered => {}
                ExtendedConnect::Refused => return self.acquire_for_upgrade(),
                ExtendedConnect::Unknown => return self.await_settings(connection),
            }
        }
        let out = std::mem::take(&mut self.exchange.outgoing);
        let heads = Rc::clone(&self.heads);
        let opened = ServerStream::open(connection, &mut heads.outgoing.borrow_mut(), &out);
        let stream = match opened {
            Some(Ok(stream)) => stream,
            Some(Err(error)) => {
                self.worker.keep_spare(out);
                return self.answer(502, &error.to_string());
            }
            // The last stream was taken meanwhile.
            None => {
                self.exchange.outgoing = out;
                return self.acquire();
            }
        };
        self.exchange.kept.add(&out, self.kept_length_max());
        self.note_sent(out.len());
        self.worker.keep_spare(out);
        self.exchange.server = Some(ServerTransport::Http2(stream));
        Ok(())
    }

    /// Waits for a connection or a stream until this time in milliseconds of the clock.
    pub(super) fn wait_until(&mut self, until_ms: u64) {
        self.handle.set_request_deadline(until_ms);
        self.stage = Stage::Waiting { until_ms };
    }

    /// Records that the request is sent, with this number of bytes, and awaits the response.
    fn note_sent(&mut self, length: usize) {
        let server = self.exchange.place.as_ref().map(|place| &place.server);
        self.handle
            .set_request_server(server.map(|server| RequestServer {
                service_id: self.target().service.id,
                server_id: server.id,
            }));
        if let Some(server) = server {
            let bytes = server.counters.bytes.of(self.worker.index());
            bytes.add_from_client(length as u64);
        }
        self.exchange.sent_us = clock::now_us();
        self.stage = Stage::Response;
        match self.exchange.upload.is_done() {
            true => self.limit_step(|limits| limits.first_byte),
            false => self.limit_step(|limits| limits.body_idle),
        }
    }

    /// Returns whether the request may be sent over a connection that was idle until now.
    fn may_use(&self, connection: &ServerConnection) -> bool {
        let (Some(place), true) = (&self.exchange.place, connection.usage.responses > 0) else {
            return true;
        };
        let may_race = matches!(self.exchange.kept, Kept::Whole(_)) && self.may_race();
        may_race || {
            let idle_ms = connection.usage.idle_ms();
            place.of_service.idle.may_carry(now_s(), idle_ms, may_race)
        }
    }

    /// Returns whether the request may be sent again after a server has received it.
    fn may_race(&self) -> bool {
        let view = self.target().service.snapshot();
        let replay = view.http().map(|http| http.retry.replay);
        replay.is_some_and(|replay| {
            replay::may_race(&replay, method_text(self.exchange.method), Body::Held)
        })
    }

    /// Continues on another server after a connect has failed: nothing was sent.
    pub(super) fn connect_failed(&mut self, error: Arc<ConnectError>) -> Result<(), ExitReason> {
        tracing::debug!(service = %self.target().service.name, "{}", error.message);
        let is_allowed = self.is_repeated(Progress::Unsent);
        self.exclude_server();
        self.exchange.attempts.connect_error = Some(error);
        if is_allowed {
            return self.acquire();
        }
        self.target().service.counters.connect_failed.add(1);
        self.answer_unconnected("the server could not be reached")
    }

    /// Handles the end of a server connection before the head of the response. The request is sent
    /// again if that is safe.
    pub(super) fn server_failed(&mut self, why: &str) -> Result<(), ExitReason> {
        let server = self.exchange.server.as_ref();
        if server.is_some_and(ServerTransport::is_unprocessed) {
            return self.request_unprocessed();
        }
        if let Some(ServerTransport::Http2(stream)) = &self.exchange.server
            && self.exchange.is_grpc
            && stream.is_canceled()
        {
            // Its deadline has passed at the server, and the client's own passes now.
            self.client.cancel();
            return Err(ExitReason::ServerBroke(why.to_owned()));
        }
        self.learn_idle_limit();
        self.exchange.attempts.connect_error = None;
        let was_reused = self.close_server();
        let name = self
            .exchange
            .place
            .as_ref()
            .map(|place| &*place.server.name);
        tracing::debug!(
            service = %self.target().service.name,
            server = name.unwrap_or_default(),
            was_reused,
            "server connection failed before a response: {why}"
        );
        self.judge(Outcome::NoAnswer { was_reused });
        let is_allowed = self.exchange.held.is_empty() && self.is_repeated(Progress::Sent);
        // The server may have closed an idle connection while the request was on its way: then the
        // server itself is well. It is not known here, so another server is preferred.
        if !was_reused || self.has_other_server() {
            self.exclude_server();
        }
        let kept = self.exchange.kept.take();
        match kept.filter(|_| is_allowed) {
            Some(kept) => self.send_again(kept),
            None => self.answer(502, "the server closed the connection without a response"),
        }
    }

    /// Sends a request again that the server has refused without working on it (RFC 9113 §8.7).
    fn request_unprocessed(&mut self) -> Result<(), ExitReason> {
        self.exchange.attempts.connect_error = None;
        self.close_server();
        let is_whole = matches!(self.exchange.kept, Kept::Whole(_));
        let is_allowed = is_whole && self.is_repeated(Progress::Unsent);
        if self.has_other_server() {
            self.exclude_server();
        }
        let kept = self.exchange.kept.take();
        match kept.filter(|_| is_allowed) {
            Some(kept) => self.send_again(kept),
            None => self.answer(502, "the server has refused the request"),
        }
    }

    /// Handles a server that has not begun its response within the limit. The request is sent once
    /// more if that is safe and there is another server: this one may be frozen.
    pub(super) fn server_late(&mut self) -> Result<(), ExitReason> {
        self.judge(Outcome::Late);
        let is_first = self.exchange.attempts.failures == 0 && self.exchange.held.is_empty();
        if is_first && self.has_other_server() && self.is_repeated(Progress::Sent) {
            self.give_up_server();
            self.exclude_server();
            if let Some(kept) = self.exchange.kept.take() {
                return self.send_again(kept);
            }
        }
        self.give_up_server();
        self.exchange.keeps_client = false;
        let why = "the server does not respond ([service.times] first_byte_ms)";
        self.time_out(504, why)
    }

    /// Sends the request again, perhaps to another server.
    fn send_again(&mut self, kept: Vec<u8>) -> Result<(), ExitReason> {
        self.exchange.outgoing = kept;
        self.exchange.kept = Kept::Whole(self.worker.take_spare());
        self.exchange.place = None;
        self.acquire()
    }

    /// Returns whether the request is sent again after a failed attempt, which is counted then.
    fn is_repeated(&mut self, progress: Progress) -> bool {
        self.end_retry();
        let view = self.target().service.snapshot_owned();
        let Some(http) = view.http() else {
            return false;
        };
        let exchange = &self.exchange;
        let facts = Facts {
            method: method_text(exchange.method),
            progress,
            body: match (progress, &exchange.kept) {
                (Progress::Unsent, _) | (_, Kept::Whole(_)) => Body::Held,
                (_, Kept::Gone) => Body::Gone,
            },
            answer_begun: false,
            retries: exchange.attempts.failures,
        };
        if let Replay::No(why) = replay::replay(&http.retry.replay, &facts) {
            let service = &self.target().service.name;
            tracing::debug!(%service, "not sent again: {}", why.text());
            return false;
        }
        // Each request may be sent again once: when a server dies, all of its requests fail
        // together.
        let is_first = exchange.attempts.failures == 0;
        let is_allowed = is_first || self.begin_retry(http);
        if is_allowed {
            self.exchange.attempts.failures += 1;
            self.stats().retries.add(1);
        }
        is_allowed
    }

    /// Begins a retry, if the budget of the service permits it.
    fn begin_retry(&mut self, http: &HttpSnapshot) -> bool {
        let loads = http.servers.iter().map(|server| server.load.active());
        let in_flight = loads.fold(0, u32::saturating_add);
        let percent = http.retry.budget_percent;
        let begun = self.target().shared.retry_budget.begin(percent, in_flight);
        self.exchange.attempts.is_budgeted = begun;
        begun
    }

    /// Ends a retry in the budget, after its success or failure.
    pub(super) fn end_retry(&mut self) {
        if std::mem::take(&mut self.exchange.attempts.is_budgeted) {
            self.target().shared.retry_budget.end();
        }
    }

    /// Learns that the server closes connections that were idle for as long as this one.
    fn learn_idle_limit(&self) {
        let exchange = &self.exchange;
        let usage = exchange.server.as_ref().and_then(|one| one.idle_usage());
        if let (Some(usage), Some(place)) = (usage, &exchange.place) {
            let idle_us = exchange.sent_us.saturating_sub(usage.last_ms * 1_000);
            place.of_service.idle.closed(now_s(), idle_us / 1_000);
        }
    }

    /// Ends the use of a server that has not answered in time.
    fn give_up_server(&mut self) {
        if let Some(ServerTransport::Http2(stream)) = &self.exchange.server {
            stream.give_up();
        }
        self.close_server();
    }

    /// Closes the server connection. Returns whether it had served other requests.
    pub(super) fn close_server(&mut self) -> bool {
        self.handle.set_request_server(None);
        let Some(server) = self.exchange.server.take() else {
            return false;
        };
        let was_used = server.was_used();
        server.abandon(&self.target().worker_pool);
        was_used
    }

    /// Returns whether a server that has not failed this request is left besides the current one.
    fn has_other_server(&self) -> bool {
        let current = self.exchange.place.as_ref().map(|place| place.server.id);
        let tried = self.exchange.attempts.tried.iter().copied();
        let tried: Vec<u64> = tried.chain(current).collect();
        self.target().service.snapshot().has_untried(&tried)
    }

    /// Excludes the current server from the next picks of this request.
    fn exclude_server(&mut self) {
        if let Some(place) = self.exchange.place.take() {
            self.exchange.attempts.tried.push(place.server.id);
        }
    }

    /// Reports the outcome of the request at its server.
    pub(super) fn judge(&self, outcome: Outcome) {
        if let Some(place) = &self.exchange.place {
            let shared = &self.worker.shared;
            place.of_service.judge(shared, &place.server, outcome);
        }
    }

    /// Returns the length in bytes up to which a request is kept for another attempt.
    pub(super) fn kept_length_max(&self) -> usize {
        let limits = self.exchange.limits.as_ref();
        limits.map_or(0, |limits| limits.kept_bytes)
    }
}

/// Returns the limits of connections of HTTP/2.
pub(super) fn http2_limits(http: &HttpSnapshot) -> Limits {
    let bytes = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    Limits {
        head_bytes_max: bytes(http.size_limits.head),
        fields_max: bytes(http.size_limits.fields),
        ..Limits::default()
    }
}

/// Returns the index of a picked server.
fn picked(pick: Pick) -> Option<usize> {
    match pick {
        Pick::Server(index) => Some(index),
        Pick::AllFull | Pick::NoneUp => None,
    }
}

pub(super) fn method_text(method: Method) -> &'static [u8] {
    match method {
        Method::Get => b"GET",
        Method::Head => b"HEAD",
        Method::Post => b"POST",
        Method::Put => b"PUT",
        Method::Delete => b"DELETE",
        Method::Options => b"OPTIONS",
        Method::Patch => b"PATCH",
        Method::Trace => b"TRACE",
        Method::Connect => b"CONNECT",
        Method::Other => b"",
    }
}
