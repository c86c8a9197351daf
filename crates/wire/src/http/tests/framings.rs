//! Lengths of bodies (RFC 9112 §6).

use super::*;

/// Versions and fields of requests, and their framing.
const REQUESTS: &[(&str, &str, Result<Framing, Fault>)] = &[
    ("1.1", "", Ok(Framing::None)),
    ("1.1", "Content-Length: 0", Ok(Framing::Length(0))),
    ("1.1", "content-length:\t007 ", Ok(Framing::Length(7))),
    (
        "1.1",
        "Content-Length: 9223372036854775807",
        Ok(Framing::Length(i64::MAX as u64)),
    ),
    (
        "1.1",
        "Content-Length: 9223372036854775808",
        Err(Fault::ContentLength),
    ),
    (
        "1.1",
        "Content-Length: 18446744073709551617",
        Err(Fault::ContentLength),
    ),
    ("1.1", "Content-Length:", Err(Fault::ContentLength)),
    ("1.1", "Content-Length: +5", Err(Fault::ContentLength)),
    ("1.1", "Content-Length: -5", Err(Fault::ContentLength)),
    ("1.1", "Content-Length: 5a", Err(Fault::ContentLength)),
    ("1.1", "Content-Length: 0x5", Err(Fault::ContentLength)),
    ("1.1", "Content-Length: 5 5", Err(Fault::ContentLength)),
    ("1.1", "Content-Length: 5, 5", Err(Fault::ContentLength)),
    ("1.1", "Content-Length: 5,", Err(Fault::ContentLength)),
    ("1.1", "Content-Length: 5.0", Err(Fault::ContentLength)),
    ("1.1", "Content-Length: \u{665}", Err(Fault::ContentLength)),
    (
        "1.1",
        "Content-Length: 5\r\nContent-Length: 5",
        Err(Fault::ContentLengthRepeated),
    ),
    (
        "1.1",
        "Content-Length: 5\r\nContent-Length: 6",
        Err(Fault::ContentLengthRepeated),
    ),
    ("1.1", "Transfer-Encoding: chunked", Ok(Framing::Chunked)),
    ("1.1", "transfer-encoding: CHUNKED", Ok(Framing::Chunked)),
    (
        "1.1",
        "Transfer-Encoding: gzip, chunked",
        Err(Fault::TransferCoding),
    ),
    (
        "1.1",
        "Transfer-Encoding: chunked, gzip",
        Err(Fault::TransferCoding),
    ),
    (
        "1.1",
        "Transfer-Encoding: chunked, chunked",
        Err(Fault::TransferEncoding),
    ),
    (
        "1.1",
        "Transfer-Encoding: chunked,",
        Err(Fault::TransferEncoding),
    ),
    (
        "1.1",
        "Transfer-Encoding: ,chunked",
        Err(Fault::TransferEncoding),
    ),
    (
        "1.1",
        "Transfer-Encoding: chunked;a=b",
        Err(Fault::TransferEncoding),
    ),
    (
        "1.1",
        "Transfer-Encoding: \"chunked\"",
        Err(Fault::TransferEncoding),
    ),
    (
        "1.1",
        "Transfer-Encoding: xchunked",
        Err(Fault::TransferEncoding),
    ),
    (
        "1.1",
        "Transfer-Encoding: identity",
        Err(Fault::TransferEncoding),
    ),
    ("1.1", "Transfer-Encoding:", Err(Fault::TransferEncoding)),
    (
        "1.1",
        "Transfer-Encoding: chunked\tx",
        Err(Fault::TransferEncoding),
    ),
    (
        "1.1",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        Err(Fault::TransferEncoding),
    ),
    (
        "1.1",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        Err(Fault::TwoFramings),
    ),
    (
        "1.1",
        "Content-Length: 0\r\nTransfer-Encoding: chunked",
        Err(Fault::TwoFramings),
    ),
    (
        "1.0",
        "Transfer-Encoding: chunked",
        Err(Fault::TransferEncodingInOldVersion),
    ),
    (
        "1.0",
        "Transfer-Encoding: x",
        Err(Fault::TransferEncodingInOldVersion),
    ),
    ("1.0", "Content-Length: 5", Ok(Framing::Length(5))),
];

#[test]
fn the_framing_of_a_request_is_certain_or_refused() {
    for &(version, fields, framing) in REQUESTS {
        for method in ["GET", "POST", "DELETE"] {
            let line = format!("{method} / HTTP/{version}");
            let end = if fields.is_empty() { "" } else { "\r\n" };
            let bytes = request_text(&line, &format!("Host: h\r\n{fields}{end}"));
            match framing {
                Ok(framing) => assert_eq!(complete_request(&bytes).framing(), framing, "{fields}"),
                Err(fault) => assert_request_fault(&bytes, fault),
            }
        }
    }
    assert_eq!(Fault::TransferCoding.status(), 501);
    assert_eq!(Fault::TransferEncoding.status(), 400);
    assert_eq!(Fault::TwoFramings.status(), 400);
}

#[test]
fn a_body_is_never_dropped_and_always_framed_again() {
    for (fields, expect) in [
        ("content-length:  05", "Content-Length: 5"),
        ("transfer-Encoding:Chunked ", "Transfer-Encoding: chunked"),
    ] {
        for method in ["GET", "HEAD", "DELETE", "X"] {
            let line = format!("{method} / HTTP/1.1");
            let bytes = request_text(&line, &format!("Host: h\r\n{fields}\r\n"));
            let expect = format!("{line}\r\nHost: h\r\n{expect}\r\n\r\n");
            assert_eq!(sent_on(&bytes, &RequestEdit::default()), expect);
        }
    }
}

