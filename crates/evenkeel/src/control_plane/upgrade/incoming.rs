//! Takes over on the side of the new process: restores the old one's state, and counts its
//! sessions.

use std::collections::HashMap;
use std::time::Duration;

use evenkeel_config::plan::Plan;
use evenkeel_engine::clock::now_ms;
use evenkeel_policy::health::HealthState;
use evenkeel_proxy::Endpoint;

use super::counters::{add_to_server, add_to_service};
use crate::control_plane::history::Totals;
use crate::control_plane::server::{Drain, ManagedServer};
use crate::control_plane::service::ManagedService;
use crate::control_plane::timeline::NewEvent;
use crate::control_plane::{ControlPlane, ControlPlaneError};
use crate::status::{EventKind, Severity};
use crate::upgrade::admin_sockets::AdminSockets;
use crate::upgrade::predecessor::{InheritedSockets, Predecessor};
use crate::upgrade::predecessor_link::PredecessorEvent;
use crate::upgrade::state::{
    DrainReport, ServerHandover, ServiceHandover, TicketKeyHandover, UpgradeState,
};

/// Longest time that an upgrade waits for the roles of clusters.
const ROLES_LIMIT_MS: u64 = 3_000;

/// Interval between two checks while no report arrives.
const ROLE_POLL_MS: u64 = 20;

impl ControlPlane {
    /// Starts serving a plan with the sockets and the state of an old process, which then stops
    /// accepting. After an error the old process continues unchanged.
    pub(in crate::control_plane) async fn take_over(
        &mut self,
        plan: Plan,
        mut predecessor: Predecessor,
        mut inherited: InheritedSockets,
    ) -> Result<(), ControlPlaneError> {
        let mut prepared = self.prepare(&plan, &mut inherited)?;
        let bound = std::mem::take(&mut prepared.bound);
        self.adopt_prepared(plan, prepared);
        self.await_roles().await;
        let state = predecessor.ready()?;
        let pid = state.pid;
        self.resume(state);
        // Limits and snapshots come first: no client is accepted before the old process's state is
        // restored.
        self.listen_at(bound);
        self.check_all_listen()?;
        predecessor.serving(inherited.taken())?;
        self.lend_sockets(false);
        let link = predecessor.into_link(self.upgrades.from_predecessor.0.clone());
        match (link, &mut self.upgrades.predecessor) {
            (Ok(link), Some(draining)) => draining.link = Some(link),
            (Err(error), _) => {
                // Without the link, the last permit counts of the old process stay in effect until
                // the next upgrade. They may be too high; since the old process accepts no clients,
                // they are rarely too low.
                tracing::error!(
                    "cannot receive the session counts of draining process {pid}: {error}"
                );
            }
            (Ok(_), None) => {}
        }
        let what = format!("took over from process {pid}");
        self.record_event(NewEvent::new(EventKind::Process, Severity::Info, what));
        Ok(())
    }

    /// Waits for the roles of servers: before, services with a role cannot send clients anywhere.
    /// The old process serves meanwhile.
    async fn await_roles(&mut self) {
        let until_ms = now_ms() + ROLES_LIMIT_MS;
        while now_ms() < until_ms && !self.clusters.have_all_roles(&self.servers) {
            let wait = Duration::from_millis(ROLE_POLL_MS);
            if let Ok(Some(report)) = tokio::time::timeout(wait, self.reports.1.recv()).await {
                self.handle_monitor_event(report);
            }
            self.start_due_probes(now_ms());
        }
    }

    fn resume(&mut self, mut state: UpgradeState) {
        let keys = state.ticket_keys.iter();
        let keys = keys.filter_map(TicketKeyHandover::key).collect();
        self.ticket_keys.adopt(keys);
        let handovers = state.servers.iter();
        let handovers: HashMap<_, _> = handovers.map(|one| (&*one.address, one)).collect();
        for server in self.servers.values_mut() {
            if let Some(handover) = handovers.get(&*server.address.to_string()) {
                resume_server(server, handover, &state.report);
            }
        }
        for handover in &state.services {
            let mut services = self.services.iter_mut();
            if let Some(service) = services.find(|service| service.plan.name == handover.name) {
                resume_service(service, handover, &state.report);
            }
        }
        self.upgrades.predecessor = Some(super::Predecessor::new(state.pid, state.report));
        self.update_remote_permits();
        self.timeline.resume(std::mem::take(&mut state.events));
        for handover in &state.clusters {
            let clusters = &mut self.clusters;
            if let Some(decision) = clusters.restore_handover(&self.servers, handover, &state.named)
            {
                self.apply_decision(decision);
            }
        }
        // Marked only now, after old primaries have been fenced.
        self.mark_dead_members();
        for index in 0..self.services.len() {
            self.publish(index);
        }
    }

