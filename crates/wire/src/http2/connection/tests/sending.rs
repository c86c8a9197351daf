//! Heads and DATA to the client: windows, frame sizes, ends (RFC 9113 §4.2, §5.2, §6.9).

use super::*;

/// Returns lengths and flags of the DATA frames among these.
fn data_frames(sent: &[Sent]) -> Vec<(usize, u8)> {
    let data = sent.iter().filter(|sent| sent.kind == DATA);
    data.map(|sent| (sent.payload.len(), sent.flags)).collect()
}

fn answering() -> Side {
    let mut server = Side::server();
    server.accepts(&[get(1), get(3)].concat());
    server.answer(1, false);
    server.answer(3, false);
    server.sent();
    server.seen();
    server
}

#[test]
fn data_are_cut_into_frames_that_every_client_accepts() {
    let mut server = answering();
    server.accepts(&settings(&[(5, 100_000)]));
    assert_eq!(server.send(1, &[0; 40_000], true), 40_000);
    let frames = [(16_384, 0), (16_384, 0), (7_232, END_STREAM)];
    assert_eq!(data_frames(&server.sent()), frames);
}

#[test]
fn data_wait_for_the_window_of_the_stream() {
    let mut server = answering();
    server.accepts(&window_update(0, 1_000_000));
    assert_eq!(server.send(1, &[0; 70_000], true), 65_535);
    assert_eq!(server.send(1, &[0; 4_465], true), 0);
    assert_eq!(server.send(3, &[0; 10], false), 10);
    server.accepts(&[window_update(3, 1), window_update(0, 1)].concat());
    server.accepts(&window_update(1, 4_464));
    assert_eq!(server.seen(), [Seen::WindowOpened(Some(1))]);
    server.sent();
    assert_eq!(server.send(1, &[0; 4_465], true), 4_464);
    assert_eq!(data_frames(&server.sent()), [(4_464, 0)]);
    server.accepts(&window_update(1, 1));
    assert_eq!(server.send(1, &[0; 1], true), 1);
    assert_eq!(data_frames(&server.sent()), [(1, END_STREAM)]);
}

#[test]
fn data_wait_for_the_window_of_the_connection() {
    let mut server = answering();
    assert_eq!(server.send(1, &[0; 65_535], false), 65_535);
    assert_eq!(server.send(3, &[0; 10], true), 0);
    server.accepts(&window_update(1, 5));
    assert_eq!(server.seen(), []);
    server.accepts(&window_update(0, 7));
    assert_eq!(server.seen(), [Seen::WindowOpened(None)]);
    assert_eq!(server.send(3, &[0; 10], true), 7);
    server.accepts(&window_update(0, 7));
    assert_eq!(server.send(3, &[0; 3], true), 3);
    server.accepts(&window_update(0, 7));
    assert_eq!(server.seen(), [Seen::WindowOpened(None)]);
}

#[test]
fn the_end_needs_no_window() {
    let mut server = answering();
    assert_eq!(server.send(1, &[0; 65_535], false), 65_535);
    server.sent();
    assert_eq!(server.send(1, b"", false), 0);
    assert!(server.sent().is_empty());
    assert_eq!(server.send(1, b"", true), 0);
    assert_eq!(data_frames(&server.sent()), [(0, END_STREAM)]);
    assert!(!server.connection.may_send(id(1)));
}

#[test]
fn the_initial_window_changes_all_streams() {
    let mut server = answering();
    assert_eq!(server.send(1, &[0; 1_000], false), 1_000);
    // The window of the stream is negative afterwards (RFC 9113 §6.9.2).
    server.accepts(&settings(&[(4, 100)]));
    assert_eq!(server.send(1, &[0; 500], false), 0);
    server.accepts(&window_update(1, 900));
    assert_eq!(server.send(1, &[0; 500], false), 0);
    server.seen();
    server.accepts(&settings(&[(4, 101)]));
    assert_eq!(server.seen(), [Seen::WindowOpened(None)]);
    assert_eq!(server.send(1, &[0; 500], false), 1);
    server.accepts(&get(5));
    server.answer(5, false);
    assert_eq!(server.send(5, &[0; 500], false), 101);
}

#[test]
fn a_long_field_block_is_continued() {
    let mut server = Side::server();
    server.accepts(&get(1));
    let write = |_: &mut Encoder, out: &mut Vec<u8>| {
        out.extend((0..40_000_u32).map(|byte| byte as u8));
        true
    };
    server.out.extend(b"\0\0\0\x04\x01\0\0\0\0");
    assert!(server.connection.send_head(id(1), &mut server.out, write));
    let sent = server.sent();
    let frames: Vec<_> = sent[1..]
        .iter()
        .map(|sent| (sent.kind, sent.flags, sent.payload.len()))
        .collect();
    let expected = [
        (HEADERS, END_STREAM, 16_384),
        (CONTINUATION, 0, 16_384),
        (CONTINUATION, END_HEADERS, 7_232),
    ];
    assert_eq!(frames, expected);
    let block: Vec<u8> = sent[1..]
        .iter()
        .flat_map(|sent| sent.payload.clone())
        .collect();
    assert!(block.iter().zip(0..40_000_u32).all(|(a, b)| *a == b as u8));
}

#[test]
fn a_head_that_cannot_be_sent_is_not_encoded() {
    let mut server = Side::server();
    server.accepts(&[get(1), reset(1, 8)].concat());
    let write = |_: &mut Encoder, _: &mut Vec<u8>| panic!("encoded");
    assert!(!server.connection.send_head(id(1), &mut server.out, write));
    assert!(!server.connection.send_head(id(3), &mut server.out, write));
    assert!(server.sent().is_empty());
}

#[test]
fn a_frame_of_data_can_be_sent_without_a_copy() {
    let mut server = answering();
    let part = server
        .connection
        .data_header(id(1), 20_000, true)
        .expect("room");
    assert_eq!(
        (part.length, part.header),
        (16_384, *b"\0\x40\0\0\0\0\0\0\x01")
    );
    let part = server
        .connection
        .data_header(id(1), 3_616, true)
        .expect("room");
    assert_eq!(
        (part.length, part.header),
        (3_616, *b"\0\x0e\x20\0\x01\0\0\0\x01")
    );
    assert_eq!(server.connection.data_header(id(1), 1, true), None);
}

#[test]
fn the_room_is_that_of_both_windows() {
    let mut server = answering();
    assert_eq!(server.connection.room(id(1)), 65_535);
    server.accepts(&window_update(1, 10));
    assert_eq!(server.connection.room(id(1)), 65_535);
    server.accepts(&window_update(0, 100));
    assert_eq!(server.connection.room(id(1)), 65_545);
    assert_eq!(server.send(1, b"end", true), 3);
    assert_eq!(server.connection.room(id(1)), 0);
}

#[test]
fn a_connection_serves_after_it_rested() {
    let mut server = Side::server();
    for stream in [1, 3] {
        server.accepts(&get(stream));
        server.connection.rest();
        assert!(server.answer(stream, true));
        server.finish(stream);
        server.connection.rest();
    }
    assert_eq!(
        server.seen(),
        [Seen::Request(1, true), Seen::Request(3, true)]
    );
}
