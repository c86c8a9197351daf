//! Changes of the protocol (RFC 9110 §7.8, RFC 6455 §4).

use super::*;

const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

fn opening(method: &str, version: &str, replace: (&str, &str)) -> Vec<u8> {
    let fields = format!(
        "Host: h\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n\
         Sec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Version: 13\r\n"
    );
    assert!(fields.contains(replace.0));
    let fields = fields.replace(replace.0, replace.1);
    request_text(&format!("{method} / HTTP/{version}"), &fields)
}

#[test]
fn a_full_opening_request_is_sent_on_as_one_if_the_edit_says_so() {
    let bytes = opening("GET", "1.1", ("websocket", "WebSocket"));
    let head = complete_request(&bytes);
    assert_eq!(head.upgrade(), WebSocketKey::read(KEY.as_bytes()));
    assert!(head.upgrade().is_some());
    let edit = RequestEdit {
        upgrade: true,
        ..RequestEdit::default()
    };
    let kept = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n";
    let expect = format!(
        "GET / HTTP/1.1\r\nHost: h\r\n{kept}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    );
    assert_eq!(sent_on(&bytes, &edit), expect);
    let plain = sent_on(&bytes, &RequestEdit::default());
    assert_eq!(plain, format!("GET / HTTP/1.1\r\nHost: h\r\n{kept}\r\n"));
}

#[test]
fn any_other_wish_for_a_protocol_is_removed() {
    let same = ("Host: h", "Host: h");
    let twice = format!("Key: {KEY}\r\nSec-WebSocket-Key: {KEY}");
    let key = format!("Key: {KEY}");
    for (method, version, replace) in [
        ("POST", "1.1", same),
        ("get", "1.1", same),
        ("GET", "1.0", same),
        ("GET", "1.1", ("Host: h", "Host: h\r\nContent-Length: 3")),
        (
            "GET",
            "1.1",
            ("Host: h", "Host: h\r\nTransfer-Encoding: chunked"),
        ),
        ("GET", "1.1", ("keep-alive, Upgrade", "keep-alive")),
        ("GET", "1.1", ("Upgrade: websocket\r\n", "")),
        ("GET", "1.1", ("websocket", "h2c")),
        ("GET", "1.1", ("websocket", "websocket, h2c")),
        ("GET", "1.1", ("websocket", "h2c, websocket")),
        ("GET", "1.1", ("websocket", "websocket/13")),
        (
            "GET",
            "1.1",
            ("websocket", "websocket\r\nUpgrade: websocket"),
        ),
        ("GET", "1.1", ("Version: 13", "Version: 8")),
        (
            "GET",
            "1.1",
            ("Version: 13", "Version: 13\r\nSec-WebSocket-Version: 13"),
        ),
        ("GET", "1.1", ("Version: 13", "Other: 13")),
        ("GET", "1.1", ("ZQ==", "ZQ=")),
        ("GET", "1.1", ("ZQ==", "ZQA=")),
        ("GET", "1.1", ("ZQ==", "ZR==")),
        ("GET", "1.1", ("dGhl", "dG!l")),
        ("GET", "1.1", (&key, &twice)),
        ("GET", "1.1", (&key, "Other: x")),
    ] {
        let bytes = opening(method, version, replace);
        assert_eq!(
            complete_request(&bytes).upgrade(),
            None,
            "{method} {version} {replace:?}"
        );
        let edit = RequestEdit {
            upgrade: true,
            ..RequestEdit::default()
        };
        let text = sent_on(&bytes, &edit);
        assert!(!text.contains("Upgrade"), "{text}");
    }
}

#[test]
fn keys_and_their_answers_are_those_of_the_standard() {
    // RFC 6455 §1.3.
    let key = WebSocketKey::read(KEY.as_bytes()).unwrap();
    assert_eq!(&key.accept(), b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    let made = WebSocketKey::of_random(*b"the sample nonce");
    assert_eq!(made, key);
    assert_eq!(made.text(), KEY.as_bytes());
}

#[test]
fn a_tunnel_opens_only_after_the_proof_of_the_server() {
    let key = WebSocketKey::read(KEY.as_bytes()).unwrap();
    let accept = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
    let valid = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\n\r\n"
    );
    let accepts =
        |text: &str| complete_response(text.as_bytes()).accepts_websocket(text.as_bytes(), &key);
    assert!(accepts(&valid));
    for (from, to) in [
        ("101", "200"),
        ("101", "100"),
        ("HTTP/1.1", "HTTP/1.0"),
        ("WebSocket\r\n", "h2c\r\n"),
        ("WebSocket\r\n", "websocket\r\nUpgrade: websocket\r\n"),
        ("Upgrade: WebSocket\r\n", ""),
        ("Connection: upgrade", "Connection: close"),
        ("s3pP", "S3pP"),
        ("s3pP", "x, s3pP"),
        ("Sec-WebSocket-Accept", "X"),
    ] {
        assert!(!accepts(&valid.replacen(from, to, 1)), "{from} {to}");
    }
    let repeated = valid.replace(
        "\r\n\r\n",
        &format!("\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"),
    );
    assert!(!accepts(&repeated));
    let edit = ResponseEdit {
        upgrade: true,
        ..ResponseEdit::default()
    };
    let expect = format!(
        "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: {accept}\r\n\
         Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    );
    assert_eq!(answered(valid.as_bytes(), &edit), expect);
}