#[test]
fn the_framing_of_a_response_depends_on_status_and_method() {
    use Framing::{Chunked, Length, None, UntilClose};
    for (method, status, fields, framing) in [
        (Method::Get, 200, "", Ok(UntilClose)),
        (Method::Get, 200, "Content-Length: 5\r\n", Ok(Length(5))),
        (
            Method::Get,
            200,
            "Transfer-Encoding: chunked\r\n",
            Ok(Chunked),
        ),
        (Method::Get, 500, "", Ok(UntilClose)),
        (Method::Head, 200, "", Ok(None)),
        (Method::Head, 200, "Content-Length: 5\r\n", Ok(None)),
        (
            Method::Head,
            404,
            "Transfer-Encoding: chunked\r\n",
            Ok(None),
        ),
        (Method::Get, 100, "", Ok(None)),
        (Method::Get, 103, "Content-Length: 5\r\n", Ok(None)),
        (Method::Get, 101, "", Ok(None)),
        (Method::Get, 204, "Content-Length: 5\r\n", Ok(None)),
        (Method::Get, 204, "Transfer-Encoding: chunked\r\n", Ok(None)),
        (Method::Get, 205, "Content-Length: 0\r\n", Ok(Length(0))),
        (Method::Get, 304, "Content-Length: 5\r\n", Ok(None)),
        (Method::Post, 304, "", Ok(None)),
        (Method::Connect, 200, "Content-Length: 5\r\n", Ok(None)),
        (Method::Connect, 407, "Content-Length: 5\r\n", Ok(Length(5))),
        (
            Method::Get,
            200,
            "Content-Length: x\r\n",
            Err(Fault::ContentLength),
        ),
        (
            Method::Head,
            200,
            "Content-Length: x\r\n",
            Err(Fault::ContentLength),
        ),
        (
            Method::Get,
            200,
            "Transfer-Encoding: gzip\r\n",
            Err(Fault::TransferCoding),
        ),
        (
            Method::Get,
            200,
            "Transfer-Encoding: x\r\n",
            Err(Fault::TransferEncoding),
        ),
    ] {
        let bytes = format!("HTTP/1.1 {status} x\r\n{fields}\r\n");
        let mut head = ResponseHead::new();
        let parsed = head.parse(bytes.as_bytes(), &HeadLimits::default(), method);
        match framing {
            Ok(framing) => {
                assert_eq!(
                    (parsed, head.framing()),
                    (Parsed::Complete, framing),
                    "{bytes}"
                );
            }
            Err(fault) => assert_eq!(parsed, Parsed::Invalid(fault)),
        }
    }
}

#[test]
fn chunked_wins_in_a_response_and_the_connection_is_not_used_again() {
    let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n";
    let head = complete_response(bytes);
    assert_eq!(
        (head.framing(), head.keeps_connection()),
        (Framing::Chunked, false)
    );
    let expect = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(answered(bytes, &ResponseEdit::default()), expect);
    let (_, parsed) = response(b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_eq!(parsed, Parsed::Invalid(Fault::TransferEncodingInOldVersion));
}

#[test]
fn responses_without_body_keep_a_length_only_where_it_may_be() {
    let written = |method, status: u16, fields: &str| {
        let bytes = format!("HTTP/1.1 {status} x\r\n{fields}\r\n");
        let mut head = ResponseHead::new();
        let parsed = head.parse(bytes.as_bytes(), &HeadLimits::default(), method);
        assert_eq!(parsed, Parsed::Complete);
        let mut out = Vec::new();
        write_response(&mut out, &head, bytes.as_bytes(), &ResponseEdit::default());
        String::from_utf8(out).unwrap()
    };
    let length = "Content-Length: 5\r\n";
    for (method, status, kept) in [
        (Method::Head, 200, true),
        (Method::Get, 304, true),
        (Method::Get, 204, false),
        (Method::Head, 204, false),
        (Method::Get, 103, false),
        (Method::Get, 101, false),
    ] {
        assert_eq!(
            written(method, status, length).contains(length),
            kept,
            "{status}"
        );
        assert!(!written(method, status, "Transfer-Encoding: chunked\r\n").contains("chunked"));
        assert!(!written(method, status, "").contains("ength"));
    }
}

#[test]
fn clients_get_the_framing_of_their_version() {
    use Framing::{Chunked, Length, None, UntilClose};
    for (fields, client, framing, persistence) in [
        ("", Version::Http11, Chunked, Persistence::Keep),
        ("", Version::Http10, UntilClose, Persistence::Close),
        (
            "Transfer-Encoding: chunked\r\n",
            Version::Http11,
            Chunked,
            Persistence::Keep,
        ),
        (
            "Transfer-Encoding: chunked\r\n",
            Version::Http10,
            UntilClose,
            Persistence::Close,
        ),
        (
            "Content-Length: 5\r\n",
            Version::Http10,
            Length(5),
            Persistence::Keep,
        ),
    ] {
        let bytes = format!("HTTP/1.1 200 OK\r\n{fields}\r\n").into_bytes();
        let head = complete_response(&bytes);
        let edit = ResponseEdit {
            client,
            ..ResponseEdit::default()
        };
        let written = write_response(&mut Vec::new(), &head, &bytes, &edit);
        assert_eq!(
            (written.framing, written.persistence),
            (framing, persistence),
            "{fields}"
        );
        let text = answered(&bytes, &edit);
        assert_eq!(
            text.contains("Connection: close"),
            persistence == Persistence::Close
        );
        assert_eq!(
            text.contains("Transfer-Encoding: chunked"),
            framing == Chunked
        );
    }
    assert_eq!(None.towards(Version::Http10), None);
}
