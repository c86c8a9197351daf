//! Assigns logged-in server connections to sessions, for a transaction or a session at a time.
//! The shared pools of a service select the next client ([`evenkeel_policy::connection_pool`]).
//! Each worker holds the idle connections that it received last, and transfers them to other
//! workers. A [`PoolableConnection`] implements what differs between protocols.

mod connection;
mod cross_service;
mod held_checkout;
mod idle;
mod maintenance;
mod message;
mod offers;
mod opening;
mod replace;
mod user_pools;
mod wait_slot;
mod worker_pools;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use evenkeel_engine::panics::Indivisible;
use evenkeel_engine::{clock, timers};
use evenkeel_policy::connection_pool::{
    AcquireDecision, CancelOutcome, Checkout, ClosingConnection, Condition, IdlePool, Pool,
    PoolRefusal, ReleaseDecision, TaskKind, WaitTicket, WorkerTask,
};
use slab::Slab;

use held_checkout::LostCheckouts;
use offers::Offers;

pub(crate) use connection::{ConnectionCore, ConnectionTransfer, PoolableConnection};
pub(crate) use held_checkout::HeldCheckout;
pub use idle::IdleInfo;
pub(crate) use message::PoolMessage;
pub(crate) use offers::OfferSlot;
pub(crate) use user_pools::UserPools;
pub(crate) use wait_slot::{WaitResult, WaitSlot};
pub(crate) use worker_pools::WorkerPools;

use crate::service::Service;
use crate::upstream::pool_registry::{PoolHandle, PoolRegistry, PoolUser};
use crate::worker::Worker;

/// One worker's part of one service's pools.
pub(crate) struct WorkerPool<C: PoolableConnection> {
    service: Arc<Service>,
    registry: Arc<PoolRegistry>,
    worker: Weak<Worker>,
    idle: RefCell<IdlePool>,
    /// All connections of this worker by number; an entry is empty while a session has the
    /// connection.
    connections: RefCell<Slab<Option<Box<C>>>>,
    /// Queued clients by ticket number.
    waiting: RefCell<HashMap<u64, Rc<WaitSlot<C>>>>,
    /// Sessions that offer the connections that they keep.
    offers: RefCell<Offers>,
    /// State shared by the sessions of one user in one database, while any exist.
    accounts: RefCell<HashMap<AccountKey, Weak<UserPools<C>>>>,
    /// Checkouts of connections that tasks have dropped.
    lost: Rc<LostCheckouts>,
    last_maintenance_ms: Cell<u64>,
}

/// User, database, generation and identity.
type AccountKey = (u64, u64, u64, u64);

/// Result of a session's request for a connection.
pub(crate) enum AcquireResult<C> {
    Now(Box<C>),
    /// The connection will be delivered to the wait slot; the deadline, in milliseconds of the
    /// clock.
    Later(u64),
    Refused(PoolRefusal),
}

impl<C: PoolableConnection> WorkerPool<C> {
    pub(crate) fn new(
        worker: &Rc<Worker>,
        service: &Arc<Service>,
        registry: &Arc<PoolRegistry>,
    ) -> Self {
        let idle = IdlePool::new(worker.index(), Arc::clone(&registry.pools));
        Self {
            service: Arc::clone(service),
            registry: Arc::clone(registry),
            worker: Rc::downgrade(worker),
            idle: RefCell::new(idle),
            connections: RefCell::default(),
            waiting: RefCell::default(),
            offers: RefCell::default(),
            accounts: RefCell::default(),
            lost: Rc::default(),
            last_maintenance_ms: Cell::new(0),
        }
    }

