//! Opens server connections for every protocol, and classifies the errors.

use std::future::Future;
use std::rc::Rc;

use evenkeel_engine::stream::Stream;
use evenkeel_engine::timers;

use super::cancel_target::CancelTarget;
use super::connect::connect;
use crate::event::{Event, PassiveFailure};
use crate::server::{Endpoint, Server};
use crate::service::{Service, ServiceSnapshot};
use crate::upstream::connect_error::ConnectError;
use crate::worker::Worker;

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
