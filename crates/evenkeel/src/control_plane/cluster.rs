//! Manages the clusters of services with a role: role queries, decisions and their consequences.

mod events;
mod removed_services;
pub(super) mod switchover;

use std::collections::BTreeMap;

use evenkeel_config::plan::{self, Address, OnPrimaryChange, Plan, ServicePlan};
use evenkeel_engine::clock::now_ms;
use evenkeel_monitor::WatchError;
use evenkeel_policy::cluster::{Cluster, ClusterRoles, HandoverState, Problem, Role, RoleReport};
use evenkeel_policy::health::HealthState;
use evenkeel_proxy::data_plane::CutCount;
use evenkeel_proxy::record::CutReason;

use self::switchover::Switchover;
use super::ControlPlane;

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

impl ManagedCluster {
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

    /// Returns the role of a member.
    pub(super) fn role(&self, server_id: u64) -> &Role {
        let mut roles = self.verdict.roles.iter();
        let found = roles.find(|(id, _)| *id == server_id);
        found.map_or(&Role::Unknown, |(_, role)| role)
    }
}

impl ControlPlane {
    /// Returns the cluster that a server belongs to.
    pub(super) fn cluster_of(&self, address: &Address) -> Option<&ManagedCluster> {
        let mut clusters = self.clusters.iter();
        clusters.find(|cluster| cluster.members.contains(address))
    }

    fn cluster_index(&self, address: &Address) -> Option<usize> {
        let mut clusters = self.clusters.iter();
        clusters.position(|cluster| cluster.members.contains(address))
    }

    /// Builds the clusters of a new plan. State of remaining members is kept.
    pub(super) fn adopt_clusters(&mut self) {
        let mut old = std::mem::take(&mut self.clusters);
        for members in groups(&self.plan) {
            let listed: Vec<(u64, String)> = members
                .iter()
                .filter_map(|address| {
                    let state = self.servers.get(address)?;
                    Some((state.server.id, self.name_of(address).to_owned()))
                })
                .collect();
            let known = old
                .iter()
                .position(|cluster| members.iter().any(|one| cluster.members.contains(one)));
            let state = match known {
                Some(index) => {
                    let mut state = old.swap_remove(index);
                    state.cluster.set_members(listed);
                    ManagedCluster { members, ..state }
                }
                None => new_cluster(members, listed),
            };
            self.clusters.push(state);
        }
        for index in 0..self.clusters.len() {
            let is_wanted = self.services.iter().any(|service| {
                let members = &self.clusters[index].members;
                needs_primary(&service.plan) && members.iter().any(|one| service.lists(one))
            });
            self.clusters[index].wants_primary = is_wanted;
        }
        self.monitor_members();
        self.mark_dead_members();
        for index in 0..self.clusters.len() {
            self.update_roles(index);
            self.cut_leftover_sessions(index);
        }
    }

    /// Monitors the roles of servers in clusters, and only of those.
    fn monitor_members(&mut self) {
        for state in self.servers.values_mut() {
            let address = &state.address;
            let is_member = self
                .clusters
                .iter()
                .any(|one| one.members.contains(address));
            if let Err(why) = state.monitor_role(is_member, &self.reports.0) {
                let address = &state.address;
                tracing::error!(server = %address, "cannot query the role of this server: {why}");
            }
        }
    }

    /// Marks members as down that are down before their first role report, so that no decision
    /// waits for that report.
    pub(super) fn mark_dead_members(&mut self) {
        let states = self.servers.values();
        let dead = states.filter(|state| state.health.state() == HealthState::Down);
        let dead: Vec<_> = dead
            .map(|one| (one.address.clone(), one.server.id))
            .collect();
        for (address, server_id) in dead {
            if let Some(index) = self.cluster_index(&address)
                && self.clusters[index].cluster.awaits(server_id)
            {
                self.clusters[index]
                    .cluster
                    .server_down(now_ms(), server_id);
                self.update_roles(index);
            }
        }
    }

