//! Chooses the service of a TCP client by the server name in its first TLS message. The message
//! stays in the client's socket, and reaches the server as every other byte does.

use std::sync::Arc;

use evenkeel_engine::socket::Socket;
use evenkeel_engine::timers;
use evenkeel_wire::tls_hello::{self, HelloError, LENGTH_MAX, Parsed};

use crate::record::TerminationReason;
use crate::service::tls_routes::TlsRoutes;
use crate::service::{ClientPermit, Service, ServiceSnapshot};

/// Server name in a client's first message, or the reason why that is no ClientHello.
type Greeting = Result<Option<Box<str>>, HelloError>;

/// Waits for the client's first message, and returns a permit at the service that its route leads
/// to. `None`: the client stays with its own service.
pub(super) async fn choose(
    own: &Arc<Service>,
    view: &ServiceSnapshot,
    routes: &TlsRoutes,
    socket: &Socket,
) -> Result<Option<ClientPermit>, TerminationReason> {
    let why = match greeting(routes, socket).await? {
        Ok(Some(name)) => match routes.find(&name) {
            Some(target) => return admit(own, target.service(own)),
            None => format!("no route for the server name {name}"),
        },
        Ok(None) => "the client sends no server name".to_owned(),
        Err(error) => error.to_string(),
    };
    match view.servers.is_empty() {
        true => Err(TerminationReason::Unrouted(why)),
        false => Ok(None),
    }
}

async fn greeting(routes: &TlsRoutes, socket: &Socket) -> Result<Greeting, TerminationReason> {
    let decide = |bytes: &[u8]| match tls_hello::parse(bytes) {
        Parsed::Hello { server_name } => Some(Ok(server_name)),
        Parsed::Invalid(error) => Some(Err(error)),
        Parsed::Incomplete => None,
    };
    let limit = routes.hello_timeout;
    match timers::timeout(limit, socket.peek_until(LENGTH_MAX, decide)).await {
        Ok(Ok(Some(greeting))) => Ok(greeting),
        Ok(Ok(None)) => Err(TerminationReason::ClientClosed),
        Ok(Err(error)) => Err(TerminationReason::ResetByClient(error.to_string())),
        Err(_) => Err(TerminationReason::Unrouted(format!(
            "no complete ClientHello within {} ms (hello_timeout_ms)",
            limit.as_millis()
        ))),
    }
}

fn admit(
    own: &Arc<Service>,
    target: Option<Arc<Service>>,
) -> Result<Option<ClientPermit>, TerminationReason> {
    let Some(target) = target else {
        let why = "the service of the route was removed".to_owned();
        return Err(TerminationReason::Unrouted(why));
    };
    if target.id == own.id {
        return Ok(None);
    }
    target.admit().map(Some).ok_or(TerminationReason::OverLimit)
}

#[cfg(test)]
mod tests;
