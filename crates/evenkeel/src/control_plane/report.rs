//! Builds the status from the state of the control plane, in the documented format.

use std::borrow::Cow;

use evenkeel_engine::clock::{now_ms, now_us};
use evenkeel_policy::cluster::Role;
use evenkeel_policy::health::HealthState;
use evenkeel_policy::ramp::{WEIGHT_SCALE, effective_weight};
use evenkeel_proxy::counters::work::WorkTotals;
use evenkeel_proxy::counters::{self, ServiceCounters};
use evenkeel_proxy::record::Record;

use super::ControlPlane;
use super::clock::{now_unix_ms, unix_ms};
use super::database::digests::work;
use super::eligibility::Eligibility;
use super::removal::Removal;
use super::server::ManagedServer;
use super::service::ManagedService;
use crate::config::plan::ServerPlan;
use crate::log::ConnectionRecord;
use crate::status::{
    Bytes, ClusterStatus, ConfigStatus, EngineStatus, Histogram, QueueStatus, RoleName, RoleStatus,
    ServerErrors, ServerSessions, ServerState, ServerStatus, ServiceErrors, ServiceSessions,
    ServiceState, ServiceStatus, Status, WorkerStatus,
};

/// Most servers named in a reason. The others are counted.
const NAMED_MAX: usize = 5;

impl ControlPlane {
    pub(super) fn status(&self) -> Status {
        let mut services: Vec<_> = self
            .services
            .iter()
            .map(|s| self.service_status(s))
            .collect();
        services.extend(
            self.removals
                .iter()
                .filter(|l| l.server.is_none() && !l.is_empty())
                .map(removed_service_status),
        );
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            started_at_unix_ms: unix_ms(self.started_ms),
            now_unix_ms: now_unix_ms(),
            engine: self.engine_status(),
            upgrade: self.upgrade_status(),
            config: ConfigStatus {
                path: self
                    .plan
                    .path
                    .as_ref()
                    .map(|path| path.display().to_string()),
                loaded_at_unix_ms: unix_ms(self.loaded_ms),
                problems: self.problems.to_status(),
            },
            services,
            clusters: self.cluster_statuses(),
            events: self.timeline.last(),
        }
    }

    fn cluster_statuses(&self) -> Vec<ClusterStatus> {
        let clusters = self.clusters.iter().enumerate();
        clusters
            .map(|(index, cluster)| ClusterStatus {
                services: self.services_of(index),
                primary: cluster
                    .verdict
                    .primary
                    .map(|id| self.name_of_id(index, id).to_owned()),
                since_unix_ms: unix_ms(cluster.primary_since_ms),
                operator_override: cluster
                    .named()
                    .map(|id| self.name_of_id(index, id).to_owned()),
                problems: cluster
                    .problems()
                    .into_iter()
                    .map(|problem| problem.message)
                    .collect(),
            })
            .collect()
    }

    fn engine_status(&self) -> EngineStatus {
        let sessions = self.data_plane.sessions();
        EngineStatus {
            io: self.data_plane.driver().name().to_owned(),
            io_reason: self.io_reason.clone(),
            workers: sessions
                .iter()
                .map(|n| WorkerStatus {
                    sessions: *n as u64,
                })
                .collect(),
            requests_not_logged_total: self.data_plane.requests_not_logged(),
        }
    }

    fn service_status(&self, managed: &ManagedService) -> ServiceStatus {
        let plan = &managed.plan;
        let service = &managed.service;
        let counters = &service.counters;
        let errors = errors(counters);
        let stopping = self.stop_by_ms.is_some();
        let state = if stopping {
            ServiceState::Stopping
        } else {
            managed.state
        };
        ServiceStatus {
            name: plan.name.clone(),
            cluster: plan.cluster.clone(),
            protocol: plan.protocol_info().name.to_owned(),
            listen: managed
                .listening
                .iter()
                .flat_map(|l| l.addresses())
                .collect(),
            balance: plan.balance.name().to_owned(),
            role: plan.role.name().to_owned(),
            state,
            reason: self.reason(managed, state),
            since_unix_ms: unix_ms(managed.state_since_ms),
            sessions: ServiceSessions {
                current: u64::from(service.active_everywhere()),
                limit: u64::from(plan.max_connections),
                total: counters.sessions.get(),
                refused: refused(counters),
            },
            queue: QueueStatus {
                current: service.queued() as u64,
                limit: u64::from(plan.queue.length),
                wait_ms_limit: plan.queue.wait_ms,
                timed_out_total: counters.queue_timeout.get(),
            },
            bytes: bytes(&counters.bytes),
            errors,
            rates: managed.history.rates(),
            retries_total: counters.retries.get(),
            connect_us: Histogram::from(&counters.connect_us),
            session_ms: Histogram::from(&counters.session_ms),
            history: managed.history.points(),
            servers: self.server_statuses(managed),
            database: super::database::report::status(managed),
            http: super::http::report::status(managed),
        }
    }

    /// Returns the reason for a service's state. Empty while it is up.
    pub(super) fn reason(&self, managed: &ManagedService, state: ServiceState) -> String {
        match state {
            ServiceState::Up => String::new(),
            ServiceState::Stopping => "the process is shutting down".to_owned(),
            ServiceState::Degraded | ServiceState::Down => self.list_unavailable(managed),
        }
    }

    fn list_unavailable(&self, managed: &ManagedService) -> String {
        let listed = self.listed(managed);
        let unavailable: Vec<_> = listed
            .filter(|(server, eligibility)| {
                !self.serves((server, eligibility)) && self.should_serve(managed, &server.address)
            })
            .collect();
        if unavailable.is_empty() {
            return "no server has the required role".to_owned();
        }
        let named = unavailable.iter().take(NAMED_MAX);
        let mut words: Vec<_> = named
            .map(|(server, eligibility)| self.unavailable_reason(server, eligibility))
            .collect();
        if unavailable.len() > NAMED_MAX {
            words.push(format!("{} more", unavailable.len() - NAMED_MAX));
        }
        format!("not accepting new clients: {}", words.join(", "))
    }

    fn unavailable_reason(&self, server: &ServerPlan, eligibility: &Eligibility) -> String {
        let known = self.servers.get(&server.address);
        if let (true, Eligibility::Unused(why)) = (self.takes_clients(&server.address), eligibility)
        {
            return format!("{} ({why})", server.name);
        }
        let state = known.map_or(ServerState::Starting, |known| state_of(known).0);
        format!("{} ({})", server.name, state.name())
    }

    fn server_statuses(&self, managed: &ManagedService) -> Vec<ServerStatus> {
        let listed = self.listed(managed);
        let mut all: Vec<_> = listed
            .filter_map(|(server, eligibility)| {
                let known = self.servers.get(&server.address)?;
                Some(self.server_status(managed, (server, eligibility), known))
            })
            .collect();
        let gone = self
            .removals
            .iter()
            .filter(|removal| removal.service.id == managed.service.id && !removal.is_empty());
        all.extend(gone.filter_map(removed_server_status));
        all
    }

    fn server_status(
        &self,
        managed: &ManagedService,
        (listed, eligibility): (&ServerPlan, Eligibility),
        known: &ManagedServer,
    ) -> ServerStatus {
        let unused_reason = match eligibility {
            Eligibility::Unused(why) => Some(why),
            Eligibility::Serves | Eligibility::Reserve => None,
        };
        let is_database = managed.plan.database().is_some();
        let worked = || WorkTotals::sum(known.server.counters.work());
        ServerStatus {
            role: self.role_status(known),
            unused_reason,
            work: is_database.then(|| work(&worked())),
            ..server_status(managed, listed, known)
        }
    }

    fn role_status(&self, known: &ManagedServer) -> Option<RoleStatus> {
        let cluster = self.cluster_of(&known.address)?;
        let server_id = known.server.id;
        let since_ms = cluster.role_since_ms.get(&server_id);
        let mut status = RoleStatus {
            since_unix_ms: unix_ms(since_ms.copied().unwrap_or(self.started_ms)),
            ..RoleStatus::default()
        };
        match cluster.role(server_id) {
            Role::Unknown => status.reason = known.role_problem.clone().unwrap_or_default(),
            Role::Primary => status.role = RoleName::Primary,
            Role::Replica(lag) => {
                status.role = RoleName::Replica;
                (status.lag_ms, status.lag_bytes) = (lag.ms, lag.bytes);
            }
            Role::Spare(why) => {
                status.role = RoleName::Replica;
                status.reason.clone_from(why);
            }
            Role::Unfit(why) => {
                status.role = RoleName::Unfit;
                status.reason.clone_from(why);
            }
        }
        Some(status)
    }
}

