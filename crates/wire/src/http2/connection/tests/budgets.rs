//! Floods (RFC 9113 §10.5): each kind of work has its budget, and useful work is free.

use super::*;

/// Repeats bytes until the connection fails. Returns how often they were accepted.
fn flood(server: &mut Side, mut bytes: impl FnMut(u32) -> Vec<u8>, why: &str) -> u32 {
    for number in 0..100_000 {
        if let Err(error) = server.receive(&bytes(number)) {
            assert_eq!(error.code, ErrorCode::EnhanceYourCalm);
            assert!(error.why.contains(why), "{}", error.why);
            return number;
        }
    }
    panic!("a flood was accepted");
}

/// Asserts that 10 a second are accepted, for longer than a burst lasts.
fn assert_slow_is_accepted(server: &mut Side, mut bytes: impl FnMut(u32) -> Vec<u8>) {
    for number in 0..500 {
        server.now_ms += 100;
        server.accepts(&bytes(number));
    }
}

/// Opens a stream and resets it.
fn rapid_reset(number: u32) -> Vec<u8> {
    [get(2 * number + 1), reset(2 * number + 1, 8)].concat()
}

#[test]
fn resets_are_limited() {
    let mut server = Side::server();
    let mut next = 0;
    assert_eq!(
        flood(&mut server, rapid_reset, "too many reset streams"),
        100
    );
    let mut server = Side::server();
    assert_slow_is_accepted(&mut server, |number| {
        // Each exchange ends soon: else it would count as concurrent.
        let bytes = rapid_reset(number);
        next = number;
        bytes
    });
    assert_eq!(next, 499);
}

#[test]
fn a_reset_stream_counts_until_its_exchange_is_finished() {
    let limits = Limits {
        streams_max: 10,
        ..Limits::default()
    };
    let mut server = Side::server_with(limits);
    server.accepts(HELLO);
    server.accepts(&frame(SETTINGS, ACK, 0, &[]));
    for number in 0..10 {
        server.accepts(&rapid_reset(number));
    }
    server.sent();
    server.seen();
    server.accepts(&get(21));
    assert_eq!(server.seen(), []);
    let sent = server.sent();
    assert_eq!(
        (sent[0].kind, sent[0].stream, sent[0].payload[3]),
        (RST_STREAM, 21, 7)
    );
    server.finish(1);
    server.accepts(&get(23));
    assert_eq!(server.seen(), [Seen::Request(23, true)]);
    assert_eq!(server.connection.open_streams(), 10);
}

#[test]
fn resets_that_the_client_provokes_are_charged_to_it() {
    type Bytes = fn(u32) -> Vec<u8>;
    let floods: [(&str, Bytes); 7] = [
        ("WINDOW_UPDATE of 0", |stream| {
            [get(stream), window_update(stream, 0)].concat()
        }),
        ("a window over 2^31-1", |stream| {
            [get(stream), window_update(stream, 0x7fff_ffff)].concat()
        }),
        ("PRIORITY", |stream| {
            [get(stream), frame(PRIORITY, 0, stream, &[0])].concat()
        }),
        ("DATA after the end", |stream| {
            [get(stream), data(stream, b"x")].concat()
        }),
        ("HEADERS after the end", |stream| {
            [get(stream), get(stream)].concat()
        }),
        ("Content-Length", |stream| {
            [
                post(stream, &[("content-length", "1")]),
                last_data(stream, b""),
            ]
            .concat()
        }),
        ("a malformed head", |stream| {
            let block = request_block("GET", &[("connection", "close")]);
            frame(HEADERS, END_STREAM | END_HEADERS, stream, &block)
        }),
    ];
    for (name, bytes) in floods {
        println!("{name}");
        let mut server = Side::server();
        let flooded = |number| bytes(2 * number + 1);
        let mut accepted = 0;
        let error = loop {
            match server.receive(&flooded(accepted)) {
                Ok(()) => server.finish(2 * accepted + 1),
                Err(error) => break error,
            }
            accepted += 1;
        };
        assert_eq!(error.code, ErrorCode::EnhanceYourCalm, "{}", error.why);
        assert!((98..=100).contains(&accepted), "{accepted}");
    }
}

#[test]
fn resets_by_the_caller_are_charged_except_no_error() {
    let mut server = Side::server();
    for number in 0..300 {
        server.accepts(&post(2 * number + 1, &[]));
        server.serve(2 * number + 1);
    }
    assert_eq!(server.connection.failed(), None);
    for number in 300..400 {
        server.accepts(&get(2 * number + 1));
        server.finish(2 * number + 1);
    }
    assert_eq!(server.connection.failed(), None);
    server.accepts(&get(801));
    server
        .connection
        .reset(id(801), ErrorCode::Cancel, &mut server.out);
    assert!(server.connection.failed().is_some());
    assert_eq!(server.sent().last().map(|sent| sent.kind), Some(GOAWAY));
}

