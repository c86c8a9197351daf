//! Streams of a client, whole and split at every byte.

use super::*;
use crate::postgres::build;
use crate::postgres::frontend::Target;

/// The messages as shown, and how many bytes of each were not shown.
type Walk = Vec<(Request, bool, Vec<u8>, usize)>;

/// Scans `bytes`; whenever the scanner waits, `piece` more bytes become available.
fn walk(bytes: &[u8], piece: usize, text_length_max: usize) -> Walk {
    let mut requests = ClientScanner::new(text_length_max);
    let (mut found, mut consumed, mut end) = (Walk::new(), 0, 0);
    loop {
        let there = &bytes[consumed..end];
        let step = requests.next(there);
        let (passed, shown) = match step {
            Step::Message {
                passed,
                request,
                length,
                is_whole,
                ..
            } => (passed, Some((request, is_whole, length))),
            Step::Wait { passed, need } => {
                assert!(need > there.len() - passed, "asks for what it has");
                (passed, None)
            }
            Step::Invalid(fault) => panic!("{fault}"),
        };
        if passed > 0 {
            found.last_mut().expect("a message before").3 += passed;
        }
        consumed += passed;
        if let Some((request, is_whole, length)) = shown {
            let message = bytes[consumed..consumed + length].to_vec();
            found.push((request, is_whole, message, 0));
            consumed += length;
        } else if end == bytes.len() {
            break;
        } else {
            end = (end + piece).min(bytes.len());
        }
    }
    assert_eq!(consumed, bytes.len());
    assert!(requests.is_at_border());
    found
}

/// Every kind of message that clients send.
fn session() -> Vec<u8> {
    let mut out = Vec::new();
    let to = &mut out;
    build::query(to, b"select 1");
    build::parse(to, b"a", b"select $1", &[0, 0, 0, 25]);
    build::bind(to, b"portal", b"a", &[Some(b"a value"), None]);
    build::bind(to, b"", b"", &[]);
    build::describe(to, Target::Statement(b"a"));
    build::describe(to, Target::Portal(b""));
    build::execute(to, b"portal", 7);
    build::close(to, Target::Portal(b"portal"));
    build::flush(to);
    build::sync(to);
    to.extend_from_slice(b"F\0\0\0\x0e\0\0\0\x01\0\0\0\0\0\0");
    to.extend_from_slice(b"d\0\0\0\x09data!d\0\0\0\x04c\0\0\0\x04f\0\0\0\x07no\0");
    build::terminate(to);
    out
}

#[test]
fn every_request_is_told_however_the_bytes_are_cut() {
    let bytes = session();
    let expect = walk(&bytes, bytes.len(), 100);
    let kinds: Vec<_> = expect.iter().map(|one| (one.0, one.1, one.3)).collect();
    assert_eq!(
        kinds,
        [
            (Request::Query, true, 0),
            (Request::Parse, true, 0),
            (Request::Bind, false, 2 + 2 + 4 + 7 + 4 + 2),
            (Request::Bind, false, 2 + 2 + 2),
            (Request::DescribeStatement, true, 0),
            (Request::DescribePortal, true, 0),
            (Request::Execute, true, 0),
            (Request::Close, true, 0),
            (Request::Flush, true, 0),
            (Request::Sync, true, 0),
            (Request::FunctionCall, false, 10),
            (Request::CopyData, false, 5),
            (Request::CopyData, false, 0),
            (Request::CopyEnd, true, 0),
            (Request::CopyEnd, true, 0),
            (Request::Terminate, true, 0),
        ]
    );
    assert!(expect[2].2.ends_with(b"portal\0a\0"));
    for piece in 1..bytes.len() {
        assert_eq!(walk(&bytes, piece, 100), expect, "pieces of {piece}");
    }
}

