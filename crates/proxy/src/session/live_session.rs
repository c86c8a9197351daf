//! Tracks a session for its worker: counts bytes and enforces limits.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use evenkeel_engine::clock;
use evenkeel_engine::relay::{ByteDirection, RelaySession};
use evenkeel_engine::socket::SocketObserver;

use crate::record::{CutReason, TerminationReason};
use crate::server::Server;
use crate::service::activity::SessionActivity;
use crate::service::{Service, ServiceSnapshot};
use crate::session::handle::{ExceededLimit, SessionHandle};
use crate::session::interruptible::Interruptible;
use crate::worker::Worker;

/// Precision of timeouts is twice this interval; each sweep checks every session.
pub(crate) const SWEEP_INTERVAL: Duration = Duration::from_millis(500);

/// A live session; allocated once on the heap, because its worker's sweeper accesses it, too.
pub(crate) struct LiveSession {
    pub(crate) service: Arc<Service>,
    pub(crate) started_ms: u64,
    pub(crate) from_client: Cell<u64>,
    pub(crate) to_client: Cell<u64>,
    relaying: RefCell<Option<Relaying>>,
    ended: Cell<Ended>,
    last_byte_ms: Cell<u64>,
    /// Number of directions in which bytes wait for a slow reader.
    stalled_directions: Cell<u8>,
    /// Bytes that both peers had not yet taken at the last check.
    unread_bytes: Cell<u64>,
    /// Time when the server last received data to reply to, before its first byte; zero for never.
    request_us: Cell<u64>,
    first_byte_us: Cell<Option<u64>>,
    /// Set for a session of a database protocol.
    handle: RefCell<Option<Rc<SessionHandle>>>,
    interrupt: RefCell<Option<Interrupt>>,
    waker: RefCell<Option<Waker>>,
}

/// Set while bytes are relayed.
struct Relaying {
    server: Arc<Server>,
    view: Arc<ServiceSnapshot>,
    client: SocketObserver,
    upstream: SocketObserver,
    since_us: u64,
    has_keepalive: bool,
    /// Time of the last check whether the peers are alive.
    last_check_ms: u64,
}

/// An interruption of a session from outside.
pub(crate) enum Interrupt {
    /// Ends the session.
    End(TerminationReason),
    /// No data was exchanged, and this server will not send any: retry on another server.
    Elsewhere(String),
}

impl Interrupt {
    /// Returns the reason for the end of a session that cannot continue on another server.
    pub(crate) fn ending(self) -> TerminationReason {
        match self {
            Interrupt::End(ending) => ending,
            Interrupt::Elsewhere(_) => TerminationReason::Cut(CutReason::ServerDown),
        }
    }
}

/// Peers that have ended their sending, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Nobody,
    Client,
    Server,
    ClientThenServer,
    ServerThenClient,
}

impl LiveSession {
    pub(crate) fn new(service: Arc<Service>) -> Self {
        let now_ms = clock::now_ms();
        Self {
            service,
            started_ms: now_ms,
            from_client: Cell::new(0),
            to_client: Cell::new(0),
            relaying: RefCell::new(None),
            ended: Cell::new(Ended::Nobody),
            last_byte_ms: Cell::new(now_ms),
            stalled_directions: Cell::new(0),
            unread_bytes: Cell::new(0),
            request_us: Cell::new(0),
            first_byte_us: Cell::new(None),
            handle: RefCell::new(None),
            interrupt: RefCell::new(None),
            waker: RefCell::new(None),
        }
    }

    /// Marks the two sockets as one session, until [`Self::stop_relaying`].
    pub(crate) fn start_relaying(
        &self,
        server: &Arc<Server>,
        view: Arc<ServiceSnapshot>,
        (client, upstream): (SocketObserver, SocketObserver),
    ) {
        let since_us = clock::now_us();
        self.last_byte_ms.set(since_us / 1_000);
        let server = Arc::clone(server);
        let has_keepalive = false;
        let last_check_ms = since_us / 1_000;
        let relaying = Relaying {
            server,
            view,
            client,
            upstream,
            since_us,
            has_keepalive,
            last_check_ms,
        };
        *self.relaying.borrow_mut() = Some(relaying);
    }

    /// Releases the sockets, which are about to be closed.
    pub(crate) fn stop_relaying(&self) {
        *self.relaying.borrow_mut() = None;
        // An interruption for this server does not concern the next one.
        let mut interrupt = self.interrupt.borrow_mut();
        if matches!(*interrupt, Some(Interrupt::Elsewhere(_))) {
            *interrupt = None;
        }
    }

