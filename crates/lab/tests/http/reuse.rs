//! Tests of connections that serve many requests: reuse, order, and ends between two requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::client::{Ended, get, post};
use crate::origin::{Origin, ok, reply};
use crate::peer::{self, until};
use crate::{Bed, on_both_drivers};

on_both_drivers! {
    requests_of_all_clients_share_a_server_connection
    pipelined_requests_are_answered_in_order_one_at_a_time
    a_server_that_closes_after_a_response_is_not_asked_again_on_that_connection
    an_idle_connection_that_the_server_has_closed_is_not_used
    a_get_is_repeated_when_its_idle_connection_ends_and_a_post_is_not
    a_post_without_a_response_is_delivered_once
    bytes_after_a_response_reach_no_client
    a_late_answer_to_nobody_is_dropped_with_its_connection
    an_idle_client_is_closed_without_a_reset
}

fn requests_of_all_clients_share_a_server_connection(io: &str) {
    let origin = Origin::echo();
    let bed = Bed::of(io, &[origin.address()], "");
    for client in 0..10 {
        let mut client_connection = bed.client();
        for request in 0..10 {
            let path = format!("/{client}/{request}");
            assert_eq!(client_connection.get(&path).text(), path);
        }
    }
    // A worker may open one of its own.
    let connections = origin.server.total();
    assert!(
        connections <= 2,
        "{connections} connections for 100 requests"
    );
    assert_eq!(origin.seen().len(), 100);
}

fn pipelined_requests_are_answered_in_order_one_at_a_time(io: &str) {
    // Of this test alone: the tests of both drivers run side by side.
    let (in_flight, highest) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let seen_highest = Arc::clone(&highest);
    let origin = Origin::new(move |seen| {
        seen_highest.fetch_max(in_flight.fetch_add(1, SeqCst) + 1, SeqCst);
        // The first takes the longest: without order, it would be answered last.
        let pause = if seen.path() == "/0" { 30 } else { 0 };
        std::thread::sleep(Duration::from_millis(pause));
        in_flight.fetch_sub(1, SeqCst);
        Some(ok(seen.path()))
    });
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    let pipeline: String = (0..50)
        .map(|number| match number % 2 {
            0 => get(&format!("/{number}")),
            _ => post(&format!("/{number}"), "body"),
        })
        .collect();
    client.send(&pipeline);
    for number in 0..50 {
        assert_eq!(client.answer().text(), format!("/{number}"));
    }
    assert_eq!(highest.load(SeqCst), 1);
}

fn a_server_that_closes_after_a_response_is_not_asked_again_on_that_connection(io: &str) {
    let origin = Origin::scripted(|incoming, log| {
        if let Some(seen) = incoming.request() {
            log(&seen);
            let response = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
            reply(incoming.socket, response);
            // It does not close: a proxy that ignores the field would wait for ever.
            incoming.request();
        }
    });
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    for _ in 0..5 {
        let answer = client.get("/");
        assert_eq!(answer.text(), "ok");
        assert_eq!(answer.field("Connection"), None, "it is the server's only");
    }
    assert_eq!(origin.server.total(), 5);
}

fn an_idle_connection_that_the_server_has_closed_is_not_used(io: &str) {
    let origin = Origin::scripted(|incoming, log| {
        if let Some(seen) = incoming.request() {
            log(&seen);
            reply(incoming.socket, ok("one"));
        }
    });
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    for number in 0..20 {
        assert_eq!(client.post("/", "x").status, 200, "request {number}");
        until("the end of the server connection", || {
            origin.server.current() == 0
        });
    }
    assert_eq!(origin.seen().len(), 20);
}

/// The server closes exactly when the second request of a connection arrives.
fn race() -> Origin {
    Origin::scripted(|incoming, log| {
        let Some(seen) = incoming.request() else {
            return;
        };
        log(&seen);
        let response = match seen.head.starts_with("HEAD") {
            true => ok(""),
            false => ok(seen.path()),
        };
        reply(incoming.socket, response);
        // Closed without reading: the kernel answers with a reset, as in a true race.
        let _ = incoming.socket.peek(&mut [std::mem::MaybeUninit::uninit()]);
    })
}

