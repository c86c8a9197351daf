//! Acquires a server connection for a session, or queues it for a connection or a primary.

mod accounting;
mod offer;

use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use evenkeel_engine::{clock, timers};
use evenkeel_policy::connection_pool::{Condition, PoolRefusal};
use evenkeel_policy::failover_queue::{FailoverTicket, PrimaryError, PrimaryStatus};
use evenkeel_policy::route::retry::SetupFailure;

use super::handle::SessionHandle;
use super::placement::{Placement, PlacementTarget};
use crate::counters::work::{StatementResult, TimedResult};
use crate::server::Server;
use crate::service::activity::SessionActivity;
use crate::service::database::{DatabaseService, DatabaseSnapshot};
use crate::service::failover_queue::{FailoverAdmission, FailoverWaiter};
use crate::service::stats::{ServiceStats, UserStats};
use crate::service::{Service, ServiceSnapshot};
use crate::upstream::connect_error::ConnectError;
use crate::upstream::worker_pool::{
    AcquireResult, OfferSlot, PoolableConnection, UserPools, WaitResult, WaitSlot, WorkerPool,
};
use crate::worker::Worker;

/// Maximum time for renewing a connection before it is discarded.
const RENEWAL_LIMIT: Duration = Duration::from_secs(5);

/// Time in the queue after which a session checks whether another server has a connection.
const REROUTE_AFTER_MS: u64 = 500;

/// Acquires server connections for one session, independent of the protocol.
pub(super) struct Acquirer<'a, C: PoolableConnection> {
    worker: &'a Rc<Worker>,
    service: Arc<DatabaseService>,
    worker_pool: Rc<WorkerPool<C>>,
    account: Rc<UserPools<C>>,
    handle: &'a SessionHandle,
    /// Statistics that this session's work is counted in.
    pub(super) user_stats: Arc<UserStats>,
    /// Server of the current connection, or of the connection that the session waits for.
    pub(super) at: Option<Placement>,
    slot: Rc<WaitSlot<C>>,
    wait: Option<Wait>,
    /// Offer of the connection that the session keeps.
    offer: Rc<OfferSlot>,
    /// Failover slot that admitted this session to the primary; its release admits the next one.
    resumed: Option<FailoverTicket>,
}

/// State of a session that is queued.
enum Wait {
    /// Queued for a connection.
    Connection { until_ms: u64, since_us: u64 },
    Primary {
        ticket: FailoverTicket,
        waiter: Arc<FailoverWaiter>,
    },
}

/// Result of requesting a connection, or of waiting for one.
pub(super) enum AcquireOutcome<C> {
    Server(Box<C>),
    Pending,
    /// Routing must be decided again.
    Reroute,
    /// There is no connection to this server, and `policy::route::retry` decides what follows. The
    /// error is for work that is not retried.
    Failed(SetupFailure, AcquireError),
    Denied(AcquireError),
}

/// Reason why work is not executed.
pub(super) enum AcquireError {
    Refused(PoolRefusal),
    TimedOut,
    NoPrimary(PrimaryError),
    ConnectFailed(Arc<ConnectError>),
}

impl<'a, C: PoolableConnection> Acquirer<'a, C> {
    pub(super) fn new(
        worker: &'a Rc<Worker>,
        service: &Arc<DatabaseService>,
        worker_pool: Rc<WorkerPool<C>>,
        account: &Rc<UserPools<C>>,
        handle: &'a SessionHandle,
    ) -> Self {
        Self {
            worker,
            service: Arc::clone(service),
            worker_pool,
            account: Rc::clone(account),
            handle,
            user_stats: service.user_stats(worker.index(), &account.pool_user, &handle.database()),
            at: None,
            slot: WaitSlot::new(),
            wait: None,
            offer: Rc::default(),
            resumed: None,
        }
    }

    pub(super) fn set_database(&mut self, database: &str) {
        let database = Arc::from(database);
        let (worker, pool_user) = (self.worker.index(), &self.account.pool_user);
        self.user_stats = self.service.user_stats(worker, pool_user, &database);
        self.handle.set_database(database);
    }

    /// Returns the server of the current or awaited connection.
    pub(super) fn server(&self) -> Option<&Server> {
        self.at.as_ref().map(|at| &*at.server)
    }

    pub(super) fn is_at_replica(&self) -> bool {
        self.at.as_ref().is_some_and(|at| at.is_replica)
    }

    pub(super) fn is_at_primary(&self) -> bool {
        self.at.as_ref().is_some_and(|at| !at.is_replica)
    }

