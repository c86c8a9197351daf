//! Tests of the connection: each rule of RFC 9113 that a peer can break, and each budget.

use super::*;
use crate::http::{Framing, HeadLimits, Method, Parsed, ResponseHead};

mod bodies;
mod budgets;
mod client;
mod closing;
mod control_frames;
mod frames;
mod order;
mod requests;
mod responses;
mod sending;
mod states;
mod tunnels;

/// First bytes of a client: the preface, and SETTINGS without settings.
const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITIZED: u8 = 0x20;

/// Returns a frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short payload");
    let mut frame = length.to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Returns a field block of literal fields without compression (RFC 7541 §6.2.2).
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        assert!(name.len() < 127 && value.len() < 127);
        block.extend([0, u8::try_from(name.len()).expect("short")]);
        block.extend(name.as_bytes());
        block.push(u8::try_from(value.len()).expect("short"));
        block.extend(value.as_bytes());
    }
    block
}

/// Returns the field block of a request with further fields.
fn request_block(method: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut all = vec![
        (":method", method),
        (":scheme", "https"),
        (":authority", "shop.example"),
        (":path", "/"),
    ];
    all.extend(fields);
    block(&all)
}

/// Returns a `GET` request.
fn get(stream: u32) -> Vec<u8> {
    frame(
        HEADERS,
        END_STREAM | END_HEADERS,
        stream,
        &request_block("GET", &[]),
    )
}

/// Returns the head of a `POST` request with further fields.
fn post(stream: u32, fields: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &request_block("POST", fields))
}

fn data(stream: u32, payload: &[u8]) -> Vec<u8> {
    frame(DATA, 0, stream, payload)
}

fn last_data(stream: u32, payload: &[u8]) -> Vec<u8> {
    frame(DATA, END_STREAM, stream, payload)
}

fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &code.to_be_bytes())
}

fn settings(settings: &[(u16, u32)]) -> Vec<u8> {
    let payload = settings.iter().flat_map(|(name, value)| {
        let [a, b] = name.to_be_bytes();
        let [c, d, e, f] = value.to_be_bytes();
        [a, b, c, d, e, f]
    });
    frame(SETTINGS, 0, 0, &payload.collect::<Vec<_>>())
}

fn id(stream: u32) -> StreamId {
    StreamId::new(stream).expect("a number of a stream")
}

/// Frame that our side sent: type, flags, stream, payload.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sent {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

/// Event without places in the input.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    Request(u32, bool),
    Refused(u32),
    Response(u32, bool),
    Unprocessed(u32),
    Data(u32, Vec<u8>),
    End(u32),
    Trailers(u32),
    Reset(u32, ErrorCode),
    WindowOpened(Option<u32>),
    GoAway(ErrorCode),
}

/// Our side, whose caller only notes events.
struct Side {
    connection: Connection,
    out: Vec<u8>,
    /// Received bytes that are not used.
    pending: Vec<u8>,
    seen: Vec<Seen>,
    now_ms: u64,
    /// Bytes of bodies are released when they arrive.
    releases: bool,
}

impl Side {
    fn of(connection: Connection) -> Self {
        let mut side = Side {
            connection,
            out: Vec::new(),
            pending: Vec::new(),
            seen: Vec::new(),
            now_ms: 1_000,
            releases: true,
        };
        side.connection.begin(&mut side.out);
        side
    }

    fn server_with(limits: Limits) -> Self {
        Side::of(Connection::server(limits))
    }

    /// Returns a server that has read the first frames of a client.
    fn server() -> Self {
        let mut server = Side::server_with(Limits::default());
        server.accepts(HELLO);
        server.accepts(&frame(SETTINGS, ACK, 0, &[]));
        server.out.clear();
        server
    }

    /// Reads bytes.
    fn receive(&mut self, bytes: &[u8]) -> Result<(), ConnectionError> {
        self.pending.extend(bytes);
        let pending = std::mem::take(&mut self.pending);
        let mut rest = &pending[..];
        loop {
            match self.connection.read(rest, self.now_ms, &mut self.out) {
                Read::Incomplete => break,
                Read::Used { length, event } => {
                    if let Some(event) = event {
                        self.note(event, rest);
                    }
                    rest = &rest[length..];
                }
                Read::Failed(error) => return Err(error),
            }
        }
        assert!(rest.len() < 24, "{} bytes are not used", rest.len());
        self.pending = rest.to_vec();
        Ok(())
    }

