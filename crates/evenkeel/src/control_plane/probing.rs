//! Starts probes and name resolutions when they are due, and processes their results.

use std::sync::Arc;
use std::time::Duration;

use evenkeel_config::plan::{Address, OnServerDown};
use evenkeel_monitor::probe::{Observation, Outcome};
use evenkeel_policy::health::{Change, HealthState};
use evenkeel_proxy::data_plane::CutCount;
use evenkeel_proxy::record::CutReason;

use super::ControlPlane;
use super::clock::now_unix_ms;
use super::cluster::News;
use super::endpoint::resolve;
use super::monitor_event::MonitorEvent;
use super::server::DueProbe;
use super::service::name_of;
use super::timeline::NewEvent;
use super::traffic_check::with_traffic_check;
use crate::status::{EventKind, Severity};

/// Maximum number of reports that are handled before commands and other events.
const REPORTS_PER_TURN_MAX: usize = 512;

impl ControlPlane {
    pub(super) fn start_due_probes(&mut self, now_ms: u64) {
        for address in self.servers.take_due(now_ms) {
            self.start_due_probe(&address, now_ms);
        }
    }

    fn start_due_probe(&mut self, address: &Address, now_ms: u64) {
        let reports = self.reports.0.clone();
        let Some(state) = self.servers.get_mut(address) else {
            return;
        };
        if let Some((host, port)) = state.due_resolve(now_ms) {
            let (address, reports) = (address.clone(), reports.clone());
            tokio::spawn(async move {
                let answer = resolve(&host, port).await;
                // The receiver is dropped only when the process ends.
                let _ = reports.send(MonitorEvent::Resolved(address, answer)).await;
            });
        }
        match state.due_probe(now_ms) {
            DueProbe::NotYet => {}
            DueProbe::Ticked(change) => self.apply_health_change(address, change),
            DueProbe::Ask(prober, timeout_ms) => {
                let target = state.probe_target();
                let (address, server) = (address.clone(), Arc::clone(&state.server));
                let limit = Duration::from_millis(timeout_ms);
                tokio::spawn(async move {
                    let (observation, is_busy) = match target {
                        Some(target) => {
                            with_traffic_check(&server, limit, prober.ask(&target, limit)).await
                        }
                        None => (unresolved(), false),
                    };
                    let _ = reports
                        .send(MonitorEvent::Probed(address, observation, is_busy))
                        .await;
                });
            }
        }
    }

    /// Handles a report, and those that have arrived with it.
    pub(super) fn handle_monitor_events(&mut self, first: MonitorEvent) {
        self.handle_monitor_event(first);
        for _ in 1..REPORTS_PER_TURN_MAX {
            let Ok(report) = self.reports.1.try_recv() else {
                return;
            };
            self.handle_monitor_event(report);
        }
    }

    pub(super) fn handle_monitor_event(&mut self, report: MonitorEvent) {
        match report {
            MonitorEvent::Probed(address, observation, is_busy) => {
                // A server that was removed meanwhile is ignored.
                let Some(state) = self.servers.get_mut(&address) else {
                    return;
                };
                let known_fault = state.fault();
                let change = state.record_probe(observation, is_busy, now_unix_ms());
                let is_news = state.fault() != known_fault;
                self.apply_health_change(&address, change);
                if is_news {
                    self.publish_faults(&address);
                }
            }
            MonitorEvent::Resolved(address, answer) => {
                self.apply_resolution(&address, answer);
            }
            MonitorEvent::RoleReport(address, outcome) => self.receive_role(&address, outcome),
            MonitorEvent::FellSilent(address) => self.apply_news(&address, News::Silent),
            MonitorEvent::SwitchoverExpired(switchover) => self.cut_expired_switchover(switchover),
            MonitorEvent::SwitchoverEnded(switchover) => {
                self.clusters.end_switchover(switchover);
                self.publish_roles();
            }
            MonitorEvent::RoleDoubted(server_ids) => self.servers.check_roles(&server_ids),
        }
    }

