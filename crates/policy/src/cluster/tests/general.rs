//! Rules for every kind of cluster: verification, the start, unresponsive servers, overrides.

use super::*;

#[test]
fn a_claim_counts_once_it_is_repeated_over_a_fresh_connection() {
    let mut bench = Bench::new(1);
    let roles = bench.hears_fresh(1, primary_on(1, 10));
    assert_eq!((roles.primary, roles.verify), (None, vec![1]));
    let roles = bench.hears(1, primary_on(1, 10));
    assert_eq!((roles.primary, roles.verify), (None, vec![1]));
    let roles = bench.hears_fresh(1, primary_on(1, 10));
    assert_eq!((roles.primary, &roles.verify[..]), (Some(1), &[][..]));
    assert_eq!(*role(&roles, 1), Role::Primary);
    assert_eq!(roles.problems, vec![]);
}

#[test]
fn an_answer_to_a_question_from_before_the_claim_verifies_nothing() {
    let mut bench = Bench::new(1);
    bench.hears(1, primary_on(1, 10));
    let report = RoleReport {
        queried_ms: bench.now_ms - 1,
        fresh: true,
        status: primary_on(1, 10).into(),
    };
    bench.cluster.report_received(bench.now_ms + 1, 1, report);
    assert_eq!(bench.cluster.roles().primary, None);
}

#[test]
fn nobody_is_primary_before_everybody_answered_or_was_found_down() {
    let mut bench = Bench::new(4);
    bench.hears(1, primary_on(1, 10));
    let roles = bench.hears_fresh(1, primary_on(1, 10));
    assert_eq!(roles.primary, None);
    is_unfit(
        &roles,
        1,
        "not used until these servers respond or are down: db2, db3 and db4",
    );
    assert_eq!(roles.problems, vec![]);
    bench.hears(2, standby_on(1, 10));
    bench.cannot_tell(3);
    assert_eq!(bench.cluster.roles().primary, None);
    assert_eq!(bench.loses(4).primary, Some(1));
}

#[test]
fn an_older_answer_is_ignored() {
    let mut bench = Bench::new(1);
    bench.all_say(&[(1, primary_on(1, 10))]);
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
    bench.all_say(&[(1, primary_on(1, 10))]);
    let late = RoleReport {
        queried_ms: bench.now_ms,
        fresh: true,
        status: primary_on(1, 10).into(),
    };
    assert_eq!(*role(&bench.loses(1), 1), Role::Unknown);
    bench.cluster.report_received(bench.now_ms + 1, 1, late);
    assert_eq!(*role(&bench.cluster.roles(), 1), Role::Unknown);
}

#[test]
fn a_primary_that_was_lost_is_verified_again() {
    let mut bench = Bench::new(1);
    bench.all_say(&[(1, primary_on(1, 10))]);
    assert_eq!(bench.loses(1).primary, None);
    assert_eq!(bench.hears_fresh(1, primary_on(1, 10)).primary, None);
    assert_eq!(bench.hears_fresh(1, primary_on(1, 10)).primary, Some(1));
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
        assert_eq!(bench.all_say(&[(1, before)]).primary, Some(1));
        let roles = bench.hears_fresh(1, after.clone());
        assert_eq!((roles.primary, roles.verify), (None, vec![1]));
        assert_eq!(bench.hears(1, after.clone()).primary, None);
        let roles = bench.hears_fresh(1, after);
        assert_eq!((roles.primary, roles.verify), (Some(1), vec![]));
    }
}

#[test]
fn a_primary_whose_group_has_changed_is_asked_again_and_stays_meanwhile() {
    let mut bench = Bench::new(1);
    bench.all_say(&[(1, group_member(1, true, 5))]);
    let roles = bench.hears(1, group_member(1, true, 6));
    assert_eq!((roles.primary, roles.verify), (Some(1), vec![1]));
    let roles = bench.hears_fresh(1, group_member(1, true, 6));
    assert_eq!((roles.primary, roles.verify), (Some(1), vec![]));
}

#[test]
fn a_primary_that_cannot_tell_stays_until_another_claims() {
    let mut bench = Bench::new(2);
    bench.all_say(&[(1, primary_on(1, 10)), (2, standby_on(1, 10))]);
    let roles = bench.cannot_tell(1);
    assert_eq!(roles.primary, Some(1));
    has_problem(&roles, Some(1), "lacks REPLICATION CLIENT");
    let roles = bench.hears(2, primary_on(1, 10));
    assert_eq!(roles.primary, Some(1), "db2 has not repeated it");
    let roles = bench.hears_fresh(2, primary_on(1, 10));
    assert_eq!(roles.primary, Some(2));
    is_unfit(&bench.cannot_tell(1), 1, "lacks REPLICATION CLIENT");
}

