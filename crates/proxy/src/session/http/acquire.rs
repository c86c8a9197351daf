//! Picks a server for a request, acquires a connection to it, and decides what follows a failure.

use std::net::IpAddr;
use std::rc::Rc;

use evenkeel_engine::clock;
use evenkeel_engine::fast_random;
use evenkeel_policy::balance::key_of;
use evenkeel_policy::connection_pool::{Condition, PoolRefusal};
use evenkeel_policy::server_set::Pick;

use super::exchange::Place;
use super::server::ServerConnection;
use super::{ExitReason, Session, Stage};
use crate::event::{Event, PassiveFailure};
use crate::record::TerminationReason;
use crate::server::Server;
use crate::upstream::connect_error::ConnectError;
use crate::upstream::worker_pool::AcquireResult;

impl Session<'_> {
    /// Picks a server, and requests a connection to it.
    pub(super) fn acquire(&mut self) -> Result<(), ExitReason> {
        let view = self.permit.service().snapshot_owned();
        let Some(limits) = view.connection_limits() else {
            return Err(ExitReason::Done(TerminationReason::NoServer));
        };
        let picked = view.pick(self.source_key(), &self.exchange.attempts.tried);
        let Pick::Server(index) = picked else {
            return self.no_server();
        };
        let place = Place::reserved(&view, index);
        let pooled = self.account.pool_handle(&place.server, limits);
        self.exchange.place = Some(place);
        match self.worker_pool.acquire(&pooled, &self.slot) {
            AcquireResult::Now(connection) => self.send_request(connection),
            AcquireResult::Later(until_ms) => {
                self.handle.set_request_deadline(until_ms);
                self.stage = Stage::Waiting { until_ms };
                Ok(())
            }
            AcquireResult::Refused(PoolRefusal::Outdated) => self.acquire(),
            AcquireResult::Refused(PoolRefusal::QueueFull) => {
                let why = "too many requests wait for a connection ([service.pool] queue_length)";
                self.answer(503, why)
            }
            AcquireResult::Refused(PoolRefusal::LimitIsZero) => self.answer(
                503,
                "no connection to the server is allowed (max_connections)",
            ),
        }
    }

    /// Returns the key that the `source` algorithm hashes: the client's address without its port.
    fn source_key(&self) -> u64 {
        match self.peer.map(|peer| peer.ip().to_canonical()) {
            Some(IpAddr::V4(ip)) => key_of(&ip.octets()),
            Some(IpAddr::V6(ip)) => key_of(&ip.octets()),
            None => fast_random(),
        }
    }

    /// Answers a request for which no server is left.
    fn no_server(&mut self) -> Result<(), ExitReason> {
        let counters = &self.permit.service().counters;
        if self.exchange.attempts.failures > 0 {
            counters.connect_failed.add(1);
            return self.answer(502, "no server could be reached");
        }
        counters.no_server.add(1);
        self.answer(503, "no server is available")
    }

    /// Sends the request, as far as it was received.
    pub(super) fn send_request(
        &mut self,
        mut connection: Box<ServerConnection>,
    ) -> Result<(), ExitReason> {
        let out = std::mem::take(&mut self.exchange.outgoing);
        let server = self.exchange.place.as_ref().map(|place| &place.server);
        self.handle.set_request_server(server);
        let sent = connection.core.stream.send_own(self.worker, out);
        self.exchange.server = Some(connection);
        self.exchange.sent_us = clock::now_us();
        self.stage = Stage::Response;
        self.limit_step(|limits| limits.first_byte);
        match sent {
            Ok(()) => Ok(()),
            Err(error) => self.server_failed(&error.to_string()),
        }
    }

    /// Continues on another server after a connect has failed: nothing was sent.
    pub(super) fn connect_failed(&mut self, error: &ConnectError) -> Result<(), ExitReason> {
        tracing::debug!(service = %self.permit.service().name, "{}", error.message);
        self.note_failure();
        if self.exchange.attempts.failures > self.retries_max() {
            self.permit.service().counters.connect_failed.add(1);
            return self.answer(502, "the server could not be reached");
        }
        self.stats().retries.add(1);
        self.acquire()
    }

    /// Handles the end of a server connection before the head of the response. The request is sent
    /// again if that is safe.
    pub(super) fn server_failed(&mut self, why: &str) -> Result<(), ExitReason> {
        let was_used = self.close_server();
        let server = self
            .exchange
            .place
            .as_ref()
            .map(|place| Rc::new(place.server.name.clone()));
        tracing::debug!(
            service = %self.permit.service().name,
            server = server.as_ref().map_or("", |name| name),
            "server connection failed before a response: {why}"
        );
        if !was_used {
            self.report_early_close();
        }
        // The server may have closed an idle connection while the request was on its way: then the
        // server itself is well.
        match was_used {
            true => self.exchange.attempts.failures += 1,
            false => self.note_failure(),
        }
        let is_allowed = self.exchange.attempts.failures <= self.retries_max();
        if self.exchange.kept.is_empty() || !is_allowed || !self.exchange.held.is_empty() {
            return self.answer(502, "the server closed the connection without a response");
        }
        self.stats().retries.add(1);
        self.send_again()
    }

    /// Sends the request again, perhaps to another server.
    pub(super) fn send_again(&mut self) -> Result<(), ExitReason> {
        let mut out = self.worker.take_spare();
        out.extend_from_slice(&self.exchange.kept);
        self.exchange.outgoing = out;
        self.exchange.place = None;
        self.acquire()
    }

    /// Closes the server connection. Returns whether it had served other requests.
    pub(super) fn close_server(&mut self) -> bool {
        self.handle.set_request_server(None);
        let Some(connection) = self.exchange.server.take() else {
            return false;
        };
        let was_used = connection.usage.responses > 0;
        self.worker_pool.release(connection, Condition::Unclean);
        was_used
    }

    fn note_failure(&mut self) {
        self.exchange.attempts.failures += 1;
        if let Some(place) = self.exchange.place.take() {
            self.exchange.attempts.tried.push(place.server.id);
        }
    }

    fn report_early_close(&self) {
        let Some(place) = &self.exchange.place else {
            return;
        };
        let server: &Server = &place.server;
        server.counters.early_closes.add(1);
        self.worker.shared.report_event(Event::Sign {
            server_id: server.id,
            sign: PassiveFailure::ClosedBeforeAnyByte,
        });
    }

    fn retries_max(&self) -> u32 {
        self.permit.service().snapshot().settings.retries
    }
}
