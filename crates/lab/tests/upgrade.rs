//! Tests of upgrades: a new process takes over the sockets, no client is refused, and limits hold
//! for both processes together.

#![expect(clippy::unwrap_used, reason = "a failed step of a test ends the test")]

#[path = "upgrade/broken.rs"]
mod broken;
#[path = "upgrade/draining.rs"]
mod draining;
#[path = "upgrade/ends.rs"]
mod ends;
#[path = "upgrade/limits.rs"]
mod limits;
#[path = "peer/peer.rs"]
mod peer;
#[path = "upgrade/state.rs"]
mod state;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use evenkeel_lab::{Balancer, Driver, Greeting, Lab, NewConnections, Service, Sysbench, web};
use peer::{Kind, Scripted, connect, receive, send, until, until_service};
use serde_json::Value;

on_both_drivers! {
    twenty_upgrades_under_short_http_connections_lose_none
    upgrades_under_sysbench_break_no_query_and_refuse_no_newcomer
}

const UPGRADES: usize = 20;

/// Number of upgrades, with a run of sysbench each.
const RUNS: usize = 5;
const VISITORS: usize = 6;

/// Returns the `[engine]` lines; sessions of an old process may continue for `shutdown_limit_ms`.
fn engine(io: &str, shutdown_limit_ms: u64) -> String {
    format!("[engine]\nio = {io:?}\nworkers = 2\nshutdown_limit_ms = {shutdown_limit_ms}\n")
}

fn first_service(balancer: &Balancer) -> Value {
    balancer.status().unwrap()["services"][0].clone()
}

/// Waits until only the newest process is left.
#[track_caller]
fn until_alone(balancer: &Balancer) {
    until("the end of the old processes", || {
        balancer.pids().len() == 1
    });
    until("no old process in the status", || {
        balancer.status().unwrap()["upgrade"] == serde_json::json!([])
    });
}

