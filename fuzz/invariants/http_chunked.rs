//! Checks invariants of chunked framing for any bytes; used by the fuzzer and the tests.

use evenkeel_wire::http::Fault;
use evenkeel_wire::http::chunked::{ChunkDecoder, ChunkEncoder, ChunkLimits, Step};

pub(crate) const LIMITS: ChunkLimits = ChunkLimits {
    chunk_extension_bytes_max: 20,
    body_extension_bytes_max: 50,
    trailer_bytes_max: 100,
    trailer_fields_max: 4,
};

/// Result of decoding.
#[derive(Debug, PartialEq, Eq)]
struct Decoded {
    data: Vec<u8>,
    end: End,
    trailers: Vec<(Vec<u8>, Vec<u8>)>,
}

#[derive(Debug, PartialEq, Eq)]
enum End {
    /// Bytes that belong to the body.
    Complete(usize),
    Incomplete,
    Invalid(Fault),
}

/// Panics if decoding `bytes` violates an invariant.
pub(crate) fn check(bytes: &[u8]) {
    let whole = decode(bytes, bytes.len().max(1));
    for piece in [1, 2, 3, 7] {
        assert_eq!(decode(bytes, piece), whole, "in pieces of {piece}");
    }
    if let End::Complete(consumed) = whole.end {
        assert!(consumed <= bytes.len() && bytes[..consumed].ends_with(b"\r\n"));
        for cut in 0..consumed {
            let beginning = decode(&bytes[..cut], cut.max(1));
            assert_eq!(beginning.end, End::Incomplete, "at {cut}");
        }
        check_by_lines(&bytes[..consumed], &whole.data);
        check_encoding(&whole);
    }
}

fn decode(bytes: &[u8], piece: usize) -> Decoded {
    let mut decoder = ChunkDecoder::new(LIMITS);
    let (mut data, mut consumed) = (Vec::new(), 0);
    let mut end = End::Incomplete;
    'pieces: for piece in bytes.chunks(piece) {
        let mut at = 0;
        loop {
            match decoder.next(&piece[at..]) {
                Step::Data(range) => {
                    assert!(!range.is_empty());
                    data.extend_from_slice(&piece[at..][range.clone()]);
                    at += range.end;
                    consumed += range.end;
                }
                Step::Incomplete => {
                    consumed += piece.len() - at;
                    break;
                }
                Step::End { consumed: last } => {
                    assert!(decoder.is_complete());
                    assert_eq!(decoder.next(b"0\r\n\r\n"), Step::End { consumed: 0 });
                    end = End::Complete(consumed + last);
                    break 'pieces;
                }
                Step::Invalid(fault) => {
                    assert_eq!(decoder.next(b"0\r\n\r\n"), Step::Invalid(fault));
                    end = End::Invalid(fault);
                    break 'pieces;
                }
            }
        }
    }
    let trailers = decoder.trailers();
    let trailers = trailers.map(|field| (field.name.to_vec(), field.value.to_vec()));
    let trailers = trailers.collect();
    Decoded {
        data,
        end,
        trailers,
    }
}

/// Checks a complete body against another decoder, which knows nothing of this one and reads the
/// sizes with another parser.
fn check_by_lines(body: &[u8], data: &[u8]) {
    let (mut rest, mut read) = (body, Vec::new());
    loop {
        let parsed = httparse::parse_chunk_size(rest);
        let Ok(httparse::Status::Complete((line, size))) = parsed else {
            panic!("{parsed:?}");
        };
        assert!(rest[..line].ends_with(b"\r\n"));
        assert!(!rest[..line - 2].contains(&b'\n') && !rest[..line - 2].contains(&b'\r'));
        rest = &rest[line..];
        if size == 0 {
            break;
        }
        let size = usize::try_from(size).expect("a size");
        read.extend_from_slice(&rest[..size]);
        rest = rest[size..]
            .strip_prefix(b"\r\n")
            .expect("the end of the data");
    }
    assert_eq!(read, data);
    let end = rest.windows(4).position(|end| end == b"\r\n\r\n");
    let trailers = if rest == b"\r\n" {
        Some(0)
    } else {
        end.map(|at| at + 2)
    };
    assert_eq!(trailers.map(|at| at + 2), Some(rest.len()));
}

/// Checks that the data and the trailers remain the same when they are written and read again.
fn check_encoding(decoded: &Decoded) {
    let (mut encoder, mut out) = (ChunkEncoder::new(), Vec::new());
    for chunk in decoded.data.chunks(5) {
        encoder.whole(chunk, &mut out);
    }
    let mut first = ChunkDecoder::new(LIMITS);
    let mut section = b"0\r\n".to_vec();
    for (name, value) in &decoded.trailers {
        section.extend_from_slice(&[name, &b": "[..], value, b"\r\n"].concat());
    }
    section.extend_from_slice(b"\r\n");
    assert_eq!(
        first.next(&section),
        Step::End {
            consumed: section.len()
        }
    );
    assert!(encoder.finish(first.trailers(), &mut out));
    assert!(!encoder.finish(first.trailers(), &mut out));
    assert!(!encoder.begin(1, &mut out));
    let again = decode(&out, 4);
    assert_eq!(again.end, End::Complete(out.len()));
    assert_eq!(
        (&again.data, &again.trailers),
        (&decoded.data, &decoded.trailers)
    );
}
