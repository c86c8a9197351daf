//! One node of Galera takes the writes over from another that goes on: what is under way there ends
//! first, so that nobody is cut for it.

use std::sync::Arc;
use std::time::Duration;

use evenkeel_policy::Load;
use evenkeel_policy::cluster::{ClusterRoles, Lag, Role};
use evenkeel_proxy::record::CutReason;

use super::ManagedCluster;
use crate::control_plane::ControlPlane;
use crate::control_plane::probing::MonitorEvent;

/// New work waits for that at most so long; then who is still there is cut.
const LIMIT: Duration = Duration::from_millis(300);

/// Nobody who was cut may be told of a write behind the first word of the next primary.
const CUT_LIMIT: Duration = Duration::from_millis(100);

const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The next primary has what the others have, and serves reads as before.
const READS: Role = Role::Replica(Lag {
    ms: Some(0),
    bytes: None,
});

/// A former primary at which what is under way ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::control_plane) struct Switchover {
    server_id: u64,
    /// Of the handover, since a server may have several.
    number: u64,
}

impl ManagedCluster {
    /// What a member does for services that speak its protocol.
    pub(in crate::control_plane) fn duty(&self, server_id: u64) -> &Role {
        let leaves = |one: Switchover| one.server_id == server_id;
        match (self.leaving, self.role(server_id)) {
            // Reads that come anew would keep it busy, and be cut with the others.
            (Some(leaving), _) if leaves(leaving) => &Role::Unknown,
            (Some(_), Role::Primary) => &READS,
            (_, role) => role,
        }
    }

    /// Begins a handover, or sees that one is over. True: it begins.
    fn hand_over(&mut self, old: &ClusterRoles) -> bool {
        let primary = self.verdict.primary;
        let may_finish = |id| primary != Some(id) && self.cluster.may_finish(id);
        if let Some(leaving) = self.leaving {
            self.leaving = Some(leaving).filter(|one| may_finish(one.server_id));
            return false;
        }
        let former = old.primary.filter(|id| may_finish(*id));
        self.handovers += u64::from(former.is_some());
        self.leaving = former.map(|server_id| Switchover {
            server_id,
            number: self.handovers,
        });
        former.is_some()
    }
}

impl ControlPlane {
    /// To be called when the verdict has changed, and before anybody is told.
    pub(super) fn hand_over(&mut self, index: usize, old: &ClusterRoles) {
        if !self.clusters[index].hand_over(old) {
            return;
        }
        let Some(leaving) = self.clusters[index].leaving else {
            return;
        };
        let busy = self.work_at(leaving.server_id);
        let reports = self.reports.0.clone();
        tokio::spawn(async move {
            // The world is gone only when the process ends.
            if tokio::time::timeout(LIMIT, ended(&busy)).await.is_err() {
                let _ = reports.send(MonitorEvent::Overstays(leaving)).await;
                let _ = tokio::time::timeout(CUT_LIMIT, ended(&busy)).await;
            }
            let _ = reports.send(MonitorEvent::Left(leaving)).await;
        });
    }

    /// Who is still there has had the time.
    pub(in crate::control_plane) fn cut_overstaying(&self, leaving: Switchover) {
        if !self.is_leaving(leaving.server_id) {
            return;
        }
        let server_id = Some(leaving.server_id);
        for service in self.services.iter().filter(|one| one.primary == server_id) {
            let service_id = Some(service.service.id);
            self.engine
                .cut(service_id, server_id, CutReason::PrimaryChanged);
        }
    }

    /// Nothing is under way at a former primary any more.
    pub(in crate::control_plane) fn has_left(&mut self, leaving: Switchover) {
        for cluster in &mut self.clusters {
            cluster.leaving = cluster.leaving.filter(|one| *one != leaving);
        }
        self.brief();
    }

    /// Whether what is under way at a service's former primary may still end.
    pub(in crate::control_plane) fn is_leaving(&self, server_id: u64) -> bool {
        let mut leaving = self.clusters.iter().filter_map(|one| one.leaving);
        leaving.any(|one| one.server_id == server_id)
    }

    fn work_at(&self, server_id: u64) -> Vec<Arc<Load>> {
        let services = self.services.iter();
        let shared = services.filter_map(|one| one.service.database.as_ref());
        shared.map(|shared| shared.busy(server_id)).collect()
    }
}

async fn ended(busy: &[Arc<Load>]) {
    while busy.iter().any(|load| load.active() > 0) {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}
