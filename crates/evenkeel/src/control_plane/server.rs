//! Manages one server address in the control plane: its health state, probes and drain.

mod fault;

use std::sync::Arc;

use evenkeel_config::plan::{
    self, Address, Monitor, Plan, ProbeTls, SendProxy, ServerTls, ServicePlan, SqlProtocol, TlsMode,
};
use evenkeel_engine::clock::{now_ms, now_us};
use evenkeel_engine::fast_random;
use evenkeel_monitor::RoleMonitor;
use evenkeel_monitor::probe::{
    Authorities, MonitorAccount, Observation, Outcome, Prober, Target, TargetAddress, Tls, TlsUse,
};
use evenkeel_policy::balance::key_of;
use evenkeel_policy::health::{Change, Health, HealthSettings, HealthState, PassiveFailure};
use evenkeel_policy::load::Load;
use evenkeel_proxy::data_plane::DataPlane;
use evenkeel_proxy::{Endpoint, Server};
use evenkeel_tls::TlsIdentity;
use tokio::sync::mpsc;

use super::endpoint;
use super::history::History;
use super::monitor_event::MonitorEvent;
use super::proxy_header::proxy_version;
use super::role_monitor::{RoleMonitorTask, RoleQuerySettings};
use crate::status::LastProbe;
pub(super) use fault::FaultKind;

/// Settings that a server's probes depend on. A change creates a new prober.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MonitorConfig {
    health: plan::Health,
    monitor: Option<Monitor>,
    tls: ServerTls,
    send_proxy: SendProxy,
    /// Protocol of a database service. `None` for other services.
    protocol: Option<SqlProtocol>,
}

impl MonitorConfig {
    pub(super) fn of(service: &ServicePlan) -> Self {
        Self {
            health: service.health.clone(),
            monitor: service.monitor.clone(),
            tls: service.server_tls.clone(),
            send_proxy: SendProxy::Off,
            protocol: service.database().map(|database| database.protocol),
        }
    }

    /// Sets the PROXY header for a server: that of the first service that sends one to it. If other
    /// services send none, the server accepts connections of both kinds.
    pub(super) fn with_proxy_header(self, plan: &Plan, address: &Address) -> Self {
        let sends = |service: &&ServicePlan| {
            let mut listed = service.servers.iter();
            service.send_proxy != SendProxy::Off && listed.any(|one| one.address == *address)
        };
        let sender = plan.services.iter().find(sends);
        Self {
            send_proxy: sender.map_or(SendProxy::Off, |service| service.send_proxy),
            ..self
        }
    }

    fn settings(&self) -> HealthSettings {
        HealthSettings {
            interval_ms: self.health.interval_ms,
            timeout_ms: self.health.timeout_ms,
            rise: self.health.rise,
            fall: self.health.fall,
            dead_interval_ms_max: self.health.dead_interval_ms_max,
            probing: self.health.probe.is_some(),
        }
    }

    /// Returns the prober. `None` if probes are off.
    pub(super) fn prober(&self, address: &Address) -> Result<Option<Arc<Prober>>, String> {
        let Some(probe) = &self.health.probe else {
            return Ok(None);
        };
        let prober = Prober::new(probe, self.account(), self.probe_tls(address)?);
        prober
            .map(|prober| Some(Arc::new(prober)))
            .map_err(|error| error.to_string())
    }

    /// Returns the target of probes. At another port than that of the traffic, a server does not
    /// expect a PROXY header.
    fn target(&self, endpoint: &Endpoint) -> Target {
        let mut target = endpoint::target(endpoint);
        match (&mut target.address, self.health.port) {
            (TargetAddress::Tcp(address), Some(port)) => address.set_port(port),
            _ => target.proxy_header = proxy_version(self.send_proxy),
        }
        target
    }

    /// Returns the monitor that queries the server's role.
    pub(super) fn role_monitor(&self, address: &Address) -> Result<RoleMonitor, String> {
        let protocol = self.protocol.or(self.health.probe_protocol());
        let protocol = protocol.unwrap_or(SqlProtocol::Mysql);
        let lag_query = self.monitor.as_ref().and_then(|one| one.lag_query.clone());
        let account = self.account().ok_or("no monitor account configured")?;
        RoleMonitor::new(protocol, account, self.tls(address)?, lag_query, now_us)
            .map_err(|error| error.to_string())
    }

    fn role_queries(&self) -> RoleQuerySettings {
        let interval_ms = self.monitor.as_ref().map(|one| one.role_interval_ms);
        RoleQuerySettings {
            interval_ms: interval_ms.unwrap_or(Monitor::ROLE_INTERVAL_MS),
            timeout_ms: self.health.timeout_ms,
            proxy_header: proxy_version(self.send_proxy),
        }
    }

