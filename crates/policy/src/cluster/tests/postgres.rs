//! PostgreSQL: timelines, system identifiers, lag.

use super::*;

fn pair() -> Bench {
    let mut bench = Bench::new(2);
    let roles = bench.report_all_twice(&[(1, primary_on(3, 100)), (2, standby_on(3, 100))]);
    assert_eq!(roles.primary, Some(1));
    bench
}

#[test]
fn the_higher_timeline_wins_and_the_old_primary_is_fenced() {
    let mut bench = pair();
    let roles = bench.report(2, primary_on(4, 120));
    assert_eq!((roles.primary, &roles.verify[..]), (None, &[2][..]));
    let roles = bench.report_on_new_connection(2, primary_on(4, 120));
    assert_eq!(roles.primary, Some(2));
    assert_unfit(
        &roles,
        1,
        "timeline 3 is older than the cluster's timeline 4 (seen on db2)",
    );
    assert_problem(&roles, Some(1), "pg_rewind");
}

#[test]
fn an_old_primary_stays_out_though_the_new_one_is_down() {
    let mut bench = pair();
    bench.server_down(1);
    bench.report(2, primary_on(4, 120));
    assert_eq!(
        bench
            .report_on_new_connection(2, primary_on(4, 120))
            .primary,
        Some(2)
    );
    bench.server_down(2);
    bench.report(1, primary_on(3, 110));
    let roles = bench.report_on_new_connection(1, primary_on(3, 110));
    assert_eq!(roles.primary, None);
    assert_unfit(&roles, 1, "a former primary");
    assert_problem(&roles, None, "no server accepts writes");
}

/// Returns a pair in which db2 was promoted to timeline 4, while db1 is still the primary on
/// timeline 3.
fn promoted_by_mistake() -> Bench {
    let mut bench = pair();
    bench.report(2, primary_on(4, 120));
    assert_eq!(
        bench
            .report_on_new_connection(2, primary_on(4, 120))
            .primary,
        Some(2)
    );
    bench.report(1, primary_on(3, 150));
    bench.report_on_new_connection(1, primary_on(3, 150));
    bench
}

#[test]
fn a_promotion_by_mistake_is_taken_back_by_a_name_once_its_timeline_is_gone() {
    let mut bench = promoted_by_mistake();
    bench.server_down(2);
    let roles = bench.report(2, standby_on(3, 150));
    assert_eq!(roles.primary, None);
    assert_problem(
        &roles,
        Some(1),
        "If timeline 4 is lost for good, choose this server: `evenkeel primary db1`",
    );
    let roles = bench.override_primary(1);
    assert_eq!(roles.primary, Some(1));
    assert_problem(
        &roles,
        Some(1),
        "has reached timeline 4, which is higher than its own; the higher timeline is now ignored",
    );
    bench.cluster.override_primary(None);
    let roles = bench.report(1, primary_on(3, 150));
    assert_eq!(roles.primary, Some(1), "the fence is lowered for good");
    assert_eq!(roles.problems, vec![]);
    let roles = bench.report(2, standby_on(4, 160));
    assert_eq!(roles.primary, None, "and raised by the next who is on it");
}

#[test]
fn a_name_does_not_overrule_a_timeline_that_somebody_is_on_nor_later_when_he_is_down() {
    let mut bench = promoted_by_mistake();
    let roles = bench.override_primary(1);
    assert_eq!(roles.primary, Some(2));
    assert_problem(&roles, Some(1), "the operator's override has no effect yet");
    let is_lifted =
        |one: &super::super::Problem| one.message.contains("the higher timeline is now ignored");
    assert!(!roles.problems.iter().any(is_lifted));
    assert_eq!(
        bench.server_down(2).primary,
        None,
        "named while db2 was there"
    );
    assert_eq!(bench.report(1, primary_on(3, 150)).primary, None);
    assert_eq!(bench.override_primary(1).primary, Some(1));
}

#[test]
fn a_name_in_vain_lets_nobody_else_in_either() {
    let mut bench = Bench::new(3);
    let words = [
        (1, primary_on(3, 100)),
        (2, primary_on(5, 120)),
        (3, primary_on(4, 110)),
    ];
    assert_eq!(bench.report_all_twice(&words).primary, Some(2));
    bench.server_down(2);
    bench.report_on_new_connection(3, primary_on(4, 110));
    assert_eq!(bench.override_primary(1).primary, None);
    assert_unfit(
        &bench.cluster.roles(),
        3,
        "older than the cluster's timeline 5",
    );
}

#[test]
fn the_name_of_a_replica_lifts_no_fence() {
    let mut bench = Bench::new(3);
    let words = [
        (1, primary_on(3, 100)),
        (2, primary_on(4, 120)),
        (3, standby_on(3, 100)),
    ];
    bench.report_all_twice(&words);
    bench.server_down(2);
    assert_eq!(bench.override_primary(3).primary, None);
    assert_unfit(
        &bench.cluster.roles(),
        1,
        "older than the cluster's timeline 4",
    );
}

