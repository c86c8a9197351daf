//! Replies written by hand, split at every byte.

use super::*;
use crate::mysql::build;
use crate::mysql::frame::PAYLOAD_LENGTH_MAX;
use crate::mysql::trackers::Trackers;

const NEW: Capabilities =
    Capabilities(Capabilities::DEPRECATE_EOF.0 | Capabilities::SESSION_TRACK.0);
const OLD: Capabilities = Capabilities(0);

/// Returns the events of `bytes`, which become available in pieces, and the remaining bytes.
fn events(bytes: &[u8], agreed: Capabilities, answer: ExpectedReply, piece: usize) -> Vec<String> {
    let mut boundaries = ServerScanner::new(agreed);
    let (mut all, mut at, mut end) = (Vec::new(), 0, 0);
    loop {
        match boundaries.next(&bytes[at..end], answer) {
            Step::Event {
                passed,
                event,
                length,
            } => {
                at += passed + length;
                all.push(name(&event));
            }
            Step::Wait { passed, need } => {
                at += passed;
                assert!(need > end - at);
                if end == bytes.len() {
                    break;
                }
                end = (end + piece).min(bytes.len());
            }
            Step::Invalid(fault) => {
                all.push(fault.to_string());
                return all;
            }
        }
    }
    assert_eq!(at, bytes.len());
    all
}

fn name(event: &Event<'_>) -> String {
    let status = event.status().map(|status| status.0);
    match event {
        Event::ResultHeader { columns } => format!("header {columns}"),
        Event::MetadataEnd { sequence, .. } => format!("metadata end {sequence}"),
        Event::ResultEnd(_) => format!("end {}", status.unwrap()),
        Event::Ok(_) => format!("ok {}", status.unwrap()),
        Event::Eof(_) => format!("eof {}", status.unwrap()),
        Event::Error(report) => format!("error {}", report.code),
        Event::PrepareOk(ok) => format!("prepared {}", ok.statement.0),
        other => format!("{other:?}").to_lowercase(),
    }
}

#[track_caller]
fn check(bytes: &[u8], agreed: Capabilities, answer: ExpectedReply, expect: &[&str]) {
    for piece in [1, 2, 3, 5, 64, usize::MAX / 2] {
        assert_eq!(events(bytes, agreed, answer, piece), expect, "{piece}");
    }
}

fn packets(payloads: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut sequence = 1;
    for payload in payloads {
        sequence = build::packet(&mut out, sequence, |out| out.extend_from_slice(payload));
    }
    out
}

const DEFINITION: &[u8] = b"\x03def\0\0\0\x011\0\x0c\x3f\0\x01\0\0\0\x08\x81\0\0\0\0";

#[test]
fn a_result_has_a_header_an_end_of_definitions_and_an_end() {
    let rows = packets(&[b"\x01", DEFINITION, b"\x011", b"\0", b"\xfe\0\0\x02\0\0\0"]);
    let expect = ["header 1", "metadata end 3", "end 2"];
    check(&rows, NEW, ExpectedReply::Results, &expect);
    let rows = packets(&[
        b"\x01",
        DEFINITION,
        b"\xfe\0\0\x22\0",
        b"\x011",
        b"\xfe\0\0\x22\0",
    ]);
    check(
        &rows,
        OLD,
        ExpectedReply::Results,
        &["header 1", "metadata end 3", "end 34"],
    );
    let none = packets(&[b"\x01", DEFINITION, b"\xfe\0\0\x02\0\0\0"]);
    check(&none, NEW, ExpectedReply::Results, &expect);
    let failed = packets(&[b"\x01", DEFINITION, b"\x011", b"\xff\x15\x04#28000no"]);
    let expect = ["header 1", "metadata end 3", "error 1045"];
    check(&failed, NEW, ExpectedReply::Results, &expect);
}

#[test]
fn a_cursor_has_no_rows() {
    let new = packets(&[b"\x01", DEFINITION, b"\xfe\0\0\x42\0\0\0"]);
    check(&new, NEW, ExpectedReply::Results, &["header 1", "end 66"]);
    let old = packets(&[b"\x01", DEFINITION, b"\xfe\0\0\x42\0"]);
    check(&old, OLD, ExpectedReply::Results, &["header 1", "end 66"]);
    let fetched = packets(&[b"\0\0\x01a", b"\0\0\x01b", b"\xfe\0\0\x82\0"]);
    check(&fetched, OLD, ExpectedReply::Rows, &["end 130"]);
}