    fn account(&self) -> Option<MonitorAccount> {
        self.monitor.as_ref().map(Monitor::account)
    }

    /// Returns the TLS settings of connections to a database server, role queries included.
    pub(super) fn tls(&self, address: &Address) -> Result<Tls, String> {
        self.tls_of_mode(self.tls.mode_for(address), address)
    }

    /// Returns the TLS settings of connections to a web server.
    pub(super) fn http_tls(&self, address: &Address) -> Result<Tls, String> {
        self.tls_of_mode(self.tls.mode_for_http(), address)
    }

    fn probe_tls(&self, address: &Address) -> Result<Tls, String> {
        let mode = match (self.health.tls, self.health.tls_use()) {
            (ProbeTls::Off, _) | (ProbeTls::Auto, TlsUse::Never) => TlsMode::Off,
            (ProbeTls::Auto, TlsUse::IfConfigured) => self.tls.mode_for_http(),
            (ProbeTls::Auto, TlsUse::AsSessions) => self.tls.mode_for(address),
            (ProbeTls::On, _) => self.tls.mode.unwrap_or(TlsMode::Verify),
        };
        self.tls_of_mode(mode, address)
    }

    fn tls_of_mode(&self, mode: TlsMode, address: &Address) -> Result<Tls, String> {
        let identity = self.tls.own.as_ref().map(|own| {
            let [certificate, key] =
                [&own.certificate, &own.key].map(|file| file.text.expose().as_bytes());
            TlsIdentity::from_pem("[service.server_tls]", certificate, key)
        });
        let identity = identity.transpose().map_err(|error| error.to_string())?;
        Ok(match (mode, address) {
            (TlsMode::Verify, Address::Tcp { host, .. }) => {
                let ca = self.tls.ca.as_ref();
                let ca = ca.map(|ca| Authorities::from_pem(ca.text.expose().as_bytes()));
                Tls::Verify {
                    ca: ca.transpose().map_err(|error| error.to_string())?,
                    fingerprints: self.tls.fingerprints.clone(),
                    server_name: host.clone(),
                    identity,
                }
            }
            (TlsMode::Encrypt, _) => Tls::Encrypt(identity),
            (TlsMode::Off, _) | (TlsMode::Verify, Address::Unix(_)) => Tls::Off,
        })
    }
}

/// Limits extra probes of a server that is down and yet responds to other connections.
const PROBES_PER_INTERVAL_MAX: u64 = 4;

/// A drain requested by a command.
#[derive(Debug, Clone, Copy)]
pub(super) struct Drain {
    pub(super) since_ms: u64,
    pub(super) until_ms: u64,
    /// Time of the next termination. Set once the limit has passed and sessions were terminated.
    pub(super) cut_again_ms: Option<u64>,
}

/// One server address, shared by all services that list it.
pub(super) struct ManagedServer {
    pub(super) server: Arc<Server>,
    pub(super) address: Address,
    /// Id that is equal for one address in every process, so that `source` agrees between load
    /// balancers.
    pub(super) identity: u64,
    pub(super) prober: Option<Arc<Prober>>,
    pub(super) health: Health,
    pub(super) last_probe: Option<LastProbe>,
    pub(super) drain: Option<Drain>,
    /// Time when the server recovered, which starts its slow start.
    pub(super) back_since_ms: Option<u64>,
    pub(super) resolve_error: Option<String>,
    pub(super) history: History,
    /// Task that queries the server's role. `None` outside of a cluster.
    pub(super) role_task: Option<RoleMonitorTask>,
    /// Reason why the server could not report its role.
    pub(super) role_problem: Option<String>,
    /// True if that reason lasts until the account or the server is changed.
    pub(super) is_role_problem_lasting: bool,
    /// Reason of the last probe, if only a change of a configuration helps.
    misconfigured: Option<String>,
    has_been_up: bool,
    /// True once the server has reported its role, which shows that the account may ask.
    has_reported_role: bool,
    config: MonitorConfig,
    is_probing: bool,
    pub(super) next_probe_ms: u64,
    /// Time when the last probe began.
    probed_ms: u64,
    /// Time of the last role report.
    role_report_ms: u64,
    /// All addresses that the host name resolves to.
    pub(super) addresses: Vec<Endpoint>,
    pub(super) resolving: bool,
    pub(super) next_resolve_ms: u64,
    last_served: u64,
}

