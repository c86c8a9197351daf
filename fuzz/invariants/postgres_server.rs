//! Checks invariants for any bytes of a PostgreSQL server, in pieces of any length.

use evenkeel_wire::postgres::frame::{LENGTH_MAX, frame};
use evenkeel_wire::postgres::server_scanner::{HELD_LENGTH_MAX, ServerScanner, Step};
use evenkeel_wire::postgres::{Parsed, backend};

/// Observed result of a stream: the events, and the bytes consumed until it ended or became
/// invalid.
type Seen = (Vec<String>, usize);

/// Panics if reading `bytes` violates an invariant.
pub(crate) fn check(bytes: &[u8]) {
    let whole = walk(bytes, bytes.len().max(1));
    for pieces in [1, 3, 7, 64, 1000] {
        assert_eq!(walk(bytes, pieces), whole, "in pieces of {pieces}");
    }
    read_messages(bytes);
}

fn walk(bytes: &[u8], piece: usize) -> Seen {
    let mut boundaries = ServerScanner::new();
    let (mut events, mut consumed, mut end) = (Vec::new(), 0_usize, 0_usize);
    while end < bytes.len() {
        end = end.saturating_add(piece).min(bytes.len());
        loop {
            match boundaries.next(&bytes[consumed..end]) {
                Step::Event {
                    passed,
                    event,
                    length,
                } => {
                    assert!(length > 0 && length <= HELD_LENGTH_MAX);
                    consumed = consumed.saturating_add(passed).saturating_add(length);
                    assert!(consumed <= end);
                    events.push(format!("{event:?}"));
                }
                Step::Wait { passed, need } => {
                    consumed = consumed.saturating_add(passed);
                    assert!(consumed <= end && need > end.saturating_sub(consumed));
                    assert!(need <= HELD_LENGTH_MAX);
                    break;
                }
                Step::Invalid(fault) => {
                    events.push(format!("{fault:?}"));
                    return (events, 0);
                }
            }
        }
    }
    (events, consumed)
}

fn read_messages(bytes: &[u8]) {
    let mut rest = bytes;
    while let Parsed::Frame(found, length) = frame(rest, LENGTH_MAX) {
        match backend::message(found) {
            Ok(backend::Message::DataRow(body)) => {
                let _ = backend::values(body).count();
            }
            Ok(backend::Message::RowDescription(body)) => {
                let _ = backend::columns(body).count();
            }
            Ok(backend::Message::Error(report) | backend::Message::Notice(report)) => {
                let _ = (
                    report.sqlstate(),
                    report.is_fatal(),
                    report.fields().count(),
                );
            }
            _ => {}
        }
        rest = &rest[length..];
    }
}
