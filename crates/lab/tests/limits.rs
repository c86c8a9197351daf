//! Tests `max_connections` of a service under a flood: the limit holds, and the surplus ends
//! cleanly.

#![expect(clippy::unwrap_used, reason = "a failed step of a test ends the test")]

#[path = "peer/peer.rs"]
mod peer;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use evenkeel_lab::{Balancer, procfs};
use peer::{End, Kind, Scripted, connect, end_of, receive, send, service, until, until_service};
use socket2::Socket;

on_both_drivers! {
    twenty_thousand_attempts_at_a_limit_of_one_thousand
    a_place_is_free_again_when_its_client_has_gone
    an_idle_session_takes_little_memory
}

const ATTEMPTS: usize = 20_000;
const LIMIT: usize = 1_000;
const FLOODERS: usize = 16;
/// A generous limit: the flood itself uses all processors.
const STATUS_LIMIT: Duration = Duration::from_millis(1_000);
/// Concurrent clients of one flooder: 3,200 in all.
const AT_ONCE: usize = 200;

/// Clients that have their answer and are still connected: each certainly holds a permit.
#[derive(Default)]
struct Served {
    now: AtomicUsize,
    highest: AtomicUsize,
    total: AtomicUsize,
    refused: AtomicUsize,
}

/// TO SEE THIS RED: let `lingering_close::close_gracefully` close immediately, or let `admit`
/// accept every client.
fn twenty_thousand_attempts_at_a_limit_of_one_thousand(io: &str) {
    static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock();
    let server = Scripted::echo(Kind::V4);
    let listen = peer::own_address(Kind::V4);
    let more = format!(
        "max_connections = {LIMIT}\n[service.health]\nprobe = \"tcp\"\ninterval_ms = 100\n"
    );
    let balancer = peer::balancer(io, &service(&listen, &[server.address()], &more));
    until_service(&balancer, "the first probe", |service| {
        service["servers"][0]["state"] == "up"
    });

    let (served, over) = (Served::default(), AtomicBool::new(false));
    let slowest = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(&balancer, &over));
        let flooders: Vec<_> = (0..FLOODERS)
            .map(|_| scope.spawn(|| flood(&listen, &served)))
            .collect();
        let outcomes: Vec<_> = flooders.into_iter().map(|f| f.join()).collect();
        over.store(true, SeqCst);
        assert!(outcomes.iter().all(Result::is_ok), "a flooder failed");
        watcher.join().unwrap()
    });

    let (refused, total) = (served.refused.load(SeqCst), served.total.load(SeqCst));
    println!("{io}: {total} served, {refused} refused, slowest status {slowest:?}");
    assert_eq!(refused + total, ATTEMPTS);
    assert!(refused > 1_000, "the limit was hardly reached: {refused}");
    let highest = served.highest.load(SeqCst);
    assert!(highest <= LIMIT, "{highest} at once");
    assert!(slowest < STATUS_LIMIT, "{slowest:?} for a status");
    assert!(!balancer.log().contains("down:"), "{}", balancer.log());
    until_service(&balancer, "the refusals in the status", |service| {
        service["errors"]["limit"] == refused && service["sessions"]["current"] == 0
    });
}

/// Each client sends its request immediately and holds its permit for a while.
fn flood(listen: &str, served: &Served) {
    let mut left = ATTEMPTS / FLOODERS;
    while left > 0 {
        let count = AT_ONCE.min(left);
        left -= count;
        let clients: Vec<Socket> = (0..count).map(|_| impatient(listen)).collect();
        let lucky = clients.iter().filter(|client| is_served(client, served));
        let lucky = lucky.count();
        served.now.fetch_sub(lucky, SeqCst);
        clients.into_iter().for_each(peer::reset);
    }
}

/// Returns whether the client got its answer; otherwise it must see a clean end.
fn is_served(mut client: &Socket, served: &Served) -> bool {
    let mut word = [0; 5];
    match client.read(&mut word) {
        Ok(0) => {
            served.refused.fetch_add(1, SeqCst);
            return false;
        }
        Ok(count) => assert_eq!(&word[..count], &b"hello"[..count]),
        Err(error) => panic!("neither an answer nor a clean end: {error}"),
    }
    let now = served.now.fetch_add(1, SeqCst) + 1;
    served.highest.fetch_max(now, SeqCst);
    served.total.fetch_add(1, SeqCst);
    true
}

fn impatient(listen: &str) -> Socket {
    let client = connect(listen);
    send(&client, b"hello");
    client
}

/// Requests the status until the flood ends and checks the limit each time. Returns the time of the
/// slowest answer.
fn watch(balancer: &Balancer, over: &AtomicBool) -> Duration {
    let mut slowest = Duration::ZERO;
    while !over.load(SeqCst) {
        let started = Instant::now();
        let status = status_over_http(balancer);
        slowest = slowest.max(started.elapsed());
        let service = &status["services"][0];
        let current = service["sessions"]["current"].as_u64().unwrap();
        assert!(current <= LIMIT as u64, "{current} sessions");
        assert_eq!(service["servers"][0]["state"], "up");
        std::thread::park_timeout(Duration::from_millis(20));
    }
    slowest
}

fn status_over_http(balancer: &Balancer) -> serde_json::Value {
    let port = balancer.admin_port().unwrap();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let request = format!(
        "GET /api/v1/status HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

fn a_place_is_free_again_when_its_client_has_gone(io: &str) {
    let server = Scripted::echo(Kind::V4);
    let listen = peer::own_address(Kind::V4);
    let more = "max_connections = 2\n";
    let balancer = peer::balancer(io, &service(&listen, &[server.address()], more));
    let (first, second) = (impatient(&listen), impatient(&listen));
    assert_eq!(receive(&first, 5), b"hello");
    assert_eq!(receive(&second, 5), b"hello");
    assert_eq!(end_of(&impatient(&listen)), End::Clean);
    drop(first);
    until_service(&balancer, "a free place", |service| {
        service["sessions"]["current"] == 1
    });
    assert_eq!(receive(&impatient(&listen), 5), b"hello");
    until("the end of the others", || server.current() == 1);
    drop(second);
}

/// Sessions whose memory is measured.
const IDLE: usize = 2_000;

/// Maximum memory of an idle session, in bytes. The sockets' own memory is the kernel's.
const IDLE_BYTES_MAX: u64 = 2_500;

/// TO SEE THIS RED: hold the futures of database sessions in that of `session::serve`.
fn an_idle_session_takes_little_memory(io: &str) {
    let server = Scripted::echo(Kind::V4);
    let listen = peer::own_address(Kind::V4);
    let more = format!("max_connections = {}\n", 2 * IDLE);
    let balancer = peer::balancer(io, &service(&listen, &[server.address()], &more));
    let open = |count: usize| -> Vec<Socket> {
        let opened = (0..count).map(|_| {
            let client = connect(&listen);
            send(&client, b"hello");
            receive(&client, 5);
            client
        });
        opened.collect()
    };
    let memory_bytes = || procfs::memory_kb(&[balancer.pid()]) * 1024;
    // The first sessions cause allocations that happen once in each worker.
    let _first = open(100);
    let before_bytes = memory_bytes();
    let _idle = open(IDLE);
    let each_bytes = memory_bytes().saturating_sub(before_bytes) / IDLE as u64;
    println!("{io}: {each_bytes} bytes per idle session");
    assert!(each_bytes <= IDLE_BYTES_MAX, "{io}: {each_bytes} bytes");
}
