//! MySQL and MariaDB replication: sets decide, replicas report their state.

use super::*;

fn trio() -> Bench {
    let mut bench = Bench::new(3);
    let words = [
        (1, writer(1, &[(1, 100)])),
        (2, replica(2, &[(1, 100)])),
        (3, replica(3, &[(1, 100)])),
    ];
    assert_eq!(bench.report_all_twice(&words).primary, Some(1));
    bench
}

#[test]
fn the_writable_one_writes_and_the_others_read() {
    let mut bench = trio();
    let roles = bench.report(2, replica(2, &[(1, 100)]));
    assert_replica(&roles, 2, Some(30));
    assert_eq!(roles.problems, vec![]);
}

#[test]
fn a_promoted_replica_is_followed() {
    let mut bench = trio();
    bench.server_down(1);
    let roles = bench.report(2, writer(2, &[(1, 100)]));
    assert_eq!((roles.primary, roles.verify), (None, vec![2]));
    assert_eq!(
        bench
            .report_on_new_connection(2, writer(2, &[(1, 100)]))
            .primary,
        Some(2)
    );
}

#[test]
fn the_set_that_contains_the_other_wins_even_over_the_current_primary() {
    let mut bench = trio();
    let promoted = writer(2, &[(1, 100), (2, 110)]);
    bench.report(2, promoted.clone());
    let roles = bench.report_on_new_connection(2, promoted.clone());
    assert_eq!((roles.primary, roles.verify), (Some(1), vec![1]));
    let roles = bench.report(1, writer(1, &[(1, 100)]));
    assert_eq!(roles.primary, Some(2));
    assert_unfit(
        &roles,
        1,
        "lacks 10 transactions (up to 0-2-110) that db2 has",
    );
    assert_problem(&roles, Some(1), "db1: claims to be the primary");
}

#[test]
fn what_the_primary_wrote_since_it_was_asked_counts() {
    let mut bench = trio();
    let stopped = writer(2, &[(1, 105)]);
    bench.report(2, stopped.clone());
    bench.report_on_new_connection(2, stopped.clone());
    let roles = bench.report(1, writer(1, &[(1, 120)]));
    assert_eq!(
        roles.primary,
        Some(1),
        "at first its set of 100 seemed to be the smaller one"
    );
    assert_unfit(&roles, 2, "lacks 15 transactions");
}

#[test]
fn diverged_sets_stop_all_until_one_is_named() {
    let mut bench = trio();
    bench.report(2, writer(2, &[(1, 100), (2, 101)]));
    bench.report_on_new_connection(2, writer(2, &[(1, 100), (2, 101)]));
    let roles = bench.report(1, writer(1, &[(1, 117)]));
    assert_eq!(roles.primary, None);
    assert_problem(&roles, None, "db1 has 0-1-117, db2 has 0-1-100,0-2-101");
    assert_problem(
        &roles,
        None,
        "db2 lacks 17 transactions (up to 0-1-117) of db1",
    );
    assert_problem(&roles, None, "evenkeel primary SERVER");
    assert_unfit(&roles, 1, "as do other servers");
    let roles = bench.override_primary(1);
    assert_eq!(roles.primary, Some(1));
    assert_unfit(&roles, 2, "the operator's override names db1");
}

#[test]
fn equal_sets_stop_all() {
    let mut bench = trio();
    bench.report(2, writer(2, &[(1, 100)]));
    bench.report_on_new_connection(2, writer(2, &[(1, 100)]));
    let roles = bench.report(1, writer(1, &[(1, 100)]));
    assert_eq!(roles.primary, None);
    assert_problem(&roles, None, "all sets are equal");
    let roles = bench.report(2, replica(2, &[(1, 100)]));
    assert_eq!(roles.primary, Some(1), "until one steps back");
}

