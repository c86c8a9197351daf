//! Tests of the algorithms over real connections: which clients reach which servers, and which
//! servers are left out.

#![expect(clippy::unwrap_used, reason = "a failed step of a test ends the test")]

#[path = "peer/peer.rs"]
mod peer;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evenkeel_lab::Balancer;
use peer::{
    Kind, Scripted, connect, connect_from, end_of, name_of, receive, send, service, until,
    until_service,
};
use socket2::Socket;

const PROBED: &str = "[service.health]\nprobe = \"tcp\"\ninterval_ms = 50\nfall = 2\nrise = 2\n";

on_both_drivers! {
    round_robin_obeys_weights
    least_connections_evens_out_long_sessions
    source_keeps_a_client_address_on_its_server
    source_goes_by_the_address_that_a_proxy_header_names
    first_takes_the_next_server_only_when_one_is_full
    random_two_uses_all_servers_and_avoids_the_busy_one
    least_latency_prefers_the_fast_server
    a_client_that_thinks_before_it_asks_does_not_make_its_server_slow
    a_backup_serves_only_while_no_other_server_is_up
    eight_clients_are_spread_over_two_workers
    a_server_that_closes_at_once_is_taken_out_but_never_the_last
}

/// Servers `aaa`, `bbb`, … of one service.
struct TestBed {
    listen: String,
    servers: Vec<Scripted>,
    balancer: Balancer,
}

impl TestBed {
    /// Starts servers; `entries` are settings beside each address, for example `weight = 2`.
    fn new(io: &str, entries: &[&str], more: &str) -> TestBed {
        let names = ["aaa", "bbb", "ccc", "ddd"];
        let servers = names.into_iter().take(entries.len()).map(Scripted::named);
        TestBed::of(io, servers.collect(), entries, more)
    }

    fn of(io: &str, servers: Vec<Scripted>, entries: &[&str], more: &str) -> TestBed {
        let entry = |(server, entry): (&Scripted, &&str)| {
            let comma = if entry.is_empty() { "" } else { ", " };
            format!("{{ address = {:?}{comma}{entry} }}", server.address())
        };
        let entries: Vec<String> = servers.iter().zip(entries).map(entry).collect();
        let entries: Vec<&str> = entries.iter().map(String::as_str).collect();
        let listen = peer::own_address(Kind::V4);
        let balancer = peer::balancer(io, &service(&listen, &entries, more));
        TestBed {
            listen,
            servers,
            balancer,
        }
    }

    /// Counts clients by server, each disconnected before the next connects.
    fn visits(&self, count: usize) -> BTreeMap<String, usize> {
        tally((0..count).map(|_| name_of(&connect(&self.listen))))
    }

    fn server_state(&self, index: usize) -> String {
        let status = self.balancer.status().unwrap();
        let server = &status["services"][0]["servers"][index];
        server["state"].as_str().unwrap().to_owned()
    }

    fn until_state(&self, index: usize, state: &str) {
        until(state, || self.server_state(index) == state);
    }
}

fn tally(names: impl Iterator<Item = String>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    names.for_each(|name| *counts.entry(name).or_default() += 1);
    counts
}

fn round_robin_obeys_weights(io: &str) {
    let bed = TestBed::new(io, &["weight = 2", "weight = 1"], "");
    let counts = bed.visits(60);
    assert_eq!(counts["aaa"], 40, "{counts:?}");
    assert_eq!(counts["bbb"], 20, "{counts:?}");
}

