//! Tests of each limit of `[service.times]`, `[service.http]` and `[service.pool]`, and of the key
//! that the answer names.

use std::time::{Duration, Instant};

use crate::client::{Client, Ended, get};
use crate::origin::{Origin, ok, reply};
use crate::peer::{self, until, until_service};
use crate::{Bed, on_both_drivers};

on_both_drivers! {
    no_limit_is_shorter_than_configured
    a_slow_head_is_a_408
    a_slow_body_is_a_408
    a_body_that_never_begins_is_a_408
    a_body_below_the_minimum_rate_is_a_408
    a_request_that_takes_too_long_is_a_504_or_cut
    a_server_that_takes_no_body_is_a_504
    a_silent_server_is_a_504
    what_a_frozen_server_does_not_answer_another_one_does
    an_answer_that_stops_is_a_reset
    a_client_that_takes_no_answer_is_cut
    a_client_that_takes_no_last_bytes_is_cut
    a_large_head_is_a_431_or_414
    many_fields_are_a_431
    a_large_body_is_a_413_also_in_chunks
    a_large_response_head_is_a_502
    max_connections_closes_further_clients
    requests_wait_for_a_connection_and_the_rest_are_refused
    a_request_waits_no_longer_than_the_limit
}

/// Reads a response that refuses, names the key, and ends the connection.
#[track_caller]
fn assert_refused(client: &mut Client, status: u16, key: &str) {
    let answer = client.answer();
    assert_eq!(answer.status, status, "{}", answer.text());
    assert!(answer.text().contains(key), "{}", answer.text());
    assert_eq!(answer.field("Connection").as_deref(), Some("close"));
    assert_eq!(client.end(), Ended::Clean);
}

/// Sessions look at the clock at intervals of half a second only.
fn no_limit_is_shorter_than_configured(io: &str) {
    let origin = Origin::echo();
    let bed = Bed::new(io, &[&origin], "[service.times]\nkeepalive_ms = 450\n");
    let mut shortest = Duration::MAX;
    for number in 0..12 {
        std::thread::park_timeout(Duration::from_millis(number * 41));
        let started = Instant::now();
        assert_eq!(bed.client().end(), Ended::Clean);
        shortest = shortest.min(started.elapsed());
    }
    assert!(shortest >= Duration::from_millis(450), "{shortest:?}");
}

