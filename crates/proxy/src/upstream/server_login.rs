//! Opens server connections for every protocol, and classifies the errors.

use std::fmt;
use std::future::Future;
use std::rc::Rc;

use evenkeel_engine::stream::Stream;
use evenkeel_engine::timers;

use super::cancel_target::CancelTarget;
use super::connect::connect;
use crate::event::{Event, PassiveFailure};
use crate::server::{Endpoint, Server};
use crate::service::{Service, ServiceSnapshot};
use crate::worker::Worker;

/// Reason why a server connection could not be opened.
#[derive(Debug, Clone)]
pub(crate) struct ConnectError {
    pub(crate) kind: ConnectErrorKind,
    /// Error code from the server; `None`: the server has not sent one.
    pub(crate) code: Option<ErrorCode>,
    /// Error text, with the server's name.
    pub(crate) message: String,
    pub(crate) server_id: u64,
}

/// Class of a connect error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectErrorKind {
    /// The server could not be reached, or stopped responding.
    Unreachable,
    /// The server has no free connections; a retry later may succeed.
    Full,
    /// The server is starting or stopping; a retry later may succeed.
    NotReady,
    /// The server rejects this user, or has no such database.
    Refused,
    /// The pool is no longer current.
    Outdated,
}

/// A server's code for an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ErrorCode {
    /// MySQL's error number; PostgreSQL has none.
    pub(crate) number: u16,
    pub(crate) sqlstate: [u8; 5],
}

impl ConnectError {
    pub(crate) fn outdated() -> Self {
        Self {
            kind: ConnectErrorKind::Outdated,
            code: None,
            message: "the pool has been replaced".to_owned(),
            server_id: 0,
        }
    }

    pub(crate) fn unreachable(server: &Server, why: impl fmt::Display) -> Self {
        Self {
            kind: ConnectErrorKind::Unreachable,
            code: None,
            message: format!("server {}: {why}", server.name),
            server_id: server.id,
        }
    }

    /// Returns an error that the server has reported.
    pub(crate) fn refused(
        server: &Server,
        kind: ConnectErrorKind,
        code: ErrorCode,
        text: &str,
    ) -> Self {
        Self {
            kind,
            code: Some(code),
            message: format!("server {}: {text}", server.name),
            server_id: server.id,
        }
    }

    /// Returns an error for a server that accepts the login but cannot serve the clients of this
    /// pool.
    pub(crate) fn unsuitable(server: &Server, why: impl fmt::Display) -> Self {
        Self {
            kind: ConnectErrorKind::NotReady,
            ..Self::unreachable(server, why)
        }
    }

    /// Returns whether the server has no free connections.
    pub(crate) fn is_full(&self) -> bool {
        self.kind == ConnectErrorKind::Full
    }

    /// Returns whether another server, or this one later, may accept the connection.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(
            self.kind,
            ConnectErrorKind::Unreachable | ConnectErrorKind::Full | ConnectErrorKind::NotReady
        )
    }
}

/// Connects to a server; counts and reports a failure.
pub(crate) async fn reach(
    worker: &Rc<Worker>,
    service: &Service,
    server: &Server,
) -> Result<Stream, ConnectError> {
    let view = service.snapshot_owned();
    let endpoint = server.endpoint();
    let failed = match connect(worker, endpoint.as_ref(), &view.settings).await {
        Ok(socket) => {
            socket.keep_alive(&view.settings.keepalive);
            return Ok(Stream::plain(socket));
        }
        Err(failed) => failed,
    };
    let error = ConnectError::unreachable(server, &failed.why);
    if !failed.is_resource_exhausted {
        service.counters.connect_errors.add(1);
        server.counters.connect_errors.add(1);
        server.endpoint_failed();
        let sign = PassiveFailure::ConnectFailed(error.message.clone());
        let server_id = server.id;
        worker.shared.report_event(Event::Sign { server_id, sign });
    }
    Err(error)
}

/// Connects to the peer of an existing connection, whose server's name may now resolve to another
/// address.
pub(crate) async fn reach_same_peer(
    worker: &Rc<Worker>,
    service: &Service,
    one: &CancelTarget,
) -> Result<Stream, ConnectError> {
    let (view, server) = (service.snapshot_owned(), &one.pool_handle.server);
    let endpoint = one.peer.map(Endpoint::Tcp).or_else(|| server.endpoint());
    match connect(worker, endpoint.as_ref(), &view.settings).await {
        Ok(socket) => Ok(Stream::plain(socket)),
        Err(failed) => Err(ConnectError::unreachable(server, failed.why)),
    }
}

/// Limits the opening of a connection to twice the connect timeout: the second half is for the
/// login.
pub(crate) async fn with_login_timeout<T>(
    view: &ServiceSnapshot,
    server: &Server,
    joining: impl Future<Output = Result<T, ConnectError>>,
) -> Result<T, ConnectError> {
    let limit = view.settings.connect_timeout * 2;
    match timers::timeout(limit, joining).await {
        Ok(joined) => joined,
        Err(_) => {
            let limit_ms = limit.as_millis();
            let why = format!(
                "login not completed within {limit_ms} ms (twice \
                 connect_timeout_ms)"
            );
            Err(ConnectError::unreachable(server, why))
        }
    }
}
