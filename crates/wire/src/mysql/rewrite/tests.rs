//! Replies for clients with other capabilities than the server's; the corpus has whole
//! conversations.

use super::*;
use crate::mysql::frontend::Execute;
use crate::mysql::server_scanner::{ExpectedReply, ServerScanner, Step};
use crate::mysql::trackers::Change;

const NEW: Capabilities =
    Capabilities(Capabilities::DEPRECATE_EOF.0 | Capabilities::SESSION_TRACK.0);
const OLD: Capabilities = Capabilities(0);
const NAMED: Capabilities = Capabilities::QUERY_ATTRIBUTES;

/// Returns the bytes that a client receives of one reply.
fn through(
    reply: &[u8],
    (server, client): (Capabilities, Capabilities),
    keep: fn(&mut Tracker<'_>) -> bool,
) -> Vec<u8> {
    let mut transcoder = Transcoder::new(server, client);
    let mut boundaries = ServerScanner::new(server);
    let (mut out, mut at) = (Vec::new(), 0);
    loop {
        match boundaries.next(&reply[at..], ExpectedReply::Results) {
            Step::Event {
                passed,
                event,
                length,
            } => {
                let mut bytes = reply[at..at + passed + length].to_vec();
                let (before, packet) = bytes.split_at_mut(passed);
                transcoder.passed(before);
                out.extend_from_slice(before);
                if transcoder.event(&event, packet, &mut out, keep) == Rewrite::Same {
                    out.extend_from_slice(packet);
                }
                at += passed + length;
            }
            Step::Wait { .. } => return out,
            Step::Invalid(fault) => panic!("{fault}"),
        }
    }
}

const NEW_ROWS: &[u8] =
    b"\x01\0\0\x01\x01\x02\0\0\x02\x03d\x02\0\0\x03\x011\x07\0\0\x04\xfe\0\0\x02\0\0\0";
const OLD_ROWS: &[u8] = b"\x01\0\0\x01\x01\x02\0\0\x02\x03d\x05\0\0\x03\xfe\0\0\x02\0\
    \x02\0\0\x04\x011\x05\0\0\x05\xfe\0\0\x02\0";

#[test]
fn eofs_come_and_go_and_the_numbers_follow() {
    assert_eq!(through(NEW_ROWS, (NEW, OLD), |_| true), OLD_ROWS);
    assert_eq!(through(OLD_ROWS, (OLD, NEW), |_| true), NEW_ROWS);
    assert_eq!(through(NEW_ROWS, (NEW, NEW), |_| false), NEW_ROWS);
    assert_eq!(through(OLD_ROWS, (OLD, OLD), |_| false), OLD_ROWS);
}

#[test]
fn trackers_are_hidden_from_who_did_not_ask() {
    let ok =
        b"\x1b\0\0\x01\0\x01\0\x02\x40\0\0\0\x12\x00\x08\x01a\x011\x01b\x012\x01\x02\x01s\x02\x011";
    let mut ok = ok.to_vec();
    ok[0] = (ok.len() - 4) as u8;
    ok[12] = (ok.len() - 13) as u8;
    assert_eq!(through(&ok, (NEW, NEW), |_| true), ok);
    let hidden = b"\x07\0\0\x01\0\x01\0\x02\0\0\0";
    assert_eq!(through(&ok, (NEW, NEW), |_| false), hidden);
    assert_eq!(through(&ok, (NEW, OLD), |_| true), hidden);
    let one = through(&ok, (NEW, NEW), |tracker| {
        matches!(tracker.change, Change::Variable { name: b"b", .. })
    });
    assert_eq!(
        one,
        b"\x0f\0\0\x01\0\x01\0\x02\x40\0\0\0\x06\x00\x04\x01b\x012"
    );
    let renamed = through(&ok, (NEW, NEW), |tracker| {
        let is_one = matches!(tracker.change, Change::Variable { name: b"b", .. });
        tracker.rename(b"cc", b"3");
        is_one
    });
    assert_eq!(
        renamed,
        b"\x10\0\0\x01\0\x01\0\x02\x40\0\0\0\x07\x00\x05\x02cc\x013"
    );
}

#[test]
fn words_for_people_survive_where_trackers_are_not_understood() {
    let ok = b"\x0b\0\0\x01\0\x01\0\x02\0\0\0\x03abc";
    assert_eq!(through(ok, (NEW, OLD), |_| true), ok);
    assert_eq!(through(ok, (OLD, NEW), |_| true), ok);
}

#[test]
fn a_statements_number_is_put_into_its_packets() {
    let mut packet = b"\x05\0\0\0\x19\xff\xff\xff\xff".to_vec();
    assert!(set_statement(&mut packet, StatementId(0x0403_0201)));
    assert_eq!(packet, b"\x05\0\0\0\x19\x01\x02\x03\x04");
    assert!(!set_statement(&mut packet[..8], StatementId(1)));
}

#[test]
fn parameters_lose_and_gain_names() {
    let named = Execute {
        statement: StatementId(1),
        flags: Execute::COUNT_AVAILABLE,
        values: b"\x01\0\0\0\x02\0\x01\x03\0\0\xfd\0\x01a\x05\0\0\0\x01x",
    };
    let mut out = Vec::new();
    execute(&mut out, &named, 1, NAMED, OLD).unwrap();
    let plain = b"\x11\0\0\0\x17\x01\0\0\0\0\x01\0\0\0\0\x01\x03\0\x05\0\0\0";
    assert_eq!(out[4..], plain[4..]);
    let plain = Execute {
        flags: 0,
        values: &plain[10..],
        ..named
    };
    let mut out = Vec::new();
    execute(&mut out, &plain, 1, OLD, NAMED).unwrap();
    assert_eq!(
        &out[4..],
        b"\x17\x01\0\0\0\0\x01\0\0\0\x01\0\x01\x03\0\0\x05\0\0\0"
    );
    let mut out = Vec::new();
    query(&mut out, b"\x01\x01\x01\x01\x03\0\0", b"DO 1", OLD);
    assert_eq!(out, b"\x05\0\0\0\x03DO 1");
    let attributes_only = Execute {
        values: b"\x01\0\0\0\x01\0\x01\x03\0\x01a\x05\0\0\0",
        ..named
    };
    let mut out = Vec::new();
    execute(&mut out, &attributes_only, 0, NAMED, OLD).unwrap();
    assert_eq!(&out[4..], b"\x17\x01\0\0\0\0\x01\0\0\0");
}