#[test]
fn a_replica_that_cannot_tell_is_unfit_and_a_lost_one_unknown() {
    let mut bench = Bench::new(2);
    bench.all_say(&[(1, primary_on(1, 10)), (2, standby_on(1, 10))]);
    let roles = bench.cannot_tell(2);
    is_unfit(&roles, 2, "role unknown");
    has_problem(&roles, Some(2), "db2: role unknown");
    assert_eq!(*role(&bench.loses(2), 2), Role::Unknown);
}

#[test]
fn a_cluster_without_a_claimant_says_what_its_members_are() {
    let mut bench = Bench::new(2);
    bench.hears(1, standby_on(1, 10));
    let roles = bench.loses(2);
    has_problem(&roles, None, "db1: replica; db2: down");
}

#[test]
fn what_is_known_of_members_that_stay_survives_a_new_list() {
    let mut bench = Bench::new(2);
    bench.all_say(&[(1, primary_on(1, 10)), (2, standby_on(1, 10))]);
    let members = vec![(3, "db3".to_owned()), (1, "db1".to_owned())];
    bench.cluster.set_members(members);
    let roles = bench.cluster.roles();
    assert_eq!(roles.primary, Some(1));
    assert_eq!(roles.roles, vec![(3, Role::Unknown), (1, Role::Primary)]);
    bench.cluster.set_members(vec![(3, "db3".to_owned())]);
    assert_eq!(bench.cluster.roles().primary, None);
}

#[test]
fn a_name_lapses_when_the_named_one_is_lost_or_claims_no_more() {
    let mut bench = Bench::new(2);
    bench.all_say(&[(1, primary_on(1, 10)), (2, primary_on(1, 10))]);
    assert_eq!(bench.names(2).primary, Some(2));
    let roles = bench.loses(2);
    assert_eq!(roles.primary, Some(1));
    has_problem(&roles, Some(2), "operator override dropped: server is down");
    bench.hears(2, primary_on(1, 10));
    let roles = bench.hears_fresh(2, primary_on(1, 10));
    assert_eq!(
        roles.primary,
        Some(1),
        "the tie counts once db1 was asked again"
    );
    assert_eq!(bench.hears(1, primary_on(1, 10)).primary, None);
    assert_eq!(bench.names(2).primary, Some(2));
    let roles = bench.hears(2, standby_on(1, 10));
    has_problem(
        &roles,
        Some(2),
        "operator override dropped: server no longer accepts writes",
    );
    assert_eq!(roles.primary, Some(1));
}

#[test]
fn a_name_for_a_server_that_takes_no_writes_waits_and_says_so() {
    let mut bench = Bench::new(2);
    bench.all_say(&[(1, primary_on(1, 10)), (2, standby_on(1, 10))]);
    let roles = bench.names(2);
    assert_eq!(roles.primary, Some(1));
    has_problem(
        &roles,
        Some(2),
        "not usable: replica; takes effect once it accepts writes",
    );
    bench.hears(2, primary_on(1, 10));
    assert_eq!(bench.hears_fresh(2, primary_on(1, 10)).primary, Some(2));
}

#[test]
fn of_mixed_kinds_the_one_that_most_say_counts_then_the_first() {
    let mut bench = Bench::new(3);
    bench.hears(1, ReplicationState::from(node()));
    bench.hears(2, ReplicationState::from(writer(2, &[(2, 1)])));
    bench.hears(3, ReplicationState::from(replica(3, &[(2, 1)])));
    let roles = bench.hears_fresh(2, ReplicationState::from(writer(2, &[(2, 1)])));
    assert_eq!(roles.primary, Some(2));
    is_unfit(
        &roles,
        1,
        "is of a different cluster type: it reports Galera cluster",
    );

    let mut bench = Bench::new(2);
    bench.hears(2, ReplicationState::from(writer(2, &[(2, 1)])));
    bench.hears(1, ReplicationState::from(node()));
    assert_eq!(
        bench.hears_fresh(1, ReplicationState::from(node())).primary,
        Some(1)
    );
}
