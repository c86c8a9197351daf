//! Tests of the rules: reports, and the resulting decisions.

use super::report::{
    Galera, GaleraState, Group, MemberState, Postgres, Receiver, ReplicaThreads, Replication,
    ReplicationState,
};
use super::{Cluster, ClusterRoles, Gtids, Lag, Role, RoleReport};

mod galera;
mod general;
mod group;
mod postgres;
mod replication;
mod simulation;

/// Cluster of db1, db2, … (1, 2, …) with a clock.
#[derive(Clone)]
struct Bench {
    cluster: Cluster,
    now_ms: u64,
}

impl Bench {
    fn new(count: u64) -> Bench {
        let members = (1..=count).map(|id| (id, format!("db{id}"))).collect();
        Bench {
            cluster: Cluster::new(members),
            now_ms: 1_000,
        }
    }

    /// Reports over an old connection, a second later.
    fn report(&mut self, id: u64, status: impl Into<ReplicationState>) -> ClusterRoles {
        self.apply(id, status.into(), false)
    }

    /// Reports over a new connection, a second later.
    fn report_on_new_connection(
        &mut self,
        id: u64,
        status: impl Into<ReplicationState>,
    ) -> ClusterRoles {
        self.apply(id, status.into(), true)
    }

    /// Reports for every server twice, the second time over new connections, in this order.
    fn report_all_twice<S: Into<ReplicationState> + Clone>(
        &mut self,
        reports: &[(u64, S)],
    ) -> ClusterRoles {
        for (id, status) in reports {
            self.report(*id, status.clone());
        }
        for (id, status) in reports {
            self.report_on_new_connection(*id, status.clone());
        }
        self.cluster.roles()
    }

    /// Reports over an old connection, `ms` later.
    fn report_after(
        &mut self,
        ms: u64,
        id: u64,
        status: impl Into<ReplicationState>,
    ) -> ClusterRoles {
        self.apply_after(ms, id, status.into(), false)
    }

    fn apply(&mut self, id: u64, status: ReplicationState, fresh: bool) -> ClusterRoles {
        self.apply_after(1_000, id, status, fresh)
    }

    fn apply_after(
        &mut self,
        ms: u64,
        id: u64,
        status: ReplicationState,
        fresh: bool,
    ) -> ClusterRoles {
        self.now_ms += ms;
        let report = RoleReport {
            queried_ms: self.now_ms - 1,
            fresh,
            status,
        };
        self.cluster.report_received(self.now_ms, id, report);
        self.cluster.roles()
    }

    fn server_down(&mut self, id: u64) -> ClusterRoles {
        self.now_ms += 1_000;
        self.cluster.server_down(self.now_ms, id);
        self.cluster.roles()
    }

    fn role_unknown(&mut self, id: u64) -> ClusterRoles {
        self.now_ms += 1_000;
        let why = "the account lacks REPLICATION CLIENT".to_owned();
        self.cluster.role_unknown(id, why);
        self.cluster.roles()
    }

    fn override_primary(&mut self, id: u64) -> ClusterRoles {
        self.now_ms += 1_000;
        self.cluster.override_primary(Some(id));
        self.cluster.roles()
    }
}

fn role(roles: &ClusterRoles, id: u64) -> &Role {
    let mut all = roles.roles.iter();
    &all.find(|(one, _)| *one == id).expect("a member").1
}

#[track_caller]
fn assert_unfit(roles: &ClusterRoles, id: u64, because: &str) {
    match role(roles, id) {
        Role::Unfit(why) => assert!(why.contains(because), "{why}"),
        other => panic!("db{id} is {other:?}, not unfit because {because:?}"),
    }
}

#[track_caller]
fn assert_problem(roles: &ClusterRoles, id: Option<u64>, about: &str) {
    let mut problems = roles.problems.iter();
    let found = problems.any(|one| one.server == id && one.message.contains(about));
    assert!(
        found,
        "nothing of {id:?} about {about:?} in {:#?}",
        roles.problems
    );
}

#[track_caller]
fn assert_replica(roles: &ClusterRoles, id: u64, lag_ms: Option<u64>) {
    match role(roles, id) {
        Role::Replica(Lag { ms, .. }) => assert_eq!(*ms, lag_ms, "lag of db{id}"),
        other => panic!("db{id} is {other:?}, not a replica"),
    }
}

fn primary_on(timeline: u32, lsn: u64) -> Postgres {
    Postgres {
        system_id: 77,
        started: "1".to_owned(),
        timeline,
        in_recovery: false,
        lsn,
        streaming: false,
        replay_age_ms: None,
        read_only_by_default: false,
    }
}

fn standby_on(timeline: u32, lsn: u64) -> Postgres {
    Postgres {
        in_recovery: true,
        streaming: true,
        replay_age_ms: Some(400),
        ..primary_on(timeline, lsn)
    }
}

/// Returns a writable MariaDB server without replication; positions as (server, sequence) of domain
/// 0.
fn writer(server: u32, positions: &[(u32, u64)]) -> Replication {
    Replication {
        server_identity: server.to_string(),
        read_only: false,
        executed: Gtids::mariadb(positions.iter().map(|&(server, at)| (0, server, at))),
        visible: Gtids::EMPTY,
        replica: None,
    }
}

/// Returns a read-only replica with a lag of 30 ms.
fn replica(server: u32, positions: &[(u32, u64)]) -> Replication {
    Replication {
        read_only: true,
        replica: Some(threads()),
        ..writer(server, positions)
    }
}

fn threads() -> ReplicaThreads {
    ReplicaThreads {
        source: "10.0.0.1:3306".to_owned(),
        receiver: Receiver::Connected,
        applier_runs: true,
        lag_ms: Some(30),
        error: String::new(),
    }
}

fn node() -> Galera {
    Galera {
        server_identity: "uuid".to_owned(),
        cluster_uuid: "6f7a1c2e-0000-11ee-8000-000000000001".to_owned(),
        in_primary_component: true,
        state: GaleraState::Synced,
        ready: true,
        set_aside: false,
        read_only: false,
        receive_queue: 0,
        causal: true,
    }
}

fn group_member(id: u64, is_primary: bool, view: u64) -> Group {
    Group {
        group_name: "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa".to_owned(),
        server_identity: format!("uuid-{id}"),
        state: MemberState::Online,
        is_primary,
        read_only: !is_primary,
        members: 3,
        members_reachable: 3,
        primaries: 1,
        incarnation: "17952095631563150".to_owned(),
        view,
        applier_queue: 0,
        lag_ms: Some(5),
        visible: Gtids::EMPTY,
    }
}

impl From<Postgres> for ReplicationState {
    fn from(status: Postgres) -> ReplicationState {
        ReplicationState::Postgres(status)
    }
}

impl From<Replication> for ReplicationState {
    fn from(status: Replication) -> ReplicationState {
        ReplicationState::Replication(status)
    }
}

impl From<Galera> for ReplicationState {
    fn from(status: Galera) -> ReplicationState {
        ReplicationState::Galera(status)
    }
}

impl From<Group> for ReplicationState {
    fn from(status: Group) -> ReplicationState {
        ReplicationState::Group(status)
    }
}
