//! Tests of the evaluation of observations and rows.

use super::*;
use crate::chaos::fault_schedule::Event;
use std::time::{SystemTime, UNIX_EPOCH};

fn at(ms: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(ms)
}

fn attempt(ids: &[u64], ended_ms: u64, outcome: Outcome) -> Attempt {
    Attempt {
        session: 1,
        ids: ids.to_vec(),
        key: None,
        ended: at(ended_ms),
        outcome,
    }
}

fn refused() -> Outcome {
    Outcome::Refused("no".to_owned())
}

fn unknown() -> Outcome {
    Outcome::Unknown("lost".to_owned())
}

fn row(id: u64, tags: &[&str]) -> ((u64, u64), Vec<Row>) {
    let row = |tag: &&str| Row {
        tag: (*tag).to_owned(),
        key: Some(100 + id),
    };
    ((1, id), tags.iter().map(row).collect())
}

fn failed_over(begun_ms: u64, writable_ms: u64) -> FaultRecord {
    FaultRecord {
        event: Event::FailOver,
        started: at(begun_ms),
        writable_at: Some(at(writable_ms)),
        may_lose: None,
        log_at: 0,
    }
}

fn violations(content: &Content) -> Vec<Violation> {
    let mut violations: Vec<Violation> = content
        .violations
        .iter()
        .map(|(violation, _)| *violation)
        .collect();
    violations.sort();
    violations
}

#[test]
fn rows_that_are_missing_or_too_many_or_anothers_are_told_apart() {
    let mut content = Content {
        attempts: vec![
            attempt(&[1], 1, Outcome::Acknowledged),
            attempt(&[2], 2, Outcome::Acknowledged),
            attempt(&[3], 3, refused()),
            attempt(&[4], 4, unknown()),
            attempt(&[5, 6], 5, unknown()),
            attempt(&[7], 6, Outcome::Acknowledged),
            attempt(&[8], 7, Outcome::Acknowledged),
        ],
        ..Content::default()
    };
    let kept = Kept::from([
        row(1, &["w1.1.1"]),
        row(3, &["w1.1.3"]),
        row(4, &["w1.1.4"]),
        row(6, &["w1.1.6"]),
        row(7, &["w1.1.7", "w1.1.7"]),
        row(8, &["w2.1.8"]),
        row(9, &["w1.1.9"]),
    ]);
    compare(&mut content, &kept, (&[], &[]));
    use Violation::{Doubled, Foreign, Ghost, Lost, Refused};
    let expected = [Foreign, Lost, Doubled, Ghost, Ghost, Refused];
    assert_eq!(violations(&content), expected);
}

#[test]
fn whoever_is_told_the_number_of_another_row_has_got_another_s_answer() {
    let reported = |id, key| Attempt {
        key: Some(key),
        ..attempt(&[id], 1, Outcome::Acknowledged)
    };
    let mut content = Content {
        attempts: vec![reported(1, 101), reported(2, 101)],
        ..Content::default()
    };
    let kept = Kept::from([row(1, &["w1.1.1"]), row(2, &["w1.1.2"])]);
    compare(&mut content, &kept, (&[], &[]));
    assert_eq!(violations(&content), [Violation::Foreign]);
}

#[test]
fn what_only_a_lost_primary_had_is_neither_lost_nor_stale() {
    let missed = |seen| MissedWrite {
        session: 1,
        asked: "w1.1.look.1".to_owned(),
        ended: at(1_000),
        wrote: 3,
        seen: Some(seen),
        port: None,
    };
    let mut content = Content {
        attempts: vec![
            attempt(&[1], 900, Outcome::Acknowledged),
            attempt(&[2], 1000, Outcome::Acknowledged),
            attempt(&[3], 1100, Outcome::Acknowledged),
            attempt(&[4], 1201, Outcome::Acknowledged),
        ],
        missed_writes: vec![missed(2), missed(1)],
        ..Content::default()
    };
    let faults = [FaultRecord {
        may_lose: Some((at(950), at(1200))),
        ..failed_over(1000, 1200)
    }];
    // The third had reached no replica; the first had, and the fourth was written afterwards.
    let kept = Kept::from([row(2, &["w1.1.2"])]);
    assert_eq!(
        compare(&mut content, &kept, (&faults, &[(at(950), at(1200))])),
        1
    );
    assert_eq!(
        violations(&content),
        [Violation::Lost, Violation::Lost, Violation::Stale]
    );
}

#[test]
fn an_outage_is_measured_from_the_writable_primary_and_from_the_first_error() {
    let content = Content {
        attempts: vec![
            attempt(&[1], 900, Outcome::Acknowledged),
            attempt(&[2], 1100, unknown()),
            attempt(&[3], 1200, unknown()),
            attempt(&[4], 1600, Outcome::Acknowledged),
            attempt(&[5], 1700, Outcome::Acknowledged),
        ],
        ..Content::default()
    };
    let faults = [failed_over(1000, 1350)];
    let outage = outages(&content, &faults).remove(0);
    assert_eq!(outage.reaction, Some(Duration::from_millis(250)));
    assert_eq!(outage.errors, Duration::from_millis(500));
    assert_eq!(outage.pause, Duration::from_millis(600));
    assert_eq!(outage.failed_writes, 2);
}

#[test]
fn what_was_written_during_a_late_event_is_kept() {
    let content = Content {
        attempts: vec![
            attempt(&[1], 1_100, Outcome::Acknowledged),
            attempt(&[2], 4_500, Outcome::Acknowledged),
        ],
        ..Content::default()
    };
    let faults = [
        failed_over(1_000, 1_050),
        FaultRecord {
            log_at: 6,
            ..failed_over(3_000, 3_100)
        },
    ];
    let mut report = Report {
        outages: outages(&content, &faults),
        ..Report::default()
    };
    report.keep_logs(&faults, "early\nlate\n");
    assert_eq!(
        report.late,
        ["failover, killed, log of the balancer:\nlate\n"]
    );
}

#[test]
fn what_was_written_behind_a_stale_read_is_kept() {
    let content = Content {
        attempts: vec![
            attempt(&[1], 1_100, Outcome::Acknowledged),
            attempt(&[2], 3_150, Outcome::Acknowledged),
            attempt(&[3], 3_200, Outcome::Acknowledged),
        ],
        ..Content::default()
    };
    let faults = [
        failed_over(1_000, 1_050),
        FaultRecord {
            log_at: 6,
            ..failed_over(3_000, 3_100)
        },
    ];
    let mut report = Report {
        outages: outages(&content, &faults),
        stale_at: vec![at(3_120), at(3_130)],
        ..Report::default()
    };
    report.keep_logs(&faults, "early\nthen\n");
    assert_eq!(
        report.late,
        ["failover, killed, log of the balancer:\nthen\n"]
    );
}
