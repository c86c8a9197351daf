//! Serves one client session, from accepting its connection to writing its record.
//!
//! # Panics
//!
//! A session that panics ends alone, by the rules of [`evenkeel_engine::panics`]. State that it
//! shares with other sessions, and the reason why none of these meets it half-changed:
//!
//! - Sockets, parsers and session state belong to the session's future. Unwinding closes and drops
//!   them.
//! - Permits of clients, servers and logins, load slots, connection numbers, the entries in queues
//!   and in the worker's list are guards, released on drop.
//! - A server connection that the session has is closed, never released as clean: by the drop of
//!   the session, or, if a function had moved it out, by its own. [`HeldCheckout`] then makes the
//!   pool open another one.
//! - A worker's part of a pool changes within `Indivisible`. The shared pools, the queues and the
//!   caches of logins, baselines, statements and verifications have locks that are not passed after
//!   a panic under them.
//! - The worker's caches of settings and text analyses (`RefCell`) get an entry only when it is
//!   complete.
//! - Receive buffers keep bytes of earlier sessions; only bytes of the current receive are read.
//! - A cancel request in flight keeps its connection from being released as clean until it has
//!   arrived.
//! - Counters for the status may lack the interrupted step. No decision depends on them.
//!
//! [`HeldCheckout`]: crate::upstream::worker_pool::HeldCheckout

mod acquirer;
mod blocking;
pub(crate) mod cancel;
mod core;
mod error_reply;
pub(crate) mod handle;
mod http;
mod input;
pub(crate) mod interruptible;
mod lingering_close;
mod login_connection;
mod login_context;
mod login_error;
mod login_proof;
mod login_source;
pub(crate) mod mysql;
pub(crate) mod own_commands;
pub(crate) mod password_rate_limit;
pub(crate) mod pinning;
mod placement;
pub(crate) mod postgres;
mod proxy_header_guard;
mod proxy_protocol;
mod retry_history;
mod statement_interner;
mod steps;
mod tcp;

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use evenkeel_engine::clock;
use evenkeel_engine::socket::Socket;
use evenkeel_wire::SqlProtocol;

use crate::event::Event;
use crate::record::{Record, TerminationReason};
use crate::service::database::ProtocolState;
use crate::service::{ClientPermit, Protocol, Service};
use crate::session::handle::SessionHandle;
use crate::worker::{Accepted, RegisteredSession, Worker};

/// Returns the state of a new service with this protocol.
pub fn protocol_state(protocol: SqlProtocol) -> Arc<dyn ProtocolState> {
    match protocol {
        SqlProtocol::Postgres => Arc::new(postgres::shared::PostgresService::new()),
        SqlProtocol::Mysql => Arc::<mysql::shared::MysqlService>::default(),
    }
}

/// Starts the session of a client, which the caller has counted among the worker's sessions.
pub(crate) fn start(worker: &Rc<Worker>, accepted: Accepted) {
    let client = Socket::new(worker, socket2::Socket::from(accepted.socket));
    start_with(worker, accepted.service, accepted.peer, client);
}

/// Starts the session of a client on its socket.
pub(crate) fn start_with(
    worker: &Rc<Worker>,
    service: Arc<Service>,
    peer: Option<SocketAddr>,
    client: io::Result<Socket>,
) {
    let record = Box::new(new_record(&service, peer));
    let handle = Rc::new(SessionHandle::new(service));
    let registered = worker.register_session(Rc::clone(&handle));
    // Fails if the kernel has no memory: the client is closed.
    if let Ok(client) = client {
        worker.spawn(serve(handle, registered, client, record));
    }
}

/// Client of a database that the service has admitted.
struct Arrival<'a> {
    worker: &'a Rc<Worker>,
    permit: &'a ClientPermit,
    handle: &'a SessionHandle,
    /// Key of the session in its worker's list.
    slot: usize,
    socket: Socket,
    record: &'a mut Record,
}

/// Serves one client.
async fn serve(
    handle: Rc<SessionHandle>,
    registered: RegisteredSession,
    client: Socket,
    mut record: Box<Record>,
) {
    let (worker, service) = (registered.worker(), &handle.service);
    record.ending = match service.admit() {
        None => {
            lingering_close::close_gracefully(worker, client);
            TerminationReason::OverLimit
        }
        Some(permit) => {
            let record = &mut record;
            // Boxed, so that no session has the size of another protocol's.
            let serving: Pin<Box<dyn Future<Output = TerminationReason>>> = match &service.protocol
            {
                Protocol::Tcp => {
                    Box::pin(tcp::serve_session(worker, &permit, &handle, client, record))
                }
                Protocol::Http(shared) => Box::pin(http::serve_session(
                    worker, &permit, &handle, shared, client, record,
                )),
                Protocol::Sql(database) => {
                    let arrival = Arrival {
                        worker,
                        permit: &permit,
                        handle: &handle,
                        slot: registered.key,
                        socket: client,
                        record,
                    };
                    match database.protocol() {
                        SqlProtocol::Postgres => Box::pin(postgres::serve_session(arrival)),
                        SqlProtocol::Mysql => Box::pin(mysql::serve_session(arrival)),
                    }
                }
            };
            serving.await
        }
    };
    record.total_ms = clock::now_ms() - handle.started_ms;
    record.from_client = handle.bytes_from_client();
    record.to_client = handle.bytes_to_client();
    finish(worker, service, record);
}

fn new_record(service: &Arc<Service>, client: Option<SocketAddr>) -> Record {
    Record {
        service: Arc::clone(&service.name),
        client,
        server: None,
        tried: Vec::new(),
        wait_ms: 0,
        connect_us: 0,
        first_byte_us: None,
        total_ms: 0,
        from_client: 0,
        to_client: 0,
        ending: TerminationReason::NoServer,
    }
}

fn finish(worker: &Worker, service: &Service, record: Box<Record>) {
    let counters = &service.counters;
    match record.ending {
        TerminationReason::ResetByClient(_) => counters.reset_by_client.add(1),
        TerminationReason::ResetByServer(_) => counters.reset_by_server.add(1),
        TerminationReason::IdleTimeout | TerminationReason::HalfCloseTimeout => {
            counters.idle_timeout.add(1)
        }
        TerminationReason::Cut(_) => counters.cut.add(1),
        TerminationReason::ProxyHeader(_) => counters.proxy_header.add(1),
        TerminationReason::Unrouted(_) => counters.unrouted.add(1),
        TerminationReason::Flooding => counters.flooding.add(1),
        _ => {}
    }
    if record.server.is_some() {
        counters.session_ms.observe(record.total_ms);
    }
    if worker
        .shared
        .records_enabled
        .load(std::sync::atomic::Ordering::Relaxed)
    {
        worker.shared.report_event(Event::Ended(record));
    }
}
