//! Tests of servers of HTTP/2 that follow a script: what they see, what is sent again, and what
//! clients see of their faults.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use evenkeel_wire::http2::{ErrorCode, Limits};

use crate::client::Client;
use crate::frames::{CANCEL, Http2, data, headers, reset};
use crate::peer::{stays, until};
use crate::script::{Action, Seen, Server, answer, response};
use crate::{Bed, on_both_drivers};

on_both_drivers! {
    requests_share_a_connection
    bodies_and_trailers_pass_in_both_directions
    clients_of_http_1_are_served
    what_a_server_refuses_is_sent_again
    a_connection_that_ends_is_replaced
    a_cancel_ends_only_its_stream
    a_full_connection_gets_a_sibling
    workers_share_the_only_connection
    windows_hold_bodies_back
    a_server_that_is_silent_gets_no_more_requests
    calls_may_be_silent_for_longer_than_requests
    a_call_that_the_server_cancels_is_canceled
}

/// Answers each complete request with its path.
fn paths() -> Server {
    Server::new(|seen| match seen.is_complete {
        true => answer(seen.path()),
        false => Action::Wait,
    })
}

fn requests_share_a_connection(io: &str) {
    let server = paths();
    let bed = Bed::new(io, &[server.address()], "");
    let mut client = bed.client();
    for number in 0..50 {
        let path = format!("/{number}");
        let response = client.ask("GET", &path, &[]);
        assert_eq!((response.status(), response.text()), (200, path));
    }
    assert_eq!(server.connections(), 1);
    let seen = &server.seen()[7];

    assert!(seen.has_line("Host: web.example"), "{seen:?}");
    assert!(seen.has_line("x-forwarded-for: 127.0.0.1"), "{seen:?}");
    assert!(
        !seen.head.to_lowercase().contains("connection:"),
        "{seen:?}"
    );
}

fn bodies_and_trailers_pass_in_both_directions(io: &str) {
    let server = Server::new(|seen| match seen.is_complete {
        true => response(
            &[(":status", "200"), ("x-a", "b")],
            &String::from_utf8_lossy(&seen.body),
            &[("x-sum", "7"), ("content-length", "9")],
        ),
        false => Action::Wait,
    });
    let bed = Bed::new(io, &[server.address()], "");
    let mut client = bed.client();
    for body in ["", "hello", &"x".repeat(16_384), &"y".repeat(16_000)] {
        let stream = client.open("POST", "/up", &[("te", "trailers")]);
        client.send(data(stream, body, false));
        client.send(headers(stream, &[("x-md", "abc")], true));
        let response = client.response(stream);
        assert_eq!((response.status(), response.text()), (200, body.to_owned()));
        assert_eq!(response.trailers, [("x-sum".to_owned(), "7".to_owned())]);
        let seen = server.seen().pop().unwrap();
        assert_eq!(seen.body, body.as_bytes());
        assert_eq!(seen.trailers, "x-md: abc\n");
        assert!(seen.has_line("te: trailers"), "{seen:?}");
    }
    // A body of known length, whose trailers a client of HTTP/2 gets too.
    let server = Server::new(|_| {
        let head = [(":status", "200"), ("content-length", "3")];
        response(&head, "abc", &[("x-sum", "7")])
    });
    let bed = Bed::new(io, &[server.address()], "");
    let response = bed.client().ask("GET", "/", &[]);
    assert_eq!(response.text(), "abc");
    assert_eq!(response.trailers, [("x-sum".to_owned(), "7".to_owned())]);
    assert_eq!(Client::connect(&bed.listen).get("/").text(), "abc");
}

fn head(client: &mut Client) -> crate::client::Answer {
    client.send("HEAD /head HTTP/1.1\r\nHost: a\r\n\r\n");
    client.answer_to_head()
}

