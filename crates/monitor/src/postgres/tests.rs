//! Tests the parsing of recorded PostgreSQL replies.

use evenkeel_policy::cluster::report::Postgres;

use super::*;
use crate::row::tests::row;

type Cells = Vec<(&'static str, Option<&'static str>)>;

fn standby() -> Cells {
    vec![
        ("in_recovery", Some("t")),
        ("system_identifier", Some("7710366361509913512")),
        ("lsn", Some("0/4018EF0")),
        ("wal_file", None),
        ("checkpoint_timeline", Some("1")),
        ("recovery_timeline", Some("1")),
        ("receiver_pid", Some("13390")),
        ("receiver_status", Some("streaming")),
        ("received_timeline", Some("2")),
        ("started", Some("1795209563.57302")),
        ("clock", Some("1795210430.792681")),
        ("replayed", Some("1795210429.292681")),
        ("read_only", Some("off")),
    ]
}

fn primary() -> Cells {
    let changes = [
        ("in_recovery", Some("f")),
        ("wal_file", Some("000000020000000000000004")),
        ("receiver_pid", None),
        ("receiver_status", None),
        ("received_timeline", None),
    ];
    changed(standby(), &changes)
}

fn changed(mut cells: Cells, changes: &[(&'static str, Option<&'static str>)]) -> Cells {
    for (name, value) in changes {
        let cell = cells.iter_mut().find(|(column, _)| column == name);
        cell.unwrap().1 = *value;
    }
    cells
}

fn read(cells: &Cells) -> Postgres {
    answer::read(&row(cells), false, &mut Timelines::default()).unwrap()
}

#[test]
fn a_primary_is_on_the_timeline_of_the_file_it_writes() {
    let read = read(&primary());
    assert!(!read.in_recovery && !read.streaming && !read.read_only_by_default);
    assert_eq!(
        (read.system_id, read.timeline),
        (7_710_366_361_509_913_512, 2)
    );
    assert_eq!((read.lsn, read.replay_age_ms), (0x401_8EF0, None));
    assert_eq!(read.started, "1795209563.57302");
}

#[test]
fn a_standby_is_on_the_highest_timeline_that_anything_in_it_names() {
    let standby = read(&standby());
    assert!(standby.in_recovery && standby.streaming);
    assert_eq!((standby.timeline, standby.replay_age_ms), (2, Some(1500)));
    for column in [
        "checkpoint_timeline",
        "recovery_timeline",
        "received_timeline",
    ] {
        let cells = changed(super::tests::standby(), &[(column, Some("9"))]);
        assert_eq!(read(&cells).timeline, 9, "{column}");
    }
}

#[test]
fn a_standby_keeps_its_timeline_when_its_source_is_gone_and_forgets_it_when_started_anew() {
    let gone = [
        ("receiver_pid", None),
        ("receiver_status", None),
        ("received_timeline", None),
    ];
    let mut timelines = Timelines::default();
    let mut timeline = |cells: &Cells| {
        let read = answer::read(&row(cells), false, &mut timelines).unwrap();
        (read.timeline, read.streaming)
    };
    assert_eq!(timeline(&standby()), (2, true));
    let alone = changed(standby(), &gone);
    assert_eq!(timeline(&alone), (2, false));
    let anew = changed(alone.clone(), &[("started", Some("1795209999.1"))]);
    assert_eq!(timeline(&anew), (1, false));
    let other = changed(alone, &[("system_identifier", Some("-1"))]);
    assert_eq!(timeline(&other), (1, false));
}

#[test]
fn a_system_identifier_above_the_signed_range_is_read_as_what_it_is() {
    let cells = changed(standby(), &[("system_identifier", Some("-2"))]);
    assert_eq!(read(&cells).system_id, u64::MAX - 1);
}

#[test]
fn a_standby_that_replayed_nothing_has_no_age() {
    assert_eq!(
        read(&changed(standby(), &[("replayed", None)])).replay_age_ms,
        None
    );
    let ahead = changed(standby(), &[("replayed", Some("1795210431.9"))]);
    assert_eq!(read(&ahead).replay_age_ms, Some(0));
}

#[test]
fn a_default_of_read_only_counts_unless_it_is_that_of_our_account() {
    let cells = changed(primary(), &[("read_only", Some("on"))]);
    assert!(read(&cells).read_only_by_default);
    let own = answer::read(&row(&cells), true, &mut Timelines::default()).unwrap();
    assert!(!own.read_only_by_default);
    let source = |text| answer::is_account_setting(&row(&[("source", Some(text))]));
    assert_eq!(source("user"), Ok(true));
    assert_eq!(source("configuration file"), Ok(false));
}

#[test]
fn a_receiver_that_is_hidden_from_us_is_not_taken_for_one_that_does_not_run() {
    let hidden = changed(standby(), &[("receiver_status", None)]);
    let reported = answer::read(&row(&hidden), false, &mut Timelines::default());
    assert!(
        reported
            .unwrap_err()
            .to_string()
            .contains("GRANT pg_monitor")
    );
}

#[test]
fn nonsense_is_named() {
    for (column, value) in [
        ("lsn", "16-B3"),
        ("wal_file", "x"),
        ("system_identifier", ""),
    ] {
        let cells = changed(primary(), &[(column, Some(value))]);
        let reported = answer::read(&row(&cells), false, &mut Timelines::default()).unwrap_err();
        assert!(
            reported.to_string().contains(&format!("{value:?}")),
            "{reported}"
        );
    }
}
