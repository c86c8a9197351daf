//! Tests the communication between two processes, without the processes.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::channel::Channel;
use super::predecessor::{Predecessor, TakeOverError};
use super::state::{
    CounterTotals, DrainReport, NewProcessMessage, OldProcessMessage, Purpose, UpgradeState,
};

/// Returns the sending end of an old process, and the connection of a new one to it.
fn pair() -> (Channel, Predecessor) {
    let (old, new) = UnixStream::pair().unwrap();
    (Channel::new(old).unwrap(), Predecessor::on(7, new).unwrap())
}

fn hello(version: u32) -> OldProcessMessage {
    OldProcessMessage::Hello {
        version,
        program: "0.0.9".to_owned(),
        pid: std::process::id(),
        generation: 0,
    }
}

#[test]
fn another_version_of_the_hand_over_is_refused_with_both_named() {
    let (mut old, mut new) = pair();
    old.send(&hello(super::VERSION + 1)).unwrap();
    let Err(error) = new.request_sockets() else {
        panic!("took over");
    };
    assert!(matches!(error, TakeOverError::Version { .. }));
    let error = error.to_string();
    assert!(
        error.contains("0.0.9") && error.contains("upgrade protocol 4"),
        "{error}"
    );
}

#[test]
fn an_old_process_that_hangs_up_is_named() {
    let (mut old, mut new) = pair();
    old.send(&hello(super::VERSION)).unwrap();
    drop(old);
    let Err(error) = new.request_sockets() else {
        panic!("took over");
    };
    let error = error.to_string();
    assert!(
        error.starts_with("cannot take over from process 7: "),
        "{error}"
    );
}

#[test]
fn a_socket_arrives_as_the_same_socket_under_its_purpose() {
    let (mut old, mut new) = pair();
    let (here, there) = UnixStream::pair().unwrap();
    let purpose = Purpose::Clients("127.0.0.1:1".to_owned());
    old.send(&hello(super::VERSION)).unwrap();
    old.send(&OldProcessMessage::Sockets(vec![purpose.clone()]))
        .unwrap();
    old.send_descriptor(&there).unwrap();
    drop(there);
    let mut inherited = new.request_sockets().unwrap();
    assert!(matches!(
        old.receive(None).unwrap(),
        NewProcessMessage::Asks
    ));
    assert!(inherited.take(Purpose::Log).is_none());
    let passed: OwnedFd = inherited.take(purpose.clone()).unwrap();
    assert!(inherited.take(purpose.clone()).is_none(), "only once");
    assert_eq!(inherited.taken(), [purpose]);
    let mut passed = Channel::new(passed.into()).unwrap();
    Channel::new(here).unwrap().send(&"hello").unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    let heard: String = passed.receive(Some(deadline)).unwrap();
    assert_eq!(heard, "hello");
}

#[test]
fn a_state_of_which_nothing_is_known_is_a_state() {
    let handover: UpgradeState = serde_json::from_str("{\"later\": 1}").unwrap();
    assert!(handover.services.is_empty());
}

#[test]
fn a_report_says_only_what_is_new_and_the_two_together_say_all() {
    let places = |pairs: &[(&str, u32)]| -> BTreeMap<String, u32> {
        pairs
            .iter()
            .map(|(key, n)| ((*key).to_owned(), *n))
            .collect()
    };
    let mut reported = DrainReport {
        services: places(&[("a", 1), ("b", 2)]),
        ..DrainReport::default()
    };
    let now = DrainReport {
        services: places(&[("a", 1), ("b", 3)]),
        ..DrainReport::default()
    };
    let changes = now.changes_since(&reported);
    assert_eq!(changes.services, places(&[("b", 3)]));
    reported.merge(changes);
    assert_eq!(reported, now);
    // A removed server has no permits any more. That is reported once.
    let later = DrainReport {
        services: places(&[("a", 1)]),
        ..DrainReport::default()
    };
    let changes = later.changes_since(&reported);
    assert_eq!(changes.services, places(&[("b", 0)]));
    reported.merge(changes);
    assert_eq!(later.changes_since(&reported), DrainReport::default());
}

#[test]
fn what_was_counted_since_is_added_and_nothing_twice() {
    let counted = |sessions: u64, slots: [u64; 2]| CounterTotals {
        tallies: [("sessions".to_owned(), sessions)].into(),
        histograms: [("connect_us".to_owned(), (slots.to_vec(), sessions))].into(),
        from_clients: sessions * 10,
        ..CounterTotals::default()
    };
    let grown = counted(7, [5, 2]).since(&counted(4, [4, 0]));
    assert_eq!(grown.tallies["sessions"], 3);
    assert_eq!(grown.histograms["connect_us"], (vec![1, 2], 3));
    assert_eq!(grown.from_clients, 30);
    let all = counted(7, [5, 2]).since(&CounterTotals::default());
    assert_eq!(all, counted(7, [5, 2]));
    let with_routes = |names: &[(&str, u64)]| CounterTotals {
        routes: names
            .iter()
            .map(|(name, count)| ((*name).to_owned(), counted(*count, [0, 0])))
            .collect(),
        ..CounterTotals::default()
    };
    let now = with_routes(&[("a", 5), ("new", 2)]);
    let grown = now.since(&with_routes(&[("a", 3), ("gone", 9)]));
    assert_eq!(grown, with_routes(&[("a", 2), ("new", 2)]));
}
