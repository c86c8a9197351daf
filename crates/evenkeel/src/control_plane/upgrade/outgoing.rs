//! Hands over on the side of the old process, and reports to the new one while draining.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use evenkeel_engine::clock::now_ms;
use evenkeel_policy::health::HealthState;
use evenkeel_proxy::{Server, Service};

use super::counters::{counted_by_server, counted_by_service};
use super::{COUNTS_INTERVAL_MS, REPORT_INTERVAL_MS};
use crate::control_plane::ControlPlane;
use crate::control_plane::clock::unix_ms;
use crate::control_plane::cluster::ManagedCluster;
use crate::control_plane::server::ManagedServer;
use crate::control_plane::service::ManagedService;
use crate::upgrade::cancels;
use crate::upgrade::state::{
    DrainHandover, DrainReport, Purpose, ServerHandover, ServiceHandover, TicketKeyHandover,
    UpgradeState,
};
use crate::upgrade::successor::SuccessorCommand;

/// Fewest free permits with which both processes accept concurrently for some milliseconds. With
/// fewer, a burst of clients could be rejected at half a limit, or wait here although the other
/// process has permits; such services pause instead.
const FREE_PERMITS_MIN: u32 = 512;

impl ControlPlane {
    /// Returns duplicates of all listening sockets of this process, and of its standard error.
    pub(super) fn sockets_to_pass(&self) -> Vec<(Purpose, OwnedFd)> {
        let mut sockets = Vec::new();
        let listening = self.services.iter().flat_map(|s| &s.listening);
        for listener in listening.flat_map(|listening| listening.listeners()) {
            let address = listener.asked_for().to_string();
            match listener.descriptor() {
                Ok(socket) => sockets.push((Purpose::Clients(address), socket)),
                // The new process will fail to bind the address, and report that.
                Err(error) => tracing::error!(
                    "cannot pass the socket of {address} to the new process: {error}"
                ),
            }
        }
        let admin_sockets = self
            .upgrades
            .admin_sockets
            .iter()
            .flat_map(|admin_sockets| &admin_sockets.sockets);
        for (purpose, socket) in admin_sockets {
            match socket.try_clone() {
                Ok(socket) => sockets.push((purpose.clone(), socket)),
                Err(error) => tracing::error!(
                    "cannot pass the {purpose:?} socket to the new process: {error}"
                ),
            }
        }
        match cancels::pair() {
            Ok((receiving, theirs)) => {
                tokio::spawn(receiving.forward_all(self.data_plane.canceller()));
                sockets.push((Purpose::Cancels, theirs));
            }
            Err(error) => tracing::error!(
                "cancel requests for sessions that stay in this process will not be delivered: \
                 {error}"
            ),
        }
        let log = rustix::stdio::stderr().try_clone_to_owned();
        sockets.extend(log.ok().map(|log| (Purpose::Log, log)));
        sockets
    }

    /// Marks the sockets as shared with the new process, which may continue with them, or as owned
    /// by this one.
    pub(super) fn lend_sockets(&mut self, is_lent: bool) {
        let listening = self.services.iter_mut().flat_map(|s| &mut s.listening);
        for listening in listening {
            match is_lent {
                true => listening.lend(),
                false => listening.make_own(),
            }
        }
    }

    /// Releases half of the free permits of each limit. Services with few free permits stop
    /// accepting.
    pub(super) fn lend_permits(&mut self) {
        let servers = self.known_servers();
        let halves = servers.iter().map(|one| (one.id, half(one)));
        self.upgrades.shares = halves.collect();
        let mut paused = Vec::new();
        for state in &self.services {
            let listed = state.plan.servers.iter();
            let mut servers = listed.filter_map(|listed| self.servers.get(&listed.address));
            let places = &state.service.permits;
            if places.free() < FREE_PERMITS_MIN
                || servers.any(|known| known.server.load.permits.free() < FREE_PERMITS_MIN)
            {
                for listening in &state.listening {
                    listening.pause(&self.data_plane);
                }
                paused.push(state.plan.name.clone());
            } else {
                places.keep_half();
            }
        }
        for removal in &self.removals {
            removal.service.permits.keep_in_use_and(0);
        }
        let mut halved = BTreeSet::new();
        for server in self.known_servers() {
            if server.load.permits.free() >= FREE_PERMITS_MIN {
                server.load.permits.keep_half();
                halved.insert(server.id);
            }
        }
        if let Some(pending) = &mut self.upgrades.pending {
            pending.paused = paused;
            pending.halved = halved;
            pending.is_state_due = true;
        }
    }

