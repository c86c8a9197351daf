//! Owns all state that changes at run time, takes events from probes, traffic, commands and timers,
//! and publishes service snapshots to the data plane.

mod acme;
mod clock;
mod cluster;
mod clusters;
mod command;
mod database;
mod eligibility;
mod endpoint;
mod explain;
mod history;
mod http;
mod listening;
mod monitor_event;
mod operate;
mod peers;
mod probing;
mod proxy_header;
mod publish;
mod rejection_log;
mod reload;
mod removal;
mod report;
mod resolution;
mod role_monitor;
mod server;
mod servers;
mod service;
mod timeline;
mod tls_routes;
mod traffic_check;
mod upgrade;
mod watchdog;

use std::sync::Arc;
use std::time::Duration;

use evenkeel_config::Problems;
use evenkeel_config::plan::{Address, Plan};
use evenkeel_engine::clock::now_ms;
use evenkeel_engine::listen::ListenError;
use evenkeel_policy::health::Change;
use evenkeel_policy::server_set::Member;
use evenkeel_proxy::data_plane::DataPlane;
use evenkeel_proxy::event::{Event, PassiveFailure};
use evenkeel_proxy::record::CutReason;
use evenkeel_tls::{SetupError, TicketKeys};
use thiserror::Error;
use tokio::sync::mpsc;

use crate::log::Format;
use crate::notify;
use crate::status::{EventKind, Request, Severity};
use crate::upgrade::predecessor::{InheritedSockets, Predecessor, TakeOverError};
use acme::Acme;
use clusters::Clusters;
use eligibility::RoleView;
use monitor_event::MonitorEvent;
use peers::Peers;
use removal::Removal;
use servers::Servers;
use service::ManagedService;
use timeline::{NewEvent, Timeline};
use upgrade::Upgrades;

/// Interval at which rates and histories are sampled.
const SAMPLE_INTERVAL_MS: u64 = 1_000;

/// Capacity of the channel for results of probes and name resolution. Each server has at most two
/// in progress.
const REPORTS_WAITING_MAX: usize = 1_024;

/// Reason why a plan cannot be adopted.
#[derive(Debug, Error)]
pub enum ControlPlaneError {
    /// An address of a service cannot be listened on.
    #[error("service {service:?}: {cause}")]
    Listen {
        /// Name of the service.
        service: String,
        /// Cause of the failure.
        cause: ListenError,
    },
    /// A service needs an address on which this process still listens, for another service or for
    /// the same one.
    #[error(
        "service {service:?}: cannot listen on {listen} while this process listens on {held}: \
         choose another port, or restart"
    )]
    OwnPort {
        /// Name of the service.
        service: String,
        /// Address that the service needs.
        listen: String,
        /// Conflicting address on which this process already listens.
        held: String,
    },
    /// A probe cannot be built.
    #[error("service {service:?}, server {server:?}: {cause}")]
    Probe {
        /// Name of the service.
        service: String,
        /// Name of the server.
        server: String,
        /// Cause of the failure.
        cause: String,
    },
    /// The engine cannot accept clients on an address that this process has bound.
    #[error("service {service:?}: cannot accept clients; see the preceding log lines")]
    NotAccepting {
        /// Name of the service.
        service: String,
    },
    /// The system has no randomness for the keys of TLS tickets.
    #[error(transparent)]
    Tls(#[from] SetupError),
    /// Taking over from the predecessor process failed.
    #[error(transparent)]
    TakeOver(#[from] TakeOverError),
}

/// Action requested by a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGHUP.
    Reload,
    /// SIGTERM or SIGINT. The second one stops the process immediately.
    Stop,
}

/// Owner of all state that changes while the process runs.
pub struct ControlPlane {
    data_plane: DataPlane,
    /// Generation number: how many upgrades preceded this process.
    generation: u32,
    peers: Peers,
    io_reason: String,
    plan: Plan,
    problems: Problems,
    servers: Servers,
    services: Vec<ManagedService>,
    clusters: Clusters,
    timeline: Timeline,
    /// Servers outside of clusters that have gone down in this turn.
    went_down: Vec<(Address, Change)>,
    removals: Vec<Removal>,
    upgrades: Upgrades,
    /// Keys of the session tickets of all HTTP services.
    ticket_keys: Arc<TicketKeys>,
    acme: Acme,
    reports: (mpsc::Sender<MonitorEvent>, mpsc::Receiver<MonitorEvent>),
    started_ms: u64,
    loaded_ms: u64,
    next_sample_ms: u64,
    /// Set while stopping: time in milliseconds at which the last sessions are terminated.
    stop_by_ms: Option<u64>,
}