    /// Sets the handle of a session that has logged in.
    pub(crate) fn set_handle(&self, handle: &Rc<SessionHandle>) {
        self.handle.replace(Some(Rc::clone(handle)));
    }

    /// Removes the handle of a session that ends.
    pub(crate) fn drop_handle(&self) {
        self.handle.replace(None);
    }

    pub(crate) fn handle(&self) -> Option<Rc<SessionHandle>> {
        self.handle.borrow().clone()
    }

    /// Counts bytes of a session that changes servers.
    pub(crate) fn count_bytes_at(
        &self,
        worker: &Worker,
        direction: ByteDirection,
        bytes: u64,
        server: Option<&Server>,
    ) {
        self.last_byte_ms.set(worker.last_sweep_ms());
        let of_service = self.service.counters.bytes.of(worker.index());
        let of_server = server.map(|server| server.counters.bytes.of(worker.index()));
        match direction {
            ByteDirection::FromClient => {
                self.from_client.set(self.from_client.get() + bytes);
                of_service.add_from_client(bytes);
                if let Some(of_server) = of_server {
                    of_server.add_from_client(bytes);
                }
            }
            ByteDirection::ToClient => {
                self.to_client.set(self.to_client.get() + bytes);
                of_service.add_to_client(bytes);
                if let Some(of_server) = of_server {
                    of_server.add_to_client(bytes);
                }
            }
        }
    }

    fn count_bytes(&self, worker: &Worker, direction: ByteDirection, bytes: u64) {
        self.last_byte_ms.set(worker.last_sweep_ms());
        let relaying = self.relaying.borrow();
        let Some(relaying) = relaying.as_ref() else {
            return;
        };
        let of_service = self.service.counters.bytes.of(worker.index());
        let of_server = relaying.server.counters.bytes.of(worker.index());
        match direction {
            ByteDirection::FromClient => {
                if self.to_client.get() == 0 {
                    self.request_us.set(clock::now_us());
                }
                self.from_client.set(self.from_client.get() + bytes);
                of_service.add_from_client(bytes);
                of_server.add_from_client(bytes);
            }
            ByteDirection::ToClient => {
                if self.to_client.get() == 0 {
                    self.first_byte(relaying);
                }
                self.to_client.set(self.to_client.get() + bytes);
                of_service.add_to_client(bytes);
                of_server.add_to_client(bytes);
            }
        }
    }

