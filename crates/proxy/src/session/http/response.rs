//! Passes the response of a server on to the client.

use std::rc::Rc;
use std::task::{Context, Poll};

use evenkeel_engine::clock;
use evenkeel_engine::relay::ByteDirection;
use evenkeel_engine::socket::Chunk;
use evenkeel_policy::http::eject::Outcome;
use evenkeel_wire::http::chunked::ChunkDecoder;
use evenkeel_wire::http::{
    BodyEdit, Fault, Framing, HeadLimits, KnownName, Parsed, Persistence, ResponseEdit,
    ResponseHead, Version,
};

use super::answer::hsts;
use super::client::HeadWritten;
use super::compress::{Body, HeadChanges};
use super::download::{Download, Passed};
use super::request::limit_key;
use super::server::ServerTransport;
use super::{ExitReason, Session, Stage};
use crate::calendar::http_date_now;
use crate::service::http::{HttpServer, now_s};
use crate::session::http::bulk::is_bulk;
use crate::session::input::Input;

impl Session<'_> {
    /// Receives more of the response, if the client takes more.
    pub(super) fn step_response(&mut self, context: &mut Context<'_>) -> Result<bool, ExitReason> {
        if self.ends_turn() {
            context.waker().wake_by_ref();
            return Ok(false);
        }
        match self.client.poll_sent(context) {
            Poll::Pending => return Ok(false),
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => return Err(ExitReason::ClientBroke(error.to_string())),
        }
        let worker = self.worker;
        let Some(server) = &mut self.exchange.server else {
            return Err(ExitReason::ServerBroke("no server connection".to_owned()));
        };
        let received = match server.poll_chunk(worker, context) {
            Poll::Pending => return self.flush_body(),
            Poll::Ready(received) => received,
        };
        match (received, &self.stage) {
            (Ok(Some(chunk)), Stage::Body(_)) => self.pass_chunk(chunk)?,
            (Ok(Some(chunk)), _) => {
                let input = Input::behind(&mut self.exchange.held, chunk);
                self.read_response(input)?;
            }
            (Ok(None), Stage::Body(download)) if download.lasts_until_close() => {
                self.end_with_server()?;
            }
            (Ok(None), Stage::Body(_)) => {
                self.judge(Outcome::Cut);
                let why = "the server closed the connection in the middle of a response";
                return Err(ExitReason::ServerBroke(why.to_owned()));
            }
            (Ok(None), _) => self.server_failed("closed")?,
            (Err(error), Stage::Body(_)) => {
                self.judge(Outcome::Cut);
                if let Some(ServerTransport::Http2(stream)) = &self.exchange.server
                    && stream.is_canceled()
                {
                    self.client.cancel();
                }
                return Err(ExitReason::ServerBroke(error.to_string()));
            }
            (Err(error), _) => self.server_failed(&error.to_string())?,
        }
        Ok(true)
    }

    /// Reads heads until the final one is complete, and begins to pass the body on.
    fn read_response(&mut self, input: Input<'_>) -> Result<(), ExitReason> {
        let heads = Rc::clone(&self.heads);
        let head = &mut *heads.response.borrow_mut();
        let (limits, worker) = (self.response_limits(), self.worker);
        let mut out = worker.take_spare();
        let mut bytes = input.bytes();
        loop {
            head.clear();
            match head.parse(bytes, &limits, self.exchange.method) {
                Parsed::Complete if head.status() == 101 => {
                    let rest = &bytes[head.length()..];
                    self.switch_protocol(head, bytes, rest, out)?;
                    break;
                }
                Parsed::Complete if head.is_interim() => {
                    self.pass_interim(head, bytes, &mut out);
                    bytes = &bytes[head.length()..];
                    if bytes.is_empty() {
                        self.send_to_client(out)?;
                        break;
                    }
                }
                Parsed::Complete => {
                    self.begin_response(head, bytes, out)?;
                    break;
                }
                Parsed::Incomplete => {
                    self.exchange.held = self.worker.take_spare();
                    self.exchange.held.extend_from_slice(bytes);
                    self.send_to_client(out)?;
                    break;
                }
                Parsed::Invalid(fault) => {
                    worker.keep_spare(out);
                    self.refuse_response(&fault)?;
                    break;
                }
            }
        }
        input.used_up(self.worker);
        Ok(())
    }

    fn response_limits(&self) -> HeadLimits {
        let limits = self.exchange.limits.as_ref();
        limits.map_or_else(HeadLimits::default, |limits| limits.response)
    }

    /// Appends an interim response for a client that can use it: clients of HTTP/1.0 know none, and
    /// 103 in HTTP/1.1 confuses some (RFC 8297 §3).
    fn pass_interim(&mut self, head: &ResponseHead, bytes: &[u8], out: &mut Vec<u8>) {
        let is_wanted = match head.status() {
            100 => std::mem::take(&mut self.exchange.awaits_continue),
            103 => !self.client.serves_more(),
            _ => true,
        };
        if is_wanted && self.exchange.version == Version::Http11 {
            let edit = ResponseEdit {
                client: self.exchange.version,
                ..ResponseEdit::default()
            };
            let sent = self.client.write_interim(out, head, bytes, &edit);
            self.count(ByteDirection::ToClient, sent);
        }
    }

    /// Passes the head of the final response on, with the beginning of its body.
    fn begin_response(
        &mut self,
        head: &ResponseHead,
        bytes: &[u8],
        mut out: Vec<u8>,
    ) -> Result<(), ExitReason> {
        self.note_first_byte();
        let exchange = &mut self.exchange;
        // The rest of a body that the server does not await is not read.
        exchange.keeps_client &= exchange.upload.is_done() && !self.own.shared.is_draining();
        exchange.status = head.status();
        exchange.keeps_server = head.keeps_connection();
        if let Some(kept) = exchange.kept.take() {
            self.worker.keep_spare(kept);
        }
        let keep_alive = head.get(bytes, KnownName::KeepAlive);
        if let (Some(value), Some(place)) = (keep_alive, &exchange.place) {
            note_idle_limit(value, &place.of_service);
        }
        self.end_retry();
        let (HeadWritten { written, sent }, compressor) =
            self.write_response(head, bytes, &mut out);
        self.count(ByteDirection::ToClient, sent);
        let exchange = &mut self.exchange;
        exchange.sent.head_bytes = exchange.sent.bytes + out.len() as u64;
        exchange.keeps_client = written.persistence == Persistence::Keep;
        let rest = &bytes[head.length()..];
        let is_unframed = exchange
            .server
            .as_ref()
            .is_some_and(ServerTransport::is_unframed);
        let from = match (is_unframed, head.framing()) {
            // A client of HTTP/2 gets trailers also after a body of known length.
            (true, Framing::Length(1..)) if !self.client.serves_more() => Framing::UntilClose,
            (true, Framing::Chunked) => Framing::UntilClose,
            (_, framing) => framing,
        };
        let to = written.framing;
        let download = match compressor {
            Some(body) => body.begin(from, to).map(Download::compressed),
            None => Download::new(from, to),
        };
        let Some(mut download) = download else {
            exchange.keeps_server &= rest.is_empty();
            self.send_last_part(out)?;
            return self.finish();
        };
        let passed = download.pass(rest, &mut out);
        self.stage = Stage::Body(download);
        self.send_passed(passed, rest.len(), out)
    }

    /// Writes the head of the final response for the client. Returns the compressor of its body, if
    /// it has one.
    fn write_response(
        &mut self,
        head: &ResponseHead,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> (HeadWritten, Option<Box<Body>>) {
        let exchange = &self.exchange;
        let mut set: Vec<(&[u8], &[u8])> = Vec::new();
        if let Some(action) = exchange.action() {
            let fields = action.set_response.iter();
            set.extend(fields.map(|(name, value)| (name.as_bytes(), value.as_bytes())));
        }
        let view = self.service.snapshot();
        let changes = self.compression(head, bytes, &view, &set);
        let (remove, body) = match &changes {
            Some(changes) => changes.replace_in(&mut set),
            None => (&[][..], BodyEdit::Keep),
        };
        set.extend(hsts(&view, self.client.is_encrypted()));
        // A recipient with a clock adds the time of receipt to a response that it forwards without
        // a date (RFC 9110 §6.6.1).
        let is_date = |(name, _): &(&[u8], &[u8])| name.eq_ignore_ascii_case(b"Date");
        let lacks_date = !head.has(KnownName::Date) && !set.iter().any(is_date);
        let date = lacks_date.then(http_date_now);
        set.extend(date.as_ref().map(|date| (&b"Date"[..], date.as_bytes())));
        let cookie = exchange.set_cookie.as_ref();
        let cookie = cookie.map(|cookie| (&b"Set-Cookie"[..], cookie.as_bytes()));
        let edit = ResponseEdit {
            remove,
            set: &set,
            body,
            add: cookie.as_slice(),
            client: exchange.version,
            persistence: match exchange.keeps_client {
                true => Persistence::Keep,
                false => Persistence::Close,
            },
            ..ResponseEdit::default()
        };
        let written = self.client.write_response(out, head, bytes, &edit);
        (written, changes.and_then(HeadChanges::into_body))
    }

    pub(super) fn note_first_byte(&mut self) {
        let now_us = clock::now_us();
        self.exchange.first_byte_us = now_us;
        let waited_us = now_us.saturating_sub(self.exchange.sent_us);
        self.stats().first_byte_us.observe(waited_us);
        if let Some(place) = &self.exchange.place {
            place.of_service.load.observe_latency(now_us, waited_us);
        }
    }

    /// Passes a chunk of the body on: unchanged if its framing permits.
    fn pass_chunk(&mut self, chunk: Chunk<'_>) -> Result<(), ExitReason> {
        let worker = self.worker;
        let length = chunk.bytes().len();
        let Stage::Body(download) = &mut self.stage else {
            return Ok(());
        };
        if let (Download::Length(left), Some(server)) = (&mut *download, &mut self.exchange.server)
            && is_bulk(length, *left)
        {
            let bulk = server.receive_bulk(worker, chunk, *left);
            let bulk = bulk.map_err(|error| ExitReason::ServerBroke(error.to_string()))?;
            *left -= bulk.len() as u64;
            let is_last = *left == 0;
            match is_last {
                true => self.send_last_part(bulk)?,
                false => self.send_to_client(bulk)?,
            }
            return self.end_part(is_last);
        }
        let is_last = match download {
            Download::Length(left) if length as u64 <= *left => {
                *left -= length as u64;
                *left == 0
            }
            // The end came together with these bytes.
            Download::Unframed => {
                let server = self.exchange.server.as_ref();
                server.is_some_and(ServerTransport::has_ended)
            }
            download => {
                let mut out = worker.take_spare();
                let passed = download.pass(chunk.bytes(), &mut out);
                drop(chunk);
                return self.send_passed(passed, length, out);
            }
        };
        self.count(ByteDirection::ToClient, length);
        let sent = match is_last && !self.keeps_client() {
            true => self.client.send_last(worker, chunk.bytes()),
            false => self.client.send_chunk(worker, chunk),
        };
        sent.map_err(|error| ExitReason::ClientBroke(error.to_string()))?;
        self.end_part(is_last)
    }

    /// Ends the response after its last part.
    fn end_part(&mut self, is_last: bool) -> Result<(), ExitReason> {
        match is_last {
            true => self.finish(),
            false => {
                self.limit_step(|limits| limits.body_idle);
                Ok(())
            }
        }
    }

    /// Sends what was made of `length` bytes of a body. Bytes after its end are not passed on, and
    /// the server connection is not used again.
    fn send_passed(
        &mut self,
        passed: Result<Passed, String>,
        length: usize,
        out: Vec<u8>,
    ) -> Result<(), ExitReason> {
        match passed {
            Ok(Passed::Partial) => {
                self.send_to_client(out)?;
                self.limit_step(|limits| limits.body_idle);
                Ok(())
            }
            Ok(Passed::Complete(used)) => {
                self.exchange.keeps_server &= used == length;
                self.send_end(out)?;
                self.finish()
            }
            Err(why) => {
                self.send_to_client(out)?;
                Err(ExitReason::ServerBroke(why))
            }
        }
    }

    /// Sends the last part of a body, and the trailers of a chunked one to a client of HTTP/2.
    fn send_end(&mut self, out: Vec<u8>) -> Result<(), ExitReason> {
        if self.client.serves_more() || !self.has_separate_trailers() {
            return self.send_last_part(out);
        }
        self.send_to_client(out)?;
        let Stage::Body(download) = &self.stage else {
            return Ok(());
        };
        let decoder = download.separate_trailers();
        let trailers = decoder.into_iter().flat_map(ChunkDecoder::trailers);
        let sent = self.client.send_trailers(trailers);
        sent.map_err(|error| ExitReason::ClientBroke(error.to_string()))
    }

    fn has_separate_trailers(&self) -> bool {
        let Stage::Body(download) = &self.stage else {
            return false;
        };
        let decoder = download.separate_trailers();
        decoder.is_some_and(|decoder| decoder.trailers().next().is_some())
    }

    /// Ends a response whose body ends with the connection, or with the stream of HTTP/2.
    fn end_with_server(&mut self) -> Result<(), ExitReason> {
        let mut out = self.worker.take_spare();
        let server = self.exchange.server.as_ref();
        let trailers = || server.into_iter().flat_map(ServerTransport::trailers);
        let is_apart = !self.client.serves_more() && trailers().next().is_some();
        if let Stage::Body(download) = &mut self.stage {
            let ended = match is_apart {
                true => download.end(std::iter::empty(), &mut out),
                false => download.end(trailers(), &mut out),
            };
            ended.map_err(ExitReason::ServerBroke)?;
        }
        if is_apart {
            if !out.is_empty() {
                self.send_to_client(out)?;
            }
            let server = self.exchange.server.as_ref();
            let trailers = server.into_iter().flat_map(ServerTransport::trailers);
            let sent = self.client.send_trailers(trailers);
            sent.map_err(|error| ExitReason::ClientBroke(error.to_string()))?;
        } else {
            self.send_last_part(out)?;
        }
        self.exchange.keeps_server = false;
        self.finish()
    }

    fn refuse_response(&mut self, fault: &Fault) -> Result<(), ExitReason> {
        let key = limit_key(fault);
        self.report_bad_response(&format!("{fault}{key}"));
        self.answer(502, "the server's response is invalid")
    }

    pub(super) fn report_bad_response(&self, why: &str) {
        let place = self.exchange.place.as_ref();
        tracing::warn!(
            service = %self.target().service.name,
            server = place.map_or("", |place| &place.server.name),
            "response of a server is invalid, answered with 502: {why}"
        );
    }

    /// Sends the last part of a response, and the end of the connection with it if no request
    /// follows.
    pub(super) fn send_last_part(&mut self, out: Vec<u8>) -> Result<(), ExitReason> {
        if self.keeps_client() {
            return self.send_to_client(out);
        }
        self.count(ByteDirection::ToClient, out.len());
        let sent = self.client.send_last(self.worker, &out);
        self.worker.keep_spare(out);
        sent.map_err(|error| ExitReason::ClientBroke(error.to_string()))
    }

    pub(super) fn send_to_client(&mut self, out: Vec<u8>) -> Result<(), ExitReason> {
        self.count(ByteDirection::ToClient, out.len());
        let sent = self.client.send_own(self.worker, out);
        sent.map_err(|error| ExitReason::ClientBroke(error.to_string()))
    }
}

/// Learns the idle limit that a server announces: `Keep-Alive: timeout=5`.
pub(super) fn note_idle_limit(value: &[u8], server: &HttpServer) {
    let mut parameters = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    let timeout = parameters.find_map(|one| one.strip_prefix(b"timeout="));
    let seconds = timeout.and_then(|text| str::from_utf8(text).ok()?.parse().ok());
    if let Some(seconds) = seconds {
        server.idle.announced(now_s(), seconds);
    }
}
