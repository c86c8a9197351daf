//! Handles services removed from the configuration: their last sessions write where they wrote
//! before, and nowhere after another server becomes the primary.

use evenkeel_proxy::record::CutReason;

use crate::config::plan::{self, OnPrimaryChange};
use crate::control_plane::ControlPlane;
use crate::control_plane::removal::Removal;
use crate::control_plane::service::ManagedService;

impl ControlPlane {
    /// Stops writes at former primaries. Call when a cluster has a new primary, or when other
    /// services may have left the cluster.
    pub(super) fn part_departed_from_former(&self, index: usize) {
        let cluster = &self.clusters[index];
        let Some(primary) = cluster.verdict.primary else {
            return;
        };
        for leaving in &self.leaving {
            let Some(departed) = leaving.departed.as_deref() else {
                continue;
            };
            if !cluster.members.iter().any(|one| departed.lists(one)) {
                continue;
            }
            let mut formers = writes_at(departed, leaving);
            formers.retain(|id| *id != primary);
            if !formers.is_empty() {
                self.publish_without_primary(departed);
            }
            for former in formers {
                let service_id = Some(leaving.service.id);
                self.engine
                    .cut(service_id, Some(former), CutReason::PrimaryChanged);
            }
        }
    }
}

/// Returns the ids of the servers at which sessions of a removed service may write.
fn writes_at(departed: &ManagedService, leaving: &Removal) -> Vec<u64> {
    let all = || leaving.servers.iter().map(|server| server.id).collect();
    let view = departed.service.snapshot();
    match (&view.database, departed.plan.role) {
        (Some(database), _) => {
            let primary = database.primary.and_then(|at| view.servers.get(at));
            primary.map(|server| server.id).into_iter().collect()
        }
        (None, role) if role == CUT => all(),
        (None, _) => Vec::new(),
    }
}

const CUT: plan::Role = plan::Role::Primary {
    on_change: OnPrimaryChange::Cut,
};