    /// Returns whether bytes from one side have not reached the other.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled_directions.get() > 0
    }

    fn first_byte(&self, relaying: &Relaying) {
        let now_us = clock::now_us();
        let took_us = now_us - relaying.since_us;
        self.first_byte_us.set(Some(took_us));
        // A client that delays its request does not make its server slow.
        let request_us = self.request_us.get().max(relaying.since_us);
        relaying
            .server
            .load
            .observe_latency(now_us, now_us - request_us);
        relaying.server.counters.served.add(1);
    }

    /// Returns whether no byte was moved, no side has ended, and the server has been waited for so
    /// briefly that its disconnect is a failure rather than an idle timeout.
    fn may_retry(&self) -> bool {
        let relaying = self.relaying.borrow();
        let limit = relaying
            .as_ref()
            .map_or(Duration::ZERO, |r| r.view.settings.connect_timeout);
        self.is_untouched() && u128::from(self.relayed_for_ms()) < limit.as_millis()
    }

    /// Returns whether no byte was moved, and no side has ended.
    pub(crate) fn is_untouched(&self) -> bool {
        let moved = self.from_client.get() + self.to_client.get();
        moved == 0 && self.ended.get() == Ended::Nobody
    }

    pub(crate) fn relayed_for_ms(&self) -> u64 {
        let relaying = self.relaying.borrow();
        relaying
            .as_ref()
            .map_or(0, |relaying| (clock::now_us() - relaying.since_us) / 1_000)
    }

    pub(crate) fn first_byte_us(&self) -> Option<u64> {
        self.first_byte_us.get()
    }

    pub(crate) fn client_ended_first(&self) -> bool {
        matches!(self.ended.get(), Ended::Client | Ended::ClientThenServer)
    }

    /// Returns whether exactly one side has ended its sending.
    fn half_closed(&self) -> bool {
        matches!(self.ended.get(), Ended::Client | Ended::Server)
    }

    /// Ends the session from outside; the first reason counts.
    pub(crate) fn cut(&self, ending: TerminationReason) {
        self.interrupt(Interrupt::End(ending));
    }

    /// Handles a dead server: a client that has received nothing continues on another server if it
    /// has sent nothing either. Otherwise it is reset, since the outcome of its request is unknown.
    pub(crate) fn handle_server_down(&self) {
        if let Some(handle) = self.handle() {
            return handle.abandon_server();
        }
        if self.is_untouched() {
            self.interrupt(Interrupt::Elsewhere("server went down".to_owned()));
        } else if self.to_client.get() == 0 {
            self.cut(TerminationReason::Cut(CutReason::ServerDown));
        }
    }

    fn interrupt(&self, interrupt: Interrupt) {
        self.interrupt.borrow_mut().get_or_insert(interrupt);
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Runs a step of the session unless it is interrupted first.
    pub(crate) fn run_interruptible<F: Future>(&self, step: F) -> Interruptible<'_, F> {
        Interruptible { step, live: self }
    }

    /// Returns an interruption, or registers the waker for the next one.
    pub(super) fn poll_interrupt(&self, context: &Context<'_>) -> Poll<Interrupt> {
        if let Some(interrupt) = self.interrupt.borrow_mut().take() {
            return Poll::Ready(interrupt);
        }
        let mut waker = self.waker.borrow_mut();
        if !waker
            .as_ref()
            .is_some_and(|known| known.will_wake(context.waker()))
        {
            *waker = Some(context.waker().clone());
        }
        Poll::Pending
    }

    /// Returns whether a command to reset sessions of this server or service concerns this one.
    pub(crate) fn matches(&self, service_id: Option<u64>, server_id: Option<u64>) -> bool {
        let relaying = self.relaying.borrow();
        let own_server = relaying.as_ref().map(|relaying| relaying.server.id);
        let handle = self.handle.borrow();
        let is_at = |id| handle.as_ref().is_some_and(|handle| handle.is_at(id));
        service_id.is_none_or(|id| id == self.service.id)
            && server_id.is_none_or(|id| own_server == Some(id) || is_at(id))
    }

    /// Checks the session twice a second: timeouts, resets that no task waits for, keepalive.
    pub(crate) fn sweep(&self, now_ms: u64) {
        if let Some(handle) = self.handle() {
            return self.sweep_handle(&handle, now_ms);
        }
        let mut relaying = self.relaying.borrow_mut();
        let Some(relaying) = relaying.as_mut() else {
            return;
        };
        if !relaying.has_keepalive {
            relaying.keep_alive();
        }
        if self.is_stalled() {
            self.detect_progress(relaying, now_ms);
        }
        if self.is_silent_too_long(relaying) {
            let limit_ms = relaying.view.settings.connect_timeout.as_millis();
            let why = format!("no data from the server within {limit_ms} ms (connect_timeout_ms)");
            self.interrupt(Interrupt::Elsewhere(why));
        } else if let Some(ending) = self
            .exceeded_limit_reason(relaying, now_ms)
            .or_else(|| relaying.dead_peer(now_ms))
        {
            self.cut(ending);
        }
    }

    /// Checks the limits of a session of a database protocol.
    fn sweep_handle(&self, handle: &SessionHandle, now_ms: u64) {
        let view = self.service.snapshot();
        let Some(own) = &view.database else { return };
        match handle.exceeded_limit(own, now_ms) {
            Some(ExceededLimit::Query) => handle.request_cancel(),
            Some(ExceededLimit::Transaction) => self.cut(TerminationReason::TransactionTimeout),
            Some(ExceededLimit::IdleInTransaction) => {
                self.cut(TerminationReason::IdleInTransaction)
            }
            None => {}
        }
        handle.request_liveness_check(view.settings.keepalive.user_timeout, now_ms);
        let idle = handle.idle_limit(view.settings.idle_timeout);
        let silent_ms = u128::from(now_ms.saturating_sub(self.last_byte_ms.get()));
        let is_idle = matches!(
            handle.activity(),
            SessionActivity::Idle | SessionActivity::Bound
        );
        if is_idle && !idle.is_zero() && silent_ms >= (idle + SWEEP_INTERVAL).as_millis() {
            self.cut(TerminationReason::IdleTimeout);
        }
    }

    /// Detects progress: a slow reader takes bytes from the kernel long before that accepts more.
    fn detect_progress(&self, relaying: &Relaying, now_ms: u64) {
        let unread_bytes = relaying.client.unread_bytes() + relaying.upstream.unread_bytes();
        if unread_bytes < self.unread_bytes.replace(unread_bytes) {
            self.last_byte_ms.set(now_ms);
        }
    }

    /// Returns whether the server must send first but has not: this counts like a failed connect.
    fn is_silent_too_long(&self, relaying: &Relaying) -> bool {
        let settings = &relaying.view.settings;
        let waited_us = u128::from(clock::now_us() - relaying.since_us);
        settings.server_speaks_first
            && self.is_untouched()
            && waited_us >= settings.connect_timeout.as_micros()
    }

    fn exceeded_limit_reason(&self, relaying: &Relaying, now_ms: u64) -> Option<TerminationReason> {
        let silent_ms = u128::from(now_ms.saturating_sub(self.last_byte_ms.get()));
        let settings = &relaying.view.settings;
        // The timestamp of the last byte may be one sweep older than the byte.
        let passed =
            |limit: Duration| !limit.is_zero() && silent_ms >= (limit + SWEEP_INTERVAL).as_millis();
        if self.half_closed() {
            if relaying.client.is_broken() {
                return Some(TerminationReason::ResetByClient(
                    "reset after close".to_owned(),
                ));
            }
            if relaying.upstream.is_broken() {
                return Some(TerminationReason::ResetByServer(
                    "reset after close".to_owned(),
                ));
            }
            if passed(settings.half_close_timeout) {
                return Some(TerminationReason::HalfCloseTimeout);
            }
        }
        passed(settings.idle_timeout).then_some(TerminationReason::IdleTimeout)
    }
}

