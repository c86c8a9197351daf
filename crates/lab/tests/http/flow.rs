//! Tests of the flow of large bodies, and of peers that leave in the middle.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use crate::client::{Client, get};
use crate::origin::{Origin, ok, reply};
use crate::peer::{self, until};
use crate::{Bed, on_both_drivers};

on_both_drivers! {
    a_client_that_does_not_read_stalls_the_server
    a_server_that_does_not_read_stalls_the_client
    slow_and_fast_clients_get_every_byte
    a_client_that_leaves_ends_its_request_at_the_server
    a_client_that_leaves_while_it_waits_is_not_served
    large_bodies_pass_in_both_directions_together
    a_response_reaches_a_client_that_reads_late
    a_body_reaches_a_server_that_reads_late
}

const SIZE: usize = 200 << 20;
const GROWTH_KB_MAX: u64 = 4_096;

/// Waits until a number has not changed for a while, and returns it.
fn settled(count: &AtomicUsize) -> usize {
    let (mut last, mut since) = (count.load(SeqCst), Instant::now());
    until("a stalled sender", || {
        let now = count.load(SeqCst);
        if now != last {
            (last, since) = (now, Instant::now());
        }
        last > 0 && since.elapsed() > Duration::from_millis(500)
    });
    last
}

/// Sends `x` and counts.
fn send_counted(mut socket: &socket2::Socket, length: usize, sent: &AtomicUsize) {
    let block = vec![b'x'; 64 << 10];
    while sent.load(SeqCst) < length {
        match socket.write(&block[..block.len().min(length - sent.load(SeqCst))]) {
            Ok(count) => drop(sent.fetch_add(count, SeqCst)),
            Err(_) => return,
        }
    }
}

fn a_client_that_does_not_read_stalls_the_server(io: &str) {
    for chunked in [false, true] {
        let sent: Arc<AtomicUsize> = Arc::default();
        let counter = Arc::clone(&sent);
        let origin = Origin::scripted(move |incoming, _| {
            incoming.request();
            if chunked {
                let head =
                    format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{SIZE:x}\r\n");
                reply(incoming.socket, head);
            } else {
                reply(
                    incoming.socket,
                    format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n"),
                );
            }
            send_counted(incoming.socket, SIZE, &counter);
            if chunked {
                reply(incoming.socket, "\r\n0\r\n\r\n");
            }
            incoming.request();
        });
        let bed = Bed::new(io, &[&origin], "");
        let mut client = bed.client();
        let before_kb = bed.balancer.memory_kb();
        client.send(get("/"));
        let stalled = settled(&sent);
        assert!(stalled < SIZE / 2, "{stalled} bytes went somewhere");
        let grown_kb = bed.balancer.memory_kb().saturating_sub(before_kb);
        assert!(grown_kb < GROWTH_KB_MAX, "{grown_kb} kB more");
        assert_eq!(client.answer().body.len(), SIZE);
        let grown_kb = bed.balancer.memory_kb().saturating_sub(before_kb);
        println!("{io}: download of {SIZE} bytes, chunked {chunked}: {grown_kb} kB more");
        assert!(grown_kb < GROWTH_KB_MAX, "{grown_kb} kB more after all");
    }
}

