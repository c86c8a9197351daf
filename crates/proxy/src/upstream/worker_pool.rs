//! Assigns logged-in server connections to sessions, for a transaction or a session at a time.
//! The shared pools of a service select the next client ([`evenkeel_policy::connection_pool`]).
//! Each worker holds the idle connections that it received last, and transfers them to other
//! workers. A [`PoolableConnection`] implements what differs between protocols.

mod connection;
mod cross_service;
mod idle;
mod maintenance;
mod message;
mod replace;
mod user_pools;
mod wait_slot;
mod worker_pools;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use evenkeel_policy::connection_pool::{
    AcquireDecision, CancelOutcome, Checkout, ClosingConnection, Condition, IdlePool, OpenFailure,
    Pool, PoolRefusal, ReleaseDecision, TaskKind, WaitTicket, WorkerTask,
};
use slab::Slab;

pub(crate) use connection::{
    ConnectionCore, ConnectionTransfer, PoolableConnection, TransferState,
};
pub(crate) use message::PoolMessage;
pub(crate) use user_pools::UserPools;
pub(crate) use wait_slot::{WaitResult, WaitSlot};
pub(crate) use worker_pools::{ById, WorkerPools};

use crate::clock;
use crate::engine::worker::Worker;
use crate::fast_random::fast_random;
use crate::service::Service;
use crate::service::database::DatabaseService;
use crate::upstream::pool_registry::{PoolHandle, PoolRegistry, PoolUser};
use crate::upstream::server_login::ConnectError;

