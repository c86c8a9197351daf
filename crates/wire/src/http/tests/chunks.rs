//! Chunked bodies (RFC 9112 §7.1).

use super::*;

/// Decodes a whole body. Returns its data and how it ends.
fn decode(body: &[u8], limits: ChunkLimits) -> (Vec<u8>, Step) {
    let mut decoder = ChunkDecoder::new(limits);
    let (mut data, mut at) = (Vec::new(), 0);
    loop {
        match decoder.next(&body[at..]) {
            Step::Data(range) => {
                data.extend_from_slice(&body[at..][range.clone()]);
                at += range.end;
            }
            Step::End { consumed } => {
                return (
                    data,
                    Step::End {
                        consumed: at + consumed,
                    },
                );
            }
            other => return (data, other),
        }
    }
}

#[test]
fn sizes_are_hexadecimal_digits_and_nothing_else() {
    for line in ["3", "03", "0000000000000003"] {
        let body = format!("{line}\r\nabc\r\n0\r\n\r\n");
        let (data, end) = decode(body.as_bytes(), ChunkLimits::default());
        let consumed = body.len();
        assert_eq!(
            (&*data, end),
            (&b"abc"[..], Step::End { consumed }),
            "{line}"
        );
    }
    for (line, fault) in [
        ("+3", Fault::Chunk { byte: b'+' }),
        ("-3", Fault::Chunk { byte: b'-' }),
        (" 3", Fault::Chunk { byte: b' ' }),
        ("\t3", Fault::Chunk { byte: b'\t' }),
        ("3 ", Fault::Chunk { byte: b'\r' }),
        ("0x3", Fault::Chunk { byte: b'x' }),
        ("3_0", Fault::Chunk { byte: b'_' }),
        ("3h", Fault::Chunk { byte: b'h' }),
        ("g", Fault::Chunk { byte: b'g' }),
        ("", Fault::Chunk { byte: b'\r' }),
        (";a", Fault::Chunk { byte: b';' }),
        ("3,3", Fault::Chunk { byte: b',' }),
        ("3\0", Fault::Chunk { byte: 0 }),
        ("00000000000000003", Fault::ChunkSize),
        ("8000000000000000", Fault::ChunkSize),
        ("ffffffffffffffff", Fault::ChunkSize),
        ("10000000000000003", Fault::ChunkSize),
    ] {
        let body = format!("{line}\r\nabc\r\n0\r\n\r\n");
        let (data, end) = decode(body.as_bytes(), ChunkLimits::default());
        assert_eq!((data.len(), end), (0, Step::Invalid(fault)), "{line:?}");
    }
    // The largest size is no fault: data follow.
    let (data, end) = decode(b"7fffffffffffffff\r\nabc", ChunkLimits::default());
    assert_eq!((&*data, end), (&b"abc"[..], Step::Incomplete));
}

#[test]
fn lines_of_the_framing_end_with_both_bytes() {
    for (body, byte) in [
        (&b"3\nabc\r\n0\r\n\r\n"[..], b'\n'),
        (b"3\rabc\r\n0\r\n\r\n", b'a'),
        (b"3\r\nabc\n0\r\n\r\n", b'\n'),
        (b"3\r\nabc\r0\r\n\r\n", b'0'),
        (b"3\r\nabcd\r\n0\r\n\r\n", b'd'),
        (b"3\r\nab\r\n0\r\n\r\n", b'\n'),
        (b"3\r\nabc0\r\n\r\n", b'0'),
        (b"0\n\n", b'\n'),
        (b"0\r\n\rX", b'X'),
        (b"3;a\nb\r\nabc\r\n", b'\n'),
        (b"3;a\rb\r\nabc\r\n", b'b'),
    ] {
        let (_, end) = decode(body, ChunkLimits::default());
        assert_eq!(
            end,
            Step::Invalid(Fault::Chunk { byte }),
            "{}",
            body.escape_ascii()
        );
    }
    let (_, end) = decode(b"0\r\n\n", ChunkLimits::default());
    assert_eq!(end, Step::Invalid(Fault::Trailer));
}

#[test]
fn extensions_are_checked_and_left_out() {
    for extension in [
        ";a",
        ";a=b",
        ";a=\"b\"",
        " ; a = b ",
        ";a;b=c;d=\"\"",
        "\t;\ta\t=\t\"b;\\\"c\"\t;d",
        ";a=\"\u{e4}\"",
    ] {
        let body = format!("3{extension}\r\nabc\r\n0{extension}\r\n\r\n");
        let (data, end) = decode(body.as_bytes(), ChunkLimits::default());
        // A value, but not a name, may be followed by space at the end of the line.
        if extension.ends_with(' ') {
            assert_eq!(end, Step::Invalid(Fault::Chunk { byte: b'\r' }));
            continue;
        }
        let consumed = body.len();
        assert_eq!(
            (&*data, end),
            (&b"abc"[..], Step::End { consumed }),
            "{extension}"
        );
    }
    for extension in [
        ";",
        ";;a",
        ";=b",
        ";a=",
        ";a==b",
        ";a b",
        ";a=b c",
        ";a=\"b",
        ";a=\"b\"c",
        ";a=\"\\\r\"",
        ";a=\"\u{1}\"",
        ";a=\"\0\"",
        ";a\0",
        ";a=(b)",
        ",a",
        ";a=b\"c\"",
        ";\u{e4}",
    ] {
        let body = format!("3{extension}\r\nabc\r\n0\r\n\r\n");
        let (data, end) = decode(body.as_bytes(), ChunkLimits::default());
        let refused = matches!(end, Step::Invalid(Fault::Chunk { .. }));
        assert!(refused && data.is_empty(), "{extension:?}: {end:?}");
    }
}

