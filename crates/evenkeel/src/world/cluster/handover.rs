//! One node of Galera takes the writes over from another that goes on: what is under way there ends
//! first, so that nobody is cut for it.

use std::sync::Arc;
use std::time::Duration;

use evenkeel_policy::Load;
use evenkeel_policy::cluster::{Lag, Role, Verdict};

use super::ClusterState;
use crate::world::World;
use crate::world::probing::Report;

/// New work waits for that at most so long; then who is still there is cut.
const LIMIT: Duration = Duration::from_millis(300);

const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The next primary has what the others have, and serves reads as before.
const READS: Role = Role::Replica(Lag {
    ms: Some(0),
    bytes: None,
});

impl ClusterState {
    /// What a member does for services that speak its protocol.
    pub(in crate::world) fn duty(&self, server_id: u64) -> &Role {
        match self.role(server_id) {
            Role::Primary if self.leaving.is_some() => &READS,
            role => role,
        }
    }
}

impl World {
    /// Begins a handover, or sees that one is over: to be called when the verdict has changed, and
    /// before anybody is told.
    pub(super) fn hand_over(&mut self, index: usize, old: &Verdict) {
        let cluster = &self.clusters[index];
        let primary = cluster.verdict.primary;
        let may_finish = |id| primary != Some(id) && cluster.cluster.may_finish(id);
        let former = cluster.leaving.or(old.primary).filter(|id| may_finish(*id));
        let begins = former.is_some() && cluster.leaving.is_none();
        self.clusters[index].leaving = former;
        if let (true, Some(former)) = (begins, former) {
            let busy = self.work_at(former);
            let reports = self.reports.0.clone();
            tokio::spawn(async move {
                let _ = tokio::time::timeout(LIMIT, ended(busy)).await;
                // The world is gone only when the process ends.
                let _ = reports.send(Report::Left(former)).await;
            });
        }
    }

    /// Nothing is under way at a former primary, or it has had its time.
    pub(in crate::world) fn has_left(&mut self, server_id: u64) {
        for cluster in &mut self.clusters {
            if cluster.leaving == Some(server_id) {
                cluster.leaving = None;
            }
        }
        self.brief();
    }

    /// Whether what is under way at a service's former primary may still end.
    pub(in crate::world) fn is_leaving(&self, server_id: u64) -> bool {
        let mut clusters = self.clusters.iter();
        clusters.any(|cluster| cluster.leaving == Some(server_id))
    }

    fn work_at(&self, server_id: u64) -> Vec<Arc<Load>> {
        let services = self.services.iter();
        let shared = services.filter_map(|one| one.service.database.as_ref());
        shared.map(|shared| shared.busy(server_id)).collect()
    }
}

async fn ended(busy: Vec<Arc<Load>>) {
    while busy.iter().any(|load| load.active() > 0) {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}