/// Pause before the next connect to a server that reported that it is full.
const FULL_PAUSE_MS: u64 = 500;

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
    /// State shared by the sessions of one user in one database, while any exist.
    accounts: RefCell<HashMap<AccountKey, Weak<UserPools<C>>>>,
    upkept_ms: Cell<u64>,
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
        let idle = IdlePool::new(worker.index, Arc::clone(&registry.pools));
        Self {
            service: Arc::clone(service),
            registry: Arc::clone(registry),
            worker: Rc::downgrade(worker),
            idle: RefCell::new(idle),
            connections: RefCell::default(),
            waiting: RefCell::default(),
            accounts: RefCell::default(),
            upkept_ms: Cell::new(0),
        }
    }

    /// Returns the state that a user's sessions in a database share.
    pub(crate) fn account(&self, user: PoolUser, service: &DatabaseService) -> Rc<UserPools<C>> {
        let key = (
            user.user_number.get(),
            user.database_number.get(),
            user.generation,
            user.identity,
        );
        let mut accounts = self.accounts.borrow_mut();
        if let Some(known) = accounts.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        accounts.retain(|_, account| account.strong_count() > 0);
        let account = UserPools::new(user, service);
        accounts.insert(key, Rc::downgrade(&account));
        account
    }

    /// Requests a connection of a pool for a session; if it must wait, it does so in its wait slot.
    pub(crate) fn borrow(
        self: &Rc<Self>,
        pooled: &PoolHandle,
        place: &Rc<WaitSlot<C>>,
    ) -> AcquireResult<C> {
        loop {
            let mut orders = Vec::new();
            let core = self
                .idle
                .borrow_mut()
                .acquire(&pooled.pool, clock::now_ms(), &mut orders);
            let borrowed = match core {
                AcquireDecision::Take(loan) => self.take(loan).map(AcquireResult::Now),
                AcquireDecision::Refuse(refusal) => Some(AcquireResult::Refused(refusal)),
                AcquireDecision::Wait { ticket, until_ms } => {
                    place.enqueue(ticket);
                    self.waiting
                        .borrow_mut()
                        .insert(ticket.number, Rc::clone(place));
                    Some(AcquireResult::Later(until_ms))
                }
            };
            self.give_out(orders);
            if let Some(borrowed) = borrowed {
                return borrowed;
            }
        }
    }

    /// Returns whether a client can get a connection without waiting for another session.
    pub(crate) fn has_room(&self, pooled: &PoolHandle) -> bool {
        self.idle.borrow().has_room(&pooled.pool, clock::now_ms())
    }

    /// Returns the connection of a checkout; `None`: it has ended meanwhile and is closed.
    fn take(self: &Rc<Self>, loan: Checkout) -> Option<Box<C>> {
        let mut connection = self.lift(&loan)?;
        let core = connection.core_mut();
        core.loan = Some(loan);
        if core.stream.has_arrived() {
            self.release(connection, Condition::Unclean);
            return None;
        }
        Some(connection)
    }

    fn lift(&self, loan: &Checkout) -> Option<Box<C>> {
        let mut connections = self.connections.borrow_mut();
        connections.get_mut(loan.connection as usize)?.take()
    }

    /// Cancels a session's wait. Returns true if a delivery was in progress and will continue.
    pub(crate) fn leave_line(&self, place: &WaitSlot<C>) -> bool {
        let Some(ticket) = place.leave_line() else {
            return false;
        };
        self.waiting.borrow_mut().remove(&ticket.number);
        self.registry.pools.cancel(ticket) == CancelOutcome::Answered
    }

    /// Returns whether a session that has timed out really gets no connection.
    pub(crate) fn give_up(&self, place: &WaitSlot<C>) -> bool {
        let Some(ticket) = place.ticket() else {
            place.leave_line();
            return true;
        };
        if self.registry.pools.cancel(ticket) == CancelOutcome::Answered {
            return false;
        }
        place.leave_line();
        self.waiting.borrow_mut().remove(&ticket.number);
        true
    }

    /// Takes a connection back from a session.
    pub(crate) fn release(self: &Rc<Self>, mut connection: Box<C>, condition: Condition) {
        let core = connection.core_mut();
        let Some(loan) = core.loan.take() else {
            return;
        };
        if condition == Condition::Clean && core.cancels.get() > 0 {
            core.loan = Some(loan);
            return self.give_back_after_cancels(connection);
        }
        core.stream.watch();
        if let Some(shelf) = self
            .connections
            .borrow_mut()
            .get_mut(loan.connection as usize)
        {
            *shelf = Some(connection);
        }
        let mut orders = Vec::new();
        let returned =
            self.idle
                .borrow_mut()
                .release(loan, condition, clock::now_ms(), &mut orders);
        self.settle(returned);
        self.give_out(orders);
    }

    /// Waits first, because a cancel request in flight could hit the next client's query.
    fn give_back_after_cancels(self: &Rc<Self>, connection: Box<C>) {
        let this = Rc::clone(self);
        let Some(worker) = self.worker.upgrade() else {
            return;
        };
        worker.spawn(async move {
            let clean = connection.core().cancels.none_left().await;
            let condition = if clean {
                Condition::Clean
            } else {
                Condition::Unclean
            };
            this.release(connection, condition);
        });
    }

    fn settle(self: &Rc<Self>, returned: ReleaseDecision) {
        match returned {
            ReleaseDecision::Idle => {}
            ReleaseDecision::Hand(ticket, loan) => self.hand(ticket, loan),
            ReleaseDecision::Close(closing) => self.close(closing),
        }
    }

    /// Assigns a connection to the holder of the ticket.
    fn hand(self: &Rc<Self>, ticket: WaitTicket, loan: Checkout) {
        let Some(worker) = self.worker.upgrade() else {
            return;
        };
        if ticket.worker != worker.index {
            return self.send_away(&worker, ticket, loan);
        }
        let Some(mut connection) = self.lift(&loan) else {
            return;
        };
        let core = connection.core_mut();
        core.loan = Some(loan);
        let has_spoken = core.stream.has_arrived();
        let place = self.waiting.borrow_mut().remove(&ticket.number);
        match place {
            Some(place) if !has_spoken => place.deliver(WaitResult::Connection(connection)),
            Some(place) => {
                self.release(connection, Condition::Unclean);
                place.deliver(WaitResult::Again);
            }
            None if has_spoken => self.release(connection, Condition::Unclean),
            None => self.release(connection, Condition::Clean),
        }
    }

    fn send_away(self: &Rc<Self>, worker: &Rc<Worker>, ticket: WaitTicket, mut loan: Checkout) {
        let Some(connection) = self.lift(&loan) else {
            return;
        };
        let (this, home) = (Rc::clone(self), Rc::clone(worker));
        worker.spawn(async move {
            let number = loan.connection;
            let packed = ConnectionTransfer::pack(connection, &home).await;
            let message = match packed {
                Some(transfer) => {
                    this.connections.borrow_mut().remove(number as usize);
                    PoolMessage::Take {
                        ticket,
                        loan,
                        transfer: Box::new(transfer),
                    }
                }
                None => {
                    loan.connection = number;
                    this.lose(loan);
                    PoolMessage::Again(ticket)
                }
            };
            this.send_message(&home, ticket.worker, message);
        });
    }

    /// Releases the checkout of a connection that has ended.
    fn lose(self: &Rc<Self>, loan: Checkout) {
        let mut orders = Vec::new();
        let now_ms = clock::now_ms();
        let returned =
            self.idle
                .borrow_mut()
                .release(loan, Condition::Unclean, now_ms, &mut orders);
        self.settle(returned);
        self.give_out(orders);
    }

    fn close(self: &Rc<Self>, closing: ClosingConnection) {
        let mut connections = self.connections.borrow_mut();
        let gone = connections
            .try_remove(closing.connection as usize)
            .flatten();
        drop(connections);
        let server = gone.map(|connection| {
            let server = Arc::clone(&connection.core().pooled.server);
            connection.disconnect(closing.why.as_str());
            server
        });
        let mut orders = Vec::new();
        self.idle
            .borrow_mut()
            .closed(closing, clock::now_ms(), &mut orders);
        self.give_out(orders);
        if let (Some(worker), Some(server)) = (self.worker.upgrade(), server) {
            self.place_freed(&worker, &server);
        }
    }

    /// Delivers the tasks of the shared pools to the workers.
    pub(crate) fn give_out(self: &Rc<Self>, orders: Vec<WorkerTask>) {
        if orders.is_empty() {
            return;
        }
        let Some(worker) = self.worker.upgrade() else {
            return;
        };
        for order in orders {
            let to = order.worker;
            if to == worker.index {
                self.obey(&worker, order);
            } else {
                self.send_message(&worker, to, PoolMessage::Order(order));
            }
        }
    }

    fn send_message(&self, worker: &Worker, to: usize, message: PoolMessage) {
        let service_id = self.service.id;
        let order = crate::engine::WorkerCommand::Pool {
            service_id,
            message,
        };
        // A worker that has ended has no clients either.
        let _ = worker.shared.orders[to].send(order);
    }

    fn obey(self: &Rc<Self>, worker: &Rc<Worker>, order: WorkerTask) {
        let mut orders = Vec::new();
        let now_ms = clock::now_ms();
        match order.task {
            TaskKind::Connect => self.connect(worker, order.pool),
            TaskKind::Recheck { at_ms } => self.look_again(worker, order.pool, at_ms),
            TaskKind::HandOverIdle => {
                let given = self
                    .idle
                    .borrow_mut()
                    .give_idle(&order.pool, now_ms, &mut orders);
                if let Some((ticket, loan)) = given {
                    self.hand(ticket, loan);
                }
            }
            TaskKind::Evict { on_behalf } => {
                let evicted =
                    self.idle
                        .borrow_mut()
                        .evict(&order.pool, on_behalf, now_ms, &mut orders);
                if let Some(closing) = evicted {
                    self.close(closing);
                }
            }
        }
        self.give_out(orders);
    }

    fn look_again(self: &Rc<Self>, worker: &Rc<Worker>, pool: Arc<Pool>, at_ms: u64) {
        let this = Rc::clone(self);
        worker.spawn(async move {
            let pause_ms = at_ms.saturating_sub(clock::now_ms());
            compio::time::sleep(Duration::from_millis(pause_ms)).await;
            let mut orders = Vec::new();
            this.idle
                .borrow_mut()
                .look_again(&pool, clock::now_ms().max(at_ms), &mut orders);
            this.give_out(orders);
        });
    }

    fn connect(self: &Rc<Self>, worker: &Rc<Worker>, pool: Arc<Pool>) {
        let (this, home) = (Rc::clone(self), Rc::clone(worker));
        worker.spawn(async move {
            let opened = match this.registry.pooled(pool.key()) {
                Some(pooled) => Box::pin(C::open(&home, &this.service, &pooled)).await,
                None => Err(ConnectError::outdated()),
            };
            match opened {
                Ok(connection) => this.opened(&pool, connection),
                Err(error) => this.not_opened(&home, &pool, error),
            }
        });
    }

    fn opened(self: &Rc<Self>, pool: &Arc<Pool>, connection: Box<C>) {
        connection.core().stream.watch();
        let number = self.connections.borrow_mut().insert(Some(connection));
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        let mut orders = Vec::new();
        let returned = self.idle.borrow_mut().opened(
            pool,
            number,
            clock::now_ms(),
            fast_random(),
            &mut orders,
        );
        self.settle(returned);
        self.give_out(orders);
    }

    fn not_opened(self: &Rc<Self>, worker: &Rc<Worker>, pool: &Arc<Pool>, error: ConnectError) {
        let failure = if error.is_full() {
            let pause_ms = FULL_PAUSE_MS;
            OpenFailure::Full { pause_ms }
        } else {
            OpenFailure::Failed
        };
        let mut orders = Vec::new();
        let now_ms = clock::now_ms();
        let told = self
            .idle
            .borrow_mut()
            .connect_failed(pool, failure, now_ms, &mut orders);
        if let Some(ticket) = told {
            self.tell(worker, ticket, Arc::new(error));
        }
        self.give_out(orders);
    }

    fn tell(self: &Rc<Self>, worker: &Rc<Worker>, ticket: WaitTicket, error: Arc<ConnectError>) {
        if ticket.worker != worker.index {
            return self.send_message(worker, ticket.worker, PoolMessage::Failed(ticket, error));
        }
        let place = self.waiting.borrow_mut().remove(&ticket.number);
        if let Some(place) = place {
            place.deliver(WaitResult::Failed(error));
        }
    }

    /// Handles a message of another worker.
    pub(crate) fn handle_message(self: &Rc<Self>, worker: &Rc<Worker>, message: PoolMessage) {
        match message {
            PoolMessage::Order(order) => self.obey(worker, order),
            PoolMessage::Failed(ticket, error) => self.tell(worker, ticket, error),
            PoolMessage::Vacate { server, database } => self.vacate(server, database),
            PoolMessage::Again(ticket) => {
                let place = self.waiting.borrow_mut().remove(&ticket.number);
                if let Some(place) = place {
                    place.deliver(WaitResult::Again);
                }
            }
            PoolMessage::Take {
                ticket,
                mut loan,
                transfer,
            } => match transfer.unpack::<C>(worker) {
                Some(connection) => {
                    connection.core().stream.watch();
                    let number = self.connections.borrow_mut().insert(Some(connection));
                    loan.connection = u32::try_from(number).unwrap_or(u32::MAX);
                    self.hand(ticket, loan);
                }
                None => {
                    loan.connection = u32::MAX;
                    self.lose(loan);
                    self.handle_message(worker, PoolMessage::Again(ticket));
                }
            },
        }
    }
}
