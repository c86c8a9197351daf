//! Offers the data plane to the control plane: starts workers, publishes services, opens and closes
//! listeners, resets sessions.

pub mod describe;
pub mod operate;

use std::io;
use std::rc::Rc;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, fence,
};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use arc_swap::ArcSwapOption;
use evenkeel_engine::engine::{Driver, Engine, EngineError, workers};
use evenkeel_engine::listen::Listener;
use evenkeel_engine::panics::lock;
use evenkeel_wire::postgres::startup::CancelKey;

use crate::accept::{self, ServiceListener};
use crate::access_log::{self, AccessLogQueue};
use crate::cancel::{CancelRoute, Keyring};
use crate::event::Event;
use crate::record::{CutReason, TerminationReason};
use crate::server::Server;
use crate::service::{Protocol, Service, ServiceSnapshot};
use crate::session::cancel::{self, ForwardedKill};
use crate::session::{self, mysql};
pub use crate::shared::PredecessorCancels;
use crate::shared::{DataPlaneShared, NO_SESSION};
use crate::sweeper;
use crate::upstream::queue;
use crate::worker::Worker;

/// Number of events that may wait for the control plane before further ones are dropped.
const EVENTS_WAITING_MAX: usize = 16 * 1024;

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
pub struct DataPlane {
    engine: Engine<Worker>,
    shared: Arc<DataPlaneShared>,
    next_id: AtomicU64,
    /// The listeners that workers accept from; only the workers own them after they are closed.
    listeners: Mutex<Vec<Weak<ServiceListener>>>,
}

impl DataPlane {
    /// Starts the workers. The receiver gets their events.
    ///
    /// # Errors
    ///
    /// The driver is not available, or the system creates no thread.
    pub fn start(
        driver: Driver,
        count: usize,
    ) -> Result<(Self, flume::Receiver<Event>), EngineError> {
        let (events, receiver) = flume::bounded(EVENTS_WAITING_MAX);
        let (workers, inboxes) = workers(count);
        let shared = Arc::new(DataPlaneShared {
            registry: Arc::default(),
            sessions: (0..count).map(|_| AtomicUsize::new(0)).collect(),
            oldest_ms: (0..count).map(|_| AtomicU64::new(NO_SESSION)).collect(),
            busy: (0..count).map(|_| AtomicU32::new(0)).collect(),
            workers: workers.clone(),
            records_enabled: AtomicBool::new(false),
            keyring: OnceLock::new(),
            connection_numbers: mysql::id::numbers(),
            predecessor: ArcSwapOption::empty(),
            events,
            events_dropped: AtomicU64::new(0),
            access_log: Arc::new(AccessLogQueue::new()),
        });
        let on_workers = Arc::clone(&shared);
        let make = move |engine| {
            let worker = Worker::new(engine, Arc::clone(&on_workers), session::start);
            worker.spawn_vital(sweeper::run(Rc::clone(&worker)));
            worker
        };
        let data_plane = Self {
            engine: Engine::start(driver, (workers, inboxes), make)?,
            shared,
            next_id: AtomicU64::new(1),
            listeners: Mutex::default(),
        };
        Ok((data_plane, receiver))
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
                shared
                    .workers
                    .run_on_all(move |worker| cancel::kill_passed(worker, &passed));
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
        self.engine.driver()
    }

    /// Returns the number of workers.
    pub fn workers(&self) -> usize {
        self.shared.workers.count()
    }

    /// Returns the number of events lost because the control plane was too slow.
    pub fn events_dropped(&self) -> u64 {
        self.shared.events_dropped.load(Relaxed)
    }

    /// Returns the receiver of requests for the access log.
    pub fn access_log(&self) -> flume::Receiver<access_log::Batch> {
        self.shared.access_log.receiver()
    }

    /// Returns the number of requests that are missing in the access log because its writer was too
    /// slow.
    pub fn requests_not_logged(&self) -> u64 {
        self.shared.access_log.dropped()
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
        let listener = ServiceListener::new(id, listener, Arc::clone(service))?;
        let listener = Arc::new(listener);
        self.listeners().push(Arc::downgrade(&listener));
        self.shared
            .workers
            .run_on_all(move |worker| accept::listen(worker, Arc::clone(&listener)));
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

    fn listeners(&self) -> MutexGuard<'_, Vec<Weak<ServiceListener>>> {
        let mut listeners = lock(&self.listeners);
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners
    }

    /// Stops accepting; clients that the kernel holds stay with the [`Listener`].
    pub fn stop_listening(&self, id: u64) {
        self.shared
            .workers
            .run_on_all(move |worker| worker.stop_listening(id));
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
        self.shared.workers.run_on_all(move |worker| {
            worker.each_session(|session| {
                if session.matches(None, Some(server_id)) {
                    session.handle_server_down();
                }
            });
        });
    }

    /// Resets the sessions of a service or of a server (or both; neither means all).
    pub fn cut(
        &self,
        service_id: Option<u64>,
        server_id: Option<u64>,
        reason: CutReason,
    ) -> CutCount {
        let count = CutCount::default();
        let counted = count.clone();
        self.shared.workers.run_on_all(move |worker| {
            worker.each_session(|session| {
                if session.matches(service_id, server_id) {
                    match server_id {
                        Some(_) => session.cut_from_server(reason),
                        None => session.cut(TerminationReason::Cut(reason)),
                    }
                    counted.add();
                }
            });
        });
        count
    }

    /// Ends the workers, and with them all remaining sessions.
    pub fn stop(self) {
        self.engine.stop();
    }
}
