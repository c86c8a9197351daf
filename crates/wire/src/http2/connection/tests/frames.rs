//! Preface, frame headers, padding and sizes (RFC 9113 §3.4, §4, §6.1, §6.2).

use super::*;

#[test]
fn a_client_begins_with_the_preface_and_settings() {
    let mut server = Side::server_with(Limits::default());
    server.accepts(HELLO);
    let sent = server.sent();
    assert_eq!((sent[0].kind, sent[0].flags), (SETTINGS, 0));
    let window = [(
        WINDOW_UPDATE,
        (1024 * 1024 - 65_535_u32).to_be_bytes().to_vec(),
    )];
    assert_eq!([(sent[1].kind, sent[1].payload.clone())], window);
    assert_eq!((sent[2].kind, sent[2].flags), (SETTINGS, ACK));
    assert_eq!(sent.len(), 3);
}

#[test]
fn windows_are_at_least_those_that_clients_assume() {
    let limits = Limits {
        stream_window: 10,
        connection_window: 10,
        ..Limits::default()
    };
    let mut server = Side::server_with(limits);
    let sent = server.sent();
    assert_eq!(sent.len(), 1, "no WINDOW_UPDATE");
    let initial_window = [0, 4, 0, 0, 0xff, 0xff];
    assert!(
        sent[0]
            .payload
            .chunks(6)
            .any(|setting| setting == initial_window)
    );
    server.accepts(HELLO);
    server.accepts(&post(1, &[]));
    server.accepts(&data(1, &[0; 16_000]).repeat(4));
}

#[test]
fn other_first_bytes_are_refused_at_the_first_that_differs() {
    for at in 0..24 {
        let mut preface = HELLO[..24].to_vec();
        preface[at] ^= 1;
        let mut server = Side::server_with(Limits::default());
        server.accepts(&preface[..at]);
        server.refuses(&preface[at..=at], ErrorCode::ProtocolError);
    }
    let mut server = Side::server_with(Limits::default());
    server.refuses(b"GET / HTTP/1.1\r\n", ErrorCode::ProtocolError);
}

#[test]
fn the_first_frame_is_settings() {
    let first = [
        get(1),
        frame(PING, 0, 0, &[0; 8]),
        frame(SETTINGS, ACK, 0, &[]),
        frame(99, 0, 0, &[]),
    ];
    for first in first {
        let mut server = Side::server_with(Limits::default());
        server.accepts(&HELLO[..24]);
        server.refuses(&first, ErrorCode::ProtocolError);
    }
}

#[test]
fn a_frame_has_at_most_16384_bytes() {
    let mut server = Side::server();
    server.accepts(&post(1, &[]));
    server.accepts(&data(1, &[0; 16_384]));
    server.refuses(&data(1, &[0; 16_385])[..9], ErrorCode::FrameSizeError);
}

#[test]
fn frames_of_unknown_types_are_skipped() {
    let mut server = Side::server();
    server.accepts(&post(1, &[]));
    server.accepts(&frame(0x99, 0xff, 0, &[7; 300]));
    server.accepts(&frame(0x10, 0, 1, &[]));
    server.accepts(&frame(0x10, 0, 77, &[1]));
    server.accepts(&last_data(1, b"x"));
    let data = Seen::Data(1, b"x".to_vec());
    assert_eq!(server.seen(), [Seen::Request(1, false), data, Seen::End(1)]);
}

#[test]
fn the_reserved_bit_of_a_stream_means_nothing() {
    let mut server = Side::server();
    server.accepts(&get(0x8000_0001));
    assert_eq!(server.seen(), [Seen::Request(1, true)]);
    server.accepts(&window_update(0x8000_0000, 0x8000_0001));
}

