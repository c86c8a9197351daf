//! Records requests for the access log.

use evenkeel_engine::clock;
use evenkeel_wire::http::{KnownName, RequestHead};

use super::{ExitReason, Session, Stage};
use crate::access_log::{AccessLogSettings, RequestEnd, RequestFacts, RequestPhase, RequestTexts};
use crate::record::TerminationReason;
use crate::service::http::HttpSnapshot;

/// Number of texts of a request head.
const TEXTS: usize = 6;

/// Replaces a query string.
const MASK: &[u8] = b"?***";

/// Status of a request whose client has left before a response, as in logs of nginx.
const CLIENT_LEFT: u16 = 499;

/// Part of a request head that is logged.
pub(super) struct Noted {
    settings: AccessLogSettings,
    /// Length of the head in bytes.
    head_length: u64,
    bytes: Vec<u8>,
    lengths: [u32; TEXTS],
}

/// End of a request that Evenkeel answers itself.
pub(super) struct OwnEnd {
    end: RequestEnd,
    phase: RequestPhase,
    why: String,
}

/// Bytes of a response that were sent to the client.
#[derive(Default)]
pub(super) struct Sent {
    pub(super) bytes: u64,
    /// Length of the head, and of interim heads before it.
    pub(super) head_bytes: u64,
}

