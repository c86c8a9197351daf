//! Limits of heads, and heads that arrive in pieces.

use super::*;

fn small() -> HeadLimits {
    HeadLimits {
        head_bytes_max: 60,
        target_bytes_max: 10,
        fields_max: 3,
        underscores: Underscores::Drop,
    }
}

fn parse(bytes: &[u8]) -> Parsed {
    RequestHead::new().parse(bytes, &small())
}

fn fault(limit: Limit) -> Parsed {
    Parsed::Invalid(Fault::Limit(limit))
}

#[test]
fn a_head_may_have_as_many_bytes_as_the_limit() {
    for (length, parsed) in [(60, Parsed::Complete), (61, fault(Limit::HeadBytes(60)))] {
        let line = "GET / HTTP/1.1\r\nHost: h\r\nA: ";
        let padding = "x".repeat(length - line.len() - 4);
        let bytes = format!("{line}{padding}\r\n\r\n").into_bytes();
        assert_eq!((bytes.len(), parse(&bytes)), (length, parsed));
        let more = [&bytes, &b"GET / HTTP/1.1\r\n"[..]].concat();
        assert_eq!(parse(&more), parsed, "bytes after the head do not count");
        assert_eq!(parse(&bytes[..59]), Parsed::Incomplete);
    }
    let longer = [b'x'; 60];
    assert_eq!(parse(&longer), Parsed::Invalid(Fault::MethodTooLong));
    let fault = Fault::Limit(Limit::HeadBytes(60));
    assert_eq!(
        (fault.status(), fault.limit()),
        (431, Some(Limit::HeadBytes(60)))
    );
    assert_eq!(
        fault.to_string(),
        "the head has more bytes than the limit (60)"
    );
}

#[test]
fn a_target_may_have_as_many_bytes_as_the_limit() {
    for (length, parsed) in [(10, Parsed::Complete), (11, fault(Limit::TargetBytes(10)))] {
        let target = format!("/{}", "x".repeat(length - 1));
        let bytes = request_text(&format!("GET {target} HTTP/1.1"), "Host: h\r\n");
        assert_eq!(parse(&bytes), parsed, "{length}");
    }
    let endless = format!("GET /{}", "x".repeat(10));
    let fault = Fault::Limit(Limit::TargetBytes(10));
    assert_eq!(parse(endless.as_bytes()), Parsed::Invalid(fault));
    assert_eq!(fault.status(), 414);
}

#[test]
fn a_head_may_have_as_many_fields_as_the_limit() {
    for (fields, parsed) in [
        ("A:\r\nB:\r\n", Parsed::Complete),
        ("A:\r\nB:\r\nC:\r\n", fault(Limit::Fields(3))),
        ("A_:\r\nB_:\r\nC_:\r\n", fault(Limit::Fields(3))),
    ] {
        let bytes = request_text("GET / HTTP/1.1", &format!("Host: h\r\n{fields}"));
        assert_eq!(parse(&bytes), parsed, "{fields:?}");
    }
    assert_eq!(Fault::Limit(Limit::Fields(3)).status(), 431);
    let folded = format!("HTTP/1.1 200 OK\r\nA: b\r\n{}\r\n", " c\r\n".repeat(5));
    let parsed = ResponseHead::new().parse(folded.as_bytes(), &small(), Method::Get);
    assert_eq!(
        parsed,
        fault(Limit::Fields(3)),
        "lines that continue a field count"
    );
}

