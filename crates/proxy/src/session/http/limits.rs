//! Holds the limits of the current request: those of the service whose servers answer it, or of its
//! route. They are read once, when the route is known.

use std::time::Duration;

use evenkeel_engine::clock;
use evenkeel_wire::http::HeadLimits;

use super::tunnel::Tunnel;
use super::{Session, Stage};
use crate::service::http::routes::RouteLimits;
use crate::service::http::{BODY_RATE_GRACE, HttpSnapshot, HttpTimeLimits};
use crate::session::handle::SWEEP_INTERVAL;

/// Limits of a request.
#[derive(Clone, Copy)]
pub(super) struct RequestLimits {
    pub(super) times: HttpTimeLimits,
    /// Limit of the request body, in bytes; [`u64::MAX`]: none.
    pub(super) body_bytes: u64,
    /// Length in bytes up to which the request is kept for another attempt.
    pub(super) kept_bytes: usize,
    /// Limits of the response head.
    pub(super) response: HeadLimits,
}

impl RequestLimits {
    /// Returns the limits of a service, without those that a route replaces.
    pub(super) fn new(http: &HttpSnapshot, route: Option<&RouteLimits>) -> Self {
        let mut times = http.time_limits;
        let sizes = &http.size_limits;
        times.request = route
            .and_then(|route| route.request)
            .unwrap_or(times.request);
        Self {
            times,
            body_bytes: route.and_then(|route| route.body).unwrap_or(sizes.body),
            kept_bytes: sizes.head + http.retry.body_hold_bytes,
            response: HeadLimits {
                head_bytes_max: sizes.head,
                fields_max: sizes.fields,
                ..HeadLimits::default()
            },
        }
    }

    /// Makes the limits those of a call of gRPC, whose streams may be silent for long, as tunnels
    /// may.
    pub(super) fn adapt_to_grpc(&mut self) {
        self.times.body_idle = self.times.tunnel_idle;
        self.times.body_rate_min = 0;
    }
}

impl Session<'_> {
    /// Sets the time limit of the current step, which ends with that of the request at the latest.
    pub(super) fn limit_step(&self, limit: impl FnOnce(&HttpTimeLimits) -> Duration) {
        let times = match &self.exchange.limits {
            Some(limits) => limits.times,
            // Between two requests, those of the service that the client has connected to.
            None => match self.own.service.snapshot().http() {
                Some(http) => http.time_limits,
                None => return,
            },
        };
        let after = |start_ms: u64, limit: Duration| match limit.is_zero() {
            true => u64::MAX,
            false => start_ms + limit.as_millis() as u64,
        };
        // The sweep may be as long ago as its interval, and no limit may be shorter than
        // configured.
        let now_ms = self.worker.last_sweep_ms() + SWEEP_INTERVAL.as_millis() as u64;
        let mut deadline_ms = after(now_ms, limit(&times));
        if self.exchange.has_begun() && !matches!(self.stage, Stage::Tunnel(_)) {
            let began_ms = self.exchange.began_us / 1_000;
            deadline_ms = deadline_ms.min(after(began_ms, times.request));
        }
        // No deadline is zero.
        let deadline_ms = if deadline_ms == u64::MAX {
            0
        } else {
            deadline_ms
        };
        self.handle.set_request_deadline(deadline_ms);
    }

    /// Sets the time limit of a body, unless the response has begun, which has its own: a silence,
    /// and the time in which what was received had to be received.
    pub(super) fn limit_upload(&self) {
        if !matches!(self.stage, Stage::Response) {
            return;
        }
        let now_ms = self.worker.last_sweep_ms();
        let left = self.time_at_rate(now_ms);
        self.limit_step(|limits| match (left, limits.body_idle.is_zero()) {
            (None, _) => limits.body_idle,
            (Some(left), true) => left,
            (Some(left), false) => limits.body_idle.min(left),
        });
    }

    /// Returns the time that is left until the body falls below the minimum rate, at least a
    /// millisecond. `None`: there is no such limit.
    fn time_at_rate(&self, now_ms: u64) -> Option<Duration> {
        let exchange = &self.exchange;
        let rate = exchange.limits.as_ref()?.times.body_rate_min;
        let earned_ms = exchange
            .body_bytes
            .saturating_mul(1_000)
            .checked_div(rate)?;
        let elapsed_ms = now_ms.saturating_sub(exchange.began_us / 1_000);
        let allowed_ms = earned_ms.saturating_add(BODY_RATE_GRACE.as_millis() as u64);
        let left_ms = allowed_ms.saturating_sub(elapsed_ms);
        Some(Duration::from_millis(left_ms.max(1)))
    }

    /// Names the limit that an incomplete body has exceeded.
    pub(super) fn passed_body_limit(&self) -> &'static str {
        match self.time_at_rate(clock::now_ms()) {
            Some(left) if left.as_millis() <= 1 => {
                "the request body comes too slowly ([service.times] body_rate_bytes_min)"
            }
            _ if self.exchange.is_grpc => {
                "no message of the call has arrived ([service.times] tunnel_idle_ms)"
            }
            _ => "the request body is incomplete ([service.times] body_idle_ms)",
        }
    }

    /// Names the time limit that ends a message without an answer.
    pub(super) fn passed_limit(&self) -> &'static str {
        match self.stage {
            Stage::Tunnel(Tunnel::Open) => "no byte in the tunnel ([service.times] tunnel_idle_ms)",
            Stage::Tunnel(_) => {
                "one side of the tunnel has ended, and no byte came from the other \
                 ([service.times] body_idle_ms)"
            }
            _ if self.is_request_over() => self.request_limit_text(),
            _ if self.exchange.is_grpc => {
                "no byte of the call has passed ([service.times] tunnel_idle_ms)"
            }
            _ => "no byte of the response was taken or sent ([service.times] body_idle_ms)",
        }
    }

    /// Returns whether the limit of the whole request has passed.
    pub(super) fn is_request_over(&self) -> bool {
        let Some(limits) = &self.exchange.limits else {
            return false;
        };
        let limit = limits.times.request;
        let began_ms = self.exchange.began_us / 1_000;
        !limit.is_zero()
            && !matches!(self.stage, Stage::Tunnel(_))
            && clock::now_ms() >= began_ms + limit.as_millis() as u64
    }

    /// Names the limit of the whole request.
    pub(super) fn request_limit_text(&self) -> &'static str {
        match self.route_limits().is_some_and(|of| of.request.is_some()) {
            true => "the request is not answered in time ([[service.route]] request_ms)",
            false => "the request is not answered in time ([service.times] request_ms)",
        }
    }

    /// Returns the limit of the request body in bytes.
    pub(super) fn body_bytes_max(&self) -> u64 {
        let limits = self.exchange.limits.as_ref();
        limits.map_or(u64::MAX, |limits| limits.body_bytes)
    }

    /// Names the key of the limit of the request body.
    pub(super) fn body_limit_key(&self) -> &'static str {
        match self.route_limits().is_some_and(|of| of.body.is_some()) {
            true => "[[service.route]] body_bytes_max",
            false => "[service.http] body_bytes_max",
        }
    }

    fn route_limits(&self) -> Option<&RouteLimits> {
        Some(&self.exchange.action()?.limits)
    }
}