fn a_server_that_does_not_read_stalls_the_client(io: &str) {
    for chunked in [false, true] {
        let (go, gate) = std::sync::mpsc::channel::<()>();
        let gate = std::sync::Mutex::new(gate);
        let taken: Arc<AtomicUsize> = Arc::default();
        let counter = Arc::clone(&taken);
        let origin = Origin::scripted(move |incoming, _| {
            incoming.head();
            let _ = gate.lock().unwrap().recv();
            let mut bytes = vec![0; 1 << 20];
            let mut tail = Vec::new();
            counter.fetch_add(
                incoming
                    .buffered()
                    .iter()
                    .filter(|byte| **byte == b'x')
                    .count(),
                SeqCst,
            );
            while let Ok(count) = incoming.socket.read(&mut bytes) {
                let xs = bytes[..count].iter().filter(|byte| **byte == b'x').count();
                let all = counter.fetch_add(xs, SeqCst) + xs;
                tail.extend_from_slice(&bytes[count.saturating_sub(8)..count]);
                if count == 0 || all >= SIZE && (!chunked || tail.ends_with(b"0\r\n\r\n")) {
                    break;
                }
            }
            reply(incoming.socket, ok("done"));
            incoming.head();
        });
        let bed = Bed::new(io, &[&origin], "");
        let mut client = bed.client();
        let before_kb = bed.balancer.memory_kb();
        let framing = match chunked {
            true => format!("Transfer-Encoding: chunked\r\n\r\n{SIZE:x}\r\n"),
            false => format!("Content-Length: {SIZE}\r\n\r\n"),
        };
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}"));
        let sent: AtomicUsize = AtomicUsize::new(0);
        let socket = client.socket.try_clone().unwrap();
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| send_counted(&socket, SIZE, &sent));
            let stalled = settled(&sent);
            assert!(stalled < SIZE / 2, "{stalled} bytes went somewhere");
            let grown_kb = bed.balancer.memory_kb().saturating_sub(before_kb);
            assert!(grown_kb < GROWTH_KB_MAX, "{grown_kb} kB more");
            go.send(()).unwrap();
            sender.join().unwrap();
        });
        if chunked {
            client.send("\r\n0\r\n\r\n");
        }
        assert_eq!(client.answer().text(), "done");
        assert!(taken.load(SeqCst) >= SIZE);
        let grown_kb = bed.balancer.memory_kb().saturating_sub(before_kb);
        println!("{io}: upload of {SIZE} bytes, chunked {chunked}: {grown_kb} kB more");
        assert!(grown_kb < GROWTH_KB_MAX, "{grown_kb} kB more after all");
    }
}

fn slow_and_fast_clients_get_every_byte(io: &str) {
    let origin = Origin::new(|seen| {
        let length: usize = seen.path()[1..].parse().unwrap();
        Some(ok(&pattern(length)))
    });
    let bed = Bed::new(io, &[&origin], "");
    std::thread::scope(|scope| {
        for number in 0..8 {
            let bed = &bed;
            scope.spawn(move || {
                let socket = peer::connect_with_room(&bed.listen, 8 << (number % 4 + 10));
                let mut client = Client::of(socket);
                for round in 0..20 {
                    let length = 1 + (number * 37 + round * 7_919) * 101 % 700_000;
                    let answer = client.get(&format!("/{length}"));
                    assert!(answer.text() == pattern(length), "{length}");
                }
            });
        }
    });
    fn pattern(length: usize) -> String {
        (0..length)
            .map(|at| char::from(b'a' + (at % 23) as u8))
            .collect()
    }
}

fn a_client_that_leaves_ends_its_request_at_the_server(io: &str) {
    let origin = Origin::scripted(|incoming, log| {
        while let Some(seen) = incoming.request() {
            log(&seen);
            match seen.path() {
                "/silent" => {}
                "/body" => drop(reply(
                    incoming.socket,
                    "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
                )),
                _ => drop(reply(incoming.socket, ok("fine"))),
            }
        }
    });
    let bed = Bed::new(io, &[&origin], "");
    for path in ["/silent", "/body"] {
        for with_reset in [false, true] {
            let client = bed.client();
            let before = origin.seen().len();
            client.send(get(path));
            until("the request", || origin.seen().len() > before);
            peer::leave(client.socket, with_reset);
            until("the end of the server connection", || {
                origin.server.current() == 0
            });
        }
    }
    bed.until_idle();
    assert_eq!(bed.client().get("/").text(), "fine");
}

