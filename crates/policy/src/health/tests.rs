//! Tests of health: what takes a server out, what brings it back, and the time of the next probe.

use super::*;

fn settings() -> HealthSettings {
    HealthSettings {
        interval_ms: 2_000,
        timeout_ms: 1_000,
        rise: 2,
        fall: 3,
        dead_interval_ms_max: 10_000,
        probing: true,
    }
}

fn unprobed() -> HealthSettings {
    HealthSettings {
        probing: false,
        ..settings()
    }
}

fn failed() -> ProbeOutcome {
    ProbeOutcome::Failed(String::from("connection refused"))
}

fn up() -> Health {
    let mut health = Health::new(settings(), 0);
    assert!(health.probe(0, ProbeOutcome::Passed).is_some());
    health
}

fn down() -> Health {
    let mut health = Health::new(settings(), 0);
    assert!(health.probe(0, failed()).is_some());
    health
}

fn fail_a_client(health: &mut Health, now_ms: u64) -> Option<Change> {
    health.passive(now_ms, PassiveFailure::ConnectFailed, false)
}

#[test]
fn a_new_server_takes_clients_until_its_first_probe_decides() {
    let health = Health::new(settings(), 7);
    assert!(health.state().takes_clients());
    assert_eq!(
        (health.state(), health.since_ms()),
        (HealthState::Starting, 7)
    );
    assert_eq!(up().state(), HealthState::Up);
    assert_eq!(down().state(), HealthState::Down);
    assert_eq!(down().reason(), "first probe failed: connection refused");
}

#[test]
fn fall_failed_probes_in_a_row_take_a_server_out() {
    let mut health = up();
    assert_eq!(health.probe(1, failed()), None);
    assert_eq!(health.probe(2, failed()), None);
    assert_eq!(
        health.probe(3, ProbeOutcome::Passed),
        None,
        "breaks the row"
    );
    assert_eq!(health.probe(4, failed()), None);
    assert_eq!(health.probe(99_000, failed()), None);
    let change = health.probe(199_000, failed()).expect("the third in a row");
    assert_eq!(
        (change.from, change.to),
        (HealthState::Up, HealthState::Down)
    );
    assert_eq!(change.reason, "3 probes failed: connection refused");
    assert_eq!(
        (health.since_ms(), health.reason()),
        (199_000, &*change.reason)
    );
}

#[test]
fn rise_passed_probes_in_a_row_bring_a_server_back() {
    let mut health = down();
    assert_eq!(health.probe(1, ProbeOutcome::Passed), None);
    assert_eq!(health.probe(2, failed()), None);
    assert_eq!(health.probe(3, ProbeOutcome::Passed), None);
    let change = health
        .probe(4, ProbeOutcome::Passed)
        .expect("the second in a row");
    assert_eq!(
        (change.to, &*change.reason),
        (HealthState::Up, "2 probes passed")
    );
}

#[test]
fn a_server_that_is_only_too_busy_for_probes_stays_in_use() {
    let busy = || ProbeOutcome::Busy(String::from("timed out"));
    let mut health = up();
    for now_ms in 1..=9 {
        assert_eq!(health.probe(now_ms, busy()), None);
    }
    assert_eq!(health.state(), HealthState::Up);
    // A server that is down needs a probe that passes.
    let mut health = down();
    health.probe(1, ProbeOutcome::Passed);
    health.probe(2, busy());
    assert_eq!(health.probe(3, ProbeOutcome::Passed), None);
}

#[test]
fn failed_clients_count_like_failed_probes() {
    let mut health = up();
    assert_eq!(fail_a_client(&mut health, 1), None);
    assert_eq!(health.probe(2, failed()), None);
    let change = health
        .passive(3, PassiveFailure::ClosedBeforeAnyByte, false)
        .expect("the third");
    assert_eq!(
        change.reason,
        "1 probe and 2 client connections failed: closed without sending data"
    );
}

#[test]
fn failed_clients_far_apart_are_no_row() {
    let mut health = up();
    for now_ms in [0, 6_000, 12_000, 18_000, 24_000] {
        assert_eq!(fail_a_client(&mut health, now_ms), None, "at {now_ms}");
    }
    assert!(
        fail_a_client(&mut health, 26_000).is_some(),
        "three within ten seconds"
    );
}

#[test]
fn a_served_client_breaks_the_row_of_clients_not_that_of_probes() {
    let mut health = up();
    health.probe(0, failed());
    fail_a_client(&mut health, 1);
    assert_eq!(health.served(2), None);
    assert_eq!(fail_a_client(&mut health, 3), None);
    assert!(health.probe(4, failed()).is_some());
}

#[test]
fn the_last_server_goes_down_only_when_a_probe_confirms_it() {
    let mut health = up();
    for now_ms in 0..50 {
        assert_eq!(
            health.passive(now_ms, PassiveFailure::ConnectFailed, true),
            None
        );
    }
    assert_eq!(health.state(), HealthState::Up);
    assert!(health.probe(51, failed()).is_some());
}