fn clients_of_http_1_are_served(io: &str) {
    let server = Server::new(|seen| match (seen.path(), seen.is_complete) {
        (_, false) => Action::Wait,
        ("/trailers", _) => response(&[(":status", "200")], "abc", &[("x-sum", "7")]),
        ("/empty", _) => response(&[(":status", "200")], "", &[]),
        ("/none", _) => response(&[(":status", "204")], "", &[]),
        ("/length", _) => response(&[(":status", "200"), ("content-length", "3")], "abc", &[]),
        ("/head", _) => response(&[(":status", "200"), ("content-length", "3")], "", &[]),
        _ => answer(&String::from_utf8_lossy(&seen.body)),
    });
    let bed = Bed::new(io, &[server.address()], "");
    let mut client = Client::connect(&bed.listen);
    let answer = client.get("/trailers");
    assert_eq!(
        (answer.text().as_str(), answer.trailers.as_str()),
        ("abc", "x-sum: 7\r\n")
    );
    assert_eq!(
        client.get("/empty").field("Content-Length").as_deref(),
        Some("0")
    );
    assert_eq!(client.get("/none").status, 204);
    assert_eq!(client.get("/length").text(), "abc");
    assert_eq!(
        head(&mut client).field("Content-Length").as_deref(),
        Some("3")
    );
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel");
    client.send("lo");
    assert_eq!(client.answer().text(), "hello");
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    client.send("2;x=y\r\nde\r\n0\r\nX-Md: abc\r\n\r\n");
    assert_eq!(client.answer().text(), "abcde");
    assert_eq!(server.seen().pop().unwrap().trailers, "x-md: abc\n");
    assert_eq!(server.connections(), 1);
}

/// The method does not matter: the server has not worked on the request (RFC 9113 §8.7).
fn what_a_server_refuses_is_sent_again(io: &str) {
    for action in [Action::Reset(ErrorCode::RefusedStream), Action::GoAway] {
        let count = AtomicUsize::new(0);
        let server = Server::new(move |seen| match seen.is_complete {
            false => Action::Wait,
            true if count.fetch_add(1, SeqCst) == 1 => action.clone(),
            true => answer(&String::from_utf8_lossy(&seen.body)),
        });
        let bed = Bed::new(io, &[server.address()], "");
        let mut client = bed.client();
        for _ in 0..3 {
            let stream = client.open("POST", "/", &[]);
            client.send(data(stream, "hello", true));
            let response = client.response(stream);
            assert_eq!(
                (response.status(), response.text().as_str()),
                (200, "hello")
            );
        }
        assert_eq!(server.seen().len(), 4);
    }
    // Another fault than these is none for a request that is not repeatable.
    let server = Server::new(|_| Action::Reset(ErrorCode::InternalError));
    let bed = Bed::new(io, &[server.address()], "");
    assert_eq!(bed.client().ask("POST", "/", &[]).status(), 502);
    assert_eq!(server.seen().len(), 1);
    // A server that refuses all.
    let server = Server::new(|_| Action::Reset(ErrorCode::RefusedStream));
    let bed = Bed::new(io, &[server.address()], "");
    assert_eq!(bed.client().ask("GET", "/", &[]).status(), 502);
}

fn a_connection_that_ends_is_replaced(io: &str) {
    let server = Server::new(|seen| match seen.path() {
        "/close" if seen.connection == 1 => Action::Close,
        path => answer(path),
    });
    let bed = Bed::new(io, &[server.address()], "");
    let mut client = bed.client();
    assert_eq!(client.ask("GET", "/a", &[]).text(), "/a");
    let response = client.ask("GET", "/close", &[]);
    assert_eq!(
        (response.status(), response.text().as_str()),
        (200, "/close")
    );
    assert_eq!(client.ask("GET", "/b", &[]).text(), "/b");
    assert_eq!(server.connections(), 2);
}

fn a_cancel_ends_only_its_stream(io: &str) {
    let server = Server::new(|seen| match seen.path() {
        "/hold" => Action::Wait,
        path => answer(path),
    });
    let bed = Bed::new(io, &[server.address()], "");
    let mut client = bed.client();
    for round in 1..=20 {
        let stream = client.open("POST", "/hold", &[]);
        let held = |seen: &&Seen| seen.path() == "/hold";
        until("the request", || {
            server.seen().iter().filter(held).count() == round
        });
        client.send(reset(stream, CANCEL));
        let is_reset = |seen: &Seen| seen.path() != "/hold" || seen.is_reset;
        until("the reset", || server.seen().iter().all(is_reset));
        assert_eq!(client.ask("GET", "/a", &[]).text(), "/a");
    }
    assert_eq!(server.connections(), 1);
}