fn a_client_that_leaves_while_it_waits_is_not_served(io: &str) {
    let (go, gate) = std::sync::mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let origin = Origin::new(move |seen| {
        let _ = gate.lock().unwrap().recv();
        Some(ok(seen.path()))
    });
    let bed = Bed::new(
        io,
        &[&origin],
        "[service.pool]\nsize = 1\nwait_ms = 600000\n",
    );
    let mut first = bed.client();
    first.send(get("/first"));
    until("the first request", || origin.seen().len() == 1);
    let second = bed.client();
    second.send(get("/second"));
    peer::until_service(&bed.balancer, "two sessions", |service| {
        service["sessions"]["current"] == 2
    });
    peer::leave(second.socket, false);
    peer::until_service(&bed.balancer, "one session", |service| {
        service["sessions"]["current"] == 1
    });
    let mut third = bed.client();
    third.send(get("/third"));
    (0..2).for_each(|_| go.send(()).unwrap());
    assert_eq!(first.answer().text(), "/first");
    assert_eq!(third.answer().text(), "/third");
    assert_eq!(origin.paths(), ["/first", "/third"]);
}

/// The server answers while it reads: neither direction may wait for the other's end.
fn large_bodies_pass_in_both_directions_together(io: &str) {
    const LENGTH: usize = 32 << 20;
    let origin = Origin::scripted(|incoming, _| {
        incoming.head();
        reply(
            incoming.socket,
            format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n"),
        );
        let mut echoed = 0;
        while echoed < LENGTH {
            let Some(bytes) = incoming.take((LENGTH - echoed).min(16 << 10)) else {
                return;
            };
            echoed += bytes.len();
            if !reply(incoming.socket, bytes) {
                return;
            }
        }
        incoming.head();
    });
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    let socket = client.socket.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {LENGTH}\r\n\r\n");
            peer::send(&socket, head.as_bytes());
            let sent = AtomicUsize::new(0);
            send_counted(&socket, LENGTH, &sent);
        });
        assert_eq!(client.answer().body.len(), LENGTH);
    });
}

/// Lengths around the sizes of the buffers: with some of them the socket does not take all of the
/// last bytes, after which the session sends no more.
fn lengths() -> impl Iterator<Item = usize> {
    (1..=60).map(|number| number * 107_000)
}

/// Waits until no bytes are passed on in this direction.
fn until_still(bed: &Bed, direction: &str) {
    let mut before = u64::MAX;
    until("no more bytes", || {
        let now = bed.status()["bytes"][direction].as_u64().unwrap();
        std::thread::sleep(Duration::from_millis(50));
        std::mem::replace(&mut before, now) == now
    });
}

fn a_response_reaches_a_client_that_reads_late(io: &str) {
    let origin = Origin::new(|seen| {
        let length: usize = seen.path()[1..].parse().unwrap();
        Some(ok(&"x".repeat(length)))
    });
    let bed = Bed::new(io, &[&origin], "");
    let clients = lengths().map(|length| {
        let client = Client::of(peer::connect_with_room(&bed.listen, 4 * 1024));
        client.send(format!("GET /{length} HTTP/1.1\r\nHost: a\r\n\r\n"));
        (client, length)
    });
    let clients: Vec<_> = clients.collect();
    until("all requests", || origin.seen().len() == clients.len());
    until_still(&bed, "to_clients");
    for (mut client, length) in clients {
        assert_eq!(client.answer().body.len(), length);
    }
}

fn a_body_reaches_a_server_that_reads_late(io: &str) {
    let gate = Arc::new(RwLock::new(()));
    let closed = gate.write().unwrap();
    let passed = Arc::clone(&gate);
    let origin = Origin::scripted(move |incoming, log| {
        while let Some(mut seen) = incoming.head() {
            drop(passed.read().unwrap());
            if incoming.body(&mut seen).is_none() {
                return;
            }
            reply(incoming.socket, ok(&seen.body.len().to_string()));
            log(&seen);
        }
    });
    let bed = Bed::new(io, &[&origin], "");
    std::thread::scope(|scope| {
        let clients = lengths().map(|length| {
            let mut client = bed.client();
            scope.spawn(move || {
                let body = "x".repeat(length);
                assert_eq!(client.post("/", &body).text(), length.to_string());
            })
        });
        let clients: Vec<_> = clients.collect();
        until_still(&bed, "from_clients");
        drop(closed);
        for client in clients {
            client.join().unwrap();
        }
    });
}
