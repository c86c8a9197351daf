//! A client that writes frames as they are, and reads those of the server.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use evenkeel_wire::http2::hpack::{Decoder, FieldSink};
use socket2::Socket;

use crate::peer::{self, is_reset};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const ACK: u8 = 1;

/// Codes of RFC 9113 §7.
pub(crate) const NO_ERROR: u32 = 0;
pub(crate) const PROTOCOL_ERROR: u32 = 1;
pub(crate) const STREAM_CLOSED: u32 = 5;
pub(crate) const CANCEL: u32 = 8;
pub(crate) const CALM: u32 = 11;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Largest window.
const WINDOW_MAX: u32 = 0x7fff_ffff;

/// Returns the bytes of a frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Returns a field block of literals without indexing (RFC 7541 §6.2.2).
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            match u8::try_from(text.len()).unwrap_or(u8::MAX) {
                short @ ..127 => block.push(short),
                _ => {
                    block.push(127);
                    let mut rest = text.len() - 127;
                    while rest >= 128 {
                        block.push(u8::try_from(rest % 128).unwrap() | 128);
                        rest /= 128;
                    }
                    block.push(u8::try_from(rest).unwrap());
                }
            }
            block.extend(text.as_bytes());
        }
    }
    block
}

/// Returns the fields of a request, and further ones.
pub(crate) fn request<'a>(
    method: &'a str,
    path: &'a str,
    more: &[(&'a str, &'a str)],
) -> Vec<(&'a str, &'a str)> {
    let pseudo = [
        (":method", method),
        (":scheme", "http"),
        (":authority", "web.example"),
        (":path", path),
    ];
    [&pseudo[..], more].concat()
}

/// Returns a HEADERS frame.
pub(crate) fn headers(stream: u32, fields: &[(&str, &str)], end: bool) -> Vec<u8> {
    let end = if end { END_STREAM } else { 0 };
    frame(HEADERS, END_HEADERS | end, stream, &block(fields))
}

/// Returns a DATA frame.
pub(crate) fn data(stream: u32, bytes: impl AsRef<[u8]>, end: bool) -> Vec<u8> {
    let end = if end { END_STREAM } else { 0 };
    frame(DATA, end, stream, bytes.as_ref())
}

/// Returns an RST_STREAM frame.
pub(crate) fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &code.to_be_bytes())
}

/// Returns a WINDOW_UPDATE frame.
pub(crate) fn window(stream: u32, by: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &by.to_be_bytes())
}

type Fields = Vec<(String, String)>;

/// Response on a stream, as far as it was received.
#[derive(Clone, Debug, Default)]
pub(crate) struct Response {
    /// Heads of interim responses.
    pub(crate) interim: Vec<Fields>,
    pub(crate) head: Fields,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Fields,
    /// END_STREAM was received.
    pub(crate) is_complete: bool,
    /// Code of RST_STREAM.
    pub(crate) reset: Option<u32>,
}

impl Response {
    pub(crate) fn status(&self) -> u16 {
        let status = self.field(":status").unwrap_or_default();
        status.parse().unwrap_or(0)
    }