#[test]
fn cut_in_two_anywhere_the_steps_are_the_same() {
    let bytes = session();
    let expect = walk(&bytes, bytes.len(), 100);
    for cut in 1..bytes.len() {
        let mut requests = ClientScanner::new(100);
        let (mut consumed, mut messages) = (0, 0);
        for end in [cut, bytes.len()] {
            loop {
                let (passed, length) = match requests.next(&bytes[consumed..end]) {
                    Step::Message { passed, length, .. } => (passed, length),
                    Step::Wait { passed, .. } => {
                        consumed += passed;
                        break;
                    }
                    Step::Invalid(fault) => panic!("{fault}"),
                };
                consumed += passed;
                let shown = &bytes[consumed..consumed + length];
                assert_eq!(shown, expect[messages].2, "cut at {cut}");
                messages += 1;
                consumed += length;
            }
        }
        assert_eq!((messages, consumed), (expect.len(), bytes.len()));
    }
}

#[test]
fn of_a_long_text_the_beginning_is_shown_and_the_rest_is_passed() {
    let mut bytes = Vec::new();
    build::query(&mut bytes, &[b'x'; 1_000]);
    build::parse(&mut bytes, b"name", &[b'y'; 1_000], &[]);
    build::sync(&mut bytes);
    for piece in [1, 7, 99, 100, 101, 5_000] {
        let found = walk(&bytes, piece, 100);
        let shown: Vec<_> = found
            .iter()
            .map(|one| (one.0, one.1, one.2.len(), one.3))
            .collect();
        assert_eq!(
            shown,
            [
                (Request::Query, false, 100, 1_006 - 100),
                (Request::Parse, false, 100, 5 + 5 + 1_001 + 2 - 100),
                (Request::Sync, true, 5, 0),
            ]
        );
        let Parsed::Frame(header, _) = frame::header(&found[1].2) else {
            panic!()
        };
        let Parsed::Frame(names, _) = names(header, &found[1].2) else {
            panic!()
        };
        assert_eq!(names.statement.unwrap().of(&found[1].2), b"name");
    }
    assert!(walk(&bytes, 7, 1_013).iter().all(|one| one.1));
}

#[test]
fn the_values_of_a_bind_are_never_held() {
    let mut bytes = Vec::new();
    build::bind(&mut bytes, b"", b"name", &[Some(&[b'x'; 100_000])]);
    let mut requests = ClientScanner::new(100);
    let Step::Message {
        passed: 0,
        request: Request::Bind,
        length: 11,
        header,
        is_whole: false,
    } = requests.next(&bytes[..40])
    else {
        panic!()
    };
    assert_eq!(header.frame_length(), bytes.len());
    let wait = requests.next(&bytes[11..50_000]);
    assert_eq!(
        wait,
        Step::Wait {
            passed: 49_989,
            need: 1
        }
    );
    assert!(!requests.is_at_border());
    let wait = requests.next(&bytes[50_000..]);
    let passed = bytes.len() - 50_000;
    assert_eq!(wait, Step::Wait { passed, need: 5 });
    assert!(requests.is_at_border());
}

#[test]
fn what_no_logged_in_client_sends_is_invalid() {
    let endless = [b"B\0\x01\0\0".as_slice(), &[b'n'; 30_000]].concat();
    let unnamed = [b"P\0\x01\0\0".as_slice(), &[b'n'; 200]].concat();
    for (bytes, fault) in [
        (&b"Z\0\0\0\x05I"[..], ProtocolError::UnknownTag(b'Z')),
        (b"p\0\0\0\x05\0", ProtocolError::UnknownTag(b'p')),
        (b"D\0\0\0\x06X\0", ProtocolError::Malformed(b'D')),
        (b"D\0\0\0\x04", ProtocolError::Malformed(b'D')),
        (b"C\0\0\0\x06X\0", ProtocolError::Malformed(b'C')),
        (b"S\0\0\0\x05\0", ProtocolError::Malformed(b'S')),
        (b"c\0\0\0\x05\0", ProtocolError::Malformed(b'c')),
        (b"S\0\0\0\x03", ProtocolError::LengthTooSmall(3)),
        (b"B\0\0\0\x07a\0b", ProtocolError::Malformed(b'B')),
        (&endless, ProtocolError::Malformed(b'B')),
        (&unnamed, ProtocolError::Malformed(b'P')),
        (
            b"E\0\0\x27\x11",
            ProtocolError::TooLong {
                tag: b'E',
                length: 10_001,
            },
        ),
    ] {
        let step = ClientScanner::new(100).next(bytes);
        assert_eq!(step, Step::Invalid(fault), "{}", bytes.escape_ascii());
    }
}