    /// Processes a server's role report, or the reason why there is none.
    pub(super) fn receive_role(
        &mut self,
        address: &Address,
        outcome: Result<RoleReport, WatchError>,
    ) {
        let found = self.cluster_index(address);
        let Some((index, state)) = found.zip(self.servers.get_mut(address)) else {
            return;
        };
        let (server_id, now_ms) = (state.server.id, now_ms());
        let known_fault = Some(state.fault());
        if let Err(WatchError::Away(why)) = outcome {
            let is_outdated = state.is_role_outdated(now_ms);
            let failure = evenkeel_proxy::event::PassiveFailure::ConnectFailed(why.clone());
            self.record_passive_failure(server_id, &failure);
            if is_outdated {
                self.record_hidden_role(address, index, why, false);
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
                let cluster = &mut self.clusters[index].cluster;
                cluster.report_received(now_ms, server_id, report);
                self.update_roles(index);
            }
            Err(error) => {
                let lasts = state.lasts(&error);
                self.record_hidden_role(address, index, error.to_string(), lasts);
            }
        }
        if self.servers.get(address).map(|one| one.fault()) != known_fault {
            self.publish_faults(address);
        }
    }

    /// Drops the last role report of a live server that no longer reports its role. `lasts`: only a
    /// change of a configuration helps.
    fn record_hidden_role(&mut self, address: &Address, index: usize, why: String, lasts: bool) {
        let Some(state) = self.servers.get_mut(address) else {
            return;
        };
        if state.health.state() == HealthState::Down {
            return;
        }
        if state.role_problem.as_ref() != Some(&why) {
            tracing::error!(server = %address, "cannot determine server role: {why}");
            state.role_problem = Some(why.clone());
            state.is_role_problem_lasting = lasts;
        }
        let server_id = state.server.id;
        let cluster = &mut self.clusters[index].cluster;
        cluster.role_unknown(server_id, why);
        self.update_roles(index);
    }

    /// Invalidates a server's role report and queries the role again immediately.
    pub(super) fn forget_role(&mut self, address: &Address) {
        let found = self.cluster_index(address).zip(self.servers.get(address));
        let Some((index, state)) = found else { return };
        if let Some(role_task) = &state.role_task {
            role_task.verify(true);
        }
        let server_id = state.server.id;
        self.clusters[index]
            .cluster
            .server_down(now_ms(), server_id);
        self.update_roles(index);
    }

    /// Records that a server does not answer over a new connection.
    pub(super) fn record_silence(&mut self, address: &Address) {
        let Some((index, state)) = self.cluster_index(address).zip(self.servers.get(address))
        else {
            return;
        };
        let server_id = state.server.id;
        self.clusters[index].cluster.server_unresponsive(server_id);
        self.update_roles(index);
    }

    /// Follows a change of a server's health state: drops the role of a dead server and queries the
    /// role of a recovered one.
    pub(super) fn apply_health_state(&mut self, address: &Address, health: HealthState) {
        let Some(index) = self.cluster_index(address) else {
            return;
        };
        let Some(state) = self.servers.get(address) else {
            return;
        };
        if health == HealthState::Down {
            let server_id = state.server.id;
            self.clusters[index]
                .cluster
                .server_down(now_ms(), server_id);
            self.update_roles(index);
        } else if let Some(role_task) = &state.role_task {
            role_task.verify(true);
        }
    }

    /// Restores the cluster state of a predecessor process.
    pub(super) fn restore(&mut self, index: usize, memory: &HandoverState) {
        self.clusters[index].cluster.restore(memory);
        self.update_roles(index);
    }

