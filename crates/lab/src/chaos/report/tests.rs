//! Tests of what is made of notes and rows.

use super::*;
use std::time::UNIX_EPOCH;

fn at(ms: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(ms)
}

fn attempt(ids: &[u64], ended_ms: u64, outcome: Outcome) -> Attempt {
    Attempt {
        session: 1,
        ids: ids.to_vec(),
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

fn row(id: u64, tags: &[&str]) -> ((u64, u64), Vec<String>) {
    ((1, id), tags.iter().map(|tag| (*tag).to_owned()).collect())
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
    let rows = Rows::from([
        row(1, &["w1.1.1"]),
        row(3, &["w1.1.3"]),
        row(4, &["w1.1.4"]),
        row(6, &["w1.1.6"]),
        row(7, &["w1.1.7", "w1.1.7"]),
        row(8, &["w2.1.8"]),
        row(9, &["w1.1.9"]),
    ]);
    compare(&mut content, &rows);
    let mut wrongs: Vec<Wrong> = content.wrongs.iter().map(|(wrong, _)| *wrong).collect();
    wrongs.sort();
    use Wrong::{Doubled, Foreign, Ghost, Lost, Refused};
    assert_eq!(wrongs, [Foreign, Lost, Doubled, Ghost, Ghost, Refused]);
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
    let happened = [Happened {
        event: Event::FailOver,
        begun: at(1000),
        writable_at: Some(at(1350)),
    }];
    let outage = outages(&content, &happened).remove(0);
    assert_eq!(outage.reaction, Some(Duration::from_millis(250)));
    assert_eq!(outage.errors, Duration::from_millis(500));
    assert_eq!(outage.pause, Duration::from_millis(600));
    assert_eq!(outage.failed_writes, 2);
}
