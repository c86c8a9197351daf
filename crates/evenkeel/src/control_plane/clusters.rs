//! Owns the clusters of services with a role: takes what is known about their servers, and decides
//! their roles.

use evenkeel_config::plan::{Address, Plan};
use evenkeel_policy::cluster::{ClusterRoles, HandoverState, Role};
use evenkeel_policy::health::HealthState;
use tokio::sync::mpsc;

use super::cluster::switchover::Switchover;
use super::cluster::{ManagedCluster, News, needs_primary, needs_roles};
use super::monitor_event::MonitorEvent;
use super::servers::Servers;

/// The clusters of services with a role. Each server is in one cluster at most.
#[derive(Default)]
pub(super) struct Clusters {
    all: Vec<ManagedCluster>,
}

/// Decision on the roles of a cluster, which [`ManagedCluster::verdict`] has. Its consequences are
/// those of services and sessions.
pub(super) struct Decision {
    /// Index of the cluster.
    pub(super) index: usize,
    /// Roles before.
    pub(super) old: ClusterRoles,
    /// Switchover that begins.
    pub(super) switchover: Option<Switchover>,
}

impl Clusters {
    /// Returns the cluster that a server belongs to.
    pub(super) fn of(&self, address: &Address) -> Option<&ManagedCluster> {
        self.all.get(self.index_of(address)?)
    }

    fn index_of(&self, address: &Address) -> Option<usize> {
        let mut clusters = self.all.iter();
        clusters.position(|cluster| cluster.members.contains(address))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &ManagedCluster> {
        self.all.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns the cluster of a decision.
    pub(super) fn get(&self, index: usize) -> &ManagedCluster {
        &self.all[index]
    }

    /// Returns the cluster of a decision, to be changed.
    pub(super) fn get_mut(&mut self, index: usize) -> &mut ManagedCluster {
        &mut self.all[index]
    }

    /// Builds the clusters of a new plan. State of remaining members is kept.
    pub(super) fn adopt<'n>(
        &mut self,
        plan: &Plan,
        servers: &Servers,
        name_of: impl Fn(&Address) -> &'n str,
    ) {
        let mut old = std::mem::take(&mut self.all);
        for members in groups(plan) {
            let listed: Vec<(u64, String)> = members
                .iter()
                .filter_map(|address| {
                    let state = servers.get(address)?;
                    Some((state.server.id, name_of(address).to_owned()))
                })
                .collect();
            let wants_primary = plan.services.iter().any(|service| {
                let mut servers = service.servers.iter();
                needs_primary(service) && servers.any(|one| members.contains(&one.address))
            });
            let known = old
                .iter()
                .position(|cluster| members.iter().any(|one| cluster.members.contains(one)));
            let known = known.map(|index| old.swap_remove(index));
            let cluster = ManagedCluster::adopt(known, (members, listed), wants_primary);
            self.all.push(cluster);
        }
    }

    /// Monitors the roles of servers in clusters, and only of those.
    pub(super) fn monitor_members(
        &self,
        servers: &mut Servers,
        reports: &mpsc::Sender<MonitorEvent>,
    ) {
        for state in servers.values_mut() {
            let is_member = self.of(&state.address).is_some();
            if let Err(why) = state.monitor_role(is_member, reports) {
                let address = &state.address;
                tracing::error!(server = %address, "cannot query the role of this server: {why}");
            }
        }
    }

    /// Records news about a server, and decides the roles of its cluster. `None`: it is in none.
    pub(super) fn record(
        &mut self,
        servers: &Servers,
        address: &Address,
        news: News,
    ) -> Option<Decision> {
        let index = self.index_of(address)?;
        let server_id = servers.get(address)?.server.id;
        self.all[index].record(server_id, news);
        Some(self.decide(servers, index))
    }

    /// Decides the roles of a cluster again.
    pub(super) fn decide(&mut self, servers: &Servers, index: usize) -> Decision {
        let (old, switchover) = self.all[index].decide(servers);
        Decision {
            index,
            old,
            switchover,
        }
    }

    /// Returns the members that are down before their first role report: no decision should wait
    /// for that report.
    pub(super) fn unreported_dead(&self, servers: &Servers) -> Vec<Address> {
        let dead = servers.values().filter(|state| {
            let cluster = self.of(&state.address);
            state.health.state() == HealthState::Down
                && cluster.is_some_and(|cluster| cluster.awaits(state.server.id))
        });
        dead.map(|state| state.address.clone()).collect()
    }

    /// Restores what a predecessor process knew about the cluster that has one of these members.
    pub(super) fn restore(
        &mut self,
        servers: &Servers,
        is_member: impl Fn(&Address) -> bool,
        memory: &HandoverState,
    ) -> Option<Decision> {
        let mut clusters = self.all.iter();
        let index = clusters.position(|one| one.members.iter().any(&is_member))?;
        self.all[index].restore(memory);
        Some(self.decide(servers, index))
    }

    /// Returns whether each cluster has a primary, and each live member a role.
    pub(super) fn have_all_roles(&self, servers: &Servers) -> bool {
        self.all.iter().all(|cluster| {
            let mut members = cluster.members.iter().filter_map(|one| servers.get(one));
            cluster.verdict.primary.is_some()
                && members.all(|server| {
                    server.health.state() == HealthState::Down
                        || *cluster.role(server.server.id) != Role::Unknown
                })
        })
    }

    /// Ends a switchover: the former primary has no active work left.
    pub(super) fn end_switchover(&mut self, switchover: Switchover) {
        for cluster in &mut self.all {
            cluster.end_switchover(switchover);
        }
    }

    /// Returns whether active work at a service's former primary may still finish.
    pub(super) fn is_switching_over(&self, server_id: u64) -> bool {
        let mut clusters = self.all.iter();
        clusters.any(|cluster| cluster.is_switching_over(server_id))
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