    /// Stores the admin sockets for the next process.
    pub(crate) fn set_admin_sockets(&mut self, admin_sockets: AdminSockets) {
        self.upgrades.admin_sockets = Some(admin_sockets);
    }

    fn check_all_listen(&self) -> Result<(), ControlPlaneError> {
        for state in &self.services {
            if state.listening.len() < state.plan.listen.len() {
                return Err(ControlPlaneError::NotAccepting {
                    service: state.plan.name.clone(),
                });
            }
        }
        Ok(())
    }

    pub(in crate::control_plane) fn handle_predecessor(&mut self, event: PredecessorEvent) {
        match event {
            PredecessorEvent::Report(report) => {
                let predecessor = self.upgrades.predecessor.as_ref();
                if let Some(predecessor) = predecessor {
                    self.holdings().add_counts(&predecessor.report, &report);
                }
                if let Some(predecessor) = &mut self.upgrades.predecessor {
                    predecessor.report.merge(*report);
                }
            }
            PredecessorEvent::Gone => {
                if let Some(predecessor) = self.upgrades.predecessor.take() {
                    let what = format!("process {} exited", predecessor.pid);
                    self.record_event(NewEvent::new(EventKind::Process, Severity::Info, what));
                }
            }
        }
        self.update_remote_permits();
    }

    /// Recomputes how many permits of each limit the old process uses.
    pub(in crate::control_plane) fn update_remote_permits(&self) {
        self.share_writes();
        let draining = self.upgrades.predecessor.as_ref();
        let report = draining.map(|draining| &draining.report);
        self.holdings().set_used_by(report);
    }
}

fn resume_service(state: &mut ManagedService, handover: &ServiceHandover, report: &DrainReport) {
    for listed in &state.plan.servers {
        let weight = handover.weights.get(&listed.address.to_string());
        if let Some(weight) = weight.filter(|weight| **weight != listed.weight) {
            state.weights.insert(listed.address.clone(), *weight);
        }
    }
    if let Some(counted) = report.service_counts.get(&handover.name) {
        add_to_service(&state.service, counted);
    }
    let totals = Totals::of_service(&state.service);
    state.history.resume(handover.history.clone(), totals);
}

fn resume_server(state: &mut ManagedServer, handover: &ServerHandover, report: &DrainReport) {
    let now_ms = now_ms();
    // The clock starts with the process: earlier times count as its zero.
    let ago = |age_ms: u64| now_ms.saturating_sub(age_ms);
    let standing = match handover.standing.as_str() {
        "up" => HealthState::Up,
        "down" => HealthState::Down,
        _ => HealthState::Starting,
    };
    // Results of this process's own probes are newer.
    let own = state.health.state();
    if own == HealthState::Starting || own == standing {
        let since_ms = ago(handover.standing_for_ms);
        let reason = handover.reason.clone();
        state.health.resume(standing, since_ms, reason);
    }
    if state.last_probe.is_none() {
        state.last_probe.clone_from(&handover.last_probe);
    }
    state.back_since_ms = handover.back_for_ms.map(ago);
    state.drain = handover.drain.as_ref().map(|drain| Drain {
        since_ms: ago(drain.since_ms),
        until_ms: now_ms.saturating_add(drain.left_ms),
        cut_again_ms: None,
    });
    if state.server.endpoints().is_empty() {
        // Used until this process has resolved the name.
        let resolved = handover.resolved.iter().filter_map(|text| endpoint(text));
        state.server.set_endpoints(resolved.collect());
    }
    if let Some(counted) = report.server_counts.get(&handover.address) {
        add_to_server(&state.server.counters, counted);
    }
    let totals = Totals::of_server(&state.server);
    state.history.resume(handover.history.clone(), totals);
}

fn endpoint(text: &str) -> Option<Endpoint> {
    match text.strip_prefix("unix:") {
        Some(path) => Some(Endpoint::Unix(path.into())),
        None => text.parse().ok().map(Endpoint::Tcp),
    }
}
