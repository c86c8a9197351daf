//! Connections of a worker to servers of HTTP/2, and the exchanges that wait for a free stream.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::sync::{self, Arc};
use std::task::Poll;
use std::time::Duration;

use evenkeel_engine::{clock, timers};
use evenkeel_policy::connection_pool::{Condition, PoolRefusal, PoolSettings};
use evenkeel_wire::http2::{Connection, ExtendedConnect, Limits};

use super::connection;
use crate::session::http::http2::shared::State;
use crate::session::http::server::{ServerConnection, ServerProtocol};
use crate::upstream::connect_error::ConnectError;
use crate::upstream::pool_registry::PoolHandle;
use crate::upstream::worker_pool::{AcquireResult, WaitResult, WaitSlot, WorkerPool};
use crate::worker::Worker;

/// Streams that a connection is expected to have, before its server has said it.
const STREAMS_EXPECTED: usize = 100;

type Pool = Rc<WorkerPool<ServerConnection>>;
type Slot = Rc<WaitSlot<ServerConnection>>;

/// Connections of a worker, by service and pool.
#[derive(Default)]
pub(in crate::session::http) struct ServerConnections(
    RefCell<HashMap<(u64, u64), Rc<PoolConnections>>>,
);

/// Result of a request for a stream.
pub(in crate::session::http) enum Acquired {
    /// A connection with a free stream.
    Connection(Rc<SharedConnection>),
    /// The wait slot receives the word to try again, or an error. The deadline, in milliseconds of
    /// the clock.
    Later(u64),
    /// Too many requests wait.
    QueueFull,
    /// The server speaks HTTP/1.1.
    Http1,
}

/// Connections to one server, in the pool from which they are taken.
pub(super) struct PoolConnections {
    handle: sync::Weak<PoolHandle>,
    connections: RefCell<Vec<Rc<SharedConnection>>>,
    /// Exchanges that wait, with the number of the delivery.
    waiting: RefCell<VecDeque<(u64, Slot)>>,
    /// Exchanges that wait for the SETTINGS of the server.
    awaiting_settings: RefCell<Vec<(u64, Slot)>>,
    /// Whether the server accepts extended CONNECT, as far as its last SETTINGS say.
    connect: Cell<ExtendedConnect>,
    /// Number of connections that are being opened.
    opening: Cell<usize>,
    /// Streams that the last connection had when it was full.
    streams_each: Cell<usize>,
    /// Version that the server spoke last.
    speaks_http1: Cell<bool>,
}

/// Connection to a server, as its streams see it.
pub(in crate::session::http) struct SharedConnection {
    state: RefCell<State>,
    pool: Weak<PoolConnections>,
    /// False: the connection ends after its streams.
    accepts: Cell<bool>,
    /// Number of complete responses.
    responses: Cell<u64>,
    /// Time of the last received bytes, in milliseconds of the clock, as precise as the sweep.
    received_ms: Cell<u64>,
    is_encrypted: bool,
}

/// Connection that is being opened, which counts until it is dropped.
struct Opening(Rc<PoolConnections>);

/// Result of opening a connection.
enum Opened {
    Connection(Box<ServerConnection>),
    Failed(Arc<ConnectError>),
    /// The pool is outdated: the exchanges pick again.
    Outdated,
    /// The limit of connections was not free in time: the exchanges wait for streams.
    TimedOut,
}

impl ServerConnections {
    /// Requests a stream for an exchange. If none is free, the exchange waits in its slot, and a
    /// connection is opened.
    pub(in crate::session::http) fn acquire(
        &self,
        worker: &Rc<Worker>,
        (service_id, worker_pool): (u64, &Pool),
        pool_handle: &Arc<PoolHandle>,
        (slot, limits): (&Slot, Limits),
    ) -> Acquired {
        let pool = self.pool(service_id, pool_handle);
        if pool.speaks_http1.get() {
            return Acquired::Http1;
        }
        if let Some(connection) = pool.least_busy() {
            return Acquired::Connection(connection);
        }
        let settings = worker_pool.settings();
        if !pool.enqueue(slot, settings.queue_length) {
            return Acquired::QueueFull;
        }
        let expected = pool.opening.get() * pool.streams_each.get();
        if pool.waiting.borrow().len() > expected {
            pool.open(worker, worker_pool, pool_handle, limits);
        }
        Acquired::Later(deadline_ms(&settings))
    }