impl ManagedServer {
    pub(super) fn new(
        data_plane: &DataPlane,
        address: &Address,
        config: MonitorConfig,
        max_connections: Option<u32>,
    ) -> Result<Self, String> {
        let now_ms = now_ms();
        let prober = config.prober(address)?;
        let load = Arc::new(Load::new(max_connections));
        let name = address.to_string().into();
        let server = Arc::new(Server::new(
            data_plane.new_id(),
            name,
            load,
            data_plane.workers(),
        ));
        let addresses: Vec<_> = fixed_endpoint(address).into_iter().collect();
        server.set_endpoints(addresses.clone());
        let health = Health::new(config.settings(), now_ms);
        let next_probe_ms = now_ms + health.next_probe_in_ms(fast_random());
        Ok(Self {
            server,
            address: address.clone(),
            identity: key_of(address.to_string().as_bytes()),
            prober,
            health,
            last_probe: None,
            drain: None,
            back_since_ms: None,
            resolve_error: None,
            history: History::default(),
            role_task: None,
            role_problem: None,
            is_role_problem_lasting: false,
            misconfigured: None,
            has_been_up: false,
            has_reported_role: false,
            config,
            is_probing: false,
            next_probe_ms,
            probed_ms: 0,
            role_report_ms: now_ms,
            addresses,
            resolving: false,
            last_served: 0,
            next_resolve_ms: if fixed_endpoint(address).is_some() {
                u64::MAX
            } else {
                now_ms
            },
        })
    }

    /// Applies a new configuration. The server's state is kept.
    pub(super) fn update(
        &mut self,
        config: MonitorConfig,
        max_connections: Option<u32>,
    ) -> Result<(), String> {
        self.server.load.set_max_connections(max_connections);
        if config == self.config {
            return Ok(());
        }
        self.prober = config.prober(&self.address)?;
        self.health.update_settings(config.settings());
        self.config = config;
        // Started again with the new account and intervals, if still needed.
        self.role_task = None;
        self.schedule(now_ms());
        Ok(())
    }

    /// Starts or stops querying the server's role.
    pub(super) fn monitor_role(
        &mut self,
        wanted: bool,
        reports: &mpsc::Sender<MonitorEvent>,
    ) -> Result<(), String> {
        if !wanted && self.role_task.take().is_some() {
            self.use_addresses();
        } else if !wanted {
            // The role is not monitored, and need not be.
        } else if self.role_task.is_none() {
            let role_monitor = self.config.role_monitor(&self.address)?;
            let (server, queries) = (Arc::clone(&self.server), self.config.role_queries());
            let (address, reports) = (self.address.clone(), reports.clone());
            let role_task = RoleMonitorTask::start(address, server, role_monitor, queries, reports);
            self.role_task = Some(role_task);
            self.role_report_ms = now_ms();
            self.use_addresses();
        }
        Ok(())
    }

    /// Schedules a probe soon, since the health state may be outdated. Repeated calls are limited
    /// by `PROBES_PER_INTERVAL_MAX`.
    pub(super) fn probe_soon(&mut self, now_ms: u64) {
        let interval_ms = self.config.health.interval_ms / PROBES_PER_INTERVAL_MAX;
        let soon_ms = now_ms.max(self.probed_ms.saturating_add(interval_ms));
        self.next_probe_ms = self.next_probe_ms.min(soon_ms);
    }

    /// Records that the server has reported its role.
    pub(super) fn record_role_report(&mut self, now_ms: u64) {
        self.role_report_ms = now_ms;
        self.role_problem = None;
        self.has_reported_role = true;
    }

    /// Returns whether the last role report is too old to count, although the server is alive.
    pub(super) fn is_role_outdated(&self, now_ms: u64) -> bool {
        let queries = self.config.role_queries();
        let patience_ms = (3 * queries.interval_ms).max(2 * queries.timeout_ms);
        now_ms.saturating_sub(self.role_report_ms) > patience_ms
    }

    pub(super) fn takes_clients(&self) -> bool {
        self.drain.is_none() && self.health.state().takes_clients()
    }

    /// Returns whether the host name was never resolved. Until then no server can be probed, and
    /// that is no sign of a dead server.
    fn is_unresolved(&self) -> bool {
        self.resolving && self.server.endpoints().is_empty()
    }

    pub(super) fn next_due_ms(&self, now_ms: u64) -> u64 {
        let probe_ms = if self.is_probing || self.is_unresolved() {
            u64::MAX
        } else {
            self.next_probe_ms
        };
        let resolve_ms = if self.resolving {
            u64::MAX
        } else {
            self.next_resolve_ms
        };
        let drain = self.drain.filter(|drain| now_ms < drain.until_ms);
        probe_ms
            .min(resolve_ms)
            .min(drain.map_or(u64::MAX, |drain| drain.until_ms))
    }

