//! Tests a change of primary between Galera nodes while the former one still runs: its commands
//! complete, without an error for any client.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use evenkeel_lab::ClusterKind;

use super::client::Client;
use super::split::TestBed;
use crate::harness::DRIVERS;

/// Statements of a round. The session is pinned to its connection within each round, and unpinned
/// between rounds.
const ROUNDS: [&[&str]; 3] = [
    &["update counters set v = v + 1 where id = {id}"],
    &[
        "begin",
        "update counters set v = v + 1 where id = {id}",
        "select sleep(0.02)",
        "commit",
    ],
    &[
        "select get_lock('lock {id}', 1)",
        "update counters set v = v + 1 where id = {id}",
        "select release_lock('lock {id}')",
    ],
];

/// Runs rounds until the end; returns their number and the longest duration.
pub(crate) fn count(bed: &TestBed, id: usize, is_over: &AtomicBool) -> (u64, Duration) {
    let mut client = bed.client();
    let (mut rounds, mut longest) = (0, Duration::ZERO);
    while !is_over.load(Relaxed) {
        let started = Instant::now();
        for text in ROUNDS[id % ROUNDS.len()] {
            client.run(&text.replace("{id}", &id.to_string()));
        }
        rounds += 1;
        let seen = client.value(&format!("select v from counters where id = {id}"));
        assert_eq!(seen, rounds.to_string(), "what it wrote");
        longest = longest.max(started.elapsed());
    }
    (rounds, longest)
}

#[test]
fn nobody_hears_of_a_change_of_the_node_that_writes() {
    for io in DRIVERS {
        let bed = TestBed::of(ClusterKind::Galera, io, "galera_wait = true");
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let count = |id| (id, count(&bed, id, &is_over));
            let counting = (0..12).map(|id| scope.spawn(move || count(id)));
            let counting: Vec<_> = counting.collect();
            for change in 1..=12 {
                // Time for some rounds of each client.
                thread::sleep(Duration::from_millis(300));
                let next = &bed.scenario.servers[change % 3];
                bed.balancer.command(&["primary", &next.name]).unwrap();
                bed.wait_primary(next);
            }
            is_over.store(true, Relaxed);
            let mut direct = Client::connect(bed.scenario.servers[0].address);
            direct.run("set session wsrep_sync_wait = 1");
            for done in counting {
                let (id, (rounds, longest)) = done.join().unwrap();
                let there = direct.value(&format!("select v from counters where id = {id}"));
                assert_eq!(there, rounds.to_string(), "counter {id}");
                // A client that waited for a time limit would wait for five seconds or more.
                assert!(longest < Duration::from_secs(2), "{longest:?}");
            }
        });
    }
}

#[test]
fn who_does_not_end_at_the_former_node_is_cut_there_and_keeps_nobody_waiting() {
    let bed = TestBed::of(ClusterKind::Galera, "auto", "galera_wait = true");
    let [_, next, _] = &bed.scenario.servers[..] else {
        panic!("three nodes");
    };
    let (mut slow, mut other) = (bed.client(), bed.client());
    slow.run("begin");
    slow.run("update counters set v = 7 where id = 1");
    bed.balancer.command(&["primary", &next.name]).unwrap();
    bed.wait_primary(next);
    let started = Instant::now();
    other.run("update counters set v = 8 where id = 2");
    let waited = started.elapsed();
    assert!(waited < Duration::from_secs(1), "{waited:?}");
    let port = other.value("/* evenkeel: primary */ select here()");
    assert_eq!(port, next.address.port().to_string());
    let reply = slow.refusal("commit");
    assert!(reply.starts_with("1213"), "{reply}");
    let seen = slow.value("/* evenkeel: primary */ select v from counters where id = 1");
    assert_eq!(seen, "0");
}

/// Measures how long writes pause if only reads run on the former node.
#[test]
fn reads_at_the_former_node_keep_nobody_waiting() {
    let bed = TestBed::of(ClusterKind::Galera, "auto", "galera_wait = true");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let mut client = bed.client();
                while !is_over.load(Relaxed) {
                    client.run("select sleep(0.01), v from counters where id = 1");
                }
            });
        }
        let mut writer = bed.client();
        let waited = (1..=6).map(|change| {
            let next = &bed.scenario.servers[change % 3];
            bed.balancer.command(&["primary", &next.name]).unwrap();
            let started = Instant::now();
            writer.run("update counters set v = v + 1 where id = 2");
            started.elapsed()
        });
        let mut waited: Vec<_> = waited.collect();
        is_over.store(true, Relaxed);
        waited.sort_unstable();
        assert!(waited[3] < Duration::from_millis(250), "{waited:?}");
    });
}
