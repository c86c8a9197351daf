//! Opens the connections that a pool requests.

use std::rc::Rc;
use std::sync::Arc;

use evenkeel_engine::panics::{self, Indivisible};
use evenkeel_engine::{clock, fast_random};
use evenkeel_policy::connection_pool::{OpenFailure, Pool, WaitTicket};

use super::{PoolMessage, PoolableConnection, WaitResult, WorkerPool};
use crate::service::Service;
use crate::upstream::connect_error::ConnectError;
use crate::upstream::pool_registry::PoolHandle;
use crate::worker::Worker;

/// Pause before the next connect to a server that reported that it is full.
const FULL_PAUSE_MS: u64 = 500;

impl<C: PoolableConnection> WorkerPool<C> {
    pub(super) fn connect(self: &Rc<Self>, worker: &Rc<Worker>, pool: Arc<Pool>) {
        let (this, owner) = (Rc::clone(self), Rc::clone(worker));
        worker.spawn(async move {
            let opened = match this.registry.pool_handle(pool.key()) {
                Some(pool_handle) => open(&owner, &this.service, &pool_handle).await,
                None => Err(ConnectError::outdated()),
            };
            match opened {
                Ok(connection) => this.handle_opened(&pool, connection),
                Err(error) => this.handle_open_error(&owner, &pool, error),
            }
        });
    }

    fn handle_opened(self: &Rc<Self>, pool: &Arc<Pool>, connection: Box<C>) {
        let _change = Indivisible::begin();
        connection.core().stream.watch();
        let number = self.connections.borrow_mut().insert(Some(connection));
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        let mut tasks = Vec::new();
        let returned =
            self.idle
                .borrow_mut()
                .opened(pool, number, clock::now_ms(), fast_random(), &mut tasks);
        self.apply_release(returned);
        self.send_tasks(tasks);
    }

    fn handle_open_error(
        self: &Rc<Self>,
        worker: &Rc<Worker>,
        pool: &Arc<Pool>,
        error: ConnectError,
    ) {
        let _change = Indivisible::begin();
        let failure = if error.is_full() {
            let pause_ms = FULL_PAUSE_MS;
            OpenFailure::Full { pause_ms }
        } else {
            OpenFailure::Failed
        };
        let mut tasks = Vec::new();
        let now_ms = clock::now_ms();
        let failed_waiter = self
            .idle
            .borrow_mut()
            .connect_failed(pool, failure, now_ms, &mut tasks);
        if let Some(ticket) = failed_waiter {
            self.report_error(worker, ticket, Arc::new(error));
        }
        self.send_tasks(tasks);
    }

    pub(super) fn report_error(
        self: &Rc<Self>,
        worker: &Rc<Worker>,
        ticket: WaitTicket,
        error: Arc<ConnectError>,
    ) {
        if ticket.worker != worker.index() {
            return self.send_message(worker, ticket.worker, PoolMessage::Failed(ticket, error));
        }
        let slot = self.waiting.borrow_mut().remove(&ticket.number);
        if let Some(slot) = slot {
            slot.deliver(WaitResult::Failed(error));
        }
    }
}

/// Opens a connection. A panic while the server's replies are read is an error like others, so that
/// the pool does not wait for the connection.
pub(super) async fn open<C: PoolableConnection>(
    worker: &Rc<Worker>,
    service: &Arc<Service>,
    pool_handle: &Arc<PoolHandle>,
) -> Result<Box<C>, ConnectError> {
    let opened = panics::catch(Box::pin(C::open(worker, service, pool_handle))).await;
    let panicked = || ConnectError::unsuitable(&pool_handle.server, "the login panicked here");
    opened.unwrap_or_else(|| Err(panicked()))
}
