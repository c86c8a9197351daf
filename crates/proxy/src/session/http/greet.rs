//! Begins a client connection: TLS, if the service has it, and the choice of the version.

use std::rc::Rc;
use std::time::Duration;

use evenkeel_engine::socket::Socket;
use evenkeel_engine::stream::Stream;
use evenkeel_engine::timers;
use evenkeel_tls::{ALPN_ACME, ALPN_HTTP2, HttpAcceptor};
use evenkeel_wire::http2::PREFACE;
use evenkeel_wire::tls_hello::{self, HANDSHAKE_RECORD, Parsed};

use crate::record::TerminationReason;
use crate::service::ClientPermit;
use crate::service::http::HttpSnapshot;
use crate::service::http::routes::Http2;
use crate::worker::Worker;

/// Time in which a client must complete its TLS handshake.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// Client connection of a version of HTTP.
pub(super) enum Greeted {
    Http1(Stream),
    Http2(Stream),
}

/// Begins TLS, if the service has it and the client begins with a handshake. Bytes of requests are
/// added to `early`.
pub(super) async fn greet(
    worker: &Rc<Worker>,
    permit: &ClientPermit,
    socket: Socket,
    early: &mut Vec<u8>,
) -> Result<Greeted, TerminationReason> {
    let mut stream = Stream::plain(socket);
    let view = permit.service().snapshot_owned();
    let Some(http) = view.http() else {
        return Ok(Greeted::Http1(stream));
    };
    if let Some(acceptor) = http.tls.as_ref() {
        let greeting = begin(worker, &mut stream, (acceptor, http), early);
        match timers::timeout(HANDSHAKE_LIMIT, greeting).await {
            Ok(greeted) => greeted?,
            Err(_) => {
                return Err(failed(format!(
                    "handshake not completed within {} ms",
                    HANDSHAKE_LIMIT.as_millis()
                )));
            }
        }
    }
    if stream.alpn() == Some(ALPN_ACME) {
        // The handshake was the answer to a challenge; no data follows (RFC 8737 §3).
        return Err(TerminationReason::ClientClosed);
    }
    if stream.alpn() == Some(ALPN_HTTP2) {
        return Ok(Greeted::Http2(stream));
    }
    if http.clients.http2 != Http2::All || stream.is_encrypted() {
        return Ok(Greeted::Http1(stream));
    }
    let choice = has_preface(worker, &mut stream, early);
    let is_http2 = match http.time_limits.keepalive {
        Duration::ZERO => choice.await?,
        limit => timers::timeout(limit, choice)
            .await
            .map_err(|_| TerminationReason::IdleTimeout)??,
    };
    Ok(match is_http2 {
        true => Greeted::Http2(stream),
        false => Greeted::Http1(stream),
    })
}

/// Returns whether the client begins with the preface of HTTP/2 (RFC 9113 §3.4). Bytes of it, or of
/// a request of HTTP/1.1, are added to `early`.
async fn has_preface(
    worker: &Rc<Worker>,
    stream: &mut Stream,
    early: &mut Vec<u8>,
) -> Result<bool, TerminationReason> {
    loop {
        let length = early.len().min(PREFACE.len());
        if early[..length] != PREFACE[..length] {
            return Ok(false);
        }
        if length == PREFACE.len() {
            return Ok(true);
        }
        if !receive(worker, stream, early).await? {
            return Err(TerminationReason::ClientClosed);
        }
    }
}

async fn begin(
    worker: &Rc<Worker>,
    stream: &mut Stream,
    (acceptor, http): (&HttpAcceptor, &HttpSnapshot),
    early: &mut Vec<u8>,
) -> Result<(), TerminationReason> {
    let mut first = Vec::new();
    receive(worker, stream, &mut first).await?;
    // No method begins with this byte.
    if first.first() != Some(&HANDSHAKE_RECORD) {
        *early = first;
        return Ok(());
    }
    let challenges = http.challenges.as_ref();
    let challenges = challenges.filter(|all| all.has_handshakes());
    let name = match acceptor.has_policies_by_name() || challenges.is_some() {
        true => server_name(worker, stream, &mut first).await?,
        false => None,
    };
    let challenge = challenges.zip(name.as_deref());
    let challenge = challenge.filter(|_| tls_hello::offers_only(&first, ALPN_ACME));
    let channel = match challenge.and_then(|(all, name)| all.acceptor(name)) {
        Some(challenge) => challenge.accept(),
        None => acceptor.accept(name.as_deref()),
    };
    stream.encrypt(channel.map_err(|error| failed(error.to_string()))?);
    let shaken = stream.shake_hands(worker, &first, early).await;
    shaken.map_err(|error| failed(error.to_string()))
}

/// Receives the rest of the ClientHello, and returns the name that the client asks for.
async fn server_name(
    worker: &Rc<Worker>,
    stream: &mut Stream,
    received: &mut Vec<u8>,
) -> Result<Option<Box<str>>, TerminationReason> {
    loop {
        match tls_hello::parse(received) {
            Parsed::Hello { server_name } => return Ok(server_name),
            Parsed::Incomplete => {}
            Parsed::Invalid(error) => return Err(failed(error.to_string())),
        }
        if !receive(worker, stream, received).await? {
            return Err(TerminationReason::ClientClosed);
        }
    }
}

async fn receive(
    worker: &Rc<Worker>,
    stream: &mut Stream,
    bytes: &mut Vec<u8>,
) -> Result<bool, TerminationReason> {
    let received = stream.receive(worker, bytes).await;
    received.map_err(|error| TerminationReason::ResetByClient(error.to_string()))
}

fn failed(why: String) -> TerminationReason {
    TerminationReason::Rejected(format!("TLS: {why}"))
}
