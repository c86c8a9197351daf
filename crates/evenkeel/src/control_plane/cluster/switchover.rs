//! Moves writes from one live Galera node to another: active work on the old one finishes first, so
//! that no session is terminated.

use std::sync::Arc;
use std::time::Duration;

use evenkeel_policy::Load;
use evenkeel_policy::cluster::{ClusterRoles, Lag, Role};
use evenkeel_proxy::record::CutReason;

use super::ManagedCluster;
use crate::control_plane::ControlPlane;
use crate::control_plane::monitor_event::MonitorEvent;

/// Longest time that new work waits for active work to finish. Sessions still busy then are
/// terminated.
const LIMIT: Duration = Duration::from_millis(300);

/// Longest wait for terminated sessions to end their work, so that no write is acknowledged to them
/// after the next primary's first response. After this limit the next primary serves anyway.
const CUT_LIMIT: Duration = Duration::from_millis(100);

const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Role of the next primary during the switchover: it is up to date and keeps serving reads.
const READS: Role = Role::Replica(Lag {
    ms: Some(0),
    bytes: None,
});

/// Former primary at which active work is finishing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::control_plane) struct Switchover {
    server_id: u64,
    /// Number of the switchover, since a server may have several.
    number: u64,
}

impl ManagedCluster {
    /// Returns the role that a member has for services of its database protocol.
    pub(in crate::control_plane) fn effective_role(&self, server_id: u64) -> &Role {
        let is_source = |one: Switchover| one.server_id == server_id;
        match (self.switchover, self.role(server_id)) {
            // New reads would keep the server busy, and would be terminated with the others.
            (Some(switchover), _) if is_source(switchover) => &Role::Unknown,
            (Some(_), Role::Primary) => &READS,
            (_, role) => role,
        }
    }

    /// Begins a switchover, or detects that one is over. Returns one that begins. Call after a
    /// change of the roles.
    pub(super) fn start_switchover(&mut self, old: &ClusterRoles) -> Option<Switchover> {
        let primary = self.verdict.primary;
        let may_finish = |id| primary != Some(id) && self.cluster.may_finish(id);
        if let Some(switchover) = self.switchover {
            self.switchover = Some(switchover).filter(|one| may_finish(one.server_id));
            return None;
        }
        let former = old.primary.filter(|id| may_finish(*id));
        self.switchovers += u64::from(former.is_some());
        self.switchover = former.map(|server_id| Switchover {
            server_id,
            number: self.switchovers,
        });
        self.switchover
    }

    /// Ends a switchover, if it is the current one.
    pub(in crate::control_plane) fn end_switchover(&mut self, switchover: Switchover) {
        self.switchover = self.switchover.filter(|one| *one != switchover);
    }

    /// Returns whether active work at a former primary may still finish.
    pub(in crate::control_plane) fn is_switching_over(&self, server_id: u64) -> bool {
        self.switchover
            .is_some_and(|one| one.server_id == server_id)
    }
}

impl ControlPlane {
    /// Waits in a task of its own until the former primary of a switchover has no active work.
    pub(super) fn start_switchover(&self, switchover: Switchover) {
        let services = self.services.iter();
        let shared = services.filter_map(|one| one.service.database());
        let loads: Vec<_> = shared
            .map(|shared| shared.server_load(switchover.server_id))
            .collect();
        let reports = self.reports.0.clone();
        tokio::spawn(async move {
            // The receiver is dropped only when the process ends.
            if tokio::time::timeout(LIMIT, wait_until_idle(&loads))
                .await
                .is_err()
            {
                let _ = reports
                    .send(MonitorEvent::SwitchoverExpired(switchover))
                    .await;
                let _ = tokio::time::timeout(CUT_LIMIT, wait_until_idle(&loads)).await;
            }
            let _ = reports
                .send(MonitorEvent::SwitchoverEnded(switchover))
                .await;
        });
    }

    /// Terminates the sessions that are still busy after the limit.
    pub(in crate::control_plane) fn cut_expired_switchover(&self, switchover: Switchover) {
        if !self.clusters.is_switching_over(switchover.server_id) {
            return;
        }
        let server_id = Some(switchover.server_id);
        for service in self.services.iter().filter(|one| one.primary == server_id) {
            let service_id = Some(service.service.id);
            self.data_plane
                .cut(service_id, server_id, CutReason::PrimaryChanged);
        }
    }
}

async fn wait_until_idle(loads: &[Arc<Load>]) {
    while loads.iter().any(|load| load.active() > 0) {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
