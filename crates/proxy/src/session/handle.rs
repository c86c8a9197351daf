//! Represents a session to its worker and to other tasks: what they may know of it, and how they
//! interrupt it.

mod events;
mod logged_in;
mod relaying;
mod requests;

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use evenkeel_engine::clock;
use evenkeel_engine::relay::ByteDirection;

use crate::record::{CutReason, TerminationReason};
use crate::server::Server;
use crate::service::Service;
use crate::session::interruptible::Interruptible;
use crate::worker::Worker;
use events::PendingEvents;
use logged_in::LoggedIn;
use relaying::Relaying;
use requests::Requests;

pub(crate) use events::SessionEvent;
pub(crate) use logged_in::{ApplicationName, Login, LoginInfo};
pub(crate) use relaying::{Relayed, RelayedServer};
pub(crate) use requests::RequestServer;

/// Precision of timeouts is twice this interval; each sweep checks every session.
pub(crate) const SWEEP_INTERVAL: Duration = Duration::from_millis(500);

/// Number of ids so far; source of session ids.
static SESSION_IDS: AtomicU64 = AtomicU64::new(0);

/// State of one session that other tasks of its worker may read and change.
pub(crate) struct SessionHandle {
    pub(crate) service: Arc<Service>,
    pub(crate) started_ms: u64,
    from_client: Cell<u64>,
    to_client: Cell<u64>,
    last_byte_ms: Cell<u64>,
    /// Borrowed only within a function of this module, never while foreign code runs.
    phase: RefCell<Phase>,
    inbox: RefCell<Inbox>,
}

/// Relation of a session to its servers. [`SessionHandle::enter`] alone changes it.
enum Phase {
    /// No bytes are relayed and no user is logged in: before, between and after the other phases.
    Detached,
    /// The bytes of both peers are relayed unread.
    Relaying(Box<Relaying>),
    /// A client of a database has logged in.
    LoggedIn(Box<LoggedIn>),
    /// A client of an HTTP service sends requests.
    Requests(Box<Requests>),
}

/// Messages for the session's task, and the way to wake it.
#[derive(Default)]
struct Inbox {
    waker: Option<Waker>,
    interrupt: Option<Box<Interrupt>>,
    /// Events that the session handles itself. Empty unless [`Phase::handles_events`].
    events: PendingEvents,
}

/// An interruption of a session from outside.
pub(crate) enum Interrupt {
    /// Ends the session.
    End(TerminationReason),
    /// No data was exchanged, and this server will not send any: retry on another server.
    Elsewhere(String),
}

impl Phase {
    /// Returns whether the session itself handles what happens to its server, and its deadlines.
    fn handles_events(&self) -> bool {
        match self {
            Phase::Detached | Phase::Relaying(_) => false,
            Phase::LoggedIn(_) | Phase::Requests(_) => true,
        }
    }
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

impl SessionHandle {
    /// Creates the handle of a session that begins.
    pub(crate) fn new(service: Arc<Service>) -> Self {
        let now_ms = clock::now_ms();
        Self {
            service,
            started_ms: now_ms,
            from_client: Cell::new(0),
            to_client: Cell::new(0),
            last_byte_ms: Cell::new(now_ms),
            phase: RefCell::new(Phase::Detached),
            inbox: RefCell::default(),
        }
    }

    /// Returns a new session id, unique in this process.
    pub(crate) fn draw_id() -> u64 {
        SESSION_IDS.fetch_add(1, Relaxed) + 1
    }

    /// Enters a phase. Messages that concern only the former phase are dropped.
    fn enter(&self, phase: Phase) {
        let former = self.phase.replace(phase);
        let mut inbox = self.inbox.borrow_mut();
        inbox.events = PendingEvents::default();
        if matches!(inbox.interrupt.as_deref(), Some(Interrupt::Elsewhere(_))) {
            inbox.interrupt = None;
        }
        drop(inbox);
        drop(former);
    }

    /// Leaves the current phase.
    fn detach(&self) {
        self.enter(Phase::Detached);
    }

    fn relaying(&self) -> Option<Ref<'_, Relaying>> {
        Ref::filter_map(self.phase.borrow(), |phase| match phase {
            Phase::Relaying(relaying) => Some(&**relaying),
            Phase::Detached | Phase::LoggedIn(_) | Phase::Requests(_) => None,
        })
        .ok()
    }

