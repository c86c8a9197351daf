//! Tests of WebSockets: the change of the protocol, and the bytes around it.

use crate::client::{Client, Ended};
use crate::origin::{Incoming, Origin, Seen, ok, reply};
use crate::peer::{end_sending, reset, until};
use crate::{Bed, on_both_drivers};

on_both_drivers! {
    a_websocket_passes_bytes_both_ways
    bytes_around_the_101_are_not_lost
    a_wrong_101_is_a_502
    a_101_that_was_not_requested_is_a_502
    a_refused_websocket_is_an_ordinary_response
    an_upgrade_to_another_protocol_is_a_plain_request
    the_end_of_one_side_ends_the_other
    a_reset_of_one_side_resets_the_other
    a_websocket_has_its_own_idle_limit
}

/// Key and answer of RFC 6455 §1.3.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

pub(crate) fn opening(path: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: web.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Protocol: chat\r\n\r\n"
    )
}

pub(crate) fn switching(accept: &str) -> String {
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: WebSocket\r\n\
         Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: chat\r\n\r\n"
    )
}

/// Accepts each WebSocket and echoes its bytes.
pub(crate) fn echoing() -> Origin {
    Origin::scripted(|incoming, log| {
        while let Some(seen) = incoming.request() {
            log(&seen);
            if seen.field("Upgrade").is_none() {
                reply(incoming.socket, ok("plain"));
                continue;
            }
            reply(incoming.socket, switching(ACCEPT));
            while let Some(byte) = incoming.take(1) {
                if !reply(incoming.socket, byte) {
                    return;
                }
            }
        }
    })
}

/// Opens a WebSocket.
#[track_caller]
pub(crate) fn open(bed: &Bed) -> Client {
    let mut client = bed.client();
    client.send(opening("/chat"));
    let answer = client.answer();
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
    client
}

#[track_caller]
pub(crate) fn assert_echo(client: &mut Client, bytes: &[u8]) {
    client.send(bytes);
    let echo = client.take(bytes.len());
    assert!(echo.is_ok_and(|echo| echo == bytes));
}

fn a_websocket_passes_bytes_both_ways(io: &str) {
    let origin = echoing();
    let bed = Bed::new(io, &[&origin], "");
    let mut client = open(&bed);
    for length in [1, 100, 10_000, 100_000] {
        assert_echo(&mut client, &vec![0xFE; length]);
    }
    let seen = origin.only();
    assert_eq!(seen.field("Sec-WebSocket-Key").as_deref(), Some(KEY));
    assert_eq!(seen.field("Upgrade").as_deref(), Some("websocket"));
    drop(client);
    until("the end of the server connection", || {
        origin.server.current() == 0
    });
    bed.until_idle();
    assert_eq!(bed.client().get("/").text(), "plain");
    assert_eq!(
        origin.server.total(),
        2,
        "the connection was not used again"
    );
}

fn bytes_around_the_101_are_not_lost(io: &str) {
    let origin = Origin::scripted(|incoming: &mut Incoming<'_>, log: &dyn Fn(&Seen)| {
        if let Some(seen) = incoming.request() {
            log(&seen);
            reply(
                incoming.socket,
                format!("{}server's first", switching(ACCEPT)),
            );
            let taken = incoming.take(5);
            reply(incoming.socket, taken.unwrap_or_default());
            incoming.take(1);
        }
    });
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    // The client does not wait for the answer; its bytes must not reach the server before it.
    client.send(format!("{}early", opening("/chat")));
    assert_eq!(client.answer().status, 101);
    let expected = b"server's firstearly";
    assert_eq!(client.take(expected.len()).unwrap(), expected);
}

/// Returns a server that answers each opening request with this.
fn answering(response: String) -> Origin {
    Origin::new(move |seen| {
        let plain = || ok("plain");
        Some(if seen.path() == "/chat" {
            response.clone()
        } else {
            plain()
        })
    })
}

