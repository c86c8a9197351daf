//! Builds the status from the state of the control plane, in the documented format.

mod servers;

use std::borrow::Cow;

use evenkeel_config::plan::ServerPlan;
use evenkeel_proxy::counters::{self, ServiceCounters};
use evenkeel_proxy::record::Record;

use super::ControlPlane;
use super::clock::{now_unix_ms, unix_ms};
use super::eligibility::Eligibility;
use super::removal::Removal;
use super::service::ManagedService;
use crate::log::ConnectionRecord;
use crate::status::{
    Bytes, ClusterStatus, ConfigStatus, EngineStatus, Histogram, QueueStatus, ServerState,
    ServiceErrors, ServiceSessions, ServiceState, ServiceStatus, Status, StatusSelection,
    WorkerStatus,
};
use servers::{Listing, state_of};

/// Most servers named in a reason. The others are counted.
const NAMED_MAX: usize = 5;

impl ControlPlane {
    pub(super) fn status(&self, selection: &StatusSelection) -> Status {
        let listing = self.server_listing(selection);
        let selected = self.services.iter();
        let selected = selected.filter(|service| selection.includes(&service.plan.name));
        let mut services: Vec<_> = selected
            .map(|service| self.service_status(service, listing))
            .collect();
        let removed = self.removals.iter().filter(|removal| {
            removal.server.is_none()
                && !removal.is_empty()
                && selection.includes(&removal.service.name)
        });
        services.extend(removed.map(removed_service_status));
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            started_at_unix_ms: unix_ms(self.started_ms),
            now_unix_ms: now_unix_ms(),
            engine: self.engine_status(),
            upgrade: self.upgrades.status(),
            config: ConfigStatus {
                path: self
                    .plan
                    .path
                    .as_ref()
                    .map(|path| path.display().to_string()),
                loaded_at_unix_ms: unix_ms(self.loaded_ms),
                problems: self.problems.reported(),
            },
            services,
            clusters: self.cluster_statuses(),
            acme: self.acme.status(),
            events: self.timeline.last(),
        }
    }

    fn cluster_statuses(&self) -> Vec<ClusterStatus> {
        let views = self.clusters.iter();
        let views = views.map(|cluster| (cluster, self.cluster_view(cluster)));
        views
            .map(|(cluster, view)| ClusterStatus {
                services: view.services(),
                primary: cluster
                    .verdict
                    .primary
                    .map(|id| view.name_of_id(id).to_owned()),
                since_unix_ms: unix_ms(cluster.primary_since_ms),
                operator_override: cluster.named().map(|id| view.name_of_id(id).to_owned()),
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

    fn service_status(&self, managed: &ManagedService, listing: Listing) -> ServiceStatus {
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
        let (servers, server_counts) = self.server_statuses(managed, listing);
        let http = super::http::report::status(managed, &servers);
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
            servers,
            server_counts,
            database: super::database::report::status(managed),
            http,
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
        let roles = self.role_view();
        let listed = roles.listed(managed);
        let unavailable: Vec<_> = listed
            .filter(|(server, eligibility)| {
                !roles.serves((server, eligibility)) && roles.should_serve(managed, &server.address)
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
        if let (true, Eligibility::Unused(why)) =
            (self.servers.takes_clients(&server.address), eligibility)
        {
            return format!("{} ({why})", server.name);
        }
        let state = known.map_or(ServerState::Starting, state_of);
        format!("{} ({})", server.name, state.name())
    }
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
        &counters.flooding,
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
        flooding: counters.flooding.get(),
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
