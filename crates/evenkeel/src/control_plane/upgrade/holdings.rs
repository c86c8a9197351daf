//! Counts what this process holds of the limits that it shares with another process, which takes
//! over from it or has served before.

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_engine::clock::now_ms;
use evenkeel_proxy::data_plane::DataPlane;
use evenkeel_proxy::{Server, Service};

use super::counters::{add_to_server, add_to_service, counted_by_server, counted_by_service};
use crate::control_plane::ControlPlane;
use crate::control_plane::clock::unix_ms;
use crate::control_plane::removal::Removal;
use crate::control_plane::servers::Servers;
use crate::control_plane::service::ManagedService;
use crate::upgrade::state::{CounterTotals, DrainReport};

/// Permits by the id of a server.
pub(super) type Shares = BTreeMap<u64, u32>;

/// The services and servers of this process, with their permits, sessions and counters.
#[derive(Clone, Copy)]
pub(super) struct Holdings<'a> {
    services: &'a [ManagedService],
    servers: &'a Servers,
    removals: &'a [Removal],
    data_plane: &'a DataPlane,
    /// Time limit of the sessions, if this process stops now or is stopping.
    left_ms: u64,
}

impl ControlPlane {
    /// Returns what this process holds.
    pub(super) fn holdings(&self) -> Holdings<'_> {
        let limit_ms = self.plan.engine.shutdown_limit_ms;
        let left_ms = |by_ms: u64| by_ms.saturating_sub(now_ms());
        Holdings {
            services: &self.services,
            servers: &self.servers,
            removals: &self.removals,
            data_plane: &self.data_plane,
            left_ms: self.stop_by_ms.map_or(limit_ms, left_ms),
        }
    }
}

