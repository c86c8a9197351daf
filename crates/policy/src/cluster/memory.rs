//! What a cluster was found to be, for the process that takes over: the servers themselves tell the
//! rest again.

use super::fence::Witness;
use super::identity::Identity;
use super::{Cluster, Named, member::Word};

/// What the servers cannot tell a second time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Memory {
    /// The current primary.
    pub primary: Option<u64>,
    /// What its servers belong to, as [`Cluster::memory`] wrote it.
    pub identity: Option<String>,
    /// PostgreSQL: system identifier, highest timeline, and at whom it was seen; once for each of
    /// those.
    pub timelines: Vec<(u64, u32, String)>,
    /// Whom an operator named, while that holds.
    pub named: Option<RememberedName>,
}

/// A name as an operator gave it to another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RememberedName {
    /// The server.
    pub server: u64,
    /// It has claimed since then.
    pub held: bool,
    /// PostgreSQL: the higher timeline that counts no more because of it.
    pub overruled: Option<u32>,
}

impl Cluster {
    /// What is to be remembered of it.
    #[must_use]
    pub fn memory(&self) -> Memory {
        let mut timelines = Vec::new();
        for (system_id, fence) in &self.fences {
            let names = fence.witnesses.iter().map(|witness| witness.name.clone());
            timelines.extend(names.map(|name| (*system_id, fence.timeline, name)));
        }
        Memory {
            primary: self.primary,
            identity: self.identity.as_ref().map(Identity::written),
            timelines,
            named: self.named.map(|named| RememberedName {
                server: named.id,
                held: named.held,
                overruled: named.overruled,
            }),
        }
    }

    /// Takes over what another process knew: old primaries stay fenced, and the primary stays what
    /// it is if it still says so.
    pub fn recall(&mut self, memory: &Memory) {
        for (system_id, timeline, seen_at) in &memory.timelines {
            let mut members = self.members.iter();
            let witness = Witness {
                id: members.find(|one| one.name == *seen_at).map(|one| one.id),
                name: seen_at.clone(),
            };
            self.witness(*system_id, *timeline, witness);
        }
        let identity = memory.identity.as_deref().and_then(Identity::read);
        self.identity = identity.or(self.identity.take());
        self.last_primary = memory.primary.or(self.last_primary);
        let claims = |id: &u64| {
            let member = self.member(*id);
            member.is_some_and(|one| one.word == Word::Said && one.claim.is_some())
        };
        if let Some(primary) = memory.primary.filter(claims) {
            self.seat(Some(primary));
        }
        // Not given anew: what it did not overrule then, it does not overrule now.
        let named = memory.named.map(|name| Named {
            id: name.server,
            held: name.held,
            overruled: name.overruled,
        });
        self.named = named.or(self.named);
        self.decide();
    }
}

impl Identity {
    fn written(&self) -> String {
        match self {
            Identity::Postgres(id) => format!("postgres {id}"),
            Identity::Replication => "replication".to_owned(),
            Identity::Galera(uuid) => format!("galera {uuid}"),
            Identity::Group(name) => format!("group {name}"),
        }
    }