#[test]
fn nothing_in_a_head_is_refused_later_than_it_must_be() {
    // The bytes before the wrong one are the beginning of a valid head.
    for (bytes, fault) in [
        (&b"\x16"[..], Fault::Method { at: 0 }),
        (b"GET /\x01", Fault::Byte { at: 5, byte: 1 }),
        (b"GET / HTTQ", Fault::Version { at: 9 }),
        (b"GET / HTTP/2.0", Fault::UnsupportedVersion),
        (b"GET / HTTP/1.1\r\nA\x01", Fault::Name { at: 17, byte: 1 }),
        (
            b"GET / HTTP/1.1\r\nA: b\x01",
            Fault::Byte { at: 20, byte: 1 },
        ),
        (b"GET / HTTP/1.1\r\nA: b\r\n ", Fault::Folded { at: 22 }),
        (
            b"GET / HTTP/1.1\r\nA: b\r\n\rx",
            Fault::BareCarriageReturn { at: 22 },
        ),
        (b"CONNECT ", Fault::Connect),
        (b"GET x ", Fault::Target),
    ] {
        assert_request_fault(bytes, fault);
        let (_, before) = request(&bytes[..bytes.len() - 1]);
        assert_eq!(before, Parsed::Incomplete, "{}", bytes.escape_ascii());
    }
}

#[test]
fn a_head_in_any_pieces_is_the_head() {
    let bytes =
        b"\r\nPOST /a?b HTTP/1.1\r\nHost: h:1\r\nA_B: x\r\nC:\t d \r\nContent-Length: 3\r\n\
        Connection: close, C\r\n\r\nabc";
    let whole = complete_request(bytes);
    for first in 0..whole.length() {
        for second in first..whole.length() {
            let mut head = RequestHead::new();
            let limits = HeadLimits::default();
            assert_eq!(head.parse(&bytes[..first], &limits), Parsed::Incomplete);
            assert_eq!(head.parse(&bytes[..second], &limits), Parsed::Incomplete);
            assert_eq!(head.parse(bytes, &limits), Parsed::Complete);
            assert!(head.fields(bytes).eq(whole.fields(bytes)));
            assert_eq!(head.length(), whole.length());
            assert_eq!(
                (head.framing(), head.fields_dropped()),
                (Framing::Length(3), 1)
            );
        }
    }
}

#[test]
fn one_head_after_another_uses_the_same_memory() {
    let mut head = RequestHead::new();
    let limits = HeadLimits::default();
    let first = b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 3\r\n\r\n";
    let second = b"GET /b HTTP/1.1\r\nHost: b\r\n\r\n";
    assert_eq!(head.parse(first, &limits), Parsed::Complete);
    assert_eq!(head.parse(second, &limits), Parsed::Complete);
    assert_eq!(
        (head.path(second), head.host(second)),
        (&b"/b"[..], Some(&b"b"[..]))
    );
    assert_eq!(
        (head.framing(), head.keeps_connection()),
        (Framing::None, true)
    );
    assert_eq!(head.field_count(), 1);
    // An abandoned head leaves nothing after it is cleared, nor does one that was invalid.
    assert_eq!(head.parse(&first[..40], &limits), Parsed::Incomplete);
    head.clear();
    assert_eq!(head.parse(second, &limits), Parsed::Complete);
    assert_eq!(head.field_count(), 1);
    let parsed = head.parse(b"GET / HTTP/1.1\r\nA: b\r\nA\n", &limits);
    assert_eq!(
        parsed,
        Parsed::Invalid(Fault::Name {
            at: 23,
            byte: b'\n'
        })
    );
    assert_eq!(head.parse(second, &limits), Parsed::Complete);
    assert_eq!(head.field_count(), 1);
}

#[test]
fn every_fault_has_a_status_and_a_text() {
    for (fault, status, text) in [
        (
            Fault::BareLineFeed { at: 7 },
            400,
            "a line feed without a carriage return (at offset 7)",
        ),
        (
            Fault::Byte { at: 7, byte: 1 },
            400,
            "a byte that is not allowed at its place (0x01 at offset 7)",
        ),
        (Fault::HostMissing, 400, "the field Host is missing"),
        (
            Fault::Chunk { byte: 0x2b },
            400,
            "a wrong byte in a line of chunked framing (0x2b)",
        ),
        (
            Fault::Expectation,
            417,
            "an expectation other than 100-continue is not supported",
        ),
        (
            Fault::Limit(Limit::TrailerBytes(5)),
            431,
            "the trailers have more bytes than the limit (5)",
        ),
    ] {
        assert_eq!((fault.status(), fault.to_string().as_str()), (status, text));
    }
}
