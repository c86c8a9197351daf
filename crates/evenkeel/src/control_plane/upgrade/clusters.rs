//! Hands over the state of clusters to the next process, and restores that of the previous one.

use evenkeel_config::plan::Address;
use evenkeel_policy::cluster::{HandedOverOverride, HandoverState};

use crate::control_plane::ControlPlane;
use crate::upgrade::state::ClusterHandover;

impl ControlPlane {
    pub(super) fn cluster_handovers(&self) -> Vec<ClusterHandover> {
        let clusters = self.clusters.iter();
        clusters
            .map(|cluster| {
                let memory = cluster.memory();
                let address = |id: u64| self.address_of(id).map(ToString::to_string);
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
    pub(super) fn restore_cluster(&mut self, known: &ClusterHandover, named: &[String]) {
        let is_member = |address: &Address| known.members.contains(&address.to_string());
        let same = |members: &Vec<Address>| members.iter().any(is_member);
        let Some(index) = self.clusters.iter().position(|one| same(&one.members)) else {
            return;
        };
        let named = named.iter().find(|one| known.members.contains(one));
        let named = named.and_then(|named| self.id_at(named));
        let memory = HandoverState {
            primary: known.primary.as_ref().and_then(|one| self.id_at(one)),
            identity: known.identity.clone(),
            timelines: known.timelines.clone(),
            selected: named.map(|server| HandedOverOverride {
                server,
                held: known.name_held,
                overridden_timeline: known.overruled,
            }),
        };
        self.restore(index, &memory);
    }

    fn id_at(&self, address: &str) -> Option<u64> {
        let mut states = self.servers.values();
        let found = states.find(|state| state.address.to_string() == address);
        found.map(|state| state.server.id)
    }

    fn address_of(&self, server_id: u64) -> Option<&Address> {
        let found = self.servers.with_id(server_id);
        found.map(|state| &state.address)
    }
}