/// Once the balancer has learned that the server closes early, it sends a POST over a fresh
/// connection.
fn a_get_is_repeated_when_its_idle_connection_ends_and_a_post_is_not(io: &str) {
    let origin = race();
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    assert_eq!(client.get("/first").status, 200);
    let answer = client.post("/post/first", "x");
    assert_eq!(answer.status, 502, "{}", answer.text());
    assert!(
        answer.text().contains("without a response"),
        "{}",
        answer.text()
    );
    for number in 0..10 {
        let path = format!("/get/{number}");
        assert_eq!(client.get(&path).text(), path);
        let head = format!("HEAD /head/{number} HTTP/1.1\r\nHost: a\r\n\r\n");
        client.send(head);
        assert_eq!(client.answer_to_head().status, 200);
        let status = client.post(&format!("/post/{number}"), "x").status;
        assert!(matches!(status, 200 | 502), "{status}");
    }
    let paths = origin.paths();
    assert!(!paths.contains(&"/post/first".to_owned()), "{paths:?}");
    let mut unique = paths.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), paths.len(), "delivered twice: {paths:?}");
}

fn a_post_without_a_response_is_delivered_once(io: &str) {
    let origin = Origin::new(|seen| (!seen.path().starts_with("/cut")).then(|| ok("fine")));
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    for number in 0..10 {
        assert_eq!(client.get("/warm").status, 200);
        let answer = client.post(&format!("/cut/{number}"), "x");
        assert_eq!(answer.status, 502);
        assert!(
            answer
                .field("Proxy-Status")
                .unwrap()
                .starts_with("evenkeel; error=")
        );
    }
    let cut = origin
        .paths()
        .iter()
        .filter(|path| path.starts_with("/cut"))
        .count();
    assert_eq!(cut, 10);
}

fn bytes_after_a_response_reach_no_client(io: &str) {
    let origin = Origin::new(|seen| {
        let surplus = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison";
        Some(match seen.path() {
            "/length" => format!("{}{surplus}", ok("good")),
            "/chunked" => format!(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                 4\r\ngood\r\n0\r\n\r\n{surplus}"
            ),
            "/none" => format!("HTTP/1.1 204 No Content\r\n\r\n{surplus}"),
            "/304" => {
                format!("HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\ngood{surplus}")
            }
            "/head" => format!("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood{surplus}"),
            _ => ok("good"),
        })
    });
    let bed = Bed::new(io, &[&origin], "");
    for path in ["/length", "/chunked", "/none", "/304", "/head"] {
        let (mut first, mut second) = (bed.client(), bed.client());
        for round in 0..5 {
            match path {
                "/head" => {
                    first.send("HEAD /head HTTP/1.1\r\nHost: a\r\n\r\n");
                    assert_eq!(first.answer_to_head().status, 200);
                }
                path => assert_ne!(first.get(path).text(), "poison"),
            }
            for client in [&mut second, &mut first] {
                assert_eq!(client.get("/plain").text(), "good", "{path}, round {round}");
                assert!(client.incoming.is_empty());
            }
        }
    }
}

/// The surplus arrives while the connection is idle.
fn a_late_answer_to_nobody_is_dropped_with_its_connection(io: &str) {
    let origin = Origin::scripted(|incoming, log| {
        while let Some(seen) = incoming.request() {
            log(&seen);
            reply(incoming.socket, ok("good"));
            std::thread::sleep(Duration::from_millis(20));
            let late = "HTTP/1.1 408 Request Timeout\r\nContent-Length: 6\r\n\r\npoison";
            reply(incoming.socket, late);
        }
    });
    let bed = Bed::new(io, &[&origin], "");
    for _ in 0..5 {
        let connections = origin.server.total();
        assert_eq!(bed.client().post("/", "x").text(), "good");
        until("the end of the connection", || origin.server.current() == 0);
        assert_eq!(origin.server.total(), connections + 1);
    }
}

fn an_idle_client_is_closed_without_a_reset(io: &str) {
    let origin = Origin::echo();
    let bed = Bed::new(io, &[&origin], "[service.times]\nkeepalive_ms = 300\n");
    let mut client = bed.client();
    assert_eq!(client.get("/a").status, 200);
    peer::stays("the client", Duration::from_millis(100), || {
        bed.status()["sessions"]["current"] == 1
    });
    assert_eq!(client.get("/b").status, 200);
    assert_eq!(client.end(), Ended::Clean);
    // A client that never sends anything, too.
    assert_eq!(bed.client().end(), Ended::Clean);
    bed.until_idle();
}