impl Holdings<'_> {
    /// Returns all services, also removed ones that still have sessions.
    fn services(&self) -> Vec<Arc<Service>> {
        let listed = self.services.iter().map(|state| &state.service);
        let removals = self
            .removals
            .iter()
            .filter(|removal| removal.server.is_none());
        let all = listed.chain(removals.map(|removal| &removal.service));
        all.map(Arc::clone).collect()
    }

    /// Returns all servers, also removed ones that still have sessions.
    pub(super) fn servers(&self) -> Vec<Arc<Server>> {
        let listed = self.servers.values().map(|state| &state.server);
        let removals = self.removals.iter().flat_map(|removal| &removal.servers);
        let all = listed.chain(removals);
        let by_id: BTreeMap<_, _> = all.map(|server| (server.id, Arc::clone(server))).collect();
        by_id.into_values().collect()
    }

    fn sessions(&self) -> usize {
        self.data_plane.sessions().iter().sum()
    }

    /// Counts the sessions that may still acquire a permit of any server.
    pub(super) fn count_unplaced(&self) -> PendingPermits {
        // Sessions are counted first: one that ends in between is counted once too often, not too
        // rarely.
        let sessions = u32::try_from(self.sessions()).unwrap_or(u32::MAX);
        let services = self.services();
        let admitted: u32 = services.iter().map(|service| service.active()).sum();
        let not_admitted = sessions.saturating_sub(admitted);
        let (pooled, others): (Vec<_>, Vec<_>) =
            services.iter().partition(|one| one.database().is_some());
        let clients = |of: &[&Arc<Service>]| of.iter().map(|one| one.active()).sum::<u32>();
        let acquiring = clients(&pooled);
        let clients = clients(&others);
        let open_before = count_open(&pooled);
        let servers = self.servers();
        let connected: u32 = servers.iter().map(|server| server.load.active()).sum();
        let connected = connected.saturating_sub(open_before.max(count_open(&pooled)));
        PendingPermits {
            not_admitted,
            connecting: clients
                .saturating_sub(connected)
                .saturating_add(not_admitted),
            acquiring,
        }
    }

    /// Restores all limits of this process.
    pub(super) fn reclaim_permits(&self) {
        for service in self.services() {
            service.permits.take_back();
        }
        for server in self.servers() {
            server.load.permits.take_back();
            self.data_plane.handle_freed_permits(&server);
        }
    }

    /// Leaves permits that are neither in use nor needed to the new process, once no accept is in
    /// progress.
    pub(super) fn lower_claims(&self, shares: &Shares) {
        if self.data_plane.is_accepting_any() {
            return;
        }
        let unplaced = self.count_unplaced();
        for service in &self.services() {
            service.permits.keep_in_use_and(unplaced.not_admitted);
        }
        for server in &self.servers() {
            unplaced.keep_share(server, shares);
        }
    }

    /// Returns what the other process must know, with or without the counters.
    pub(super) fn report(&self, with_counts: bool) -> DrainReport {
        let (services, servers) = (self.services(), self.servers());
        let mut report = DrainReport {
            sessions: self.sessions() as u64,
            oldest_unix_ms: self.data_plane.oldest_session_ms().map(unix_ms),
            left_ms: self.left_ms,
            ..DrainReport::default()
        };
        for service in &services {
            let name = service.name.to_string();
            *report.services.entry(name.clone()).or_default() += service.permits.claimed();
            if with_counts {
                // The configured service comes first: a removed one of the same name may follow.
                let counts = report.service_counts.entry(name);
                counts.or_insert_with(|| counted_by_service(service));
            }
        }
        for server in &servers {
            let address = server.name.to_string();
            *report.servers.entry(address.clone()).or_default() += server.load.permits.claimed();
            if with_counts {
                let counted = counted_by_server(&server.counters);
                report.server_counts.insert(address, counted);
            }
        }
        report
    }

    /// Adds the counts of the old process since its `earlier` report to the totals.
    pub(super) fn add_counts(&self, earlier: &DrainReport, report: &DrainReport) {
        let nothing = CounterTotals::default();
        for state in self.services {
            let name = &state.plan.name;
            if let Some(now) = report.service_counts.get(name) {
                let before = earlier.service_counts.get(name).unwrap_or(&nothing);
                add_to_service(&state.service, &now.since(before));
            }
        }
        for state in self.servers.values() {
            let address = state.address.to_string();
            if let Some(now) = report.server_counts.get(&address) {
                let before = earlier.server_counts.get(&address).unwrap_or(&nothing);
                add_to_server(&state.server.counters, &now.since(before));
            }
        }
    }

    /// Counts the permits of each limit that the old process uses, by its last report.
    pub(super) fn set_used_by(&self, report: Option<&DrainReport>) {
        let used = |of: fn(&DrainReport) -> &BTreeMap<String, u32>, key: &str| {
            let permits = report.and_then(|report| of(report).get(key));
            permits.copied().unwrap_or(0)
        };
        for state in self.services {
            let permits = used(|report| &report.services, &state.plan.name);
            state.service.permits.set_used_by_other_processes(permits);
        }
        for state in self.servers.values() {
            let permits = used(|report| &report.servers, &state.address.to_string());
            self.data_plane
                .set_used_by_other_processes(&state.server, permits);
        }
    }
}

/// Sessions that may still acquire a permit of a server.
pub(super) struct PendingPermits {
    /// Sessions that no service has counted yet.
    pub(super) not_admitted: u32,
    /// Clients that need a server connection of their own, including `not_admitted`.
    connecting: u32,
    /// Clients of pooled services, which share server connections.
    acquiring: u32,
}

impl PendingPermits {
    /// Keeps the permits of a server that are in use, and those that may still be needed. Sessions
    /// of pooled services need no more than half, since they can wait for an open connection.
    pub(super) fn keep_share(&self, server: &Server, shares: &Shares) {
        let places = &server.load.permits;
        let share = shares.get(&server.id).copied();
        let missing = share.unwrap_or(0).saturating_sub(places.in_use());
        let reserved = self.acquiring.min(missing);
        places.keep_in_use_and(self.connecting.saturating_add(reserved));
    }
}

/// Returns the number of server connections that the pools of services have opened.
fn count_open(pooled: &[&Arc<Service>]) -> u32 {
    let shared = pooled.iter().filter_map(|one| one.database());
    let open: u64 = shared.map(|one| one.open_connections(None)).sum();
    u32::try_from(open).unwrap_or(u32::MAX)
}
