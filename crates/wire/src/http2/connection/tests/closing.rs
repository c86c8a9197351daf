//! The end of a connection (RFC 9113 §5.4.1, §6.8).

use super::*;

/// Returns the last streams of the GOAWAY frames among these.
fn go_aways(sent: &[Sent]) -> Vec<u32> {
    let frames = sent.iter().filter(|sent| sent.kind == GOAWAY);
    let last = frames.map(|sent| {
        assert_eq!(sent.payload[4..8], [0; 4], "NO_ERROR");
        u32::from_be_bytes(*sent.payload.first_chunk().expect("8 bytes"))
    });
    last.collect()
}

#[test]
fn a_connection_closes_in_two_steps() {
    let mut server = Side::server();
    server.accepts(&get(1));
    server.connection.close_gracefully(&mut server.out);
    let sent = server.sent();
    assert_eq!(go_aways(&sent), [0x7fff_ffff]);
    let ping = sent.last().expect("a PING");
    assert_eq!((ping.kind, ping.flags), (PING, 0));
    // Sent before the client knew: still served.
    server.accepts(&get(3));
    server.accepts(&frame(PING, ACK, 0, b"of other"));
    assert!(server.sent().is_empty());
    server.accepts(&frame(PING, ACK, 0, &ping.payload));
    assert_eq!(go_aways(&server.sent()), [3]);
    assert_eq!(
        server.seen(),
        [Seen::Request(1, true), Seen::Request(3, true)]
    );
    assert!(!server.connection.is_drained());
    server.serve(1);
    server.serve(3);
    assert!(server.connection.is_drained());
}

#[test]
fn a_second_call_takes_the_second_step() {
    let mut server = Side::server();
    for _ in 0..3 {
        server.connection.close_gracefully(&mut server.out);
    }
    assert_eq!(go_aways(&server.sent()), [0x7fff_ffff, 0]);
    assert!(server.connection.is_drained());
}

#[test]
fn streams_after_the_last_one_are_ignored() {
    let mut server = Side::server();
    server.accepts(&get(1));
    server.connection.close_gracefully(&mut server.out);
    server.connection.close_gracefully(&mut server.out);
    server.sent();
    let mut with_entry = request_block("POST", &[]);
    with_entry.extend(b"\x40\x01a\x01b");
    server.accepts(&frame(HEADERS, END_HEADERS, 3, &with_entry));
    server.accepts(&data(3, &[0; 16_384]).repeat(200));
    server.accepts(&window_update(3, 1));
    server.accepts(&reset(3, 8));
    // The entry of the table is known: it is in the trailers, index 62.
    let sent = server.sent();
    assert!(
        sent.iter()
            .all(|sent| sent.stream == 0 && sent.kind == WINDOW_UPDATE)
    );
    assert_eq!(server.seen(), [Seen::Request(1, true)]);
    server.accepts(&frame(HEADERS, END_STREAM | END_HEADERS, 5, &[0x80 | 62]));
    server.refuses(&data(2, b"x"), ErrorCode::ProtocolError);
}

#[test]
fn after_an_error_nothing_is_read_or_sent() {
    let mut server = Side::server();
    server.accepts(&[get(1), post(3, &[])].concat());
    server
        .connection
        .fail(ErrorCode::InternalError, "broken", &mut server.out);
    let sent = server.sent();
    assert_eq!(sent[0].payload, *b"\0\0\0\x03\0\0\0\x02broken");
    let why = "broken";
    let error = ConnectionError {
        code: ErrorCode::InternalError,
        why,
    };
    assert_eq!(server.connection.failed(), Some(error));
    assert_eq!(server.receive(&get(5)), Err(error));
    assert_eq!(server.connection.check(0, &mut server.out), Err(error));
    assert!(!server.answer(1, true));
    assert_eq!(server.send(1, b"x", true), 0);
    server
        .connection
        .reset(id(1), ErrorCode::Cancel, &mut server.out);
    server.connection.close_gracefully(&mut server.out);
    server
        .connection
        .fail(ErrorCode::Cancel, "again", &mut server.out);
    server.finish(3);
    assert!(server.sent().is_empty());
}