fn least_connections_evens_out_long_sessions(io: &str) {
    let more = "balance = \"least-connections\"\n";
    let bed = TestBed::new(io, &["", "", ""], more);
    let mut clients: Vec<(Socket, String)> = Vec::new();
    let arrive = |clients: &mut Vec<(Socket, String)>, count: usize| {
        for _ in 0..count {
            let client = connect(&bed.listen);
            let name = name_of(&client);
            clients.push((client, name));
        }
    };
    arrive(&mut clients, 30);
    let even = tally(clients.iter().map(|(_, name)| name.clone()));
    assert!(even.values().all(|count| *count == 10), "{even:?}");
    // All clients of one server disconnect: the next ten all go to it.
    clients.retain(|(_, name)| name != "bbb");
    until_service(&bed.balancer, "twenty sessions", |service| {
        service["sessions"]["current"] == 20
    });
    arrive(&mut clients, 10);
    let again = tally(clients.iter().map(|(_, name)| name.clone()));
    assert!(again.values().all(|count| *count == 10), "{again:?}");
}

fn source_keeps_a_client_address_on_its_server(io: &str) {
    let bed = TestBed::new(io, &["", "", ""], "balance = \"source\"\n");
    let mut used = BTreeSet::new();
    for last in 1..=30 {
        let visit = || name_of(&connect_from([127, 0, 7, last], &bed.listen));
        let own = visit();
        assert!((0..3).all(|_| visit() == own), "127.0.7.{last} moved");
        used.insert(own);
    }
    assert_eq!(used.len(), 3, "{used:?}");
}

fn source_goes_by_the_address_that_a_proxy_header_names(io: &str) {
    let more = "balance = \"source\"\naccept_proxy_from = [\"127.0.0.1\"]\n";
    let bed = TestBed::new(io, &["", "", ""], more);
    let visit = |last: u8, port: u16| {
        let client = connect(&bed.listen);
        let header = format!("PROXY TCP4 198.51.100.{last} 192.0.2.1 {port} 3306\r\n");
        send(&client, header.as_bytes());
        name_of(&client)
    };
    let mut used = BTreeSet::new();
    for last in 1..=30 {
        let own = visit(last, 1_000);
        assert!((0..3).all(|port| visit(last, 2_000 + port) == own));
        used.insert(own);
    }
    assert_eq!(used.len(), 3, "{used:?}");
}

fn first_takes_the_next_server_only_when_one_is_full(io: &str) {
    let limit = "max_connections = 2";
    let bed = TestBed::new(io, &[limit, limit, limit], "balance = \"first\"\n");
    let clients: Vec<Socket> = (0..5).map(|_| connect(&bed.listen)).collect();
    let names: Vec<String> = clients.iter().map(name_of).collect();
    assert_eq!(tally(names.into_iter())["aaa"], 2);
    drop(clients);
    until_service(&bed.balancer, "all gone", |service| {
        service["sessions"]["current"] == 0
    });
    assert_eq!(bed.visits(1)["aaa"], 1);
}

fn random_two_uses_all_servers_and_avoids_the_busy_one(io: &str) {
    let bed = TestBed::new(io, &["", "", "", ""], "balance = \"random-two\"\n");
    let clients: Vec<Socket> = (0..200).map(|_| connect(&bed.listen)).collect();
    let counts = tally(clients.iter().map(name_of));
    assert_eq!(counts.len(), 4, "{counts:?}");
    // A single random choice would give a spread of 14 and more (the deviation of 200 in 4).
    let spread = counts.values().max().unwrap() - counts.values().min().unwrap();
    assert!(spread <= 12, "{counts:?}");
}

/// Answers each byte with its name, after `delay`.
fn answering(name: &'static str, delay: Duration) -> Scripted {
    Scripted::start(Kind::V4, move |client| {
        receive(client, 1);
        let start = std::time::Instant::now();
        while start.elapsed() < delay {
            std::thread::park_timeout(delay.saturating_sub(start.elapsed()));
        }
        send(client, name.as_bytes());
        end_of(client);
    })
}

fn asked(listen: &str) -> String {
    let client = connect(listen);
    send(&client, b"?");
    name_of(&client)
}