    /// Sets or clears the manual primary override.
    pub(super) fn override_primary(
        &mut self,
        address: &Address,
        clear: bool,
    ) -> Result<String, String> {
        let Some(index) = self.cluster_index(address) else {
            return Err(format!(
                "{address} is not in a service with a role: set `role` in [[service]] first"
            ));
        };
        let server_id = self.servers.get(address).map(|state| state.server.id);
        let named = (!clear).then_some(server_id).flatten();
        let cluster = &mut self.clusters[index];
        cluster.cluster.override_primary(named);
        let name = self.name_of(address).to_owned();
        self.update_roles(index);
        let verdict = &self.clusters[index].verdict;
        Ok(match (clear, verdict.primary) {
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

    /// Recomputes the cluster roles and applies the consequences if they have changed.
    fn update_roles(&mut self, index: usize) {
        let now_ms = now_ms();
        let verdict = self.clusters[index].cluster.roles();
        self.verify(index, &verdict);
        let old = std::mem::replace(&mut self.clusters[index].verdict, verdict);
        self.start_switchover(index, &old);
        self.publish_roles();
        if old == self.clusters[index].verdict {
            return;
        }
        // First stop routing to the wrong server, then terminate the sessions on it.
        self.publish_cluster(index);
        let misplaced = self.cut_misplaced(index, &old);
        if old.primary != self.clusters[index].verdict.primary {
            self.cut_leftover_sessions(index);
        }
        self.report_primary(index, &old, misplaced, now_ms);
        self.report_roles(index, &old, now_ms);
        self.report_problems(index, old.primary);
    }

    fn verify(&self, index: usize, verdict: &ClusterRoles) {
        let cluster = &self.clusters[index];
        for address in &cluster.members {
            let Some(state) = self.servers.get(address) else {
                continue;
            };
            let Some(role_task) = &state.role_task else {
                continue;
            };
            role_task.set_urgent(verdict.primary.is_none() && cluster.wants_primary);
            let wanted = |verdict: &ClusterRoles| verdict.verify.contains(&state.server.id);
            if wanted(verdict) {
                if verdict.primary == Some(state.server.id) {
                    role_task.contest();
                }
                role_task.verify(!wanted(&cluster.verdict));
            }
        }
    }

    fn publish_cluster(&mut self, index: usize) {
        for service in 0..self.services.len() {
            let members = &self.clusters[index].members;
            let concerned = self.services[service].plan.role != plan::Role::Any
                && members.iter().any(|one| self.services[service].lists(one));
            if concerned
                && self.eligibilities(&self.services[service])
                    != self.services[service].eligibilities
            {
                self.publish(service);
            }
        }
    }

    /// Terminates sessions that would write to a server that is not the primary, if the
    /// configuration says so.
    fn cut_misplaced(&mut self, index: usize, old: &ClusterRoles) -> Vec<CutCount> {
        let cluster = &self.clusters[index];
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
        if self.clusters[index].verdict.primary.is_none() {
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
        let members = &self.clusters[index].members;
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

    /// Returns the names of the services that a cluster serves.
    pub(super) fn services_of(&self, index: usize) -> Vec<String> {
        let members = &self.clusters[index].members;
        let services = self.services.iter().filter(|service| {
            needs_roles(&service.plan) && members.iter().any(|one| service.lists(one))
        });
        services.map(|service| service.plan.name.clone()).collect()
    }

    pub(super) fn name_of_id(&self, index: usize, server_id: u64) -> &str {
        let members = self.clusters[index].members.iter();
        let mut known = members.filter(|address| {
            let state = self.servers.get(address);
            state.is_some_and(|state| state.server.id == server_id)
        });
        known
            .next()
            .map_or("a removed server", |address| self.name_of(address))
    }
}

/// Returns whether a service needs the roles of its servers.
pub(super) fn needs_roles(plan: &ServicePlan) -> bool {
    let routes_by_role = plan.database().is_some() && plan.monitor.is_some();
    plan.role != plan::Role::Any || routes_by_role
}

/// Returns whether a service needs a primary.
fn needs_primary(plan: &ServicePlan) -> bool {
    matches!(plan.role, plan::Role::Primary { .. }) || plan.database().is_some()
}

fn role_in(verdict: &ClusterRoles, server_id: u64) -> &Role {
    let mut roles = verdict.roles.iter();
    let found = roles.find(|(id, _)| *id == server_id);
    found.map_or(&Role::Unknown, |(_, role)| role)
}

fn new_cluster(members: Vec<Address>, listed: Vec<(u64, String)>) -> ManagedCluster {
    let cluster = Cluster::new(listed);
    ManagedCluster {
        members,
        verdict: cluster.roles(),
        primary_since_ms: now_ms(),
        role_since_ms: BTreeMap::new(),
        wants_primary: false,
        reported: Vec::new(),
        switchover: None,
        switchovers: 0,
        cluster,
    }
}

/// Groups servers into clusters: all servers that one service with a role lists, merged with those
/// of services that share a server.
fn groups(plan: &Plan) -> Vec<Vec<Address>> {
    let mut groups: Vec<Vec<Address>> = Vec::new();
    for service in plan.services.iter().filter(|one| needs_roles(one)) {
        let listed: Vec<_> = service
            .servers
            .iter()
            .map(|one| one.address.clone())
            .collect();
        let mut joined: Vec<Address> = Vec::new();
        groups.retain(|group| {
            let shares = group.iter().any(|address| listed.contains(address));
            if shares {
                joined.extend(group.iter().cloned());
            }
            !shares
        });
        for address in listed {
            if !joined.contains(&address) {
                joined.push(address);
            }
        }
        groups.push(joined);
    }
    groups
}