#[test]
fn an_old_primary_has_no_veto_while_it_is_down_and_is_compared_when_it_is_back() {
    let mut bench = trio();
    bench.report(1, writer(1, &[(1, 150)]));
    bench.server_down(1);
    bench.report(2, writer(2, &[(1, 100), (2, 120)]));
    assert_eq!(
        bench
            .report_on_new_connection(2, writer(2, &[(1, 100), (2, 120)]))
            .primary,
        Some(2)
    );
    bench.report(1, writer(1, &[(1, 150)]));
    bench.report_on_new_connection(1, writer(1, &[(1, 150)]));
    let roles = bench.report(2, writer(2, &[(1, 100), (2, 130)]));
    assert_eq!(roles.primary, None);
    assert_problem(
        &roles,
        None,
        "db2 lacks 50 transactions (up to 0-1-150) of db1",
    );
}

/// Fails if a single claimant is not compared with the last primary.
#[test]
fn an_old_primary_that_was_never_made_a_replica_stays_out_while_the_new_one_is_down() {
    let old = writer(1, &[(1, 100)]);
    let new = writer(2, &[(1, 100), (2, 130)]);
    for is_heard_first in [true, false] {
        let mut bench = trio();
        bench.server_down(1);
        bench.report(2, new.clone());
        assert_eq!(
            bench.report_on_new_connection(2, new.clone()).primary,
            Some(2)
        );
        if is_heard_first {
            bench.report(1, old.clone());
            let roles = bench.report_on_new_connection(1, old.clone());
            assert_unfit(&roles, 1, "lacks 30 transactions");
        }
        bench.server_down(2);
        bench.report(1, old.clone());
        let roles = bench.report_on_new_connection(1, old.clone());
        assert_eq!(roles.primary, None);
        assert_unfit(&roles, 1, "accepted writes before db2, which is down");
        // A replica that is promoted now replaces the new primary, regardless of what it lacks.
        let promoted = writer(3, &[(1, 100), (2, 110)]);
        let mut other = bench.clone();
        other.report(3, promoted.clone());
        assert_eq!(other.report_on_new_connection(3, promoted).primary, Some(3));
        // A server that has all of it may be used, and so may the server of an override.
        let whole = writer(1, &[(1, 100), (2, 130)]);
        let mut other = bench.clone();
        assert_eq!(other.report_on_new_connection(1, whole).primary, Some(1));
        bench.cluster.override_primary(Some(1));
        assert_eq!(
            bench.report_on_new_connection(1, old.clone()).primary,
            Some(1)
        );
    }
}

#[test]
fn a_former_primary_that_has_replicated_since_can_be_promoted_again() {
    let mut bench = trio();
    let new = writer(2, &[(1, 100), (2, 130)]);
    bench.server_down(1);
    bench.report(2, new.clone());
    bench.report_on_new_connection(2, new);
    bench.report(1, replica(1, &[(1, 100), (2, 110)]));
    bench.server_down(2);
    let again = writer(1, &[(1, 100), (2, 110)]);
    bench.report(1, again.clone());
    assert_eq!(bench.report_on_new_connection(1, again).primary, Some(1));
}

#[test]
fn a_writable_replica_stays_a_replica_with_a_warning() {
    let mut bench = trio();
    let open = Replication {
        read_only: false,
        ..replica(2, &[(1, 100)])
    };
    bench.report(2, open.clone());
    let roles = bench.report_on_new_connection(2, open.clone());
    assert_eq!(roles.primary, Some(1));
    assert_replica(&roles, 2, Some(30));
    assert_problem(
        &roles,
        Some(2),
        "accepts writes although it replicates from 10.0.0.1:3306",
    );
    let roles = bench.server_down(1);
    assert_eq!(
        roles.primary, None,
        "the death of the primary promotes nobody"
    );
    assert_problem(&roles, Some(2), "stop its replication or choose it");
    assert_eq!(bench.override_primary(2).primary, Some(2));
}

#[test]
fn a_primary_that_begins_to_replicate_gives_way_to_one_that_does_not() {
    let mut bench = trio();
    let turned = Replication {
        read_only: false,
        ..replica(1, &[(1, 100)])
    };
    bench.server_down(3);
    assert_eq!(
        bench.report(1, turned.clone()).primary,
        Some(1),
        "nobody else claims"
    );
    bench.report(2, writer(2, &[(1, 100)]));
    let roles = bench.report_on_new_connection(2, writer(2, &[(1, 100)]));
    assert_eq!(roles.primary, Some(2));
    assert_replica(&roles, 1, Some(30));
    assert_problem(&roles, Some(1), "set read_only = ON");
}