#[test]
fn frames_on_a_wrong_stream_are_refused() {
    let frames = [
        ("DATA", data(0, b"x")),
        ("HEADERS", get(0)),
        ("PRIORITY", frame(PRIORITY, 0, 0, &[0; 5])),
        ("RST_STREAM", reset(0, 8)),
        ("SETTINGS", frame(SETTINGS, 0, 1, &[])),
        ("PUSH_PROMISE", frame(PUSH_PROMISE, END_HEADERS, 1, &[0; 4])),
        ("PING", frame(PING, 0, 1, &[0; 8])),
        ("GOAWAY", frame(GOAWAY, 0, 1, &[0; 8])),
        ("CONTINUATION", frame(CONTINUATION, END_HEADERS, 1, &[])),
    ];
    for (name, bytes) in frames {
        println!("{name}");
        let mut server = Side::server();
        server.accepts(&post(1, &[]));
        server.refuses(&bytes, ErrorCode::ProtocolError);
    }
}

#[test]
fn frames_of_a_wrong_length_are_refused() {
    let frames = [
        ("PADDED DATA", frame(DATA, PADDED, 1, &[])),
        (
            "PADDED HEADERS",
            frame(HEADERS, PADDED | END_HEADERS, 3, &[]),
        ),
        (
            "HEADERS",
            frame(HEADERS, PRIORITIZED | END_HEADERS, 3, &[0; 4]),
        ),
        (
            "PADDED HEADERS with a priority",
            frame(HEADERS, PADDED | PRIORITIZED | END_HEADERS, 3, &[0; 5]),
        ),
        ("idle PRIORITY", frame(PRIORITY, 0, 3, &[0; 4])),
        ("RST_STREAM", frame(RST_STREAM, 0, 1, &[0; 3])),
        ("RST_STREAM", frame(RST_STREAM, 0, 1, &[0; 5])),
        ("SETTINGS", frame(SETTINGS, 0, 0, &[0; 5])),
        ("SETTINGS ACK", frame(SETTINGS, ACK, 0, &[0; 6])),
        ("PING", frame(PING, 0, 0, &[0; 7])),
        ("PING", frame(PING, ACK, 0, &[0; 9])),
        ("GOAWAY", frame(GOAWAY, 0, 0, &[0; 7])),
        ("WINDOW_UPDATE", frame(WINDOW_UPDATE, 0, 1, &[0; 3])),
        ("WINDOW_UPDATE", frame(WINDOW_UPDATE, 0, 0, &[0; 5])),
    ];
    for (name, bytes) in frames {
        println!("{name}");
        let mut server = Side::server();
        server.accepts(&post(1, &[]));
        server.refuses(&bytes, ErrorCode::FrameSizeError);
    }
}

#[test]
fn padding_is_skipped() {
    let mut server = Side::server();
    let mut padded = vec![3, 0x80, 0, 0, 0, 9];
    padded.extend(request_block("POST", &[]));
    padded.extend([0; 3]);
    server.accepts(&frame(
        HEADERS,
        PADDED | PRIORITIZED | END_HEADERS,
        1,
        &padded,
    ));
    server.accepts(&frame(DATA, PADDED, 1, b"\x02xy\0\0"));
    server.accepts(&frame(DATA, PADDED | END_STREAM, 1, b"\x02\0\0"));
    let data = Seen::Data(1, b"xy".to_vec());
    assert_eq!(server.seen(), [Seen::Request(1, false), data, Seen::End(1)]);
}

#[test]
fn padding_as_long_as_the_frame_is_refused() {
    let mut priority = vec![1];
    priority.extend([0; 5]);
    let frames = [
        frame(DATA, PADDED, 1, &[1]),
        frame(DATA, PADDED, 1, &[5, 0, 0, 0, 0]),
        frame(HEADERS, PADDED | END_HEADERS, 3, &[1]),
        frame(HEADERS, PADDED | PRIORITIZED | END_HEADERS, 3, &priority),
    ];
    for bytes in frames {
        let mut server = Side::server();
        server.accepts(&post(1, &[]));
        server.refuses(&bytes, ErrorCode::ProtocolError);
    }
}
