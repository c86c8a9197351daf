//! Handles services removed from the configuration: their last sessions write where they wrote
//! before, and nowhere after another server becomes the primary.

use evenkeel_config::plan::{self, OnPrimaryChange};
use evenkeel_proxy::record::CutReason;

use crate::control_plane::ControlPlane;
use crate::control_plane::removal::Removal;
use crate::control_plane::service::ManagedService;

impl ControlPlane {
    /// Stops writes at former primaries. Call when a cluster has a new primary, or when other
    /// services may have left the cluster.
    pub(super) fn cut_removed_services(&self, index: usize) {
        let cluster = self.clusters.get(index);
        let Some(primary) = cluster.verdict.primary else {
            return;
        };
        for removal in &self.removals {
            let Some(removed_service) = removal.removed_service.as_deref() else {
                continue;
            };
            if !cluster.members.iter().any(|one| removed_service.lists(one)) {
                continue;
            }
            let mut formers = writes_at(removed_service, removal);
            formers.retain(|id| *id != primary);
            if !formers.is_empty() {
                self.publish_without_primary(removed_service);
            }
            for former in formers {
                let service_id = Some(removal.service.id);
                self.data_plane
                    .cut(service_id, Some(former), CutReason::PrimaryChanged);
            }
        }
    }
}

/// Returns the ids of the servers at which sessions of a removed service may write.
fn writes_at(removed_service: &ManagedService, removal: &Removal) -> Vec<u64> {
    let all = || removal.servers.iter().map(|server| server.id).collect();
    let snapshot = removed_service.service.snapshot();
    match (snapshot.database(), removed_service.plan.role) {
        (Some(database), _) => {
            let primary = database.primary.and_then(|at| snapshot.servers.get(at));
            primary.map(|server| server.id).into_iter().collect()
        }
        (None, role) if role == CUT => all(),
        (None, _) => Vec::new(),
    }
}

const CUT: plan::Role = plan::Role::Primary {
    on_change: OnPrimaryChange::Cut,
};