#[test]
fn concurrent_streams_are_limited() {
    let mut server = Side::server();
    let all: Vec<u8> = (0..101).flat_map(|number| get(2 * number + 1)).collect();
    server.accepts(&all);
    assert_eq!(server.seen().len(), 100);
    let sent = server.sent();
    assert_eq!(
        (sent[0].kind, sent[0].stream, sent[0].payload[3]),
        (RST_STREAM, 201, 7)
    );
    server.accepts(&get(203));
    server.serve(1);
    server.accepts(&get(205));
    assert_eq!(server.seen(), [Seen::Request(205, true)]);
    let refused = flood(
        &mut server,
        |number| get(2 * number + 207),
        "too many reset streams",
    );
    assert_eq!(refused, 98);
}

#[test]
fn a_block_of_a_refused_stream_enters_the_table() {
    let limits = Limits {
        streams_max: 1,
        ..Limits::default()
    };
    let mut server = Side::server_with(limits);
    server.accepts(HELLO);
    server.accepts(&get(1));
    let mut with_entry = request_block("GET", &[]);
    with_entry.extend(b"\x40\x01a\x01b");
    server.accepts(&frame(HEADERS, END_STREAM | END_HEADERS, 3, &with_entry));
    server.serve(1);
    let mut next = request_block("GET", &[]);
    next.push(0x80 | 62);
    server.accepts(&frame(HEADERS, END_STREAM | END_HEADERS, 5, &next));
    let text = server.connection.head_text().to_vec();
    assert!(text.ends_with(b"a: b\r\n\r\n"), "{}", text.escape_ascii());
}

#[test]
fn a_client_that_does_not_know_the_limit_may_exceed_it_by_a_thousand() {
    let mut server = Side::server_with(Limits::default());
    server.accepts(HELLO);
    let accepted = flood(
        &mut server,
        |number| get(2 * number + 1),
        "before the acknowledgement",
    );
    assert_eq!(accepted, 1_100);
}

#[test]
fn frames_without_content_are_limited() {
    let frames = [
        ("PING", frame(PING, 0, 0, &[0; 8])),
        ("acknowledged PING", frame(PING, ACK, 0, &[0; 8])),
        ("SETTINGS", settings(&[])),
        ("acknowledged SETTINGS", frame(SETTINGS, ACK, 0, &[])),
        ("PRIORITY", frame(PRIORITY, 0, 5, &[0; 5])),
        ("unknown", frame(0x70, 0, 5, &[0; 5])),
        ("RST_STREAM of an ended stream", reset(1, 0)),
        ("WINDOW_UPDATE of an ended stream", window_update(1, 1)),
        ("GOAWAY", frame(GOAWAY, 0, 0, &[0; 8])),
    ];
    for (name, bytes) in frames {
        println!("{name}");
        let mut server = Side::server();
        server.accepts(&get(1));
        server.serve(1);
        let accepted = flood(&mut server, |_| bytes.clone(), "too many");
        assert!((99..=102).contains(&accepted), "{accepted}");
        let mut server = Side::server();
        server.accepts(&get(1));
        server.serve(1);
        assert_slow_is_accepted(&mut server, |_| bytes.clone());
    }
}

#[test]
fn a_frame_of_many_settings_counts_as_several() {
    let mut server = Side::server();
    let many = settings(&[(4, 1); 160]);
    let accepted = flood(&mut server, |_| many.clone(), "SETTINGS");
    assert_eq!(accepted, 8);
}

#[test]
fn empty_data_are_limited() {
    let mut server = Side::server();
    server.accepts(&post(1, &[]));
    let accepted = flood(&mut server, |_| data(1, b""), "empty DATA");
    assert_eq!(accepted, 100);
    let mut server = Side::server();
    server.accepts(&post(1, &[]));
    let padded = frame(DATA, PADDED, 1, b"\x03\0\0\0");
    let accepted = flood(&mut server, |_| padded.clone(), "empty DATA");
    assert_eq!(accepted, 100);
    let mut server = Side::server();
    server.accepts(&post(1, &[]));
    assert_slow_is_accepted(&mut server, |_| data(1, b""));
    // Messages of a stream may be short.
    server.accepts(&data(1, b"x").repeat(10_000));
}

#[test]
fn window_updates_are_limited_to_the_data_sent() {
    let mut server = Side::server();
    server.accepts(&get(1));
    server.answer(1, false);
    let accepted = flood(&mut server, |_| window_update(1, 1), "WINDOW_UPDATE");
    assert_eq!(accepted, 102);

    let mut server = Side::server();
    server.accepts(&get(1));
    server.answer(1, false);
    for _ in 0..1_000 {
        assert_eq!(server.send(1, b"message", false), 7);
    }
    for _ in 0..1_000 {
        server.accepts(&[window_update(1, 7), window_update(0, 7)].concat());
    }
}

#[test]
fn a_window_that_opens_byte_by_byte_is_a_flood() {
    let mut server = Side::server();
    server.accepts(&settings(&[(4, 0)]));
    server.accepts(&get(1));
    server.answer(1, false);
    assert_eq!(server.send(1, b"a long answer", true), 0);
    let mut accepted = 0;
    while server.receive(&window_update(1, 1)).is_ok() {
        server.send(1, &[0; 100_000], true);
        accepted += 1;
    }
    assert_eq!(accepted, 102);
}