impl Session<'_> {
    /// Keeps what the log needs of a request head. `None`: the service has no access log.
    pub(super) fn noted(
        &self,
        head: &RequestHead,
        http: &HttpSnapshot,
        bytes: &[u8],
    ) -> Option<Noted> {
        let settings = http.access_log?;
        let target = head.path_and_query(bytes);
        let field = |name| head.get(bytes, name).unwrap_or_default();
        let (referer, referer_query) = split_query(field(KnownName::Referer));
        let texts: [[&[u8]; 2]; TEXTS] = [
            [head.method_text(bytes), b""],
            [head.authority(bytes).unwrap_or_default(), b""],
            [target.path, shown_query(settings, target.query)],
            [referer, shown_query(settings, referer_query)],
            [field(KnownName::UserAgent), b""],
            [field(KnownName::XRequestId), b""],
        ];
        let mut kept = self.worker.take_spare();
        let lengths = texts.map(|parts| {
            let before = kept.len();
            parts.iter().for_each(|part| kept.extend_from_slice(part));
            u32::try_from(kept.len() - before).unwrap_or(0)
        });
        Some(Noted {
            settings,
            head_length: head.length() as u64,
            bytes: kept,
            lengths,
        })
    }

    /// Keeps that a request without a valid head is logged.
    pub(super) fn note_invalid_head(&mut self, length: usize) {
        let view = self.service.snapshot();
        let settings = view.http().and_then(|http| http.access_log);
        self.exchange.noted = settings.map(|settings| Noted {
            settings,
            head_length: length as u64,
            bytes: Vec::new(),
            lengths: [0; TEXTS],
        });
    }

    /// Keeps the reason why Evenkeel answers the current request, unless there is one.
    pub(super) fn note_own_end(&mut self, end: RequestEnd, why: &str) {
        if self.exchange.noted.is_some() && self.exchange.own_end.is_none() {
            self.exchange.own_end = Some(OwnEnd {
                end,
                phase: self.phase(),
                why: why.to_owned(),
            });
        }
    }

    /// Returns the progress of the current request.
    fn phase(&self) -> RequestPhase {
        match &self.stage {
            Stage::Head(_) | Stage::Checking(_) => RequestPhase::Request,
            Stage::Waiting { .. } => RequestPhase::Wait,
            Stage::Response if self.exchange.upload.is_done() => RequestPhase::FirstByte,
            Stage::Response => RequestPhase::Request,
            Stage::Body(_) | Stage::Answer | Stage::Closing(_) | Stage::Lingering(_) => {
                RequestPhase::Body
            }
            Stage::Tunnel(_) => RequestPhase::Tunnel,
        }
    }

    /// Logs a request that was answered completely.
    pub(super) fn log_answered(&mut self, now_us: u64) {
        let Some(noted) = self.exchange.noted.take() else {
            return;
        };
        match self.exchange.own_end.take() {
            Some(own) => self.log(noted, (own.end, own.phase), &own.why, now_us),
            None => self.log(noted, (RequestEnd::Complete, self.phase()), "", now_us),
        }
    }

    /// Logs the current request, if any, when the connection ends without a complete response.
    pub(super) fn log_exit(&mut self, exit: &ExitReason) {
        let phase = self.phase();
        let (end, why) = match exit {
            ExitReason::ClientLeft => (RequestEnd::ClientLeft, "the client disconnected"),
            ExitReason::ClientBroke(why) => (RequestEnd::ClientLeft, &**why),
            ExitReason::ServerBroke(why) => (RequestEnd::ServerCut, &**why),
            ExitReason::Done(_) | ExitReason::Closed(_) if phase == RequestPhase::Tunnel => {
                (RequestEnd::Complete, "")
            }
            ExitReason::Done(_) | ExitReason::Closed(_) => (RequestEnd::Terminated, ""),
            ExitReason::TimedOut(_) => (RequestEnd::TimedOut, self.passed_limit()),
        };
        let Some(noted) = self.exchange.noted.take() else {
            return;
        };
        match self.exchange.own_end.take() {
            // The rest of the request has turned out to be malformed.
            Some(own) if own.end == RequestEnd::Refused && phase == RequestPhase::Body => {
                self.log(noted, (own.end, own.phase), &own.why, clock::now_us());
            }
            _ => self.log(noted, (end, phase), why, clock::now_us()),
        }
    }

    /// Logs the current request, if any, when the connection is terminated.
    pub(super) fn log_cut(&mut self, ending: &TerminationReason) {
        if let Some(noted) = self.exchange.noted.take() {
            let end = (RequestEnd::Terminated, self.phase());
            self.log(noted, end, &ending.to_string(), clock::now_us());
        }
    }

    fn log(&self, noted: Noted, end: (RequestEnd, RequestPhase), why: &str, now_us: u64) {
        let exchange = &self.exchange;
        let began_us = exchange.began_us;
        let since = |at_us: u64| (at_us > 0).then(|| at_us.saturating_sub(began_us));
        let status = match (exchange.status, end.0) {
            (0, RequestEnd::ClientLeft) => CLIENT_LEFT,
            (status, _) => status,
        };
        let facts = RequestFacts {
            format: noted.settings.format,
            version: self.client.version(exchange.version),
            status,
            end: end.0,
            phase: end.1,
            retries: exchange.attempts.failures,
            ended_us: now_us,
            waited_us: since(exchange.sent_us),
            first_byte_us: since(exchange.first_byte_us),
            total_us: now_us.saturating_sub(began_us),
            from_client: noted.head_length + exchange.body_bytes,
            to_client: exchange.sent.bytes,
            body_to_client: exchange.sent.bytes.saturating_sub(exchange.sent.head_bytes),
        };
        let peer = self.peer.address.map(|peer| peer.ip().to_canonical());
        let client = exchange.client.filter(|client| Some(*client) != peer);
        let client = client.map(|client| client.to_string());
        let service = self.service;
        let server = exchange.place.as_ref().map(|place| &*place.server.name);
        let route = exchange.action().map(|action| &*action.stats.name);
        let texts = RequestTexts {
            service: service.name.as_bytes(),
            client: client.as_deref().unwrap_or(&self.peer.text).as_bytes(),
            server: server.unwrap_or_default().as_bytes(),
            route: route.unwrap_or_default().as_bytes(),
            user: exchange.user.as_deref().unwrap_or_default().as_bytes(),
            reason: why.as_bytes(),
            ..noted.texts()
        };
        let made = exchange.request_id.as_deref().map(str::as_bytes);
        let texts = RequestTexts {
            request_id: made.unwrap_or(texts.request_id),
            ..texts
        };
        self.log.add(&self.worker.shared.access_log, facts, texts);
        self.worker.keep_spare(noted.bytes);
    }
}

impl Noted {
    fn texts(&self) -> RequestTexts<'_> {
        let mut rest = &self.bytes[..];
        let [method, host, target, referer, user_agent, request_id] = self.lengths.map(|length| {
            let (text, after) = rest.split_at(rest.len().min(length as usize));
            rest = after;
            text
        });
        RequestTexts {
            method,
            host,
            target,
            referer,
            user_agent,
            request_id,
            ..RequestTexts::default()
        }
    }
}

/// Returns what is logged of a query, which begins with `?` or is empty.
fn shown_query(settings: AccessLogSettings, query: &[u8]) -> &[u8] {
    match settings.masks_query && !query.is_empty() {
        true => MASK,
        false => query,
    }
}

/// Splits a URL before the `?` of its query.
fn split_query(url: &[u8]) -> (&[u8], &[u8]) {
    let at = url.iter().position(|byte| *byte == b'?');
    url.split_at(at.unwrap_or(url.len()))
}

/// Returns the length in bytes of the head of a message.
pub(super) fn head_length(message: &[u8]) -> u64 {
    let end = message.windows(4).position(|four| four == b"\r\n\r\n");
    end.map_or(0, |at| at as u64 + 4)
}
