//! Hands over on the side of the old process, and reports to the new one while draining.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use evenkeel_engine::clock::now_ms;
use evenkeel_policy::health::HealthState;
use evenkeel_proxy::Server;

use crate::control_plane::ControlPlane;
use crate::control_plane::cluster::ManagedCluster;
use crate::control_plane::server::ManagedServer;
use crate::control_plane::service::ManagedService;
use crate::upgrade::cancels;
use crate::upgrade::state::{
    DrainHandover, Purpose, ServerHandover, ServiceHandover, TicketKeyHandover, UpgradeState,
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
        let servers = self.holdings().servers();
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
        for server in self.holdings().servers() {
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
        let unplaced = self.holdings().count_unplaced();
        for state in self.services.iter().filter(paused) {
            state.service.permits.keep_in_use_and(unplaced.not_admitted);
        }
        for server in self.holdings().servers() {
            // Services that are not paused continue with their half.
            if !pending.halved.contains(&server.id) {
                unplaced.keep_share(&server, &self.upgrades.shares);
            }
        }
        let state = Box::new(self.handover());
        if let Some(pending) = &mut self.upgrades.pending {
            pending.is_state_due = false;
        }
        self.upgrades
            .send_to_candidate(SuccessorCommand::State(state));
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
        if let Some(with_counts) = self.upgrades.due_report(now_ms) {
            self.send_report(with_counts);
            self.upgrades.set_next_report(now_ms, with_counts);
        }
    }

    fn send_report(&mut self, with_counts: bool) {
        let holdings = self.holdings();
        holdings.lower_claims(&self.upgrades.shares);
        let report = holdings.report(with_counts);
        self.upgrades.send_report(&report);
    }

    /// Sends the last report. Returns once it is sent, or after a time limit.
    pub(in crate::control_plane) fn send_final_report(&mut self) {
        self.send_report(true);
        if let Some(mut successor) = self.upgrades.successor.take() {
            if let Some(unanswered) = successor.unanswered.take() {
                self.report_upgrade(unanswered);
            }
            successor.successor.finish();
        }
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
            report: self.holdings().report(true),
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
}

/// Returns half of this process's share of a server's permits.
fn half(server: &Server) -> u32 {
    let places = &server.load.permits;
    places.free().saturating_add(places.in_use()) / 2
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
