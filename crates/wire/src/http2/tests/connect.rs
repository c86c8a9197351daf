//! Extended CONNECT (RFC 8441) as the change of the protocol of HTTP/1.1, and back.

use super::responses::decoded;
use super::*;
use crate::http::{Framing, RequestEdit, ResponseEdit, WebSocketKey};

/// An opening request of a WebSocket.
const CONNECT: [(&str, &str); 6] = [
    (":method", "CONNECT"),
    (":protocol", "websocket"),
    (":scheme", "https"),
    (":path", "/chat?room=1"),
    (":authority", "h"),
    ("sec-websocket-version", "13"),
];

/// A key that is not random.
const EMPTY_KEY: &str = "AAAAAAAAAAAAAAAAAAAAAA==";

#[test]
fn an_extended_connect_becomes_an_upgrade() {
    let more = [("sec-websocket-protocol", "chat"), ("cookie", "a=b")];
    let expect = format!(
        "GET /chat?room=1 HTTP/1.1\r\nHost: h\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-key: {EMPTY_KEY}\r\nsec-websocket-version: 13\r\n\
         sec-websocket-protocol: chat\r\ncookie: a=b\r\n\r\n"
    );
    for end in [false, true] {
        assert_eq!(text_of(&with(&CONNECT, &more), end), Ok(expect.clone()));
    }
}

/// HTTP/1.1 reads the text as a valid opening request.
#[test]
fn the_text_opens_a_websocket() {
    let mut request = RequestText::new();
    request.begin(&HeadListLimits::default());
    write_to(&mut request, &CONNECT);
    let facts = request.finish(false).expect("a valid request");
    assert!(facts.is_tunnel);
    assert_eq!(facts.content_length, None);
    let mut head = RequestHead::new();
    let parsed = head.parse(request.text(), &HeadLimits::default());
    assert_eq!(parsed, Parsed::Complete);
    assert_eq!(head.framing(), Framing::None);
    assert_eq!(head.upgrade(), WebSocketKey::read(EMPTY_KEY.as_bytes()));
}

/// RFC 8441 §5: the key is not used.
#[test]
fn the_key_of_a_client_is_left_out() {
    let own = with(
        &CONNECT,
        &[("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")],
    );
    assert_eq!(text_of(&own, false), text_of(&CONNECT, false));
    let mut get = with(&GET, &[("sec-websocket-key", "x")]);
    assert!(lines_of(&get, true).contains(&"sec-websocket-key: x".to_owned()));
    get.pop();
    assert!(!request_of(&get).is_tunnel);
}

fn request_of(list: &[(&str, &str)]) -> RequestFacts {
    let mut request = RequestText::new();
    request.begin(&HeadListLimits::default());
    write_to(&mut request, list);
    request.finish(true).expect("a valid request")
}

#[test]
fn another_protocol_is_named_as_it_is() {
    let mut other = CONNECT;
    other[1].1 = "connect-udp";
    let lines = lines_of(&other, false);
    assert_eq!(lines[1..3], ["connection: upgrade", "upgrade: connect-udp"]);
    assert!(
        !lines
            .iter()
            .any(|line| line.starts_with("sec-websocket-key"))
    );
}

/// The fields that the text adds count towards the limit.
#[test]
fn the_fields_of_the_upgrade_count() {
    for (fields_max, fits) in [(5, true), (4, false), (1, false)] {
        let limits = HeadListLimits {
            fields_max,
            ..HeadListLimits::default()
        };
        let mut request = RequestText::new();
        request.begin(&limits);
        write_to(&mut request, &CONNECT);
        assert_eq!(request.finish(false).is_ok(), fits, "{fields_max}");
    }
}

fn written(text: &str, upgrade: bool) -> Vec<String> {
    let mut head = RequestHead::new();
    let parsed = head.parse(text.as_bytes(), &HeadLimits::default());
    assert_eq!(parsed, Parsed::Complete, "{text}");
    let edit = RequestEdit {
        upgrade,
        ..RequestEdit::default()
    };
    let (mut block, mut encoder) = (Vec::new(), hpack::Encoder::new());
    let framing = write_request(&mut block, &mut encoder, &head, text.as_bytes(), &edit);
    assert_eq!(framing, Framing::None);
    decoded(&mut Decoder::new(TABLE_BYTES_DEFAULT), &block)
}

#[test]
fn an_upgrade_becomes_an_extended_connect() {
    let upgrade = format!(
        "GET /chat HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Key: {EMPTY_KEY}\r\nSec-WebSocket-Version: 13\r\nOrigin: o\r\n\r\n"
    );
    let expect = [
        ":method: CONNECT",
        ":protocol: websocket",
        ":scheme: http",
        ":authority: h",
        ":path: /chat",
        "sec-websocket-version: 13",
        "origin: o",
    ];
    assert_eq!(written(&upgrade, true), expect);
    assert_eq!(written(&upgrade, false)[0], ":method: GET");
    let plain = "GET / HTTP/1.1\r\nHost: h\r\nSec-WebSocket-Key: x\r\n\r\n";
    let lines = written(plain, true);
    assert_eq!(lines[0], ":method: GET");
    assert_eq!(lines.last().expect("a field"), "sec-websocket-key: x");
}

/// RFC 8441 §5: 200 in place of 101.
#[test]
fn a_101_becomes_a_200() {
    let text = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade, X-Own\r\nX-Own: 1\r\n\
        Upgrade: websocket\r\nSec-WebSocket-Accept: a\r\nSec-WebSocket-Protocol: chat\r\n\
        Content-Length: 5\r\n\r\n";
    let mut head = ResponseHead::new();
    let parsed = head.parse(text.as_bytes(), &HeadLimits::default(), Method::Get);
    assert_eq!(parsed, Parsed::Complete);
    let edit = ResponseEdit {
        remove: &[b"Sec-WebSocket-Accept"],
        upgrade: true,
        ..ResponseEdit::default()
    };
    let (mut block, mut encoder) = (Vec::new(), hpack::Encoder::new());
    write_response(&mut block, &mut encoder, &head, text.as_bytes(), &edit);
    let lines = decoded(&mut Decoder::new(TABLE_BYTES_DEFAULT), &block);
    assert_eq!(lines, [":status: 200", "sec-websocket-protocol: chat"]);
}
