//! Rules for every kind of cluster: verification, the start, unresponsive servers, overrides.

use super::*;

#[test]
fn a_claim_counts_once_it_is_repeated_over_a_new_connection() {
    let mut bench = Bench::new(1);
    let roles = bench.report_on_new_connection(1, primary_on(1, 10));
    assert_eq!((roles.primary, roles.verify), (None, vec![1]));
    let roles = bench.report(1, primary_on(1, 10));
    assert_eq!((roles.primary, roles.verify), (None, vec![1]));
    let roles = bench.report_on_new_connection(1, primary_on(1, 10));
    assert_eq!((roles.primary, &roles.verify[..]), (Some(1), &[][..]));
    assert_eq!(*role(&roles, 1), Role::Primary);
    assert_eq!(roles.problems, vec![]);
}

#[test]
fn an_answer_to_a_question_from_before_the_claim_verifies_nothing() {
    let mut bench = Bench::new(1);
    bench.report(1, primary_on(1, 10));
    let report = RoleReport {
        queried_ms: bench.now_ms - 1,
        fresh: true,
        status: primary_on(1, 10).into(),
    };
    bench.cluster.report_received(bench.now_ms + 1, 1, report);
    assert_eq!(bench.cluster.roles().primary, None);
}

#[test]
fn no_server_is_primary_before_all_have_responded_or_are_down() {
    let mut bench = Bench::new(4);
    bench.report(1, primary_on(1, 10));
    let roles = bench.report_on_new_connection(1, primary_on(1, 10));
    assert_eq!(roles.primary, None);
    assert_unfit(
        &roles,
        1,
        "until these servers have responded or are known to be down: db2, db3 and db4",
    );
    assert_eq!(roles.problems, vec![]);
    bench.report(2, standby_on(1, 10));
    bench.role_unknown(3);
    assert_eq!(bench.cluster.roles().primary, None);
    assert_eq!(bench.server_down(4).primary, Some(1));
}

#[test]
fn an_older_answer_is_ignored() {
    let mut bench = Bench::new(1);
    bench.report_all_twice(&[(1, primary_on(1, 10))]);
    let late = RoleReport {
        queried_ms: 5,
        fresh: true,
        status: standby_on(1, 10).into(),
    };
    bench.cluster.report_received(bench.now_ms + 1, 1, late);
    assert_eq!(bench.cluster.roles().primary, Some(1));
}

#[test]
fn an_answer_on_its_way_when_its_server_was_lost_is_ignored() {
    let mut bench = Bench::new(1);
    bench.report_all_twice(&[(1, primary_on(1, 10))]);
    let late = RoleReport {
        queried_ms: bench.now_ms,
        fresh: true,
        status: primary_on(1, 10).into(),
    };
    assert_eq!(*role(&bench.server_down(1), 1), Role::Unknown);
    bench.cluster.report_received(bench.now_ms + 1, 1, late);
    assert_eq!(*role(&bench.cluster.roles(), 1), Role::Unknown);
}

#[test]
fn a_primary_that_was_lost_is_verified_again() {
    let mut bench = Bench::new(1);
    bench.report_all_twice(&[(1, primary_on(1, 10))]);
    assert_eq!(bench.server_down(1).primary, None);
    assert_eq!(
        bench.report_on_new_connection(1, primary_on(1, 10)).primary,
        None
    );
    assert_eq!(
        bench.report_on_new_connection(1, primary_on(1, 10)).primary,
        Some(1)
    );
}

#[test]
fn a_primary_that_is_another_server_or_another_run_of_it_is_verified_again() {
    let run = |started: &str| Postgres {
        started: started.to_owned(),
        ..primary_on(1, 10)
    };
    let node_called = |server_identity: &str| Galera {
        server_identity: server_identity.to_owned(),
        ..node()
    };
    let table: [(ReplicationState, ReplicationState); 3] = [
        (run("1").into(), run("2").into()),
        (primary_on(1, 10).into(), primary_on(2, 10).into()),
        (node_called("a").into(), node_called("b").into()),
    ];
    for (before, after) in table {
        let mut bench = Bench::new(1);
        assert_eq!(bench.report_all_twice(&[(1, before)]).primary, Some(1));
        let roles = bench.report_on_new_connection(1, after.clone());
        assert_eq!((roles.primary, roles.verify), (None, vec![1]));
        assert_eq!(bench.report(1, after.clone()).primary, None);
        let roles = bench.report_on_new_connection(1, after);
        assert_eq!((roles.primary, roles.verify), (Some(1), vec![]));
    }
}

#[test]
fn a_primary_whose_group_has_changed_is_asked_again_and_stays_meanwhile() {
    let mut bench = Bench::new(1);
    bench.report_all_twice(&[(1, group_member(1, true, 5))]);
    let roles = bench.report(1, group_member(1, true, 6));
    assert_eq!((roles.primary, roles.verify), (Some(1), vec![1]));
    let roles = bench.report_on_new_connection(1, group_member(1, true, 6));
    assert_eq!((roles.primary, roles.verify), (Some(1), vec![]));
}

