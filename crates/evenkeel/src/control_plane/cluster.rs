//! Manages one cluster of services with a role, and applies what is decided about it to services
//! and sessions.

mod events;
mod removed_services;
pub(super) mod switchover;

use std::collections::BTreeMap;

use evenkeel_config::plan::{self, Address, OnPrimaryChange, ServicePlan};
use evenkeel_engine::clock::now_ms;
use evenkeel_monitor::WatchError;
use evenkeel_policy::cluster::{Cluster, ClusterRoles, HandoverState, Problem, Role, RoleReport};
use evenkeel_policy::health::HealthState;
use evenkeel_proxy::data_plane::CutCount;
use evenkeel_proxy::record::CutReason;

use self::switchover::Switchover;
use super::ControlPlane;
use super::clusters::Decision;
use super::servers::Servers;
use super::service::name_of;

/// Servers listed by services with a role, merged over all services that share a server.
pub(super) struct ManagedCluster {
    /// Members in the order of the configuration.
    pub(super) members: Vec<Address>,
    pub(super) verdict: ClusterRoles,
    pub(super) primary_since_ms: u64,
    /// Time in milliseconds since when each member has had its role, by server id.
    pub(super) role_since_ms: BTreeMap<u64, u64>,
    /// True if a service needs the primary. Otherwise a missing primary is not reported.
    wants_primary: bool,
    /// Reported problems that still exist.
    reported: Vec<Problem>,
    /// Former primary at which active work is finishing. Until then no server takes new writes.
    switchover: Option<Switchover>,
    /// Number of switchovers so far.
    switchovers: u64,
    cluster: Cluster,
}

/// News about a member of a cluster.
pub(super) enum News {
    /// Role report of the server.
    Report(Box<RoleReport>),
    /// The server is alive, and does not report its role for this reason.
    Unknown(String),
    /// The server does not answer over a new connection.
    Silent,
    /// The server is down, or its last report belongs to another machine.
    Down,
    /// Selection of the server as the primary by an operator, or the end of a selection.
    Selected(bool),
}

impl ManagedCluster {
    /// Returns a cluster of these members, by address and with their ids and names. State of those
    /// that `known` had before is kept.
    pub(super) fn adopt(
        known: Option<ManagedCluster>,
        (members, listed): (Vec<Address>, Vec<(u64, String)>),
        wants_primary: bool,
    ) -> ManagedCluster {
        if let Some(mut known) = known {
            known.cluster.set_members(listed);
            return ManagedCluster {
                members,
                wants_primary,
                ..known
            };
        }
        let cluster = Cluster::new(listed);
        ManagedCluster {
            members,
            verdict: cluster.roles(),
            primary_since_ms: now_ms(),
            role_since_ms: BTreeMap::new(),
            wants_primary,
            reported: Vec::new(),
            switchover: None,
            switchovers: 0,
            cluster,
        }
    }

    /// Records news about a member. The next decision takes it into account.
    pub(super) fn record(&mut self, server_id: u64, news: News) {
        let cluster = &mut self.cluster;
        match news {
            News::Report(report) => cluster.report_received(now_ms(), server_id, *report),
            News::Unknown(why) => cluster.role_unknown(server_id, why),
            News::Silent => cluster.server_unresponsive(server_id),
            News::Down => cluster.server_down(now_ms(), server_id),
            News::Selected(selected) => cluster.override_primary(selected.then_some(server_id)),
        }
    }

    /// Decides the roles, and has those queried again on which the decision depends. Returns the
    /// roles before, and a switchover that begins.
    pub(super) fn decide(&mut self, servers: &Servers) -> (ClusterRoles, Option<Switchover>) {
        let verdict = self.cluster.roles();
        self.verify(servers, &verdict);
        let old = std::mem::replace(&mut self.verdict, verdict);
        let switchover = self.start_switchover(&old);
        (old, switchover)
    }

    fn verify(&self, servers: &Servers, verdict: &ClusterRoles) {
        for address in &self.members {
            let Some(state) = servers.get(address) else {
                continue;
            };
            let Some(role_task) = &state.role_task else {
                continue;
            };
            role_task.set_urgent(verdict.primary.is_none() && self.wants_primary);
            let wanted = |verdict: &ClusterRoles| verdict.verify.contains(&state.server.id);
            if wanted(verdict) {
                if verdict.primary == Some(state.server.id) {
                    role_task.contest();
                }
                role_task.verify(!wanted(&self.verdict));
            }
        }
    }

    /// Returns whether a member has never reported its role.
    pub(super) fn awaits(&self, server_id: u64) -> bool {
        self.cluster.awaits(server_id)
    }

