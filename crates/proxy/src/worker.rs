//! State of the data plane on one worker: its sessions, its listeners, and what other modules keep
//! there.

use std::any::{Any, TypeId};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use evenkeel_engine::clock;
use slab::Slab;

use crate::service::Service;
use crate::session::handle::SessionHandle;
use crate::shared::{DataPlaneShared, NO_SESSION};
use evenkeel_sql::session_state::settings::Interner;

/// Client that was accepted and has no session yet.
pub(crate) struct Accepted {
    pub(crate) socket: OwnedFd,
    /// The client's address; `None` on a Unix socket.
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) service: Arc<Service>,
}

/// A worker of the engine with the data plane's state on it, shared by its tasks.
pub(crate) struct Worker {
    engine: Rc<evenkeel_engine::worker::Worker>,
    pub(crate) shared: Arc<DataPlaneShared>,
    interner: Interner,
    /// Starts the session of a client that was counted among this worker's sessions.
    serve: fn(&Rc<Worker>, Accepted),
    /// States of other modules, one of each type.
    locals: RefCell<HashMap<TypeId, Rc<dyn Any>>>,
    sessions: RefCell<Slab<Rc<SessionHandle>>>,
    /// A listener's id, and the sender that keeps its accepts running.
    accepting: RefCell<Vec<(u64, flume::Sender<()>)>>,
    last_sweep_ms: Cell<u64>,
    /// Processor time of this thread at the last sweep.
    cpu_us: Cell<u64>,
}

impl Deref for Worker {
    type Target = evenkeel_engine::worker::Worker;

    fn deref(&self) -> &Self::Target {
        &self.engine
    }
}

impl Worker {
    /// Creates the state on a worker that is about to run.
    pub(crate) fn new(
        engine: Rc<evenkeel_engine::worker::Worker>,
        shared: Arc<DataPlaneShared>,
        serve: fn(&Rc<Worker>, Accepted),
    ) -> Rc<Self> {
        Rc::new(Self {
            engine,
            shared,
            interner: Interner::new(),
            serve,
            locals: RefCell::default(),
            sessions: RefCell::default(),
            accepting: RefCell::default(),
            last_sweep_ms: Cell::new(clock::now_ms()),
            cpu_us: Cell::new(0),
        })
    }

    /// Returns the state that another module keeps on this worker.
    pub(crate) fn local<T: Default + 'static>(&self) -> Rc<T> {
        let mut locals = self.locals.borrow_mut();
        let local = locals
            .entry(TypeId::of::<T>())
            .or_insert_with(|| Rc::new(T::default()));
        // The key is the type, so that the second case does not occur.
        Rc::clone(local).downcast().unwrap_or_default()
    }

    /// Returns the time of the last sweep: as precise as the timeouts are, and free for every
    /// receive.
    pub(crate) fn last_sweep_ms(&self) -> u64 {
        self.last_sweep_ms.get()
    }

    /// Returns the interner for sets of session settings.
    pub(crate) fn interner(&self) -> &Interner {
        &self.interner
    }

    /// Registers a session with the sweeper until the guard is dropped.
    pub(crate) fn register_session(
        self: &Rc<Self>,
        handle: Rc<SessionHandle>,
    ) -> RegisteredSession {
        let key = self.sessions.borrow_mut().insert(handle);
        RegisteredSession {
            worker: Rc::clone(self),
            key,
        }
    }

    /// Registers a stream of a session, which is swept and interrupted as a session is, but does
    /// not count as one.
    pub(crate) fn register_stream(self: &Rc<Self>, handle: Rc<SessionHandle>) -> RegisteredStream {
        let key = self.sessions.borrow_mut().insert(handle);
        RegisteredStream {
            worker: Rc::clone(self),
            key,
        }
    }

    pub(crate) fn each_session(&self, mut act: impl FnMut(&SessionHandle)) {
        for (_, handle) in self.sessions.borrow().iter() {
            act(handle);
        }
    }

    /// Returns the session in a slot of the list.
    pub(crate) fn session(&self, slot: usize) -> Option<Rc<SessionHandle>> {
        self.sessions.borrow().get(slot).cloned()
    }

    /// Records the share of the time since the last sweep in which this thread ran.
    fn record_load(&self, elapsed_ms: u64) {
        let cpu_us = clock::thread_cpu_us();
        let before_us = self.cpu_us.replace(cpu_us);
        let permille = cpu_us.saturating_sub(before_us) / elapsed_ms.max(1);
        let permille = u32::try_from(permille).unwrap_or(u32::MAX);
        self.shared.busy[self.index()].store(permille, Relaxed);
    }

    /// Checks each session; runs twice a second.
    pub(crate) fn sweep(&self) {
        let now_ms = clock::now_ms();
        self.record_load(now_ms.saturating_sub(self.last_sweep_ms.get()));
        self.last_sweep_ms.set(now_ms);
        let mut oldest_ms = NO_SESSION;
        for (_, handle) in self.sessions.borrow().iter() {
            handle.sweep(now_ms);
            oldest_ms = oldest_ms.min(handle.started_ms);
        }
        self.shared.oldest_ms[self.index()].store(oldest_ms, Relaxed);
    }

    /// Serves a client that the caller has counted among this worker's sessions.
    pub(crate) fn serve(self: &Rc<Self>, accepted: Accepted) {
        (self.serve)(self, accepted);
    }

    /// Records that accepting from a listener begins. It stops when the receiver has no sender.
    pub(crate) fn start_listening(&self, id: u64) -> flume::Receiver<()> {
        let (keep_open, stop) = flume::bounded(0);
        self.accepting.borrow_mut().push((id, keep_open));
        stop
    }

    /// Stops accepting from a listener after the accepts in progress; clients that the kernel holds
    /// for the socket stay there.
    pub(crate) fn stop_listening(&self, id: u64) {
        self.accepting
            .borrow_mut()
            .retain(|(known, _)| *known != id);
    }
}

/// A session's entry in its worker's list.
pub(crate) struct RegisteredSession {
    worker: Rc<Worker>,
    pub(crate) key: usize,
}

/// Entry of a stream in the list of sessions, which is removed on drop.
pub(crate) struct RegisteredStream {
    worker: Rc<Worker>,
    key: usize,
}

impl Drop for RegisteredStream {
    fn drop(&mut self) {
        self.worker.sessions.borrow_mut().remove(self.key);
    }
}

impl RegisteredSession {
    pub(crate) fn worker(&self) -> &Rc<Worker> {
        &self.worker
    }
}

impl Drop for RegisteredSession {
    fn drop(&mut self) {
        self.worker.sessions.borrow_mut().remove(self.key);
        self.worker.shared.sessions[self.worker.index()].fetch_sub(1, Relaxed);
    }
}
