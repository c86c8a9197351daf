//! Offers the data plane to the control plane: starts workers, publishes services, opens and closes
//! listeners, resets sessions.

pub(crate) mod accepting;
pub mod describe;
pub mod event;
mod executor;
pub(crate) mod live_session;
pub mod operate;
pub(crate) mod reactor;
pub(crate) mod ring;
pub(crate) mod spare_buffers;
pub(crate) mod timers;
mod wakeup;
pub(crate) mod worker;

use std::io;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, fence,
};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;

use arc_swap::ArcSwapOption;
use evenkeel_wire::postgres::startup::CancelKey;
use thiserror::Error;

use crate::cancel::{CancelClaim, CancelRoute, Keyring};
use crate::listen::{Accepted, Listener, ListenerShared};
use crate::numbers::Numbers;
use crate::record::CutReason;
use crate::server::Server;
use crate::service::{Protocol, Service, ServiceSnapshot};
use crate::session::cancel::{self, ForwardedKill, KillOutcome, KillRequest};
use crate::session::mysql;
use crate::upstream::queue;
use crate::upstream::server_permit::ServiceRegistry;
use crate::upstream::worker_pool::PoolMessage;
use describe::NO_SESSION;
use event::Event;
use worker::Worker;

/// Number of buffers that the kernel may fill for one io_uring worker. 512 kB in all: enough for 64
/// concurrently active sessions; beyond that, sessions read into memory of their own.
pub(crate) const POOL_BUFFERS: u16 = 128;

/// Size of each buffer. Queries and their replies are smaller; bulk transfers use larger buffers.
pub(crate) const POOL_BUFFER_BYTES: usize = 4 * 1024;

/// Number of events that may wait for the control plane before further ones are dropped.
const EVENTS_WAITING_MAX: usize = 16 * 1024;

/// Input/output mechanism of the data plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    /// Completion-based, Linux 6.1 or newer; blocked in many containers.
    IoUring,
    /// Readiness-based, works everywhere.
    Epoll,
}

impl Driver {
    /// Returns the name in configuration and status.
    pub fn name(self) -> &'static str {
        match self {
            Self::IoUring => "io_uring",
            Self::Epoll => "epoll",
        }
    }

    /// Tries io_uring; where it is unavailable, returns epoll and the reason.
    pub fn detect() -> (Self, String) {
        match ring::Ring::check() {
            Ok(()) => (Self::IoUring, "supported by the kernel".to_owned()),
            Err(error) => (Self::Epoll, format!("io_uring is not available: {error}")),
        }
    }
}

/// Reason why the data plane did not start.
#[derive(Debug, Error)]
pub enum EngineError {
    /// The requested driver is unavailable.
    #[error("{driver} is not available: {cause}; set [engine] io = \"auto\" or \"epoll\"")]
    Driver {
        /// Name of the driver.
        driver: &'static str,
        /// Error of the kernel.
        cause: io::Error,
    },
    /// The system could not create a thread.
    #[error("cannot start a worker thread: {0}")]
    Thread(io::Error),
}

/// State shared by all workers.
pub(crate) struct EngineShared {
    pub(crate) driver: Driver,
    pub(crate) registry: Arc<ServiceRegistry>,
    /// Sessions of each worker: the next client goes to the one with the fewest.
    pub(crate) sessions: Vec<AtomicUsize>,
    /// Start of the oldest session of each worker at its last sweep, or [`NO_SESSION`].
    pub(crate) oldest_ms: Vec<AtomicU64>,
    /// Recent load of each worker, in thousandths of its time.
    pub(crate) busy: Vec<AtomicU32>,
    pub(crate) commands: Vec<flume::Sender<WorkerCommand>>,
    pub(crate) records_enabled: AtomicBool,
    /// Creates and parses the keys of cancel requests.
    pub(crate) keyring: OnceLock<Keyring>,
    /// Source of connection ids for MySQL clients.
    pub(crate) connection_numbers: Arc<Numbers>,
    /// Forwards cancel requests to the predecessor process.
    pub(crate) predecessor: ArcSwapOption<PredecessorCancels>,
    events: flume::Sender<Event>,
    events_dropped: AtomicU64,
}