    /// Sends the state once the paused services have accepted their last client.
    pub(super) fn send_state_when_due(&mut self) {
        let Some(pending) = &self.upgrades.pending else {
            return;
        };
        let paused = |state: &&ManagedService| pending.paused.contains(&state.plan.name);
        let mut paused_services = self.services.iter().filter(paused);
        let accepts = |state: &ManagedService| {
            let mut listening = state.listening.iter();
            listening.any(|listening| listening.is_accepting(&self.data_plane))
        };
        if !pending.is_state_due || paused_services.any(accepts) {
            return;
        }
        let unplaced = self.count_unplaced();
        for state in self.services.iter().filter(paused) {
            state.service.permits.keep_in_use_and(unplaced.not_admitted);
        }
        for server in self.known_servers() {
            // Services that are not paused continue with their half.
            if !pending.halved.contains(&server.id) {
                self.keep_share(&unplaced, &server);
            }
        }
        let state = Box::new(self.handover());
        if let Some(pending) = &mut self.upgrades.pending {
            pending.is_state_due = false;
        }
        self.send_to_candidate(SuccessorCommand::State(state));
    }

    /// Counts the sessions that may still acquire a permit of any server.
    fn count_unplaced(&self) -> PendingPermits {
        // Sessions are counted first: one that ends in between is counted once too often, not too
        // rarely.
        let sessions = u32::try_from(self.sessions()).unwrap_or(u32::MAX);
        let services = self.known_services();
        let admitted: u32 = services.iter().map(|service| service.active()).sum();
        let not_admitted = sessions.saturating_sub(admitted);
        let (pooled, others): (Vec<_>, Vec<_>) =
            services.iter().partition(|one| one.database().is_some());
        let clients = |of: &[&Arc<Service>]| of.iter().map(|one| one.active()).sum::<u32>();
        let acquiring = clients(&pooled);
        let clients = clients(&others);
        let open_before = count_open(&pooled);
        let servers = self.known_servers();
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

    /// Keeps the permits of a server that are in use, and those that may still be needed. Sessions
    /// of pooled services need no more than half, since they can wait for an open connection.
    fn keep_share(&self, unplaced: &PendingPermits, server: &Server) {
        let places = &server.load.permits;
        let share = self.upgrades.shares.get(&server.id).copied();
        let missing = share.unwrap_or(0).saturating_sub(places.in_use());
        let reserved = unplaced.acquiring.min(missing);
        places.keep_in_use_and(unplaced.connecting.saturating_add(reserved));
    }

    /// Restores all limits of this process.
    pub(super) fn reclaim_permits(&mut self) {
        for service in self.known_services() {
            service.permits.take_back();
        }
        for server in self.known_servers() {
            server.load.permits.take_back();
            self.data_plane.handle_freed_permits(&server);
        }
    }

    pub(super) fn resume_accepting(&mut self, paused: &[String]) {
        let data_plane = &self.data_plane;
        for state in &mut self.services {
            if !paused.contains(&state.plan.name) {
                continue;
            }
            for listening in &mut state.listening {
                if let Err(error) = listening.resume(data_plane, &state.service) {
                    let listen = &listening.listen;
                    tracing::error!(%listen, "cannot accept clients: {error}");
                }
            }
        }
    }

    /// Stops accepting. Sockets that the new process has taken are kept in case it exits; the
    /// others are closed.
    pub(super) fn release_sockets(&mut self, taken: &[Purpose]) {
        for state in &mut self.services {
            let is_taken = |address: String| taken.contains(&Purpose::Clients(address));
            let all = std::mem::take(&mut state.listening).into_iter();
            let kept = all.filter_map(|listening| listening.leave(&self.data_plane, is_taken));
            state.listening = kept.collect();
        }
    }

    pub(super) fn report_to_successor(&mut self, now_ms: u64) {
        let Some(successor) = &self.upgrades.successor else {
            return;
        };
        if now_ms < successor.next_report_ms || !successor.successor.is_idle() {
            return;
        }
        let with_counts = now_ms >= successor.next_counts_ms;
        self.lower_claims();
        self.send_report(with_counts);
        if let Some(successor) = &mut self.upgrades.successor {
            successor.next_report_ms = now_ms + REPORT_INTERVAL_MS;
            if with_counts {
                successor.next_counts_ms = now_ms + COUNTS_INTERVAL_MS;
            }
        }
    }

    /// Sends the last report. Returns once it is sent, or after a time limit.
    pub(in crate::control_plane) fn send_final_report(&mut self) {
        self.lower_claims();
        self.send_report(true);
        if let Some(mut successor) = self.upgrades.successor.take() {
            if let Some(unanswered) = successor.unanswered.take() {
                self.report_upgrade(unanswered);
            }
            successor.successor.finish();
        }
    }

    fn send_report(&mut self, with_counts: bool) {
        let report = self.report(with_counts);
        if let Some(successor) = &mut self.upgrades.successor {
            let changes = Box::new(report.changes_since(&successor.reported));
            successor.reported.merge(changes.as_ref().clone());
            successor.successor.send(SuccessorCommand::Report(changes));
        }
    }

    /// Leaves permits that are neither in use nor needed to the new process, once no accept is in
    /// progress.
    fn lower_claims(&self) {
        if self.data_plane.is_accepting_any() {
            return;
        }
        let unplaced = self.count_unplaced();
        for service in &self.known_services() {
            service.permits.keep_in_use_and(unplaced.not_admitted);
        }
        for server in &self.known_servers() {
            self.keep_share(&unplaced, server);
        }
    }

    fn known_services(&self) -> Vec<Arc<Service>> {
        let listed = self.services.iter().map(|state| &state.service);
        let removals = self
            .removals
            .iter()
            .filter(|removal| removal.server.is_none());
        let all = listed.chain(removals.map(|removal| &removal.service));
        all.map(Arc::clone).collect()
    }

    fn known_servers(&self) -> Vec<Arc<Server>> {
        let listed = self.servers.values().map(|state| &state.server);
        let removals = self.removals.iter().flat_map(|removal| &removal.servers);
        let all = listed.chain(removals);
        let by_id: BTreeMap<_, _> = all.map(|server| (server.id, Arc::clone(server))).collect();
        by_id.into_values().collect()
    }

    fn handover(&self) -> UpgradeState {
        let named_ids: Vec<u64> = self
            .clusters
            .iter()
            .filter_map(ManagedCluster::named)
            .collect();
        let named = self.servers.values();
        let named = named.filter(|state| named_ids.contains(&state.server.id));
        UpgradeState {
            pid: std::process::id(),
            services: self.services.iter().map(service_handover).collect(),
            servers: self.servers.values().map(server_handover).collect(),
            report: self.report(true),
            clusters: self.clusters.handovers(&self.servers),
            events: self.timeline.after(0),
            named: named.map(|state| state.address.to_string()).collect(),
            ticket_keys: self
                .ticket_keys
                .export()
                .iter()
                .map(TicketKeyHandover::new)
                .collect(),
        }
    }

    fn report(&self, with_counts: bool) -> DrainReport {
        let (services, servers) = (self.known_services(), self.known_servers());
        let now_ms = now_ms();
        let limit_ms = self.plan.engine.shutdown_limit_ms;
        let mut report = DrainReport {
            sessions: self.sessions() as u64,
            oldest_unix_ms: self.data_plane.oldest_session_ms().map(unix_ms),
            left_ms: self
                .stop_by_ms
                .map_or(limit_ms, |by_ms| by_ms.saturating_sub(now_ms)),
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
}

/// Sessions that may still acquire a permit of a server.
struct PendingPermits {
    /// Sessions that no service has counted yet.
    not_admitted: u32,
    /// Clients that need a server connection of their own, including `not_admitted`.
    connecting: u32,
    /// Clients of pooled services, which share server connections.
    acquiring: u32,
}

/// Returns half of this process's share of a server's permits.
fn half(server: &Server) -> u32 {
    let places = &server.load.permits;
    places.free().saturating_add(places.in_use()) / 2
}

/// Returns the number of server connections that the pools of services have opened.
fn count_open(pooled: &[&Arc<Service>]) -> u32 {
    let shared = pooled.iter().filter_map(|one| one.database());
    let open: u64 = shared.map(|one| one.open_connections(None)).sum();
    u32::try_from(open).unwrap_or(u32::MAX)
}

fn service_handover(state: &ManagedService) -> ServiceHandover {
    let weights = state.weights.iter();
    ServiceHandover {
        name: state.plan.name.clone(),
        weights: weights
            .map(|(address, weight)| (address.to_string(), *weight))
            .collect(),
        history: state.history.points(),
    }
}

fn server_handover(state: &ManagedServer) -> ServerHandover {
    let now_ms = now_ms();
    let age_ms = |at_ms: u64| now_ms.saturating_sub(at_ms);
    let endpoints = state.server.endpoints();
    let standing = match state.health.state() {
        HealthState::Starting => "starting",
        HealthState::Up => "up",
        HealthState::Down => "down",
    };
    ServerHandover {
        address: state.address.to_string(),
        resolved: endpoints.iter().map(ToString::to_string).collect(),
        standing: standing.to_owned(),
        standing_for_ms: age_ms(state.health.since_ms()),
        reason: state.health.reason().to_owned(),
        last_probe: state.last_probe.clone(),
        back_for_ms: state.back_since_ms.map(age_ms),
        drain: state.drain.map(|drain| DrainHandover {
            since_ms: age_ms(drain.since_ms),
            left_ms: drain.until_ms.saturating_sub(now_ms),
        }),
        history: state.history.points(),
    }
}