    /// Applies a change of the health state: publishes services, terminates sessions, reports the
    /// change.
    pub(super) fn apply_health_change(&mut self, address: &Address, change: Option<Change>) {
        let Some(change) = change else { return };
        if let Some(state) = self.servers.get_mut(address) {
            state.record_recovery(Some(&change));
        }
        if self.went_down.iter().any(|(earlier, _)| earlier == address) {
            self.publish_due();
        }
        if change.to == HealthState::Down && self.clusters.of(address).is_none() {
            self.publish_soon_all_with(address);
            self.went_down.push((address.clone(), change));
            return;
        }
        if change.to != HealthState::Down {
            // If the server is the primary, its epoch must begin before clients are sent to it.
            self.publish_roles();
        }
        let cuts = match change.to {
            HealthState::Down => {
                self.publish_all_with(address);
                self.cut_sessions_of_dead(address)
            }
            HealthState::Up | HealthState::Starting => {
                self.publish_soon_all_with(address);
                Vec::new()
            }
        };
        self.finish_health_change(address, &change, cuts);
    }

    /// Terminates the sessions on servers that have gone down in this turn, and reports them. Call
    /// after their services have been published: the clients may connect again immediately.
    pub(super) fn finish_deaths(&mut self) {
        for (address, change) in std::mem::take(&mut self.went_down) {
            let cuts = self.cut_sessions_of_dead(&address);
            self.finish_health_change(&address, &change, cuts);
        }
    }

    fn finish_health_change(&mut self, address: &Address, change: &Change, cuts: Vec<CutCount>) {
        self.report_health(address, change, cuts);
        if change.to == HealthState::Down {
            self.apply_news(address, News::Down);
        } else if let Some(state) = self.servers.get(address) {
            state.verify_role();
        }
        self.publish_roles();
        self.publish_faults(address);
        self.try_next_address(address, change.to);
    }

    fn report_health(&mut self, address: &Address, change: &Change, cuts: Vec<CutCount>) {
        let (severity, now) = match change.to {
            HealthState::Down => (Severity::Warning, "is down"),
            HealthState::Up => (Severity::Info, "is up"),
            HealthState::Starting => (Severity::Info, "is being retried"),
        };
        let what = format!("{} {now}", self.name_of(address));
        let listing = self.servers.listed_by(address).iter();
        let listing = listing.map(|index| &self.services[*index].service);
        let queued = listing.map(|service| service.queued() as u64).sum();
        let event = NewEvent::new(EventKind::State, severity, what);
        let event = event.cause(change.reason.clone()).server(address);
        self.record_event(event.cut(cuts, queued));
    }

    /// Returns a server's name in the first service that lists it.
    pub(super) fn name_of(&self, address: &Address) -> &str {
        name_of(&self.services, &self.servers, address)
    }

    /// Terminates sessions on servers that are down. A client that chose a server just before it
    /// went down may connect just after.
    pub(super) fn cut_sessions_on_dead_servers(&self) {
        for state in self.servers.values() {
            if state.health.state() == HealthState::Down && state.server.load.active() > 0 {
                self.cut_sessions_of_dead(&state.address);
            }
        }
    }

    fn cut_sessions_of_dead(&self, address: &Address) -> Vec<CutCount> {
        let mut cuts = Vec::new();
        let Some(state) = self.servers.get(address) else {
            return cuts;
        };
        self.data_plane.abandon_server(state.server.id);
        for index in self.servers.listed_by(address) {
            let service = &self.services[*index];
            if service.plan.on_server_down == OnServerDown::Cut {
                let ids = (Some(service.service.id), Some(state.server.id));
                cuts.push(self.data_plane.cut(ids.0, ids.1, CutReason::ServerDown));
            }
        }
        cuts
    }
}

fn unresolved() -> Observation {
    let outcome = Outcome::Failed("host name not resolved".to_owned());
    Observation {
        outcome,
        took: Duration::ZERO,
        note: None,
    }
}
