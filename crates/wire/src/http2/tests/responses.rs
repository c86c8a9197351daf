//! Heads of responses as field blocks.

use super::*;
use crate::http::{Answer, BodyEdit, Framing, Persistence, ResponseEdit, Version};

/// Sink that writes each field as a line.
struct Lines(Vec<String>);

impl FieldSink for Lines {
    fn field(&mut self, name: &[u8], value: &[u8]) -> bool {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        self.0.push(format!("{}: {}", text(name), text(value)));
        true
    }
}

/// Returns the fields of a block.
pub(super) fn decoded(decoder: &mut Decoder, block: &[u8]) -> Vec<String> {
    let mut lines = Lines(Vec::new());
    decoder.decode(block, &mut lines).expect("a valid block");
    lines.0
}

fn parsed(text: &str, method: Method) -> ResponseHead {
    let mut head = ResponseHead::new();
    let parsed = head.parse(text.as_bytes(), &HeadLimits::default(), method);
    assert_eq!(parsed, Parsed::Complete, "{text}");
    head
}

fn written(text: &str, method: Method, edit: &ResponseEdit<'_>) -> (Vec<String>, Framing) {
    let head = parsed(text, method);
    let mut block = Vec::new();
    let mut encoder = Encoder::new();
    let framing = write_response(&mut block, &mut encoder, &head, text.as_bytes(), edit);
    let lines = decoded(&mut Decoder::new(TABLE_BYTES_DEFAULT), &block);
    (lines, framing)
}

fn answered(fields: &str) -> Vec<String> {
    let text = format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 5\r\n\r\n");
    written(&text, Method::Get, &ResponseEdit::default()).0
}

#[test]
fn a_response_becomes_a_list_in_lower_case() {
    assert_eq!(
        answered("Server: a\r\nDATE: b\r\nX-Y:  c  \r\nSet-Cookie: d\r\nSet-Cookie: e\r\n"),
        [
            ":status: 200",
            "server: a",
            "date: b",
            "x-y: c",
            "set-cookie: d",
            "set-cookie: e",
            "content-length: 5"
        ]
    );
}

/// RFC 9113 §8.2.2.
#[test]
fn fields_of_the_connection_are_left_out() {
    let fields = "Connection: keep-alive, X-Private\r\nKeep-Alive: timeout=5\r\n\
        Proxy-Connection: close\r\nUpgrade: h2c\r\nTE: gzip\r\nX-Private: 1\r\nX-Public: 1\r\n\
        HTTP2-Settings: x\r\nTrailer: X-Sum\r\n";
    let expect = [":status: 200", "x-public: 1", "content-length: 5"];
    assert_eq!(answered(fields), expect);
}

/// Compares with the head of HTTP/1.1 that is made of the same response.
#[test]
fn the_fields_are_those_of_http_1_1() {
    let edit = ResponseEdit {
        remove: &[b"x-removed"],
        set: &[(b"X-Set", b"new")],
        add: &[(b"Set-Cookie", b"a=b")],
        ..ResponseEdit::default()
    };
    let fields = "X_Removed: 1\r\nx-set: old\r\nSet-Cookie: c\r\nVary: x\r\nTrailer: t\r\n";
    for (status, framing, method) in [
        ("200 OK", "Content-Length: 5\r\n", Method::Get),
        ("200 OK", "Content-Length: 5\r\n", Method::Head),
        ("200 OK", "Transfer-Encoding: chunked\r\n", Method::Get),
        (
            "200 OK",
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            Method::Head,
        ),
        ("200 OK", "", Method::Get),
        ("204 No Content", "Content-Length: 5\r\n", Method::Get),
        ("304 Not Modified", "Content-Length: 5\r\n", Method::Get),
        ("304 Not Modified", "", Method::Get),
        (
            "103 Early Hints",
            "Link: x\r\nContent-Length: 5\r\n",
            Method::Get,
        ),
        ("100 Continue", "", Method::Get),
        ("999 ", "Content-Length: 0\r\n", Method::Get),
    ] {
        let text = format!("HTTP/1.1 {status}\r\n{fields}{framing}\r\n");
        let (lines, body) = written(&text, method, &edit);
        let head = parsed(&text, method);
        assert_eq!(body, head.framing());
        let mut old = Vec::new();
        crate::http::write_response(&mut old, &head, text.as_bytes(), &edit);
        let old = String::from_utf8(old).expect("UTF-8");
        let of_old = old.lines().skip(1).filter(|line| !line.is_empty());
        let lower = of_old.map(|line| {
            let (name, value) = line.split_once(": ").expect("a field");
            format!("{}: {value}", name.to_ascii_lowercase())
        });
        let mut expect = vec![format!(":status: {}", &status[..3])];
        expect.extend(lower.filter(|line| !line.starts_with("transfer-encoding")));
        // The end of a connection is no end of a body that the server may follow with trailers.
        let until_close = body == Framing::UntilClose;
        expect.retain(|line| !(until_close && line.starts_with("trailer")));
        assert_eq!(lines, expect, "{text}");
    }
}