    fn logged_in(&self) -> Option<Ref<'_, LoggedIn>> {
        Ref::filter_map(self.phase.borrow(), |phase| match phase {
            Phase::LoggedIn(client) => Some(&**client),
            Phase::Detached | Phase::Relaying(_) | Phase::Requests(_) => None,
        })
        .ok()
    }

    fn logged_in_mut(&self) -> Option<RefMut<'_, LoggedIn>> {
        RefMut::filter_map(self.phase.borrow_mut(), |phase| match phase {
            Phase::LoggedIn(client) => Some(&mut **client),
            Phase::Detached | Phase::Relaying(_) | Phase::Requests(_) => None,
        })
        .ok()
    }

    /// Returns the number of bytes that the client has sent.
    pub(crate) fn bytes_from_client(&self) -> u64 {
        self.from_client.get()
    }

    /// Returns the number of bytes for the client.
    pub(crate) fn bytes_to_client(&self) -> u64 {
        self.to_client.get()
    }

    /// Counts bytes for the session, its service, and the server that they belong to.
    pub(crate) fn count_bytes(
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

    /// Ends the session from outside; the first reason counts.
    pub(crate) fn cut(&self, ending: TerminationReason) {
        self.interrupt(Interrupt::End(ending));
    }

    fn interrupt(&self, interrupt: Interrupt) {
        let mut inbox = self.inbox.borrow_mut();
        inbox.interrupt.get_or_insert_with(|| Box::new(interrupt));
        inbox.wake();
    }

    /// Notifies a session of an event. It has no effect unless the session handles events.
    pub(crate) fn notify(&self, event: SessionEvent) {
        let mut events = PendingEvents::default();
        events.add(event);
        self.notify_all(events);
    }

    fn notify_all(&self, events: PendingEvents) {
        if events.is_empty() || !self.handles_events() {
            return;
        }
        let mut inbox = self.inbox.borrow_mut();
        inbox.events.add_all(events);
        inbox.wake();
    }

    /// Returns the most urgent event that the session has not handled.
    pub(crate) fn take_event(&self) -> Option<SessionEvent> {
        self.inbox.borrow_mut().events.take_first()
    }

    /// Runs a step of the session unless it is interrupted first.
    pub(crate) fn run_interruptible<F: Future>(&self, step: F) -> Interruptible<'_, F> {
        Interruptible { step, handle: self }
    }

    /// Returns an interruption, or registers the waker for the next one and for events.
    pub(super) fn poll_interrupt(&self, context: &Context<'_>) -> Poll<Interrupt> {
        let mut inbox = self.inbox.borrow_mut();
        if let Some(interrupt) = inbox.interrupt.take() {
            return Poll::Ready(*interrupt);
        }
        match &mut inbox.waker {
            Some(waker) => waker.clone_from(context.waker()),
            waker => *waker = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    /// Handles a dead server: a client that has received nothing continues on another server if it
    /// has sent nothing either. Otherwise it is reset, since the outcome of its request is unknown.
    /// A session that handles events decides itself.
    pub(crate) fn handle_server_down(&self) {
        if self.handles_events() {
            self.notify(SessionEvent::ServerAbandoned);
        } else if self.is_untouched() {
            self.interrupt(Interrupt::Elsewhere("server went down".to_owned()));
        } else if self.to_client.get() == 0 {
            self.cut(TerminationReason::Cut(CutReason::ServerDown));
        }
    }

    /// Takes the server away from a session: one that handles events continues without it, another
    /// one ends.
    pub(crate) fn cut_from_server(&self, reason: CutReason) {
        if self.handles_events() {
            self.notify(SessionEvent::ServerAbandoned);
        } else {
            self.cut(TerminationReason::Cut(reason));
        }
    }

    /// Returns whether a command to reset sessions of this server or service concerns this one.
    pub(crate) fn matches(&self, service_id: Option<u64>, server_id: Option<u64>) -> bool {
        match (service_id, server_id) {
            (None, server_id) => server_id.is_none_or(|id| self.is_at(id)),
            (Some(id), None) => id == self.service.id || id == self.picking_service_id(),
            (Some(id), Some(server_id)) => id == self.picking_service_id() && self.is_at(server_id),
        }
    }

    /// Returns the id of the service whose servers are used: the client's own, or the one that a
    /// route leads to.
    fn picking_service_id(&self) -> u64 {
        let picking = match &*self.phase.borrow() {
            Phase::Detached | Phase::LoggedIn(_) => None,
            Phase::Relaying(relaying) => Some(relaying.service_id()),
            Phase::Requests(requests) => requests.service_id(),
        };
        picking.unwrap_or(self.service.id)
    }

    fn is_at(&self, server_id: u64) -> bool {
        match &*self.phase.borrow() {
            Phase::Detached => false,
            Phase::Relaying(relaying) => relaying.is_at(server_id),
            Phase::LoggedIn(client) => client.is_at(server_id),
            Phase::Requests(requests) => requests.is_at(server_id),
        }
    }

    /// Checks the session twice a second: timeouts, resets that no task waits for, keepalive.
    pub(crate) fn sweep(&self, now_ms: u64) {
        if let Some(relaying) = self.relaying() {
            self.sweep_relaying(&relaying, now_ms);
        } else {
            self.sweep_logged_in(now_ms);
            self.sweep_requests(now_ms);
        }
    }

    fn handles_events(&self) -> bool {
        self.phase.borrow().handles_events()
    }

    fn silent_ms(&self, now_ms: u64) -> u128 {
        u128::from(now_ms.saturating_sub(self.last_byte_ms.get()))
    }
}

impl Inbox {
    fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests;
