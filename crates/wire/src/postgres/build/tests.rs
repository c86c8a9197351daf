//! Encoded messages can be parsed, and no encoded message can be read as two.

use super::*;
use crate::postgres::frame::{self, Frame};
use crate::postgres::frontend::{self, Request, Target};
use crate::postgres::names::{self, Names};
use crate::postgres::{Parsed, ProtocolError};

#[track_caller]
fn check(bytes: &[u8], expect: Request<'_>) {
    let Parsed::Frame(frame, length) = frame::frame(bytes, frame::LENGTH_MAX) else {
        panic!()
    };
    assert_eq!(length, bytes.len());
    assert_eq!(frontend::request(frame), Ok(expect));
    for cut in 0..frame.body.len() {
        let body = &frame.body[..cut];
        let free = matches!(frame.tag, b'd' | b'p' | b'B' | b'F');
        let tag = frame.tag;
        let beginning = frontend::request(Frame { tag, body });
        assert!(
            free || beginning == Err(ProtocolError::Malformed(tag)),
            "{cut}"
        );
    }
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

#[test]
fn a_clients_messages_are_read_as_they_were_written() {
    let text = b"SELECT 1";
    check(&written(|out| query(out, text)), Request::Query { text });
    let types = [0, 0, 0, 23];
    let expect = Request::Parse {
        statement: b"s",
        text,
        types: &types,
    };
    check(&written(|out| parse(out, b"s", text, &types)), expect);
    let expect = Request::Bind {
        portal: b"p",
        statement: b"s",
        values: b"\0\0\0\x02\0\0\0\x011\xff\xff\xff\xff\0\0",
    };
    check(
        &written(|out| bind(out, b"p", b"s", &[Some(b"1"), None])),
        expect,
    );
    for target in [Target::Statement(b"s"), Target::Portal(b"")] {
        check(
            &written(|out| describe(out, target)),
            Request::Describe(target),
        );
        check(&written(|out| close(out, target)), Request::Close(target));
    }
    let expect = Request::Execute {
        portal: b"p",
        rows_max: 7,
    };
    check(&written(|out| execute(out, b"p", 7)), expect);
    check(&written(flush), Request::Flush);
    check(&written(sync), Request::Sync);
    check(&written(terminate), Request::Terminate);
    let expect = Request::CopyFail {
        reason: b"the client left",
    };
    check(&written(|out| copy_fail(out, b"the client left")), expect);
}

#[test]
fn a_zero_byte_in_a_name_cannot_begin_another_message() {
    let bytes = written(|out| query(out, b"SELECT 1\0Q\0\0\0\x08drop"));
    check(&bytes, Request::Query { text: b"SELECT 1" });
    let bytes = written(|out| parameter_status(out, b"a\0b", b"c"));
    assert_eq!(bytes, b"S\0\0\0\x08a\0c\0");
}

#[test]
fn statements_are_renamed_under_the_right_length() {
    let values = [Some(&b"some value"[..])];
    for (bytes, renamed) in [
        (
            written(|out| parse(out, b"old", b"SELECT 1", &[])),
            written(|out| parse(out, b"evenkeel_77", b"SELECT 1", &[])),
        ),
        (
            written(|out| bind(out, b"p", b"old", &values)),
            written(|out| bind(out, b"p", b"evenkeel_77", &values)),
        ),
        (
            written(|out| describe(out, Target::Statement(b"old"))),
            written(|out| describe(out, Target::Statement(b"evenkeel_77"))),
        ),
        (
            written(|out| close(out, Target::Statement(b""))),
            written(|out| close(out, Target::Statement(b"evenkeel_77"))),
        ),
    ] {
        let Parsed::Frame(header, _) = frame::header(&bytes) else {
            panic!()
        };
        let Parsed::Frame(found, consumed) = names::names(header, &bytes) else {
            panic!()
        };
        let old = found.statement.unwrap();
        let mut out = Vec::new();
        names::write_renamed(&mut out, header, &bytes, old, b"evenkeel_77");
        out.extend_from_slice(&bytes[old.end..]);
        assert_eq!(out, renamed);
        for cut in 0..consumed {
            match names::names(header, &bytes[..cut]) {
                Parsed::Incomplete { need } => assert!(need > cut && need <= consumed),
                other => panic!("{other:?} at {cut}"),
            }
        }
    }
}

#[test]
fn messages_without_names_have_none_and_wrong_ones_are_found() {
    let bytes = written(|out| query(out, b"SELECT 1"));
    let Parsed::Frame(header, _) = frame::header(&bytes) else {
        panic!()
    };
    assert_eq!(
        names::names(header, &bytes),
        Parsed::Frame(Names::default(), 5)
    );
    for bytes in [
        &b"D\0\0\0\x06X\0"[..],
        b"C\0\0\0\x06Sa",
        b"B\0\0\0\x06a\0",
        b"E\0\0\0\x04",
    ] {
        let Parsed::Frame(header, _) = frame::header(bytes) else {
            panic!()
        };
        let found = names::names(header, bytes);
        assert_eq!(found, Parsed::Invalid(ProtocolError::Malformed(bytes[0])));
    }
}