    /// Returns the state that a user's sessions in a database share; `known` makes its part of the
    /// protocol if this is the first session.
    pub(crate) fn account(
        &self,
        user: PoolUser,
        known: impl FnOnce(&PoolUser) -> C::Known,
    ) -> Rc<UserPools<C>> {
        let key = (
            user.user_number.get(),
            user.database_number.get(),
            user.generation,
            user.identity,
        );
        let mut accounts = self.accounts.borrow_mut();
        if let Some(existing) = accounts.get(&key).and_then(Weak::upgrade) {
            return existing;
        }
        accounts.retain(|_, account| account.strong_count() > 0);
        let known = known(&user);
        let account = UserPools::new(user, known, &self.registry);
        accounts.insert(key, Rc::downgrade(&account));
        account
    }

    /// Requests a connection of a pool for a session; if it must wait, it does so in its wait slot.
    pub(crate) fn acquire(
        self: &Rc<Self>,
        pool_handle: &PoolHandle,
        slot: &Rc<WaitSlot<C>>,
    ) -> AcquireResult<C> {
        let _change = Indivisible::begin();
        loop {
            let mut tasks = Vec::new();
            let core =
                self.idle
                    .borrow_mut()
                    .acquire(&pool_handle.pool, clock::now_ms(), &mut tasks);
            let outcome = match core {
                AcquireDecision::Take(checkout) => self.check_out(checkout).map(AcquireResult::Now),
                AcquireDecision::Refuse(refusal) => Some(AcquireResult::Refused(refusal)),
                AcquireDecision::Wait { ticket, until_ms } => {
                    slot.enqueue(ticket);
                    self.waiting
                        .borrow_mut()
                        .insert(ticket.number, Rc::clone(slot));
                    Some(AcquireResult::Later(until_ms))
                }
            };
            self.send_tasks(tasks);
            if let Some(outcome) = outcome {
                return outcome;
            }
        }
    }

    /// Returns whether a client can get a connection without waiting for another session.
    pub(crate) fn has_capacity(&self, pool_handle: &PoolHandle) -> bool {
        self.idle
            .borrow()
            .has_capacity(&pool_handle.pool, clock::now_ms())
    }

    /// Returns the connection of a checkout; `None`: it has ended meanwhile and is closed.
    fn check_out(self: &Rc<Self>, checkout: Checkout) -> Option<Box<C>> {
        let mut connection = self.take_connection(&checkout)?;
        let core = connection.core_mut();
        core.checkout = Some(HeldCheckout::new(checkout, &self.lost));
        if connection.has_ended() {
            connection.note_idle_end(&self.service);
            self.release(connection, Condition::Unclean);
            return None;
        }
        Some(connection)
    }

    fn take_connection(&self, checkout: &Checkout) -> Option<Box<C>> {
        let mut connections = self.connections.borrow_mut();
        connections.get_mut(checkout.connection as usize)?.take()
    }

    /// Cancels a session's wait. Returns true if a delivery was in progress and will continue.
    pub(crate) fn leave_queue(&self, slot: &WaitSlot<C>) -> bool {
        let _change = Indivisible::begin();
        let Some(ticket) = slot.leave_queue() else {
            return false;
        };
        self.waiting.borrow_mut().remove(&ticket.number);
        self.registry.pools.cancel(ticket) == CancelOutcome::Answered
    }

    /// Returns whether a session that has timed out really gets no connection.
    pub(crate) fn cancel_wait(&self, slot: &WaitSlot<C>) -> bool {
        let _change = Indivisible::begin();
        let Some(ticket) = slot.ticket() else {
            slot.leave_queue();
            return true;
        };
        if self.registry.pools.cancel(ticket) == CancelOutcome::Answered {
            return false;
        }
        slot.leave_queue();
        self.waiting.borrow_mut().remove(&ticket.number);
        true
    }

    /// Takes a connection back from a session.
    pub(crate) fn release(self: &Rc<Self>, mut connection: Box<C>, condition: Condition) {
        let _change = Indivisible::begin();
        let core = connection.core_mut();
        if condition == Condition::Clean && core.cancel_target.get() > 0 {
            return self.release_after_cancels(connection);
        }
        let held = core.checkout.take();
        let Some(checkout) = held.and_then(HeldCheckout::into_checkout) else {
            return;
        };
        core.stream.watch();
        if let Some(entry) = self
            .connections
            .borrow_mut()
            .get_mut(checkout.connection as usize)
        {
            *entry = Some(connection);
        }
        let mut tasks = Vec::new();
        let returned =
            self.idle
                .borrow_mut()
                .release(checkout, condition, clock::now_ms(), &mut tasks);
        self.apply_release(returned);
        self.send_tasks(tasks);
    }