#[test]
fn a_primary_that_replicates_from_outside_is_one() {
    let mut bench = Bench::new(2);
    let intermediate = Replication {
        read_only: false,
        ..replica(1, &[(9, 100)])
    };
    let roles = bench.report_all_twice(&[(1, intermediate), (2, replica(2, &[(9, 100)]))]);
    assert_eq!(roles.primary, Some(1));
    assert_eq!(roles.problems, vec![]);
}

#[test]
fn a_ring_has_no_primary_until_one_is_named() {
    let one = |id| Replication {
        read_only: false,
        ..replica(id, &[(1, 100), (2, 99), (3, 98)])
    };
    let mut bench = Bench::new(3);
    let roles = bench.report_all_twice(&[(1, one(1)), (2, one(2)), (3, one(3))]);
    assert_eq!(roles.primary, None);
    assert_problem(
        &roles,
        None,
        "db1, db2 and db3 all accept writes and all replicate (ring",
    );
    assert_replica(&roles, 1, Some(30));
    let roles = bench.override_primary(2);
    assert_eq!(roles.primary, Some(2));
    assert_replica(&roles, 3, Some(30));
    let roles = bench.override_primary(3);
    assert_eq!(roles.primary, Some(3));
    assert_replica(&roles, 2, Some(30));
    bench.server_down(2);
    assert_eq!(
        bench.server_down(3).primary,
        None,
        "the rest of the ring waits for a name"
    );
}

#[test]
fn replicas_that_were_left_writable_are_no_ring_when_their_primary_is_down() {
    let open = |id| Replication {
        read_only: false,
        ..replica(id, &[(1, 100)])
    };
    let mut bench = Bench::new(3);
    let words = [(1, writer(1, &[(1, 100)])), (2, open(2)), (3, open(3))];
    assert_eq!(bench.report_all_twice(&words).primary, Some(1));
    let roles = bench.server_down(1);
    assert_eq!(roles.primary, None);
    assert_problem(
        &roles,
        None,
        "primary db1 is down and no replica was promoted: db2 and db3 accept writes",
    );
    assert_eq!(bench.override_primary(2).primary, Some(2));
}

#[test]
fn a_named_part_of_a_ring_is_no_bystander_when_another_claims() {
    let one = |id| Replication {
        read_only: false,
        ..replica(id, &[(1, 100)])
    };
    let mut bench = Bench::new(2);
    bench.report_all_twice(&[(1, one(1)), (2, one(2))]);
    bench.override_primary(1);
    bench.report(2, writer(2, &[(2, 7)]));
    bench.report_on_new_connection(2, writer(2, &[(2, 7)]));
    bench.report_on_new_connection(1, one(1));
    bench.cluster.override_primary(None);
    for _ in 0..3 {
        assert_eq!(
            bench
                .report_on_new_connection(2, writer(2, &[(2, 7)]))
                .primary,
            None,
            "diverged"
        );
    }
}

#[test]
fn clones_do_not_become_primary() {
    let mut bench = trio();
    let clone = writer(1, &[(1, 200)]);
    bench.report(2, clone.clone());
    let roles = bench.report_on_new_connection(2, clone.clone());
    assert_eq!(roles.primary, Some(1), "the current one is known");
    assert_unfit(&roles, 2, "duplicate server id 1, also used by db1");
    assert_problem(&roles, Some(1), "duplicate server id 1, also used by db2");
    let mut bench = Bench::new(2);
    assert_eq!(
        bench
            .report_all_twice(&[(1, clone.clone()), (2, clone)])
            .primary,
        None
    );
}

#[test]
fn another_server_behind_the_address_of_the_primary_is_verified() {
    let mut bench = trio();
    let roles = bench.report_on_new_connection(1, writer(7, &[(1, 100)]));
    assert_eq!((roles.primary, roles.verify), (None, vec![1]));
    assert_eq!(
        bench
            .report_on_new_connection(1, writer(7, &[(1, 100)]))
            .primary,
        Some(1)
    );
}

