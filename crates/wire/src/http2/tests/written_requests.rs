//! Heads of requests as field blocks.

use super::responses::decoded;
use super::*;
use crate::http::{Framing, PathEdit, RequestEdit, Scheme};

fn parsed(text: &str) -> RequestHead {
    let mut head = RequestHead::new();
    let parsed = head.parse(text.as_bytes(), &HeadLimits::default());
    assert_eq!(parsed, Parsed::Complete, "{text}");
    head
}

fn block_of(text: &str, edit: &RequestEdit<'_>) -> (Vec<u8>, Framing) {
    let head = parsed(text);
    let (mut block, mut encoder) = (Vec::new(), Encoder::new());
    let framing = write_request(&mut block, &mut encoder, &head, text.as_bytes(), edit);
    (block, framing)
}

fn written(text: &str, edit: &RequestEdit<'_>) -> Vec<String> {
    let (block, _) = block_of(text, edit);
    decoded(&mut Decoder::new(TABLE_BYTES_DEFAULT), &block)
}

fn asked(line: &str, fields: &str) -> Vec<String> {
    let text = format!("{line} HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
    written(&text, &RequestEdit::default())
}

/// RFC 9113 §8.3.1.
#[test]
fn pseudo_fields_come_first() {
    let fields = "User-Agent: a\r\nX-Y:  b \r\nCookie: c=d\r\nContent-Length: 3\r\n";
    assert_eq!(
        asked("POST /a?b=c", fields),
        [
            ":method: POST",
            ":scheme: http",
            ":authority: h",
            ":path: /a?b=c",
            "user-agent: a",
            "x-y: b",
            "cookie: c=d",
            "content-length: 3"
        ]
    );
    let expect = [
        ":method: OPTIONS",
        ":scheme: http",
        ":authority: h",
        ":path: *",
    ];
    assert_eq!(asked("OPTIONS *", ""), expect);
    let expect = [
        ":method: GET",
        ":scheme: http",
        ":authority: o:8",
        ":path: /",
    ];
    let text = "GET http://o:8 HTTP/1.1\r\nHost: o:8\r\n\r\n";
    assert_eq!(written(text, &RequestEdit::default()), expect);
}

/// RFC 9113 §8.2.2.
#[test]
fn fields_of_the_connection_are_left_out() {
    let fields = "Connection: keep-alive, X-Private, Upgrade\r\nKeep-Alive: timeout=5\r\n\
        Proxy-Connection: close\r\nUpgrade: websocket\r\nTE: gzip\r\nX-Private: 1\r\n\
        Transfer-Encoding: chunked\r\nHTTP2-Settings: x\r\nX-Public: 1\r\nTrailer: X-Sum\r\n";
    let all = asked("POST /", fields);
    assert_eq!(all[4..], ["x-public: 1", "trailer: X-Sum"]);
}

/// RFC 9113 §8.2.2: TE may have the value `trailers`.
#[test]
fn trailers_are_asked_for_where_the_client_did() {
    let all = asked("POST /", "Connection: te\r\nTE: gzip, trailers\r\n");
    assert_eq!(all[4..], ["te: trailers"]);
}

#[test]
fn the_framing_decides_whether_the_head_ends_the_stream() {
    for (fields, framing) in [
        ("", Framing::None),
        ("Content-Length: 0\r\n", Framing::Length(0)),
        ("Transfer-Encoding: chunked\r\n", Framing::Chunked),
    ] {
        let text = format!("POST / HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        assert_eq!(block_of(&text, &RequestEdit::default()).1, framing);
    }
    let edit = RequestEdit {
        framing: Some(Framing::Length(7)),
        ..RequestEdit::default()
    };
    let text = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(block_of(text, &edit).1, Framing::Length(7));
    assert_eq!(written(text, &edit)[4..], ["content-length: 7"]);
}

#[test]
fn edits_are_those_of_http_1_1() {
    let edit = RequestEdit {
        scheme: Scheme::Https,
        path: PathEdit::Prefix {
            strip: 4,
            put: b"/v2",
        },
        host: Some(b"other"),
        remove: &[b"x-removed"],
        set: &[(b"X-Set", b"new"), (b"x bad", b"1")],
        forwarded: &[(b"X-Forwarded-For", b"10.0.0.1")],
        without_expect: true,
        ..RequestEdit::default()
    };
    let text = "POST /api/a?b HTTP/1.1\r\nHost: h\r\nX_Removed: 1\r\nx-removed: 1\r\n\
        x-set: old\r\nX-Forwarded-For: 1.1.1.1\r\nExpect: 100-continue\r\nX-Kept: 1\r\n\r\n";
    let expect = [
        ":method: POST",
        ":scheme: https",
        ":authority: other",
        ":path: /v2/a?b",
        "x-kept: 1",
        "x-set: new",
        "x-forwarded-for: 10.0.0.1",
    ];
    assert_eq!(written(text, &edit), expect);
}

/// RFC 7541 §6.2.3, §7.1.3: the pattern 0001 of a literal that is never indexed.
#[test]
fn secrets_are_never_indexed() {
    for (name, index) in [
        ("Authorization", 23),
        ("Cookie", 32),
        ("Proxy-Authorization", 49),
    ] {
        let text = format!("GET / HTTP/1.1\r\nHost: h\r\n{name}: 0\r\n\r\n");
        let (block, _) = block_of(&text, &RequestEdit::default());
        assert!(block.ends_with(&[0x1f, index - 15, 1, b'0']), "{block:x?}");
    }
}

/// Our server reads the request that our client writes.
#[test]
fn a_written_request_is_read_as_the_same() {
    let text = "POST /a?b HTTP/1.1\r\nHost: h\r\ncontent-length: 3\r\nx: y\r\n\r\n";
    let (block, _) = block_of(text, &RequestEdit::default());
    let mut request = RequestText::new();
    request.begin(&HeadListLimits::default());
    let decoded = Decoder::new(TABLE_BYTES_DEFAULT).decode(&block, &mut request);
    decoded.expect("a valid block");
    request.finish(false).expect("a valid request");
    let expect = "POST /a?b HTTP/1.1\r\nHost: h\r\nx: y\r\ncontent-length: 3\r\n\r\n";
    assert_eq!(request.text(), expect.as_bytes());
}