    /// Waits first, because a cancel request in flight could hit the next client's query.
    fn release_after_cancels(self: &Rc<Self>, connection: Box<C>) {
        let this = Rc::clone(self);
        let Some(worker) = self.worker.upgrade() else {
            return;
        };
        worker.spawn(async move {
            let clean = connection.core().cancel_target.wait_until_none().await;
            let condition = if clean {
                Condition::Clean
            } else {
                Condition::Unclean
            };
            this.release(connection, condition);
        });
    }

    fn apply_release(self: &Rc<Self>, returned: ReleaseDecision) {
        match returned {
            ReleaseDecision::Idle => {}
            ReleaseDecision::Assign(ticket, checkout) => self.assign(ticket, checkout),
            ReleaseDecision::Close(closing) => self.close(closing),
        }
    }

    /// Assigns a connection to the holder of the ticket.
    fn assign(self: &Rc<Self>, ticket: WaitTicket, checkout: Checkout) {
        let Some(worker) = self.worker.upgrade() else {
            return;
        };
        if ticket.worker != worker.index() {
            return self.send_to_worker(&worker, ticket, checkout);
        }
        let Some(mut connection) = self.take_connection(&checkout) else {
            return;
        };
        let core = connection.core_mut();
        core.checkout = Some(HeldCheckout::new(checkout, &self.lost));
        let has_ended = connection.has_ended();
        let slot = self.waiting.borrow_mut().remove(&ticket.number);
        match slot {
            Some(slot) if !has_ended => slot.deliver(WaitResult::Connection(connection)),
            Some(slot) => {
                self.release(connection, Condition::Unclean);
                slot.deliver(WaitResult::Again);
            }
            None if has_ended => self.release(connection, Condition::Unclean),
            None => self.release(connection, Condition::Clean),
        }
    }

    fn send_to_worker(
        self: &Rc<Self>,
        worker: &Rc<Worker>,
        ticket: WaitTicket,
        mut checkout: Checkout,
    ) {
        let Some(connection) = self.take_connection(&checkout) else {
            return;
        };
        let (this, owner) = (Rc::clone(self), Rc::clone(worker));
        worker.spawn(async move {
            let number = checkout.connection;
            let packed = ConnectionTransfer::pack(connection, &owner).await;
            let message = match packed {
                Some(transfer) => {
                    this.connections.borrow_mut().remove(number as usize);
                    PoolMessage::Take {
                        ticket,
                        checkout,
                        transfer: Box::new(transfer),
                    }
                }
                None => {
                    checkout.connection = number;
                    this.release_lost(checkout);
                    PoolMessage::Again(ticket)
                }
            };
            this.send_message(&owner, ticket.worker, message);
        });
    }

    /// Releases the checkout of a connection that has ended.
    fn release_lost(self: &Rc<Self>, checkout: Checkout) {
        let _change = Indivisible::begin();
        let mut tasks = Vec::new();
        let now_ms = clock::now_ms();
        let returned =
            self.idle
                .borrow_mut()
                .release(checkout, Condition::Unclean, now_ms, &mut tasks);
        self.apply_release(returned);
        self.send_tasks(tasks);
    }

    fn close(self: &Rc<Self>, closing: ClosingConnection) {
        let mut connections = self.connections.borrow_mut();
        let gone = connections
            .try_remove(closing.connection as usize)
            .flatten();
        drop(connections);
        let server = gone.map(|connection| {
            let server = Arc::clone(&connection.core().pool_handle.server);
            connection.disconnect(closing.why.as_str());
            server
        });
        let mut tasks = Vec::new();
        self.idle
            .borrow_mut()
            .closed(closing, clock::now_ms(), &mut tasks);
        self.send_tasks(tasks);
        if let (Some(worker), Some(server)) = (self.worker.upgrade(), server) {
            self.handle_freed_permit(&worker, &server);
        }
    }

