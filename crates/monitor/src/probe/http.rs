//! Sends one GET over its own connection, and checks the status and the start of the body.

use std::{ops::RangeInclusive, pin::pin};

use futures_util::future::{Either, select};
use http_body_util::{BodyExt, Empty};
use hyper::{
    Response, StatusCode,
    body::{Bytes, Incoming},
    client::conn::http1::{self, SendRequest},
    header::{CONNECTION, HOST, HeaderValue, USER_AGENT},
};
use hyper_util::rt::TokioIo;

use super::{
    Ask, Asking, MonitorAccount, ProbeFailure, ProbeKind, ProbeSetupError, Progress, Target,
    TargetAddress, Tls, TlsUse, messages,
    stream::{self, CheckedStream, Plausible, ReceivedPrefix, Socket},
    tls::TlsStart,
};

/// Length of the searched part of the body, in bytes.
const BODY_BYTES_MAX: usize = 64 << 10;

/// Request of the HTTP probe, and the expected response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpProbe {
    /// Path and query, from the slash on. Default `/`.
    pub path: String,
    /// The Host header; the server's address if not given.
    pub host: Option<String>,
    /// The status codes that pass; 200 to 399 if empty, and by default.
    pub status: Vec<RangeInclusive<u16>>,
    /// Text that the first 64 KiB of the body must contain.
    pub body: Option<String>,
}

impl Default for HttpProbe {
    fn default() -> Self {
        Self {
            path: "/".to_owned(),
            host: None,
            status: vec![200..=399],
            body: None,
        }
    }
}

impl ProbeKind for HttpProbe {
    fn keys(&self) -> &'static [&'static str] {
        &["path", "host", "status", "body"]
    }

    fn tls_use(&self) -> TlsUse {
        TlsUse::IfConfigured
    }

    fn prepare(
        &self,
        _: Option<MonitorAccount>,
        tls: Tls,
    ) -> Result<Box<dyn Ask>, ProbeSetupError> {
        Ok(Box::new(Request::new(self.clone(), &tls)?))
    }
}

/// A checked request.
struct Request {
    path: hyper::Uri,
    host: Option<HeaderValue>,
    status: Vec<RangeInclusive<u16>>,
    body: Option<String>,
    tls: Option<TlsStart>,
}

impl Request {
    fn new(wanted: HttpProbe, tls: &Tls) -> Result<Self, ProbeSetupError> {
        let status = if wanted.status.is_empty() {
            vec![200..=399]
        } else {
            wanted.status
        };
        Ok(Self {
            path: parse_path(&wanted.path)?,
            host: wanted.host.as_deref().map(parse_host).transpose()?,
            status,
            body: wanted.body,
            tls: TlsStart::new(tls)?,
        })
    }

    async fn ask_for_page(&self, target: &Target, progress: &Progress) -> Result<(), ProbeFailure> {
        let socket = stream::dial(target).await.map_err(|e| messages::io(&e))?;
        let plausible: Plausible = if self.tls.is_some() {
            |_| true
        } else {
            may_answer
        };
        let (socket, received) = CheckedStream::new(socket, plausible);
        let socket = self.start_tls(socket, target, progress).await?;
        progress.step("waiting for the HTTP response");
        let shaken = http1::Builder::new().handshake(TokioIo::new(socket)).await;
        let (sender, connection) = shaken.map_err(|e| explain(&e, &received))?;
        let exchange = pin!(self.exchange(sender, target, progress));
        // The connection must be polled beside the exchange; when the connection ends first, the
        // response was received already.
        let answer = match select(exchange, connection).await {
            Either::Left((answer, _)) => answer,
            Either::Right((_, exchange)) => exchange.await,
        };
        answer.map_err(|e| match e {
            Ended::Broken(e) => explain(&e, &received).into(),
            Ended::Unwanted(why) => ProbeFailure::Failed(why),
        })
    }

    async fn start_tls(
        &self,
        socket: CheckedStream,
        target: &Target,
        progress: &Progress,
    ) -> Result<Box<dyn Socket>, ProbeFailure> {
        match (&self.tls, &target.address) {
            (Some(tls), TargetAddress::Tcp(_)) => {
                Ok(Box::new(tls.handshake(socket, target, progress).await?))
            }
            _ => Ok(Box::new(socket)),
        }
    }

