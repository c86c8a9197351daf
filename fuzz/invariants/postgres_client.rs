//! What must hold for any bytes of a PostgreSQL client, and for how they are renamed.

use evenkeel_wire::postgres::Parsed;
use evenkeel_wire::postgres::frame::{Frame, HEADER_LENGTH, Header, client_header};
use evenkeel_wire::postgres::frontend::{Request, Target, request};
use evenkeel_wire::postgres::names::{Names, names, write_renamed};

/// Panics if reading `bytes` breaks a promise.
pub(crate) fn check(bytes: &[u8]) {
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
                Parsed::Frame(found.clone(), consumed)
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

/// What is read of the whole message has the names that are found in its beginning.
fn check_request(read: Request<'_>, found: &Names, message: &[u8]) {
    let named = |range: &Option<std::ops::Range<usize>>| {
        let range = range.clone().expect("a name");
        message[range].to_vec()
    };
    match read {
        Request::Parse { statement, .. }
        | Request::Describe(Target::Statement(statement))
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

/// A renamed message is the same but for the name.
fn rename(header: Header, message: &[u8], found: &Names) {
    let Some(range) = &found.statement else {
        return;
    };
    let mut out = Vec::new();
    write_renamed(&mut out, header, message, range, b"another");
    out.extend_from_slice(&message[range.end..]);
    let tag = header.tag;
    let read = request(Frame {
        tag,
        body: &out[HEADER_LENGTH..],
    });
    assert!(read.is_ok());
    let Parsed::Frame(header, _) = client_header(&out) else {
        return; // It has grown over the limit.
    };
    assert_eq!(header.frame_length(), out.len());
    let Parsed::Frame(again, _) = names(header, &out) else {
        panic!("no names");
    };
    let statement = again.statement.expect("a statement");
    assert_eq!(&out[statement.clone()], b"another");
    let mut back = Vec::new();
    write_renamed(&mut back, header, &out, &statement, &message[range.clone()]);
    back.extend_from_slice(&out[statement.end..]);
    assert_eq!(back, message);
}
