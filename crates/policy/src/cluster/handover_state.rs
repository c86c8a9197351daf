//! Transfers the state of a cluster to the process that takes over; the servers report the rest
//! again.

use super::fence::TimelineHolder;
use super::identity::ClusterIdentity;
use super::{Cluster, PrimaryOverride, member::LastReport};

/// State that the servers cannot report again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HandoverState {
    /// Current primary.
    pub primary: Option<u64>,
    /// Identity of the cluster, as [`Cluster::handover_state`] wrote it.
    pub identity: Option<String>,
    /// PostgreSQL: system identifier, highest timeline, and a server that was on it; one entry for
    /// each such server.
    pub timelines: Vec<(u64, u32, String)>,
    /// Override of the operator, while it holds.
    pub selected: Option<HandedOverOverride>,
}

/// Override that was set in another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandedOverOverride {
    /// Server of the override.
    pub server: u64,
    /// True if the server has claimed since then.
    pub held: bool,
    /// PostgreSQL: the higher timeline that the override disregards.
    pub overridden_timeline: Option<u32>,
}

impl Cluster {
    /// Returns the state to hand over.
    #[must_use]
    pub fn handover_state(&self) -> HandoverState {
        let mut timelines = Vec::new();
        for (system_id, fence) in &self.fences {
            let names = fence.witnesses.iter().map(|witness| witness.name.clone());
            timelines.extend(names.map(|name| (*system_id, fence.timeline, name)));
        }
        HandoverState {
            primary: self.primary,
            identity: self.identity.as_ref().map(ClusterIdentity::to_text),
            timelines,
            selected: self.selected.map(|selected| HandedOverOverride {
                server: selected.id,
                held: selected.held,
                overridden_timeline: selected.overridden_timeline,
            }),
        }
    }

    /// Restores the state of another process: old primaries remain fenced, and the primary remains
    /// if it still claims.
    pub fn restore(&mut self, state: &HandoverState) {
        for (system_id, timeline, seen_at) in &state.timelines {
            let mut members = self.members.iter();
            let witness = TimelineHolder {
                id: members.find(|one| one.name == *seen_at).map(|one| one.id),
                name: seen_at.clone(),
            };
            self.add_witness(*system_id, *timeline, witness);
        }
        let identity = state.identity.as_deref().and_then(ClusterIdentity::parse);
        self.identity = identity.or(self.identity.take());
        self.last_primary = state.primary.or(self.last_primary);
        let claims = |id: &u64| {
            let member = self.member(*id);
            member.is_some_and(|one| one.last_report == LastReport::Received && one.claim.is_some())
        };
        if let Some(primary) = state.primary.filter(claims) {
            self.set_primary(Some(primary));
        }
        // The override is not set again: a timeline that it did not disregard then stays in force.
        let selected = state.selected.map(|name| PrimaryOverride {
            id: name.server,
            held: name.held,
            overridden_timeline: name.overridden_timeline,
        });
        self.selected = selected.or(self.selected);
        self.decide();
    }
}

impl ClusterIdentity {
    fn to_text(&self) -> String {
        match self {
            ClusterIdentity::Postgres(id) => format!("postgres {id}"),
            ClusterIdentity::Replication => "replication".to_owned(),
            ClusterIdentity::Galera(uuid) => format!("galera {uuid}"),
            ClusterIdentity::Group(name) => format!("group {name}"),
        }
    }