#[test]
fn the_edit_of_a_connection_has_no_effect() {
    let edit = ResponseEdit {
        client: Version::Http10,
        persistence: Persistence::Close,
        upgrade: true,
        ..ResponseEdit::default()
    };
    let text = "HTTP/1.0 200 OK\r\nConnection: close\r\n\r\n";
    let (lines, framing) = written(text, Method::Get, &edit);
    assert_eq!(
        (lines, framing),
        (vec![":status: 200".to_owned()], Framing::UntilClose)
    );
}

#[test]
fn an_answer_is_a_head_with_the_length_of_its_body() {
    let lines = |status, method| {
        let answer = Answer {
            status,
            fields: &[(b"Content-Type", b"text/plain"), (b"Retry-After", b"1")],
            body: b"12345",
            method,
            client: Version::Http11,
            persistence: Persistence::Close,
        };
        let mut block = Vec::new();
        write_answer(&mut block, &mut Encoder::new(), &answer);
        decoded(&mut Decoder::new(TABLE_BYTES_DEFAULT), &block)
    };
    let fields = ["content-type: text/plain", "retry-after: 1"];
    for method in [Method::Get, Method::Head] {
        let expect = [&[":status: 503"], &fields[..], &["content-length: 5"]].concat();
        assert_eq!(lines(503, method), expect);
    }
    for status in [204, 304] {
        let status_line = format!(":status: {status}");
        assert_eq!(
            lines(status, Method::Get),
            [&[&status_line[..]], &fields[..]].concat()
        );
    }
}

/// RFC 7541 §7.1.3.
#[test]
fn cookies_are_never_indexed_and_repeated_fields_are() {
    let text = "HTTP/1.1 200 OK\r\nServer: a\r\nSet-Cookie: b\r\nLocation: /c\r\nX-D: e\r\n\
        Content-Length: 5\r\n\r\n";
    let head = parsed(text, Method::Get);
    let mut encoder = Encoder::new();
    let mut decoder = Decoder::new(TABLE_BYTES_DEFAULT);
    let mut blocks = Vec::new();
    let mut lists = Vec::new();
    for _ in 0..4 {
        let mut block = Vec::new();
        let edit = ResponseEdit::default();
        write_response(&mut block, &mut encoder, &head, text.as_bytes(), &edit);
        lists.push(decoded(&mut decoder, &block));
        blocks.push(block);
    }
    assert!(lists.iter().all(|list| *list == lists[0]));
    // The status, three fields of the table, the cookie and the location.
    let cookie = [0x1f, 0x28, 1, b'b'];
    let location = [0x0f, 0x1f, 2, b'/', b'c'];
    let expect = [&[0x88, 0xc0][..], &cookie, &location, &[0xbf, 0xbe]].concat();
    assert_eq!(blocks[2], expect);
    assert_eq!(blocks[3], expect);
}

#[test]
fn the_length_of_a_body_that_is_replaced_is_not_stated() {
    let edit = ResponseEdit {
        body: BodyEdit::Replace,
        ..ResponseEdit::default()
    };
    let text = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n";
    let only_status = vec![":status: 200".to_owned()];
    let (lines, framing) = written(text, Method::Get, &edit);
    assert_eq!((&lines, framing), (&only_status, Framing::Chunked));
    let (lines, framing) = written(text, Method::Head, &edit);
    assert_eq!((&lines, framing), (&only_status, Framing::None));
}