    fn read(text: &str) -> Option<Identity> {
        match text.split_once(' ') {
            None => (text == "replication").then_some(Identity::Replication),
            Some(("postgres", id)) => id.parse().ok().map(Identity::Postgres),
            Some(("galera", uuid)) => Some(Identity::Galera(uuid.to_owned())),
            Some(("group", name)) => Some(Identity::Group(name.to_owned())),
            Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::report::{Galera, GaleraState, Postgres, Report, Said};

    fn cluster() -> Cluster {
        Cluster::new(vec![(1, "db1".to_owned()), (2, "db2".to_owned())])
    }

    fn hear(cluster: &mut Cluster, at_ms: u64, said: impl Fn(u64) -> Said) {
        for server in [1, 2] {
            let report = Report {
                asked_ms: at_ms,
                fresh: true,
                said: said(server),
            };
            cluster.heard(at_ms, server, report);
        }
    }

    fn synced(_: u64) -> Said {
        Said::Galera(Galera {
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

    fn on_timeline(timeline: u32) -> impl Fn(u64) -> Said {
        move |server| {
            Said::Postgres(Postgres {
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
        hear(&mut old, 10, synced);
        old.name_primary(Some(2));
        hear(&mut old, 20, synced);
        hear(&mut old, 30, synced);
        assert_eq!(old.verdict().primary, Some(2));
        let mut new = cluster();
        hear(&mut new, 10, synced);
        hear(&mut new, 20, synced);
        assert_eq!(
            new.verdict().primary,
            Some(1),
            "by the order of the configuration"
        );
        new.recall(&old.memory());
        assert_eq!(new.verdict().primary, Some(2));
    }

    #[test]
    fn an_old_primary_stays_fenced_though_the_newer_one_is_away() {
        let mut old = cluster();
        hear(&mut old, 10, on_timeline(4));
        let mut new = cluster();
        hear(&mut new, 10, on_timeline(3));
        hear(&mut new, 20, on_timeline(3));
        assert_eq!(new.verdict().primary, Some(1));
        new.recall(&old.memory());
        assert_eq!(new.verdict().primary, None);
    }

    #[test]
    fn a_name_that_was_in_vain_does_not_overrule_a_timeline_in_the_next_process() {
        let mut old = cluster();
        let words = [(1, on_timeline(3)(1)), (2, on_timeline(4)(1))];
        for at_ms in [10, 20] {
            for (server, said) in &words {
                let report = Report {
                    asked_ms: at_ms,
                    fresh: true,
                    said: said.clone(),
                };
                old.heard(at_ms, *server, report);
            }
        }
        old.name_primary(Some(1));
        assert_eq!(old.verdict().primary, Some(2));
        old.lost(40, 2);
        assert_eq!(old.verdict().primary, None);
        let mut new = cluster();
        new.lost(10, 2);
        for at_ms in [10, 20] {
            let report = Report {
                asked_ms: at_ms,
                fresh: true,
                said: words[0].1.clone(),
            };
            new.heard(at_ms, 1, report);
        }
        new.recall(&old.memory());
        assert_eq!((new.verdict().primary, new.named()), (None, Some(1)));
    }

    #[test]
    fn what_a_name_overruled_is_still_warned_of_by_the_next_process() {
        let mut old = cluster();
        hear(&mut old, 10, on_timeline(4));
        old.lost(20, 2);
        let said = |cluster: &mut Cluster, at_ms| {
            let report = Report {
                asked_ms: at_ms,
                fresh: true,
                said: on_timeline(3)(1),
            };
            cluster.heard(at_ms, 1, report);
        };
        said(&mut old, 30);
        said(&mut old, 40);
        old.name_primary(Some(1));
        assert_eq!(old.verdict().primary, Some(1));
        let mut new = cluster();
        new.lost(10, 2);
        said(&mut new, 30);
        said(&mut new, 40);
        new.recall(&old.memory());
        let verdict = new.verdict();
        assert_eq!((verdict.primary, new.named()), (Some(1), Some(1)));
        assert_eq!(verdict.problems, old.verdict().problems);
    }

    #[test]
    fn a_timeline_stays_remembered_until_all_have_left_that_were_on_it() {
        let mut old = cluster();
        hear(&mut old, 10, on_timeline(4));
        let known = old.memory();
        let at = |name: &str| (7, 4, name.to_owned());
        assert_eq!(known.timelines, vec![at("db1"), at("db2")]);
        let mut new = cluster();
        new.recall(&known);
        new.set_members(vec![(2, "db2".to_owned())]);
        assert_eq!(new.memory().timelines, vec![at("db2")]);
        new.set_members(vec![(3, "db3".to_owned())]);
        assert_eq!(new.memory().timelines, vec![]);
    }

    #[test]
    fn the_primary_that_was_is_remembered_though_it_is_down() {
        let mut old = cluster();
        hear(&mut old, 10, on_timeline(3));
        hear(&mut old, 20, on_timeline(3));
        let known = old.memory();
        let mut new = cluster();
        new.lost(10, 1);
        new.recall(&known);
        assert_eq!(new.last_primary, Some(1));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let all = [
            Identity::Postgres(7),
            Identity::Replication,
            Identity::Galera("c1".to_owned()),
            Identity::Group("g 1".to_owned()),
        ];
        for identity in all {
            assert_eq!(Identity::read(&identity.written()), Some(identity));
        }
        assert_eq!(Identity::read("of tomorrow"), None);
    }
}
