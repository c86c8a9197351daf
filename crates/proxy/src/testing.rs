//! Runs sessions in tests without sockets: a worker, a service and its servers, whose peers follow
//! a script.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use evenkeel_engine::engine::{Inboxes, workers};
use evenkeel_engine::scripted::{Peer, Stage, connected, connecting};
use evenkeel_engine::socket::{Keepalive, Socket};
use evenkeel_policy::balance::Algorithm;
use evenkeel_policy::load::Load;
use evenkeel_policy::server_set::{Member, RotationCursor, ServerSet};

use crate::access_log::AccessLogQueue;
use crate::event::Event;
use crate::record::Record;
use crate::server::{Endpoint, Server};
use crate::service::{Protocol, Service, ServiceSnapshot};
use crate::session;
use crate::session::handle::SessionHandle;
use crate::settings::{Assignment, ServiceSettings};
use crate::shared::{DataPlaneShared, NO_SESSION};
use crate::sweeper;
use crate::worker::Worker;

thread_local! {
    /// Connects to servers that no script has taken, in order.
    static CONNECTS: RefCell<Vec<(Endpoint, Peer)>> = const { RefCell::new(Vec::new()) };
}

/// Connects to an endpoint: the result is the script's, which [`TestPlane::next_connect`] returns.
pub(crate) fn connect(endpoint: &Endpoint) -> Socket {
    let (socket, peer) = connecting();
    CONNECTS.with_borrow_mut(|connects| connects.push((endpoint.clone(), peer)));
    socket
}

/// One worker with one service.
pub(crate) struct TestPlane {
    pub(crate) stage: Stage,
    pub(crate) worker: Rc<Worker>,
    pub(crate) service: Arc<Service>,
    pub(crate) servers: Vec<Arc<Server>>,
    events: flume::Receiver<Event>,
    /// Keeps the worker's commands from failing.
    _inboxes: Inboxes<Worker>,
}

/// Settings with short limits, each different from the others.
pub(crate) fn settings() -> ServiceSettings {
    ServiceSettings {
        max_connections: 100,
        connect_timeout: Duration::from_secs(2),
        retries: 3,
        idle_timeout: Duration::from_secs(60),
        half_close_timeout: Duration::from_secs(20),
        queue_length: 10,
        queue_wait: Duration::from_secs(5),
        wait_when_down: false,
        accept_proxy_from: Vec::new(),
        send_proxy: None,
        server_speaks_first: false,
        assignment: Assignment::Keep,
        keepalive: Keepalive {
            idle: Duration::ZERO,
            interval: Duration::ZERO,
            probes: 0,
            user_timeout: Duration::from_secs(8),
        },
    }
}

impl TestPlane {
    /// Creates a service whose servers take at most `limits` connections; the first one is picked
    /// first.
    pub(crate) fn new(settings: ServiceSettings, limits: &[u32]) -> Self {
        let stage = Stage::new().unwrap();
        CONNECTS.take();
        let (events, receiver) = flume::unbounded();
        let (workers, inboxes) = workers(1);
        let shared = Arc::new(DataPlaneShared {
            registry: Arc::default(),
            sessions: vec![AtomicUsize::new(0)],
            oldest_ms: vec![AtomicU64::new(NO_SESSION)],
            busy: vec![AtomicU32::new(0)],
            workers,
            records_enabled: AtomicBool::new(true),
            keyring: Default::default(),
            connection_numbers: session::mysql::id::numbers(),
            predecessor: Default::default(),
            events,
            events_dropped: AtomicU64::new(0),
            access_log: Arc::new(AccessLogQueue::new()),
        });
        let worker = Worker::new(Rc::clone(stage.worker()), shared, session::start);
        worker.spawn_vital(sweeper::run(Rc::clone(&worker)));
        let servers: Vec<_> = (1..)
            .zip(limits)
            .map(|(id, limit)| server(id, *limit))
            .collect();
        let view = snapshot(settings, &servers);
        let service = Arc::new(Service::new(7, "shop".into(), view, 1, Protocol::Tcp));
        worker.shared.registry.add(&service);
        Self {
            stage,
            worker,
            service,
            servers,
            events: receiver,
            _inboxes: inboxes,
        }
    }

