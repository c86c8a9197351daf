//! Ends an exchange: releases the server connection, counts, and goes on to the next request.

use evenkeel_engine::clock;
use evenkeel_policy::http::eject::Outcome;

use super::exchange::Exchange;
use super::{ExitReason, HeadProgress, Session, Stage};
use crate::access_log::RequestEnd;
use crate::record::TerminationReason;

/// Reason for the end of a request whose server is no longer used.
const ABANDONED: &str = "the server went down, or the limit of its drain or removal has passed";

impl Session<'_> {
    /// Ends the exchange after all of the response was handed to the socket.
    pub(super) fn finish(&mut self) -> Result<(), ExitReason> {
        let now_us = clock::now_us();
        if self.exchange.server.is_some() {
            let status = self.exchange.status;
            self.judge(Outcome::Answered { status });
        }
        self.end_retry();
        self.log_answered(now_us);
        let keeps_client = self.keeps_client() && !self.client.has_ended();
        let exchange = std::mem::take(&mut self.exchange);
        if let Some(action) = exchange.action() {
            let request_us = now_us.saturating_sub(exchange.began_us);
            let worker = self.worker.index();
            action.stats.count(worker, exchange.status, request_us);
        }
        self.handle.set_request_server(None);
        let stats = self.stats();
        stats.count_response(exchange.status);
        stats
            .request_us
            .observe(now_us.saturating_sub(exchange.began_us));
        self.release(exchange, now_us);
        if !keeps_client {
            // Of the client's own connection only: the last bytes are on their way.
            self.limit_step(|limits| limits.body_idle);
            self.stage = Stage::Closing(TerminationReason::ServerClosed);
            return Ok(());
        }
        self.stage = Stage::Head(match self.input.is_empty() {
            true => HeadProgress::Nothing,
            false => HeadProgress::Unread,
        });
        self.await_head();
        Ok(())
    }

    /// Returns whether the client's connection serves another request after the current one.
    pub(super) fn keeps_client(&self) -> bool {
        let exchange = &self.exchange;
        exchange.keeps_client && exchange.upload.is_done() && !self.own.shared.is_draining()
    }

    /// Releases the server connection: for another request if this one left nothing.
    fn release(&self, mut exchange: Exchange, now_us: u64) {
        if let Some(kept) = exchange.kept.take() {
            self.worker.keep_spare(kept);
        }
        self.worker
            .keep_spare(std::mem::take(&mut exchange.outgoing));
        let Some(server) = exchange.server.take() else {
            return;
        };
        let is_clean = exchange.keeps_server && exchange.upload.is_done();
        let target = exchange.target.as_ref().unwrap_or(&self.own);
        server.finish(&target.worker_pool, is_clean, now_us / 1_000);
    }

    /// Handles a time limit that has passed.
    pub(super) fn handle_deadline(&mut self) -> Result<(), ExitReason> {
        let is_idle = matches!(self.stage, Stage::Head(HeadProgress::Nothing));
        let is_surplus = is_idle && self.own.shared.is_draining();
        if !is_surplus && !self.handle.is_request_overdue(clock::now_ms()) {
            return Ok(());
        }
        if self.is_request_over() {
            return self.end_overdue();
        }
        match &self.stage {
            // Nothing was promised to a client between two requests.
            Stage::Head(HeadProgress::Nothing) => {
                Err(ExitReason::Done(TerminationReason::IdleTimeout))
            }
            Stage::Head(_) => {
                self.exchange.began_us = clock::now_us();
                self.stats().refused.add(1);
                self.note_invalid_head(self.input.len());
                let why = "the request head is incomplete ([service.times] header_ms)";
                self.time_out(408, why)
            }
            Stage::Checking(_) => {
                self.exchange.keeps_client = false;
                self.time_out(503, "the password is not verified in time")
            }
            Stage::Waiting { until_ms } => {
                let is_over = clock::now_ms() >= *until_ms;
                // The connection may arrive while the wait is being given up.
                if !is_over || !self.target().worker_pool.cancel_wait(&self.slot) {
                    return Ok(());
                }
                let why = "no connection to a server became free ([service.pool] wait_ms)";
                self.time_out(503, why)
            }
            Stage::Response if self.exchange.upload.is_done() => self.server_late(),
            Stage::Response if self.is_server_slow() => {
                self.judge(Outcome::Late);
                self.time_out(
                    504,
                    "the server does not take the body ([service.times] body_idle_ms)",
                )
            }
            Stage::Response => self.time_out(408, self.passed_body_limit()),
            Stage::Lingering(_) => Err(self.linger_over()),
            Stage::Body(_) | Stage::Answer | Stage::Tunnel(_) | Stage::Closing(_) => {
                Err(ExitReason::TimedOut(TerminationReason::IdleTimeout))
            }
        }
    }

    /// Ends a request whose limit has passed.
    fn end_overdue(&mut self) -> Result<(), ExitReason> {
        match self.stage {
            Stage::Waiting { .. } if !self.target().worker_pool.cancel_wait(&self.slot) => Ok(()),
            Stage::Waiting { .. } | Stage::Response => {
                self.exchange.keeps_client = false;
                self.judge(Outcome::Late);
                self.time_out(504, self.request_limit_text())
            }
            _ => Err(ExitReason::TimedOut(TerminationReason::IdleTimeout)),
        }
    }

    /// Returns whether the server has not taken what was received of the request.
    fn is_server_slow(&self) -> bool {
        let server = self.exchange.server.as_ref();
        server.is_some_and(|server| !server.is_sent())
    }

    /// Answers a request after a time limit.
    pub(super) fn time_out(&mut self, status: u16, why: &str) -> Result<(), ExitReason> {
        self.note_own_end(RequestEnd::TimedOut, why);
        self.answer(status, why)
    }

    /// Handles a server that was taken away: it has failed, or its time to finish is over.
    pub(super) fn handle_abandoned_server(&mut self) -> Result<(), ExitReason> {
        match self.stage {
            Stage::Response => self.server_failed(ABANDONED),
            Stage::Body(_) | Stage::Tunnel(_) => Err(ExitReason::ServerBroke(ABANDONED.to_owned())),
            Stage::Head(_)
            | Stage::Checking(_)
            | Stage::Waiting { .. }
            | Stage::Answer
            | Stage::Closing(_)
            | Stage::Lingering(_) => Ok(()),
        }
    }
}
