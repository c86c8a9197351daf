//! Builds the part of the status that describes the servers of a service.

use evenkeel_config::plan::ServerPlan;
use evenkeel_engine::clock::{now_ms, now_us};
use evenkeel_policy::cluster::Role;
use evenkeel_policy::health::HealthState;
use evenkeel_policy::ramp::{WEIGHT_SCALE, effective_weight};
use evenkeel_proxy::counters::work::WorkTotals;

use super::bytes;
use crate::control_plane::ControlPlane;
use crate::control_plane::clock::unix_ms;
use crate::control_plane::database::digests::work;
use crate::control_plane::eligibility::Eligibility;
use crate::control_plane::http;
use crate::control_plane::removal::Removal;
use crate::control_plane::server::ManagedServer;
use crate::control_plane::service::ManagedService;
use crate::status::{
    RoleName, RoleStatus, SERVERS_LISTED_MAX, SERVERS_SHOWN_MAX, ServerCounts, ServerErrors,
    ServerSelection, ServerSessions, ServerState, ServerStatus, StatusSelection,
};

/// Servers that a status lists of each service.
#[derive(Clone, Copy)]
pub(super) enum Listing {
    /// All servers, with their history.
    All,
    /// All servers. Their histories would make most of the status.
    AllWithoutHistory,
    /// The first servers with a problem.
    Problems,
    /// No server.
    None,
}

impl Listing {
    /// Returns the number of servers of a service that may be listed.
    fn servers_max(self) -> usize {
        match self {
            Self::All | Self::AllWithoutHistory => usize::MAX,
            Self::Problems => SERVERS_SHOWN_MAX,
            Self::None => 0,
        }
    }
}

impl ControlPlane {
    /// Returns which servers the selected services list.
    pub(super) fn server_listing(&self, selection: &StatusSelection) -> Listing {
        let selected = self
            .services
            .iter()
            .filter(|service| selection.includes(&service.plan.name));
        let servers: usize = selected.map(|service| service.plan.servers.len()).sum();
        match (selection.servers(), servers > SERVERS_LISTED_MAX) {
            (ServerSelection::None, _) => Listing::None,
            (ServerSelection::Default, true) => Listing::Problems,
            (ServerSelection::All, true) => Listing::AllWithoutHistory,
            (ServerSelection::Default | ServerSelection::All, false) => Listing::All,
        }
    }

    /// Returns the listed servers of a service, and the number of all.
    pub(super) fn server_statuses(
        &self,
        managed: &ManagedService,
        listing: Listing,
    ) -> (Vec<ServerStatus>, ServerCounts) {
        let (mut all, mut counts) = (Vec::new(), ServerCounts::default());
        for (server, eligibility) in self.role_view().listed(managed) {
            let Some(known) = self.servers.get(&server.address) else {
                continue;
            };
            let state = state_of(known);
            count(&mut counts, state);
            let is_listed = match listing {
                Listing::Problems => {
                    state != ServerState::Up || self.has_problem(managed, (server, &eligibility))
                }
                Listing::All | Listing::AllWithoutHistory | Listing::None => true,
            };
            if !is_listed || all.len() >= listing.servers_max() {
                counts.omitted += 1;
                continue;
            }
            let mut status = self.server_status(managed, (server, eligibility), known);
            if !matches!(listing, Listing::AllWithoutHistory) {
                status.history = known.history.points();
            }
            all.push(status);
        }
        let gone = self
            .removals
            .iter()
            .filter(|removal| removal.service.id == managed.service.id && !removal.is_empty());
        let gone = gone.filter_map(removed_server_status);
        all.extend(gone.take(listing.servers_max()));
        (all, counts)
    }

    /// Returns whether an operator should see a server that is up: the service does not use it
    /// although it should, its monitor fails, or its weight differs from the file.
    fn has_problem(
        &self,
        managed: &ManagedService,
        (server, eligibility): (&ServerPlan, &Eligibility),
    ) -> bool {
        let roles = self.role_view();
        let is_missing =
            !roles.serves((server, eligibility)) && roles.should_serve(managed, &server.address);
        let known = self.servers.get(&server.address);
        let monitor_fails = known.is_some_and(|known| known.health.monitor_problem().is_some());
        is_missing || monitor_fails || managed.weight(server) != server.weight
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
        let cluster = self.clusters.of(&known.address)?;
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
    let (reason, since_ms) = reason_of(known);
    let weight = managed.weight(listed);
    let up_for_ms = known
        .back_since_ms
        .map_or(u64::MAX, |at_ms| now_ms().saturating_sub(at_ms));
    let ramped = effective_weight(weight, up_for_ms, managed.plan.slow_start_ms).weight;
    let latency_us = http::report::latency_us(managed, server.id)
        .unwrap_or_else(|| server.load.latency_us(now_us()));
    ServerStatus {
        name: listed.name.clone(),
        address: listed.address.to_string(),
        resolved: server.endpoints().iter().map(ToString::to_string).collect(),
        weight,
        weight_effective: f64::from(ramped) / f64::from(WEIGHT_SCALE),
        file_weight: listed.weight,
        backup: listed.backup,
        state: state_of(known),
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
        config_override: differs(managed, listed, known),
        ..ServerStatus::default()
    }
}

/// Returns the state of a server.
pub(super) fn state_of(known: &ManagedServer) -> ServerState {
    match (known.drain, known.health.state()) {
        (Some(_), _) => ServerState::Draining,
        (None, HealthState::Starting) => ServerState::Starting,
        (None, HealthState::Up) => ServerState::Up,
        (None, HealthState::Down) => ServerState::Down,
    }
}

fn count(counts: &mut ServerCounts, state: ServerState) {
    counts.total += 1;
    match state {
        ServerState::Up => counts.up += 1,
        ServerState::Down => counts.down += 1,
        ServerState::Starting => counts.starting += 1,
        ServerState::Draining => counts.draining += 1,
        ServerState::Removed => {}
    }
}

/// Returns the reason for a server's state, and the time of its beginning.
fn reason_of(known: &ManagedServer) -> (String, u64) {
    if let Some(drain) = known.drain {
        let left_ms = drain.until_ms.saturating_sub(now_ms());
        let reason = if known.server.load.active() == 0 {
            "drained by operator; no sessions left".to_owned()
        } else if left_ms == 0 {
            "drained by operator; terminating the remaining sessions".to_owned()
        } else {
            format!("drained by operator; remaining sessions are terminated in {left_ms} ms")
        };
        return (reason, drain.since_ms);
    }
    let reason = match &known.resolve_error {
        Some(error) => error.clone(),
        None => known.health.reason().to_owned(),
    };
    (reason, known.health.since_ms())
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
