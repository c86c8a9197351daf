//! State of the data plane on one worker: its sessions, its parts of pools, its listeners.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use evenkeel_engine::{clock, timers};
use slab::Slab;

use crate::accept::{self, Accepted, ServiceListener};
use crate::data_plane::{DataPlaneShared, describe};
use crate::service::Service;
use crate::session;
use crate::session::live_session::LiveSession;
use crate::session_state::settings::Interner;
use crate::upstream::worker_pool::{PoolableConnection, WorkerPool, WorkerPools};

/// Precision of timeouts is twice this interval; each sweep checks every session.
pub(crate) const SWEEP_INTERVAL: Duration = Duration::from_millis(500);

/// A worker of the engine with the data plane's state on it, shared by its tasks.
pub(crate) struct Worker {
    engine: Rc<evenkeel_engine::worker::Worker>,
    pub(crate) shared: Arc<DataPlaneShared>,
    interner: Interner,
    /// This worker's part of the pools of each service that has any.
    worker_pools: WorkerPools,
    sessions: RefCell<Slab<Rc<LiveSession>>>,
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
    ) -> Rc<Self> {
        let worker = Rc::new(Self {
            engine,
            shared,
            interner: Interner::new(),
            worker_pools: WorkerPools::default(),
            sessions: RefCell::default(),
            accepting: RefCell::default(),
            last_sweep_ms: Cell::new(clock::now_ms()),
            cpu_us: Cell::new(0),
        });
        worker.spawn(sweep_forever(Rc::clone(&worker)));
        worker
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

    /// Returns this worker's part of a service's pools; `None`: the service has none.
    pub(crate) fn worker_pool<C: PoolableConnection>(
        self: &Rc<Self>,
        service: &Arc<Service>,
    ) -> Option<Rc<WorkerPool<C>>> {
        self.worker_pools.get_or_create(self, service)
    }

    pub(crate) fn worker_pools(&self) -> &WorkerPools {
        &self.worker_pools
    }

    /// Registers a session with the sweeper until the guard is dropped.
    pub(crate) fn register_session(self: &Rc<Self>, live: Rc<LiveSession>) -> RegisteredSession {
        let key = self.sessions.borrow_mut().insert(live);
        RegisteredSession {
            worker: Rc::clone(self),
            key,
        }
    }

    pub(crate) fn each_session(&self, mut act: impl FnMut(&LiveSession)) {
        for (_, live) in self.sessions.borrow().iter() {
            act(live);
        }
    }

    /// Returns the session in a slot of the list.
    pub(crate) fn session(&self, slot: usize) -> Option<Rc<LiveSession>> {
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

    fn sweep(&self) {
        let now_ms = clock::now_ms();
        self.record_load(now_ms.saturating_sub(self.last_sweep_ms.get()));
        self.last_sweep_ms.set(now_ms);
        let mut oldest_ms = describe::NO_SESSION;
        for (_, live) in self.sessions.borrow().iter() {
            live.sweep(now_ms);
            oldest_ms = oldest_ms.min(live.started_ms);
        }
        self.shared.oldest_ms[self.index()].store(oldest_ms, Relaxed);
        self.worker_pools.run_maintenance();
        describe::record_activities(self);
    }

    /// Serves a client that the caller has counted among this worker's sessions.
    pub(crate) fn serve(self: &Rc<Self>, accepted: Accepted) {
        self.spawn(session::serve(Rc::clone(self), accepted));
    }

    /// Starts accepting from a listener.
    pub(crate) fn listen(self: &Rc<Self>, listener: Arc<ServiceListener>) {
        let (keep_open, stop) = flume::bounded(0);
        self.accepting.borrow_mut().push((listener.id, keep_open));
        self.spawn(accept::accept_clients(Rc::clone(self), listener, stop));
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

impl Drop for RegisteredSession {
    fn drop(&mut self) {
        self.worker.sessions.borrow_mut().remove(self.key);
        self.worker.shared.sessions[self.worker.index()].fetch_sub(1, Relaxed);
    }
}

async fn sweep_forever(worker: Rc<Worker>) {
    loop {
        timers::sleep(SWEEP_INTERVAL).await;
        worker.sweep();
    }
}
