//! Tests that replies are rewritten for clients with other capabilities than the server's. Whole
//! conversations are tested in `crates/wire/tests/corpus.rs`.

use super::*;
use crate::mysql::frontend::Execute;
use crate::mysql::server_scanner::{ExpectedReply, ServerScanner, Step};
use crate::mysql::trackers::Change;

const MODERN: Capabilities =
    Capabilities(Capabilities::DEPRECATE_EOF.0 | Capabilities::SESSION_TRACK.0);
const LEGACY: Capabilities = Capabilities(0);
const QUERY_ATTRIBUTES: Capabilities = Capabilities::QUERY_ATTRIBUTES;

/// Returns the bytes that a client receives of one reply.
fn rewrite_reply(
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

const MODERN_ROWS: &[u8] =
    b"\x01\0\0\x01\x01\x02\0\0\x02\x03d\x02\0\0\x03\x011\x07\0\0\x04\xfe\0\0\x02\0\0\0";
const LEGACY_ROWS: &[u8] = b"\x01\0\0\x01\x01\x02\0\0\x02\x03d\x05\0\0\x03\xfe\0\0\x02\0\
    \x02\0\0\x04\x011\x05\0\0\x05\xfe\0\0\x02\0";

#[test]
fn eof_packets_are_added_or_removed_and_packets_renumbered() {
    assert_eq!(
        rewrite_reply(MODERN_ROWS, (MODERN, LEGACY), |_| true),
        LEGACY_ROWS
    );
    assert_eq!(
        rewrite_reply(LEGACY_ROWS, (LEGACY, MODERN), |_| true),
        MODERN_ROWS
    );
    assert_eq!(
        rewrite_reply(MODERN_ROWS, (MODERN, MODERN), |_| false),
        MODERN_ROWS
    );
    assert_eq!(
        rewrite_reply(LEGACY_ROWS, (LEGACY, LEGACY), |_| false),
        LEGACY_ROWS
    );
}

#[test]
fn trackers_are_removed_unless_the_client_supports_and_wants_them() {
    let ok =
        b"\x1b\0\0\x01\0\x01\0\x02\x40\0\0\0\x12\x00\x08\x01a\x011\x01b\x012\x01\x02\x01s\x02\x011";
    let mut ok = ok.to_vec();
    ok[0] = (ok.len() - 4) as u8;
    ok[12] = (ok.len() - 13) as u8;
    assert_eq!(rewrite_reply(&ok, (MODERN, MODERN), |_| true), ok);
    let without_trackers = b"\x07\0\0\x01\0\x01\0\x02\0\0\0";
    assert_eq!(
        rewrite_reply(&ok, (MODERN, MODERN), |_| false),
        without_trackers
    );
    assert_eq!(
        rewrite_reply(&ok, (MODERN, LEGACY), |_| true),
        without_trackers
    );
    let one = rewrite_reply(&ok, (MODERN, MODERN), |tracker| {
        matches!(tracker.change, Change::Variable { name: b"b", .. })
    });
    assert_eq!(
        one,
        b"\x0f\0\0\x01\0\x01\0\x02\x40\0\0\0\x06\x00\x04\x01b\x012"
    );
    let renamed = rewrite_reply(&ok, (MODERN, MODERN), |tracker| {
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
fn info_text_of_ok_is_kept_without_session_track() {
    let ok = b"\x0b\0\0\x01\0\x01\0\x02\0\0\0\x03abc";
    assert_eq!(rewrite_reply(ok, (MODERN, LEGACY), |_| true), ok);
    assert_eq!(rewrite_reply(ok, (LEGACY, MODERN), |_| true), ok);
}

#[test]
fn set_statement_writes_the_statement_id() {
    let mut packet = b"\x05\0\0\0\x19\xff\xff\xff\xff".to_vec();
    assert!(set_statement(&mut packet, StatementId(0x0403_0201)));
    assert_eq!(packet, b"\x05\0\0\0\x19\x01\x02\x03\x04");
    assert!(!set_statement(&mut packet[..8], StatementId(1)));
}

#[test]
fn parameter_names_are_removed_or_added() {
    let named = Execute {
        statement: StatementId(1),
        flags: Execute::COUNT_AVAILABLE,
        values: b"\x01\0\0\0\x02\0\x01\x03\0\0\xfd\0\x01a\x05\0\0\0\x01x",
    };
    let mut out = Vec::new();
    execute(&mut out, &named, 1, QUERY_ATTRIBUTES, LEGACY).unwrap();
    let plain = b"\x11\0\0\0\x17\x01\0\0\0\0\x01\0\0\0\0\x01\x03\0\x05\0\0\0";
    assert_eq!(out[4..], plain[4..]);
    let plain = Execute {
        flags: 0,
        values: &plain[10..],
        ..named
    };
    let mut out = Vec::new();
    execute(&mut out, &plain, 1, LEGACY, QUERY_ATTRIBUTES).unwrap();
    assert_eq!(
        &out[4..],
        b"\x17\x01\0\0\0\0\x01\0\0\0\x01\0\x01\x03\0\0\x05\0\0\0"
    );
    let mut out = Vec::new();
    query(&mut out, b"\x01\x01\x01\x01\x03\0\0", b"DO 1", LEGACY);
    assert_eq!(out, b"\x05\0\0\0\x03DO 1");
    let attributes_only = Execute {
        values: b"\x01\0\0\0\x01\0\x01\x03\0\x01a\x05\0\0\0",
        ..named
    };
    let mut out = Vec::new();
    execute(&mut out, &attributes_only, 0, QUERY_ATTRIBUTES, LEGACY).unwrap();
    assert_eq!(&out[4..], b"\x17\x01\0\0\0\0\x01\0\0\0");
}