fn least_latency_prefers_the_fast_server(io: &str) {
    let servers = vec![
        answering("aaa", Duration::from_millis(60)),
        answering("bbb", Duration::ZERO),
    ];
    let more = "balance = \"least-latency\"\n";
    let bed = TestBed::of(io, servers, &["", ""], more);
    let counts = tally((0..60).map(|_| asked(&bed.listen)));
    assert!(counts["bbb"] > 50, "{counts:?}");
    assert!(counts.contains_key("aaa"), "it was never tried: {counts:?}");
}

/// Pools open connections long before they use them: that is not slowness of the server.
fn a_client_that_thinks_before_it_asks_does_not_make_its_server_slow(io: &str) {
    let bed = TestBed::of(io, vec![answering("aaa", Duration::ZERO)], &[""], "");
    let client = connect(&bed.listen);
    until("the server's connection", || bed.servers[0].total() == 1);
    peer::stays("thinking", Duration::from_millis(400), || true);
    send(&client, b"?");
    assert_eq!(name_of(&client), "aaa");
    let status = bed.balancer.status().unwrap();
    let latency_us = &status["services"][0]["servers"][0]["latency_us"];
    assert!(latency_us.as_u64().unwrap() < 200_000, "{latency_us} us");
}

fn a_backup_serves_only_while_no_other_server_is_up(io: &str) {
    let mut bed = TestBed::new(io, &["", "", "backup = true"], PROBED);
    assert!(!bed.visits(20).contains_key("ccc"));
    let primaries: Vec<Scripted> = bed.servers.drain(..2).collect();
    let addresses: Vec<String> = primaries.iter().map(|s| s.address().to_owned()).collect();
    primaries.into_iter().for_each(Scripted::close);
    bed.until_state(0, "down");
    bed.until_state(1, "down");
    let counts = bed.visits(10);
    assert_eq!(counts["ccc"], 10, "{counts:?}");
    let _back = Scripted::named_at("bbb", &addresses[1]);
    bed.until_state(1, "up");
    let counts = bed.visits(10);
    assert_eq!(counts["bbb"], 10, "{counts:?}");
}

fn eight_clients_are_spread_over_two_workers(io: &str) {
    let bed = TestBed::new(io, &[""], "");
    let clients: Vec<Socket> = (0..8).map(|_| connect(&bed.listen)).collect();
    clients.iter().for_each(|client| drop(name_of(client)));
    let status = bed.balancer.status().unwrap();
    let workers = status["engine"]["workers"].as_array().unwrap();
    let counts: Vec<u64> = workers
        .iter()
        .map(|worker| worker["sessions"].as_u64().unwrap())
        .collect();
    assert_eq!(counts.iter().sum::<u64>(), 8, "{counts:?}");
    assert!(counts.iter().all(|count| *count <= 5), "{counts:?}");
}

/// The probes succeed, since it accepts. Only the clients see that it closes.
fn a_server_that_closes_at_once_is_taken_out_but_never_the_last(io: &str) {
    let closing = || Scripted::start(Kind::V4, |_| {});
    let good = Scripted::start(Kind::V4, |client| send(client, b"bbb"));
    let seldom = "[service.health]\nprobe = \"tcp\"\ninterval_ms = 60000\nfall = 3\n";
    let bed = TestBed::of(io, vec![closing(), good], &["", ""], seldom);
    until("enough clients to see it", || {
        end_of_visit(&bed.listen);
        bed.server_state(0) == "down" || early_closes(&bed) >= 3
    });
    assert!(early_closes(&bed) >= 1);

    let alone = TestBed::of(io, vec![closing()], &[""], seldom);
    until("many early closes", || {
        end_of_visit(&alone.listen);
        early_closes(&alone) >= 8
    });
    assert_ne!(alone.server_state(0), "down", "the last is never taken out");
}

fn end_of_visit(listen: &str) {
    end_of(&connect(listen));
}

fn early_closes(bed: &TestBed) -> u64 {
    let status = bed.balancer.status().unwrap();
    let errors = &status["services"][0]["servers"][0]["errors"];
    errors["early_close"].as_u64().unwrap()
}
