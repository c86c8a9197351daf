//! A server of HTTP/2 that follows a script.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use evenkeel_wire::http2::hpack::Indexing;
use evenkeel_wire::http2::{Connection, ErrorCode, Event, Limits, Read, StreamId};
use socket2::Socket;

use crate::peer::{Kind, Scripted};

/// Request as the server sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Number of the connection, from 1.
    pub(crate) connection: usize,
    /// Text of the head, as of HTTP/1.1.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// Names and values.
    pub(crate) trailers: String,
    /// The client has ended the request, and not reset it.
    pub(crate) is_complete: bool,
    pub(crate) is_reset: bool,
}

impl Seen {
    pub(crate) fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    pub(crate) fn has_line(&self, line: &str) -> bool {
        self.head.lines().any(|own| own.eq_ignore_ascii_case(line))
    }
}

/// Action after a request, or after its head.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// The rest of the request is awaited, or nothing happens.
    Wait,
    /// A response with this status, fields, body and trailers.
    Answer {
        fields: Fields,
        body: Vec<u8>,
        trailers: Fields,
    },
    /// A response with these fields, and then an echo of all bytes, until the client ends.
    Echo(Fields),
    /// RST_STREAM with this code.
    Reset(ErrorCode),
    /// GOAWAY, which leaves out this stream, and the end of the connection.
    GoAway,
    /// The end of the connection.
    Close,
}

/// Returns a response with a body.
pub(crate) fn answer(body: &str) -> Action {
    Action::Answer {
        fields: vec![(":status".to_owned(), "200".to_owned())],
        body: body.as_bytes().to_vec(),
        trailers: Vec::new(),
    }
}

/// Returns a response with fields, and perhaps trailers after a body.
pub(crate) fn response(fields: &[(&str, &str)], body: &str, trailers: &[(&str, &str)]) -> Action {
    let owned = |fields: &[(&str, &str)]| {
        let fields = fields.iter();
        let fields = fields.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        fields.collect::<Vec<_>>()
    };
    Action::Answer {
        fields: owned(fields),
        body: body.as_bytes().to_vec(),
        trailers: owned(trailers),
    }
}

/// First SETTINGS of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settings {
    /// Offer of extended CONNECT (RFC 8441 §3).
    Offer,
    /// No offer of it.
    Without,
    /// The offer, after this time.
    Late(Duration),
    /// The connection is closed instead.
    Close,
}

/// Names and values.
type Fields = Vec<(String, String)>;

type Log = Arc<Mutex<BTreeMap<(usize, u32), Seen>>>;

/// A server, and the requests that it has seen.
pub(crate) struct Server {
    scripted: Scripted,
    log: Log,
}

impl Server {
    /// Starts a server. The script is asked at the head of each request, and at its end.
    pub(crate) fn new(script: impl Fn(&Seen) -> Action + Send + Sync + 'static) -> Server {
        Server::with_limits(Limits::default(), script)
    }

    pub(crate) fn with_limits(
        limits: Limits,
        script: impl Fn(&Seen) -> Action + Send + Sync + 'static,
    ) -> Server {
        Server::start((limits, Settings::Without), script)
    }

    pub(crate) fn with_settings(
        settings: Settings,
        script: impl Fn(&Seen) -> Action + Send + Sync + 'static,
    ) -> Server {
        Server::start((Limits::default(), settings), script)
    }

    fn start(
        (limits, settings): (Limits, Settings),
        script: impl Fn(&Seen) -> Action + Send + Sync + 'static,
    ) -> Server {
        let log = Log::default();
        let shared = Arc::clone(&log);
        let connections = AtomicUsize::new(0);
        let scripted = Scripted::start(Kind::V4, move |socket| {
            let mut peer = Peer {
                socket,
                number: connections.fetch_add(1, SeqCst) + 1,
                codec: Connection::server(limits),
                out: Vec::new(),
                waiting: BTreeMap::new(),
                echoing: BTreeSet::new(),
                log: &shared,
                script: &script,
            };
            peer.run(settings);
        });
        Server { scripted, log }
    }

    pub(crate) fn address(&self) -> &str {
        self.scripted.address()
    }

    /// Returns the requests, by connection and stream.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.log.lock().unwrap().values().cloned().collect()
    }

    /// Returns the number of connections so far.
    pub(crate) fn connections(&self) -> usize {
        let all = self.log.lock().unwrap();
        all.keys()
            .map(|(connection, _)| *connection)
            .max()
            .unwrap_or(0)
    }
}

/// A connection.
struct Peer<'a> {
    socket: &'a Socket,
    number: usize,
    codec: Connection,
    out: Vec<u8>,
    /// Bodies and trailers that wait for a window.
    waiting: BTreeMap<StreamId, (Vec<u8>, Fields)>,
    echoing: BTreeSet<StreamId>,
    log: &'a Log,
    script: &'a dyn Fn(&Seen) -> Action,
}