/// Number of sessions of pooled services that gather at one worker before the next one gets any:
/// their work comes in small pieces, so that two workers with few sessions would spend more on
/// falling asleep.
const GATHERED: usize = 8;

/// Load in thousandths above which a worker gathers no further sessions.
const BUSY_MAX: u32 = 600;

fn pooled_weight(sessions: usize, busy_permille: u32) -> usize {
    match busy_permille > BUSY_MAX {
        true => sessions + GATHERED + 1,
        false => sessions.max(GATHERED),
    }
}

impl EngineShared {
    /// Returns the number of sessions that a worker counts as when it is chosen for a session of a
    /// pooled service.
    pub(crate) fn pooled_weight(&self, index: usize) -> usize {
        let busy = self.busy[index].load(Relaxed);
        pooled_weight(self.sessions[index].load(Relaxed), busy)
    }

    pub(crate) fn report_event(&self, event: Event) {
        if self.events.try_send(event).is_err() {
            self.events_dropped.fetch_add(1, Relaxed);
        }
    }
}

/// A command from the control plane or another worker.
pub(crate) enum WorkerCommand {
    Listen(Arc<ListenerShared>),
    StopListening(u64),
    /// A client that another worker has accepted.
    Adopt(Accepted),
    /// A server has failed: sessions that have received nothing from it stop waiting for it.
    AbandonServer {
        server_id: u64,
    },
    Cut {
        service_id: Option<u64>,
        server_id: Option<u64>,
        reason: CutReason,
        count: CutCount,
    },
    /// A client presents the key of a session's cancel request.
    Cancel(CancelClaim),
    Describe {
        service_id: u64,
        reply: flume::Sender<describe::Described>,
    },
    Kill {
        service_id: u64,
        filter: operate::SessionFilter,
        count: CutCount,
    },
    /// A client requests to end another session; the worker with that session replies.
    KillSession {
        service_id: u64,
        request: KillRequest,
        reply: flume::Sender<KillOutcome>,
    },
    /// A client of the successor process requests to end a session.
    KillForwarded(ForwardedKill),
    /// A message about a pool of server connections.
    Pool {
        service_id: u64,
        message: PoolMessage,
    },
    Stop,
}

/// Receives the process number and the secret of a cancel request; returns whether it is taken.
pub type PredecessorCancels = Box<dyn Fn(u32, Vec<u8>) -> bool + Send + Sync>;

/// Number of sessions that a command has reset so far; the workers count while they execute it.
#[derive(Debug, Clone, Default)]
pub struct CutCount(Arc<AtomicU64>);

impl CutCount {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// Returns the count; final within some milliseconds of the command.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The running data plane.
pub struct Engine {
    shared: Arc<EngineShared>,
    threads: Vec<JoinHandle<()>>,
    next_id: AtomicU64,
    /// The listeners that workers accept from; only the workers own them after they are closed.
    listeners: Mutex<Vec<Weak<ListenerShared>>>,
}

impl Engine {
    /// Starts the workers. The receiver gets their events.
    pub fn start(
        driver: Driver,
        workers: usize,
    ) -> Result<(Self, flume::Receiver<Event>), EngineError> {
        let (events, receiver) = flume::bounded(EVENTS_WAITING_MAX);
        let (commands, inboxes): (Vec<_>, Vec<_>) =
            (0..workers).map(|_| flume::unbounded()).unzip();
        let shared = Arc::new(EngineShared {
            driver,
            registry: Arc::default(),
            sessions: (0..workers).map(|_| AtomicUsize::new(0)).collect(),
            oldest_ms: (0..workers).map(|_| AtomicU64::new(NO_SESSION)).collect(),
            busy: (0..workers).map(|_| AtomicU32::new(0)).collect(),
            commands,
            records_enabled: AtomicBool::new(false),
            keyring: OnceLock::new(),
            connection_numbers: mysql::id::numbers(),
            predecessor: ArcSwapOption::empty(),
            events,
            events_dropped: AtomicU64::new(0),
        });
        let (started, starts) = flume::unbounded();
        let mut threads = Vec::new();
        for (index, inbox) in inboxes.into_iter().enumerate() {
            threads.push(start_worker(
                index,
                Arc::clone(&shared),
                inbox,
                started.clone(),
            )?);
        }
        drop(started);
        for outcome in starts.iter().take(workers) {
            outcome.map_err(|cause| EngineError::Driver {
                driver: driver.name(),
                cause,
            })?;
        }
        Ok((
            Self {
                shared,
                threads,
                next_id: AtomicU64::new(1),
                listeners: Mutex::default(),
            },
            receiver,
        ))
    }

