//! Changes the protocol to WebSocket, between any two of HTTP/1.1 and HTTP/2 (RFC 6455, RFC 8441).
//!
//! An extended CONNECT of HTTP/2 arrives as the text of an opening request of HTTP/1.1, without a
//! key. A server of HTTP/2 gets such a request as an extended CONNECT if its SETTINGS offer it;
//! else it gets a connection of HTTP/1.1 where that is possible.

use std::rc::Rc;

use evenkeel_engine::relay::ByteDirection;
use evenkeel_engine::secret;
use evenkeel_wire::http::{KnownName, RequestHead, ResponseHead, WebSocketKey};

use super::acquire::QUEUE_FULL;
use super::http2::SharedConnection;
use super::server::ServerTransport;
use super::{ExitReason, Session};
use crate::access_log::RequestEnd;
use crate::service::http::ServerHttp2;

impl Session<'_> {
    /// Returns whether the request is an extended CONNECT (RFC 8441 §4), whose text asks for a
    /// change of the protocol. The field itself is refused in HTTP/2.
    pub(super) fn is_extended_connect(&self, head: &RequestHead) -> bool {
        !self.client.serves_more() && head.has(KnownName::Upgrade)
    }

    /// Returns the key of a request to change to WebSocket. An extended CONNECT has none, and a
    /// server of HTTP/1.1 gets a random one.
    pub(super) fn websocket(&self, head: &RequestHead) -> Option<WebSocketKey> {
        let key = head.upgrade()?;
        match self.is_extended_connect(head) {
            true => Some(WebSocketKey::of_random(secret())),
            false => Some(key),
        }
    }

    /// Answers an extended CONNECT that opens no WebSocket of version 13.
    pub(super) fn refuse_connect(
        &mut self,
        head: &RequestHead,
        bytes: &[u8],
    ) -> Result<(), ExitReason> {
        self.stats().refused.add(1);
        let protocol = head.get(bytes, KnownName::Upgrade).unwrap_or_default();
        if protocol.eq_ignore_ascii_case(b"websocket") {
            // RFC 6455 §4.4.
            let why = "the version of WebSocket is not 13";
            self.note_own_end(RequestEnd::Refused, why);
            return self.answer_also(400, why, &[(b"Sec-WebSocket-Version", b"13")]);
        }
        // RFC 9220 §3.
        let why = "the protocol of an extended CONNECT is not websocket";
        self.note_own_end(RequestEnd::Refused, why);
        self.answer(501, why)
    }

    /// Requests a connection of HTTP/1.1 for a WebSocket, whose server offers no extended CONNECT
    /// (RFC 8441 §3).
    pub(super) fn acquire_for_upgrade(&mut self) -> Result<(), ExitReason> {
        let target = Rc::clone(self.target());
        let view = target.service.snapshot_owned();
        let place = self.exchange.place.as_ref();
        let (Some(http), Some(place)) = (view.http(), place) else {
            return self.acquire();
        };
        if http.speaks_http2_only(&place.server) {
            tracing::warn!(
                service = %target.service.name,
                server = &*place.server.name,
                "a WebSocket was answered with 502: the server speaks HTTP/2 only ([service.http] \
                 server_http2 = \"all\"), and its SETTINGS offer no extended CONNECT"
            );
            let why = "the server of HTTP/2 offers no WebSocket ([service.http] server_http2)";
            return self.answer(502, why);
        }
        let pooled = target.pool_handle(&place.server, http, ServerHttp2::Off);
        self.acquire_alone(&pooled)
    }

    /// Waits for the SETTINGS of the server, which say whether it accepts a WebSocket.
    pub(super) fn await_settings(
        &mut self,
        connection: &SharedConnection,
    ) -> Result<(), ExitReason> {
        let settings = self.target().worker_pool.settings();
        match connection.await_settings(&self.slot, &settings) {
            Some(until_ms) => {
                self.wait_until(until_ms);
                Ok(())
            }
            None => self.answer(503, QUEUE_FULL),
        }
    }

    /// Begins a tunnel, if the client has requested exactly this change of the protocol.
    pub(super) fn switch_protocol(
        &mut self,
        head: &ResponseHead,
        bytes: &[u8],
        rest: &[u8],
        mut out: Vec<u8>,
    ) -> Result<(), ExitReason> {
        let server = self.exchange.server.as_ref();
        // HTTP/2 has no field that proves it: the response belongs to the request by its stream.
        let is_proven = server.is_some_and(ServerTransport::is_unframed);
        let accepts = |key: &WebSocketKey| is_proven || head.accepts_websocket(bytes, key);
        let Some(key) = self.exchange.websocket.filter(accepts) else {
            self.worker.keep_spare(out);
            self.report_bad_response("it changes to a protocol that was not requested");
            return self.answer(502, "the server's response is invalid");
        };
        self.note_first_byte();
        let (status, sent) = self.client.write_change(&mut out, (head, bytes), &key);
        self.count(ByteDirection::ToClient, sent);
        self.exchange.status = status;
        self.exchange.sent.head_bytes = self.exchange.sent.bytes + out.len() as u64;
        out.extend_from_slice(rest);
        self.send_to_client(out)?;
        self.begin_tunnel()
    }
}
