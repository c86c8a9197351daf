//! Holds what an HTTP service knows of one of its servers.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use evenkeel_engine::clock;
use evenkeel_engine::panics::lock;
use evenkeel_policy::http::eject::{self, Outcome, Sign, SignGate};
use evenkeel_policy::http::learned::LearnedIdle;
use evenkeel_policy::load::Load;

use super::logged_errors::LoggedErrors;
use crate::event::{Event, PassiveFailure};
use crate::server::Server;
use crate::shared::DataPlaneShared;
use crate::upstream::connect_error::{ConnectError, ConnectErrorKind};

/// A server as one service uses it, shared by all workers and snapshots.
#[derive(Debug)]
pub struct HttpServer {
    /// Number of requests in flight, and latency.
    pub load: Arc<Load>,
    /// Idle limit of the server's connections.
    pub(crate) idle: LearnedIdle,
    gate: SignGate,
    /// True after a failure, until a request is served: so that ordinary requests write nothing
    /// that workers share.
    has_failed: AtomicBool,
    tls_errors: Mutex<LoggedErrors>,
}

impl Default for HttpServer {
    fn default() -> Self {
        Self {
            load: Arc::new(Load::new(None)),
            idle: LearnedIdle::default(),
            gate: SignGate::default(),
            has_failed: AtomicBool::new(false),
            tls_errors: Mutex::default(),
        }
    }
}

impl HttpServer {
    /// Reports the outcome of a request as a sign of the server's health.
    pub(crate) fn judge(&self, shared: &DataPlaneShared, server: &Server, outcome: Outcome) {
        let sign = match eject::sign(outcome) {
            Sign::None => return,
            Sign::Served if self.has_failed.load(Relaxed) => {
                self.has_failed.store(false, Relaxed);
                server.counters.served.add(1);
                return;
            }
            Sign::Served => return,
            Sign::Failed(sign) => sign,
        };
        self.has_failed.store(true, Relaxed);
        if self.gate.passes(clock::now_ms()) {
            shared.report_event(Event::Sign {
                server_id: server.id,
                sign: PassiveFailure::Request(sign),
            });
        }
    }

    /// Logs a failed TLS handshake, each cause once an hour: clients learn little of it.
    pub(crate) fn log_tls_error(&self, service: &str, error: &ConnectError) {
        let is_of_tls = matches!(
            error.kind,
            ConnectErrorKind::Untrusted | ConnectErrorKind::Tls
        );
        if is_of_tls && lock(&self.tls_errors).is_due(&error.message, clock::now_ms()) {
            tracing::warn!(service, "no connection: {}", error.message);
        }
    }
}

/// Returns the time in the unit of [`LearnedIdle`].
pub(crate) fn now_s() -> u32 {
    u32::try_from(clock::now_ms() / 1_000).unwrap_or(u32::MAX)
}
