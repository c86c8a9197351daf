//! Promises of the server side of an HTTP/2 connection, whatever bytes a client sends.

use evenkeel_wire::http2::hpack::{Encoder, Indexing};
use evenkeel_wire::http2::{Connection, ConnectionError, Event, Limits, Read, StreamId};

/// First bytes of a client, which the inputs do not have: the preface.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Result of a conversation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Events in order, with the bytes of requests but not their cuts.
    pub(crate) events: Vec<(u32, String)>,
    /// Bytes of the bodies of requests, in the order of arrival.
    pub(crate) body: Vec<(u32, u8)>,
    /// Frames to the client.
    pub(crate) sent: Vec<u8>,
    pub(crate) error: Option<ConnectionError>,
}

/// Checks that input cut in parts has the same outcome, and that what is sent is frames.
pub(crate) fn check(bytes: &[u8]) {
    let whole = converse(bytes, usize::MAX);
    assert_frames(&whole.sent);
    for part in [1, 13] {
        assert_eq!(converse(bytes, part), whole, "parts of {part}");
    }
}

/// Has a server read bytes in parts. Each request is answered: it depends on its stream how.
pub(crate) fn converse(bytes: &[u8], part: usize) -> Outcome {
    let limits = Limits {
        streams_max: 10,
        head_bytes_max: 2_000,
        fields_max: 20,
        stream_window: 65_535,
        connection_window: 100_000,
        ..Limits::default()
    };
    let mut server = Server {
        connection: Connection::server(limits),
        outcome: Outcome {
            events: Vec::new(),
            body: Vec::new(),
            sent: Vec::new(),
            error: None,
        },
    };
    server.connection.begin(&mut server.outcome.sent);
    let bytes = [PREFACE, bytes].concat();
    let (mut used, mut received) = (0, 0);
    while received < bytes.len() && server.outcome.error.is_none() {
        received = received.saturating_add(part).min(bytes.len());
        used += server.read(&bytes[used..received]);
        let unused = received - used;
        assert!(
            unused < 24 || server.outcome.error.is_some(),
            "{unused} bytes are not used"
        );
    }
    server.outcome
}

struct Server {
    connection: Connection,
    outcome: Outcome,
}

impl Server {
    /// Reads bytes. Returns how many were used.
    fn read(&mut self, bytes: &[u8]) -> usize {
        let mut used = 0;
        loop {
            let sent = &mut self.outcome.sent;
            match self.connection.read(&bytes[used..], 0, sent) {
                Read::Incomplete => return used,
                Read::Used { length, event } => {
                    assert!(length > 0 || event.is_some());
                    if let Some(event) = event {
                        self.handle(event, &bytes[used..used + length]);
                    }
                    used += length;
                }
                Read::Failed(error) => {
                    assert_eq!(self.connection.failed(), Some(error));
                    self.outcome.error = Some(error);
                    return used;
                }
            }
        }
    }

    fn handle(&mut self, event: Event, bytes: &[u8]) {
        let (stream, text) = match &event {
            Event::Request { stream, .. } => {
                let text = self.connection.head_text();
                (Some(*stream), format!("{event:?} {}", text.escape_ascii()))
            }
            Event::Data { stream, range, end } => {
                let number = stream.get();
                let data = bytes[range.clone()].iter().map(|byte| (number, *byte));
                self.outcome.body.extend(data);
                if !end {
                    return;
                }
                (Some(*stream), "end".to_owned())
            }
            Event::Refused { stream, .. }
            | Event::Trailers { stream }
            | Event::Reset { stream, .. } => (Some(*stream), format!("{event:?}")),
            Event::WindowOpened { stream } => (*stream, format!("{event:?}")),
            Event::GoAway { .. } => (None, format!("{event:?}")),
            Event::Response { .. } | Event::Unprocessed { .. } => panic!("{event:?}"),
        };
        let number = stream.map_or(0, StreamId::get);
        self.outcome.events.push((number, text));
        self.answer(&event);
    }

    /// Answers requests early, late, not, or with more than the window.
    fn answer(&mut self, event: &Event) {
        match event {
            Event::Request { stream, .. } | Event::Refused { stream, .. } => {
                match stream.get() / 2 % 4 {
                    0 => self.respond(*stream, 10, true),
                    1 => self.respond(*stream, 100_000, false),
                    _ => {}
                }
            }
            Event::Trailers { stream } | Event::Data { stream, .. } => {
                self.respond(*stream, 10, true);
            }
            Event::Reset { stream, .. } => {
                assert!(!self.connection.may_send(*stream));
                self.connection.finished(*stream, &mut self.outcome.sent);
            }
            _ => {}
        }
    }

    fn respond(&mut self, stream: StreamId, bytes: usize, finishes: bool) {
        let sent = &mut self.outcome.sent;
        self.connection
            .send_head(stream, sent, |encoder: &mut Encoder, out| {
                encoder.begin(out);
                encoder.field(out, b":status", b"200", Indexing::Incremental);
                false
            });
        let body = vec![0; bytes];
        self.connection.send_data(stream, &body, true, sent);
        if finishes {
            self.connection.finished(stream, sent);
        }
    }
}

/// Asserts that bytes are whole frames that a client accepts.
fn assert_frames(mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let length = u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]) as usize;
        assert!(length <= 16_384 && bytes[3] < 10);
        bytes = &bytes[9 + length..];
    }
}