fn server_status(
    managed: &ManagedService,
    listed: &ServerPlan,
    known: &ManagedServer,
) -> ServerStatus {
    let server = &known.server;
    let (state, reason, since_ms) = state_of(known);
    let weight = managed.weight(listed);
    let up_for_ms = known
        .back_since_ms
        .map_or(u64::MAX, |at_ms| now_ms().saturating_sub(at_ms));
    let ramped = effective_weight(weight, up_for_ms, managed.plan.slow_start_ms).weight;
    let latency_us = super::http::report::latency_us(managed, server.id)
        .unwrap_or_else(|| server.load.latency_us(now_us()));
    ServerStatus {
        name: listed.name.clone(),
        address: listed.address.to_string(),
        resolved: server.endpoints().iter().map(ToString::to_string).collect(),
        weight,
        weight_effective: f64::from(ramped) / f64::from(WEIGHT_SCALE),
        file_weight: listed.weight,
        backup: listed.backup,
        state,
        reason,
        since_unix_ms: unix_ms(since_ms),
        monitor_problem: known.health.monitor_problem().map(str::to_owned),
        last_probe: known.last_probe.clone(),
        sessions: ServerSessions {
            current: u64::from(server.load.active_everywhere()),
            limit: listed.max_connections.map(u64::from),
            total: server.counters.sessions.get(),
        },
        bytes: bytes(&server.counters.bytes),
        errors: ServerErrors {
            connect: server.counters.connect_errors.get(),
            early_close: server.counters.early_closes.get(),
            reset: server.counters.resets.get(),
        },
        latency_us: (latency_us > 0).then_some(latency_us),
        history: known.history.points(),
        config_override: differs(managed, listed, known),
        ..ServerStatus::default()
    }
}

