//! Streams of a server, whole and split at every byte.

use super::*;
use crate::postgres::backend::SqlState;
use crate::postgres::build;

/// Returns the events, how many bytes were passed, and how many were consumed.
fn walk(bytes: &[u8], cut: usize) -> (Vec<String>, usize, usize) {
    let mut boundaries = ServerScanner::new();
    let (mut events, mut passed_all, mut consumed) = (Vec::new(), 0, 0);
    for end in [cut, bytes.len()] {
        loop {
            match boundaries.next(&bytes[consumed..end]) {
                Step::Event {
                    passed,
                    event,
                    length,
                } => {
                    passed_all += passed;
                    consumed += passed + length;
                    events.push(format!("{event:?}"));
                }
                Step::Wait { passed, need } => {
                    passed_all += passed;
                    consumed += passed;
                    assert!(need > end - consumed, "asks for what it has");
                    assert!(need <= HELD_LENGTH_MAX);
                    break;
                }
                Step::Invalid(fault) => panic!("{fault}"),
            }
        }
    }
    assert!(boundaries.is_at_border());
    (events, passed_all, consumed)
}

#[track_caller]
fn check(bytes: &[u8], expect: &[&str], passed: usize) {
    for cut in 0..=bytes.len() {
        let (events, passed_over, consumed) = walk(bytes, cut);
        assert_eq!(events, expect, "cut at {cut}");
        assert_eq!(
            (passed_over, consumed),
            (passed, bytes.len()),
            "cut at {cut}"
        );
    }
}

#[test]
fn a_query_of_postgresql_15_stops_where_it_matters() {
    // copy t from stdin; select 5
    let bytes = b"G\0\0\0\x0b\0\0\x02\0\0\0\0C\0\0\0\x0bCOPY 2\0\
        T\0\0\0!\0\x01?column?\0\0\0\0\0\0\0\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0\
        D\0\0\0\x0b\0\x01\0\0\0\x015C\0\0\0\rSELECT 1\0Z\0\0\0\x05I";
    let command = |tag: &str| format!("CommandComplete(CommandTag({:?}))", tag.as_bytes());
    let expect = [
        "CopyIn",
        &command("COPY 2"),
        "RowDescription",
        &command("SELECT 1"),
        "ReadyForQuery(Idle)",
    ];
    // The bodies of G and T, and the row.
    check(bytes, &expect, 7 + 29 + 12);
}

#[test]
fn long_rows_and_copy_data_are_stepped_over_without_being_held() {
    let mut bytes = Vec::new();
    build::data_row(&mut bytes, &[Some(&[b'x'; 20_000])]);
    let row = bytes.len();
    build::ready_for_query(&mut bytes, TransactionStatus::InTransaction);
    let mut boundaries = ServerScanner::new();
    assert_eq!(
        boundaries.next(&bytes[..6000]),
        Step::Wait {
            passed: 6000,
            need: 1
        }
    );
    assert!(!boundaries.is_at_border());
    let step = boundaries.next(&bytes[6000..]);
    let event = Event::ReadyForQuery(TransactionStatus::InTransaction);
    assert_eq!(
        step,
        Step::Event {
            passed: row - 6000,
            event,
            length: 6
        }
    );
}

#[test]
fn of_a_very_long_error_the_beginning_is_enough() {
    let long = "long ".repeat(2_000);
    let text = build::ErrorText {
        severity: "ERROR",
        sqlstate: SqlState(*b"P0001"),
        message: &long,
        detail: "",
        hint: "",
    };
    let mut bytes = Vec::new();
    build::error(&mut bytes, &text);
    let error = bytes.len();
    build::ready_for_query(&mut bytes, TransactionStatus::Failed);
    let mut boundaries = ServerScanner::new();
    let Step::Event { event, length, .. } = boundaries.next(&bytes) else {
        panic!()
    };
    let Event::Error(report) = event else {
        panic!("{event:?}")
    };
    assert_eq!(report.sqlstate(), SqlState(*b"P0001"));
    assert_eq!(length, HELD_LENGTH_MAX);
    let Step::Event { passed, .. } = boundaries.next(&bytes[length..]) else {
        panic!()
    };
    assert_eq!(passed, error - HELD_LENGTH_MAX);
}

#[test]
fn a_long_parameter_is_told_whole() {
    let value = [b'a'; 5_000];
    let mut bytes = Vec::new();
    build::parameter_status(&mut bytes, b"search_path", &value);
    let event = ServerScanner::new().next(&bytes);
    let Step::Event { event, .. } = event else {
        panic!("{event:?}")
    };
    let reported = Event::ParameterStatus(Some((b"search_path", &value)));
    assert_eq!(event, reported);
}

#[test]
fn a_parameter_that_is_too_long_is_told_without_its_value() {
    let mut bytes = Vec::new();
    build::parameter_status(&mut bytes, b"search_path", &[b'a'; REPORT_LENGTH_MAX]);
    let event = ServerScanner::new().next(&bytes);
    assert!(matches!(
        event,
        Step::Event {
            event: Event::ParameterStatus(None),
            ..
        }
    ));
}

#[test]
fn what_no_server_sends_is_invalid() {
    for (bytes, fault) in [
        (&b"Q\0\0\0\x04"[..], ProtocolError::UnknownTag(b'Q')),
        (b"Z\0\0\0\x05X", ProtocolError::Malformed(b'Z')),
        (b"Z\0\0\0\x06II", ProtocolError::Malformed(b'Z')),
        (b"1\0\0\0\x05x", ProtocolError::Malformed(b'1')),
        (b"D\0\0\0\x03", ProtocolError::LengthTooSmall(3)),
        (b"E\0\0\0\x05x", ProtocolError::Malformed(b'E')),
    ] {
        assert_eq!(ServerScanner::new().next(bytes), Step::Invalid(fault));
    }
}