    /// Returns whether a server of the snapshot has a free connection, or can open another one.
    pub(super) fn has_room(&self, view: &ServiceSnapshot, index: usize) -> bool {
        view.connection_limits().is_none_or(|limits| {
            let pooled = self.account.pool_handle(&view.servers[index], limits);
            self.worker_pool.has_capacity(&pooled)
        })
    }

    /// Requests a connection to the target of the work.
    pub(super) fn acquire(
        &mut self,
        wanted: &PlacementTarget,
        view: &ServiceSnapshot,
    ) -> AcquireOutcome<C> {
        match wanted {
            PlacementTarget::Primary => self.acquire_primary(view),
            PlacementTarget::Reader(index) | PlacementTarget::AfterSync(index) => {
                self.acquire_at(view, *index, true)
            }
            PlacementTarget::Named(index) | PlacementTarget::AfterPosition(index, _) => {
                self.acquire_at(view, *index, false)
            }
        }
    }

    fn acquire_primary(&mut self, view: &ServiceSnapshot) -> AcquireOutcome<C> {
        let primary = view.database().and_then(|database| database.primary);
        let Some(index) = primary else {
            return match self.wait_for_another_primary() {
                AcquireOutcome::Reroute => AcquireOutcome::Denied(AcquireError::NO_PRIMARY),
                outcome => outcome,
            };
        };
        if self.resumed.is_some() || self.service.failover_queue.is_idle() {
            return self.acquire_at(view, index, false);
        }
        match self.queue_for_primary() {
            AcquireOutcome::Reroute => self.acquire_at(view, index, false),
            outcome => outcome,
        }
    }

    /// Queues for a primary unless one is available now.
    fn queue_for_primary(&mut self) -> AcquireOutcome<C> {
        match self.service.failover_queue.admit(clock::now_ms()) {
            FailoverAdmission::Go => AcquireOutcome::Reroute,
            FailoverAdmission::Wait(ticket, waiter) => self.wait_in_queue(ticket, waiter),
            FailoverAdmission::Fail(error) => {
                AcquireOutcome::Denied(AcquireError::NoPrimary(error))
            }
        }
    }

    fn wait_in_queue(
        &mut self,
        ticket: FailoverTicket,
        waiter: Arc<FailoverWaiter>,
    ) -> AcquireOutcome<C> {
        self.handle
            .set_activity(SessionActivity::WaitingForPrimary, self.worker);
        self.wait = Some(Wait::Primary { ticket, waiter });
        AcquireOutcome::Pending
    }

    fn acquire_at(
        &mut self,
        view: &ServiceSnapshot,
        index: usize,
        is_reserved: bool,
    ) -> AcquireOutcome<C> {
        self.at = Placement::new(view, index, is_reserved);
        self.acquire_chosen(view)
    }

    fn acquire_chosen(&mut self, view: &ServiceSnapshot) -> AcquireOutcome<C> {
        let (Some(limits), Some(at)) = (view.connection_limits(), &self.at) else {
            return AcquireOutcome::Denied(AcquireError::NO_PRIMARY);
        };
        loop {
            let pooled = self.account.pool_handle(&at.server, limits);
            match self.worker_pool.acquire(&pooled, &self.slot) {
                AcquireResult::Now(server) => return AcquireOutcome::Server(server),
                AcquireResult::Later(until_ms) => return self.wait_until(until_ms),
                // An operator has just had the pool's connections reopened: another pool replaces
                // it.
                AcquireResult::Refused(_) if pooled.pool.is_retired() => {}
                AcquireResult::Refused(refusal) => {
                    self.at = None;
                    return AcquireOutcome::Denied(AcquireError::Refused(refusal));
                }
            }
        }
    }

    fn wait_until(&mut self, until_ms: u64) -> AcquireOutcome<C> {
        self.start_wait(until_ms);
        let reroute_ms = clock::now_ms() + REROUTE_AFTER_MS;
        self.handle.set_deadline(until_ms.min(reroute_ms));
        AcquireOutcome::Pending
    }

    fn start_wait(&mut self, until_ms: u64) {
        let since_us = clock::now_us();
        self.wait = Some(Wait::Connection { until_ms, since_us });
        self.handle
            .set_activity(SessionActivity::Waiting, self.worker);
    }

    /// Replaces a connection that cannot be set up for this session, and waits for a new one. The
    /// wait lasts up to the server's login time limit.
    pub(super) fn exchange(&mut self, connection: Box<C>) {
        self.handle.set_target(None);
        self.worker_pool.replace_connection(connection, &self.slot);
        self.start_wait(u64::MAX);
    }

