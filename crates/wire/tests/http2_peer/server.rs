//! Server that does as the path of each request says.

use std::collections::BTreeMap;

use evenkeel_wire::http::{HeadLimits, Parsed, RequestHead};
use evenkeel_wire::http2::hpack::{Encoder, Indexing};
use evenkeel_wire::http2::{Connection, ErrorCode, Event, Limits, Read, StreamId};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::chance::Chance;

/// Answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plan {
    /// The body of the request, as it arrives.
    Echo,
    /// An echo that trailers end.
    EchoWithTrailers,
    /// This number of bytes before the request is complete; the rest of it is not read.
    Early(usize),
    /// A reset after this number of bytes.
    Reset(usize),
}

impl Plan {
    pub(crate) fn path(self) -> String {
        match self {
            Plan::Echo => "/echo/0".to_owned(),
            Plan::EchoWithTrailers => "/trailers/0".to_owned(),
            Plan::Early(bytes) => format!("/early/{bytes}"),
            Plan::Reset(bytes) => format!("/reset/{bytes}"),
        }
    }

    fn of(path: &[u8]) -> Self {
        let path = std::str::from_utf8(path).expect("a path of the client");
        let (plan, bytes) = path[1..].split_once('/').expect("two segments");
        let bytes = bytes.parse().expect("a number");
        match plan {
            "echo" => Plan::Echo,
            "trailers" => Plan::EchoWithTrailers,
            "early" => Plan::Early(bytes),
            _ => Plan::Reset(bytes),
        }
    }
}

struct Exchange {
    plan: Plan,
    /// Received bytes that are not released.
    held: Vec<u8>,
    /// Bytes to send.
    body: Vec<u8>,
    sent: usize,
    received_all: bool,
    /// The windows did not let all of the body through.
    blocked: bool,
}

struct Server {
    connection: Connection,
    exchanges: BTreeMap<StreamId, Exchange>,
    out: Vec<u8>,
    chance: Chance,
    head: RequestHead,
}

/// Serves until the client closes.
pub(crate) async fn serve(mut pipe: DuplexStream, mut chance: Chance) -> Result<(), String> {
    let limits = Limits {
        stream_window: chance.size(65_535, 1_000_000) as u32,
        connection_window: chance.size(65_535, 1_000_000) as u32,
        streams_max: 20,
        ..Limits::default()
    };
    let mut server = Server {
        connection: Connection::server(limits),
        exchanges: BTreeMap::new(),
        out: Vec::new(),
        chance,
        head: RequestHead::new(),
    };
    server.connection.begin(&mut server.out);
    let mut received = Vec::new();
    let mut now_ms = 0;
    loop {
        // The client reads while it writes.
        if !server.out.is_empty() {
            let out = std::mem::take(&mut server.out);
            if pipe.write_all(&out).await.is_err() {
                return Ok(());
            }
        }
        let holds = server
            .exchanges
            .values()
            .any(|exchange| !exchange.held.is_empty());
        let mut part = vec![0; server.chance.size(1, 30_000)];
        let count = tokio::select! {
            biased;
            count = pipe.read(&mut part) => count.unwrap_or(0),
            () = tokio::task::yield_now(), if holds => {
                server.consume();
                continue;
            }
        };
        if count == 0 {
            let left = server.exchanges.len();
            return match server.connection.open_streams() as usize == left {
                true => Ok(()),
                false => Err(format!("{left} exchanges, other streams")),
            };
        }
        received.extend_from_slice(&part[..count]);
        now_ms += 1;
        let used = server.read(&received, now_ms)?;
        received.drain(..used);
        if received.len() >= 24 {
            return Err(format!("{} bytes are not used", received.len()));
        }
        if server.chance.one_in(2) {
            server.consume();
        }
    }
}

impl Server {
    /// Reads bytes. Returns how many were used.
    fn read(&mut self, bytes: &[u8], now_ms: u64) -> Result<usize, String> {
        let mut used = 0;
        loop {
            match self.connection.read(&bytes[used..], now_ms, &mut self.out) {
                Read::Incomplete => return Ok(used),
                Read::Used { length, event } => {
                    if let Some(event) = event {
                        self.handle(event, &bytes[used..])?;
                    }
                    used += length;
                }
                Read::Failed(error) => return Err(format!("{error:?}")),
            }
        }
    }