    /// Delivers the tasks of the shared pools to the workers.
    pub(crate) fn send_tasks(self: &Rc<Self>, tasks: Vec<WorkerTask>) {
        if tasks.is_empty() {
            return;
        }
        let Some(worker) = self.worker.upgrade() else {
            return;
        };
        for task in tasks {
            let to = task.worker;
            if to == worker.index() {
                self.run_task(&worker, task);
            } else {
                self.send_message(&worker, to, PoolMessage::Task(task));
            }
        }
    }

    fn send_message(&self, worker: &Worker, to: usize, message: PoolMessage) {
        message.send(&worker.shared.workers, to, self.service.id);
    }

    fn run_task(self: &Rc<Self>, worker: &Rc<Worker>, task: WorkerTask) {
        let mut tasks = Vec::new();
        let now_ms = clock::now_ms();
        match task.task {
            TaskKind::Connect => self.connect(worker, task.pool),
            TaskKind::Recheck { at_ms } => self.recheck_later(worker, task.pool, at_ms),
            TaskKind::AcceptOffer { on_behalf } => self.accept_offer(&task.pool, on_behalf),
            TaskKind::HandOverIdle => {
                let handed_over = self
                    .idle
                    .borrow_mut()
                    .hand_over_idle(&task.pool, now_ms, &mut tasks);
                if let Some((ticket, checkout)) = handed_over {
                    self.assign(ticket, checkout);
                }
            }
            TaskKind::Evict { on_behalf } => {
                let evicted = self
                    .idle
                    .borrow_mut()
                    .evict(&task.pool, on_behalf, now_ms, &mut tasks);
                if let Some(closing) = evicted {
                    self.close(closing);
                }
            }
        }
        self.send_tasks(tasks);
    }

    fn recheck_later(self: &Rc<Self>, worker: &Rc<Worker>, pool: Arc<Pool>, at_ms: u64) {
        let this = Rc::clone(self);
        worker.spawn(async move {
            let pause_ms = at_ms.saturating_sub(clock::now_ms());
            timers::sleep(Duration::from_millis(pause_ms)).await;
            let _change = Indivisible::begin();
            let mut tasks = Vec::new();
            this.idle
                .borrow_mut()
                .recheck(&pool, clock::now_ms().max(at_ms), &mut tasks);
            this.send_tasks(tasks);
        });
    }

    /// Handles a message of another worker.
    pub(crate) fn handle_message(self: &Rc<Self>, worker: &Rc<Worker>, message: PoolMessage) {
        let _change = Indivisible::begin();
        match message {
            PoolMessage::Task(task) => self.run_task(worker, task),
            PoolMessage::Failed(ticket, error) => self.report_error(worker, ticket, error),
            PoolMessage::CloseIdle { server, database } => self.close_idle(server, database),
            PoolMessage::Again(ticket) => {
                let slot = self.waiting.borrow_mut().remove(&ticket.number);
                if let Some(slot) = slot {
                    slot.deliver(WaitResult::Again);
                }
            }
            PoolMessage::Take {
                ticket,
                mut checkout,
                transfer,
            } => match transfer.unpack::<C>(worker) {
                Some(connection) => {
                    connection.core().stream.watch();
                    let number = self.connections.borrow_mut().insert(Some(connection));
                    checkout.connection = u32::try_from(number).unwrap_or(u32::MAX);
                    self.assign(ticket, checkout);
                }
                None => {
                    checkout.connection = u32::MAX;
                    self.release_lost(checkout);
                    self.handle_message(worker, PoolMessage::Again(ticket));
                }
            },
        }
    }
}

#[cfg(test)]
mod tests;