fn a_wrong_101_is_a_502(io: &str) {
    let wrong = [
        switching("AAAAAAAAAAAAAAAAAAAAAAAAAAA="),
        switching(ACCEPT).replace("WebSocket\r\n", "h2c\r\n"),
        switching(ACCEPT).replace("Connection: upgrade\r\n", ""),
        switching(ACCEPT).replace("Sec-WebSocket-Accept", "X-Accept"),
    ];
    for response in wrong {
        let origin = answering(format!("{response}{}", ok("poison")));
        let bed = Bed::new(io, &[&origin], "");
        let mut client = bed.client();
        client.send(opening("/chat"));
        let answer = client.answer();
        assert_eq!(answer.status, 502, "{response:?}");
        assert_eq!(client.get("/").text(), "plain");
    }
}

fn a_101_that_was_not_requested_is_a_502(io: &str) {
    let origin = answering(switching(ACCEPT));
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    assert_eq!(client.get("/chat").status, 502);
    assert_eq!(client.post("/chat", "x").status, 502);
    assert_eq!(client.get("/").text(), "plain");
}

fn a_refused_websocket_is_an_ordinary_response(io: &str) {
    let refusal = "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno";
    let origin = answering(refusal.to_owned());
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    for _ in 0..3 {
        client.send(opening("/chat"));
        assert_eq!(client.answer().status, 403);
        assert_eq!(client.get("/").text(), "plain");
    }
}

fn an_upgrade_to_another_protocol_is_a_plain_request(io: &str) {
    let origin = Origin::echo();
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    let with = |more: &str| format!("GET /a HTTP/1.1\r\nHost: a\r\n{more}\r\n");
    for fields in [
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
         HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n",
        "Connection: Upgrade\r\nUpgrade: websocket\r\n",
        "Connection: Upgrade\r\nUpgrade: h2c, websocket\r\nSec-WebSocket-Version: 13\r\n",
        "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
        "Connection: Upgrade\r\nUpgrade: TLS/1.0\r\n",
    ] {
        client.send(with(fields));
        assert_eq!(client.answer().status, 200, "{fields:?}");
        let seen = origin.seen().pop().unwrap();
        assert_eq!(seen.field("Upgrade"), None, "{}", seen.head);
        assert_eq!(seen.field("HTTP2-Settings"), None);
        assert_eq!(seen.field("Connection"), None);
    }
}

fn the_end_of_one_side_ends_the_other(io: &str) {
    let origin = echoing();
    let bed = Bed::new(io, &[&origin], "");
    let mut client = open(&bed);
    assert_echo(&mut client, b"hello");
    end_sending(&client.socket);
    assert_eq!(client.end(), Ended::Clean);
    until("the end of the server connection", || {
        origin.server.current() == 0
    });

    let closing = Origin::scripted(|incoming, _| {
        incoming.request();
        reply(incoming.socket, format!("{}bye", switching(ACCEPT)));
    });
    let bed = Bed::new(io, &[&closing], "");
    let mut client = open(&bed);
    assert_eq!(client.take(3).unwrap(), b"bye");
    assert_eq!(client.end(), Ended::Clean);
    bed.until_idle();
}

fn a_reset_of_one_side_resets_the_other(io: &str) {
    let origin = Origin::scripted(|incoming, _| {
        incoming.request();
        reply(incoming.socket, switching(ACCEPT));
        incoming.take(1);
        // The close is a reset.
        incoming
            .socket
            .set_linger(Some(std::time::Duration::ZERO))
            .unwrap();
    });
    let bed = Bed::new(io, &[&origin], "");
    let mut client = open(&bed);
    client.send("x");
    assert_eq!(client.end(), Ended::Reset);
    let client = open(&bed);
    reset(client.socket);
    until("the end of the server connection", || {
        origin.server.current() == 0
    });
    bed.until_idle();
}

fn a_websocket_has_its_own_idle_limit(io: &str) {
    let origin = echoing();
    let times = "[service.times]\ntunnel_idle_ms = 600\nkeepalive_ms = 100\n\
                 first_byte_ms = 100\nbody_idle_ms = 100\n";
    let bed = Bed::new(io, &[&origin], times);
    let mut client = open(&bed);
    let start = std::time::Instant::now();
    while start.elapsed().as_millis() < 1_500 {
        assert_echo(&mut client, b"still here");
        std::thread::park_timeout(std::time::Duration::from_millis(200));
    }
    // Silence of both sides.
    client.end_is_any();
    bed.until_idle();
}