/// As the clients of gRPC's C core send them.
#[test]
fn window_updates_before_messages_are_free() {
    let mut server = Side::server();
    for number in 0..50 {
        let stream = 2 * number + 1;
        server.accepts(&[get(stream), window_update(stream, 5).repeat(2)].concat());
    }
    for number in 0..50 {
        let stream = 2 * number + 1;
        server.answer(stream, false);
        for _ in 0..100 {
            assert_eq!(server.send(stream, b"message", false), 7);
            let updates = [window_update(stream, 5), window_update(0, 5)].concat();
            server.accepts(&updates.repeat(2));
        }
    }
}

#[test]
fn pings_for_data_are_free() {
    let mut server = Side::server();
    server.accepts(&get(1));
    server.answer(1, false);
    for _ in 0..1_000 {
        assert_eq!(server.send(1, b"message", false), 7);
        server.accepts(&frame(PING, 0, 0, &[0; 8]));
    }
}

#[test]
fn a_field_block_must_be_complete_in_time() {
    let mut server = Side::server();
    assert_eq!(server.connection.due_ms(), None);
    server.accepts(&frame(HEADERS, 0, 1, &[]));
    assert_eq!(server.connection.due_ms(), Some(11_000));
    assert_eq!(server.connection.check(10_999, &mut server.out), Ok(None));
    let error = server
        .connection
        .check(11_000, &mut server.out)
        .expect_err("too late");
    assert_eq!(error.code, ErrorCode::EnhanceYourCalm);
    assert_eq!(server.sent().last().map(|sent| sent.kind), Some(GOAWAY));

    // Whatever arrives meanwhile.
    let mut server = Side::server();
    server.accepts(&get(1)[..15]);
    server.now_ms += 10_000;
    let error = server.receive(&get(1)[15..16]).expect_err("too late");
    assert!(error.why.contains("took too long"));
}

/// Checks until there is no event.
fn check(server: &mut Side, now_ms: u64) -> Result<(), ConnectionError> {
    while let Some(event) = server.connection.check(now_ms, &mut server.out)? {
        server.note(event, &[]);
    }
    Ok(())
}

#[test]
fn data_that_wait_too_long_for_a_stream_reset_it() {
    let mut server = Side::server();
    server.accepts(&settings(&[(4, 0)]));
    server.accepts(&[get(1), get(3)].concat());
    server.answer(1, false);
    assert_eq!(server.send(1, b"x", true), 0);
    // The call that writes has no clock: the time begins with the next check.
    assert_eq!(check(&mut server, 50_000), Ok(()));
    assert_eq!(server.connection.due_ms(), Some(80_000));
    assert_eq!(check(&mut server, 79_999), Ok(()));
    server.seen();
    assert_eq!(check(&mut server, 80_000), Ok(()));
    server.assert_reset(1, ErrorCode::EnhanceYourCalm);
    assert_eq!(server.connection.due_ms(), None);
    assert!(server.connection.may_send(id(3)));
}

#[test]
fn data_that_wait_too_long_for_the_connection_end_it() {
    let mut server = Side::server();
    server.accepts(&[get(1), get(3)].concat());
    server.answer(1, false);
    server.answer(3, false);
    assert_eq!(server.send(1, &[0; 65_535], true), 65_535);
    assert_eq!(server.send(3, b"x", true), 0);
    assert_eq!(check(&mut server, 0), Ok(()));
    let error = check(&mut server, 30_000).expect_err("too long");
    assert_eq!(error.code, ErrorCode::EnhanceYourCalm);
}

#[test]
fn a_client_that_takes_data_slowly_is_served() {
    let mut server = Side::server();
    server.accepts(&settings(&[(4, 0)]));
    server.accepts(&get(1));
    server.answer(1, false);
    assert_eq!(server.send(1, b"xxxxxxxxxx", true), 0);
    for number in 0..9 {
        assert_eq!(check(&mut server, number * 29_000), Ok(()));
        server.accepts(&window_update(1, 1));
        assert_eq!(server.send(1, b"xx", true), 1);
    }
    server.accepts(&window_update(1, 5));
    assert_eq!(server.send(1, b"xx", true), 2);
    assert_eq!(check(&mut server, 10_000_000), Ok(()));
}

#[test]
fn answers_pay_for_half_as_many_resets() {
    let mut server = Side::server();
    let mut next = (1..).step_by(2);
    let mut stream = || next.next().expect("a number");
    for _ in 0..300 {
        for _ in 0..2 {
            let served = stream();
            server.accepts(&get(served));
            server.serve(served);
        }
        let cancelled = stream();
        server.accepts(&[get(cancelled), reset(cancelled, 8)].concat());
        server.finish(cancelled);
    }
    let rest = flood(
        &mut server,
        |number| rapid_reset(number + 1_000),
        "reset streams",
    );
    assert_eq!(rest, 99, "only the last one is not paid for");
}