    /// Returns whether the server accepts extended CONNECT, as far as its last SETTINGS say.
    pub(in crate::session::http) fn offers_connect(
        &self,
        service_id: u64,
        pool_handle: &Arc<PoolHandle>,
    ) -> ExtendedConnect {
        self.pool(service_id, pool_handle).connect.get()
    }

    /// Shares a connection that an exchange got from the pool for itself, since the server spoke
    /// HTTP/1.1 before.
    pub(in crate::session::http) fn share(
        &self,
        worker: &Rc<Worker>,
        (service_id, worker_pool): (u64, &Pool),
        connection: Box<ServerConnection>,
        limits: Limits,
    ) -> Rc<SharedConnection> {
        let pool = self.pool(service_id, &connection.core.pool_handle);
        pool.share(worker, worker_pool, connection, limits)
    }

    fn pool(&self, service_id: u64, handle: &Arc<PoolHandle>) -> Rc<PoolConnections> {
        let key = (service_id, handle.pool.id());
        let mut all = self.0.borrow_mut();
        if let Some(known) = all.get(&key) {
            return Rc::clone(known);
        }
        all.retain(|_, pool| pool.handle.strong_count() > 0 || pool.is_used());
        let new = Rc::new(PoolConnections {
            handle: Arc::downgrade(handle),
            connections: RefCell::default(),
            waiting: RefCell::default(),
            awaiting_settings: RefCell::default(),
            connect: Cell::default(),
            opening: Cell::new(0),
            streams_each: Cell::new(STREAMS_EXPECTED),
            speaks_http1: Cell::new(false),
        });
        all.insert(key, Rc::clone(&new));
        new
    }
}

impl PoolConnections {
    fn is_used(&self) -> bool {
        let has_connections = !self.connections.borrow().is_empty();
        has_connections || self.opening.get() > 0 || !self.waiting.borrow().is_empty()
    }

    /// Returns the connection with the fewest open streams of those that have a free one.
    fn least_busy(&self) -> Option<Rc<SharedConnection>> {
        let connections = self.connections.borrow();
        let free = connections.iter().filter(|one| one.free_streams() > 0);
        free.min_by_key(|one| one.open_streams()).map(Rc::clone)
    }

    /// Adds an exchange to those that wait. Returns false if there are too many.
    fn enqueue(&self, slot: &Slot, queue_length: usize) -> bool {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() >= queue_length {
            // Those that have stopped to wait are only noticed here and when they are served.
            waiting.retain(|(number, slot)| slot.is_expected(*number));
        }
        let has_room = waiting.len() < queue_length;
        if has_room {
            waiting.push_back((slot.expect_message(), Rc::clone(slot)));
        }
        has_room
    }

    /// Returns the exchange that has waited for the longest time.
    fn dequeue(&self) -> Option<Slot> {
        let mut waiting = self.waiting.borrow_mut();
        std::iter::from_fn(|| waiting.pop_front())
            .find(|(number, slot)| slot.is_expected(*number))
            .map(|(_, slot)| slot)
    }

    /// Delivers a result to the exchanges that wait for the SETTINGS of the server.
    fn end_await_settings(&self, result: impl Fn() -> WaitResult<ServerConnection>) {
        for (number, slot) in self.awaiting_settings.take() {
            if slot.is_expected(number) {
                slot.deliver(result());
            }
        }
    }

    /// Lets exchanges that wait try again, up to this number.
    fn serve(&self, count: u32) {
        for _ in 0..count {
            let Some(slot) = self.dequeue() else { return };
            slot.deliver(WaitResult::Again);
        }
    }