    pub(crate) fn field(&self, name: &str) -> Option<String> {
        let mut fields = self.head.iter();
        fields
            .find(|(own, _)| own == name)
            .map(|(_, value)| value.clone())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Fault of a connection, from the GOAWAY frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GoAway {
    pub(crate) last: u32,
    pub(crate) code: u32,
    pub(crate) why: String,
}

/// A client connection.
pub(crate) struct Http2 {
    pub(crate) socket: Socket,
    incoming: Vec<u8>,
    decoder: Decoder,
    responses: BTreeMap<u32, Response>,
    pub(crate) go_away: Vec<GoAway>,
    pub(crate) is_over: bool,
    /// Bytes that WINDOW_UPDATE frames have added, by stream; 0: the connection.
    windows: BTreeMap<u32, u64>,
    next: u32,
}

impl Http2 {
    /// Connects with the largest windows.
    pub(crate) fn connect(listen: &str) -> Http2 {
        let mut own = Http2::with_settings(listen, &[(4, WINDOW_MAX)]);
        own.send(window(0, WINDOW_MAX - 65_535));
        own
    }

    /// Connects with these settings.
    pub(crate) fn with_settings(listen: &str, settings: &[(u16, u32)]) -> Http2 {
        let mut own = Http2 {
            socket: peer::connect(listen),
            incoming: Vec::new(),
            decoder: Decoder::new(4_096),
            responses: BTreeMap::new(),
            go_away: Vec::new(),
            is_over: false,
            windows: BTreeMap::new(),
            next: 1,
        };
        let mut payload = Vec::new();
        for (name, value) in settings {
            payload.extend(name.to_be_bytes());
            payload.extend(value.to_be_bytes());
        }
        own.send([PREFACE, &frame(SETTINGS, 0, 0, &payload)].concat());
        own
    }

    /// Returns the address of the server.
    pub(crate) fn listen(&self) -> String {
        let address = self.socket.peer_addr().unwrap();
        address.as_socket().unwrap().to_string()
    }

    /// Sends bytes; a server that has closed is no fault.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.socket.write_all(bytes.as_ref()).is_ok()
    }

    /// Returns the number of the next stream.
    pub(crate) fn stream(&mut self) -> u32 {
        let stream = self.next;
        self.next += 2;
        stream
    }

    /// Sends a request of HEADERS alone, and reads the response.
    #[track_caller]
    pub(crate) fn ask(&mut self, method: &str, path: &str, more: &[(&str, &str)]) -> Response {
        let stream = self.stream();
        self.send(headers(stream, &request(method, path, more), true));
        self.response(stream)
    }

    /// Sends the head of a request with a body.
    pub(crate) fn open(&mut self, method: &str, path: &str, more: &[(&str, &str)]) -> u32 {
        let stream = self.stream();
        self.send(headers(stream, &request(method, path, more), false));
        stream
    }

    /// Reads until the response is complete, reset, or the connection has ended.
    #[track_caller]
    pub(crate) fn response(&mut self, stream: u32) -> Response {
        self.until(|own| {
            let is_ended = |response: &Response| response.is_complete || response.reset.is_some();
            own.responses.get(&stream).is_some_and(is_ended)
        });
        self.so_far(stream)
    }

    /// Returns what was received of a response.
    pub(crate) fn so_far(&self, stream: u32) -> Response {
        self.responses.get(&stream).cloned().unwrap_or_default()
    }

    /// Returns the number of bytes that were received of a body.
    pub(crate) fn length(&self, stream: u32) -> usize {
        let response = self.responses.get(&stream);
        response.map_or(0, |response| response.body.len())
    }

    /// Returns the number of bytes that the windows let this stream send in all, if no other stream
    /// has sent any. `initial` is the first window of the stream.
    pub(crate) fn credit(&self, stream: u32, initial: u64) -> u64 {
        let added = |of: u32| self.windows.get(&of).copied().unwrap_or(0);
        (initial + added(stream)).min(65_535 + added(0))
    }

    /// Reads the frames that arrive within a time. Returns false if none have.
    pub(crate) fn poll(&mut self, time: Duration) -> bool {
        let before = self.socket.read_timeout().unwrap();
        let shortest = Duration::from_millis(1);
        self.socket
            .set_read_timeout(Some(time.max(shortest)))
            .unwrap();
        let mut bytes = vec![0; 64 * 1024];
        let length = match self.socket.read(&mut bytes) {
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => panic!("{error}"),
        };
        self.socket.set_read_timeout(before).unwrap();
        self.incoming.extend(&bytes[..length]);
        while let Some([a, b, c]) = self.incoming.first_chunk()
            && self.incoming.len() >= 9 + u32::from_be_bytes([0, *a, *b, *c]) as usize
        {
            self.step();
        }
        length > 0
    }

    /// Reads until the condition is met, or the connection has ended.
    #[track_caller]
    pub(crate) fn until(&mut self, is_met: impl Fn(&Http2) -> bool) {
        while !is_met(self) && !self.is_over {
            self.step();
        }
    }

    /// Reads until the connection ends, and returns the last GOAWAY.
    #[track_caller]
    pub(crate) fn end(&mut self) -> Option<GoAway> {
        self.until(|_| false);
        self.go_away.last().cloned()
    }

    /// Reads a frame.
    #[track_caller]
    fn step(&mut self) {
        let Some(header) = self.take(9) else {
            return;
        };
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
        let stream = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
        let Some(payload) = self.take(length as usize) else {
            return;
        };
        self.frame(header[3], header[4], stream, &payload);
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let response = self.responses.entry(stream).or_default();
        match kind {
            DATA => {
                assert!(!response.is_complete, "DATA after the end");
                response.body.extend(payload);
            }
            HEADERS => {
                assert!(!response.is_complete, "HEADERS after the end");
                assert_ne!(flags & END_HEADERS, 0, "a long field block");
                let mut fields = Collected::default();
                self.decoder.decode(payload, &mut fields).unwrap();
                place(response, fields.0);
            }
            RST_STREAM => response.reset = Some(number(payload)),
            SETTINGS if flags & ACK == 0 => {
                self.send(frame(SETTINGS, ACK, 0, &[]));
            }
            PING if flags & ACK == 0 => {
                self.send(frame(PING, ACK, 0, payload));
            }
            GOAWAY => self.go_away.push(GoAway {
                last: number(payload),
                code: number(&payload[4..]),
                why: String::from_utf8_lossy(&payload[8..]).into_owned(),
            }),
            WINDOW_UPDATE => {
                *self.windows.entry(stream).or_default() += u64::from(number(payload));
            }
            CONTINUATION => panic!("a long field block"),
            _ => {}
        }
        if matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0 {
            self.responses.entry(stream).or_default().is_complete = true;
        }
    }

    fn take(&mut self, count: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; 64 * 1024];
        while self.incoming.len() < count {
            match self.socket.read(&mut bytes) {
                Ok(0) => self.is_over = true,
                Ok(length) => self.incoming.extend(&bytes[..length]),
                Err(error) if is_reset(&error) => self.is_over = true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("{error} after {:?}, {:?}", self.responses, self.go_away),
            }
            if self.is_over {
                return None;
            }
        }
        Some(self.incoming.drain(..count).collect())
    }
}

fn number(payload: &[u8]) -> u32 {
    u32::from_be_bytes(payload[..4].try_into().unwrap())
}

/// Adds a field block to a response.
fn place(response: &mut Response, fields: Fields) {
    if !response.head.is_empty() {
        response.trailers = fields;
    } else if fields[0].1.starts_with('1') {
        response.interim.push(fields);
    } else {
        response.head = fields;
    }
}

#[derive(Default)]
struct Collected(Fields);

impl FieldSink for Collected {
    fn field(&mut self, name: &[u8], value: &[u8]) -> bool {
        let [name, value] = [name, value].map(|text| String::from_utf8_lossy(text).into_owned());
        self.0.push((name, value));
        true
    }
}
