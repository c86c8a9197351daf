//! Answers of Evenkeel's own: errors.

use std::task::{Context, Poll};

use evenkeel_wire::http::{Answer, Persistence, reason_phrase};

use super::admit::Admitted;
use super::grpc;
use super::{ExitReason, Session, Stage};
use crate::access_log::RequestEnd;
use crate::calendar::http_date_now;
use crate::service::ServiceSnapshot;
use crate::service::http::routes::{RouteAction, RouteTarget};

/// Name in `Proxy-Status` (RFC 9209).
const PROXY_NAME: &str = "evenkeel";

impl Session<'_> {
    /// Answers the current request instead of a server, and ends the exchange. `why` names the
    /// limit or the fault, and no server: a client must not learn of them.
    pub(super) fn answer(&mut self, status: u16, why: &str) -> Result<(), ExitReason> {
        self.answer_also(status, why, &[])
    }

    /// Answers the current request as [`Session::answer`] does, with more fields.
    pub(super) fn answer_also(
        &mut self,
        status: u16,
        why: &str,
        more: &[(&[u8], &[u8])],
    ) -> Result<(), ExitReason> {
        self.answer_error((status, error_type(status)), why, more)
    }

    /// Answers the current request as [`Session::answer`] does, with more fields and a type of
    /// error (RFC 9209 §2.3).
    pub(super) fn answer_error(
        &mut self,
        (status, error): (u16, &str),
        why: &str,
        more: &[(&[u8], &[u8])],
    ) -> Result<(), ExitReason> {
        self.note_own_end(RequestEnd::Answered, why);
        if self.exchange.is_grpc {
            return self.answer_grpc(status, why);
        }
        let text = format!("{status} {}: {why}\n", reason_phrase(status));
        let view = self.service.snapshot_owned();
        let page = view
            .http()
            .and_then(|http| http.clients.error_pages.of(status));
        let (media_type, body) = match page {
            Some(page) => (page.media_type, &*page.content),
            None => ("text/plain; charset=utf-8", &*text),
        };
        let proxy_status = format!("{PROXY_NAME}; error={error}; details=\"{why}\"");
        let mut fields = vec![
            (&b"Content-Type"[..], media_type.as_bytes()),
            (b"Cache-Control", b"no-store"),
            (b"Proxy-Status", proxy_status.as_bytes()),
        ];
        if status == 503 {
            fields.push((b"Retry-After", b"1"));
        }
        fields.extend_from_slice(more);
        self.answer_with(&view, status, &fields, body.as_bytes())
    }

    /// Answers a request of gRPC with an error. The log and the statistics have the status that a
    /// client of HTTP would get.
    fn answer_grpc(&mut self, status: u16, why: &str) -> Result<(), ExitReason> {
        let view = self.service.snapshot_owned();
        let code = grpc::code_of(status);
        let message = grpc::encoded(why);
        let fields = [
            (&b"Content-Type"[..], &b"application/grpc"[..]),
            (b"Grpc-Status", code.as_bytes()),
            (b"Grpc-Message", message.as_bytes()),
        ];
        let answered = self.answer_with(&view, 200, &fields, b"");
        self.exchange.status = status;
        answered
    }

    /// Answers a request that is not sent to a server.
    pub(super) fn answer_admission(&mut self, answer: Admitted<'_>) -> Result<(), ExitReason> {
        match answer {
            Admitted::Refuse(status, why) => self.answer(status, why),
            Admitted::Limited(seconds) => {
                let seconds = seconds.to_string();
                let why = "too many requests of this client";
                self.answer_also(429, why, &[(b"Retry-After", seconds.as_bytes())])
            }
            Admitted::Redirect(status, location) => self.redirect(status, &location),
            Admitted::Challenge(content) => {
                self.note_own_end(RequestEnd::Answered, "challenge of a certificate authority");
                let view = self.service.snapshot_owned();
                // RFC 8555 §8.3.
                let fields: &[(&[u8], &[u8])] = &[(b"Content-Type", b"application/octet-stream")];
                self.answer_with(&view, 200, fields, content.as_bytes())
            }
            Admitted::ToHttps(location) => {
                let why = "the request came without TLS ([service.http] https)";
                self.note_own_end(RequestEnd::Answered, why);
                self.redirect(308, location.as_bytes())
            }
            Admitted::Fixed(RouteAction {
                target: RouteTarget::Respond(fixed),
                set_response,
                ..
            }) => {
                let view = self.service.snapshot_owned();
                let media_type = fixed.media_type.map(str::as_bytes);
                let mut fields: Vec<(&[u8], &[u8])> = set_response
                    .iter()
                    .map(|(name, value)| (name.as_bytes(), value.as_bytes()))
                    .collect();
                fields.extend(media_type.map(|media_type| (&b"Content-Type"[..], media_type)));
                self.answer_with(&view, fixed.status, &fields, fixed.content.as_bytes())
            }
            Admitted::Stranger => self.answer_stranger("a user name and a password are required"),
            Admitted::Fixed(_) | Admitted::Forward(_) | Admitted::Unverified(_) => {
                self.answer(500, "no target")
            }
        }
    }

    fn redirect(&mut self, status: u16, location: &[u8]) -> Result<(), ExitReason> {
        let view = self.service.snapshot_owned();
        self.answer_with(&view, status, &[(b"Location", location)], b"")
    }

    /// Answers with these fields and this body. `view` is that of the client's service.
    fn answer_with(
        &mut self,
        view: &ServiceSnapshot,
        status: u16,
        fields: &[(&[u8], &[u8])],
        body: &[u8],
    ) -> Result<(), ExitReason> {
        self.note_own_end(RequestEnd::Answered, "by the route");
        self.close_server();
        let is_draining = self.own.shared.is_draining();
        let mut fields = fields.to_vec();
        fields.extend(hsts(view, self.client.is_encrypted()));
        let exchange = &mut self.exchange;
        exchange.keeps_client &= exchange.upload.is_done() && !is_draining;
        exchange.status = status;
        let date = http_date_now();
        // A route may set its own.
        if !fields
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case(b"Date"))
        {
            fields.push((b"Date", date.as_bytes()));
        }
        let answer = Answer {
            status,
            fields: &fields,
            body,
            method: exchange.method,
            client: exchange.version,
            persistence: match exchange.keeps_client {
                true => Persistence::Keep,
                false => Persistence::Close,
            },
        };
        let mut out = self.worker.take_spare();
        let head_length = self.client.write_answer(&mut out, &answer);
        self.exchange.sent.head_bytes = self.exchange.sent.bytes + head_length;
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
        self.send_last_part(out)?;
        self.finish()?;
        Ok(true)
    }
}

/// Returns the field by which browsers use TLS only, for responses over TLS (RFC 6797 §7.1).
pub(super) fn hsts(view: &ServiceSnapshot, is_encrypted: bool) -> Option<(&[u8], &[u8])> {
    let hsts = view.http()?.clients.hsts.as_ref()?;
    is_encrypted.then_some((b"Strict-Transport-Security", hsts.as_bytes()))
}

/// Returns the type of a proxy error (RFC 9209 §2.3) for a status.
fn error_type(status: u16) -> &'static str {
    match status {
        502 => "connection_terminated",
        503 => "destination_unavailable",
        504 => "http_response_timeout",
        _ => "http_request_error",
    }
}
