//! Tests of WebSockets of servers of HTTP/2 (RFC 8441), for clients of both versions.

use std::time::Duration;

use evenkeel_wire::http2::ErrorCode;

use crate::client::{Client, Ended};
use crate::frames::{CANCEL, Http2, data, headers, request, reset};
use crate::peer::{end_sending, until};
use crate::script::{Action, Seen, Server, Settings, answer, response};
use crate::{Bed, on_both_drivers};

on_both_drivers! {
    a_server_of_http_2_gets_an_extended_connect
    a_server_without_the_setting_gets_none
    the_settings_of_a_server_are_awaited
    settings_that_do_not_come_are_not_awaited_for_long
    a_connection_without_settings_is_a_failure
    a_refusal_is_passed_on
    a_reset_is_passed_on
}

/// Key and answer of RFC 6455 §1.3.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// Returns the action of a server that echoes.
fn echo(seen: &Seen) -> Action {
    match seen.has_line("upgrade: websocket") {
        true => Action::Echo(vec![
            (":status".to_owned(), "200".to_owned()),
            ("sec-websocket-protocol".to_owned(), "chat".to_owned()),
            // RFC 8441 §5: the field is not used.
            ("sec-websocket-accept".to_owned(), "wrong".to_owned()),
        ]),
        false => answer(seen.path()),
    }
}

fn opening(path: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: web.example\r\nConnection: Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n\r\n"
    )
}

/// Asks for a WebSocket by HTTP/2.
fn ask(client: &mut Http2, path: &str) -> u32 {
    let more = [(":protocol", "websocket"), ("sec-websocket-version", "13")];
    let stream = client.stream();
    client.send(headers(stream, &request("CONNECT", path, &more), false));
    client.until(|own| !own.so_far(stream).head.is_empty() || own.so_far(stream).reset.is_some());
    stream
}

fn a_server_of_http_2_gets_an_extended_connect(io: &str) {
    let server = Server::with_settings(Settings::Offer, echo);
    let bed = Bed::new(io, &[server.address()], "");
    let mut client = bed.client();
    let stream = ask(&mut client, "/a?b");
    let head = client.so_far(stream);
    assert_eq!(head.status(), 200, "{head:?}");
    assert_eq!(head.field("sec-websocket-accept"), None);
    assert_eq!(
        head.field("sec-websocket-protocol").as_deref(),
        Some("chat")
    );
    for length in [1, 1_000, 16_000] {
        let before = client.length(stream);
        client.send(data(stream, vec![7; length], false));
        client.until(|own| own.length(stream) == before + length);
    }
    client.send(data(stream, "end", true));
    let end = client.response(stream);
    assert!(end.body.ends_with(b"end"));
    assert_eq!((end.is_complete, end.reset), (true, None));

    let mut old = Client::connect(&bed.listen);
    old.send(opening("/old"));
    let answer = old.answer();
    assert_eq!(answer.status, 101, "{}", answer.head);
    assert_eq!(
        answer.field("Sec-WebSocket-Accept").as_deref(),
        Some(ACCEPT)
    );
    assert_eq!(answer.field("Upgrade").as_deref(), Some("websocket"));
    assert_eq!(answer.field("Connection").as_deref(), Some("Upgrade"));
    assert_eq!(
        answer.field("Sec-WebSocket-Protocol").as_deref(),
        Some("chat")
    );
    old.send("hello");
    assert_eq!(old.take(5).unwrap(), b"hello");
    end_sending(&old.socket);
    assert_eq!(old.end(), Ended::Clean);

    assert_eq!(client.ask("GET", "/plain", &[]).text(), "/plain");
    let seen = server.seen();
    assert_eq!(seen.len(), 3);
    for (seen, path) in seen.iter().zip(["/a?b", "/old"]) {
        assert_eq!(seen.path(), path);
        for line in [
            "host: web.example",
            "sec-websocket-version: 13",
            "upgrade: websocket",
        ] {
            assert!(seen.has_line(line), "{}", seen.head);
        }
        assert!(!seen.head.contains(KEY), "{}", seen.head);
        assert!(seen.is_complete && !seen.is_reset);
    }
}