    /// Returns the result of waiting for a connection to a server of this service.
    pub(super) fn poll_connection(
        &mut self,
        context: &Context<'_>,
        service: &Service,
    ) -> Option<AcquireOutcome<C>> {
        let Some(Wait::Connection { since_us, .. }) = self.wait else {
            return None;
        };
        let delivery = self.slot.take(context)?;
        self.wait = None;
        self.handle.set_deadline(0);
        let waited_us = clock::now_us().saturating_sub(since_us);
        self.stats().wait_us.observe(waited_us);
        Some(match delivery {
            WaitResult::Connection(server) if self.is_at_former_primary(&service.snapshot()) => {
                self.release(server, Condition::Clean);
                self.at = None;
                AcquireOutcome::Reroute
            }
            WaitResult::Connection(server) => AcquireOutcome::Server(server),
            WaitResult::Again => {
                self.at = None;
                AcquireOutcome::Reroute
            }
            WaitResult::Failed(error) if error.is_passing() => {
                self.service.server_info.request_role_check(error.server_id);
                AcquireOutcome::Failed(SetupFailure::Lost, AcquireError::NO_PRIMARY)
            }
            // The replica may not have replicated the user, the password or the database yet.
            WaitResult::Failed(error) if self.is_at_replica() => {
                let error = AcquireError::ConnectFailed(error);
                AcquireOutcome::Failed(SetupFailure::Rejected, error)
            }
            WaitResult::Failed(error) => {
                self.at = None;
                AcquireOutcome::Denied(AcquireError::ConnectFailed(error))
            }
        })
    }

    /// Returns whether the chosen server is no longer the primary: writes there would be lost.
    pub(super) fn is_at_former_primary(&self, view: &ServiceSnapshot) -> bool {
        let (Some(database), Some(at)) = (view.database(), &self.at) else {
            return false;
        };
        let primary = database.primary.and_then(|index| view.servers.get(index));
        let is_other = primary.is_none_or(|primary| primary.id != at.server.id);
        !at.is_replica && (is_other || database.epoch != at.epoch)
    }

    pub(super) fn poll_primary(&mut self, context: &Context<'_>) -> Option<AcquireOutcome<C>> {
        let Some(Wait::Primary { ticket, waiter }) = &self.wait else {
            return None;
        };
        let Poll::Ready(outcome) = waiter.poll(context) else {
            return None;
        };
        let ticket = *ticket;
        self.wait = None;
        Some(match outcome {
            Ok(()) => {
                self.resumed = Some(ticket);
                AcquireOutcome::Reroute
            }
            Err(error) => AcquireOutcome::Denied(AcquireError::NoPrimary(error)),
        })
    }

    /// Queues for a primary again, because the server expected to be primary is not.
    pub(super) fn wait_for_another_primary(&mut self) -> AcquireOutcome<C> {
        if let Some(ticket) = self.resumed.take() {
            let waiter = self.service.failover_queue.requeue(ticket);
            return self.wait_in_queue(ticket, waiter);
        }
        let queue = &self.service.failover_queue;
        queue.set_primary(PrimaryStatus::Unavailable);
        // Another worker may just have learned of a new primary.
        self.queue_for_primary()
    }

    /// Admits the next queued session, after the primary has answered this one's work.
    pub(super) fn release_failover_slot(&mut self) {
        if let Some(ticket) = self.resumed.take() {
            self.service.failover_queue.done(ticket);
        }
    }

    /// Marks the start of work at the server. Returns the time in microseconds.
    pub(super) fn begins_work(&self) -> u64 {
        self.handle
            .set_activity(SessionActivity::Active, self.worker);
        let now_us = clock::now_us();
        self.handle.begins_transaction(now_us);
        now_us
    }

    /// Records the end of work that began at `since_us`. Returns the time in microseconds.
    pub(super) fn ends_work(
        &self,
        since_us: u64,
        result: &StatementResult,
        ends_transaction: bool,
    ) -> u64 {
        let now_us = clock::now_us();
        let took_us = now_us.saturating_sub(since_us);
        let (stats, user_stats) = (self.stats(), &self.user_stats);
        self.count_statement(result, took_us, now_us / 1_000);
        stats.queries.add(1);
        stats.query_us.observe(took_us);
        if self.is_at_replica() {
            stats.on_replicas.add(1);
        }
        if ends_transaction {
            let lasted_us = self.handle.ends_transaction(now_us);
            stats.transactions.add(1);
            stats.transaction_us.observe(lasted_us);
            user_stats.transactions.add(1);
        }
        now_us
    }

