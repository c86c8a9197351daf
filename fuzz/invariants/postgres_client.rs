//! Checks invariants of scanning and renaming, for any bytes of a PostgreSQL client.

use evenkeel_wire::postgres::Parsed;
use evenkeel_wire::postgres::client_scanner::{ClientScanner, Step};
use evenkeel_wire::postgres::conversation;
use evenkeel_wire::postgres::frame::{Frame, HEADER_LENGTH, Header, client_header};
use evenkeel_wire::postgres::frontend::{Request, Target, request};
use evenkeel_wire::postgres::names::{Name, Names, names, parse_parts, write_renamed};
use evenkeel_wire::stream_editor::{EditOutcome, StreamEditor};

/// Panics if reading `bytes` violates an invariant.
pub(crate) fn check(bytes: &[u8]) {
    check_walk(bytes);
    let mut rest = bytes;
    loop {
        let header = match client_header(rest) {
            Parsed::Frame(header, length) => {
                assert_eq!(length, HEADER_LENGTH);
                assert_eq!(header.bytes(), rest[..HEADER_LENGTH]);
                header
            }
            Parsed::Incomplete { need } => {
                assert!(need > rest.len());
                return;
            }
            Parsed::Invalid(_) => return,
        };
        let found = check_names(header, rest);
        let Some(message) = rest.get(..header.frame_length()) else {
            return;
        };
        let body = &message[HEADER_LENGTH..];
        let tag = header.tag;
        if let Ok(read) = request(Frame { tag, body }) {
            check_request(read, &found, message);
            rename(header, message, &found);
        }
        rest = &rest[header.frame_length()..];
    }
}

fn check_names(header: Header, bytes: &[u8]) -> Names {
    match names(header, bytes) {
        Parsed::Frame(found, consumed) => {
            assert!(consumed <= bytes.len() && consumed <= header.frame_length());
            assert_eq!(
                names(header, &bytes[..consumed]),
                Parsed::Frame(found, consumed)
            );
            found
        }
        Parsed::Incomplete { need } => {
            assert!(need > bytes.len() && need <= header.frame_length());
            Names::default()
        }
        Parsed::Invalid(_) => Names::default(),
    }
}

/// Checks that the parsed message has the names that were found in its beginning.
fn check_request(read: Request<'_>, found: &Names, message: &[u8]) {
    let named = |name: &Option<Name>| name.expect("a name").of(message).to_vec();
    match read {
        Request::Parse {
            statement,
            text,
            types,
        } => {
            let parts = parse_parts(message).expect("parts");
            assert_eq!(parts.statement.of(message), statement);
            assert_eq!(found.statement, Some(parts.statement));
            assert_eq!(&message[parts.text], text);
            assert_eq!(&message[parts.types], types);
        }
        Request::Describe(Target::Statement(statement))
        | Request::Close(Target::Statement(statement)) => {
            assert_eq!(named(&found.statement), statement);
        }
        Request::Bind {
            portal, statement, ..
        } => {
            assert_eq!(named(&found.statement), statement);
            assert_eq!(named(&found.portal), portal);
        }
        Request::Execute { portal, .. }
        | Request::Describe(Target::Portal(portal))
        | Request::Close(Target::Portal(portal)) => assert_eq!(named(&found.portal), portal),
        _ => assert_eq!(*found, Names::default()),
    }
}

/// Checks that a renamed message differs only in the name.
fn rename(header: Header, message: &[u8], found: &Names) {
    let Some(old) = found.statement else {
        return;
    };
    let mut out = Vec::new();
    let mut flight = StreamEditor::new(message, &mut out);
    flight.rename(header, old, b"another");
    flight.keep(message.len() - old.end);
    assert_eq!(flight.finish(), EditOutcome::Edited);
    let tag = header.tag;
    let read = request(Frame {
        tag,
        body: &out[HEADER_LENGTH..],
    });
    assert!(read.is_ok());
    let Parsed::Frame(header, _) = client_header(&out) else {
        return; // The message is now longer than the limit.
    };
    assert_eq!(header.frame_length(), out.len());
    let Parsed::Frame(again, _) = names(header, &out) else {
        panic!("no names");
    };
    let statement = again.statement.expect("a statement");
    assert_eq!(statement.of(&out), b"another");
    let mut back = Vec::new();
    write_renamed(&mut back, header, &out, statement, old.of(message));
    back.extend_from_slice(&out[statement.end..]);
    assert_eq!(back, message);
}

/// A message as reported by a scan, and the number of passed bytes that were not reported.
type Shown = (conversation::Request, bool, Vec<u8>, usize);

/// Checks that the result of a scan does not depend on where buffers end.
fn check_walk(bytes: &[u8]) {
    let at_once = walk(bytes, bytes.len().max(1));
    for piece in [1, 3, 64, 1_000] {
        assert_eq!(walk(bytes, piece), at_once, "pieces of {piece}");
    }
}

/// Returns the messages, whether the rest is invalid, and the length of the rest if it is not.
fn walk(bytes: &[u8], piece: usize) -> (Vec<Shown>, bool, usize) {
    let mut requests = ClientScanner::new(64);
    let (mut found, mut consumed, mut end) = (Vec::<Shown>::new(), 0, 0);
    loop {
        let there = &bytes[consumed..end];
        let step = requests.next(there);
        if let Step::Message { passed, .. } | Step::Wait { passed, .. } = step {
            found.last_mut().map_or_else(
                || assert_eq!(passed, 0),
                |last| last.3 = last.3.saturating_add(passed),
            );
            consumed += passed;
        }
        match step {
            Step::Message {
                header,
                request,
                length,
                is_whole,
                ..
            } => {
                assert!(!is_whole || length == header.frame_length());
                let message = &bytes[consumed..end][..length];
                assert_eq!(message[..HEADER_LENGTH], header.bytes());
                found.push((request, is_whole, message.to_vec(), 0));
                consumed += length;
            }
            Step::Wait { passed, need } => {
                assert!(need > there.len() - passed);
                if end == bytes.len() {
                    return (found, false, end - consumed);
                }
                end = (end + piece).min(bytes.len());
            }
            Step::Invalid(_) => {
                // The missing bytes of the previous message count as passed only if more bytes
                // arrive.
                if let Some(last) = found.last_mut() {
                    last.3 = 0;
                }
                return (found, true, 0);
            }
        }
    }
}
