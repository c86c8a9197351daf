//! Tests a change of primary between Galera nodes while the former one still runs: its commands
//! complete, without an error for any client.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use evenkeel_lab::{ClusterKind, Server};

use super::client::Client;
use super::split::TestBed;
use crate::harness::{DRIVERS, SetOnDrop};

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

/// Time that transactions on the former node have to end, as docs/clusters.md states.
const TIME_TO_END: Duration = Duration::from_millis(300);

/// Runs rounds until the end; returns their number and the longest duration. Only a round that had
/// more than its time to end may fail, or if nodes do not respond in time, as where a machine has
/// too much to do.
pub(crate) fn count(bed: &TestBed, id: usize, is_over: &AtomicBool) -> (u64, Duration) {
    let own_value = format!("/* evenkeel: primary */ select v from counters where id = {id}");
    let mut client = bed.client();
    let (mut rounds, mut longest) = (0, Duration::ZERO);
    while !is_over.load(Relaxed) {
        let started = Instant::now();
        if let Err(error) = run_round(&mut client, id) {
            let lasted = started.elapsed();
            let is_overloaded = || bed.balancer.log().contains("does not respond");
            assert!(
                lasted > TIME_TO_END || is_overloaded(),
                "after {lasted:?}: {error}"
            );
            client = bed.client();
            rounds = client.value(&own_value).parse().unwrap();
            continue;
        }
        rounds += 1;
        let seen = client.value(&format!("select v from counters where id = {id}"));
        assert_eq!(seen, rounds.to_string(), "what it wrote");
        longest = longest.max(started.elapsed());
    }
    (rounds, longest)
}

/// Names the primary, again after a second if it is not the primary by then: the override ends if
/// the server does not respond in time, as it may where a machine has too much to do.
fn make_primary(bed: &TestBed, next: &Server) {
    let mut named: Option<Instant> = None;
    bed.wait(&format!("{} as the primary", next.name), || {
        if named.is_none_or(|named| named.elapsed() > Duration::from_secs(1)) {
            bed.balancer.command(&["primary", &next.name]).unwrap();
            named = Some(Instant::now());
        }
        bed.cluster()["primary"] == next.name.as_str()
    });
}

fn run_round(client: &mut Client, id: usize) -> Result<(), String> {
    for text in ROUNDS[id % ROUNDS.len()] {
        let reply = client.query(&text.replace("{id}", &id.to_string()));
        let is_failure = |line: &&String| line.starts_with("error") || *line == "end";
        if let Some(line) = reply.iter().find(is_failure) {
            return Err(format!("{text}: {line}"));
        }
    }
    Ok(())
}

#[test]
fn nobody_hears_of_a_change_of_the_node_that_writes() {
    for io in DRIVERS {
        let bed = TestBed::of(ClusterKind::Galera, io, "galera_wait = true");
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let end = SetOnDrop(&is_over);
            let count = |id| (id, count(&bed, id, &is_over));
            let counting = (0..12).map(|id| scope.spawn(move || count(id)));
            let counting: Vec<_> = counting.collect();
            for change in 1..=12 {
                // Time for some rounds of each client.
                thread::sleep(Duration::from_millis(300));
                let next = &bed.scenario.servers[change % 3];
                make_primary(&bed, next);
            }
            drop(end);
            let mut direct = Client::connect(bed.scenario.servers[0].address);
            direct.run("set session wsrep_sync_wait = 1");
            for done in counting {
                let (id, (rounds, longest)) = done.join().unwrap();
                let there = direct.value(&format!("select v from counters where id = {id}"));
                assert_eq!(there, rounds.to_string(), "counter {id}");
                // A client that waited for a time limit would wait for five seconds or more.
                assert!(longest < Duration::from_secs(4), "{longest:?}");
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
        let end = SetOnDrop(&is_over);
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
        drop(end);
        waited.sort_unstable();
        assert!(waited[3] < Duration::from_millis(250), "{waited:?}");
    });
}
