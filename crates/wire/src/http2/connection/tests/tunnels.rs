//! Extended CONNECT (RFC 8441): settings, and the streams of tunnels.

use super::client::head;
use super::*;
use crate::http2::ExtendedConnect;

/// ENABLE_CONNECT_PROTOCOL.
const CONNECT: u16 = 8;

/// Returns the head of an extended CONNECT.
fn connect(flags: u8) -> Vec<u8> {
    let block = request_block("CONNECT", &[(":protocol", "websocket")]);
    frame(HEADERS, flags | END_HEADERS, 1, &block)
}

/// Returns a server with a tunnel on stream 1.
fn tunneling() -> Side {
    let mut server = Side::server();
    server.accepts(&connect(0));
    assert_eq!(server.seen(), [Seen::Request(1, false)]);
    assert!(server.answer(1, false));
    server.out.clear();
    server
}

/// RFC 8441 §3: a server offers it, a client says nothing.
#[test]
fn a_server_offers_extended_connect() {
    let has_offer = |side: &mut Side| {
        let sent = side.sent();
        let mut settings = sent[0].payload.chunks(6);
        settings.any(|setting| setting == [0, 8, 0, 0, 0, 1])
    };
    assert!(has_offer(&mut Side::server_with(Limits::default())));
    let limits = Limits::default();
    assert!(!has_offer(&mut super::Side::client_with(limits)));
}

/// RFC 8441 §3.
#[test]
fn a_client_reads_the_offer_of_a_server() {
    let mut client = Side::client_with(Limits::default());
    let offer = |client: &Side| client.connection.extended_connect();
    assert_eq!(offer(&client), ExtendedConnect::Unknown);
    let all = settings(&[(3, 100), (CONNECT, 1), (4, 70_000)]);
    let (part, rest) = all.split_at(20);
    client.accepts(part);
    assert_eq!(offer(&client), ExtendedConnect::Unknown);
    client.accepts(rest);
    assert_eq!(offer(&client), ExtendedConnect::Offered);
    // Later SETTINGS without it change nothing.
    client.accepts(&settings(&[(3, 50)]));
    assert_eq!(offer(&client), ExtendedConnect::Offered);
    let code = ErrorCode::ProtocolError;
    client.refuses(&settings(&[(CONNECT, 0)]), code);

    for first in [
        settings(&[]),
        settings(&[(3, 100)]),
        settings(&[(CONNECT, 0)]),
    ] {
        let mut client = Side::client_with(Limits::default());
        client.accepts(&first);
        assert_eq!(offer(&client), ExtendedConnect::Refused);
        client.accepts(&settings(&[(CONNECT, 1)]));
        assert_eq!(offer(&client), ExtendedConnect::Offered);
    }
    for wrong in [2, u32::MAX] {
        let mut client = Side::client_with(Limits::default());
        client.refuses(&settings(&[(CONNECT, wrong)]), code);
    }
}

/// RFC 8441 §3: "Receipt of this parameter by a server does not have any impact".
#[test]
fn a_server_ignores_the_setting() {
    let mut server = Side::server();
    for value in [1, 0, 2, u32::MAX] {
        server.accepts(&settings(&[(CONNECT, value)]));
    }
    assert_eq!(
        server.connection.extended_connect(),
        ExtendedConnect::Refused
    );
}

#[test]
fn bytes_pass_both_ways_until_both_sides_have_ended() {
    let mut server = tunneling();
    server.accepts(&data(1, b"abc"));
    assert_eq!(server.seen(), [Seen::Data(1, b"abc".to_vec())]);
    assert_eq!(server.send(1, b"def", false), 3);
    server.accepts(&last_data(1, b"end"));
    assert_eq!(
        server.seen(),
        [Seen::Data(1, b"end".to_vec()), Seen::End(1)]
    );
    assert_eq!(server.send(1, b"ghi", false), 3);
    assert_eq!(server.send(1, b"", true), 0);
    let flags: Vec<_> = server.sent().iter().map(|it| (it.kind, it.flags)).collect();
    assert_eq!(flags, [(DATA, 0), (DATA, 0), (DATA, END_STREAM)]);
    server.finish(1);
    assert_eq!(server.sent(), []);
}

/// RFC 9113 §8.5: only DATA and frames that manage the stream.
#[test]
fn trailers_in_a_tunnel_are_a_stream_error() {
    let trailers = |flags| frame(HEADERS, flags | END_HEADERS, 1, &block(&[("a", "b")]));
    for flags in [0, END_STREAM] {
        let mut server = tunneling();
        server.accepts(&trailers(flags));
        server.assert_reset(1, ErrorCode::ProtocolError);
        let mut client = connecting();
        client.accepts(&head(1, 0, "200", &[]));
        client.accepts(&trailers(flags));
        client.assert_reset(1, ErrorCode::ProtocolError);
    }
}

/// Returns a client that has sent an extended CONNECT.
fn connecting() -> Side {
    let mut client = Side::client();
    client.accepts(&settings(&[(CONNECT, 1)]));
    client.open(Method::Connect, false);
    client.out.clear();
    client
}

/// RFC 8441 §5: any 2xx.
#[test]
fn a_response_that_accepts_becomes_a_101() {
    for (status, fields) in [
        ("200", &[][..]),
        ("204", &[]),
        // RFC 9110 §9.3.6.
        ("200", &[("content-length", "7")]),
        ("200", &[("content-length", "7"), ("content-length", "x")]),
    ] {
        let mut client = connecting();
        let chat = [fields, &[("sec-websocket-protocol", "chat")]].concat();
        client.accepts(&head(1, 0, status, &chat));
        assert_eq!(client.seen(), [Seen::Response(1, false)]);
        let expect = "HTTP/1.1 101 \r\nsec-websocket-protocol: chat\r\n\r\n";
        assert_eq!(client.connection.head_text(), expect.as_bytes());
        client.accepts(&data(1, b"more than seven"));
        assert_eq!(client.seen(), [Seen::Data(1, b"more than seven".to_vec())]);
        assert_eq!(client.send(1, b"abc", false), 3);
    }
}

#[test]
fn a_response_that_refuses_stays_as_it_is() {
    let mut client = connecting();
    client.accepts(&head(1, 0, "103", &[]));
    client.accepts(&head(1, 0, "403", &[("content-length", "2")]));
    let expect = "HTTP/1.1 403 \r\ncontent-length: 2\r\n\r\n";
    assert_eq!(client.connection.head_text(), expect.as_bytes());
    client.accepts(&data(1, b"abc"));
    client.assert_reset(1, ErrorCode::ProtocolError);
}

/// No other response becomes a 101.
#[test]
fn a_response_to_another_method_is_no_101() {
    let mut client = Side::client();
    client.open(Method::Get, true);
    client.accepts(&head(1, END_STREAM, "200", &[]));
    let expect = "HTTP/1.1 200 \r\ncontent-length: 0\r\n\r\n";
    assert_eq!(client.connection.head_text(), expect.as_bytes());
    for method in [Method::Get, Method::Connect] {
        let mut client = Side::client();
        client.open(method, false);
        client.accepts(&head(1, 0, "101", &[]));
        client.assert_reset(1, ErrorCode::ProtocolError);
    }
}
