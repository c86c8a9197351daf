//! Reports to sessions why no server of their service can be used.

use evenkeel_config::plan::Address;
use evenkeel_proxy::server_info::ServersFault;

use super::MonitorTasks;
use crate::control_plane::ControlPlane;
use crate::control_plane::server::FaultKind;

/// Most servers that the reason names.
const NAMED_MAX: usize = 3;

impl MonitorTasks {
    /// Publishes the reason for sessions and for lookups of users.
    fn publish_fault(&self, fault: Option<ServersFault>) {
        let is_news = self.membership.send_if_modified(|membership| {
            let is_news = membership.fault != fault;
            if is_news {
                membership.fault.clone_from(&fault);
            }
            is_news
        });
        if is_news {
            self.server_info.set_fault(fault);
        }
    }
}

impl ControlPlane {
    /// Publishes the faults of the services that list a server. Call after a report about it.
    pub(in crate::control_plane) fn publish_faults(&self, address: &Address) {
        for index in self.servers.listed_by(address) {
            if let Some(monitor_tasks) = self.services[*index].monitor_tasks.as_ref() {
                monitor_tasks.publish_fault(self.fault_of(*index));
            }
        }
    }

    /// Returns why a service has neither a primary nor a replica. `None` if it has one, or as long
    /// as a server has not shown any fault.
    fn fault_of(&self, index: usize) -> Option<ServersFault> {
        let service = &self.services[index];
        let snapshot = service.service.snapshot();
        let assigned = snapshot.database()?;
        if assigned.primary.is_some() || assigned.replicas.contains(&true) {
            return None;
        }
        let (mut reasons, mut kinds, mut others) = (Vec::new(), Vec::new(), 0);
        for listed in &service.plan.servers {
            let state = self.servers.get(&listed.address)?;
            let (kind, why) = state.fault()?;
            kinds.push(kind);
            match reasons.len() < NAMED_MAX {
                true => reasons.push(format!("server {}: {why}", listed.name)),
                false => others += 1,
            }
        }
        if others > 0 {
            reasons.push(format!("{others} more servers"));
        }
        // Next to a fault of the configuration, a server that was never up is no failover.
        let is_lasting =
            kinds.contains(&FaultKind::Lasting) && !kinds.contains(&FaultKind::Passing);
        Some(ServersFault {
            why: reasons.join("; ").into(),
            is_lasting,
        })
    }
}
