//! Field blocks in several frames (RFC 9113 §4.3, §6.10), and input cut anywhere.

use super::*;

/// Returns a request whose field block is cut in frames of these lengths; the rest is the last.
fn in_parts(stream: u32, flags: u8, lengths: &[usize]) -> Vec<Vec<u8>> {
    let block = request_block("GET", &[]);
    let mut rest = &block[..];
    let mut frames = Vec::new();
    for &length in lengths {
        let (part, after) = rest.split_at(length);
        let kind = if frames.is_empty() {
            HEADERS
        } else {
            CONTINUATION
        };
        let flags = if frames.is_empty() { flags } else { 0 };
        frames.push(frame(kind, flags, stream, part));
        rest = after;
    }
    frames.push(frame(CONTINUATION, END_HEADERS, stream, rest));
    frames
}

#[test]
fn a_field_block_may_come_in_several_frames() {
    for lengths in [&[0][..], &[1, 0, 2], &[3, 1, 1, 1, 1, 1, 1, 1]] {
        let mut server = Side::server();
        server.accepts(&in_parts(1, END_STREAM, lengths).concat());
        assert_eq!(server.seen(), [Seen::Request(1, true)]);
        let text = server.connection.head_text();
        assert!(text.starts_with(b"GET / HTTP/1.1\r\n"));
    }
}

#[test]
fn nothing_comes_between_the_frames_of_a_field_block() {
    let between = [
        get(3),
        data(1, b"x"),
        frame(PING, 0, 0, &[0; 8]),
        frame(PRIORITY, 0, 1, &[0; 5]),
        frame(0x77, 0, 1, &[]),
        settings(&[]),
        window_update(0, 1),
        frame(CONTINUATION, END_HEADERS, 3, &[]),
        frame(CONTINUATION, END_HEADERS, 0, &[]),
    ];
    for bytes in between {
        let mut server = Side::server();
        server.accepts(&in_parts(1, END_STREAM, &[4])[0]);
        server.refuses(&bytes, ErrorCode::ProtocolError);
    }
}

#[test]
fn continuation_follows_an_unfinished_field_block_only() {
    let mut server = Side::server();
    server.accepts(&post(1, &[]));
    let more = frame(CONTINUATION, END_HEADERS, 1, &[]);
    server.refuses(&more, ErrorCode::ProtocolError);
}

#[test]
fn a_field_block_has_at_most_eight_continuations() {
    let mut server = Side::server();
    server.accepts(&in_parts(1, 0, &[1; 8]).concat());
    assert_eq!(server.seen(), [Seen::Request(1, false)]);
    let mut frames = in_parts(3, 0, &[1; 9]);
    let last = frames.pop().expect("a frame");
    server.accepts(&frames.concat());
    server.refuses(&last, ErrorCode::EnhanceYourCalm);
}

#[test]
fn a_field_block_has_at_most_twice_the_bytes_of_a_head() {
    let mut server = Side::server();
    server.accepts(&frame(HEADERS, 0, 1, &[0x20; 16_384]));
    for _ in 0..3 {
        server.accepts(&frame(CONTINUATION, 0, 1, &[0x20; 16_384]));
    }
    let more = frame(CONTINUATION, 0, 1, &[0x20]);
    server.refuses(&more, ErrorCode::EnhanceYourCalm);
}

#[test]
fn a_block_that_cannot_be_decoded_is_an_error_of_the_connection() {
    // Index 0 (RFC 7541 §6.1).
    for bytes in [
        frame(HEADERS, END_STREAM | END_HEADERS, 1, &[0x80]),
        [
            frame(HEADERS, 0, 1, &[0x80]),
            frame(CONTINUATION, END_HEADERS, 1, &[]),
        ]
        .concat(),
    ] {
        let mut server = Side::server();
        server.refuses(&bytes, ErrorCode::CompressionError);
    }
}

/// Returns frames with each kind of event, and with faults of streams.
fn conversation() -> Vec<u8> {
    let mut padded_post = vec![4];
    padded_post.extend(request_block("POST", &[]));
    padded_post.extend([0; 4]);
    [
        HELLO.to_vec(),
        settings(&[(4, 10), (1, 0), (0x99, 7), (4, 70_000)]),
        get(1),
        post(3, &[("content-length", "5")]),
        data(3, b"ab"),
        frame(PING, 0, 0, b"12345678"),
        last_data(3, b"cde"),
        frame(HEADERS, END_HEADERS | PADDED, 5, &padded_post),
        frame(DATA, PADDED, 5, b"\x03body\0\0\0"),
        frame(
            HEADERS,
            END_STREAM | END_HEADERS,
            5,
            &block(&[("grpc-status", "0")]),
        ),
        in_parts(7, END_STREAM, &[3, 9]).concat(),
        post(9, &[("content-length", "1")]),
        data(9, b"too long"),
        post(11, &[]),
        reset(11, 8),
        frame(0x55, 3, 0, b"unknown"),
        window_update(0, 1_000),
        frame(GOAWAY, 0, 0, b"\0\0\0\0\0\0\0\0debug"),
        post(13, &[]),
        data(13, &[9; 5_000]),
        last_data(13, b""),
        data(1, b"after the end"),
    ]
    .concat()
}

#[test]
fn input_cut_anywhere_gives_the_same_events_and_answers() {
    let bytes = conversation();
    let mut whole = Side::server_with(Limits::default());
    whole.accepts(&bytes);
    let (seen, out) = (whole.seen(), whole.out);
    assert!(seen.len() > 15, "{seen:?}");
    for cut in 0..bytes.len() {
        let mut server = Side::server_with(Limits::default());
        server.accepts(&bytes[..cut]);
        server.accepts(&bytes[cut..]);
        assert_eq!(server.seen(), seen, "cut at {cut}");
        assert_eq!(server.out, out, "cut at {cut}");
    }
    for step in 1..20 {
        let mut server = Side::server_with(Limits::default());
        bytes.chunks(step).for_each(|part| server.accepts(part));
        assert_eq!(server.seen(), seen, "parts of {step}");
        assert_eq!(server.out, out, "parts of {step}");
    }
}
