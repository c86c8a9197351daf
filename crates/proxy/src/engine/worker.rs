//! Runs one worker: a thread with its own poller and its own sessions.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use slab::Slab;

use super::executor::Executor;
use super::live_session::LiveSession;
use super::reactor::Reactor;
use super::ring::Ring;
use super::spare_buffers::SpareBuffers;
use super::wakeup::Wakeup;
use super::{Driver, EngineShared, WorkerCommand, describe, operate, timers};
use crate::cancel::CancelClaim;
use crate::clock;
use crate::listen::{self, ListenerShared};
use crate::record::TerminationReason;
use crate::relay::LARGE_BYTES;
use crate::service::Service;
use crate::session::cancel;
use crate::session_state::settings::Interner;
use crate::upstream::worker_pool::{PoolableConnection, WorkerPool, WorkerPools};

/// Precision of timeouts is twice this interval; each sweep checks every session.
pub(crate) const SWEEP_INTERVAL: Duration = Duration::from_millis(500);

/// The epoll driver's one receive buffer per worker.
const SCRATCH_BYTES: usize = 64 * 1024;

/// Number of large buffers kept for the next bulk transfer; more are freed.
const LARGE_BUFFERS_KEPT: usize = 8;

/// A worker's state, shared by its tasks.
pub(crate) struct Worker {
    pub(crate) index: usize,
    pub(crate) shared: Arc<EngineShared>,
    pub(crate) poller: Poller,
    executor: Executor,
    pub(crate) scratch: RefCell<Box<[u8]>>,
    large_buffers: RefCell<Vec<Box<[u8]>>>,
    spare_buffers: SpareBuffers,
    interner: Interner,
    /// This worker's part of the pools of each service that has any.
    worker_pools: WorkerPools,
    sessions: RefCell<Slab<Rc<LiveSession>>>,
    /// A listener's id, and the sender that keeps its accepts running.
    accepting: RefCell<Vec<(u64, flume::Sender<()>)>>,
    last_sweep_ms: Cell<u64>,
    /// Processor time of this thread at the last sweep.
    cpu_us: Cell<u64>,
    stopped: Cell<bool>,
}

impl Worker {
    /// Prepares a worker on its own thread; all fallible steps happen here.
    pub(super) fn new(index: usize, shared: Arc<EngineShared>) -> io::Result<Rc<Self>> {
        let wakeup = Arc::new(Wakeup::new()?);
        let poller = match shared.driver {
            Driver::Epoll => Poller::Epoll(Reactor::new(&wakeup)?),
            Driver::IoUring => Poller::IoUring(Rc::new(Ring::new(&wakeup)?)),
        };
        let scratch_bytes = match &poller {
            Poller::Epoll(_) => SCRATCH_BYTES,
            Poller::IoUring(_) => 0,
        };
        Ok(Rc::new(Self {
            index,
            shared,
            poller,
            executor: Executor::new(&wakeup),
            scratch: RefCell::new(vec![0; scratch_bytes].into_boxed_slice()),
            large_buffers: RefCell::default(),
            spare_buffers: SpareBuffers::default(),
            interner: Interner::new(),
            worker_pools: WorkerPools::default(),
            sessions: RefCell::default(),
            accepting: RefCell::default(),
            last_sweep_ms: Cell::new(crate::clock::now_ms()),
            cpu_us: Cell::new(0),
            stopped: Cell::new(false),
        }))
    }

    /// Starts a session or a part of one.
    pub(crate) fn spawn(&self, session: impl Future<Output = ()> + 'static) {
        self.executor.spawn(session);
    }

    /// Returns the time of the last sweep: as precise as the timeouts are, and free for every
    /// receive.
    pub(crate) fn last_sweep_ms(&self) -> u64 {
        self.last_sweep_ms.get()
    }

