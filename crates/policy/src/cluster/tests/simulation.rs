//! Seeded histories: servers crash, are promoted and become isolated; replies are late, reordered
//! and lost.
//!
//! After every event the result is checked against laws. Now and then, when all servers have
//! reported, it is compared with a second implementation of the rules, applied to the servers' real
//! state. A failure prints its seed; `CLUSTER_SEED=n cargo test -p evenkeel-policy
//! cluster::tests::simulation` repeats it.

use crate::cluster::report::ReplicationState;
use crate::cluster::{Cluster, ClusterRoles, Role, RoleReport};

mod truth;

use truth::{Kind, Truth, agrees, claims, is_synced, replicates, who};

const SEEDS: u64 = 1_200;
const STEPS: u64 = 250;

#[test]
fn in_any_history_the_laws_hold_and_the_truth_is_found() {
    if let Ok(seed) = std::env::var("CLUSTER_SEED") {
        return run(seed.parse().expect("CLUSTER_SEED is a number"));
    }
    (0..SEEDS).for_each(run);
}

fn run(seed: u64) {
    let _shown = SeedOnPanic(seed);
    let mut monitor = Monitor::new(seed);
    for _ in 0..STEPS {
        monitor.step();
    }
    let chosen = monitor.random.below(monitor.truth.servers.len() as u64) as usize;
    monitor.truth.heal(chosen);
    monitor.hear_all();
    let roles = monitor.cluster.roles();
    let healthy = monitor.right();
    assert_eq!(healthy.len(), 1);
    assert_eq!(roles.primary, Some(healthy[0] as u64), "{roles:#?}");
}

struct SeedOnPanic(u64);

impl Drop for SeedOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("CLUSTER_SEED={}", self.0);
        }
    }
}

pub(super) struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % end
    }
}

/// Query in progress; the server replies with its state at the time of the query.
struct Question {
    server: usize,
    queried_ms: u64,
    fresh: bool,
    answer: Option<ReplicationState>,
}

/// State of a server that the laws need, implemented a second time.
#[derive(Default)]
struct Memory {
    /// Newest reply by the time of its query; `None` after a failure.
    last: Option<ReplicationState>,
    last_ms: u64,
    /// Time when its uninterrupted claim was first received.
    claimed_ms: Option<u64>,
    verified: bool,
    /// True if it was the primary during that claim.
    held: bool,
    mute: bool,
    spoke: bool,
    /// Time since which it takes writes and replicates from no server; a failure does not end that.
    writing_ms: Option<u64>,
}

/// Last primary: server, start of its claim, last report.
type Last = (usize, u64, ReplicationState);

struct Monitor {
    random: Random,
    truth: Truth,
    now_ms: u64,
    questions: Vec<Question>,
    cluster: Cluster,
    /// Cluster with the same members in another order: it must decide alike where order is
    /// irrelevant.
    reversed: Cluster,
    memory: Vec<Memory>,
    named: bool,
    timeline_heard: u32,
    last: Option<Last>,
}

impl Monitor {
    fn new(seed: u64) -> Monitor {
        let mut random = Random(seed);
        let kinds = [Kind::Postgres, Kind::Replication, Kind::Galera, Kind::Group];
        let kind = kinds[(seed % 4) as usize];
        let count = 2 + random.below(3);
        let members: Vec<(u64, String)> = (0..count).map(|id| (id, format!("db{id}"))).collect();
        Monitor {
            random,
            truth: Truth::new(kind, count as usize),
            now_ms: 1,
            questions: Vec::new(),
            cluster: Cluster::new(members.clone()),
            reversed: Cluster::new(members.into_iter().rev().collect()),
            memory: (0..count).map(|_| Memory::default()).collect(),
            named: false,
            timeline_heard: 0,
            last: None,
        }
    }

    fn step(&mut self) {
        self.now_ms += self.random.below(50);
        match self.random.below(20) {
            0..=2 => self.truth.step(&mut self.random),
            3..=10 => self.ask_somebody(),
            11..=18 if !self.questions.is_empty() => {
                let index = self.random.below(self.questions.len() as u64) as usize;
                let question = self.questions.swap_remove(index);
                self.deliver(question);
            }
            19 if self.random.below(8) == 0 => self.name_somebody(),
            19 if self.random.below(6) == 0 => self.somebody_cannot_tell(),
            19 if self.random.below(6) == 0 => self.hear_all(),
            _ => {}
        }
    }