#[test]
fn signs_of_a_dead_server_change_nothing() {
    let mut health = down();
    health.probe(1, ProbeOutcome::Passed);
    let wait_ms = health.next_probe_in_ms(3);
    assert_eq!(fail_a_client(&mut health, 2), None);
    assert_eq!(health.next_probe_in_ms(3), wait_ms);
    assert!(health.probe(3, ProbeOutcome::Passed).is_some());
}

#[test]
fn a_refused_login_is_a_live_server_with_a_monitor_problem() {
    let mut health = Health::new(settings(), 0);
    let refused = || ProbeOutcome::LoginRefused(String::from("access denied for `monitor`"));
    assert!(health.probe(1, refused()).is_some());
    assert_eq!(health.state(), HealthState::Up);
    assert_eq!(
        health.monitor_problem(),
        Some("access denied for `monitor`")
    );
    for now_ms in 2..9 {
        assert_eq!(health.probe(now_ms, refused()), None);
    }
    health.probe(9, failed());
    assert!(
        health.monitor_problem().is_some(),
        "a failure says nothing about the account"
    );
    health.probe(10, ProbeOutcome::Passed);
    assert_eq!(health.monitor_problem(), None);
}

#[track_caller]
fn check_wait(health: &Health, from_ms: u64, to_ms: u64) {
    let waits: Vec<u64> = (0..9_999)
        .map(|random| health.next_probe_in_ms(random))
        .collect();
    assert_eq!(waits.iter().min(), Some(&from_ms));
    assert_eq!(waits.iter().max(), Some(&to_ms));
}

#[test]
fn probes_are_spread_then_regular_then_quick_while_in_doubt() {
    check_wait(&Health::new(settings(), 0), 0, 1_000);
    let mut health = up();
    check_wait(&health, 1_800, 2_200);
    fail_a_client(&mut health, 1);
    check_wait(&health, 0, 0);
    health.probe(2, failed());
    check_wait(&health, 450, 550);
    health.update_settings(HealthSettings {
        interval_ms: 10,
        ..settings()
    });
    check_wait(&health, 100, 100);
}

#[test]
fn the_dead_are_asked_less_and_less_until_they_stir() {
    let mut health = down();
    for wait_ms in [2_000, 3_000, 4_500, 6_750, 10_000, 10_000] {
        let tenth_ms = wait_ms / 10;
        check_wait(&health, wait_ms - tenth_ms, wait_ms + tenth_ms);
        health.probe(1, failed());
    }
    health.probe(2, ProbeOutcome::Passed);
    check_wait(&health, 450, 550);
}

#[test]
fn without_probes_a_dead_server_gets_another_chance_and_one_failure_ends_it() {
    let mut health = Health::new(unprobed(), 0);
    (0..2).for_each(|now_ms| assert_eq!(fail_a_client(&mut health, now_ms), None));
    assert!(fail_a_client(&mut health, 2).is_some());
    assert_eq!(health.tick(1_000), None, "too early");
    assert_eq!(
        health.tick(2_100).map(|change| change.to),
        Some(HealthState::Starting)
    );
    assert_eq!(
        fail_a_client(&mut health, 2_200).map(|change| change.to),
        Some(HealthState::Down)
    );
    check_wait(&health, 2_700, 3_300);
}

#[test]
fn without_probes_a_served_client_or_a_quiet_time_calls_a_server_up() {
    let mut health = Health::new(unprobed(), 0);
    assert_eq!(
        health.served(5).map(|change| change.to),
        Some(HealthState::Up)
    );
    let mut health = Health::new(unprobed(), 0);
    fail_a_client(&mut health, 9_000);
    assert_eq!(
        health.tick(health.next_probe_in_ms(0)),
        None,
        "it failed a moment ago"
    );
    assert_eq!(
        health.tick(20_000).map(|change| change.to),
        Some(HealthState::Up)
    );
}

#[test]
fn without_probes_the_tick_never_comes_before_its_own_schedule_allows() {
    for interval_ms in [1, 9, 10, 11, 19, 777, 2_000] {
        let mut health = Health::new(
            HealthSettings {
                interval_ms,
                fall: 1,
                ..unprobed()
            },
            0,
        );
        assert!(fail_a_client(&mut health, 0).is_some());
        let earliest_ms = (0..5_000)
            .map(|random| health.next_probe_in_ms(random))
            .min();
        let change = health.tick(earliest_ms.expect("some"));
        assert!(
            change.is_some(),
            "interval {interval_ms}: the tick would be lost"
        );
    }
}

#[test]
fn new_settings_keep_the_standing_and_count_at_once() {
    let mut health = down();
    (0..9).for_each(|now_ms| drop(health.probe(now_ms, failed())));
    health.update_settings(HealthSettings {
        dead_interval_ms_max: 3_000,
        rise: 1,
        ..settings()
    });
    assert_eq!(health.state(), HealthState::Down);
    check_wait(&health, 2_700, 3_300);
    assert!(health.probe(10, ProbeOutcome::Passed).is_some());
}