    /// Sets this process's identity among several: required before any database client logs in.
    pub fn identify(&self, instance: u16, generation: u32) -> Result<(), rustls::Error> {
        let keyring = Keyring::new(instance, generation)?;
        // A second call changes nothing: clients already have keys.
        let _ = self.shared.keyring.set(keyring);
        Ok(())
    }

    /// Sets the target of cancel requests that belong to the predecessor process.
    pub fn set_predecessor(&self, predecessor: Option<PredecessorCancels>) {
        self.shared.predecessor.store(predecessor.map(Arc::new));
    }

    /// Returns a function that executes cancel requests received by another process, if they belong
    /// to this one.
    pub fn canceller(&self) -> impl Fn(u32, &[u8]) + Send + Sync + use<> {
        let shared = Arc::clone(&self.shared);
        move |process, secret| {
            if let Some(passed) = ForwardedKill::read(process, secret) {
                for sender in &shared.commands {
                    // A worker that has ended has no sessions.
                    let _ = sender.send(WorkerCommand::KillForwarded(passed));
                }
                return;
            }
            let key = CancelKey { process, secret };
            if let Some(CancelRoute::Here(claim)) = shared.keyring.get().map(|ring| ring.read(key))
            {
                cancel::pass_to_worker(&shared, claim);
            }
        }
    }

    /// Returns the driver in use.
    pub fn driver(&self) -> Driver {
        self.shared.driver
    }

    /// Returns the number of workers.
    pub fn workers(&self) -> usize {
        self.shared.sessions.len()
    }

    /// Returns the number of events lost because the control plane was too slow.
    pub fn events_dropped(&self) -> u64 {
        self.shared.events_dropped.load(Relaxed)
    }

    /// Sets whether a [`Record`](crate::record::Record) is reported for each finished connection.
    pub fn set_records_enabled(&self, is_enabled: bool) {
        self.shared.records_enabled.store(is_enabled, Relaxed);
    }