fn state_of(known: &ManagedServer) -> (ServerState, String, u64) {
    if let Some(drain) = known.drain {
        let left_ms = drain.until_ms.saturating_sub(now_ms());
        let reason = if known.server.load.active() == 0 {
            "drained by operator; no sessions left".to_owned()
        } else if left_ms == 0 {
            "drained by operator; terminating the remaining sessions".to_owned()
        } else {
            format!("drained by operator; remaining sessions are terminated in {left_ms} ms")
        };
        return (ServerState::Draining, reason, drain.since_ms);
    }
    let state = match known.health.state() {
        HealthState::Starting => ServerState::Starting,
        HealthState::Up => ServerState::Up,
        HealthState::Down => ServerState::Down,
    };
    let reason = match &known.resolve_error {
        Some(error) => error.clone(),
        None => known.health.reason().to_owned(),
    };
    (state, reason, known.health.since_ms())
}

fn differs(managed: &ManagedService, listed: &ServerPlan, known: &ManagedServer) -> Option<String> {
    let mut differences = Vec::new();
    if known.drain.is_some() {
        differences.push("drained by operator".to_owned());
    }
    let weight = managed.weight(listed);
    if weight != listed.weight {
        differences.push(format!(
            "weight {weight} set by operator, {} in the file",
            listed.weight
        ));
    }
    (!differences.is_empty()).then(|| differences.join("; "))
}

fn removed_server_status(removal: &Removal) -> Option<ServerStatus> {
    let server = removal.server.as_ref()?;
    Some(ServerStatus {
        name: server.name.to_string(),
        address: server.name.to_string(),
        state: ServerState::Removed,
        reason: "removed from the configuration; remaining sessions are finishing".to_owned(),
        since_unix_ms: unix_ms(removal.since_ms),
        sessions: ServerSessions {
            current: u64::from(server.load.active()),
            limit: None,
            total: server.counters.sessions.get(),
        },
        bytes: bytes(&server.counters.bytes),
        ..ServerStatus::default()
    })
}

fn removed_service_status(removal: &Removal) -> ServiceStatus {
    let counters = &removal.service.counters;
    ServiceStatus {
        name: removal.service.name.to_string(),
        protocol: removal.protocol.to_owned(),
        state: ServiceState::Stopping,
        reason: "removed from the configuration; remaining sessions are finishing".to_owned(),
        since_unix_ms: unix_ms(removal.since_ms),
        sessions: ServiceSessions {
            current: u64::from(removal.service.active_and_routed()),
            total: counters.sessions.get(),
            refused: refused(counters),
            ..ServiceSessions::default()
        },
        bytes: bytes(&counters.bytes),
        errors: errors(counters),
        ..ServiceStatus::default()
    }
}

fn refused(counters: &ServiceCounters) -> u64 {
    [
        &counters.over_limit,
        &counters.queue_full,
        &counters.queue_timeout,
        &counters.no_server,
        &counters.connect_failed,
        &counters.proxy_header,
        &counters.unrouted,
    ]
    .iter()
    .map(|tally| tally.get())
    .sum()
}

fn errors(counters: &ServiceCounters) -> ServiceErrors {
    ServiceErrors {
        connect: counters.connect_errors.get(),
        no_server: counters.no_server.get() + counters.connect_failed.get(),
        queue_full: counters.queue_full.get(),
        queue_timeout: counters.queue_timeout.get(),
        limit: counters.over_limit.get(),
        proxy_header: counters.proxy_header.get(),
        unrouted: counters.unrouted.get(),
        reset_by_client: counters.reset_by_client.get(),
        reset_by_server: counters.reset_by_server.get(),
        idle_timeout: counters.idle_timeout.get(),
        terminated: counters.cut.get(),
    }
}

fn bytes(bytes: &counters::Bytes) -> Bytes {
    Bytes {
        from_clients: bytes.from_clients(),
        to_clients: bytes.to_clients(),
    }
}

/// Converts a connection record of the data plane to the log's format.
pub(super) fn connection(record: &Record) -> ConnectionRecord {
    ConnectionRecord {
        ended_at_unix_ms: now_unix_ms(),
        service: record.service.to_string(),
        client: record
            .client
            .map_or_else(|| "unix".to_owned(), |client| client.to_string()),
        server: record.server.as_ref().map(ToString::to_string),
        tried: record.tried.iter().map(ToString::to_string).collect(),
        wait_us: record.wait_ms * 1_000,
        connect_us: record.server.as_ref().map(|_| record.connect_us),
        first_byte_us: record.first_byte_us,
        total_us: record.total_ms * 1_000,
        from_client_bytes: record.from_client,
        to_client_bytes: record.to_client,
        ended: Cow::Owned(record.ending.to_string()),
    }
}