#[test]
fn a_procedure_s_own_cursor_hides_no_rows() {
    let row = b"\0\0\x01a";
    let of_result = [
        b"\x01",
        DEFINITION,
        b"\xfe\0\0\x4a\0",
        row,
        b"\xfe\0\0\x4a\0",
    ];
    let old = packets(&[&of_result[..], &[b"\0\0\0\x22\0\0\0"]].concat());
    let expect = ["header 1", "metadata end 3", "end 74", "ok 34"];
    check(&old, OLD, ExpectedReply::Results, &expect);
}

#[test]
fn values_that_begin_like_an_end_are_none() {
    // A first value of 16 MiB or more, in two packets; the second packet begins like an end, too.
    let mut long = b"\xfe\0\0\0\x01\0\0\0\0".to_vec();
    long.resize(PAYLOAD_LENGTH_MAX as usize, b'x');
    long.extend_from_slice(&[0xfe, 0, 0, 2, 0, 0, 0]);
    long.resize(9 + 0x0100_0000, b'x');
    for (agreed, end) in [(NEW, &b"\xfe\0\0\x02\0\0\0"[..]), (OLD, b"\xfe\0\0\x02\0")] {
        let eof: &[&[u8]] = if agreed == OLD { &[end] } else { &[] };
        let mut payloads: Vec<&[u8]> = vec![b"\x01", DEFINITION];
        payloads.extend(eof);
        payloads.extend([long.as_slice(), b"\x01a", end]);
        let bytes = packets(&payloads);
        for piece in [65_536, 1 << 24] {
            let seen = events(&bytes, agreed, ExpectedReply::Results, piece);
            assert_eq!(seen, ["header 1", "metadata end 3", "end 2"]);
        }
    }
    let full = vec![b'y'; PAYLOAD_LENGTH_MAX as usize];
    let bytes = packets(&[b"\x01", DEFINITION, &full, b"\xfe\0\0\x02\0\0\0"]);
    let seen = events(&bytes, NEW, ExpectedReply::Results, 1 << 20);
    assert_eq!(seen, ["header 1", "metadata end 3", "end 2"]);
}

#[test]
fn the_answer_to_prepare_is_complete_behind_its_definitions() {
    let prepared =
        |columns: u8, parameters: u8| [0, 5, 0, 0, 0, columns, 0, parameters, 0, 0, 0, 0].to_vec();
    let none = packets(&[&prepared(0, 0)]);
    check(
        &none,
        OLD,
        ExpectedReply::Prepare,
        &["prepared 5", "complete"],
    );
    let both = packets(&[&prepared(1, 2), DEFINITION, DEFINITION, DEFINITION]);
    let ends = ["prepared 5", "metadata end 4", "metadata end 5", "complete"];
    check(&both, NEW, ExpectedReply::Prepare, &ends);
    let eof = b"\xfe\0\0\x02\0";
    let both = packets(&[&prepared(1, 1), DEFINITION, eof, DEFINITION, eof]);
    let ends = ["prepared 5", "metadata end 3", "metadata end 5", "complete"];
    check(&both, OLD, ExpectedReply::Prepare, &ends);
}

#[test]
fn other_replies() {
    check(
        &packets(&[b"\xfbname"]),
        OLD,
        ExpectedReply::Results,
        &["localinfile { name: [110, 97, 109, 101] }"],
    );
    check(
        &packets(&[b"\xfe\0\0\x02\0"]),
        OLD,
        ExpectedReply::Simple,
        &["eof 2"],
    );
    check(
        &packets(&[b"\xfe\0\0\x02\0\0\0"]),
        NEW,
        ExpectedReply::Simple,
        &["ok 2"],
    );
    check(
        &packets(&[b"Uptime: 5"]),
        OLD,
        ExpectedReply::Text,
        &["text"],
    );
    check(
        &packets(&[b"\xfeplugin\0data"]),
        OLD,
        ExpectedReply::Login,
        &["login(254)"],
    );
    let progress = packets(&[b"\xff\xff\xff\x01\x02\x02\0\0\0\x01a", b"\0\0\0\x02\0\0\0"]);
    let agreed = NEW.with(Capabilities::PROGRESS);
    check(
        &progress,
        agreed,
        ExpectedReply::Results,
        &["progress", "ok 2"],
    );
    let events = packets(&[b"\0event", b"\0\xfe", b"\xff\xd4\x04#HY000no"]);
    check(&events, NEW, ExpectedReply::Stream, &["error 1236"]);
    // End of a binary log as MariaDB sends it, and as MySQL does.
    for end in [b"\xfe\0\0\x02\0".as_slice(), b"\xfe\0\0\x02\0\0\0"] {
        let events = packets(&[b"\0event", end]);
        let expect = if end.len() > 5 { "ok 2" } else { "eof 2" };
        check(&events, NEW, ExpectedReply::Stream, &[expect]);
    }
    let cached = packets(&[b"\x01\0", b"\x011", b"\xfe\0\0\x02\0\0\0"]);
    let agreed = NEW.with(Capabilities::CACHE_METADATA);
    check(
        &cached,
        agreed,
        ExpectedReply::Results,
        &["header 0", "metadata end 2", "end 2"],
    );
}

