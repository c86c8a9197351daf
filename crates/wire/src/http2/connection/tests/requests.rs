//! Requests, trailers and refused heads (RFC 9113 §5.1.1, §5.1.2, §8.1).

use super::*;

#[test]
fn a_request_is_answered() {
    let mut server = Side::server();
    server.accepts(&get(1));
    assert_eq!(server.seen(), [Seen::Request(1, true)]);
    assert!(server.answer(1, false));
    assert_eq!(server.send(1, b"hello", true), 5);
    let sent = server.sent();
    let kinds: Vec<_> = sent.iter().map(|sent| (sent.kind, sent.flags)).collect();
    assert_eq!(kinds, [(HEADERS, END_HEADERS), (DATA, END_STREAM)]);
    assert_eq!(sent[1].payload, b"hello");
    assert_eq!(server.connection.open_streams(), 1);
    server.finish(1);
    assert_eq!(server.connection.open_streams(), 0);
    assert!(server.sent().is_empty());
}

#[test]
fn a_request_with_a_content_length_has_an_event_with_it() {
    let mut server = Side::server();
    let bytes = post(1, &[("content-length", "3")]);
    let read = server.connection.read(&bytes, 0, &mut server.out);
    let event = Some(Event::Request {
        stream: id(1),
        end: false,
        content_length: Some(3),
    });
    let length = bytes.len();
    assert_eq!(read, Read::Used { length, event });
}

#[test]
fn streams_of_clients_are_odd_and_rise() {
    for (before, bytes) in [(1, get(2)), (5, get(3)), (5, get(4))] {
        let mut server = Side::server();
        server.accepts(&get(before));
        server.refuses(&bytes, ErrorCode::ProtocolError);
    }
}

#[test]
fn trailers_end_a_request() {
    let mut server = Side::server();
    server.accepts(&post(1, &[]));
    server.accepts(&data(1, b"x"));
    let trailers = block(&[("grpc-status", "0")]);
    server.accepts(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &trailers));
    let data = Seen::Data(1, b"x".to_vec());
    assert_eq!(
        server.seen(),
        [Seen::Request(1, false), data, Seen::Trailers(1)]
    );
    let trailers = frame(HEADERS, END_STREAM | END_HEADERS, 1, &trailers);
    server.accepts(&trailers);
    server.assert_reset(1, ErrorCode::StreamClosed);
}

#[test]
fn wrong_trailers_reset_the_stream() {
    let ends = END_STREAM | END_HEADERS;
    let cases = [
        ("without END_STREAM", END_HEADERS, block(&[("a", "b")])),
        ("with a pseudo-field", ends, block(&[(":path", "/")])),
        ("with an upper-case name", ends, block(&[("A", "b")])),
    ];
    for (name, flags, trailers) in cases {
        println!("{name}");
        let mut server = Side::server();
        server.accepts(&post(1, &[]));
        server.accepts(&frame(HEADERS, flags, 1, &trailers));
        server.assert_reset(1, ErrorCode::ProtocolError);
    }
}

#[test]
fn a_malformed_request_is_reset_without_an_event() {
    let mut server = Side::server();
    let malformed = request_block("GET", &[("connection", "close")]);
    server.accepts(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &malformed));
    assert_eq!(server.seen(), []);
    let sent = server.sent();
    assert_eq!((sent[0].kind, sent[0].stream), (RST_STREAM, 1));
    assert_eq!(
        sent[0].payload,
        ErrorCode::ProtocolError.code().to_be_bytes()
    );
    assert_eq!(server.connection.open_streams(), 0);
    server.accepts(&get(3));
    assert_eq!(server.seen(), [Seen::Request(3, true)]);
}

#[test]
fn the_body_of_a_malformed_request_is_ignored() {
    let mut server = Side::server();
    server.accepts(&post(1, &[("connection", "close")]));
    server.accepts(&data(1, b"under way"));
    let trailers = block(&[("a", "b")]);
    server.accepts(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &trailers));
    assert_eq!(server.seen(), []);
    assert_eq!(server.sent().len(), 1);
}

/// Returns a server with a small limit of heads, and a request that exceeds it.
fn refusing() -> (Side, Vec<u8>) {
    let limits = Limits {
        head_bytes_max: 300,
        ..Limits::default()
    };
    let mut server = Side::server_with(limits);
    server.accepts(HELLO);
    server.out.clear();
    let value = "x".repeat(100);
    let fields: Vec<_> = ["a", "b", "c"].map(|name| (name, &value[..])).into();
    (server, post(1, &fields))
}

#[test]
fn a_head_that_is_too_large_can_be_answered() {
    let (mut server, bytes) = refusing();
    server.accepts(&bytes);
    server.accepts(&data(1, b"is discarded"));
    assert_eq!(server.seen(), [Seen::Refused(1)]);
    server.serve(1);
    let sent = server.sent();
    assert_eq!(
        (sent[0].kind, sent[0].flags),
        (HEADERS, END_HEADERS | END_STREAM)
    );
    assert_eq!(
        (sent[1].kind, &sent[1].payload[..]),
        (RST_STREAM, &[0; 4][..])
    );
    server.accepts(&last_data(1, b"still under way"));
    server.accepts(&get(3));
    assert_eq!(server.seen(), [Seen::Request(3, true)]);
}

#[test]
fn the_body_of_a_refused_head_opens_its_windows_again() {
    let (mut server, bytes) = refusing();
    server.accepts(&bytes);
    server.accepts(&data(1, &[0; 16_384]).repeat(8));
    let updates: Vec<_> = server
        .sent()
        .iter()
        .map(|sent| (sent.kind, sent.stream))
        .collect();
    assert_eq!(updates, [(WINDOW_UPDATE, 1)]);
    server.accepts(&last_data(1, b""));
    assert_eq!(server.seen(), [Seen::Refused(1)]);
    server.serve(1);
    let kinds: Vec<_> = server.sent().iter().map(|sent| sent.kind).collect();
    assert_eq!(kinds, [HEADERS], "the client has ended its side");
}

#[test]
fn the_trailers_of_a_refused_head_are_discarded() {
    let (mut server, bytes) = refusing();
    server.accepts(&bytes);
    let trailers = block(&[("a", "b")]);
    server.accepts(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &trailers));
    assert_eq!(server.seen(), [Seen::Refused(1)]);
    server.serve(1);
    assert_eq!(server.sent().len(), 1, "the client has ended its side");
}

#[test]
fn a_refused_table_entry_is_known_afterwards() {
    let (mut server, mut bytes) = refusing();
    // A field that enters the table (RFC 7541 §6.2.1), after what is too much.
    let mut block = bytes.split_off(9);
    block.extend(b"\x40\x03new\x05value");
    server.accepts(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &block));
    let mut next = request_block("GET", &[]);
    next.push(0x80 | 62);
    server.accepts(&frame(HEADERS, END_STREAM | END_HEADERS, 3, &next));
    assert_eq!(server.seen(), [Seen::Refused(1), Seen::Request(3, true)]);
    let text = server.connection.head_text().to_vec();
    assert!(
        text.windows(12).any(|part| part == b"new: value\r\n"),
        "{}",
        text.escape_ascii()
    );
}
