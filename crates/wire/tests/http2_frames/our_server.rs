//! Our server, which answers nothing.

use std::collections::BTreeMap;

use evenkeel_wire::http::{HeadLimits, Parsed, RequestHead};
use evenkeel_wire::http2::{Connection, Event, Limits, Read};

use crate::invariants::PREFACE;

/// Body of a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Body {
    pub(crate) bytes: Vec<u8>,
    pub(crate) is_complete: bool,
}

/// Requests by stream that the client did not reset.
pub(crate) type Requests = BTreeMap<u32, Body>;

/// Returns the requests in these bytes. `None`: the connection or a stream has a fault.
pub(crate) fn read(bytes: &[u8]) -> Option<Requests> {
    let limits = Limits {
        stream_window: 65_535,
        connection_window: 65_535,
        ..Limits::default()
    };
    let mut connection = Connection::server(limits);
    let mut out = Vec::new();
    let bytes = [PREFACE, bytes].concat();
    let mut rest = &bytes[..];
    let mut requests = Requests::new();
    loop {
        let (length, event) = match connection.read(rest, 0, &mut out) {
            Read::Incomplete => break,
            Read::Used { length, event } => (length, event),
            Read::Failed(_) => return None,
        };
        match event {
            Some(Event::Request { stream, end, .. }) => {
                let text = connection.head_text();
                if !is_plain(text) {
                    return None;
                }
                let body = requests.entry(stream.get()).or_default();
                body.is_complete = end;
            }
            Some(Event::Data { stream, range, end }) => {
                let body = requests.entry(stream.get()).or_default();
                body.bytes.extend(&rest[range]);
                body.is_complete = end;
            }
            Some(Event::Trailers { stream }) => {
                requests.entry(stream.get()).or_default().is_complete = true;
            }
            Some(Event::Reset {
                stream, why: None, ..
            }) => {
                requests.remove(&stream.get());
            }
            Some(Event::Reset { .. } | Event::Refused { .. }) => return None,
            // The other server reads nothing after GOAWAY.
            Some(Event::GoAway { .. }) => return None,
            Some(Event::WindowOpened { .. }) | None => {}
            Some(event) => panic!("{event:?}"),
        }
        rest = &rest[length..];
    }
    let has_reset = has_frame(&out, 3);
    (!has_reset).then_some(requests)
}

/// Returns whether the text of a head is valid HTTP/1.1, and its target has no byte that only our
/// grammar accepts, since clients send it.
fn is_plain(text: &[u8]) -> bool {
    const ODD: &[u8] = b"\"<>\\^`{|}";
    let line = text.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let parsed = RequestHead::new().parse(text, &HeadLimits::default());
    parsed == Parsed::Complete && !line.iter().any(|byte| ODD.contains(byte))
}

/// Returns whether there is a frame of this type.
pub(crate) fn has_frame(mut bytes: &[u8], kind: u8) -> bool {
    while !bytes.is_empty() {
        if bytes[3] == kind {
            return true;
        }
        let length = u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]) as usize;
        bytes = &bytes[9 + length..];
    }
    false
}