    /// Counts a statement for its user, its server and its digest.
    fn count_statement(&self, result: &StatementResult, took_us: u64, now_ms: u64) {
        let worker = self.worker.index();
        let done = TimedResult::new(took_us, result);
        self.user_stats.work.add(&done);
        if let Some(server) = self.server() {
            server.counters.work()[worker].add(&done);
        }
        if let (Some(digest), Some(digests)) = (result.digest, &*self.service.digests()) {
            let when = (self.is_at_replica(), now_ms);
            digests.count(worker, digest, &done, when);
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.wait.is_some()
    }

    /// Returns whether the session has been queued for `REROUTE_AFTER_MS`.
    pub(super) fn should_reroute(&self) -> bool {
        let Some(Wait::Connection { until_ms, since_us }) = self.wait else {
            return false;
        };
        let waited_us = clock::now_us().saturating_sub(since_us);
        until_ms != u64::MAX && waited_us >= REROUTE_AFTER_MS * 1_000
    }

    /// Leaves the queue if `wanted` has capacity now, or the awaited server may no longer serve.
    pub(super) fn reroute_to(&mut self, wanted: PlacementTarget, view: &ServiceSnapshot) -> bool {
        let Some(database) = view.database() else {
            return false;
        };
        let leaves = self.is_better(wanted.index(database), view, database);
        wanted.forgo(database);
        if leaves {
            self.leave_queues();
            self.at = None;
        }
        leaves
    }

    fn is_better(
        &self,
        wanted: Option<usize>,
        view: &ServiceSnapshot,
        database: &DatabaseSnapshot,
    ) -> bool {
        let Some(at) = &self.at else {
            return false;
        };
        let current = view.servers.iter().position(|one| one.id == at.server.id);
        if current == wanted {
            return self.is_at_former_primary(view);
        }
        let may_serve =
            |i: usize| database.primary == Some(i) || database.readers.members()[i].accepting;
        let is_left = self.is_at_former_primary(view) || !current.is_some_and(may_serve);
        is_left || wanted.is_some_and(|index| self.has_room(view, index))
    }

    /// Returns whether the wait for a connection has timed out, and leaves the queue if so.
    pub(super) fn has_timed_out(&mut self) -> bool {
        let Some(Wait::Connection { until_ms, .. }) = self.wait else {
            return false;
        };
        // The connection may arrive while the wait is being given up.
        if clock::now_ms() < until_ms || !self.worker_pool.cancel_wait(&self.slot) {
            return false;
        }
        self.wait = None;
        self.stats().timed_out.add(1);
        true
    }

    pub(super) fn leave_queues(&mut self) {
        self.worker_pool.leave_queue(&self.slot);
        if let Some(WaitResult::Connection(server)) = self.slot.take_late() {
            self.worker_pool.release(server, Condition::Clean);
        }
        if let Some(Wait::Primary { ticket, .. }) = self.wait.take() {
            self.service.failover_queue.cancel(ticket);
        }
    }

    /// Renews the server's connections, because the baseline of new ones has changed.
    pub(super) fn renew_server(&self) {
        if let Some(at) = &self.at {
            self.worker_pool.renew(self.worker, at.server.id);
        }
    }

    pub(super) fn release(&self, server: Box<C>, condition: Condition) {
        self.handle.set_target(None);
        self.worker_pool.release(server, condition);
        self.end_offer();
    }

    /// Releases the connection after `renew` has reset it in the background. If `renew` returns
    /// false, the connection is released as unclean.
    pub(super) fn release_renewed(
        &self,
        mut server: Box<C>,
        renew: impl AsyncFnOnce(&mut C) -> bool + 'static,
    ) {
        self.handle.set_target(None);
        let worker_pool = Rc::clone(&self.worker_pool);
        self.worker.spawn(async move {
            let renewed = timers::timeout(RENEWAL_LIMIT, renew(&mut server)).await;
            let condition = match renewed {
                Ok(true) => Condition::Clean,
                Ok(false) | Err(_) => Condition::Unclean,
            };
            worker_pool.release(server, condition);
        });
    }

    fn stats(&self) -> &ServiceStats {
        &self.service.stats()[self.worker.index()]
    }
}

impl<C: PoolableConnection> Drop for Acquirer<'_, C> {
    fn drop(&mut self) {
        self.leave_queues();
        self.release_failover_slot();
        self.end_offer();
    }
}

impl AcquireError {
    pub(super) const NO_PRIMARY: Self = Self::NoPrimary(PrimaryError::NoPrimary { waited_ms: 0 });
}