    fn open(
        self: &Rc<Self>,
        worker: &Rc<Worker>,
        worker_pool: &Pool,
        pool_handle: &Arc<PoolHandle>,
        limits: Limits,
    ) {
        let opening = Opening::begin(self);
        let (owner, worker_pool) = (Rc::clone(worker), Rc::clone(worker_pool));
        let pool_handle = Arc::clone(pool_handle);
        worker.spawn(async move {
            let opened = open(&worker_pool, &pool_handle).await;
            let pool = opening.end();
            match opened {
                Opened::Connection(connection) => {
                    pool.take(&owner, &worker_pool, connection, limits);
                }
                Opened::Failed(error) => {
                    while let Some(slot) = pool.dequeue() {
                        slot.deliver(WaitResult::Failed(Arc::clone(&error)));
                    }
                }
                Opened::Outdated => pool.serve(u32::MAX),
                Opened::TimedOut => {}
            }
        });
    }

    /// Takes a new connection: shares it, or passes it on if the server speaks HTTP/1.1.
    fn take(
        self: &Rc<Self>,
        worker: &Rc<Worker>,
        worker_pool: &Pool,
        connection: Box<ServerConnection>,
        limits: Limits,
    ) {
        if connection.protocol == ServerProtocol::Http2 {
            let shared = self.share(worker, worker_pool, connection, limits);
            self.serve(shared.free_streams());
            return;
        }
        self.speaks_http1.set(true);
        match self.dequeue() {
            Some(slot) => slot.deliver(WaitResult::Connection(connection)),
            None => worker_pool.release(connection, Condition::Clean),
        }
        self.serve(u32::MAX);
    }

    fn share(
        self: &Rc<Self>,
        worker: &Rc<Worker>,
        worker_pool: &Pool,
        connection: Box<ServerConnection>,
        limits: Limits,
    ) -> Rc<SharedConnection> {
        let mut codec = Connection::client(limits);
        let mut out = worker.take_spare();
        codec.begin(&mut out);
        let shared = Rc::new(SharedConnection {
            state: RefCell::new(State::new(codec, out)),
            pool: Rc::downgrade(self),
            accepts: Cell::new(true),
            responses: Cell::new(0),
            received_ms: Cell::new(worker.last_sweep_ms()),
            is_encrypted: connection.core.stream.is_encrypted(),
        });
        self.speaks_http1.set(false);
        self.connections.borrow_mut().push(Rc::clone(&shared));
        let serving = connection::Serving::new(worker, worker_pool, connection, &shared);
        worker.spawn(serving.run());
        shared
    }
}

