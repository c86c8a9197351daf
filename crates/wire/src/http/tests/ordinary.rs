//! Messages as clients and servers usually send them.

use super::*;

#[test]
fn an_ordinary_request_is_read_and_written() {
    let bytes = b"GET /a/b?c=d HTTP/1.1\r\nHost: Shop.Example:8080\r\nuser-agent: x\r\n\
        X-Forwarded-For: 192.0.2.1\r\nAccept: */*\r\nConnection: keep-alive, X-Old\r\n\
        X-Old: 1\r\nContent-Length: 5\r\n\r\nhello";
    let mut head = RequestHead::new();
    assert_eq!(head.parse(bytes, &HeadLimits::default()), Parsed::Complete);
    assert_eq!(head.length(), bytes.len() - 5);
    assert_eq!(head.method(), Method::Get);
    assert_eq!(head.path(bytes), b"/a/b");
    assert_eq!(head.query(bytes), Some(&b"c=d"[..]));
    assert_eq!(head.host(bytes), Some(&b"Shop.Example"[..]));
    assert_eq!(head.port(), Some(8080));
    assert_eq!(head.framing(), Framing::Length(5));
    assert!(head.keeps_connection());
    let mut out = Vec::new();
    let edit = RequestEdit {
        path: PathEdit::Prefix {
            strip: 2,
            put: b"/x/",
        },
        forwarded: &[(b"X-Forwarded-For", b"203.0.113.1")],
        remove: &[b"accept"],
        ..RequestEdit::default()
    };
    write_request(&mut out, &head, bytes, &edit);
    let expect = "GET /x/b?c=d HTTP/1.1\r\nHost: Shop.Example:8080\r\nuser-agent: x\r\n\
        X-Forwarded-For: 203.0.113.1\r\nContent-Length: 5\r\n\r\n";
    assert_eq!(String::from_utf8_lossy(&out), expect);
}

#[test]
fn an_ordinary_response_is_read_and_written() {
    let bytes = b"HTTP/1.1 200 OK\r\nserver: x\r\nKeep-Alive: timeout=5\r\nSet-Cookie: a=b\r\n\
        Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let mut head = ResponseHead::new();
    let parsed = head.parse(bytes, &HeadLimits::default(), Method::Get);
    assert_eq!(parsed, Parsed::Complete);
    assert_eq!((head.status(), head.framing()), (200, Framing::Chunked));
    assert!(head.keeps_connection());
    let mut out = Vec::new();
    let edit = ResponseEdit {
        client: Version::Http10,
        ..ResponseEdit::default()
    };
    let written = write_response(&mut out, &head, bytes, &edit);
    assert_eq!(written.framing, Framing::UntilClose);
    assert_eq!(written.persistence, Persistence::Close);
    let expect = "HTTP/1.1 200 OK\r\nserver: x\r\nSet-Cookie: a=b\r\nConnection: close\r\n\r\n";
    assert_eq!(String::from_utf8_lossy(&out), expect);

    let mut decoder = ChunkDecoder::new(ChunkLimits::default());
    let body = &bytes[head.length()..];
    assert_eq!(decoder.next(body), Step::Data(3..8));
    assert_eq!(decoder.next(&body[8..]), Step::End { consumed: 7 });
}

#[test]
fn a_written_body_is_read_again() {
    let (mut encoder, mut out) = (ChunkEncoder::new(), Vec::new());
    encoder.whole(b"hello", &mut out);
    encoder.whole(b"", &mut out);
    encoder.whole(&[b'x'; 300], &mut out);
    let trailers = [("Grpc-Status", "0"), ("Content-Length", "3")];
    let fields = trailers.iter().map(|(name, value)| Field {
        known: KnownName::Other,
        name: name.as_bytes(),
        value: value.as_bytes(),
    });
    assert!(encoder.finish(fields, &mut out));
    assert!(!encoder.finish([].into_iter(), &mut out));
    let mut decoder = ChunkDecoder::new(ChunkLimits::default());
    let (mut at, mut data) = (0, Vec::new());
    loop {
        match decoder.next(&out[at..]) {
            Step::Data(range) => {
                data.extend_from_slice(&out[at..][range.clone()]);
                at += range.end;
            }
            Step::End { consumed } => {
                at += consumed;
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((at, data.len()), (out.len(), 305));
    let trailers: Vec<_> = decoder
        .trailers()
        .map(|field| field.name.to_vec())
        .collect();
    assert_eq!(trailers, [b"Grpc-Status".to_vec()]);
}
