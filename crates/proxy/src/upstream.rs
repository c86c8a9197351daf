//! Acquires server connections for clients: picks a server, waits in the queue when all are full,
//! connects, and retries on another server when that fails.

pub(crate) mod cancel_target;
pub(crate) mod connect;
pub(crate) mod connect_error;
pub(crate) mod database_change;
pub(crate) mod kept_passwords;
pub(crate) mod pool_registry;
pub(crate) mod queue;
pub(crate) mod server_login;
pub(crate) mod server_permit;
pub(crate) mod worker_pool;

use std::sync::Arc;
use std::time::Duration;

use evenkeel_engine::clock;
use evenkeel_engine::socket::Socket;
use evenkeel_engine::timers;
use evenkeel_policy::server_set::Pick;

use crate::event::{Event, PassiveFailure};
use crate::record::{Record, TerminationReason};
use crate::server::Server;
use crate::service::{Service, ServiceSnapshot};
use crate::worker::Worker;
use server_permit::ServerPermit;

/// Pause before all servers are tried again: long enough for a server to make progress with a
/// restart, short enough that `retries` pauses are only a delay.
const PAUSE_BEFORE_NEXT_ROUND: Duration = Duration::from_millis(200);

/// A server connection that belongs to one session; the permit is released on drop.
pub(crate) struct Upstream {
    pub(crate) socket: Socket,
    pub(crate) lease: ServerPermit,
}

/// A client's request for a connection to a server.
pub(crate) struct ConnectRequest<'a> {
    pub(crate) worker: &'a Worker,
    pub(crate) service: &'a Arc<Service>,
    /// Key that the `source` algorithm hashes.
    pub(crate) key: u64,
    /// Returns true after the client has disconnected, so that no connection is opened for it.
    pub(crate) has_client_left: &'a dyn Fn() -> bool,
}

/// Failed attempts of one client's search for a server.
#[derive(Default)]
pub(crate) struct ConnectAttempts {
    tried_ids: Vec<u64>,
    failures: u32,
    last_error: Option<String>,
}

impl ConnectAttempts {
    /// Records that a server failed this client. Returns false once `retries` are used up.
    pub(crate) fn failed(
        &mut self,
        request: &ConnectRequest<'_>,
        server: &Server,
        error: String,
        record: &mut Record,
    ) -> bool {
        self.tried_ids.push(server.id);
        record.tried.push(Arc::clone(&server.name));
        record.server = None;
        self.last_error = Some(error);
        self.failures += 1;
        let again = self.failures <= request.service.snapshot().settings.retries;
        if again {
            request.service.counters.retries.add(1);
        }
        again
    }

    fn last_error(&mut self) -> TerminationReason {
        self.last_error.take().map_or(
            TerminationReason::NoServer,
            TerminationReason::ConnectFailed,
        )
    }
}

/// Finds a server and connects to it, or returns the reason for the failure. A failed connect
/// causes a delay, and an error only when `retries` are used up.
pub(crate) async fn reach(
    request: &ConnectRequest<'_>,
    search: &mut ConnectAttempts,
    record: &mut Record,
) -> Result<(Upstream, Arc<ServiceSnapshot>), TerminationReason> {
    loop {
        let Some((lease, view)) = reserve(request, &search.tried_ids, record).await? else {
            if search.tried_ids.is_empty() {
                request.service.counters.no_server.add(1);
                return Err(search.last_error());
            }
            search.tried_ids.clear();
            timers::sleep(PAUSE_BEFORE_NEXT_ROUND).await;
            continue;
        };
        match try_server(request, lease, &view, record).await {
            Ok(upstream) => return Ok((upstream, view)),
            Err((server, error)) => {
                if !search.failed(request, &server, error, record) {
                    request.service.counters.connect_failed.add(1);
                    return Err(search.last_error());
                }
            }
        }
    }
}

/// Reserves a permit on a server, waiting for one if the service allows it. `None`: no untried
/// server is up.
async fn reserve(
    request: &ConnectRequest<'_>,
    tried_ids: &[u64],
    record: &mut Record,
) -> Result<Option<(ServerPermit, Arc<ServiceSnapshot>)>, TerminationReason> {
    let service = request.service;
    let view = service.snapshot_owned();
    // Clients that wait already are served first.
    if service.queued() == 0 {
        match view.pick(request.key, tried_ids) {
            Pick::Server(index) => {
                let lease =
                    ServerPermit::new(&view.servers[index], &request.worker.shared.registry);
                return Ok(Some((lease, view)));
            }
            Pick::NoneUp if !tried_ids.is_empty() || !view.settings.wait_when_down => {
                return Ok(None);
            }
            Pick::NoneUp | Pick::AllFull => {}
        }
    } else if !tried_ids.is_empty() && !view.has_untried(tried_ids) {
        // The queue has no server left to wait for.
        return Ok(None);
    } else if tried_ids.is_empty() && view.refuses() {
        return Ok(None);
    }
    let wait = view.settings.queue_wait;
    drop(view);
    let since_ms = clock::now_ms();
    let granted = queue::wait(request, tried_ids, wait).await;
    record.wait_ms += clock::now_ms() - since_ms;
    granted.map(Some)
}

async fn try_server(
    request: &ConnectRequest<'_>,
    lease: ServerPermit,
    view: &ServiceSnapshot,
    record: &mut Record,
) -> Result<Upstream, (Arc<Server>, String)> {
    let server = Arc::clone(lease.server());
    let started_us = clock::now_us();
    let endpoint = server.endpoint();
    match connect::connect(request.worker, endpoint.as_ref(), &view.settings).await {
        Ok(socket) => {
            record.connect_us = clock::now_us() - started_us;
            record.server = Some(Arc::clone(&server.name));
            request
                .service
                .counters
                .connect_us
                .observe(record.connect_us);
            server.counters.sessions.add(1);
            Ok(Upstream { socket, lease })
        }
        Err(failed) => {
            let error = format!("{}: {}", server.name, failed.why);
            if !failed.is_resource_exhausted {
                request.service.counters.connect_errors.add(1);
                server.counters.connect_errors.add(1);
                server.endpoint_failed();
                let sign = PassiveFailure::ConnectFailed(error.clone());
                request.worker.shared.report_event(Event::Sign {
                    server_id: server.id,
                    sign,
                });
            }
            Err((server, error))
        }
    }
}