    /// Queries a server: usually one that must be verified; not always over a fresh connection.
    fn ask_somebody(&mut self) {
        let verify = self.cluster.roles().verify;
        let any = self.random.below(self.truth.servers.len() as u64) as usize;
        let server = match verify.first() {
            Some(&wanted) if self.random.below(3) != 0 => wanted as usize,
            _ => any,
        };
        let fresh = self.random.below(2) == 0;
        self.ask(server, fresh);
    }

    fn ask(&mut self, server: usize, fresh: bool) {
        let heard = self.truth.is_heard(server);
        let answer = heard.then(|| self.truth.servers[server].status.clone());
        self.questions.push(Question {
            server,
            queried_ms: self.now_ms,
            fresh,
            answer,
        });
    }

    fn deliver(&mut self, question: Question) {
        let before = self.cluster.roles();
        let id = question.server as u64;
        let memory = &mut self.memory[question.server];
        memory.spoke = true;
        match question.answer {
            None => {
                memory.lose(self.now_ms);
                self.both(|cluster, now_ms| cluster.server_down(now_ms, id));
            }
            Some(status) => {
                let report = RoleReport {
                    queried_ms: question.queried_ms,
                    fresh: question.fresh,
                    status,
                };
                if memory.receive(self.now_ms, &report)
                    && let ReplicationState::Postgres(status) = &report.status
                {
                    self.timeline_heard = self.timeline_heard.max(status.timeline);
                }
                self.both(|cluster, now_ms| cluster.report_received(now_ms, id, report.clone()));
            }
        }
        self.check(&before);
    }

    fn both(&mut self, act: impl Fn(&mut Cluster, u64)) {
        act(&mut self.cluster, self.now_ms);
        act(&mut self.reversed, self.now_ms);
    }

    fn name_somebody(&mut self) {
        let before = self.cluster.roles();
        let any = self.random.below(self.truth.servers.len() as u64 + 1);
        let named = (any < self.truth.servers.len() as u64).then_some(any);
        self.named = named.is_some();
        if let Some(named) = named {
            self.overrule(named as usize);
        }
        self.both(|cluster, _| cluster.override_primary(named));
        self.check(&before);
    }

    /// Restores the timeline of a claiming server by an override, if no server is above it.
    fn overrule(&mut self, named: usize) {
        let timeline = |memory: &Memory| match &memory.last {
            Some(ReplicationState::Postgres(status)) => {
                Some((status.timeline, claims(memory.last.as_ref()?)))
            }
            _ => None,
        };
        let Some((own, true)) = timeline(&self.memory[named]) else {
            return;
        };
        let mut all = self.memory.iter().filter_map(timeline);
        let is_undisputed = all.all(|(timeline, _)| timeline <= own);
        if is_undisputed && self.memory.iter().all(|one| one.spoke) {
            self.timeline_heard = own;
        }
    }

    /// Queries every server twice without other events; then the decision must be right.
    fn hear_all(&mut self) {
        self.named = false;
        self.both(|cluster, _| cluster.override_primary(None));
        while let Some(question) = self.questions.pop() {
            self.deliver(question);
        }
        for _round in 0..3 {
            for server in 0..self.truth.servers.len() {
                self.now_ms += 1;
                self.ask(server, true);
                let question = self.questions.pop().expect("just asked");
                self.now_ms += 1;
                self.deliver(question);
            }
        }
        let roles = self.cluster.roles();
        let right = self.right();
        assert!(agrees(&roles, &right), "right is {right:?}: {roles:#?}");
        assert!(roles.verify.is_empty(), "all were asked twice: {roles:?}");
        assert!(
            roles.primary.is_some() || !roles.problems.is_empty(),
            "nobody is the primary, silently"
        );
    }

    fn right(&self) -> Vec<usize> {
        let held: Vec<bool> = self.memory.iter().map(|one| one.held).collect();
        let primary = self.cluster.roles().primary;
        let superseded: Vec<usize> = (0..held.len())
            .filter(|&one| self.is_outdone(one))
            .collect();
        self.truth
            .right(self.timeline_heard, (&held, &superseded), primary)
    }

    /// Returns whether the last primary, which is unavailable, began to take writes after this
    /// server and reported more.
    fn is_outdone(&self, one: usize) -> bool {
        let Some((last, since_ms, reported)) = &self.last else {
            return false;
        };
        let is_before = self.memory[one]
            .writing_ms
            .is_some_and(|own_ms| own_ms < *since_ms);
        let lacks = match (reported, &self.truth.servers[one].status) {
            (ReplicationState::Replication(reported), ReplicationState::Replication(own)) => {
                !own.executed.contains(&reported.executed)
            }
            _ => false,
        };
        *last != one && !self.truth.is_heard(*last) && is_before && lacks
    }