    async fn exchange(
        &self,
        mut sender: SendRequest<Empty<Bytes>>,
        target: &Target,
        progress: &Progress,
    ) -> Result<(), Ended> {
        let mut response = sender.send_request(self.request(target)?).await?;
        let status = response.status();
        if !self
            .status
            .iter()
            .any(|range| range.contains(&status.as_u16()))
        {
            return Err(Ended::Unwanted(unwanted_status(status, &self.status)));
        }
        if let Some(text) = &self.body {
            progress.step("reading the HTTP body");
            expect_text(&mut response, text).await?;
        }
        progress.passed();
        // The rest is read so that the close does not send a reset to the server.
        let mut left = BODY_BYTES_MAX;
        while let Some(Ok(frame)) = response.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                break;
            }
        }
        Ok(())
    }

    fn request(&self, target: &Target) -> Result<hyper::Request<Empty<Bytes>>, Ended> {
        let host = match (&self.host, &target.address) {
            (Some(host), _) => host.clone(),
            (None, TargetAddress::Tcp(address)) => HeaderValue::try_from(address.to_string())
                .unwrap_or(HeaderValue::from_static("localhost")),
            (None, TargetAddress::Unix(_)) => HeaderValue::from_static("localhost"),
        };
        hyper::Request::get(self.path.clone())
            .header(HOST, host)
            .header(USER_AGENT, "evenkeel-probe")
            .header(CONNECTION, "close")
            .body(Empty::new())
            .map_err(|e| Ended::Unwanted(e.to_string()))
    }
}

impl Ask for Request {
    fn ask<'a>(&'a self, target: &'a Target, progress: &'a Progress) -> Asking<'a> {
        Box::pin(self.ask_for_page(target, progress))
    }
}

/// Reason why an exchange did not pass.
enum Ended {
    Broken(hyper::Error),
    Unwanted(String),
}

impl From<hyper::Error> for Ended {
    fn from(error: hyper::Error) -> Self {
        Self::Broken(error)
    }
}

async fn expect_text(response: &mut Response<Incoming>, text: &str) -> Result<(), Ended> {
    let mut body = Vec::new();
    let mut searched = 0;
    while !contains(&body[searched..], text.as_bytes()) {
        searched = body.len().saturating_sub(text.len());
        let frame = match response.frame().await {
            Some(frame) if body.len() < BODY_BYTES_MAX => frame?,
            _ => {
                return Err(Ended::Unwanted(text_missing(
                    response.status(),
                    text,
                    body.len(),
                )));
            }
        };
        if let Some(data) = frame.data_ref() {
            let room = BODY_BYTES_MAX - body.len();
            body.extend_from_slice(&data[..data.len().min(room)]);
        }
    }
    Ok(())
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    needle.is_empty()
        || haystack
            .windows(needle.len())
            .any(|window| window == needle)
}

fn text_missing(status: StatusCode, text: &str, body_bytes: usize) -> String {
    format!(
        "status {}, but {text:?} not found in the first {body_bytes} bytes of the body",
        status.as_u16()
    )
}

fn unwanted_status(status: StatusCode, wanted: &[RangeInclusive<u16>]) -> String {
    let wanted: Vec<String> = wanted
        .iter()
        .map(|r| match (r.start(), r.end()) {
            (from, to) if from == to => from.to_string(),
            (from, to) => format!("{from}-{to}"),
        })
        .collect();
    format!("status {status}, expected {}", wanted.join(", "))
}

fn explain(error: &hyper::Error, received: &ReceivedPrefix) -> String {
    if let Some(first) = received.implausible() {
        return messages::unexpected_protocol("HTTP", &first);
    }
    if error.is_parse() {
        return format!("malformed HTTP response: {}", messages::chain(error));
    }
    if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        return messages::closed();
    }
    match messages::io_inside(error) {
        Some(io) => messages::io(io),
        None => messages::chain(error),
    }
}

/// Returns whether the bytes may begin a status line: "HTTP-version SP status-code SP" (RFC 9112,
/// section 4), in either version 1.
fn may_answer(first: &[u8]) -> bool {
    first
        .iter()
        .zip(b"HTTP/1.")
        .all(|(received, expected)| received == expected)
}

fn parse_path(path: &str) -> Result<hyper::Uri, ProbeSetupError> {
    let bad = |why: String| ProbeSetupError::BadRequest {
        what: "path",
        value: path.to_owned(),
        why,
    };
    if !path.starts_with('/') {
        return Err(bad("must begin with a slash".to_owned()));
    }
    path.parse()
        .map_err(|e: hyper::http::uri::InvalidUri| bad(e.to_string()))
}

fn parse_host(host: &str) -> Result<HeaderValue, ProbeSetupError> {
    HeaderValue::try_from(host).map_err(|e| ProbeSetupError::BadRequest {
        what: "host",
        value: host.to_owned(),
        why: e.to_string(),
    })
}