    /// Returns an id for a server, unique in this process.
    pub fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Relaxed)
    }

    /// Creates a service; it has no clients until a listener is added.
    pub fn add_service(
        &self,
        name: &str,
        view: ServiceSnapshot,
        protocol: Protocol,
    ) -> Arc<Service> {
        let workers = self.workers();
        let service = Service::new(self.new_id(), name.into(), view, workers, protocol);
        let service = Arc::new(service);
        self.shared.registry.add(&service);
        service
    }

    /// Replaces a service's snapshot; waiting clients get the permits that become free.
    pub fn publish(&self, service: &Arc<Service>, view: ServiceSnapshot) {
        if service.replace_view(view) {
            self.resize_pools(service);
        }
        if service.queued() == 0 {
            return;
        }
        if service.snapshot().refuses() {
            queue::refuse_waiting(service, &self.shared.registry);
        } else {
            queue::serve_waiting(service, &self.shared.registry);
        }
    }

    /// Starts accepting clients of a service. Returns the id for [`Self::stop_listening`].
    ///
    /// The caller keeps the listener: as long as it lives no client is lost between two services.
    pub fn listen(&self, listener: &Listener, service: &Arc<Service>) -> io::Result<u64> {
        let id = self.new_id();
        let listener = ListenerShared::new(id, listener, Arc::clone(service))?;
        let listener = Arc::new(listener);
        self.listeners().push(Arc::downgrade(&listener));
        for sender in &self.shared.commands {
            // A worker that has ended accepts no clients either.
            let _ = sender.send(WorkerCommand::Listen(Arc::clone(&listener)));
        }
        Ok(id)
    }

    /// Reassigns a listener to another service without a pause, which would lose a client.
    pub fn reassign(&self, id: u64, service: &Arc<Service>) {
        let listeners = self.listeners();
        let mut alive = listeners.iter().filter_map(Weak::upgrade);
        if let Some(listener) = alive.find(|listener| listener.id == id) {
            listener.reassign(service);
        }
    }

    fn listeners(&self) -> MutexGuard<'_, Vec<Weak<ListenerShared>>> {
        let mut listeners = self
            .listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners
    }

    /// Stops accepting; clients that the kernel holds stay with the [`Listener`].
    pub fn stop_listening(&self, id: u64) {
        for sender in &self.shared.commands {
            let _ = sender.send(WorkerCommand::StopListening(id));
        }
    }

    /// Returns whether a worker still accepts from this listener. After [`Self::stop_listening`],
    /// false means that all clients accepted from it are counted.
    pub fn is_accepting(&self, id: u64) -> bool {
        let alive = self.listeners();
        let found = alive.iter().filter_map(Weak::upgrade).any(|l| l.id == id);
        fence(Acquire);
        found
    }

    /// Returns whether a worker still accepts from any listener.
    pub fn is_accepting_any(&self) -> bool {
        let accepting = !self.listeners().is_empty();
        fence(Acquire);
        accepting
    }

    /// Sets the number of a server's permits that other processes hold; waiting clients get the
    /// freed ones.
    pub fn set_used_by_other_processes(&self, server: &Arc<Server>, permits: u32) {
        let before = server.load.permits.in_use_elsewhere();
        server.load.permits.set_used_by_other_processes(permits);
        if permits < before {
            self.handle_freed_permits(server);
        }
    }

    /// Reports that a server's capacity may have grown: waiting clients get its permits.
    pub fn handle_freed_permits(&self, server: &Arc<Server>) {
        self.shared.registry.handle_freed_permit(server);
    }

    /// Handles a dead server: sessions that have received nothing from it continue on another
    /// server, or are reset if their client has sent data to it. Other sessions are unaffected.
    pub fn abandon_server(&self, server_id: u64) {
        for sender in &self.shared.commands {
            let _ = sender.send(WorkerCommand::AbandonServer { server_id });
        }
    }

    /// Resets the sessions of a service or of a server (or both; neither means all).
    pub fn cut(
        &self,
        service_id: Option<u64>,
        server_id: Option<u64>,
        reason: CutReason,
    ) -> CutCount {
        let count = CutCount::default();
        for sender in &self.shared.commands {
            let _ = sender.send(WorkerCommand::Cut {
                service_id,
                server_id,
                reason,
                count: count.clone(),
            });
        }
        count
    }

    /// Ends the workers, and with them all remaining sessions.
    pub fn stop(mut self) {
        for sender in &self.shared.commands {
            let _ = sender.send(WorkerCommand::Stop);
        }
        for thread in self.threads.drain(..) {
            // A worker that panicked has reported it itself.
            let _ = thread.join();
        }
    }
}

fn start_worker(
    index: usize,
    shared: Arc<EngineShared>,
    commands: flume::Receiver<WorkerCommand>,
    started: flume::Sender<io::Result<()>>,
) -> Result<JoinHandle<()>, EngineError> {
    let run = move || {
        // The receiver does not exist any more if another worker has failed already.
        let _ = match Worker::new(index, shared) {
            Err(error) => started.send(Err(error)),
            Ok(worker) => {
                let reported = started.send(Ok(()));
                worker::run(&worker, commands);
                reported
            }
        };
    };
    let thread = std::thread::Builder::new().name(format!("worker-{index}"));
    thread.spawn(run).map_err(EngineError::Thread)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many of the clients each of two workers gets.
    fn spread(clients: usize, busy: [u32; 2]) -> [usize; 2] {
        let mut sessions = [0, 0];
        for _ in 0..clients {
            let weight = |index: usize| pooled_weight(sessions[index], busy[index]);
            let lightest = usize::from(weight(1) < weight(0));
            sessions[lightest] += 1;
        }
        sessions
    }

    #[test]
    fn few_pooled_clients_gather_at_one_worker_and_many_are_spread() {
        assert_eq!(spread(8, [0, 0]), [8, 0]);
        assert_eq!(spread(64, [0, 0]), [32, 32]);
    }

    #[test]
    fn a_busy_worker_gathers_nobody() {
        assert_eq!(spread(4, [900, 0]), [0, 4]);
    }
}