fn a_server_without_the_setting_gets_none(io: &str) {
    let server = Server::with_settings(Settings::Without, echo);
    let bed = Bed::new(io, &[server.address()], "");
    for _ in 0..2 {
        let mut old = Client::connect(&bed.listen);
        old.send(opening("/old"));
        let answer = old.answer();
        assert_eq!(answer.status, 502);
        assert!(answer.text().contains("server_http2"), "{answer:?}");
        let mut client = bed.client();
        let stream = ask(&mut client, "/new");
        let answer = client.response(stream);
        assert_eq!((answer.status(), answer.is_complete), (502, true));
        assert_eq!(client.ask("GET", "/plain", &[]).text(), "/plain");
    }
    assert!(server.seen().iter().all(|seen| seen.path() == "/plain"));
    let why = "its SETTINGS offer no extended CONNECT";
    assert!(bed.balancer.log().contains(why), "{}", bed.balancer.log());
}

fn the_settings_of_a_server_are_awaited(io: &str) {
    let late = Settings::Late(Duration::from_millis(500));
    let server = Server::with_settings(late, echo);
    let bed = Bed::new(io, &[server.address()], "");
    let mut clients: Vec<Http2> = (0..3).map(|_| bed.client()).collect();
    let more = [(":protocol", "websocket"), ("sec-websocket-version", "13")];
    for client in &mut clients {
        client.send(headers(1, &request("CONNECT", "/", &more), false));
    }
    for client in &mut clients {
        client.until(|own| own.so_far(1).status() == 200);
        client.send(data(1, "hello", true));
        assert_eq!(client.response(1).text(), "hello");
    }
}

fn settings_that_do_not_come_are_not_awaited_for_long(io: &str) {
    let late = Settings::Late(Duration::from_secs(60));
    let server = Server::with_settings(late, echo);
    let bed = Bed::new(io, &[server.address()], "[service.pool]\nwait_ms = 300\n");
    let mut client = bed.client();
    let stream = ask(&mut client, "/");
    let answer = client.response(stream);
    assert_eq!((answer.status(), answer.is_complete), (503, true));
    drop(client);
    // A client that leaves meanwhile is forgotten.
    let mut client = bed.client();
    let more = [(":protocol", "websocket"), ("sec-websocket-version", "13")];
    client.send(headers(1, &request("CONNECT", "/", &more), false));
    client.send(reset(1, CANCEL));
    drop(client);
    until("no session", || {
        bed.balancer.status().unwrap()["services"][0]["sessions"]["current"] == 0
    });
}

fn a_connection_without_settings_is_a_failure(io: &str) {
    let closing = Server::with_settings(Settings::Close, echo);
    let bed = Bed::new(io, &[closing.address()], "");
    let mut client = bed.client();
    let stream = ask(&mut client, "/");
    assert_eq!(client.response(stream).status(), 502);
    // Another server is asked.
    let server = Server::with_settings(Settings::Offer, echo);
    let bed = Bed::new(io, &[closing.address(), server.address()], "");
    let mut client = bed.client();
    for _ in 0..4 {
        let stream = ask(&mut client, "/");
        assert_eq!(client.so_far(stream).status(), 200);
    }
}

fn a_refusal_is_passed_on(io: &str) {
    let server = Server::with_settings(Settings::Offer, |seen| match seen.path() {
        "/refused" => Action::Reset(ErrorCode::RefusedStream),
        "/plain" => answer("plain"),
        _ => response(&[(":status", "403"), ("x-of", "server")], "no", &[]),
    });
    let bed = Bed::new(io, &[server.address()], "");
    let mut client = bed.client();
    let stream = ask(&mut client, "/403");
    let answer = client.response(stream);
    assert_eq!((answer.status(), answer.text().as_str()), (403, "no"));
    assert!(answer.is_complete);
    assert_eq!(answer.field("x-of").as_deref(), Some("server"));
    let mut old = Client::connect(&bed.listen);
    old.send(opening("/403"));
    let answer = old.answer();
    assert_eq!((answer.status, answer.text().as_str()), (403, "no"));
    assert_eq!(old.get("/plain").text(), "plain");
    let stream = ask(&mut client, "/refused");
    assert_eq!(client.response(stream).status(), 502);
}

fn a_reset_is_passed_on(io: &str) {
    let server = Server::with_settings(Settings::Offer, echo);
    let bed = Bed::new(io, &[server.address()], "");
    let mut client = bed.client();
    let stream = ask(&mut client, "/");
    client.send(reset(stream, CANCEL));
    until("the reset", || {
        server.seen().iter().all(|seen| seen.is_reset)
    });
    // The connection lives on.
    let stream = ask(&mut client, "/");
    client.send(data(stream, "hello", true));
    assert_eq!(client.response(stream).text(), "hello");
    assert_eq!(server.connections(), 1);
}
