//! Tests of clients that are slow on purpose: with heads, bodies or responses. Others are served as
//! before, memory stays bounded, and the slow ones are closed.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use socket2::Socket;

use crate::client::Client;
use crate::origin::{Origin, ok, reply};
use crate::peer::{self, until};
use crate::{Bed, on_both_drivers};

on_both_drivers! {
    slow_heads_bodies_and_readers_harm_no_other_client
}

const ATTACKERS: usize = 600;

/// Limit of the memory of a session, in kB: a piece of 120 kB of a body, and its other data.
const SESSION_KB_MAX: f64 = 128.0;

/// Returns the time in which 99 of 100 requests were answered, in microseconds.
fn p99_us(bed: &Bed, requests: usize) -> u64 {
    let mut times: Vec<u64> = std::thread::scope(|scope| {
        let clients = (0..4).map(|_| {
            scope.spawn(|| {
                let mut client = bed.client();
                let request = |_| {
                    let started = Instant::now();
                    assert_eq!(client.get("/small").text(), "small");
                    started.elapsed().as_micros() as u64
                };
                (0..requests / 4).map(request).collect::<Vec<u64>>()
            })
        });
        let clients: Vec<_> = clients.collect();
        clients
            .into_iter()
            .flat_map(|client| client.join().unwrap())
            .collect()
    });
    times.sort_unstable();
    times[times.len() * 99 / 100]
}

/// One kind of attack: what each attacker sends first, and then every 100 ms; an attacker without
/// the latter reads a few bytes instead.
struct Attack {
    name: &'static str,
    first: &'static str,
    then: Option<&'static str>,
}

const ATTACKS: [Attack; 4] = [
    Attack {
        name: "slow heads",
        first: "GET / HTTP/1.1\r\nHost: a\r\n",
        then: Some("X-A: b\r\n"),
    },
    Attack {
        name: "slow bodies",
        first: "POST /small HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n",
        then: Some("x"),
    },
    Attack {
        name: "slow chunks",
        first: "POST /small HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        then: Some("1;a=b\r\nx\r\n"),
    },
    Attack {
        name: "slow readers",
        first: "GET /large HTTP/1.1\r\nHost: a\r\n\r\n",
        then: None,
    },
];

fn slow_heads_bodies_and_readers_harm_no_other_client(io: &str) {
    let large = ok(&"x".repeat(8 << 20));
    let origin = Origin::scripted(move |incoming, log| {
        while let Some(seen) = incoming.request() {
            log(&seen);
            let is_sent = match seen.path() {
                "/large" => reply(incoming.socket, &large),
                _ => reply(incoming.socket, ok("small")),
            };
            if !is_sent {
                return;
            }
        }
    });
    let times = "max_connections = 5000\n[service.times]\nheader_ms = 3000\nbody_idle_ms = 3000\n";
    let bed = Bed::new(io, &[&origin], times);
    p99_us(&bed, 400);
    for attack in ATTACKS {
        let quiet_us = p99_us(&bed, 2_000);
        let before_kb = bed.balancer.memory_kb();
        let sockets: Vec<Socket> = (0..ATTACKERS)
            .map(|_| {
                let socket = peer::connect_with_room(&bed.listen, 4 << 10);
                peer::send(&socket, attack.first.as_bytes());
                socket.set_nonblocking(true).unwrap();
                socket
            })
            .collect();
        let over = AtomicBool::new(false);
        let (attacked_us, grown_kb) = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(SeqCst) {
                    sockets.iter().for_each(|socket| drip(socket, attack.then));
                    std::thread::park_timeout(Duration::from_millis(100));
                }
            });
            // The buffers of the slow readers are filled first, which is ordinary work.
            let sent = || bed.status()["bytes"]["to_clients"].as_u64().unwrap();
            let (mut last, mut since) = (sent(), Instant::now());
            until("buffers to be full", || {
                if sent() > last + 1_000_000 {
                    (last, since) = (sent(), Instant::now());
                }
                since.elapsed() > Duration::from_millis(300)
            });
            let attacked_us = p99_us(&bed, 2_000);
            let grown_kb = bed.balancer.memory_kb().saturating_sub(before_kb);
            over.store(true, SeqCst);
            (attacked_us, grown_kb)
        });
        let each = grown_kb as f64 / ATTACKERS as f64;
        println!(
            "{io}, {ATTACKERS} {}: p99 of others {quiet_us} us before, {attacked_us} us during; \
             {grown_kb} kB more, {each:.1} kB each",
            attack.name
        );
        assert!(each < SESSION_KB_MAX, "{each:.1} kB for each");
        assert!(
            attacked_us < 20 * quiet_us + 100_000,
            "{attacked_us} us, {quiet_us} us before"
        );
        // From here on they are silent, and the limits close them.
        until("the end of the attackers", || {
            bed.status()["sessions"]["current"] == 0
        });
        drop(sockets);
        assert_eq!(Client::connect(&bed.listen).get("/small").status, 200);
    }
}

/// Sends a little, or reads a little.
fn drip(mut socket: &Socket, text: Option<&str>) {
    // A socket that the balancer has closed is left alone.
    match text {
        Some(text) => drop(socket.write(text.as_bytes())),
        None => drop(socket.read(&mut [0; 64])),
    }
}
