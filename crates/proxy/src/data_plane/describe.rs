//! Describes the current sessions and server connections for an operator; each worker reports its
//! own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use evenkeel_engine::clock;
use evenkeel_policy::pins::Pins;

use super::DataPlane;
use crate::service::Service;
pub use crate::service::activity::SessionActivity;
use crate::service::database::PinCause;
use crate::service::stats::ActivityCounts;
use crate::session::handle::{LoginInfo, SessionHandle};
use crate::shared::NO_SESSION;
pub use crate::upstream::worker_pool::IdleInfo;
use crate::upstream::worker_pool::WorkerPools;
use crate::worker::Worker;

/// A client of a pooled service.
#[derive(Debug, Clone)]
pub struct SessionInfo {
    /// Identifies the session for the lifetime of the process.
    pub id: u64,
    /// Name that the client sent.
    pub user: String,
    /// Database that the client requested.
    pub database: String,
    /// `None`: connected through a Unix socket.
    pub peer: Option<SocketAddr>,
    /// Name that the client's program gives itself; empty if none.
    pub application: String,
    /// Current activity.
    pub doing: SessionActivity,
    /// Age of the session, in milliseconds.
    pub age_ms: u64,
    /// Duration of the current activity, in milliseconds.
    pub doing_for_ms: u64,
    /// Server whose connection the session has.
    pub server: Option<Arc<str>>,
    /// The server's number for the process of that connection.
    pub server_process: Option<u32>,
    /// Pins of the session to that connection.
    pub pins: Pins,
    /// Causes of the lasting pins.
    pub causes: Vec<Arc<PinCause>>,
    /// Bytes from the client.
    pub from_client: u64,
    /// Bytes to the client.
    pub to_client: u64,
}

/// One worker's part of a service.
#[derive(Debug, Clone, Default)]
pub struct Described {
    /// Sessions, except those that are still logging in.
    pub sessions: Vec<SessionInfo>,
    /// Idle server connections.
    pub idle: Vec<IdleInfo>,
}

impl DataPlane {
    /// Requests every worker's part of a service; each replies once, unless it has ended.
    pub fn describe(&self, service_id: u64) -> flume::Receiver<Described> {
        let (reply, answers) = flume::unbounded();
        self.shared.workers.run_on_all(move |worker| {
            // The requester may be gone.
            let _ = reply.send(described(worker, service_id));
        });
        answers
    }

    /// Returns the number of sessions of each worker.
    pub fn sessions(&self) -> Vec<usize> {
        self.shared
            .sessions
            .iter()
            .map(|count| count.load(Relaxed))
            .collect()
    }

    /// Returns the start of the oldest session, on the clock of [`evenkeel_engine`]; at most
    /// one sweep (500 ms) old. `None` without a session.
    pub fn oldest_session_ms(&self) -> Option<u64> {
        let of_workers = self.shared.oldest_ms.iter();
        let oldest_ms = of_workers.map(|oldest| oldest.load(Relaxed)).min();
        oldest_ms.filter(|oldest_ms| *oldest_ms != NO_SESSION)
    }
}

/// Returns a worker's reply.
pub(crate) fn described(worker: &Worker, service_id: u64) -> Described {
    let mut described = Described::default();
    worker.each_session(|handle| {
        let login = handle.login_info();
        if let Some(login) = login.filter(|_| handle.service.id == service_id) {
            described.sessions.push(session(handle, login));
        }
    });
    let idle = &mut described.idle;
    worker
        .local::<WorkerPools>()
        .describe_idle(service_id, idle);
    described
}

fn session(handle: &SessionHandle, login: LoginInfo) -> SessionInfo {
    let now_ms = clock::now_ms();
    let target = login.target;
    let age_ms = now_ms.saturating_sub(login.since_ms);
    // This timestamp is the sweeper's, and may be older than the session.
    let doing_for_ms = now_ms.saturating_sub(login.activity_since_ms).min(age_ms);
    SessionInfo {
        id: login.id,
        user: login.user.to_string(),
        database: login.database.to_string(),
        peer: login.peer,
        application: login.application.as_str().to_owned(),
        doing: login.activity,
        age_ms,
        doing_for_ms,
        server_process: target.as_ref().and_then(|target| target.process()),
        server: target.map(|target| Arc::clone(&target.pool_handle.server.name)),
        pins: login.pins,
        causes: login.causes,
        from_client: handle.bytes_from_client(),
        to_client: handle.bytes_to_client(),
    }
}

/// A running count of the activities of one service's clients.
#[derive(Default)]
struct Tally {
    doing: [u64; ActivityCounts::DOINGS],
    pins: [u64; ActivityCounts::PINS],
}

/// Counts the activities and pins of a worker's clients, twice a second.
pub(crate) fn record_activities(worker: &Worker) {
    let services = worker.local::<WorkerPools>().services();
    let mut tallies: Vec<_> = services.iter().map(|one| (one, Tally::default())).collect();
    worker.each_session(|session| {
        let Some((activity, pins)) = session.activity() else {
            return;
        };
        let mut tallies = tallies.iter_mut();
        if let Some((_, tally)) = tallies.find(|(service, _)| service.id == session.service.id) {
            tally.count(activity, pins);
        }
    });
    for (service, tally) in &tallies {
        publish(worker, service, tally);
    }
}

impl Tally {
    fn count(&mut self, doing: SessionActivity, pins: Pins) {
        self.doing[doing as usize] += 1;
        for pin in pins.iter() {
            self.pins[pin as usize] += 1;
        }
    }
}

fn publish(worker: &Worker, service: &Service, tally: &Tally) {
    if let Some(shared) = service.database() {
        let activities = &shared.stats()[worker.index()].activities;
        activities.set(&tally.doing, &tally.pins);
    }
}
