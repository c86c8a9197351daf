//! Decides whether a server's role meets the requirements of a service.

use evenkeel_config::plan::{self, Address, Fallback, ServerPlan};
use evenkeel_policy::cluster::Role;

use super::clusters::Clusters;
use super::servers::Servers;
use super::service::ManagedService;

/// Fraction (one fifth) of the lag limit by which a replica must stay below it to be used again.
const LAG_MARGIN: u64 = 5;

/// Use of a live server by a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Eligibility {
    /// The server receives clients.
    Serves,
    /// The server receives clients only while no other server can.
    Reserve,
    /// The server receives no clients, for this reason.
    Unused(String),
}

/// Servers and their roles, as services see them.
#[derive(Clone, Copy)]
pub(super) struct RoleView<'a> {
    pub(super) servers: &'a Servers,
    pub(super) clusters: &'a Clusters,
}

impl RoleView<'_> {
    /// Returns the eligibility of each server of a service, in their order.
    pub(super) fn eligibilities(&self, service: &ManagedService) -> Vec<Eligibility> {
        let listed = service.plan.servers.iter().enumerate();
        listed
            .map(|(index, server)| {
                let eligibility = self.eligibility(service.plan.role, &server.address);
                let was_unused = matches!(
                    service.eligibilities.get(index),
                    Some(Eligibility::Unused(_))
                );
                match self.lag_near_limit(service.plan.role, &server.address) {
                    // Otherwise the replica would be added and removed with every role report.
                    Some(why) if was_unused && eligibility == Eligibility::Serves => {
                        Eligibility::Unused(why)
                    }
                    _ => eligibility,
                }
            })
            .collect()
    }

    /// Returns the servers of a service with their published eligibility.
    pub(super) fn listed<'s>(
        &self,
        service: &'s ManagedService,
    ) -> impl Iterator<Item = (&'s ServerPlan, Eligibility)> {
        let listed = service.plan.servers.iter().enumerate();
        listed.map(|(index, server)| {
            let known = service.eligibilities.get(index).cloned();
            let published =
                known.unwrap_or_else(|| self.eligibility(service.plan.role, &server.address));
            (server, published)
        })
    }

    /// Returns the reason to keep a replica out whose lag is within the limit, but near it.
    fn lag_near_limit(&self, service_role: plan::Role, address: &Address) -> Option<String> {
        let plan::Role::Replica {
            lag_ms_max: Some(max_ms),
            ..
        } = service_role
        else {
            return None;
        };
        let resume_ms = max_ms - max_ms / LAG_MARGIN;
        let server_id = self.servers.get(address)?.server.id;
        match self.clusters.of(address)?.role(server_id) {
            Role::Replica(lag) if lag.ms > Some(resume_ms) => Some(format!(
                "lag exceeded {max_ms} ms; used again below {resume_ms} ms"
            )),
            _ => None,
        }
    }

    /// Returns whether a service currently depends on a server. That includes servers that are down
    /// or whose role is unknown, but neither the primary for reads nor replicas for writes.
    pub(super) fn should_serve(&self, service: &ManagedService, address: &Address) -> bool {
        let cluster = self.clusters.of(address);
        let primary = cluster.and_then(|cluster| cluster.verdict.primary);
        let state = self.servers.get(address);
        let is_primary = state.is_some_and(|state| primary == Some(state.server.id));
        match service.plan.role {
            plan::Role::Any => true,
            plan::Role::Primary { .. } => is_primary || primary.is_none(),
            plan::Role::Replica { .. } => !is_primary,
        }
    }

    /// Returns whether a service routes clients to a server: the server is up and its role fits.
    pub(super) fn serves(&self, (server, eligibility): (&ServerPlan, &Eligibility)) -> bool {
        let takes_clients = self.servers.takes_clients(&server.address);
        takes_clients && !matches!(eligibility, Eligibility::Unused(_))
    }

    fn eligibility(&self, service_role: plan::Role, address: &Address) -> Eligibility {
        if service_role == plan::Role::Any {
            return Eligibility::Serves;
        }
        let state = self.servers.get(address);
        let role = state
            .zip(self.clusters.of(address))
            .map_or(&Role::Unknown, |(state, cluster)| {
                cluster.role(state.server.id)
            });
        match role {
            Role::Unknown => Eligibility::Unused("role unknown".to_owned()),
            Role::Unfit(why) => Eligibility::Unused(why.clone()),
            Role::Spare(why) => spare_fits(service_role, why),
            Role::Primary => primary_fits(service_role),
            Role::Replica(lag) => replica_fits(service_role, lag.ms),
        }
    }
}

fn primary_fits(service_role: plan::Role) -> Eligibility {
    match service_role {
        plan::Role::Any | plan::Role::Primary { .. } => Eligibility::Serves,
        plan::Role::Replica {
            fallback: Fallback::Primary,
            ..
        } => Eligibility::Reserve,
        plan::Role::Replica { .. } => Eligibility::Unused("server is the primary".to_owned()),
    }
}

/// A spare's lag is unknown, so it is used only without a lag limit.
fn spare_fits(service_role: plan::Role, why: &str) -> Eligibility {
    match service_role {
        plan::Role::Replica {
            lag_ms_max: None, ..
        } => Eligibility::Reserve,
        _ => Eligibility::Unused(why.to_owned()),
    }
}

fn replica_fits(service_role: plan::Role, lag_ms: Option<u64>) -> Eligibility {
    match service_role {
        plan::Role::Any => Eligibility::Serves,
        plan::Role::Primary { .. } => Eligibility::Unused("server is a replica".to_owned()),
        plan::Role::Replica {
            lag_ms_max: None, ..
        } => Eligibility::Serves,
        plan::Role::Replica {
            lag_ms_max: Some(max_ms),
            ..
        } => match lag_ms {
            Some(lag_ms) if lag_ms <= max_ms => Eligibility::Serves,
            // The lag itself is left out, since it changes with every report, and changed reasons
            // are reported.
            Some(_) => Eligibility::Unused(format!("lag exceeds {max_ms} ms")),
            None => Eligibility::Unused("lag unknown".to_owned()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(lag_ms_max: Option<u64>) -> plan::Role {
        plan::Role::Replica {
            lag_ms_max,
            fallback: Fallback::Nobody,
        }
    }

    #[test]
    fn a_lag_up_to_the_limit_fits() {
        assert_eq!(
            replica_fits(replica(Some(500)), Some(500)),
            Eligibility::Serves
        );
        assert_ne!(
            replica_fits(replica(Some(500)), Some(501)),
            Eligibility::Serves
        );
    }

    #[test]
    fn an_unknown_lag_fits_only_where_no_limit_is_set() {
        assert_eq!(replica_fits(replica(None), None), Eligibility::Serves);
        assert_ne!(
            replica_fits(replica(Some(86_400_000)), None),
            Eligibility::Serves
        );
    }

    #[test]
    fn a_spare_serves_reads_where_no_limit_is_set() {
        assert_eq!(spare_fits(replica(None), "a donor"), Eligibility::Reserve);
        let unused = Eligibility::Unused("a donor".to_owned());
        assert_eq!(spare_fits(replica(Some(500)), "a donor"), unused);
    }

    #[test]
    fn the_primary_serves_reads_only_where_it_is_told_to() {
        let primary_fallback = plan::Role::Replica {
            lag_ms_max: None,
            fallback: Fallback::Primary,
        };
        assert_eq!(primary_fits(primary_fallback), Eligibility::Reserve);
        assert!(matches!(
            primary_fits(replica(None)),
            Eligibility::Unused(_)
        ));
    }
}