#[test]
fn what_is_no_reply_is_invalid() {
    let malformed = "malformed result set header";
    check(
        &packets(&[b"\x01x"]),
        NEW,
        ExpectedReply::Results,
        &[malformed],
    );
    check(
        &packets(&[b"\x05"]),
        NEW,
        ExpectedReply::Simple,
        &[malformed],
    );
    check(
        &packets(&[b"\0\0"]),
        NEW,
        ExpectedReply::Results,
        &["malformed OK packet"],
    );
    let empty = "malformed reply (empty packet)";
    check(&packets(&[b""]), NEW, ExpectedReply::Results, &[empty]);
}

#[test]
fn of_an_ok_too_long_to_hold_the_numbers_are_told() {
    // One OK that is slightly too long, and one that continues in a second packet.
    for length in [HELD_LENGTH_MAX + 70_000, PAYLOAD_LENGTH_MAX as usize + 5] {
        check_long_ok(length);
    }
}

fn check_long_ok(length: usize) {
    let state = vec![5; length];
    let ok = OkPacket {
        affected_rows: 5,
        status: Status::AUTOCOMMIT,
        session_state: &state,
        ..OkPacket::default()
    };
    let mut bytes = Vec::new();
    let next = build::ok(&mut bytes, 1, &ok, NEW);
    build::ok(&mut bytes, next, &OkPacket::default(), NEW);
    let mut boundaries = ServerScanner::new(NEW);
    let Step::Event {
        event: Event::Ok(read),
        length,
        ..
    } = boundaries.next(&bytes, ExpectedReply::Simple)
    else {
        panic!("no OK");
    };
    assert!(read.is_cut && read.affected_rows == 5 && length == HELD_LENGTH_MAX);
    assert_eq!(Trackers::new(read.session_state).count(), 0);
    let Step::Event { passed, event, .. } =
        boundaries.next(&bytes[length..], ExpectedReply::Simple)
    else {
        panic!("no second OK");
    };
    assert!(matches!(event, Event::Ok(ok) if !ok.is_cut));
    assert!(passed > 50_000);
}

#[test]
fn rows_are_counted_whatever_is_agreed_and_however_they_are_cut() {
    for agreed in [OLD, NEW] {
        let mut bytes = Vec::new();
        let mut sequence = build::column_count(&mut bytes, 1, 1, agreed);
        sequence = build::column(&mut bytes, sequence, b"a", agreed);
        if agreed == OLD {
            sequence = build::result_end(&mut bytes, sequence, Status::default(), agreed);
        }
        let long = vec![b'x'; PAYLOAD_LENGTH_MAX as usize];
        for value in [Some(&b"1"[..]), None, Some(&long)] {
            sequence = build::text_row(&mut bytes, sequence, &[value]);
        }
        build::result_end(&mut bytes, sequence, Status::default(), agreed);
        for piece in [1_000, bytes.len()] {
            let mut boundaries = ServerScanner::new(agreed);
            let (mut at, mut end) = (0, 0);
            while at < bytes.len() {
                end = (end + piece).min(bytes.len());
                loop {
                    match boundaries.next(&bytes[at..end], ExpectedReply::Results) {
                        Step::Event { passed, length, .. } => at += passed + length,
                        Step::Wait { passed, .. } => {
                            at += passed;
                            break;
                        }
                        Step::Invalid(fault) => panic!("{fault}"),
                    }
                }
            }
            assert_eq!(boundaries.take_rows(), 3);
            assert_eq!(boundaries.take_rows(), 0);
        }
    }
}