#[test]
fn a_primary_of_unknown_role_stays_until_another_server_claims() {
    let mut bench = Bench::new(2);
    bench.report_all_twice(&[(1, primary_on(1, 10)), (2, standby_on(1, 10))]);
    let roles = bench.role_unknown(1);
    assert_eq!(roles.primary, Some(1));
    assert_problem(&roles, Some(1), "lacks REPLICATION CLIENT");
    let roles = bench.report(2, primary_on(1, 10));
    assert_eq!(roles.primary, Some(1), "db2 has not repeated it");
    let roles = bench.report_on_new_connection(2, primary_on(1, 10));
    assert_eq!(roles.primary, Some(2));
    assert_unfit(&bench.role_unknown(1), 1, "lacks REPLICATION CLIENT");
}

#[test]
fn a_replica_of_unknown_role_is_unfit_and_a_failed_one_unknown() {
    let mut bench = Bench::new(2);
    bench.report_all_twice(&[(1, primary_on(1, 10)), (2, standby_on(1, 10))]);
    let roles = bench.role_unknown(2);
    assert_unfit(&roles, 2, "role unknown");
    assert_problem(&roles, Some(2), "db2: role unknown");
    assert_eq!(*role(&bench.server_down(2), 2), Role::Unknown);
}

#[test]
fn a_cluster_without_a_claimant_says_what_its_members_are() {
    let mut bench = Bench::new(2);
    bench.report(1, standby_on(1, 10));
    let roles = bench.server_down(2);
    assert_problem(&roles, None, "db1: replica; db2: down");
}

#[test]
fn what_is_known_of_members_that_stay_survives_a_new_list() {
    let mut bench = Bench::new(2);
    bench.report_all_twice(&[(1, primary_on(1, 10)), (2, standby_on(1, 10))]);
    let members = vec![(3, "db3".to_owned()), (1, "db1".to_owned())];
    bench.cluster.set_members(members);
    let roles = bench.cluster.roles();
    assert_eq!(roles.primary, Some(1));
    assert_eq!(roles.roles, vec![(3, Role::Unknown), (1, Role::Primary)]);
    bench.cluster.set_members(vec![(3, "db3".to_owned())]);
    assert_eq!(bench.cluster.roles().primary, None);
}

#[test]
fn override_ends_when_the_server_is_down_or_accepts_no_writes() {
    let mut bench = Bench::new(2);
    bench.report_all_twice(&[(1, primary_on(1, 10)), (2, primary_on(1, 10))]);
    assert_eq!(bench.override_primary(2).primary, Some(2));
    let roles = bench.server_down(2);
    assert_eq!(roles.primary, Some(1));
    assert_problem(
        &roles,
        Some(2),
        "the operator's override ended: server is down",
    );
    bench.report(2, primary_on(1, 10));
    let roles = bench.report_on_new_connection(2, primary_on(1, 10));
    assert_eq!(
        roles.primary,
        Some(1),
        "db1 must be queried again before the tie is detected"
    );
    assert_eq!(bench.report(1, primary_on(1, 10)).primary, None);
    assert_eq!(bench.override_primary(2).primary, Some(2));
    let roles = bench.report(2, standby_on(1, 10));
    assert_problem(
        &roles,
        Some(2),
        "the operator's override ended: server no longer accepts writes",
    );
    assert_eq!(roles.primary, Some(1));
}

#[test]
fn override_of_a_replica_waits_and_is_reported() {
    let mut bench = Bench::new(2);
    bench.report_all_twice(&[(1, primary_on(1, 10)), (2, standby_on(1, 10))]);
    let roles = bench.override_primary(2);
    assert_eq!(roles.primary, Some(1));
    assert_problem(
        &roles,
        Some(2),
        "no effect yet (replica); it takes effect once the server accepts writes",
    );
    bench.report(2, primary_on(1, 10));
    assert_eq!(
        bench.report_on_new_connection(2, primary_on(1, 10)).primary,
        Some(2)
    );
}

#[test]
fn with_mixed_cluster_types_the_majority_decides_then_the_first_server() {
    let mut bench = Bench::new(3);
    bench.report(1, ReplicationState::from(node()));
    bench.report(2, ReplicationState::from(writer(2, &[(2, 1)])));
    bench.report(3, ReplicationState::from(replica(3, &[(2, 1)])));
    let roles = bench.report_on_new_connection(2, ReplicationState::from(writer(2, &[(2, 1)])));
    assert_eq!(roles.primary, Some(2));
    assert_unfit(
        &roles,
        1,
        "is of a different cluster type: it reports Galera cluster",
    );

    let mut bench = Bench::new(2);
    bench.report(2, ReplicationState::from(writer(2, &[(2, 1)])));
    bench.report(1, ReplicationState::from(node()));
    assert_eq!(
        bench
            .report_on_new_connection(1, ReplicationState::from(node()))
            .primary,
        Some(1)
    );
}