    /// Returns the target of probes. `None` while the host name is not resolved.
    pub(super) fn probe_target(&self) -> Option<Target> {
        let endpoints = self.server.endpoints();
        endpoints
            .first()
            .map(|endpoint| self.config.target(endpoint))
    }

    /// Returns the probe that is due, with its time limit in milliseconds. Without a prober, only
    /// time passes for the health state.
    pub(super) fn due_probe(&mut self, now_ms: u64) -> DueProbe {
        if self.is_probing || self.is_unresolved() || now_ms < self.next_probe_ms {
            return DueProbe::NotYet;
        }
        match &self.prober {
            Some(prober) => {
                self.is_probing = true;
                self.probed_ms = now_ms;
                DueProbe::Ask(Arc::clone(prober), self.config.health.timeout_ms)
            }
            None => {
                let change = self.health.tick(now_ms);
                self.schedule(now_ms);
                DueProbe::Ticked(change)
            }
        }
    }

    /// Processes a probe's result. `is_busy`: the server responded to clients while the probe
    /// waited.
    pub(super) fn record_probe(
        &mut self,
        observation: Observation,
        is_busy: bool,
        at_unix_ms: u64,
    ) -> Option<Change> {
        let now_ms = now_ms();
        self.is_probing = false;
        self.misconfigured = match &observation.outcome {
            Outcome::Misconfigured(why) => Some(why.clone()),
            _ => None,
        };
        let (ok, message, outcome) = match observation.outcome {
            Outcome::Passed => (
                true,
                observation.note.unwrap_or_default(),
                HealthOutcome::Passed,
            ),
            Outcome::Failed(why) if is_busy => {
                let message = format!("{why}; the server still answers clients: busy, not down");
                (false, message, HealthOutcome::Busy(why))
            }
            Outcome::Failed(why) | Outcome::Misconfigured(why) => {
                (false, why.clone(), HealthOutcome::Failed(why))
            }
            Outcome::LoginRefused(why) => (false, why.clone(), HealthOutcome::LoginRefused(why)),
        };
        let took_us = u64::try_from(observation.took.as_micros()).unwrap_or(u64::MAX);
        self.last_probe = Some(LastProbe {
            ok,
            took_us,
            at_unix_ms,
            message,
        });
        let known_problem = self.health.monitor_problem().map(str::to_owned);
        let change = self.health.probe(now_ms, outcome);
        self.has_been_up |= self.health.state() == HealthState::Up;
        self.log_monitor_problem(known_problem.as_deref());
        self.schedule(now_ms);
        self.record_recovery(change.as_ref());
        change
    }

    fn log_monitor_problem(&self, known: Option<&str>) {
        match (known, self.health.monitor_problem()) {
            (None, Some(problem)) => {
                let server = &self.address;
                tracing::error!(%server, "monitor: {problem} (the server stays in use)");
            }
            (Some(_), None) => tracing::info!(server = %self.address, "monitor: recovered"),
            _ => {}
        }
    }

    pub(super) fn record_failure(
        &mut self,
        now_ms: u64,
        failure: PassiveFailure,
        last: bool,
    ) -> Option<Change> {
        // Clients served since the last failure end a series of consecutive failures.
        let served = self.server.counters.served.get();
        if std::mem::replace(&mut self.last_served, served) != served {
            self.health.served(now_ms);
        }
        let change = self.health.passive(now_ms, failure, last);
        self.next_probe_ms = self
            .next_probe_ms
            .min(now_ms + self.health.next_probe_in_ms(fast_random()));
        change
    }

    pub(super) fn record_recovery(&mut self, change: Option<&Change>) {
        if change.is_some_and(|change| change.from == HealthState::Down) {
            self.back_since_ms = Some(now_ms());
        }
    }

    fn schedule(&mut self, now_ms: u64) {
        self.next_probe_ms = now_ms + self.health.next_probe_in_ms(fast_random());
    }
}

/// Next step for a server's probe.
pub(super) enum DueProbe {
    NotYet,
    Ask(Arc<Prober>, u64),
    Ticked(Option<Change>),
}

type HealthOutcome = evenkeel_policy::health::ProbeOutcome;

/// Returns the endpoint of an address that needs no name resolution.
fn fixed_endpoint(address: &Address) -> Option<Endpoint> {
    match address {
        Address::Unix(path) => Some(Endpoint::Unix(path.clone())),
        Address::Tcp { .. } => address.socket_addr().map(Endpoint::Tcp),
    }
}

#[cfg(test)]
mod tests;
