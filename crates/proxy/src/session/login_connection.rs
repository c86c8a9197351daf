//! Acquires server connections for queries that the login needs, before there is a session.

use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use evenkeel_engine::{clock, timers};
use evenkeel_policy::connection_pool::Condition;

use super::acquirer::AcquireError;
use crate::server::Server;
use crate::server_info::ServersFault;
use crate::service::database::DatabaseSnapshot;
use crate::service::{Service, ServiceSnapshot};
use crate::upstream::worker_pool::{
    AcquireResult, PoolableConnection, UserPools, WaitResult, WaitSlot, WorkerPool,
};

/// Time a server may take while there are other candidates.
const CANDIDATE_LIMIT: Duration = Duration::from_millis(500);

/// Interval at which the availability of servers is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Returns why no server of the service can be used, if that is known.
fn fault(service: &Service) -> Option<ServersFault> {
    service.database()?.server_info.fault()
}

/// Returns the reason for messages that there is no server.
pub(super) fn fault_text(service: &Service) -> String {
    fault(service).map_or_else(|| "try again".to_owned(), |fault| fault.why.to_string())
}

/// Returns the end of the message that a login took too long: why no server can be used.
pub(super) fn fault_suffix(service: &Service) -> String {
    fault(service).map_or_else(String::new, |fault| format!(": {}", fault.why))
}

/// Returns whether it is useless to wait for a server.
pub(super) fn has_lasting_fault(service: &Service) -> bool {
    fault(service).is_some_and(|fault| fault.is_lasting)
}

/// Waits until a server of the service is available and returns the snapshot. Waits at most
/// `login_server_wait`, and not at all if that is useless. After that it returns the snapshot even
/// if no server is available.
pub(super) async fn wait_for_server(service: &Service) -> Arc<ServiceSnapshot> {
    let since_ms = clock::now_ms();
    loop {
        let snapshot = service.snapshot_owned();
        let waited = Duration::from_millis(clock::now_ms().saturating_sub(since_ms));
        let waits = snapshot.database().is_some_and(|database| {
            candidates(&snapshot, database).is_empty()
                && waited < database.time_limits.login_server_wait
                && !has_lasting_fault(service)
        });
        if !waits {
            return snapshot;
        }
        timers::sleep(POLL_INTERVAL).await;
    }
}

/// Waits for a primary and returns the snapshot with the primary's index. Returns `None` if the
/// login cannot wait longer.
pub(super) async fn wait_for_primary(service: &Service) -> Option<(Arc<ServiceSnapshot>, usize)> {
    let since_ms = clock::now_ms();
    loop {
        let snapshot = service.snapshot_owned();
        let database = snapshot.database()?;
        if let Some(primary) = database.primary {
            return Some((snapshot, primary));
        }
        // The other half of the time limit is for the login itself.
        let limit = database
            .time_limits
            .login_server_wait
            .min(database.time_limits.login / 2);
        let waited = Duration::from_millis(clock::now_ms().saturating_sub(since_ms));
        if waited >= limit || has_lasting_fault(service) {
            return None;
        }
        timers::sleep(POLL_INTERVAL).await;
    }
}

/// Returns the servers that may be queried, in order, each with a time limit.
///
/// Any server will do: the primary if there is one, then the replicas. Each is tried twice, since
/// an idle connection may have been closed. A server that hangs must not delay logins that another
/// server can serve.
pub(super) fn candidates<'a>(
    snapshot: &'a ServiceSnapshot,
    database: &DatabaseSnapshot,
) -> Vec<(&'a Arc<Server>, Duration)> {
    let readers = (0..snapshot.servers.len()).filter(|index| database.replicas[*index]);
    let once: Vec<usize> = database.primary.into_iter().chain(readers).collect();
    let twice = once.iter().chain(&once);
    let mut candidates: Vec<_> = twice
        .map(|index| (&snapshot.servers[*index], CANDIDATE_LIMIT))
        .collect();
    if let Some((_, limit)) = candidates.last_mut() {
        *limit = database.time_limits.login.max(CANDIDATE_LIMIT);
    }
    candidates
}

/// Connection that is released on drop, as unclean unless [`Self::release`] was called.
pub(super) struct LoginConnection<'a, C: PoolableConnection> {
    worker_pool: &'a Rc<WorkerPool<C>>,
    pub(super) connection: Option<Box<C>>,
}

impl<C: PoolableConnection> LoginConnection<'_, C> {
    /// Releases the connection as clean.
    pub(super) fn release(mut self) {
        if let Some(connection) = self.connection.take() {
            self.worker_pool.release(connection, Condition::Clean);
        }
    }
}

impl<C: PoolableConnection> Drop for LoginConnection<'_, C> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.worker_pool.release(connection, Condition::Unclean);
        }
    }
}

/// Queued request for a connection that leaves the queue on drop.
struct QueueGuard<'a, C: PoolableConnection> {
    worker_pool: &'a Rc<WorkerPool<C>>,
    slot: Rc<WaitSlot<C>>,
}

impl<C: PoolableConnection> Drop for QueueGuard<'_, C> {
    fn drop(&mut self) {
        self.worker_pool.leave_queue(&self.slot);
        if let Some(WaitResult::Connection(connection)) = self.slot.take_late() {
            self.worker_pool.release(connection, Condition::Clean);
        }
    }
}

impl<C: PoolableConnection> QueueGuard<'_, C> {
    async fn delivery(&self) -> WaitResult<C> {
        std::future::poll_fn(|context| match self.slot.take(context) {
            Some(delivery) => Poll::Ready(delivery),
            None => Poll::Pending,
        })
        .await
    }
}

/// Acquires a connection to a server, waiting for one if necessary.
pub(super) async fn acquire<'a, C: PoolableConnection>(
    worker_pool: &'a Rc<WorkerPool<C>>,
    account: &UserPools<C>,
    server: &Arc<Server>,
    database: &DatabaseSnapshot,
) -> Result<LoginConnection<'a, C>, AcquireError> {
    let guard = QueueGuard {
        worker_pool,
        slot: WaitSlot::new(),
    };
    let login_connection = |connection| LoginConnection {
        worker_pool,
        connection: Some(connection),
    };
    loop {
        // The pool may have been replaced during the wait.
        let pooled = account.pool_handle(server, &database.connection_limits);
        let until_ms = match worker_pool.acquire(&pooled, &guard.slot) {
            AcquireResult::Now(connection) => return Ok(login_connection(connection)),
            AcquireResult::Later(until_ms) => until_ms,
            AcquireResult::Refused(_) if pooled.pool.is_retired() => continue,
            AcquireResult::Refused(refusal) => return Err(AcquireError::Refused(refusal)),
        };
        let wait = Duration::from_millis(until_ms.saturating_sub(clock::now_ms()));
        match timers::timeout(wait, guard.delivery()).await {
            Ok(WaitResult::Connection(connection)) => return Ok(login_connection(connection)),
            Ok(WaitResult::Failed(error)) => return Err(AcquireError::ConnectFailed(error)),
            Ok(WaitResult::Again) => {}
            Err(_) => return Err(AcquireError::TimedOut),
        }
    }
}