    /// Returns a buffer for bulk transfers, which is released on drop.
    pub(crate) fn large_buffer(&self) -> LargeBuffer<'_> {
        let kept = self.large_buffers.borrow_mut().pop();
        let bytes = kept.unwrap_or_else(|| vec![0; LARGE_BYTES].into_boxed_slice());
        LargeBuffer {
            worker: self,
            bytes,
        }
    }

    /// Returns empty memory for a send.
    pub(crate) fn take_spare(&self) -> Vec<u8> {
        match &self.poller {
            Poller::IoUring(ring) => ring.take_spare(),
            Poller::Epoll(_) => self.spare_buffers.take(),
        }
    }

    /// Takes memory back.
    pub(crate) fn keep_spare(&self, bytes: Vec<u8>) {
        match &self.poller {
            Poller::IoUring(ring) => ring.keep_spare(bytes),
            Poller::Epoll(_) => self.spare_buffers.keep(bytes),
        }
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

    pub(super) fn worker_pools(&self) -> &WorkerPools {
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

    /// Records the share of the time since the last sweep in which this thread ran.
    fn record_load(&self, elapsed_ms: u64) {
        let cpu_us = clock::thread_cpu_us();
        let before_us = self.cpu_us.replace(cpu_us);
        let permille = cpu_us.saturating_sub(before_us) / elapsed_ms.max(1);
        let permille = u32::try_from(permille).unwrap_or(u32::MAX);
        self.shared.busy[self.index].store(permille, Relaxed);
    }

    fn sweep(&self) {
        let now_ms = crate::clock::now_ms();
        self.record_load(now_ms.saturating_sub(self.last_sweep_ms.get()));
        self.last_sweep_ms.set(now_ms);
        let mut oldest_ms = describe::NO_SESSION;
        for (_, live) in self.sessions.borrow().iter() {
            live.sweep(now_ms);
            oldest_ms = oldest_ms.min(live.started_ms);
        }
        self.shared.oldest_ms[self.index].store(oldest_ms, Relaxed);
        self.worker_pools.run_maintenance();
        describe::record_activities(self);
    }

    fn run_command(self: &Rc<Self>, command: WorkerCommand) {
        match command {
            WorkerCommand::Listen(listener) => self.listen(listener),
            WorkerCommand::StopListening(id) => self.stop_listening(id),
            WorkerCommand::Adopt(accepted) => listen::adopt(self, accepted),
            WorkerCommand::AbandonServer { server_id } => {
                for (_, live) in self.sessions.borrow().iter() {
                    if live.matches(None, Some(server_id)) {
                        live.handle_server_down();
                    }
                }
            }
            WorkerCommand::Cut {
                service_id,
                server_id,
                reason,
                count,
            } => {
                for (_, live) in self.sessions.borrow().iter() {
                    if live.matches(service_id, server_id) {
                        match live.handle().filter(|_| server_id.is_some()) {
                            Some(handle) => handle.abandon_server(),
                            None => live.cut(TerminationReason::Cut(reason)),
                        }
                        count.add();
                    }
                }
            }
            WorkerCommand::Cancel(claim) => self.cancel(claim),
            WorkerCommand::Describe { service_id, reply } => {
                // The requester may be gone.
                let _ = reply.send(describe::described(self, service_id));
            }
            WorkerCommand::Kill {
                service_id,
                filter,
                count,
            } => operate::kill(self, service_id, &filter, &count),
            WorkerCommand::KillSession {
                service_id,
                request,
                reply,
            } => cancel::kill_here(self, service_id, &request, &reply),
            WorkerCommand::KillForwarded(passed) => cancel::kill_passed(self, &passed),
            WorkerCommand::Pool {
                service_id,
                message,
            } => {
                self.worker_pools.handle_message(self, service_id, message);
            }
            WorkerCommand::Stop => self.stopped.set(true),
        }
    }

    fn cancel(self: &Rc<Self>, claim: CancelClaim) {
        let sessions = self.sessions.borrow();
        let Some(live) = sessions.get(claim.place().slot as usize) else {
            return;
        };
        if let Some(handle) = live.handle() {
            cancel::carry_out(self, claim, &handle, &live.service);
        }
    }

    fn listen(self: &Rc<Self>, listener: Arc<ListenerShared>) {
        let (keep_open, stop) = flume::bounded(0);
        self.accepting.borrow_mut().push((listener.id, keep_open));
        let accepting = listen::accept_clients(Rc::clone(self), listener, stop);
        self.spawn(accepting);
    }

    /// Stops accepting from a listener after the accept in progress; clients that the kernel holds
    /// for the socket stay there.
    fn stop_listening(&self, id: u64) {
        self.accepting
            .borrow_mut()
            .retain(|(known, _)| *known != id);
    }
}

/// Mechanism that a worker waits with.
pub(crate) enum Poller {
    Epoll(Reactor),
    IoUring(Rc<Ring>),
}

impl Poller {
    fn poll_once(&self, timeout: Option<Duration>) {
        match self {
            Self::Epoll(reactor) => reactor.poll_once(timeout),
            Self::IoUring(ring) => ring.poll_once(timeout),
        }
    }
}

/// A buffer for bulk transfers.
pub(crate) struct LargeBuffer<'a> {
    worker: &'a Worker,
    bytes: Box<[u8]>,
}

impl std::ops::Deref for LargeBuffer<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl std::ops::DerefMut for LargeBuffer<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for LargeBuffer<'_> {
    fn drop(&mut self) {
        let mut kept = self.worker.large_buffers.borrow_mut();
        if kept.len() < LARGE_BUFFERS_KEPT {
            kept.push(std::mem::take(&mut self.bytes));
        }
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
        self.worker.shared.sessions[self.worker.index].fetch_sub(1, Relaxed);
    }
}

/// Runs a worker until it is stopped.
pub(super) fn run(worker: &Rc<Worker>, commands: flume::Receiver<WorkerCommand>) {
    let receiver = Rc::clone(worker);
    worker.spawn(async move {
        while let Ok(command) = commands.recv_async().await {
            receiver.run_command(command);
            if receiver.stopped.get() {
                break;
            }
        }
        receiver.stopped.set(true);
    });
    worker.spawn(sweep_forever(Rc::clone(worker)));
    while !worker.stopped.get() {
        run_turn(worker);
    }
}

async fn sweep_forever(worker: Rc<Worker>) {
    loop {
        timers::sleep(SWEEP_INTERVAL).await;
        worker.sweep();
    }
}

/// Runs the tasks that have work, then waits for more.
fn run_turn(worker: &Worker) {
    worker.executor.run();
    let next_timer = timers::wake_due();
    let timeout = match worker.executor.has_runnable() {
        true => Some(Duration::ZERO),
        false => next_timer,
    };
    worker.poller.poll_once(timeout);
}