#[test]
fn a_replica_whose_threads_do_not_run_is_unfit() {
    type Hurt = fn(&mut ReplicaThreads);
    let table: [(Hurt, &str); 3] = [
        (
            |at| at.applier_runs = false,
            "applier thread is not running: Duplicate entry",
        ),
        (
            |at| at.receiver = Receiver::Stopped,
            "receiver thread is not running: Duplicate entry",
        ),
        (
            |at| (at.receiver, at.applier_runs) = (Receiver::Connecting, false),
            "applier thread is not running",
        ),
    ];
    for (hurt, because) in table {
        let mut bench = trio();
        let mut hurt_threads = threads();
        hurt_threads.error = "Duplicate entry".to_owned();
        hurt(&mut hurt_threads);
        let broken = Replication {
            replica: Some(hurt_threads),
            ..replica(2, &[(1, 100)])
        };
        assert_unfit(&bench.report(2, broken), 2, because);
    }
    let demoted = Replication {
        replica: None,
        ..replica(2, &[(1, 100)])
    };
    assert_unfit(
        &trio().report(2, demoted),
        2,
        "read_only is ON, but replication is not configured",
    );
}

#[test]
fn a_replica_that_was_pointed_to_another_server_is_doubted_for_a_moment_only() {
    let say = |change: fn(&mut ReplicaThreads)| {
        let mut status = threads();
        change(&mut status);
        Replication {
            replica: Some(status),
            ..replica(2, &[(1, 100)])
        }
    };
    let stopped = say(|one| (one.applier_runs, one.lag_ms) = (false, None));
    let connecting = say(|one| (one.receiver, one.lag_ms) = (Receiver::Connecting, None));
    let nonsense = say(|one| one.lag_ms = Some(44_000));
    let is_believed = |roles: &ClusterRoles| match role(roles, 2) {
        Role::Replica(lag) => assert!(matches!(lag.ms, None | Some(44_000)), "{lag:?}"),
        other => assert!(matches!(other, Role::Unfit(_)), "{other:?}"),
    };
    for doubtful in [stopped, connecting, nonsense] {
        let mut bench = trio();
        bench.report(2, replica(2, &[(1, 100)]));
        bench.report_after(250, 2, doubtful.clone());
        bench.report_after(250, 1, writer(1, &[(1, 100)]));
        let roles = bench.report_after(250, 2, doubtful.clone());
        assert_replica(&roles, 2, Some(780));
        bench.report_after(250, 2, doubtful);
        is_believed(&bench.cluster.roles());
        let roles = bench.report_after(250, 2, replica(2, &[(1, 100)]));
        assert_replica(&roles, 2, Some(30));
    }
}

#[test]
fn a_silent_primary_gives_way_to_a_promoted_server_that_has_all_it_told() {
    for promoted in [
        writer(2, &[(1, 100)]),
        writer(2, &[(1, 107)]),
        writer(2, &[(1, 107), (2, 110)]),
    ] {
        let mut bench = trio();
        bench.report(2, promoted.clone());
        let roles = bench.report_on_new_connection(2, promoted.clone());
        assert_eq!((roles.primary, roles.verify), (Some(1), vec![1]));
        bench.cluster.server_unresponsive(1);
        let roles = bench.cluster.roles();
        assert_eq!((roles.primary, &roles.verify[..]), (Some(2), &[][..]));
        assert_unfit(&roles, 1, "does not respond");
        assert_eq!(roles.problems, vec![]);
    }
}

#[test]
fn a_silent_primary_stays_while_what_it_told_is_lacking_or_the_other_is_not_verified() {
    let mut bench = trio();
    bench.cluster.server_unresponsive(1);
    let roles = bench.report_on_new_connection(2, writer(2, &[(1, 100)]));
    assert_eq!((roles.primary, roles.verify), (Some(1), vec![1, 2]));

    let mut bench = trio();
    let stopped = writer(2, &[(1, 99)]);
    bench.report(2, stopped.clone());
    bench.cluster.server_unresponsive(1);
    assert_eq!(bench.report_on_new_connection(2, stopped).primary, Some(1));
    assert_eq!(
        bench.server_down(1).primary,
        Some(2),
        "until it is found to be down"
    );
}

