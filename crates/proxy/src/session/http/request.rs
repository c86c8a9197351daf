//! Reads the head of a request, and prepares the request for a server.

use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use evenkeel_engine::clock;
use evenkeel_engine::relay::ByteDirection;
use evenkeel_policy::http::replay::{Body, may_race};
use evenkeel_wire::http::chunked::ChunkEncoder;
use evenkeel_wire::http::{Fault, Framing, HeadLimits, Limit, Parsed, RequestHead};

use super::acquire::method_text;
use super::admit::Admitted;
use super::client::Client;
use super::exchange::{Exchange, Kept, Upload};
use super::forward::sticky_cookie;
use super::grpc;
use super::limits::RequestLimits;
use super::target::Target;
use super::upload::BodyFault;
use super::{ExitReason, HeadProgress, Session, Stage};
use crate::access_log::RequestEnd;
use crate::record::TerminationReason;
use crate::service::Service;
use crate::service::http::{HttpSnapshot, ServerHttp2};
use crate::session::input::Input;

impl Session<'_> {
    pub(super) fn step_head(&mut self, context: &mut Context<'_>) -> Result<bool, ExitReason> {
        if matches!(self.stage, Stage::Head(HeadProgress::Unread)) {
            let bytes = std::mem::take(&mut self.input);
            self.read_head(Input::Owned(bytes))?;
            return Ok(true);
        }
        let worker = self.worker;
        match self.client.poll_chunk(worker, context) {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(Some(chunk))) => {
                self.count(ByteDirection::FromClient, chunk.bytes().len());
                let input = Input::behind(&mut self.input, chunk);
                self.read_head(input)?;
                Ok(true)
            }
            Poll::Ready(Ok(None)) => Err(match self.stage {
                Stage::Head(HeadProgress::Nothing) => {
                    self.client.send_close();
                    ExitReason::Closed(TerminationReason::ClientClosed)
                }
                _ => ExitReason::ClientLeft,
            }),
            Poll::Ready(Err(error)) => Err(ExitReason::ClientBroke(error.to_string())),
        }
    }

    /// Waits for the next request of the client.
    pub(super) fn await_head(&mut self) {
        match self.stage {
            Stage::Head(HeadProgress::Partial) => {}
            _ => self.limit_step(|limits| limits.keepalive),
        }
    }

    fn read_head(&mut self, input: Input<'_>) -> Result<(), ExitReason> {
        let heads = Rc::clone(&self.heads);
        let head = &mut *heads.request.borrow_mut();
        head.clear();
        let view = self.service.snapshot_owned();
        let Some(http) = view.http() else {
            return Err(ExitReason::Done(TerminationReason::NoServer));
        };
        match head.parse(input.bytes(), &head_limits(http)) {
            Parsed::Complete => self.begin(head, http, &input)?,
            Parsed::Incomplete => {
                if !matches!(self.stage, Stage::Head(HeadProgress::Partial)) {
                    self.limit_step(|limits| limits.header);
                    self.stage = Stage::Head(HeadProgress::Partial);
                }
                self.hold(input.bytes());
            }
            Parsed::Invalid(fault) => {
                self.exchange.began_us = clock::now_us();
                self.note_invalid_head(input.bytes().len());
                self.refuse(&fault)?;
            }
        }
        input.used_up(self.worker);
        Ok(())
    }

    pub(super) fn hold(&mut self, bytes: &[u8]) {
        if self.input.capacity() == 0 {
            self.input = self.worker.take_spare();
        }
        self.input.extend_from_slice(bytes);
    }

    /// Begins the exchange of a complete request head.
    fn begin(
        &mut self,
        head: &RequestHead,
        http: &HttpSnapshot,
        input: &Input<'_>,
    ) -> Result<(), ExitReason> {
        let bytes = input.bytes();
        let rest = bytes.get(head.length()..).unwrap_or_default();
        let exchange = Exchange {
            method: head.method(),
            version: head.version(),
            keeps_client: head.keeps_connection() && self.client.serves_more(),
            is_grpc: !self.client.serves_more() && grpc::is_request(head, bytes),
            awaits_continue: head.expects_continue(),
            websocket: self.websocket(head),
            upload: self.upload(head),
            began_us: clock::now_us(),
            noted: self.noted(head, http, bytes),
            ..Exchange::default()
        };
        self.exchange = exchange;
        let client = self.client_address(head, bytes, http);
        self.exchange.client = client;
        if self.exchange.websocket.is_none() && self.is_extended_connect(head) {
            return self.refuse_connect(head, bytes);
        }
        self.exchange.request_id = self.request_id((head, bytes), &http.clients);
        match self.admit((head, bytes), http, client) {
            Admitted::Forward(service) => {
                // A request that its client has reset already costs no server anything.
                let check = self.client.check();
                check.map_err(|error| ExitReason::ClientBroke(error.to_string()))?;
                if !self.route_to(service) {
                    self.exchange.keeps_client = false;
                    return self.answer(503, "the service of the route cannot answer requests");
                }
            }
            Admitted::Unverified(attempt) => {
                self.begin_check(attempt, head.length(), bytes);
                return Ok(());
            }
            answer => {
                if self.exchange.upload.is_done() {
                    self.hold_rest(rest);
                }
                return self.answer_admission(answer);
            }
        }
        self.adopt_settings(http, head, bytes);
        if let Some(settings) = &http.clients.compress {
            self.note_codings(settings, head, bytes);
        }
        let body_bytes_max = self.body_bytes_max();
        if let Framing::Length(length) = head.framing()
            && length > body_bytes_max
        {
            self.hold(rest);
            return self.refuse_body(body_bytes_max);
        }
        self.exchange.hash_key = self.hash_key((head, bytes), http, client);
        self.write_request(head, bytes, client);
        self.mirror_request();
        let used = match self.take_body(rest) {
            Ok(used) => used,
            Err(fault) => return self.refuse_rest(fault),
        };
        self.hold_rest(rest.get(used..).unwrap_or_default());
        self.acquire()
    }

    /// Returns the state of the request's body.
    fn upload(&self, head: &RequestHead) -> Upload {
        match (head.framing(), &self.client) {
            (Framing::Chunked, Client::Http2(_)) => Upload::Unframed(ChunkEncoder::new()),
            (framing, _) => Upload::new(framing),
        }
    }

    /// Sets the service whose servers answer the request. Returns false if the service has no
    /// servers for requests: they must not go to those of another service.
    fn route_to(&mut self, service: Option<Arc<Service>>) -> bool {
        let Some(other) = service.filter(|service| service.id != self.own.service.id) else {
            return true;
        };
        let shared = other.http();
        self.exchange.target = shared.and_then(|http| Target::routed(self.worker, &other, http));
        self.exchange.target.is_some()
    }

    /// Sets what the request needs of the settings of the service whose servers answer, which are
    /// read once for each request.
    fn adopt_settings(&mut self, own: &HttpSnapshot, head: &RequestHead, bytes: &[u8]) {
        let target = self.exchange.target.as_ref();
        let other = target.map(|target| Arc::clone(&target.service));
        let view = other.as_ref().map(|service| service.snapshot());
        let http = view.as_ref().map_or(Some(own), |view| view.http());
        let http = http.unwrap_or(own);
        let route = self.exchange.action().map(|action| &action.limits);
        let mut limits = RequestLimits::new(http, route);
        if self.exchange.is_grpc {
            limits.adapt_to_grpc();
        }
        self.exchange.limits = Some(limits);
        self.exchange.kept = self.kept(head, http);
        self.exchange.sticky = sticky_cookie(http, head, bytes);
    }

    fn hold_rest(&mut self, rest: &[u8]) {
        if !rest.is_empty() {
            self.hold(rest);
        }
    }

    /// Returns memory for a copy of the request, if it may be sent again after a server has
    /// received it, by the settings of the service whose servers answer.
    fn kept(&self, head: &RequestHead, http: &HttpSnapshot) -> Kept {
        let method = method_text(head.method());
        let is_repeatable = may_race(&http.retry.replay, method, Body::Held);
        // A server of HTTP/2 may refuse a request without working on it.
        let may_be_refused = http.server_http2 != ServerHttp2::Off;
        match (is_repeatable || may_be_refused) && head.upgrade().is_none() {
            true => Kept::Whole(self.worker.take_spare()),
            false => Kept::Gone,
        }
    }

    /// Answers a request that violates the protocol or a limit, and closes the connection: the end
    /// of the request is unknown.
    pub(super) fn refuse(&mut self, fault: &Fault) -> Result<(), ExitReason> {
        let key = limit_key(fault);
        self.stats().refused.add(1);
        self.exchange.keeps_client = false;
        let why = format!("{fault}{key}");
        self.note_own_end(RequestEnd::Refused, &why);
        self.answer(fault.status(), &why)
    }

    /// Refuses a request whose body turns out to be malformed or too long, perhaps after its
    /// beginning was sent: the server connection is closed, so that the server does not take the
    /// beginning for the whole.
    pub(super) fn refuse_rest(&mut self, fault: BodyFault) -> Result<(), ExitReason> {
        match (&self.stage, fault) {
            (Stage::Body(_), BodyFault::Malformed(fault)) => {
                self.note_own_end(RequestEnd::Refused, &fault.to_string());
                Err(ExitReason::ClientBroke(fault.to_string()))
            }
            (Stage::Body(_), BodyFault::TooLong(limit)) => {
                let why = format!("the body has more than {limit} bytes");
                self.note_own_end(RequestEnd::Refused, &why);
                Err(ExitReason::ClientBroke(why))
            }
            (_, BodyFault::Malformed(fault)) => self.refuse(&fault),
            (_, BodyFault::TooLong(limit)) => self.refuse_body(limit),
        }
    }

    /// Begins a request that is refused before its head is known.
    pub(super) fn begin_refused(&mut self, fault: &Fault) {
        self.exchange.began_us = clock::now_us();
        self.note_invalid_head(0);
        // No server was asked, so that the answer ends nothing.
        let _ = self.refuse(fault);
    }

    fn refuse_body(&mut self, limit: u64) -> Result<(), ExitReason> {
        self.stats().refused.add(1);
        self.exchange.keeps_client = false;
        let key = self.body_limit_key();
        let why = format!("the body has more than {limit} bytes ({key})");
        self.note_own_end(RequestEnd::Refused, &why);
        self.answer(413, &why)
    }
}

/// Returns the configuration key of the limit that a head exceeds, in parentheses; empty if there
/// is none.
pub(super) fn limit_key(fault: &Fault) -> &'static str {
    match fault.limit() {
        Some(Limit::HeadBytes(_) | Limit::TargetBytes(_)) => " ([service.http] head_bytes_max)",
        Some(Limit::Fields(_)) => " ([service.http] fields_max)",
        _ => "",
    }
}

/// Returns the limits of a request head.
fn head_limits(http: &HttpSnapshot) -> HeadLimits {
    HeadLimits {
        head_bytes_max: http.size_limits.head,
        target_bytes_max: http.size_limits.head,
        fields_max: http.size_limits.fields,
        ..HeadLimits::default()
    }
}
