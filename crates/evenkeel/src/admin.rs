//! Serves the admin interface: status page, JSON API and metrics over TCP and over a Unix socket of
//! mode 0600, and the console for PostgreSQL and MySQL clients.
//!
//! Reading needs no authentication on loopback. A change requires the Unix socket, which its file
//! mode protects, or a token. Requests that another site could make a browser send are rejected
//! before any route handles them.

mod console;
mod guard;
mod page;
mod pools;
mod routes;
#[cfg(test)]
pub(crate) mod sample;
mod socket;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use crate::status::ControlHandle;

use console::Dialect;
pub use socket::bind_socket;

/// Maximum number of concurrent connections per listener. A browser opens six, a scraper one; more
/// indicate a mistake or an attack. Each listener has its own limit, so that a full TCP port leaves
/// the Unix socket usable.
const CONNECTIONS_MAX: usize = 64;

/// Limit for the receipt of a request's head; otherwise a silent peer would hold a permit.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Age at which a connection is closed after the pending response. A client that reads slowly must
/// not hold its permit indefinitely, and clients reconnect on their own.
const CONNECTION_AGE_MAX: Duration = Duration::from_secs(60);

/// Limit for that last response.
const CLOSING_TIME_MAX: Duration = Duration::from_secs(10);

/// Pause after a failed accept (no file descriptors): an immediate retry would only use CPU time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Response to a connection over the limit, which is sent without reading the request.
const SURPLUS_ANSWER: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\
    content-type: application/json\r\nconnection: close\r\n\r\n\
    {\"ok\":false,\"message\":\"too many concurrent admin connections: close some, \
    or use the Unix socket\"}\n";

/// Access rules of the admin interface.
#[derive(Clone, Default)]
pub struct AdminSettings {
    /// Token that allows changes over TCP, and reading from other machines. An empty one counts as
    /// none.
    pub token: Option<String>,
    /// Names, besides `localhost` and IP addresses, under which browsers may reach the TCP port.
    pub allowed_hosts: Vec<String>,
}

impl fmt::Debug for AdminSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminSettings")
            .field("token", &self.token.as_ref().map(|_| "***"))
            .field("allowed_hosts", &self.allowed_hosts)
            .finish()
    }
}

/// Transport through which a request arrived.
#[derive(Clone, Copy, Debug)]
enum AdminTransport {
    Tcp { peer: SocketAddr },
    Unix,
}

/// Serves all listeners until dropped, when connections end with it, or until `closing` becomes
/// true. Then each connection receives its pending response, and no new one is accepted.
pub async fn serve(
    listeners: Listeners,
    settings: AdminSettings,
    control: ControlHandle,
    closing: Closing,
) {
    let consoles = [
        (listeners.postgres, Dialect::Postgres),
        (listeners.mysql, Dialect::Mysql),
    ];
    let console = console::serve(consoles, &settings, control.clone(), closing.clone());
    let app = TowerToHyperService::new(routes::router(settings.clone(), control));
    tokio::join!(
        serve_tcp(listeners.page, app.clone(), closing.clone()),
        serve_unix(listeners.socket, app, closing),
        console
    );
}

/// Listeners of the admin interface. `None`: not served.
#[derive(Debug, Default)]
pub struct Listeners {
    /// Status page, API and metrics over TCP.
    pub page: Option<TcpListener>,
    /// Status page, API and metrics on the Unix socket, for users who may open its file.
    pub socket: Option<UnixListener>,
    /// Console for PostgreSQL clients.
    pub postgres: Option<TcpListener>,
    /// Console for MySQL clients.
    pub mysql: Option<TcpListener>,
}

/// Becomes true, once, when another process takes over the listeners.
pub type Closing = watch::Receiver<bool>;

async fn closed(closing: &mut Closing) {
    if closing.wait_for(|closing| *closing).await.is_err() {
        // The sender has been dropped, so the value cannot change any more.
        std::future::pending::<()>().await;
    }
}

type App = TowerToHyperService<axum::Router>;

async fn serve_tcp(listener: Option<TcpListener>, app: App, mut closing: Closing) {
    let Some(listener) = listener else { return };
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        let outcome = tokio::select! {
            outcome = listener.accept() => outcome,
            () = closed(&mut closing) => break,
        };
        let Some((stream, peer)) = accepted(outcome).await else {
            continue;
        };
        while connections.try_join_next().is_some() {}
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else {
            refuse_surplus(&stream, peer);
            continue;
        };
        // Responses are small and sent immediately; a delayed ACK costs 40 ms without
        // `TCP_NODELAY`.
        let _ = stream.set_nodelay(true);
        connections.spawn(serve_connection(
            stream,
            AdminTransport::Tcp { peer },
            (app.clone(), closing.clone()),
            permit,
        ));
    }
    drop(listener);
    connections.join_all().await;
}

async fn serve_unix(listener: Option<UnixListener>, app: App, mut closing: Closing) {
    let Some(listener) = listener else { return };
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        // A client that reaches the socket is trusted: those over the limit wait in the backlog.
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
            return;
        };
        let outcome = tokio::select! {
            outcome = listener.accept() => outcome,
            () = closed(&mut closing) => break,
        };
        let Some((stream, _)) = accepted(outcome).await else {
            continue;
        };
        while connections.try_join_next().is_some() {}
        let app = (app.clone(), closing.clone());
        connections.spawn(serve_connection(stream, AdminTransport::Unix, app, permit));
    }
    drop(listener);
    connections.join_all().await;
}

/// Returns the accepted connection, or `None` after logging an error and a pause.
async fn accepted<T>(outcome: std::io::Result<T>) -> Option<T> {
    match outcome {
        Ok(accepted) => Some(accepted),
        Err(error) => {
            tracing::warn!("admin: cannot accept a connection: {error}");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

fn refuse_surplus(stream: &TcpStream, peer: SocketAddr) {
    tracing::debug!("admin: refused {peer}: {CONNECTIONS_MAX} connections are open");
    // Best effort: the connection is closed whether or not the response arrives.
    let _ = stream.try_write(SURPLUS_ANSWER);
}

async fn serve_connection<S>(
    stream: S,
    transport: AdminTransport,
    (app, mut closing): (App, Closing),
    _permit: OwnedSemaphorePermit,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(transport);
        app.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    // Errors here are caused by the peer (it disconnected or sent invalid data); hyper has
    // responded.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = tokio::time::sleep(CONNECTION_AGE_MAX) => {}
        () = closed(&mut closing) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(CLOSING_TIME_MAX, connection).await;
}