#[test]
fn extensions_are_limited_in_a_chunk_and_in_a_body() {
    let limits = ChunkLimits {
        chunk_extension_bytes_max: 10,
        body_extension_bytes_max: 25,
        ..ChunkLimits::default()
    };
    let body = |length: usize, count: usize| {
        let chunk = format!("1;{}\r\nx\r\n", "a".repeat(length - 1));
        format!("{}0\r\n\r\n", chunk.repeat(count)).into_bytes()
    };
    assert!(matches!(decode(&body(10, 2), limits).1, Step::End { .. }));
    let limit = Limit::ChunkExtensionBytes(10);
    assert_eq!(
        decode(&body(11, 1), limits).1,
        Step::Invalid(Fault::Limit(limit))
    );
    let limit = Limit::BodyExtensionBytes(25);
    assert_eq!(
        decode(&body(10, 3), limits).1,
        Step::Invalid(Fault::Limit(limit))
    );
}

#[test]
fn the_last_chunk_comes_once() {
    let (_, end) = decode(b"0\r\n\r\n0\r\n\r\n", ChunkLimits::default());
    assert_eq!(end, Step::End { consumed: 5 });
    let (mut encoder, mut out) = (ChunkEncoder::new(), Vec::new());
    encoder.whole(b"", &mut out);
    assert!(encoder.finish([].into_iter(), &mut out));
    assert!(!encoder.finish([].into_iter(), &mut out));
    assert!(!encoder.begin(3, &mut out));
    encoder.whole(b"abc", &mut out);
    assert_eq!(out, b"0\r\n\r\n");
}

#[test]
fn chunk_sizes_are_written_without_zeros() {
    for (length, line) in [
        (1, "1\r\n"),
        (10, "a\r\n"),
        (16, "10\r\n"),
        (65_535, "ffff\r\n"),
        (usize::MAX, "ffffffffffffffff\r\n"),
    ] {
        let mut out = Vec::new();
        assert!(ChunkEncoder::new().begin(length, &mut out));
        assert_eq!(String::from_utf8_lossy(&out), line);
    }
}

#[test]
fn trailers_that_frame_route_or_authenticate_are_left_out() {
    let kept = [
        "Grpc-Status",
        "grpc-message",
        "X-Checksum",
        "Server-Timing",
        "ETag",
        "Digest",
    ];
    let refused = [
        "Content-Length",
        "content-type",
        "Content_Encoding",
        "Transfer-Encoding",
        "Host",
        "Trailer",
        "Authorization",
        "Cookie",
        "Set-Cookie",
        "Connection",
        "TE",
        "Upgrade",
        "Location",
        "X-Forwarded-For",
        "X.Forwarded.Proto",
        "Forwarded",
        "Client-Cert",
        "Sec-WebSocket-Key",
        "Cache-Control",
        "Expect",
        "Keep-Alive",
        "WWW-Authenticate",
    ];
    let mut body = "0\r\n".to_owned();
    for name in kept.iter().chain(&refused) {
        body.push_str(&format!("{name}: 1\r\n"));
    }
    body.push_str("\r\n");
    let mut decoder = ChunkDecoder::new(ChunkLimits::default());
    let consumed = body.len();
    assert_eq!(decoder.next(body.as_bytes()), Step::End { consumed });
    let names = decoder
        .trailers()
        .map(|field| String::from_utf8_lossy(field.name));
    assert!(names.eq(kept));
    // The encoder does not rely on that.
    let fields = refused.iter().map(|name| Field {
        known: KnownName::Other,
        name: name.as_bytes(),
        value: b"1",
    });
    let mut out = Vec::new();
    assert!(ChunkEncoder::new().finish(fields, &mut out));
    assert_eq!(out, b"0\r\n\r\n");
}

#[test]
fn trailers_obey_the_grammar_and_limits_of_fields() {
    let limits = ChunkLimits {
        trailer_bytes_max: 20,
        trailer_fields_max: 2,
        ..ChunkLimits::default()
    };
    for (section, fault) in [
        ("A: b\nC: d\r\n\r\n", Fault::Trailer),
        ("A : b\r\n\r\n", Fault::Trailer),
        ("A: b\r\n c\r\n\r\n", Fault::Trailer),
        ("A\r\n\r\n", Fault::Trailer),
        ("A: \0\r\n\r\n", Fault::Trailer),
        ("A:\r\nB:\r\nC:\r\n\r\n", Fault::Limit(Limit::Fields(2))),
        (
            "A: 1234567890123456\r\n\r\n",
            Fault::Limit(Limit::TrailerBytes(20)),
        ),
    ] {
        let body = format!("0\r\n{section}");
        let (_, end) = decode(body.as_bytes(), limits);
        assert_eq!(end, Step::Invalid(fault), "{section:?}");
    }
    let (_, end) = decode(b"0\r\nA: 1234567890123\r\n\r\n", limits);
    assert_eq!(end, Step::End { consumed: 23 });
}

#[test]
fn a_decoder_reads_one_body_after_another() {
    let mut decoder = ChunkDecoder::new(ChunkLimits::default());
    for _ in 0..3 {
        assert_eq!(
            decoder.next(b"1\r\nx\r\n0\r\nA: b\r\n\r\nGET"),
            Step::Data(3..4)
        );
        assert_eq!(
            decoder.next(b"\r\n0\r\nA: b\r\n\r\nGET"),
            Step::End { consumed: 13 }
        );
        assert_eq!(decoder.trailers().count(), 1);
        decoder.restart();
        assert_eq!(decoder.trailers().count(), 0);
    }
}