    fn handle(&mut self, event: Event, bytes: &[u8]) -> Result<(), String> {
        match event {
            Event::Request { stream, end, .. } => self.begin(stream, end),
            Event::Data { stream, range, end } => {
                if let Some(exchange) = self.exchanges.get_mut(&stream) {
                    exchange.held.extend_from_slice(&bytes[range]);
                    exchange.received_all |= end;
                    self.pump(stream);
                }
            }
            Event::Trailers { stream } => {
                if let Some(exchange) = self.exchanges.get_mut(&stream) {
                    exchange.received_all = true;
                    self.pump(stream);
                }
            }
            Event::Reset { stream, why, .. } => {
                if let Some(why) = why {
                    return Err(why.to_owned());
                }
                self.finish(stream);
            }
            Event::WindowOpened { stream } => {
                let all: Vec<_> = self.exchanges.keys().copied().collect();
                let opened = all
                    .into_iter()
                    .filter(|id| stream.is_none_or(|one| one == *id));
                for stream in opened.collect::<Vec<_>>() {
                    if let Some(exchange) = self.exchanges.get_mut(&stream) {
                        exchange.blocked = false;
                    }
                    self.pump(stream);
                }
            }
            Event::GoAway { .. } => {}
            Event::Response { .. } | Event::Unprocessed { .. } => return Err(format!("{event:?}")),
            Event::Refused { why, .. } => return Err(format!("{why:?}")),
        }
        Ok(())
    }

    fn begin(&mut self, stream: StreamId, end: bool) {
        let text = self.connection.head_text();
        self.head.clear();
        assert_eq!(
            self.head.parse(text, &HeadLimits::default()),
            Parsed::Complete
        );
        let plan = Plan::of(self.head.path(text));
        let body = match plan {
            Plan::Echo | Plan::EchoWithTrailers => Vec::new(),
            Plan::Early(bytes) | Plan::Reset(bytes) => vec![7; bytes],
        };
        let exchange = Exchange {
            plan,
            held: Vec::new(),
            body,
            sent: 0,
            received_all: end,
            blocked: false,
        };
        self.exchanges.insert(stream, exchange);
        self.head(
            stream,
            &[(b":status", b"200"), (b"x-seed", b"of a test")],
            false,
        );
        self.pump(stream);
    }

    fn head(&mut self, stream: StreamId, fields: &[(&[u8], &[u8])], end: bool) {
        let write = |encoder: &mut Encoder, out: &mut Vec<u8>| {
            encoder.begin(out);
            for (name, value) in fields {
                encoder.field(out, name, value, Indexing::Incremental);
            }
            end
        };
        assert!(self.connection.send_head(stream, &mut self.out, write));
    }

    /// Sends what the windows allow.
    fn pump(&mut self, stream: StreamId) {
        let Some(exchange) = self.exchanges.get_mut(&stream).filter(|it| !it.blocked) else {
            return;
        };
        let is_complete = match exchange.plan {
            Plan::Echo => exchange.received_all && exchange.held.is_empty(),
            Plan::EchoWithTrailers | Plan::Reset(_) => false,
            Plan::Early(_) => true,
        };
        let rest = &exchange.body[exchange.sent..];
        let sent = self
            .connection
            .send_data(stream, rest, is_complete, &mut self.out);
        exchange.blocked = sent < rest.len();
        exchange.sent += sent;
        if exchange.blocked {
            return;
        }
        match exchange.plan {
            Plan::Reset(_) => {
                self.connection
                    .reset(stream, ErrorCode::Http11Required, &mut self.out);
                self.finish(stream);
            }
            Plan::EchoWithTrailers if exchange.received_all && exchange.held.is_empty() => {
                self.head(stream, &[(b"x-end", b"yes")], true);
                self.finish(stream);
            }
            Plan::Echo | Plan::Early(_) if is_complete => self.finish(stream),
            Plan::Echo | Plan::EchoWithTrailers | Plan::Early(_) => {}
        }
    }

    /// Takes a part of what is held.
    fn consume(&mut self) {
        let holding = self.exchanges.iter().filter(|(_, it)| !it.held.is_empty());
        let holding: Vec<_> = holding.map(|(stream, _)| *stream).collect();
        for stream in holding {
            let Some(exchange) = self.exchanges.get_mut(&stream) else {
                continue;
            };
            let count = self.chance.size(1, exchange.held.len());
            let part = exchange.held.drain(..count);
            match exchange.plan {
                Plan::Echo | Plan::EchoWithTrailers => exchange.body.extend(part),
                Plan::Early(_) | Plan::Reset(_) => drop(part),
            }
            self.connection.release(stream, count, &mut self.out);
            self.pump(stream);
        }
    }

    fn finish(&mut self, stream: StreamId) {
        self.exchanges.remove(&stream);
        self.connection.finished(stream, &mut self.out);
    }
}