fn a_full_connection_gets_a_sibling(io: &str) {
    let limits = Limits {
        streams_max: 5,
        ..Limits::default()
    };
    let server = Server::with_limits(limits, |seen| match seen.path() {
        "/hold" => Action::Wait,
        path => answer(path),
    });
    let bed = Bed::new(
        io,
        &[&format!(
            "{{ address = {:?}, max_connections = 3 }}",
            server.address()
        )],
        "",
    );
    let mut client = bed.client();
    assert_eq!(client.ask("GET", "/a", &[]).text(), "/a");
    let held: Vec<u32> = (0..15).map(|_| client.open("POST", "/hold", &[])).collect();
    let count = || {
        server
            .seen()
            .iter()
            .filter(|seen| seen.path() == "/hold" && !seen.is_reset)
            .count()
    };
    until("fifteen streams", || count() == 15);
    assert_eq!(server.connections(), 3);
    // The next one waits until a stream is free.
    let waiting = client.open("POST", "/hold", &[]);
    stays("waiting", Duration::from_millis(300), || {
        count() == 15 && server.connections() == 3
    });
    client.send(reset(held[3], CANCEL));
    until("the next request", || {
        server
            .seen()
            .iter()
            .filter(|seen| seen.path() == "/hold")
            .count()
            == 16
    });
    assert_eq!(client.so_far(waiting).reset, None);
    assert_eq!(server.connections(), 3);
}

/// A worker gives up a connection without streams when another one needs it.
fn workers_share_the_only_connection(io: &str) {
    let server = paths();
    let entry = format!(
        "{{ address = {:?}, max_connections = 1 }}",
        server.address()
    );
    let bed = Bed::new(io, &[&entry], "[service.pool]\nidle_ms = 0\n");
    let mut clients: Vec<Http2> = (0..4).map(|_| bed.client()).collect();
    for client in &mut clients {
        assert_eq!(client.ask("GET", "/a", &[]).text(), "/a");
    }
    assert!(server.connections() > 1, "the workers have not changed");
}

/// Neither side gets more than the other takes, and no memory grows.
fn windows_hold_bodies_back(io: &str) {
    let large = 100 * 1024 * 1024;
    let server = Server::new(move |seen| match (seen.path(), seen.is_complete) {
        ("/large", _) => response(&[(":status", "200")], &"x".repeat(large), &[]),
        _ => Action::Wait,
    });
    let bed = Bed::new(io, &[server.address()], "");
    let before_kb = bed.balancer.memory_kb();
    let mut client = Http2::with_settings(&bed.listen, &[]);
    let streams: Vec<u32> = (0..5).map(|_| client.open("GET", "/large", &[])).collect();
    client.until(|own| {
        streams
            .iter()
            .map(|one| own.so_far(*one).body.len())
            .sum::<usize>()
            == 65_535
    });
    std::thread::sleep(Duration::from_millis(500));
    let grown_kb = bed.balancer.memory_kb().saturating_sub(before_kb);
    assert!(grown_kb < 20_000, "{grown_kb} kB");
}

fn a_server_that_is_silent_gets_no_more_requests(io: &str) {
    let server = Server::new(|seen| match seen.connection {
        1 if seen.path() != "/first" => Action::Wait,
        _ => answer(seen.path()),
    });
    let times = "[service.times]\nfirst_byte_ms = 1500\n";
    let bed = Bed::new(io, &[server.address()], times);
    let mut client = bed.client();
    assert_eq!(client.ask("GET", "/first", &[]).text(), "/first");
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(client.ask("POST", "/late", &[]).status(), 504);
    assert_eq!(client.ask("GET", "/next", &[]).text(), "/next");
    assert_eq!(server.connections(), 2);
}

fn calls_may_be_silent_for_longer_than_requests(io: &str) {
    let server = Server::new(|seen| match seen.is_complete {
        true => answer(&String::from_utf8_lossy(&seen.body)),
        false => Action::Wait,
    });
    let times = "[service.times]\nbody_idle_ms = 500\ntunnel_idle_ms = 30000\n";
    let bed = Bed::new(io, &[server.address()], times);
    let mut client = bed.client();
    let call = client.open("POST", "/", &[("content-type", "application/grpc")]);
    let request = client.open("POST", "/", &[("content-type", "application/grpc-web")]);
    for stream in [call, request] {
        client.send(data(stream, "a", false));
    }
    assert_eq!(client.response(request).status(), 408);
    std::thread::sleep(Duration::from_millis(1_500));
    client.send(data(call, "b", true));
    assert_eq!(client.response(call).text(), "ab");
}

/// A deadline may pass at the server first.
fn a_call_that_the_server_cancels_is_canceled(io: &str) {
    let server = Server::new(|_| Action::Reset(ErrorCode::Cancel));
    let bed = Bed::new(io, &[server.address()], "");
    let mut client = bed.client();
    let call = client.ask("POST", "/", &[("content-type", "application/grpc")]);
    assert_eq!((call.reset, call.head.len()), (Some(CANCEL), 0));
    assert_eq!(client.ask("POST", "/", &[]).status(), 502);
}