    fn note(&mut self, event: Event, bytes: &[u8]) {
        match event {
            Event::Request { stream, end, .. } => self.seen.push(Seen::Request(stream.get(), end)),
            Event::Refused { stream, .. } => self.seen.push(Seen::Refused(stream.get())),
            Event::Data { stream, range, end } => {
                let bytes = &bytes[range];
                match self.seen.last_mut() {
                    Some(Seen::Data(last, all)) if *last == stream.get() => all.extend(bytes),
                    _ => self.seen.push(Seen::Data(stream.get(), bytes.to_vec())),
                }
                if self.releases {
                    self.connection.release(stream, bytes.len(), &mut self.out);
                }
                if end {
                    self.seen.push(Seen::End(stream.get()));
                }
            }
            Event::Trailers { stream } => self.seen.push(Seen::Trailers(stream.get())),
            Event::Reset { stream, code, .. } => self.seen.push(Seen::Reset(stream.get(), code)),
            Event::WindowOpened { stream } => {
                self.seen
                    .push(Seen::WindowOpened(stream.map(StreamId::get)));
            }
            Event::GoAway { code, .. } => self.seen.push(Seen::GoAway(code)),
            Event::Response { stream, end, .. } => {
                self.seen.push(Seen::Response(stream.get(), end));
            }
            Event::Unprocessed { stream } => self.seen.push(Seen::Unprocessed(stream.get())),
        }
    }

    #[track_caller]
    fn accepts(&mut self, bytes: &[u8]) {
        self.receive(bytes).expect("accepted bytes");
    }

    /// Reads bytes that end the connection with this error.
    #[track_caller]
    fn refuses(&mut self, bytes: &[u8], code: ErrorCode) {
        let error = self.receive(bytes).expect_err("an error of the connection");
        assert_eq!(error.code, code, "{}", error.why);
        let sent = self.sent();
        let last = sent.last().expect("a frame");
        assert_eq!(last.kind, GOAWAY, "{sent:?}");
        assert_eq!(last.payload[4..8], code.code().to_be_bytes());
        assert_eq!(last.payload[8..], *error.why.as_bytes());
    }

    /// Returns the events since the last call.
    fn seen(&mut self) -> Vec<Seen> {
        std::mem::take(&mut self.seen)
    }

    /// Returns the frames that were sent since the last call.
    fn sent(&mut self) -> Vec<Sent> {
        let out = std::mem::take(&mut self.out);
        let mut rest = &out[..];
        let mut sent = Vec::new();
        while !rest.is_empty() {
            let length = u32::from_be_bytes([0, rest[0], rest[1], rest[2]]) as usize;
            sent.push(Sent {
                kind: rest[3],
                flags: rest[4],
                stream: u32::from_be_bytes([rest[5], rest[6], rest[7], rest[8]]),
                payload: rest[9..9 + length].to_vec(),
            });
            rest = &rest[9 + length..];
        }
        sent
    }

    /// Sends a response head.
    fn answer(&mut self, stream: u32, end: bool) -> bool {
        // `:status: 200` of the static table.
        let write = |_: &mut Encoder, out: &mut Vec<u8>| {
            out.push(0x88);
            end
        };
        self.connection.send_head(id(stream), &mut self.out, write)
    }

    fn send(&mut self, stream: u32, bytes: &[u8], end: bool) -> usize {
        self.connection
            .send_data(id(stream), bytes, end, &mut self.out)
    }

    fn finish(&mut self, stream: u32) {
        self.connection.finished(id(stream), &mut self.out);
    }

    /// Answers a request, and ends its exchange.
    fn serve(&mut self, stream: u32) {
        self.answer(stream, true);
        self.finish(stream);
    }

    /// Asserts that the last input had this stream reset, and the caller notified.
    #[track_caller]
    fn assert_reset(&mut self, stream: u32, code: ErrorCode) {
        let sent = self.sent();
        let payload = code.code().to_be_bytes().to_vec();
        let expected = Sent {
            kind: RST_STREAM,
            flags: 0,
            stream,
            payload,
        };
        assert_eq!(sent.last(), Some(&expected), "{sent:?}");
        assert_eq!(self.seen().last(), Some(&Seen::Reset(stream, code)));
        assert!(!self.connection.may_send(id(stream)));
    }
}
