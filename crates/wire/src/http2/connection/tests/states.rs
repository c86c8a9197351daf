//! Frames in each state of a stream (RFC 9113 §5.1).

use super::*;

fn trailers(stream: u32) -> Vec<u8> {
    frame(
        HEADERS,
        END_STREAM | END_HEADERS,
        stream,
        &block(&[("a", "b")]),
    )
}

#[test]
fn idle_streams_take_only_headers_and_priority() {
    for bytes in [
        data(3, b"x"),
        reset(3, 8),
        window_update(3, 1),
        window_update(2, 1),
    ] {
        let mut server = Side::server();
        server.accepts(&get(1));
        server.accepts(&frame(PRIORITY, 0, 7, &[0; 5]));
        server.refuses(&bytes, ErrorCode::ProtocolError);
    }
}

#[test]
fn skipped_streams_are_idle() {
    for bytes in [data(3, b"x"), reset(3, 8), window_update(3, 1), get(3)] {
        let mut server = Side::server();
        server.accepts(&get(1));
        server.accepts(&get(5));
        server.refuses(&bytes, ErrorCode::ProtocolError);
    }
}

#[test]
fn after_its_end_a_request_takes_only_window_updates_and_resets() {
    for bytes in [data(1, b"x"), last_data(1, b""), trailers(1)] {
        let mut server = Side::server();
        server.accepts(&get(1));
        server.answer(1, false);
        server.accepts(&window_update(1, 5));
        server.accepts(&frame(PRIORITY, 0, 1, &[0; 5]));
        server.accepts(&bytes);
        server.assert_reset(1, ErrorCode::StreamClosed);
    }
    let mut server = Side::server();
    server.accepts(&get(1));
    server.accepts(&reset(1, 8));
    assert_eq!(server.seen()[1], Seen::Reset(1, ErrorCode::Cancel));
}

/// Each case is tested before and after the end of the exchange.
fn with_and_without_exchange(test: impl Fn(&mut Side)) -> [Side; 2] {
    [false, true].map(|finished| {
        let mut server = Side::server();
        test(&mut server);
        if finished {
            server.finish(1);
        }
        server.seen();
        server.sent();
        server
    })
}

#[test]
fn frames_after_the_end_of_both_sides_are_an_error_of_the_connection() {
    for bytes in [data(1, b"x"), trailers(1)] {
        let servers = with_and_without_exchange(|server| {
            server.accepts(&get(1));
            server.answer(1, true);
        });
        for mut server in servers {
            server.accepts(&window_update(1, 5));
            server.accepts(&reset(1, 0));
            server.accepts(&frame(PRIORITY, 0, 1, &[0; 5]));
            assert_eq!(server.seen(), []);
            server.refuses(&bytes, ErrorCode::StreamClosed);
        }
    }
}

#[test]
fn frames_after_a_reset_by_the_client_are_an_error_of_the_connection() {
    for bytes in [data(1, b"x"), trailers(1)] {
        let servers = with_and_without_exchange(|server| {
            server.accepts(&post(1, &[]));
            server.accepts(&reset(1, 8));
        });
        for mut server in servers {
            server.refuses(&bytes, ErrorCode::StreamClosed);
        }
    }
}

#[test]
fn frames_after_a_reset_by_us_are_ignored() {
    let servers = with_and_without_exchange(|server| {
        server.accepts(&post(1, &[]));
        server
            .connection
            .reset(id(1), ErrorCode::Cancel, &mut server.out);
    });
    for mut server in servers {
        server.accepts(&data(1, b"x"));
        server.accepts(&window_update(1, 5));
        server.accepts(&window_update(1, 0));
        server.accepts(&trailers(1));
        server.accepts(&reset(1, 8));
        assert_eq!(server.seen(), []);
        assert_eq!(server.sent(), []);
        assert!(!server.answer(1, true));
        assert_eq!(server.send(1, b"x", true), 0);
        assert!(server.out.is_empty());
    }
}

#[test]
fn a_block_of_a_reset_stream_enters_the_table() {
    let mut server = Side::server();
    server.accepts(&post(1, &[]));
    server
        .connection
        .reset(id(1), ErrorCode::Cancel, &mut server.out);
    server.accepts(&frame(
        HEADERS,
        END_STREAM | END_HEADERS,
        1,
        b"\x40\x01a\x01b",
    ));
    let mut next = request_block("GET", &[]);
    next.push(0x80 | 62);
    server.accepts(&frame(HEADERS, END_STREAM | END_HEADERS, 3, &next));
    let text = server.connection.head_text().to_vec();
    assert!(text.ends_with(b"a: b\r\n\r\n"), "{}", text.escape_ascii());
}

#[test]
fn frames_of_streams_that_were_reset_long_ago_are_ignored() {
    let mut server = Side::server();
    for stream in 0..300 {
        server.now_ms += 100;
        server.accepts(&post(2 * stream + 1, &[]));
        server.answer(2 * stream + 1, true);
        server.finish(2 * stream + 1);
    }
    server.accepts(&data(1, b"x"));
    server.accepts(&data(599, b"x"));
    server.accepts(&trailers(3));
}

#[test]
fn an_exchange_that_is_finished_early_is_reset() {
    let mut server = Side::server();
    server.accepts(&[get(1), post(3, &[]), post(5, &[])].concat());
    server.answer(1, false);
    server.finish(1);
    server.finish(3);
    server.answer(5, true);
    server.finish(5);
    let resets = server
        .sent()
        .into_iter()
        .filter(|sent| sent.kind == RST_STREAM);
    let resets: Vec<_> = resets.map(|sent| (sent.stream, sent.payload[3])).collect();
    assert_eq!(resets, [(1, 2), (3, 2), (5, 0)]);
    server.finish(5);
    assert!(server.sent().is_empty());
}

#[test]
fn nothing_is_sent_after_the_end_of_our_side() {
    let mut server = Side::server();
    server.accepts(&post(1, &[]));
    assert!(server.answer(1, true));
    server.sent();
    assert!(!server.answer(1, true));
    assert_eq!(server.send(1, b"x", true), 0);
    assert!(server.sent().is_empty());
    server.accepts(&last_data(1, b"x"));
    assert_eq!(server.seen().last(), Some(&Seen::End(1)));
}