impl Relaying {
    /// Sets keepalive late, so that a connection with few requests avoids five system calls.
    fn keep_alive(&mut self) {
        self.has_keepalive = true;
        self.upstream.keep_alive(&self.view.settings.keepalive);
    }

    /// Checks rarely: it costs two system calls, even for an idle session.
    fn dead_peer(&mut self, now_ms: u64) -> Option<TerminationReason> {
        let limit = self.view.settings.keepalive.user_timeout;
        let check_interval_ms = (limit / 4).as_millis();
        let too_soon = u128::from(now_ms.saturating_sub(self.last_check_ms)) < check_interval_ms;
        if limit.is_zero() || too_soon {
            return None;
        }
        self.last_check_ms = now_ms;
        let why = || format!("no response for {} ms (user_timeout_ms)", limit.as_millis());
        if self.client.is_unanswered(limit) {
            return Some(TerminationReason::ResetByClient(why()));
        }
        self.upstream
            .is_unanswered(limit)
            .then(|| TerminationReason::ResetByServer(why()))
    }
}

/// A session while its bytes are relayed on a worker.
pub(crate) struct Relayed<'a> {
    pub(crate) live: &'a LiveSession,
    pub(crate) worker: &'a Worker,
}

impl RelaySession for Relayed<'_> {
    fn count(&self, direction: ByteDirection, bytes: u64) {
        self.live.count_bytes(self.worker, direction, bytes);
    }

    fn counted(&self, direction: ByteDirection) -> u64 {
        match direction {
            ByteDirection::FromClient => self.live.from_client.get(),
            ByteDirection::ToClient => self.live.to_client.get(),
        }
    }

    fn progressed(&self) {
        self.live.last_byte_ms.set(self.worker.last_sweep_ms());
    }

    /// Not a guard: the count must still be known after the session is abandoned.
    fn set_stalled(&self, is_stalled: bool) {
        let stalled_directions = self.live.stalled_directions.get();
        self.live.stalled_directions.set(if is_stalled {
            stalled_directions + 1
        } else {
            stalled_directions - 1
        });
    }

    fn record_end(&self, direction: ByteDirection) {
        let ended = &self.live.ended;
        ended.set(match (ended.get(), direction) {
            (Ended::Nobody, ByteDirection::FromClient) => Ended::Client,
            (Ended::Nobody, ByteDirection::ToClient) => Ended::Server,
            (Ended::Client, ByteDirection::ToClient) => Ended::ClientThenServer,
            (Ended::Server, ByteDirection::FromClient) => Ended::ServerThenClient,
            (known, _) => known,
        });
    }

    fn half_closed(&self) -> bool {
        self.live.half_closed()
    }

    fn both_ended(&self) -> bool {
        let ended = self.live.ended.get();
        matches!(ended, Ended::ClientThenServer | Ended::ServerThenClient)
    }

    fn may_retry(&self) -> bool {
        self.live.may_retry()
    }
}