impl Peer<'_> {
    fn run(&mut self, settings: Settings) {
        self.codec.begin(&mut self.out);
        match settings {
            Settings::Offer => {}
            Settings::Without => {
                let mut settings = self.out.windows(6);
                let at = settings.position(|one| one == [0, 8, 0, 0, 0, 1]);
                // An unknown setting in its place.
                self.out[at.unwrap() + 1] = 0x33;
            }
            Settings::Late(time) => std::thread::sleep(time),
            Settings::Close => return,
        }
        let mut input = Vec::new();
        loop {
            let mut socket = self.socket;
            if socket.write_all(&self.out).is_err() {
                return;
            }
            self.out.clear();
            let mut chunk = [0; 16 * 1024];
            match socket.read(&mut chunk) {
                Ok(0) | Err(_) => return,
                Ok(length) => input.extend_from_slice(&chunk[..length]),
            }
            let mut used = 0;
            loop {
                match self.codec.read(&input[used..], 0, &mut self.out) {
                    Read::Incomplete => break,
                    Read::Failed(error) => panic!("{error:?}"),
                    Read::Used { length, event } => {
                        let bytes = input[used..].to_vec();
                        used += length;
                        if event.is_some_and(|event| !self.handle(event, &bytes)) {
                            let _ = socket.write_all(&self.out);
                            return;
                        }
                    }
                }
            }
            input.drain(..used);
        }
    }

    /// Handles an event. Returns false at the end of the connection.
    fn handle(&mut self, event: Event, bytes: &[u8]) -> bool {
        let stream = match &event {
            Event::Request { stream, end, .. } => {
                let head = String::from_utf8_lossy(self.codec.head_text()).into_owned();
                let seen = Seen {
                    connection: self.number,
                    head,
                    is_complete: *end,
                    ..Seen::default()
                };
                let key = (self.number, stream.get());
                self.log.lock().unwrap().insert(key, seen);
                *stream
            }
            Event::Data { stream, range, end } => {
                let data = &bytes[range.clone()];
                self.codec.release(*stream, data.len(), &mut self.out);
                if self.echoing.contains(stream) {
                    let sent = self.codec.send_data(*stream, data, *end, &mut self.out);
                    assert_eq!(sent, data.len(), "the window of the client");
                }
                self.change(*stream, |seen| {
                    seen.body.extend_from_slice(data);
                    seen.is_complete = *end;
                });
                if !end || self.echoing.contains(stream) {
                    return true;
                }
                *stream
            }
            Event::Trailers { stream } => {
                let fields = self.codec.trailers().fields();
                let fields = fields.map(|field| {
                    let [name, value] = [field.name, field.value].map(String::from_utf8_lossy);
                    format!("{name}: {value}\n")
                });
                let trailers: String = fields.collect();
                self.change(*stream, |seen| {
                    seen.trailers.clone_from(&trailers);
                    seen.is_complete = true;
                });
                *stream
            }
            Event::Reset { stream, .. } => {
                self.change(*stream, |seen| seen.is_reset = true);
                self.codec.finished(*stream, &mut self.out);
                self.waiting.remove(stream);
                return true;
            }
            Event::WindowOpened { .. } => {
                let streams: Vec<StreamId> = self.waiting.keys().copied().collect();
                streams.into_iter().for_each(|stream| self.send(stream));
                return true;
            }
            _ => return true,
        };
        let seen = self.log.lock().unwrap()[&(self.number, stream.get())].clone();
        let action = (self.script)(&seen);
        self.act(stream, action)
    }

    fn change(&self, stream: StreamId, change: impl FnOnce(&mut Seen)) {
        let mut log = self.log.lock().unwrap();
        change(log.get_mut(&(self.number, stream.get())).unwrap());
    }

    fn act(&mut self, stream: StreamId, action: Action) -> bool {
        match action {
            Action::Wait => {}
            Action::Answer {
                fields,
                body,
                trailers,
            } => {
                let ends = body.is_empty() && trailers.is_empty();
                self.head(stream, &fields, ends);
                if ends {
                    self.codec.finished(stream, &mut self.out);
                } else {
                    self.waiting.insert(stream, (body, trailers));
                    self.send(stream);
                }
            }
            Action::Echo(fields) => {
                self.head(stream, &fields, false);
                self.echoing.insert(stream);
            }
            Action::Reset(code) => {
                self.codec.reset(stream, code, &mut self.out);
                self.codec.finished(stream, &mut self.out);
            }
            Action::GoAway => {
                let last = stream.get().saturating_sub(2).to_be_bytes();
                self.out.extend_from_slice(&[0, 0, 8, 7, 0, 0, 0, 0, 0]);
                self.out.extend_from_slice(&last);
                self.out.extend_from_slice(&[0; 4]);
                return false;
            }
            Action::Close => return false,
        }
        true
    }

    fn head(&mut self, stream: StreamId, fields: &[(String, String)], ends: bool) {
        self.codec.send_head(stream, &mut self.out, |encoder, out| {
            encoder.begin(out);
            for (name, value) in fields {
                let (name, value) = (name.as_bytes(), value.as_bytes());
                encoder.field(out, name, value, Indexing::Without);
            }
            ends
        });
    }

    /// Sends what the windows allow.
    fn send(&mut self, stream: StreamId) {
        let Some((mut body, trailers)) = self.waiting.remove(&stream) else {
            return;
        };
        let ends = trailers.is_empty();
        let sent = self.codec.send_data(stream, &body, ends, &mut self.out);
        body.drain(..sent);
        if !body.is_empty() {
            self.waiting.insert(stream, (body, trailers));
            return;
        }
        if !ends {
            self.head(stream, &trailers, true);
        }
        self.codec.finished(stream, &mut self.out);
    }
}
