//! SETTINGS, PING, WINDOW_UPDATE, RST_STREAM and GOAWAY (RFC 9113 §6.4 to §6.9).

use super::*;

#[test]
fn settings_are_acknowledged_and_wrong_ones_refused() {
    let mut server = Side::server();
    let max = 0x7fff_ffff;
    server.accepts(&settings(&[
        (2, 0),
        (2, 1),
        (3, 0),
        (4, max),
        (5, 16_384),
        (5, 0xff_ffff),
    ]));
    server.accepts(&settings(&[(6, 1), (8, 1), (9, 1), (0xffff, u32::MAX)]));
    let sent: Vec<_> = server
        .sent()
        .iter()
        .map(|sent| (sent.kind, sent.flags))
        .collect();
    assert_eq!(sent, [(SETTINGS, ACK), (SETTINGS, ACK)]);
    let wrong = [
        (2, 2, ErrorCode::ProtocolError),
        (4, 0x8000_0000, ErrorCode::FlowControlError),
        (5, 16_383, ErrorCode::ProtocolError),
        (5, 0x0100_0000, ErrorCode::ProtocolError),
        // RFC 9218 §2.1.
        (9, 2, ErrorCode::ProtocolError),
    ];
    for (name, value, code) in wrong {
        Side::server().refuses(&settings(&[(1, 4_096), (name, value)]), code);
    }
}

#[test]
fn a_ping_is_answered_with_its_content() {
    let mut server = Side::server();
    server.accepts(&frame(PING, 0, 0, b"12345678"));
    server.accepts(&frame(PING, ACK, 0, b"no reply"));
    let sent = server.sent();
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].kind, sent[0].flags), (PING, ACK));
    assert_eq!(sent[0].payload, b"12345678");
}

#[test]
fn a_window_update_of_zero_is_an_error() {
    let mut server = Side::server();
    server.accepts(&get(1));
    server.accepts(&window_update(1, 0x8000_0000));
    server.assert_reset(1, ErrorCode::ProtocolError);
    server.refuses(&window_update(0, 0), ErrorCode::ProtocolError);
}

#[test]
fn a_window_is_at_most_2147483647() {
    let most = 0x7fff_ffff - 65_535;
    let mut server = Side::server();
    server.accepts(&[get(1), get(3)].concat());
    server.accepts(&window_update(1, most));
    server.accepts(&window_update(1, 1));
    server.assert_reset(1, ErrorCode::FlowControlError);
    server.accepts(&window_update(0, most));
    server.refuses(&window_update(0, 1), ErrorCode::FlowControlError);

    let mut server = Side::server();
    server.accepts(&[get(1), window_update(1, most)].concat());
    server.refuses(&settings(&[(4, 65_536)]), ErrorCode::FlowControlError);
}

#[test]
fn a_reset_by_the_client_ends_the_stream() {
    let mut server = Side::server();
    server.accepts(&post(1, &[]));
    server.accepts(&reset(1, 0x1234));
    let event = Seen::Reset(1, ErrorCode::Unknown(0x1234));
    assert_eq!(server.seen(), [Seen::Request(1, false), event]);
    assert!(!server.answer(1, true));
    assert!(server.sent().is_empty());
    assert_eq!(server.connection.open_streams(), 1);
    server.finish(1);
    assert!(server.sent().is_empty());
}

#[test]
fn a_priority_of_a_wrong_length_resets_the_stream() {
    let mut server = Side::server();
    server.accepts(&get(1));
    server.accepts(&frame(PRIORITY, 0, 1, &[0; 6]));
    server.assert_reset(1, ErrorCode::FrameSizeError);
    server.accepts(&get(3));
}

#[test]
fn go_away_of_the_client_is_an_event() {
    let mut server = Side::server();
    server.accepts(&get(1));
    server.accepts(&frame(GOAWAY, 0, 0, b"\0\0\0\0\0\0\0\x02why"));
    let event = Seen::GoAway(ErrorCode::InternalError);
    assert_eq!(server.seen(), [Seen::Request(1, true), event]);
    assert!(server.answer(1, true));
}

#[test]
fn every_error_code_keeps_its_number() {
    for code in 0..20 {
        assert_eq!(ErrorCode::of(code).code(), code);
    }
}