#[test]
fn a_timeline_is_forgotten_with_the_last_member_that_was_on_it() {
    let of = |ids: &[u64]| ids.iter().map(|id| (*id, format!("db{id}"))).collect();
    let mut bench = Bench::new(3);
    let words = [
        (1, primary_on(3, 100)),
        (2, primary_on(4, 120)),
        (3, standby_on(4, 120)),
    ];
    assert_eq!(bench.report_all_twice(&words).primary, Some(2));
    bench.report_on_new_connection(1, primary_on(3, 100));
    bench.cluster.set_members(of(&[1, 3]));
    assert_unfit(
        &bench.cluster.roles(),
        1,
        "the cluster's timeline 4 (seen on db3)",
    );
    bench.server_down(3);
    assert_unfit(
        &bench.cluster.roles(),
        1,
        "the cluster's timeline 4 (seen on db3)",
    );
    bench.cluster.set_members(of(&[1]));
    assert_eq!(bench.cluster.roles().primary, Some(1));
}

#[test]
fn a_replica_on_a_higher_timeline_fences_too() {
    let mut bench = pair();
    let roles = bench.report(2, standby_on(4, 120));
    assert_eq!(roles.primary, None);
    assert_unfit(&roles, 1, "older than the cluster's timeline 4");
}

#[test]
fn one_timeline_claimed_twice_stops_all_until_one_is_named() {
    let mut bench = pair();
    bench.report(2, primary_on(3, 0x16_0000_0090));
    let roles = bench.report_on_new_connection(2, primary_on(3, 0x16_0000_0090));
    assert_eq!(
        roles.primary,
        Some(1),
        "db1 may have stepped back since it was asked"
    );
    assert_eq!(roles.verify, vec![1]);
    let roles = bench.report_on_new_connection(1, primary_on(3, 110));
    assert_eq!(roles.primary, None);
    assert_problem(
        &roles,
        None,
        "db1 and db2 all claim to be primary on timeline 3 (at 0/6E, 16/90)",
    );
    assert_unfit(&roles, 1, "as do other servers");
    let roles = bench.override_primary(2);
    assert_eq!(roles.primary, Some(2));
    assert_unfit(&roles, 1, "the operator's override names db2");
}

#[test]
fn a_planned_change_without_a_new_timeline_is_followed() {
    let mut bench = pair();
    bench.report(2, primary_on(3, 120));
    let roles = bench.report(1, standby_on(3, 120));
    assert_eq!(roles.primary, None);
    assert_eq!(
        bench
            .report_on_new_connection(2, primary_on(3, 120))
            .primary,
        Some(2)
    );
}

#[test]
fn a_server_of_another_cluster_is_refused_with_both_names() {
    let mut bench = pair();
    let stranger = Postgres {
        system_id: 88,
        ..primary_on(9, 500)
    };
    bench.report(2, stranger.clone());
    let roles = bench.report_on_new_connection(2, stranger.clone());
    assert_eq!(roles.primary, Some(1), "its timeline fences nobody here");
    assert_unfit(
        &roles,
        2,
        "another cluster: it reports PostgreSQL system identifier 88",
    );
    assert_problem(
        &roles,
        Some(2),
        "the cluster (db1) is PostgreSQL system identifier 77",
    );
    assert_eq!(
        bench.override_primary(2).primary,
        Some(1),
        "no word lets it in while db1 lives"
    );
    bench.cluster.override_primary(None);
    bench.server_down(1);
    assert_eq!(
        bench.report_on_new_connection(2, stranger.clone()).primary,
        None,
        "still remembered"
    );
    assert_eq!(
        bench.override_primary(2).primary,
        Some(2),
        "nobody else is left: a word suffices"
    );
    bench.report(1, primary_on(3, 10));
    assert_unfit(
        &bench.report_on_new_connection(1, primary_on(3, 10)),
        1,
        "another cluster",
    );
}

#[test]
fn two_clusters_of_equal_size_are_a_tie_until_one_is_named() {
    let stranger = Postgres {
        system_id: 88,
        ..primary_on(9, 500)
    };
    let mut bench = Bench::new(2);
    let roles = bench.report_all_twice(&[(1, primary_on(3, 10)), (2, stranger)]);
    assert_eq!(roles.primary, None);
    assert_problem(&roles, None, "servers of two clusters are listed together");
    assert_problem(&roles, None, "db2 reports PostgreSQL system identifier 88");
    let roles = bench.override_primary(1);
    assert_eq!(roles.primary, Some(1));
    assert_unfit(&roles, 2, "another cluster");
}

#[test]
fn a_primary_that_is_read_only_by_default_takes_no_writes() {
    let mut bench = pair();
    let closed = Postgres {
        read_only_by_default: true,
        ..primary_on(3, 100)
    };
    let roles = bench.report(1, closed);
    assert_eq!(roles.primary, None);
    assert_unfit(&roles, 1, "default_transaction_read_only is on");
}