#[test]
fn a_writable_server_that_claimed_before_does_not_replace_a_silent_primary() {
    let mut bench = trio();
    let promoted = writer(2, &[(1, 100)]);
    bench.report(2, promoted.clone());
    bench.report_on_new_connection(2, promoted);
    bench.report(1, writer(1, &[(1, 120)]));
    bench.cluster.server_unresponsive(1);
    assert_eq!(bench.cluster.roles().primary, Some(1));
}

#[test]
fn a_silent_replica_leaves_and_a_silent_primary_stays() {
    let mut bench = trio();
    bench.cluster.server_unresponsive(1);
    bench.cluster.server_unresponsive(2);
    let roles = bench.cluster.roles();
    assert_eq!(roles.primary, Some(1));
    assert_unfit(&roles, 2, "does not respond");
    assert_replica(&bench.report(2, replica(2, &[(1, 100)])), 2, Some(30));
}

#[test]
fn a_replica_has_a_moment_to_find_a_new_primary() {
    let mut bench = trio();
    let connecting = Replication {
        replica: Some(ReplicaThreads {
            receiver: Receiver::Connecting,
            lag_ms: None,
            ..threads()
        }),
        ..replica(3, &[(1, 100)])
    };
    bench.server_down(1);
    bench.report(3, connecting.clone());
    bench.report(2, writer(2, &[(1, 100)]));
    bench.report(3, connecting.clone());
    let roles = bench.report_on_new_connection(2, writer(2, &[(1, 100)]));
    assert_eq!(roles.primary, Some(2));
    assert_replica(
        &bench.report_after(250, 3, connecting.clone()),
        3,
        Some(280),
    );
    assert_replica(&bench.report(3, connecting), 3, None);
}

#[test]
fn a_lag_of_null_is_unknown() {
    let unknown = Replication {
        replica: Some(ReplicaThreads {
            lag_ms: None,
            ..threads()
        }),
        ..replica(2, &[(1, 100)])
    };
    assert_replica(&trio().report(2, unknown), 2, None);
}

#[test]
fn a_replica_that_lost_its_source_is_shunned_only_if_the_primary_lives() {
    let connecting = Replication {
        replica: Some(ReplicaThreads {
            receiver: Receiver::Connecting,
            lag_ms: None,
            ..threads()
        }),
        ..replica(2, &[(1, 100)])
    };
    let mut bench = trio();
    assert_replica(&bench.report(2, connecting.clone()), 2, Some(30));
    assert_replica(&bench.server_down(1), 2, Some(30));
    assert_replica(&bench.report(2, connecting.clone()), 2, Some(30));
    let mut bench = trio();
    bench.report(2, connecting.clone());
    assert_replica(&bench.report(1, writer(1, &[(1, 100)])), 2, None);
    assert_replica(&bench.report(2, connecting), 2, None);
}

#[test]
fn a_replica_with_transactions_of_its_own_is_told_and_stays() {
    let mut bench = trio();
    let errant = replica(2, &[(1, 100), (2, 103)]);
    assert_eq!(bench.report(2, errant.clone()).problems, vec![]);
    let roles = bench.report(1, writer(1, &[(1, 100)]));
    assert_problem(
        &roles,
        Some(2),
        "db2: has 3 transactions (up to 0-2-103) that the primary db1",
    );
    assert_replica(&roles, 2, Some(30));
    assert_eq!(bench.report(2, replica(2, &[(1, 100)])).problems, vec![]);
}

#[test]
fn a_replica_that_was_asked_after_the_primary_has_no_errant_transactions() {
    let mut bench = trio();
    for at in [150, 200, 250] {
        let roles = bench.report(2, replica(2, &[(1, at)]));
        assert_eq!(roles.problems, vec![]);
        assert_eq!(bench.report(1, writer(1, &[(1, at)])).problems, vec![]);
    }
}
