//! Messages of a server, whole and damaged.

use super::*;
use crate::postgres::frame;
use crate::postgres::{Parsed, build};

#[track_caller]
fn whole(bytes: &[u8]) -> Frame<'_> {
    match frame::frame(bytes, frame::LENGTH_MAX) {
        Parsed::Frame(frame, length) if length == bytes.len() => frame,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn check(bytes: &[u8], expect: Message<'_>) {
    let frame = whole(bytes);
    assert_eq!(message(frame), Ok(expect));
    // A truncated or too long body is malformed, except in messages whose body is not parsed.
    let open = matches!(
        frame.tag,
        b'D' | b'd' | b'T' | b't' | b'G' | b'H' | b'W' | b'V'
    );
    if !open {
        let longer = [frame.body, b"\0"].concat();
        for body in [&longer[..], &longer[..longer.len().saturating_sub(2)]] {
            let other = Frame {
                tag: frame.tag,
                body,
            };
            let same = body == frame.body;
            assert!(same || message(other) != Ok(expect), "{body:?}");
        }
    }
}

#[test]
fn an_error_of_postgresql_15_is_read_field_by_field() {
    let bytes = b"E\0\0\0\x63SERROR\0VERROR\0C42883\0Mfunction with OID 999999 does not exist\0\
        Ffastpath.c\0L139\0Rfetch_fp_info\0\0";
    let Ok(Message::Error(report)) = message(whole(bytes)) else {
        panic!()
    };
    assert_eq!(report.sqlstate(), SqlState(*b"42883"));
    assert_eq!(report.sqlstate().to_string(), "42883");
    assert_eq!(report.text(), b"function with OID 999999 does not exist");
    assert_eq!(report.field(b'F'), Some(&b"fastpath.c"[..]));
    assert_eq!(report.field(b'H'), None);
    assert_eq!(report.fields().count(), 7);
    assert!(!report.is_fatal());
}

#[test]
fn severity_is_read_where_it_is_not_translated() {
    let fatal = ErrorReport::read(b"SFATAL\0VFATAL\0C57P01\0Mx\0\0").unwrap();
    assert!(fatal.is_fatal());
    assert!(
        ErrorReport::read(b"SSCHWERWIEGEND\0VPANIC\0\0")
            .unwrap()
            .is_fatal()
    );
    assert!(
        ErrorReport::read(b"SFATAL\0\0").unwrap().is_fatal(),
        "before 9.6"
    );
    assert!(!ErrorReport::read(b"SERROR\0\0").unwrap().is_fatal());
    assert_eq!(
        ErrorReport::read(b"\0").unwrap().sqlstate(),
        SqlState(*b"XX000")
    );
    for body in [&b""[..], b"SERROR\0", b"SERROR", b"SERROR\0\0x"] {
        assert_eq!(ErrorReport::read(body), None, "{body:?}");
    }
}

#[test]
fn small_messages_are_read() {
    check(
        b"Z\0\0\0\x05T",
        Message::ReadyForQuery(TransactionStatus::InTransaction),
    );
    check(
        b"K\0\0\0\x0c\0\0\0\x01abcd",
        Message::BackendKeyData {
            process: 1,
            secret: b"abcd",
        },
    );
    check(
        b"S\0\0\0\x09a\0bc\0",
        Message::ParameterStatus {
            name: b"a",
            value: b"bc",
        },
    );
    check(
        b"A\0\0\0\x0c\0\0\0\x02c\0p\0",
        Message::Notification {
            process: 2,
            channel: b"c",
            payload: b"p",
        },
    );
    check(b"1\0\0\0\x04", Message::ParseComplete);
    check(
        b"R\0\0\0\x0c\0\0\0\x05salt",
        Message::Authentication(Authentication::Md5Password { salt: *b"salt" }),
    );
    assert!(message(whole(b"Z\0\0\0\x05X")).is_err());
    assert_eq!(
        message(whole(b"?\0\0\0\x04")),
        Err(ProtocolError::UnknownTag(b'?'))
    );
}

#[test]
fn mechanisms_are_listed() {
    let mut bytes = Vec::new();
    build::authentication_sasl(&mut bytes, &[b"SCRAM-SHA-256-PLUS", b"SCRAM-SHA-256"]);
    let Ok(Message::Authentication(Authentication::Sasl(offered))) = message(whole(&bytes)) else {
        panic!()
    };
    let names: Vec<_> = offered.names().collect();
    assert_eq!(names, [&b"SCRAM-SHA-256-PLUS"[..], b"SCRAM-SHA-256"]);
}

#[test]
fn command_tags_have_a_command_and_a_count() {
    for (tag, command, rows) in [
        ("INSERT 0 5", "INSERT", Some(5)),
        ("SELECT 12", "SELECT", Some(12)),
        ("CREATE TABLE", "CREATE TABLE", None),
        ("DISCARD ALL", "DISCARD ALL", None),
        ("COPY 0", "COPY", Some(0)),
        ("", "", None),
    ] {
        let tag = CommandTag(tag.as_bytes());
        assert_eq!(tag.command(), command.as_bytes());
        assert_eq!(tag.rows(), rows);
    }
}

#[test]
fn rows_are_read_with_their_nulls_and_columns_with_their_types() {
    let mut bytes = Vec::new();
    build::data_row(&mut bytes, &[Some(b"a"), None, Some(b"")]);
    let read: Vec<_> = values(&bytes[5..]).collect();
    assert_eq!(read, [Some(&b"a"[..]), None, Some(b"")]);
    for cut in 0..bytes.len() - 5 {
        assert!(values(&bytes[5..][..cut]).count() <= 3);
    }
    bytes.clear();
    build::row_description(&mut bytes, &[b"x", b"y"]);
    let read: Vec<_> = columns(&bytes[5..])
        .map(|one| (one.name, one.type_oid))
        .collect();
    assert_eq!(read, [(&b"x"[..], 25), (b"y", 25)]);
}

#[test]
fn the_rows_of_a_reply_are_found_among_its_messages() {
    let mut bytes = Vec::new();
    let to = &mut bytes;
    build::row_description(to, &[b"a", b"b"]);
    build::data_row(to, &[Some(b"1"), None]);
    build::parameter_status(to, b"D", b"D");
    build::data_row(to, &[Some(b"2"), Some(b"")]);
    let end = to.len();
    build::command_complete(to, b"SELECT 2");
    build::ready_for_query(to, TransactionStatus::Idle);
    let read: Vec<Vec<_>> = rows(&bytes).map(|row| values(row).collect()).collect();
    assert_eq!(
        read,
        [[Some(&b"1"[..]), None], [Some(&b"2"[..]), Some(b"")]]
    );
    assert_eq!(rows(&bytes[..end - 1]).count(), 1, "half a row is none");
}