#[test]
fn zeroes_in_the_settings_are_taken_as_the_smallest_sense() {
    let zero = HealthSettings {
        interval_ms: 0,
        timeout_ms: 0,
        rise: 0,
        fall: 0,
        dead_interval_ms_max: 0,
        probing: true,
    };
    let mut health = Health::new(zero, 0);
    assert!(health.probe(0, ProbeOutcome::Passed).is_some());
    assert!(health.probe(1, failed()).is_some(), "fall 0 is 1");
    health.next_probe_in_ms(u64::MAX);
    assert!(
        health.probe(2, ProbeOutcome::Passed).is_some(),
        "rise 0 is 1"
    );
}

const BAD_ANSWER: PassiveFailure = PassiveFailure::BadAnswer(BadAnswer::ServerError);

fn eject(health: &mut Health, now_ms: u64) {
    for _ in 0..2 {
        assert_eq!(health.passive(now_ms, BAD_ANSWER, false), None);
    }
    let change = health.passive(now_ms, BAD_ANSWER, false);
    let change = change.expect("three of three");
    assert_eq!(change.to, HealthState::Down);
    assert_eq!(change.reason, "3 answers failed: server error");
}

/// Returns the time at which probes that always pass bring a server back.
fn back_at_ms(health: &mut Health, mut now_ms: u64) -> u64 {
    while health.probe(now_ms, ProbeOutcome::Passed).is_none() {
        now_ms += 1_000;
    }
    now_ms
}

#[test]
fn bad_answers_in_a_row_take_a_server_out_though_its_probes_pass() {
    let mut health = up();
    health.passive(100, BAD_ANSWER, false);
    health.passive(200, BAD_ANSWER, false);
    assert_eq!(health.probe(300, ProbeOutcome::Passed), None);
    let change = health.passive(400, BAD_ANSWER, false);
    assert_eq!(change.map(|change| change.to), Some(HealthState::Down));
}

#[test]
fn a_good_answer_ends_a_series_of_bad_ones_and_so_does_time() {
    let mut health = up();
    for now_ms in 0..100 {
        assert_eq!(health.passive(now_ms, BAD_ANSWER, false), None);
        if now_ms % 2 == 1 {
            health.served(now_ms);
        }
    }
    for now_ms in (1_000..100_000).step_by(6_000) {
        assert_eq!(health.passive(now_ms, BAD_ANSWER, false), None);
    }
}

#[test]
fn bad_answers_never_take_out_a_protected_server() {
    let mut health = up();
    for now_ms in 0..100 {
        assert_eq!(health.passive(now_ms, BAD_ANSWER, true), None);
    }
}

#[test]
fn bad_answers_call_no_probe_and_a_failed_connect_does() {
    let mut health = up();
    health.passive(100, BAD_ANSWER, false);
    assert_ne!(health.next_probe_in_ms(0), 0);
    fail_a_client(&mut health, 100);
    health.passive(100, BAD_ANSWER, true);
    assert_eq!(health.next_probe_in_ms(0), 0, "the probe is still due");
}

#[test]
fn an_ejected_server_stays_out_longer_each_time_though_its_probes_pass() {
    let mut health = up();
    eject(&mut health, 1_000);
    // Two passed probes are needed after ten seconds.
    let back_ms = back_at_ms(&mut health, 1_000);
    assert_eq!(back_ms, 12_000);
    eject(&mut health, back_ms);
    assert_eq!(back_at_ms(&mut health, back_ms), back_ms + 21_000);
    eject(&mut health, 500_000);
    assert_eq!(back_at_ms(&mut health, 500_000), 511_000);
}

#[test]
fn a_server_that_is_down_for_another_reason_is_not_kept_out() {
    let mut health = up();
    eject(&mut health, 1_000);
    let back_ms = back_at_ms(&mut health, 1_000);
    for _ in 0..3 {
        fail_a_client(&mut health, back_ms);
    }
    assert_eq!(health.state(), HealthState::Down);
    assert_eq!(back_at_ms(&mut health, back_ms), back_ms + 1_000);
}

#[test]
fn bad_answers_leave_half_of_the_servers_and_other_failures_one() {
    let enough = |failure: PassiveFailure, others, all| failure.leaves_enough(others, all);
    for (others, all, expect) in [
        (0, 1, false),
        (1, 2, true),
        (0, 2, false),
        (2, 3, true),
        (1, 3, false),
        (5, 10, true),
        (4, 10, false),
    ] {
        assert_eq!(enough(BAD_ANSWER, others, all), expect, "{others} of {all}");
        let connect = enough(PassiveFailure::ConnectFailed, others, all);
        assert_eq!(connect, others > 0);
    }
}
