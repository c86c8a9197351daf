//! Tests of interim responses, and of final ones that come before the request is complete.

use std::process::Command;

use crate::client::Ended;
use crate::origin::{Origin, ok, reply};
use crate::peer::until;
use crate::{Bed, on_both_drivers};

on_both_drivers! {
    an_expectation_is_answered_by_the_server
    curl_sends_its_body_after_100
    a_refused_expectation_closes_the_connection
    interim_responses_pass_and_desynchronise_nothing
    interim_responses_without_end_are_a_504
    a_client_of_http_1_0_gets_no_interim_response
    an_early_answer_reaches_a_client_that_still_sends
    an_early_answer_and_a_reset_of_the_server_are_not_lost
}

const EXPECTING: &str =
    "POST /up HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";

/// Awaits the body only after it has said so.
fn patient() -> Origin {
    Origin::scripted(|incoming, log| {
        while let Some(mut seen) = incoming.head() {
            if seen.field("Expect").is_some() {
                reply(incoming.socket, "HTTP/1.1 100 Continue\r\n\r\n");
            }
            if incoming.body(&mut seen).is_none() {
                return;
            }
            log(&seen);
            reply(incoming.socket, ok("taken"));
        }
    })
}

fn an_expectation_is_answered_by_the_server(io: &str) {
    let origin = patient();
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    for _ in 0..3 {
        client.send(EXPECTING);
        assert_eq!(client.answer().status, 100);
        client.send("hello");
        assert_eq!(client.answer().text(), "taken");
        assert_eq!(client.post("/plain", "x").text(), "taken");
    }
    assert!(origin.server.total() <= 2);
    // A client that does not wait gets one 100 at most, and its final answer.
    client.send(format!("{EXPECTING}hello"));
    let mut answer = client.answer();
    if answer.status == 100 {
        answer = client.answer();
    }
    assert_eq!(answer.text(), "taken");
}

fn curl_sends_its_body_after_100(io: &str) {
    let origin = patient();
    let bed = Bed::new(io, &[&origin], "");
    let output = Command::new("curl")
        .args([
            "-sS",
            "-v",
            "-H",
            "Expect: 100-continue",
            "--expect100-timeout",
            "20",
        ])
        .args([
            "--data-binary",
            "hello",
            &format!("http://{}/up", bed.listen),
        ])
        .output()
        .unwrap();
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "taken", "{log}");
    assert!(log.contains("100 Continue"), "{log}");
    assert_eq!(origin.only().body, b"hello");
}

fn a_refused_expectation_closes_the_connection(io: &str) {
    let origin = Origin::scripted(|incoming, log| {
        if let Some(seen) = incoming.head() {
            log(&seen);
            reply(
                incoming.socket,
                "HTTP/1.1 417 Expectation Failed\r\nContent-Length: 2\r\n\r\nno",
            );
            incoming.head();
        }
    });
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    client.send(EXPECTING);
    let answer = client.answer();
    assert_eq!((answer.status, answer.text().as_str()), (417, "no"));
    assert_eq!(answer.field("Connection").as_deref(), Some("close"));
    assert_eq!(client.end(), Ended::Clean);
    until("the end of the server connection", || {
        origin.server.current() == 0
    });

    let mut client = bed.client();
    client.send(EXPECTING.replace("100-continue", "200-ok"));
    assert_eq!(client.answer().status, 417);
    assert_eq!(origin.seen().len(), 1);
}

fn interim_responses_pass_and_desynchronise_nothing(io: &str) {
    let origin = Origin::new(|seen| {
        let interim = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nConnection: close\r\n\r\n\
                       HTTP/1.1 102 Processing\r\nContent-Length: 3\r\n\r\n\
                       HTTP/1.1 199 Odd\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n";
        Some(format!("{interim}{}", ok(seen.path())))
    });
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    for number in 0..5 {
        let path = format!("/{number}");
        let mut answer = client.get(&path);
        let mut interim = Vec::new();
        while answer.status < 200 {
            assert_eq!(answer.field("Connection"), None);
            assert_eq!(answer.field("Content-Length"), None);
            interim.push(answer.status);
            answer = client.answer();
        }
        // 103 only confuses clients of HTTP/1.1 (RFC 8297 §3), and no client has awaited 100.
        assert_eq!(interim, [102, 199]);
        assert_eq!(answer.text(), path);
    }
    assert!(origin.server.total() <= 2, "interim responses end nothing");
}

fn interim_responses_without_end_are_a_504(io: &str) {
    let origin = Origin::scripted(|incoming, log| {
        if let Some(seen) = incoming.request() {
            log(&seen);
            while reply(
                incoming.socket,
                "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n",
            ) {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        }
    });
    let bed = Bed::new(io, &[&origin], "[service.times]\nfirst_byte_ms = 300\n");
    assert_eq!(bed.client().get("/").status, 504);
    until("the end of the server connection", || {
        origin.server.current() == 0
    });
}

fn a_client_of_http_1_0_gets_no_interim_response(io: &str) {
    let interim = "HTTP/1.1 102 Processing\r\n\r\n";
    let origin = Origin::new(move |_| Some(format!("{interim}{}", ok("final"))));
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    client.send("GET / HTTP/1.0\r\n\r\n");
    assert_eq!(client.answer().text(), "final");
}

fn an_early_answer_reaches_a_client_that_still_sends(io: &str) {
    let origin = Origin::scripted(|incoming, log| {
        if let Some(seen) = incoming.head() {
            log(&seen);
            let early = "HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig";
            reply(incoming.socket, early);
            // It goes on reading, as nginx does for a while.
            while incoming.take(1024).is_some() {}
        }
    });
    let bed = Bed::new(io, &[&origin], "");
    for _ in 0..10 {
        let mut client = bed.client();
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n");
        client.send(vec![b'x'; 100_000]);
        let answer = client.answer();
        assert_eq!((answer.status, answer.text().as_str()), (413, "big"));
        assert_eq!(answer.field("Connection").as_deref(), Some("close"));
        assert_eq!(client.end(), Ended::Clean);
        until("the end of the server connection", || {
            origin.server.current() == 0
        });
    }
}

/// The server closes with unread input: its kernel sends a reset after the answer.
fn an_early_answer_and_a_reset_of_the_server_are_not_lost(io: &str) {
    let origin = Origin::scripted(|incoming, log| {
        if let Some(seen) = incoming.head() {
            log(&seen);
            let early =
                "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno";
            reply(incoming.socket, early);
        }
    });
    let bed = Bed::new(io, &[&origin], "");
    for round in 0..30 {
        let mut client = bed.client();
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 50000000\r\n\r\n");
        let mut socket = &client.socket;
        let written = std::io::Write::write_all(&mut socket, &vec![b'x'; 400_000]);
        let answer = client.try_answer(false);
        let answer = answer.unwrap_or_else(|lost| panic!("round {round}: {lost:?} {written:?}"));
        assert_eq!(
            (answer.status, answer.text().as_str()),
            (403, "no"),
            "round {round}"
        );
    }
}