    /// Adds another service, whose servers have the next ids.
    pub(crate) fn add_service(
        &mut self,
        name: &str,
        settings: ServiceSettings,
        limits: &[u32],
    ) -> Arc<Service> {
        let first = self.servers.len() as u64 + 1;
        let servers: Vec<_> = (first..)
            .zip(limits)
            .map(|(id, limit)| server(id, *limit))
            .collect();
        let view = snapshot(settings, &servers);
        let service = Service::new(100 + first, name.into(), view, 1, Protocol::Tcp);
        let service = Arc::new(service);
        self.worker.shared.registry.add(&service);
        self.servers.extend(servers);
        service
    }

    /// Starts the session of a client, and returns the client.
    pub(crate) fn client(&self) -> Peer {
        let (socket, peer) = connected();
        self.worker.shared.sessions[0].fetch_add(1, Relaxed);
        let address = "192.0.2.1:4000".parse().ok();
        session::start_with(&self.worker, Arc::clone(&self.service), address, Ok(socket));
        self.stage.settle();
        peer
    }

    /// Starts a session and connects it to its server.
    pub(crate) fn relayed_client(&self) -> (Peer, Peer) {
        let client = self.client();
        let (_, server) = self.next_connect();
        server.accept();
        self.stage.settle();
        (client, server)
    }

    /// Returns the next connect: the server's id and the server.
    pub(crate) fn next_connect(&self) -> (u64, Peer) {
        let connect = self.try_next_connect();
        connect.expect("no session connects to a server")
    }

    pub(crate) fn try_next_connect(&self) -> Option<(u64, Peer)> {
        self.stage.settle();
        let next = CONNECTS.with_borrow_mut(|all| (!all.is_empty()).then(|| all.remove(0)));
        let (endpoint, peer) = next?;
        let server = self.servers.iter();
        let server = server.filter(|one| one.endpoint().as_ref() == Some(&endpoint));
        Some((server.map(|one| one.id).next()?, peer))
    }

    /// Returns the record of the next session that has ended.
    pub(crate) fn next_record(&self) -> Record {
        let record = self.try_next_record();
        *record.expect("no session has ended")
    }

    pub(crate) fn try_next_record(&self) -> Option<Box<Record>> {
        self.stage.settle();
        let records = self.events.try_iter().filter_map(|event| match event {
            Event::Ended(record) => Some(record),
            Event::Sign { .. } | Event::AcceptFailed(_) => None,
        });
        let mut records = records;
        records.next()
    }

    pub(crate) fn advance(&self, duration: Duration) {
        self.stage.advance(duration);
    }

    /// Applies a function to each session, as the control plane's commands do.
    pub(crate) fn each_session(&self, act: impl FnMut(&SessionHandle)) {
        self.worker.each_session(act);
        self.stage.settle();
    }

    /// Returns the number of sessions in the worker's list.
    pub(crate) fn sessions(&self) -> usize {
        let mut count = 0;
        self.worker.each_session(|_| count += 1);
        count
    }
}

fn server(id: u64, limit: u32) -> Arc<Server> {
    let server = Server::new(
        id,
        format!("db{id}").into(),
        Arc::new(Load::new(Some(limit))),
        1,
    );
    let port = u16::try_from(id).unwrap();
    server.set_endpoints(vec![Endpoint::Tcp(([192, 0, 2, 9], port).into())]);
    Arc::new(server)
}

pub(crate) fn snapshot(settings: ServiceSettings, servers: &[Arc<Server>]) -> ServiceSnapshot {
    let members = servers.iter().map(|server| Member {
        id: server.id,
        weight: evenkeel_policy::ramp::WEIGHT_SCALE,
        backup: false,
        accepting: true,
        load: Arc::clone(&server.load),
    });
    let cursor = Arc::<RotationCursor>::default();
    ServiceSnapshot {
        settings,
        pool: ServerSet::new(Algorithm::First, members.collect(), cursor),
        servers: servers.to_vec(),
        tls_routes: None,
        protocol: crate::service::ProtocolSnapshot::Tcp,
    }
}