impl ControlPlane {
    /// Binds all listeners or takes them over, then serves. Leaves no side effects on error.
    pub async fn new(
        (data_plane, generation): (DataPlane, u32),
        io_reason: String,
        (plan, problems): (Plan, Problems),
        before: Option<(Predecessor, InheritedSockets)>,
    ) -> Result<Self, ControlPlaneError> {
        let now_ms = now_ms();
        let mut control_plane = Self {
            data_plane,
            generation,
            peers: Peers::default(),
            io_reason,
            plan: Plan {
                services: Vec::new(),
                ..plan.clone()
            },
            problems,
            servers: Servers::default(),
            services: Vec::new(),
            clusters: Clusters::default(),
            timeline: Timeline::default(),
            went_down: Vec::new(),
            removals: Vec::new(),
            upgrades: Upgrades::default(),
            ticket_keys: Arc::new(TicketKeys::new()?),
            acme: Acme::default(),
            reports: mpsc::channel(REPORTS_WAITING_MAX),
            started_ms: now_ms,
            loaded_ms: now_ms,
            next_sample_ms: now_ms + SAMPLE_INTERVAL_MS,
            stop_by_ms: None,
        };
        match before {
            None => control_plane.adopt(plan)?,
            Some((predecessor, inherited)) => {
                control_plane
                    .take_over(plan, predecessor, inherited)
                    .await?
            }
        }
        Ok(control_plane)
    }

    /// Runs until all sessions have ended after a stop.
    pub async fn run(
        mut self,
        mut requests: mpsc::Receiver<Request>,
        events: flume::Receiver<Event>,
        mut signals: mpsc::Receiver<Signal>,
    ) {
        let format = match self.plan.log.format {
            evenkeel_config::plan::LogFormat::Text => Format::Text,
            evenkeel_config::plan::LogFormat::Json => Format::Json,
        };
        while !self.is_over() {
            let wait = Duration::from_millis(self.next_wake_ms().saturating_sub(now_ms()));
            tokio::select! {
                Some(request) = requests.recv() => self.answer(request).await,
                Ok(event) = events.recv_async() => self.handle_event(event, format),
                Some(report) = self.reports.1.recv() => self.handle_monitor_events(report),
                Some(event) = self.acme.events.recv() => self.handle_acme(event),
                Some(signal) = signals.recv() => self.handle_signal(signal).await,
                Some(event) = self.upgrades.from_successor.1.recv() => self.handle_successor(event),
                Some(event) = self.upgrades.from_predecessor.1.recv() => {
                    self.handle_predecessor(event);
                }
                () = tokio::time::sleep(wait) => {}
            }
            self.run_due_tasks(now_ms());
        }
        while let Ok(event) = events.try_recv() {
            self.handle_event(event, format);
        }
        self.send_final_report();
        tracing::info!("stopped");
        self.data_plane.stop();
    }

    fn is_over(&self) -> bool {
        let Some(stop_by_ms) = self.stop_by_ms else {
            return false;
        };
        // A little longer than the limit, so that workers can terminate the sessions.
        self.is_idle() || now_ms() >= stop_by_ms + SAMPLE_INTERVAL_MS
    }

    /// Returns whether there is no session left and none can start.
    fn is_idle(&self) -> bool {
        !self.data_plane.is_accepting_any() && self.sessions() == 0
    }

    fn sessions(&self) -> usize {
        self.data_plane.sessions().iter().sum()
    }

    fn next_wake_ms(&mut self) -> u64 {
        let now_ms = now_ms();
        let servers = self.servers.next_due_ms(now_ms);
        let services = self
            .services
            .iter()
            .filter_map(|service| service.next_ramp_ms);
        let removals = self.removals.iter().map(Removal::next_due_ms);
        let stopping = self.stop_by_ms.map(|_| now_ms + 50);
        let cuts = self.timeline.next_due_ms();
        let due = servers
            .into_iter()
            .chain(services)
            .chain(removals)
            .chain(stopping)
            .chain(cuts)
            .chain(self.upgrades.due_ms())
            .min();
        due.map_or(self.next_sample_ms, |due| due.min(self.next_sample_ms))
    }

    fn run_due_tasks(&mut self, now_ms: u64) {
        self.start_due_probes(now_ms);
        self.publish_due();
        self.cut_expired(now_ms);
        self.climb_ramps(now_ms);
        self.log_due_events(now_ms);
        self.run_upgrade_tasks(now_ms);
        if now_ms >= self.next_sample_ms {
            self.sample();
            self.set_unmonitored_status();
            self.ping_watchdog();
            self.cut_sessions_on_dead_servers();
            self.log_rejections(now_ms);
            self.next_sample_ms = (self.next_sample_ms + SAMPLE_INTERVAL_MS).max(now_ms);
        }
        if self.stop_by_ms.is_some_and(|by_ms| now_ms >= by_ms) && self.sessions() > 0 {
            self.data_plane.cut(None, None, CutReason::Shutdown);
        }
    }