    /// Returns the manual primary override, while it is valid.
    pub(super) fn named(&self) -> Option<u64> {
        self.cluster.selected_primary()
    }

    /// Returns the problems to report to the operator.
    pub(super) fn problems(&self) -> Vec<Problem> {
        let all = self.verdict.problems.iter();
        let matters = |one: &&Problem| self.wants_primary || one.server.is_some();
        all.filter(matters).cloned().collect()
    }

    /// Returns the state that the servers cannot report again, for the successor process.
    pub(super) fn memory(&self) -> HandoverState {
        self.cluster.handover_state()
    }

    /// Restores that state of a predecessor process.
    pub(super) fn restore(&mut self, memory: &HandoverState) {
        self.cluster.restore(memory);
    }

    /// Returns the role of a member.
    pub(super) fn role(&self, server_id: u64) -> &Role {
        role_in(&self.verdict, server_id)
    }
}

impl ControlPlane {
    /// Builds the clusters of a new plan, and applies what is decided about them.
    pub(super) fn adopt_clusters(&mut self) {
        let name_of = |address: &Address| name_of(&self.services, &self.servers, address);
        self.clusters.adopt(&self.plan, &self.servers, name_of);
        let reports = &self.reports.0;
        self.clusters.monitor_members(&mut self.servers, reports);
        self.mark_dead_members();
        for index in 0..self.clusters.len() {
            let decision = self.clusters.decide(&self.servers, index);
            self.apply_decision(decision);
            self.cut_leftover_sessions(index);
        }
    }

    /// Marks members as down that are down before their first role report.
    pub(super) fn mark_dead_members(&mut self) {
        for address in self.clusters.unreported_dead(&self.servers) {
            self.apply_news(&address, News::Down);
        }
    }

    /// Processes a server's role report, or the reason why there is none.
    pub(super) fn receive_role(
        &mut self,
        address: &Address,
        outcome: Result<RoleReport, WatchError>,
    ) {
        let is_member = self.clusters.of(address).is_some();
        let Some(state) = self.servers.get_mut(address).filter(|_| is_member) else {
            return;
        };
        let (server_id, now_ms) = (state.server.id, now_ms());
        let known_fault = Some(state.fault());
        if let Err(WatchError::Away(why)) = outcome {
            let is_outdated = state.is_role_outdated(now_ms);
            let failure = evenkeel_proxy::event::PassiveFailure::ConnectFailed(why.clone());
            self.record_passive_failure(server_id, &failure);
            if is_outdated {
                self.record_hidden_role(address, why, false);
            }
            return;
        }
        if state.health.state() == HealthState::Down {
            // The server seems to be back. The probes confirm that first, and soon.
            return state.probe_soon(now_ms);
        }
        match outcome {
            Ok(report) => {
                state.record_role_report(now_ms);
                self.record_role(address, &report);
                self.apply_news(address, News::Report(Box::new(report)));
            }
            Err(error) => {
                let lasts = state.lasts(&error);
                self.record_hidden_role(address, error.to_string(), lasts);
            }
        }
        if self.servers.get(address).map(|one| one.fault()) != known_fault {
            self.publish_faults(address);
        }
    }

    /// Drops the last role report of a live server that no longer reports its role. `lasts`: only a
    /// change of a configuration helps.
    fn record_hidden_role(&mut self, address: &Address, why: String, lasts: bool) {
        let state = self.servers.get_mut(address);
        if state.is_some_and(|state| state.record_hidden_role(&why, lasts)) {
            self.apply_news(address, News::Unknown(why));
        }
    }

    /// Sets or clears the manual primary override.
    pub(super) fn override_primary(
        &mut self,
        address: &Address,
        clear: bool,
    ) -> Result<String, String> {
        self.apply_news(address, News::Selected(!clear));
        let Some(cluster) = self.clusters.of(address) else {
            return Err(format!(
                "{address} is not in a service with a role: set `role` in [[service]] first"
            ));
        };
        let server_id = self.servers.get(address).map(|state| state.server.id);
        let name = self.name_of(address);
        Ok(match (clear, cluster.verdict.primary) {
            (true, _) => "the override is removed; the primary is determined from the servers' \
                          reports again"
                .to_owned(),
            (false, primary) if primary.is_some() && primary == server_id => {
                format!("{name} is the primary")
            }
            (false, _) => format!(
                "the override names {name}, which becomes the primary once it reports that it \
                 accepts writes (see `evenkeel status`)"
            ),
        })
    }