/// Short HTTP connections, in sequence on each of several threads.
struct Visitors {
    ended: Arc<AtomicBool>,
    visits: Arc<AtomicU64>,
    failures: Arc<Mutex<Vec<String>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Visitors {
    fn start(address: SocketAddr) -> Visitors {
        let mut visitors = Visitors {
            ended: Arc::default(),
            visits: Arc::default(),
            failures: Arc::default(),
            threads: Vec::new(),
        };
        for _ in 0..VISITORS {
            let (ended, visits) = (Arc::clone(&visitors.ended), Arc::clone(&visitors.visits));
            let failures = Arc::clone(&visitors.failures);
            visitors.threads.push(std::thread::spawn(move || {
                while !ended.load(SeqCst) {
                    visits.fetch_add(1, SeqCst);
                    if let Err(error) = web::get_within(peer::LIMIT, address, "/") {
                        failures.lock().unwrap().push(format!("{error:#}"));
                    }
                }
            }));
        }
        visitors
    }

    fn wait_for(&self, more: u64) {
        let goal = self.visits.load(SeqCst) + more;
        until("visits", || self.visits.load(SeqCst) >= goal);
    }

    /// Returns the number of visits; none may have failed.
    #[track_caller]
    fn finish(self) -> u64 {
        self.ended.store(true, SeqCst);
        self.threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        let failures = self.failures.lock().unwrap();
        let visits = self.visits.load(SeqCst);
        assert!(
            failures.is_empty(),
            "{} of {visits}: {failures:?}",
            failures.len()
        );
        visits
    }
}

/// TO SEE THIS RED: let the new process bind its own sockets (SO_REUSEPORT) instead of taking the
/// old ones, or drop an accept in progress when the old process stops accepting.
fn twenty_upgrades_under_short_http_connections_lose_none(io: &str) {
    let lab = Lab::new("upgrade-http").unwrap();
    let servers = lab.web(2).unwrap();
    let address: SocketAddr = peer::own_address(Kind::V4).parse().unwrap();
    let service = Service::new("front", address, "off", &servers);
    let balancer = Balancer::start(&format!("{}{}", engine(io, 20_000), service.toml())).unwrap();
    let visitors = Visitors::start(address);
    visitors.wait_for(50);
    let mut pids = vec![balancer.pid()];
    for _ in 0..UPGRADES {
        balancer.upgrade(&[]).unwrap();
        pids.push(balancer.pid());
        visitors.wait_for(20);
        until_alone(&balancer);
    }
    let visits = visitors.finish();
    pids.dedup();
    assert_eq!(pids.len(), UPGRADES + 1, "{pids:?}");
    until_alone(&balancer);
    println!("{io}: {UPGRADES} upgrades, {visits} connections, none refused, none reset");
    // Every client of every process was counted, none twice.
    until_service(&balancer, "the totals", |service| {
        service["sessions"]["total"] == visits && service["sessions"]["current"] == 0
    });
    let service = first_service(&balancer);
    let count_of = |server: &Value| server["sessions"]["total"].as_u64().unwrap();
    let servers = service["servers"].as_array().unwrap();
    assert_eq!(servers.iter().map(count_of).sum::<u64>(), visits);
    assert_eq!(service["session_ms"]["count"], visits);
    let log = balancer.log();
    assert_eq!(log.matches("upgrade complete").count(), UPGRADES, "{log}");
    assert!(!log.contains("error"), "{log}");
}

fn upgrades_under_sysbench_break_no_query_and_refuse_no_newcomer(io: &str) {
    let lab = Lab::new("upgrade-sysbench").unwrap();
    let mut servers = lab.mariadb_stand_alone(1, Some(20_000)).unwrap();
    let server = servers.remove(0);
    let address: SocketAddr = peer::own_address(Kind::V4).parse().unwrap();
    let service = Service::new("front", address, "mysql", std::slice::from_ref(&server));
    let balancer = Balancer::start(&format!("{}{}", engine(io, 60_000), service.toml())).unwrap();
    let every = Duration::from_millis(10);
    let newcomers = NewConnections::start(address, Greeting::Mysql, every, peer::LIMIT);
    let mut seconds = 0;
    for _ in 0..RUNS {
        seconds += sysbench_over_an_upgrade(&balancer, address);
        until_alone(&balancer);
    }
    let report = newcomers.finish();
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    let attempts = report.attempts;
    println!("{io}: {RUNS} upgrades, {attempts} newcomers, {seconds} s of queries");
}

/// Runs sysbench and an upgrade during it; returns the number of seconds in which sysbench had
/// queries.
fn sysbench_over_an_upgrade(balancer: &Balancer, address: SocketAddr) -> usize {
    let run = Sysbench {
        threads: 4,
        seconds: 60,
        ..Sysbench::new(Driver::Mysql, address)
    };
    let mut run = run.start().unwrap();
    until("sysbench at work", || !run.so_far().seconds.is_empty());
    balancer.upgrade(&[]).unwrap();
    assert!(run.is_running(), "{:?}", run.so_far().failure);
    let before = run.so_far().seconds.len();
    until("two more seconds of the run", || {
        run.so_far().seconds.len() > before + 1
    });
    let so_far = run.so_far();
    assert_eq!(so_far.failure, None);
    assert!(so_far.seconds.iter().all(|second| second.errors == 0.0));
    assert!(
        so_far.seconds.iter().all(|second| second.qps > 0.0),
        "{so_far:?}"
    );
    // The old process still has its sessions.
    let status = balancer.status().unwrap();
    assert!(
        status["upgrade"][0]["sessions_left"].as_u64() >= Some(4),
        "{status:#}"
    );
    so_far.seconds.len()
}

/// Returns whether both ends of a session still receive each other's data.
fn is_alive(client: &socket2::Socket) -> bool {
    send(client, b"hello");
    receive(client, 5) == b"hello"
}

fn echo_behind(io: &str, more: &str) -> (Scripted, String, Balancer) {
    let server = Scripted::echo(Kind::V4);
    let listen = peer::own_address(Kind::V4);
    let service = peer::service(&listen, &[server.address()], more);
    let balancer = Balancer::start(&format!("{}{service}", engine(io, 60_000))).unwrap();
    (server, listen, balancer)
}

fn held(listen: &str, count: usize) -> Vec<socket2::Socket> {
    let clients: Vec<_> = (0..count).map(|_| connect(listen)).collect();
    assert!(clients.iter().all(is_alive));
    clients
}