impl SharedConnection {
    /// Returns the state. Borrow it within one function, which calls no foreign code.
    pub(super) fn state(&self) -> RefMut<'_, State> {
        self.state.borrow_mut()
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }

    /// Returns the number of streams that can be opened now.
    pub(super) fn free_streams(&self) -> u32 {
        match self.accepts.get() {
            true => self.state().codec.free_streams(),
            false => 0,
        }
    }

    /// Returns whether the server accepts extended CONNECT, as far as its SETTINGS were received.
    pub(in crate::session::http) fn offers_connect(&self) -> ExtendedConnect {
        self.state().codec.extended_connect()
    }

    /// Adds an exchange to those that wait for the SETTINGS of the server. Its wait slot receives
    /// the word to try again, or an error. Returns the deadline, in milliseconds of the clock.
    /// `None`: too many wait.
    pub(in crate::session::http) fn await_settings(
        &self,
        slot: &Slot,
        settings: &PoolSettings,
    ) -> Option<u64> {
        let pool = self.pool.upgrade()?;
        let mut all = pool.awaiting_settings.borrow_mut();
        all.retain(|(number, slot)| slot.is_expected(*number));
        if all.len() >= settings.queue_length {
            return None;
        }
        all.push((slot.expect_message(), Rc::clone(slot)));
        Some(deadline_ms(settings))
    }

    /// Records what the SETTINGS of the server say, and lets the exchanges that wait for them try
    /// again.
    pub(super) fn note_settings(&self, connect: ExtendedConnect) {
        if let Some(pool) = self.pool.upgrade() {
            pool.connect.set(connect);
            pool.end_await_settings(|| WaitResult::Again);
        }
    }

    fn open_streams(&self) -> u32 {
        self.state().codec.open_streams()
    }

    /// Returns whether new streams may be opened.
    pub(super) fn accepts(&self) -> bool {
        self.accepts.get()
    }

    /// Ends the connection after its streams.
    pub(super) fn stop_accepting(&self) {
        self.accepts.set(false);
        self.state().wake();
    }

    /// Counts an exchange that begins. Returns whether others have ended before.
    pub(super) fn begin_exchange(&self) -> bool {
        if let (0, Some(pool)) = (self.free_streams(), self.pool.upgrade()) {
            pool.streams_each.set((self.open_streams() as usize).max(1));
        }
        self.responses.get() > 0
    }

    /// Counts a complete response.
    pub(super) fn end_exchange(&self) {
        self.responses.set(self.responses.get() + 1);
    }

    /// Lets an exchange that waits use a stream that has ended.
    pub(super) fn stream_freed(&self) {
        if let Some(pool) = self.pool.upgrade()
            && !pool.waiting.borrow().is_empty()
        {
            pool.serve(self.free_streams().min(1));
        }
    }

    /// Records that bytes have arrived.
    pub(super) fn note_received(&self, now_ms: u64) {
        self.received_ms.set(now_ms);
    }

    /// Ends the connection after its streams, if nothing has arrived since this time.
    pub(super) fn doubt(&self, since_ms: u64) {
        if self.received_ms.get() < since_ms {
            self.stop_accepting();
        }
    }

    /// Removes the connection, which has ended. Exchanges that wait open another one.
    pub(super) fn remove(self: &Rc<Self>) {
        self.accepts.set(false);
        // Its task may have panicked while it used the state.
        if let Ok(mut state) = self.state.try_borrow_mut() {
            state.end_by_server("the task of the connection ended");
        }
        if let Some(pool) = self.pool.upgrade() {
            pool.connections
                .borrow_mut()
                .retain(|one| !Rc::ptr_eq(one, self));
            if let Some(handle) = pool.handle.upgrade() {
                let why = "the connection of HTTP/2 ended before the SETTINGS of the server";
                let error = Arc::new(ConnectError::unreachable(&handle.server, why));
                pool.end_await_settings(|| WaitResult::Failed(Arc::clone(&error)));
            }
            pool.serve(u32::MAX);
        }
    }
}

impl Opening {
    fn begin(pool: &Rc<PoolConnections>) -> Self {
        pool.opening.set(pool.opening.get() + 1);
        Self(Rc::clone(pool))
    }

    fn end(self) -> Rc<PoolConnections> {
        Rc::clone(&self.0)
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.0.opening.set(self.0.opening.get().saturating_sub(1));
    }
}

/// Returns until when an exchange waits, in milliseconds of the clock.
fn deadline_ms(settings: &PoolSettings) -> u64 {
    match settings.wait_ms {
        0 => u64::MAX,
        wait_ms => clock::now_ms().saturating_add(wait_ms),
    }
}

/// Gets a connection from the pool, which opens one.
async fn open(worker_pool: &Pool, pool_handle: &PoolHandle) -> Opened {
    let slot = WaitSlot::new();
    loop {
        let until_ms = match worker_pool.acquire(pool_handle, &slot) {
            AcquireResult::Now(connection) => return Opened::Connection(connection),
            AcquireResult::Refused(PoolRefusal::Outdated) => return Opened::Outdated,
            AcquireResult::Refused(PoolRefusal::QueueFull | PoolRefusal::LimitIsZero) => {
                return Opened::TimedOut;
            }
            AcquireResult::Later(until_ms) => until_ms,
        };
        let limit = Duration::from_millis(until_ms.saturating_sub(clock::now_ms()));
        let waiting = poll_fn(|context| match slot.take(context) {
            Some(result) => Poll::Ready(result),
            None => Poll::Pending,
        });
        let mut waiting = std::pin::pin!(waiting);
        let result = match timers::timeout(limit, waiting.as_mut()).await {
            Ok(result) => result,
            Err(_) if worker_pool.cancel_wait(&slot) => return Opened::TimedOut,
            // The connection is on its way.
            Err(_) => waiting.await,
        };
        match result {
            WaitResult::Connection(connection) => return Opened::Connection(connection),
            WaitResult::Failed(error) => return Opened::Failed(error),
            WaitResult::Again => {}
        }
    }
}