    /// Records news about a member of a cluster, and applies what is decided then.
    pub(super) fn apply_news(&mut self, address: &Address, news: News) {
        if let Some(decision) = self.clusters.record(&self.servers, address, news) {
            self.apply_decision(decision);
        }
    }

    /// Applies a decision on the roles of a cluster to services and sessions, and reports it.
    pub(super) fn apply_decision(&mut self, decision: Decision) {
        let Decision {
            index,
            old,
            switchover,
        } = decision;
        if let Some(switchover) = switchover {
            self.start_switchover(switchover);
        }
        self.publish_roles();
        if old == self.clusters.get(index).verdict {
            return;
        }
        // First stop routing to the wrong server, then terminate the sessions on it.
        self.publish_cluster(index);
        let misplaced = self.cut_misplaced(index, &old);
        if old.primary != self.clusters.get(index).verdict.primary {
            self.cut_leftover_sessions(index);
        }
        self.report_decision(index, &old, misplaced);
    }

    fn publish_cluster(&mut self, index: usize) {
        for service in 0..self.services.len() {
            let members = &self.clusters.get(index).members;
            let concerned = self.services[service].plan.role != plan::Role::Any
                && members.iter().any(|one| self.services[service].lists(one));
            if concerned
                && self.role_view().eligibilities(&self.services[service])
                    != self.services[service].eligibilities
            {
                self.publish(service);
            }
        }
    }

    /// Terminates sessions that would write to a server that is not the primary, if the
    /// configuration says so.
    fn cut_misplaced(&mut self, index: usize, old: &ClusterRoles) -> Vec<CutCount> {
        let cluster = self.clusters.get(index);
        let mut cuts = Vec::new();
        for service in &self.services {
            let cut = plan::Role::Primary {
                on_change: OnPrimaryChange::Cut,
            };
            if service.plan.role != cut {
                continue;
            }
            for address in cluster.members.iter().filter(|one| service.lists(one)) {
                let Some(state) = self.servers.get(address) else {
                    continue;
                };
                let server_id = state.server.id;
                let (now, before) = (cluster.role(server_id), role_in(old, server_id));
                let replaced =
                    cluster.verdict.primary.is_some() && cluster.verdict.primary != old.primary;
                // `on_server_down` governs sessions on a dead server until another server replaces
                // it.
                let demoted = std::mem::discriminant(now) != std::mem::discriminant(before)
                    && !matches!(now, Role::Unknown | Role::Primary);
                if *now != Role::Primary && (replaced || demoted) && state.server.load.active() > 0
                {
                    let ids = (Some(service.service.id), Some(server_id));
                    cuts.push(self.data_plane.cut(ids.0, ids.1, CutReason::PrimaryChanged));
                }
            }
        }
        cuts
    }

    /// Terminates sessions left over by a reload, on servers that were removed or that a service
    /// may no longer use. Like those of a former primary, they end only if there is another
    /// primary.
    fn cut_leftover_sessions(&mut self, index: usize) {
        if self.clusters.get(index).verdict.primary.is_none() {
            return;
        }
        let no_roles = ClusterRoles {
            primary: None,
            roles: Vec::new(),
            verify: Vec::new(),
            problems: Vec::new(),
        };
        self.cut_misplaced(index, &no_roles);
        let cut = plan::Role::Primary {
            on_change: OnPrimaryChange::Cut,
        };
        let members = &self.clusters.get(index).members;
        for removal in &self.removals {
            let mut services = self.services.iter();
            let service = services.find(|one| one.service.id == removal.service.id);
            let writes = service.is_some_and(|one| {
                one.plan.role == cut && members.iter().any(|member| one.lists(member))
            });
            if let (true, Some(server)) = (writes, &removal.server) {
                let ids = (Some(removal.service.id), Some(server.id));
                self.data_plane.cut(ids.0, ids.1, CutReason::PrimaryChanged);
            }
        }
        self.cut_removed_services(index);
    }
}

/// Returns whether a service needs the roles of its servers.
pub(super) fn needs_roles(plan: &ServicePlan) -> bool {
    let routes_by_role = plan.database().is_some() && plan.monitor.is_some();
    plan.role != plan::Role::Any || routes_by_role
}

/// Returns whether a service needs a primary.
pub(super) fn needs_primary(plan: &ServicePlan) -> bool {
    matches!(plan.role, plan::Role::Primary { .. }) || plan.database().is_some()
}

fn role_in(verdict: &ClusterRoles, server_id: u64) -> &Role {
    let mut roles = verdict.roles.iter();
    let found = roles.find(|(id, _)| *id == server_id);
    found.map_or(&Role::Unknown, |(_, role)| role)
}
