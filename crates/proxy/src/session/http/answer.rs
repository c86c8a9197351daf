//! Answers of Evenkeel's own: errors.

use std::task::{Context, Poll};

use evenkeel_engine::relay::ByteDirection;
use evenkeel_wire::http::{Answer, Method, Persistence, reason_phrase, write_answer};

use super::{ExitReason, Session, Stage};

/// Name in `Proxy-Status` (RFC 9209).
const PROXY_NAME: &str = "evenkeel";

impl Session<'_> {
    /// Answers the current request instead of a server, and ends the exchange. `why` names the
    /// limit or the fault, and no server: a client must not learn of them.
    pub(super) fn answer(&mut self, status: u16, why: &str) -> Result<(), ExitReason> {
        self.close_server();
        let exchange = &mut self.exchange;
        exchange.keeps_client &= exchange.upload.is_done() && !self.shared.is_draining();
        exchange.status = status;
        let persistence = match exchange.keeps_client {
            true => Persistence::Keep,
            false => Persistence::Close,
        };
        let body = format!("{status} {}: {why}\n", reason_phrase(status));
        let proxy_status = format!(
            "{PROXY_NAME}; error={}; details=\"{why}\"",
            error_type(status)
        );
        let mut fields = vec![
            (&b"Content-Type"[..], &b"text/plain; charset=utf-8"[..]),
            (b"Cache-Control", b"no-store"),
            (b"Proxy-Status", proxy_status.as_bytes()),
        ];
        if status == 503 {
            fields.push((b"Retry-After", b"1"));
        }
        let answer = Answer {
            status,
            fields: &fields,
            body: body.as_bytes(),
            method: match exchange.began_us {
                0 => Method::Other,
                _ => exchange.method,
            },
            client: exchange.version,
            persistence,
        };
        let mut out = self.worker.take_spare();
        write_answer(&mut out, &answer);
        self.stats().own_responses.add(1);
        self.exchange.outgoing = out;
        self.stage = Stage::Answer;
        Ok(())
    }

    /// Sends the answer after the response before it.
    pub(super) fn step_answer(&mut self, context: &mut Context<'_>) -> Result<bool, ExitReason> {
        match self.client.poll_sent(context) {
            Poll::Pending => return Ok(false),
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => return Err(ExitReason::ClientBroke(error.to_string())),
        }
        let out = std::mem::take(&mut self.exchange.outgoing);
        self.count(ByteDirection::ToClient, out.len());
        let sent = self.client.send_own(self.worker, out);
        sent.map_err(|error| ExitReason::ClientBroke(error.to_string()))?;
        self.finish()?;
        Ok(true)
    }
}

/// Returns the type of a proxy error (RFC 9209 §2.3) for a status.
fn error_type(status: u16) -> &'static str {
    match status {
        502 => "connection_terminated",
        503 => "destination_unavailable",
        504 => "http_response_timeout",
        413 | 414 | 431 => "http_request_error",
        _ => "http_request_error",
    }
}
