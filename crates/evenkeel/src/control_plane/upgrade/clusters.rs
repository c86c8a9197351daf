//! Hands over the state of clusters to the next process, and restores that of the previous one.

use evenkeel_config::plan::Address;
use evenkeel_policy::cluster::{HandedOverOverride, HandoverState};

use crate::control_plane::clusters::{Clusters, Decision};
use crate::control_plane::servers::Servers;
use crate::upgrade::state::ClusterHandover;

impl Clusters {
    /// Returns what the next process must know about the clusters.
    pub(super) fn handovers(&self, servers: &Servers) -> Vec<ClusterHandover> {
        let clusters = self.iter();
        clusters
            .map(|cluster| {
                let memory = cluster.memory();
                let address = |id: u64| Some(servers.with_id(id)?.address.to_string());
                ClusterHandover {
                    members: cluster.members.iter().map(ToString::to_string).collect(),
                    primary: memory.primary.and_then(address),
                    identity: memory.identity,
                    timelines: memory.timelines,
                    name_held: memory.selected.is_some_and(|one| one.held),
                    overruled: memory.selected.and_then(|one| one.overridden_timeline),
                }
            })
            .collect()
    }

    /// Restores the state of the cluster that has one of the same members. `named`: servers that an
    /// operator has set as the primary, of all clusters.
    pub(super) fn restore_handover(
        &mut self,
        servers: &Servers,
        known: &ClusterHandover,
        named: &[String],
    ) -> Option<Decision> {
        let is_member = |address: &Address| known.members.contains(&address.to_string());
        let id_at = |address: &String| Some(servers.named(address)?.server.id);
        let named = named.iter().find(|one| known.members.contains(one));
        let named = named.and_then(id_at);
        let memory = HandoverState {
            primary: known.primary.as_ref().and_then(id_at),
            identity: known.identity.clone(),
            timelines: known.timelines.clone(),
            selected: named.map(|server| HandedOverOverride {
                server,
                held: known.name_held,
                overridden_timeline: known.overruled,
            }),
        };
        self.restore(servers, is_member, &memory)
    }
}