    fn parse(text: &str) -> Option<ClusterIdentity> {
        match text.split_once(' ') {
            None => (text == "replication").then_some(ClusterIdentity::Replication),
            Some(("postgres", id)) => id.parse().ok().map(ClusterIdentity::Postgres),
            Some(("galera", uuid)) => Some(ClusterIdentity::Galera(uuid.to_owned())),
            Some(("group", name)) => Some(ClusterIdentity::Group(name.to_owned())),
            Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::report::{Galera, GaleraState, Postgres, ReplicationState, RoleReport};

    fn cluster() -> Cluster {
        Cluster::new(vec![(1, "db1".to_owned()), (2, "db2".to_owned())])
    }

    fn receive(cluster: &mut Cluster, at_ms: u64, status: impl Fn(u64) -> ReplicationState) {
        for server in [1, 2] {
            let report = RoleReport {
                queried_ms: at_ms,
                fresh: true,
                status: status(server),
            };
            cluster.report_received(at_ms, server, report);
        }
    }

    fn synced(_: u64) -> ReplicationState {
        ReplicationState::Galera(Galera {
            server_identity: "uuid".to_owned(),
            cluster_uuid: "c1".to_owned(),
            in_primary_component: true,
            state: GaleraState::Synced,
            ready: true,
            set_aside: false,
            read_only: false,
            receive_queue: 0,
            causal: true,
        })
    }

    fn on_timeline(timeline: u32) -> impl Fn(u64) -> ReplicationState {
        move |server| {
            ReplicationState::Postgres(Postgres {
                system_id: 7,
                started: "1".to_owned(),
                timeline,
                in_recovery: server != 1,
                lsn: 100,
                streaming: true,
                replay_age_ms: Some(0),
                read_only_by_default: false,
            })
        }
    }

    #[test]
    fn a_galera_writer_stays_the_writer() {
        let mut old = cluster();
        receive(&mut old, 10, synced);
        old.override_primary(Some(2));
        receive(&mut old, 20, synced);
        receive(&mut old, 30, synced);
        assert_eq!(old.roles().primary, Some(2));
        let mut new = cluster();
        receive(&mut new, 10, synced);
        receive(&mut new, 20, synced);
        assert_eq!(
            new.roles().primary,
            Some(1),
            "by the order of the configuration"
        );
        new.restore(&old.handover_state());
        assert_eq!(new.roles().primary, Some(2));
    }

    #[test]
    fn an_old_primary_stays_fenced_though_the_newer_one_is_away() {
        let mut old = cluster();
        receive(&mut old, 10, on_timeline(4));
        let mut new = cluster();
        receive(&mut new, 10, on_timeline(3));
        receive(&mut new, 20, on_timeline(3));
        assert_eq!(new.roles().primary, Some(1));
        new.restore(&old.handover_state());
        assert_eq!(new.roles().primary, None);
    }

    #[test]
    fn a_name_that_was_in_vain_does_not_overrule_a_timeline_in_the_next_process() {
        let mut old = cluster();
        let words = [(1, on_timeline(3)(1)), (2, on_timeline(4)(1))];
        for at_ms in [10, 20] {
            for (server, status) in &words {
                let report = RoleReport {
                    queried_ms: at_ms,
                    fresh: true,
                    status: status.clone(),
                };
                old.report_received(at_ms, *server, report);
            }
        }
        old.override_primary(Some(1));
        assert_eq!(old.roles().primary, Some(2));
        old.server_down(40, 2);
        assert_eq!(old.roles().primary, None);
        let mut new = cluster();
        new.server_down(10, 2);
        for at_ms in [10, 20] {
            let report = RoleReport {
                queried_ms: at_ms,
                fresh: true,
                status: words[0].1.clone(),
            };
            new.report_received(at_ms, 1, report);
        }
        new.restore(&old.handover_state());
        assert_eq!(
            (new.roles().primary, new.selected_primary()),
            (None, Some(1))
        );
    }

    #[test]
    fn what_a_name_overruled_is_still_warned_of_by_the_next_process() {
        let mut old = cluster();
        receive(&mut old, 10, on_timeline(4));
        old.server_down(20, 2);
        let status = |cluster: &mut Cluster, at_ms| {
            let report = RoleReport {
                queried_ms: at_ms,
                fresh: true,
                status: on_timeline(3)(1),
            };
            cluster.report_received(at_ms, 1, report);
        };
        status(&mut old, 30);
        status(&mut old, 40);
        old.override_primary(Some(1));
        assert_eq!(old.roles().primary, Some(1));
        let mut new = cluster();
        new.server_down(10, 2);
        status(&mut new, 30);
        status(&mut new, 40);
        new.restore(&old.handover_state());
        let roles = new.roles();
        assert_eq!((roles.primary, new.selected_primary()), (Some(1), Some(1)));
        assert_eq!(roles.problems, old.roles().problems);
    }

    #[test]
    fn a_timeline_stays_remembered_until_all_have_left_that_were_on_it() {
        let mut old = cluster();
        receive(&mut old, 10, on_timeline(4));
        let known = old.handover_state();
        let at = |name: &str| (7, 4, name.to_owned());
        assert_eq!(known.timelines, vec![at("db1"), at("db2")]);
        let mut new = cluster();
        new.restore(&known);
        new.set_members(vec![(2, "db2".to_owned())]);
        assert_eq!(new.handover_state().timelines, vec![at("db2")]);
        new.set_members(vec![(3, "db3".to_owned())]);
        assert_eq!(new.handover_state().timelines, vec![]);
    }

    #[test]
    fn the_primary_that_was_is_remembered_though_it_is_down() {
        let mut old = cluster();
        receive(&mut old, 10, on_timeline(3));
        receive(&mut old, 20, on_timeline(3));
        let known = old.handover_state();
        let mut new = cluster();
        new.server_down(10, 1);
        new.restore(&known);
        assert_eq!(new.last_primary, Some(1));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let all = [
            ClusterIdentity::Postgres(7),
            ClusterIdentity::Replication,
            ClusterIdentity::Galera("c1".to_owned()),
            ClusterIdentity::Group("g 1".to_owned()),
        ];
        for identity in all {
            assert_eq!(ClusterIdentity::parse(&identity.to_text()), Some(identity));
        }
        assert_eq!(ClusterIdentity::parse("of tomorrow"), None);
    }
}