    fn handle_event(&mut self, event: Event, format: Format) {
        match event {
            Event::Sign { server_id, sign } => self.record_passive_failure(server_id, &sign),
            Event::Ended(record) => report::connection(&record).write(format),
            Event::AcceptFailed(why) => tracing::error!("{why}"),
        }
    }

    fn record_passive_failure(&mut self, server_id: u64, failure: &PassiveFailure) {
        let found = self.servers.with_id(server_id);
        let Some(address) = found.map(|state| state.address.clone()) else {
            return;
        };
        let failure = match failure {
            PassiveFailure::ConnectFailed(why) => {
                tracing::debug!(server = %address, "{why}");
                evenkeel_policy::health::PassiveFailure::ConnectFailed
            }
            PassiveFailure::ClosedBeforeAnyByte => {
                evenkeel_policy::health::PassiveFailure::ClosedBeforeAnyByte
            }
            PassiveFailure::Request(failure) => *failure,
        };
        let last = self.must_stay(&address, failure);
        let Some(state) = self.servers.get_mut(&address) else {
            return;
        };
        let change = state.record_failure(now_ms(), failure, last);
        self.apply_health_change(&address, change);
    }

    /// Returns whether a service would have too few usable servers without this one.
    fn must_stay(
        &self,
        address: &Address,
        failure: evenkeel_policy::health::PassiveFailure,
    ) -> bool {
        let listing = self.servers.listed_by(address).iter();
        let mut listing = listing.map(|index| {
            let service = &self.services[*index];
            if service.ignores_roles() {
                return (
                    self.others_serving(service, address),
                    service.plan.servers.len(),
                );
            }
            let roles = self.role_view();
            let usable = roles.listed(service).filter(|(other, eligibility)| {
                other.address != *address
                    && service.weight(other) > 0
                    && roles.serves((other, eligibility))
            });
            (usable.count(), service.plan.servers.len())
        });
        listing.any(|(others, all)| !failure.leaves_enough(others, all))
    }

    /// Returns the number of servers other than this one that serve a service without roles.
    fn others_serving(&self, service: &ManagedService, address: &Address) -> usize {
        let snapshot = service.service.snapshot();
        let members = snapshot.pool.members();
        let serves = |member: &Member| member.accepting && member.weight > 0;
        let all = members.iter().filter(|member| serves(member)).count();
        // Those that have gone down in this turn are not published yet.
        let gone = self.went_down.iter().map(|(gone, _)| gone);
        let gone = gone.filter(|gone| *gone != address).chain([address]);
        let gone = gone.filter_map(|gone| members.get(*service.members.get(gone)?));
        all - gone.filter(|member| serves(member)).count()
    }

    fn log_rejections(&mut self, now_ms: u64) {
        for service in &mut self.services {
            for line in service
                .rejections
                .new_lines(now_ms, &service.service.counters)
            {
                tracing::warn!(service = service.plan.name, "{line}");
            }
        }
    }

    /// Returns the servers with their roles, as services see them.
    fn role_view(&self) -> RoleView<'_> {
        RoleView {
            servers: &self.servers,
            clusters: &self.clusters,
        }
    }

    async fn handle_signal(&mut self, signal: Signal) {
        match signal {
            Signal::Reload => {
                self.reload().await;
            }
            Signal::Stop if self.upgrades.is_stopping_already() => {}
            Signal::Stop if self.stop_by_ms.is_some() => {
                tracing::warn!("second stop signal received, exiting immediately");
                self.stop_by_ms = Some(now_ms());
            }
            Signal::Stop if self.upgrades.abort() => {}
            Signal::Stop => {
                // Not in `stop`: an upgrade ends this process, but not the service.
                notify::stopping(self.plan.engine.shutdown_limit_ms);
                self.stop();
            }
        }
    }

    fn stop(&mut self) {
        let limit_ms = self.plan.engine.shutdown_limit_ms;
        self.stop_by_ms = Some(now_ms() + limit_ms);
        // Before the log line: readers may rely on it that no client is accepted any more.
        for service in &mut self.services {
            service.stop_listening(&self.data_plane);
        }
        self.acme.stop();
        self.upgrades.notify_predecessor();
        let sessions = watchdog::counted(self.sessions(), "session");
        let cause = format!(
            "stop signal received; {sessions} still open, closing them in {limit_ms} ms at the \
             latest"
        );
        let event = NewEvent::new(
            EventKind::Process,
            Severity::Info,
            "shutting down, no longer accepting clients",
        );
        self.record_event(event.cause(cause));
    }
}