#[test]
fn a_replica_that_has_all_the_primary_had_is_not_behind() {
    let mut bench = pair();
    let idle = Postgres {
        replay_age_ms: Some(60_000),
        ..standby_on(3, 100)
    };
    assert_replica(&bench.report(2, idle.clone()), 2, Some(0));
    let roles = bench.report(1, primary_on(3, 180));
    assert_replica(&roles, 2, Some(0));
    assert_eq!(
        *role(&roles, 2),
        Role::Replica(Lag {
            ms: Some(0),
            bytes: Some(80)
        }),
        "it was asked before the primary wrote"
    );
    assert_replica(&bench.report(2, idle.clone()), 2, Some(1_000));
    bench.report(1, primary_on(3, 190));
    assert_replica(&bench.report(2, idle), 2, Some(3_000));
    assert_replica(&bench.report(2, standby_on(3, 150)), 2, Some(400));
    assert_replica(&bench.report(2, standby_on(3, 200)), 2, Some(0));
}

#[test]
fn the_lag_of_a_replica_that_was_far_behind_from_the_start_is_the_age_of_its_last_transaction() {
    let far = |replay_age_ms| Postgres {
        replay_age_ms,
        ..standby_on(3, 5)
    };
    assert_replica(&pair().report(2, far(Some(3_600_000))), 2, Some(3_600_000));
    assert_replica(&pair().report(2, far(None)), 2, None);
}

#[test]
fn a_replica_on_an_older_timeline_than_the_primary_has_an_unknown_lag() {
    let mut bench = Bench::new(3);
    let words = [
        (1, primary_on(3, 100)),
        (2, standby_on(3, 100)),
        (3, standby_on(3, 100)),
    ];
    bench.report_all_twice(&words);
    bench.report(2, primary_on(4, 120));
    assert_replica(
        &bench.report_on_new_connection(2, primary_on(4, 120)),
        3,
        Some(0),
    );
    let old = standby_on(3, 900);
    assert_replica(&bench.report_after(500, 3, old.clone()), 3, Some(500));
    assert_replica(&bench.report(3, old), 3, None);
    let idle = Postgres {
        replay_age_ms: Some(60_000),
        ..standby_on(4, 120)
    };
    assert_replica(&bench.report(3, idle), 3, Some(0));
}

#[test]
fn a_replica_that_was_asked_before_the_primary_was_known_is_as_far_behind_as_its_age_says() {
    let seated = |lsn, replay_age_ms| {
        let far = Postgres {
            replay_age_ms,
            ..standby_on(3, lsn)
        };
        let mut bench = Bench::new(2);
        bench.report(1, primary_on(3, 100));
        bench.report(2, far);
        let roles = bench.report_on_new_connection(1, primary_on(3, 120));
        assert_eq!(roles.primary, Some(1));
        (bench, roles)
    };
    assert_replica(&seated(5, Some(3_600_000)).1, 2, Some(3_600_000));
    assert_replica(&seated(5, None).1, 2, None);
    assert_replica(&seated(120, Some(3_600_000)).1, 2, Some(0));
    let (mut bench, _) = seated(119, Some(3_600_000));
    let idle = Postgres {
        replay_age_ms: Some(3_601_000),
        ..standby_on(3, 120)
    };
    let roles = bench.report_after(250, 2, idle);
    assert_replica(&roles, 2, Some(0));
}

#[test]
fn a_guessed_lag_is_not_remembered_as_a_good_word() {
    let far = Postgres {
        replay_age_ms: Some(300),
        ..standby_on(3, 5)
    };
    let mut bench = Bench::new(2);
    bench.report(1, primary_on(3, 100));
    bench.report(2, far.clone());
    assert_replica(
        &bench.report_on_new_connection(1, primary_on(3, 120)),
        2,
        Some(300),
    );
    assert_replica(&bench.server_down(1), 2, None);
    let hour = Postgres {
        replay_age_ms: Some(3_600_000),
        ..far
    };
    assert_replica(&bench.report_after(10, 2, hour), 2, None);
}

#[test]
fn a_replica_that_does_not_stream_has_an_unknown_lag_while_the_primary_lives() {
    let mut bench = pair();
    let alone = Postgres {
        streaming: false,
        ..standby_on(3, 100)
    };
    assert_replica(&bench.report(2, alone.clone()), 2, Some(0));
    assert_replica(&bench.report(1, primary_on(3, 100)), 2, None);
    assert_replica(&bench.report(2, alone), 2, None);
    assert_replica(&bench.report(2, standby_on(3, 100)), 2, Some(0));
}

#[test]
fn a_dead_primary_does_not_shun_its_replicas() {
    let mut bench = pair();
    bench.report(1, primary_on(3, 180));
    assert_replica(&bench.report(2, standby_on(3, 150)), 2, Some(400));
    let alone = Postgres {
        streaming: false,
        replay_age_ms: Some(90_000),
        ..standby_on(3, 150)
    };
    assert_replica(&bench.report(2, alone.clone()), 2, Some(400));
    assert_replica(&bench.server_down(1), 2, Some(400));
    assert_replica(&bench.report(2, alone), 2, Some(400));
}