fn a_slow_head_is_a_408(io: &str) {
    let origin = Origin::echo();
    let bed = Bed::new(io, &[&origin], "[service.times]\nheader_ms = 700\n");
    let mut client = bed.client();
    assert_eq!(client.get("/first").status, 200);
    let started = Instant::now();
    client.send("GET /slow HTTP/1.1\r\nHost: a\r\n");
    // Steadily, which prolongs nothing.
    for _ in 0..5 {
        client.send("A: b\r\n");
        std::thread::park_timeout(Duration::from_millis(50));
    }
    assert_refused(&mut client, 408, "[service.times] header_ms");
    assert!(
        started.elapsed() >= Duration::from_millis(500),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(origin.paths(), ["/first"]);
}

fn a_slow_body_is_a_408(io: &str) {
    let origin = Origin::echo();
    let bed = Bed::new(io, &[&origin], "[service.times]\nbody_idle_ms = 800\n");
    let mut client = bed.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n");
    for _ in 0..12 {
        client.send("x");
        std::thread::park_timeout(Duration::from_millis(100));
    }
    // Twelve steps took longer than the limit; silence alone counts.
    assert_refused(&mut client, 408, "[service.times] body_idle_ms");
    until("the end of the server connection", || {
        origin.server.current() == 0
    });
    assert_eq!(origin.seen(), vec![]);
}

fn a_body_that_never_begins_is_a_408(io: &str) {
    let origin = Origin::echo();
    let times = "[service.times]\nbody_idle_ms = 600\nfirst_byte_ms = 600000\n";
    let bed = Bed::new(io, &[&origin], times);
    let mut client = bed.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n");
    assert_refused(&mut client, 408, "[service.times] body_idle_ms");
    let mut client = bed.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_refused(&mut client, 408, "[service.times] body_idle_ms");
}

/// Bytes that come steadily prolong the limit of silence, but not that of the rate.
fn a_body_below_the_minimum_rate_is_a_408(io: &str) {
    let origin = Origin::echo();
    let times = "[service.times]\nbody_rate_bytes_min = 1000\nbody_idle_ms = 5000\n";
    let bed = Bed::new(io, &[&origin], times);
    let (mut slow, mut fast) = (bed.client(), bed.client());
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n";
    let started = Instant::now();
    slow.send(head);
    fast.send(head);
    let mut steps = 0;
    while started.elapsed() < Duration::from_secs(9) {
        slow.send("x".repeat(20));
        fast.send("x".repeat(500));
        steps += 1;
        std::thread::park_timeout(Duration::from_millis(200));
    }
    while steps < 200 {
        fast.send("x".repeat(500));
        steps += 1;
        // Below the limit of silence, and above the rate on average.
        std::thread::park_timeout(Duration::from_millis(30));
    }
    assert_refused(&mut slow, 408, "[service.times] body_rate_bytes_min");
    assert!(started.elapsed() >= Duration::from_secs(10));
    assert_eq!(fast.answer().status, 200);
}

fn a_request_that_takes_too_long_is_a_504_or_cut(io: &str) {
    let (_hold, gate) = std::sync::mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let origin = Origin::scripted(move |incoming, log| {
        while let Some(seen) = incoming.request() {
            log(&seen);
            let begins = seen.path() == "/drip";
            let head = "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n";
            if begins && !reply(incoming.socket, head) {
                return;
            }
            // Steadily, which prolongs only the limit of silence.
            while begins && reply(incoming.socket, "x") {
                std::thread::park_timeout(Duration::from_millis(100));
            }
            if seen.path() == "/silent" {
                let _ = gate.lock().unwrap().recv();
            }
            reply(incoming.socket, ok("done"));
        }
    });
    let times = "[service.times]\nrequest_ms = 1200\n[service.http]\naccess_log = \"json\"\n";
    let bed = Bed::new(io, &[&origin], times);
    let started = Instant::now();
    let mut client = bed.client();
    for _ in 0..3 {
        // The limit is of each request, not of the connection.
        assert_eq!(client.get("/").status, 200);
        std::thread::park_timeout(Duration::from_millis(500));
    }
    client.send(get("/silent"));
    assert_refused(&mut client, 504, "[service.times] request_ms");
    assert!(started.elapsed() >= Duration::from_millis(2_700));
    // A part of a response is never ended like a whole.
    let mut client = bed.client();
    client.send(get("/drip"));
    let (ended, part) = client.try_answer(false).unwrap_err();
    assert_eq!(ended, Ended::Reset, "{part}");
    until("the reason in the log", || {
        let log = bed.balancer.log();
        let mut lines = log.lines().filter(|line| line.contains("/drip"));
        lines.any(|line| line.contains("[service.times] request_ms"))
    });
}

fn a_server_that_takes_no_body_is_a_504(io: &str) {
    let (_hold, gate) = std::sync::mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let origin = Origin::scripted(move |incoming, _| {
        incoming.head();
        // Until the end of the test.
        let _ = gate.lock().unwrap().recv();
    });
    let times = "[service.times]\nbody_idle_ms = 600\nfirst_byte_ms = 1500\n";
    let bed = Bed::new(io, &[&origin], times);
    let mut client = bed.client();
    let length = 200 << 20;
    client.send(format!(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"
    ));
    // It sends as fast as it can: the silence is not the client's.
    let answer = std::thread::scope(|scope| {
        let socket = client.socket.try_clone().unwrap();
        scope.spawn(move || {
            let block = vec![b'x'; 1 << 20];
            while std::io::Write::write_all(&mut &socket, &block).is_ok() {}
        });
        let answer = client.answer();
        // The sender ends with the connection.
        let _ = client.socket.shutdown(std::net::Shutdown::Both);
        answer
    });
    assert_eq!(answer.status, 504, "{}", answer.text());
    assert!(
        answer.text().contains("[service.times] body_idle_ms"),
        "{}",
        answer.text()
    );
}

fn a_silent_server_is_a_504(io: &str) {
    let origin = Origin::scripted(|incoming, log| {
        if let Some(seen) = incoming.request() {
            log(&seen);
            // The beginning of a head is no head.
            reply(incoming.socket, "HTTP/1.1 200 OK\r\nA: b");
            incoming.request();
        }
    });
    let bed = Bed::new(io, &[&origin], "[service.times]\nfirst_byte_ms = 600\n");
    for request in [get("/"), crate::client::post("/", "x")] {
        let mut client = bed.client();
        client.send(request);
        assert_refused(&mut client, 504, "[service.times] first_byte_ms");
        until("the end of the server connection", || {
            origin.server.current() == 0
        });
    }
    assert_eq!(
        origin.seen().len(),
        2,
        "a request is not repeated after a time limit"
    );
}

/// TO SEE THIS RED: answer each request after the limit, or send a POST again.
fn what_a_frozen_server_does_not_answer_another_one_does(io: &str) {
    let frozen = Origin::scripted(|incoming, log| {
        while let Some(seen) = incoming.request() {
            log(&seen);
        }
    });
    let origin = Origin::echo();
    let times = "[service.times]\nfirst_byte_ms = 300\n";
    let bed = Bed::new(io, &[&frozen, &origin], times);
    let mut client = bed.client();
    until("a request to the frozen server", || {
        client.send(get("/"));
        assert_eq!(client.answer().status, 200);
        !frozen.seen().is_empty()
    });
    let (before, answered) = (frozen.seen().len(), origin.seen().len());
    until("a POST to the frozen server", || {
        let mut client = bed.client();
        client.send(crate::client::post("/", "x"));
        client.answer().status == 504
    });
    assert_eq!(frozen.seen().len(), before + 1);
    let posts = origin.seen().len() - answered;
    assert!(posts <= 1, "{posts} POSTs reached the other server");
}

fn an_answer_that_stops_is_a_reset(io: &str) {
    let origin = Origin::scripted(|incoming, _| {
        incoming.request();
        let beginning = match incoming.number {
            1 => "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n",
            _ => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        };
        reply(incoming.socket, beginning);
        incoming.request();
    });
    let bed = Bed::new(io, &[&origin], "[service.times]\nbody_idle_ms = 600\n");
    for _ in 0..2 {
        let mut client = bed.client();
        client.send(get("/"));
        assert_eq!(client.try_answer(false).unwrap_err().0, Ended::Reset);
        until("the end of the server connection", || {
            origin.server.current() == 0
        });
    }
}

fn a_client_that_takes_no_answer_is_cut(io: &str) {
    let body = "x".repeat(32 << 20);
    let response = ok(&body);
    let origin = Origin::new(move |_| Some(response.clone()));
    let bed = Bed::new(io, &[&origin], "[service.times]\nbody_idle_ms = 800\n");
    let client = Client::of(peer::connect_with_room(&bed.listen, 16 * 1024));
    client.send(get("/"));
    until("a request", || !origin.seen().is_empty());
    until("the end of the server connection", || {
        origin.server.current() == 0
    });
    bed.until_idle();
}

/// All of the response is received, and its rest does not fit the sockets' buffers.
fn a_client_that_takes_no_last_bytes_is_cut(io: &str) {
    let origin = Origin::new(|seen| {
        let length: usize = seen.path()[1..].parse().unwrap();
        Some(ok(&"x".repeat(length)))
    });
    let times = "[service.times]\nbody_idle_ms = 800\nkeepalive_ms = 600000\n";
    let bed = Bed::new(io, &[&origin], times);
    // Around the sizes of the buffers, some of these end with a rest in the program.
    let clients: Vec<Client> = (0..60)
        .map(|number| {
            let client = Client::of(peer::connect_with_room(&bed.listen, 4 * 1024));
            let length = (number + 1) * 100_000;
            client.send(format!(
                "GET /{length} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
            ));
            client
        })
        .collect();
    until("all requests", || origin.seen().len() == clients.len());
    bed.until_idle();
}

fn a_large_head_is_a_431_or_414(io: &str) {
    let origin = Origin::echo();
    let bed = Bed::new(io, &[&origin], "[service.http]\nhead_bytes_max = 4096\n");
    let filler = "x".repeat(5_000);
    for (request, status) in [
        (
            format!("GET / HTTP/1.1\r\nHost: a\r\nA: {filler}\r\n\r\n"),
            431,
        ),
        (format!("GET / HTTP/1.1\r\nHost: a\r\nA: {filler}"), 431),
        (format!("GET /{filler} HTTP/1.1\r\nHost: a\r\n\r\n"), 414),
        (format!("GET /{filler}"), 414),
    ] {
        let mut client = bed.client();
        client.send(request);
        assert_refused(&mut client, status, "[service.http] head_bytes_max");
    }
    let fits = "x".repeat(3_900);
    let mut client = bed.client();
    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nA: {fits}\r\n\r\n"));
    assert_eq!(client.answer().status, 200);
    assert_eq!(origin.only().field("A"), Some(fits));
}

fn many_fields_are_a_431(io: &str) {
    let origin = Origin::echo();
    let bed = Bed::new(io, &[&origin], "[service.http]\nfields_max = 20\n");
    let request = |count| {
        let fields: String = (0..count)
            .map(|number| format!("A{number}: b\r\n"))
            .collect();
        format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
    };
    let mut client = bed.client();
    client.send(request(19));
    assert_eq!(client.answer().status, 200);
    client.send(request(20));
    assert_refused(&mut client, 431, "[service.http] fields_max");
}

fn a_large_body_is_a_413_also_in_chunks(io: &str) {
    let origin = Origin::echo();
    let bed = Bed::new(io, &[&origin], "[service.http]\nbody_bytes_max = 1000\n");
    let mut client = bed.client();
    assert_eq!(client.post("/fits", &"x".repeat(1_000)).status, 200);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n");
    assert_refused(&mut client, 413, "[service.http] body_bytes_max");

    let head = "POST /chunks HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunk = format!("64\r\n{}\r\n", "x".repeat(100));
    let mut client = bed.client();
    client.send(format!("{head}{}0\r\n\r\n", chunk.repeat(10)));
    assert_eq!(client.answer().status, 200);
    client.send(head);
    client.send(chunk.repeat(11));
    assert_refused(&mut client, 413, "[service.http] body_bytes_max");
    // All in one segment with the head.
    let mut client = bed.client();
    client.send(format!("{head}{}0\r\n\r\n", chunk.repeat(11)));
    assert_refused(&mut client, 413, "[service.http] body_bytes_max");
    until("the end of the server connections", || {
        origin.server.current() <= 2
    });
    assert_eq!(origin.paths(), ["/fits", "/chunks"]);
}

fn a_large_response_head_is_a_502(io: &str) {
    let filler = "x".repeat(5_000);
    let origin = Origin::new(move |_| {
        Some(format!(
            "HTTP/1.1 200 OK\r\nA: {filler}\r\nContent-Length: 0\r\n\r\n"
        ))
    });
    let bed = Bed::new(io, &[&origin], "[service.http]\nhead_bytes_max = 4096\n");
    assert_eq!(bed.client().get("/").status, 502);
    let log = bed.balancer.log();
    assert!(log.contains("head_bytes_max"), "{log}");
}

fn max_connections_closes_further_clients(io: &str) {
    let origin = Origin::echo();
    let bed = Bed::new(io, &[&origin], "max_connections = 2\n");
    let (mut first, mut second) = (bed.client(), bed.client());
    assert_eq!(first.get("/").status, 200);
    assert_eq!(second.get("/").status, 200);
    assert_eq!(bed.client().end(), Ended::Clean);
    drop(first);
    until_service(&bed.balancer, "one session", |service| {
        service["sessions"]["current"] == 1
    });
    assert_eq!(bed.client().get("/").status, 200);
    assert_eq!(second.get("/").status, 200);
}

/// Answers each request when the test says so, by a second connection with `GET /go`.
fn gated() -> (Origin, std::sync::mpsc::Sender<()>) {
    let (go, gate) = std::sync::mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let origin = Origin::new(move |seen| {
        let _ = gate.lock().unwrap().recv();
        Some(ok(seen.path()))
    });
    (origin, go)
}

fn requests_wait_for_a_connection_and_the_rest_are_refused(io: &str) {
    let (origin, go) = gated();
    let pool = "[service.pool]\nsize = 1\nqueue_length = 2\nwait_ms = 600000\n";
    let bed = Bed::new(io, &[&origin], pool);
    let mut clients: Vec<Client> = Vec::new();
    let ask = |clients: &mut Vec<Client>, path: &str| {
        let client = bed.client();
        client.send(get(path));
        clients.push(client);
    };
    ask(&mut clients, "/0");
    until("the first request", || origin.seen().len() == 1);
    for number in 1..3 {
        ask(&mut clients, &format!("/{number}"));
        until_service(&bed.balancer, "waiting", |service| {
            received(service) == get("/0").len() as u64 * (number + 1)
        });
    }
    ask(&mut clients, "/3");
    let answer = clients[3].answer();
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(
        answer.text().contains("[service.pool] queue_length"),
        "{}",
        answer.text()
    );
    assert!(answer.field("Retry-After").is_some());
    // The refused client may ask again on its connection.
    (0..4).for_each(|_| go.send(()).unwrap());
    for (number, client) in clients.iter_mut().enumerate().take(3) {
        assert_eq!(client.answer().text(), format!("/{number}"));
    }
    assert_eq!(clients[3].get("/4").text(), "/4");
    assert_eq!(origin.server.highest(), 1);
    assert_eq!(origin.paths()[..3], ["/0", "/1", "/2"]);
}

fn received(service: &serde_json::Value) -> u64 {
    service["bytes"]["from_clients"].as_u64().unwrap()
}

fn a_request_waits_no_longer_than_the_limit(io: &str) {
    let (origin, go) = gated();
    let bed = Bed::new(io, &[&origin], "[service.pool]\nsize = 1\nwait_ms = 500\n");
    let mut first = bed.client();
    first.send(get("/first"));
    until("the first request", || origin.seen().len() == 1);
    let mut second = bed.client();
    let started = Instant::now();
    let answer = second.get("/second");
    assert_eq!(answer.status, 503);
    assert!(
        answer.text().contains("[service.pool] wait_ms"),
        "{}",
        answer.text()
    );
    assert!(started.elapsed() >= Duration::from_millis(500));
    go.send(()).unwrap();
    assert_eq!(first.answer().text(), "/first");
    go.send(()).unwrap();
    assert_eq!(second.get("/third").text(), "/third");
    assert_eq!(origin.paths(), ["/first", "/third"]);
}