    /// Simulates a missing privilege; the current primary stays trusted.
    fn somebody_cannot_tell(&mut self) {
        let before = self.cluster.roles();
        let id = self.random.below(self.truth.servers.len() as u64);
        let memory = &mut self.memory[id as usize];
        (memory.spoke, memory.mute) = (true, true);
        if before.primary != Some(id) {
            memory.lose(memory.last_ms);
        }
        self.both(|cluster, _| cluster.role_unknown(id, "odd".to_owned()));
        self.check(&before);
    }

    fn check(&mut self, before: &ClusterRoles) {
        let roles = self.cluster.roles();
        check_form(&roles);
        self.cluster.set_members(
            (0..self.memory.len() as u64)
                .map(|id| (id, format!("db{id}")))
                .collect(),
        );
        assert_eq!(
            roles,
            self.cluster.roles(),
            "deciding again changes the decision"
        );
        let ordered = matches!(self.truth.kind, Kind::Galera | Kind::Group);
        if !ordered {
            let other = self.reversed.roles();
            assert_eq!(
                roles.primary, other.primary,
                "the order of the members counts"
            );
        }
        let Some(primary) = roles.primary else {
            return;
        };
        let memory = &self.memory[primary as usize];
        let last = memory
            .last
            .as_ref()
            .expect("a primary that was lost or never heard");
        assert!(claims(last), "a primary that takes no writes");
        let is_of_one_run = matches!(
            last,
            ReplicationState::Postgres(_) | ReplicationState::Galera(_)
        );
        assert!(memory.verified || !is_of_one_run, "another run of it");
        if let ReplicationState::Postgres(status) = last {
            assert!(status.timeline >= self.timeline_heard, "a lower timeline");
        }
        let (last, claimed_ms) = (last.clone(), memory.claimed_ms);
        self.last = claimed_ms.map(|claimed_ms| (primary as usize, claimed_ms, last));
        if before.primary != Some(primary) {
            self.check_new(primary, before);
            self.memory[primary as usize].held = true;
        }
    }

    fn check_new(&self, primary: u64, before: &ClusterRoles) {
        assert!(
            self.memory[primary as usize].verified,
            "an unverified claim"
        );
        assert!(
            self.memory.iter().all(|one| one.spoke),
            "not all have been heard"
        );
        let old = before.primary.map(|old| &self.memory[old as usize]);
        let old = old.filter(|old| !old.mute && old.verified);
        let old_said = old.and_then(|old| old.last.as_ref());
        let old_writes = old_said.is_some_and(|status| claims(status) && is_synced(status));
        if self.truth.kind == Kind::Galera && !self.named {
            assert!(!old_writes, "a change without need");
        }
    }
}

impl Memory {
    fn lose(&mut self, now_ms: u64) {
        (self.last, self.last_ms, self.mute) = (None, now_ms, false);
        (self.claimed_ms, self.verified, self.held) = (None, false, false);
    }

    /// Applies a report; false if it is too old to count.
    fn receive(&mut self, now_ms: u64, report: &RoleReport) -> bool {
        if report.queried_ms < self.last_ms {
            return false;
        }
        let changed = self.last.as_ref().map(who) != Some(who(&report.status));
        if !claims(&report.status) || changed {
            (self.claimed_ms, self.verified, self.held) = (None, false, false);
        }
        let writes = claims(&report.status) && !replicates(&report.status);
        self.writing_ms = writes.then(|| self.writing_ms.unwrap_or(now_ms));
        match (claims(&report.status), self.claimed_ms) {
            (false, _) => {}
            (true, None) => self.claimed_ms = Some(now_ms),
            (true, Some(claimed_ms)) => {
                self.verified |= report.fresh && report.queried_ms >= claimed_ms;
            }
        }
        (self.last, self.last_ms) = (Some(report.status.clone()), report.queried_ms);
        self.mute = false;
        true
    }
}

/// Checks that each member has one role, in order, and that at most one is the primary, the one in
/// the result.
fn check_form(roles: &ClusterRoles) {
    let ids: Vec<u64> = roles.roles.iter().map(|(id, _)| *id).collect();
    assert_eq!(ids, (0..ids.len() as u64).collect::<Vec<_>>());
    let primaries: Vec<u64> = roles
        .roles
        .iter()
        .filter(|(_, role)| *role == Role::Primary)
        .map(|(id, _)| *id)
        .collect();
    assert_eq!(primaries, roles.primary.into_iter().collect::<Vec<_>>());
}
