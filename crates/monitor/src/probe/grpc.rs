//! Asks the health service of a gRPC server (`grpc.health.v1.Health/Check`) over its own connection
//! of HTTP/2.

use std::io;

use evenkeel_wire::http::{
    HeadLimits, Method, Parsed, RequestEdit, RequestHead, ResponseHead, Scheme,
};
use evenkeel_wire::http2::{Connection, Event, Limits, Read, StreamId, write_request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{
    Ask, Asking, MonitorAccount, ProbeFailure, ProbeKind, ProbeSetupError, Progress, Target,
    TargetAddress, Tls, TlsUse, messages,
    stream::{self, Socket},
    tls::TlsStart,
};

/// Length of the longest message that is read, in bytes: the response has two.
const MESSAGE_BYTES_MAX: usize = 1024;

/// Status of a service that serves (`ServingStatus.SERVING`).
const SERVING: u64 = 1;

/// Service whose health is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrpcProbe {
    /// The `:authority` field; the server's address if not given.
    pub host: Option<String>,
    /// Name of the service; empty: the server as a whole.
    pub service: String,
}

impl ProbeKind for GrpcProbe {
    fn keys(&self) -> &'static [&'static str] {
        &["grpc_service", "host"]
    }

    fn tls_use(&self) -> TlsUse {
        TlsUse::IfConfigured
    }

    fn prepare(
        &self,
        _: Option<MonitorAccount>,
        tls: Tls,
    ) -> Result<Box<dyn Ask>, ProbeSetupError> {
        Ok(Box::new(Request {
            service: self.service.clone(),
            host: self.host.clone(),
            tls: TlsStart::offering(&tls, &[b"h2"])?,
        }))
    }
}

/// A checked request.
struct Request {
    service: String,
    host: Option<String>,
    tls: Option<TlsStart>,
}

impl Ask for Request {
    fn ask<'a>(&'a self, target: &'a Target, progress: &'a Progress) -> Asking<'a> {
        Box::pin(self.check(target, progress))
    }
}

impl Request {
    async fn check(&self, target: &Target, progress: &Progress) -> Result<(), ProbeFailure> {
        let mut socket = stream::dial(target).await.map_err(|e| messages::io(&e))?;
        let mut scheme = Scheme::Http;
        if let (Some(tls), TargetAddress::Tcp(_)) = (&self.tls, &target.address) {
            socket = Box::new(tls.handshake(socket, target, progress).await?);
            scheme = Scheme::Https;
        }
        progress.step("waiting for the response of the health service");
        let text = self.head(target);
        let mut call = Call::begin(&text, scheme, &message(&self.service))?;
        while call.progress()? {
            call.exchange(&mut *socket).await.map_err(explain)?;
        }
        self.judge(&call.response)?;
        progress.passed();
        let _ = call.end(&mut *socket).await;
        Ok(())
    }

    /// Returns the head of the request as text of HTTP/1.1.
    fn head(&self, target: &Target) -> String {
        let host = match (&self.host, &target.address) {
            (Some(host), _) => host.clone(),
            (None, TargetAddress::Tcp(address)) => address.to_string(),
            (None, TargetAddress::Unix(_)) => "localhost".to_owned(),
        };
        format!(
            "POST /grpc.health.v1.Health/Check HTTP/1.1\r\nHost: {host}\r\nContent-Type: \
             application/grpc\r\nUser-Agent: evenkeel-probe\r\nConnection: TE\r\nTE: \
             trailers\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
    }

    fn judge(&self, response: &Response) -> Result<(), ProbeFailure> {
        let service = match &*self.service {
            "" => "the server".to_owned(),
            name => format!("service {name:?}"),
        };
        let why = match (response.status, &*response.code) {
            (200, b"0") => match serving_status(&response.body) {
                Some(SERVING) => return Ok(()),
                Some(status) => format!("{service} does not serve (serving status {status})"),
                None => "malformed response of the health service".to_owned(),
            },
            (200, b"5") => format!("the health service does not know {service} (grpc_service)"),
            (200, b"12") => "the server has no health service (grpc.health.v1.Health)".to_owned(),
            (200, b"") => "the response has no grpc-status: not a gRPC server".to_owned(),
            (200, code) => format!("grpc-status {}", code.escape_ascii()),
            (status, _) => format!("status {status}, expected 200"),
        };
        Err(ProbeFailure::Failed(why))
    }
}

/// A call on a connection of its own.
struct Call {
    codec: Connection,
    out: Vec<u8>,
    input: Vec<u8>,
    stream: StreamId,
    response: Response,
}

/// Response, as far as it was received.
#[derive(Default)]
struct Response {
    status: u16,
    /// Value of `grpc-status`; empty: there is none yet.
    code: Vec<u8>,
    body: Vec<u8>,
    has_ended: bool,
}

impl Call {
    fn begin(text: &str, scheme: Scheme, message: &[u8]) -> Result<Self, ProbeFailure> {
        let mut head = RequestHead::default();
        if !matches!(
            head.parse(text.as_bytes(), &HeadLimits::default()),
            Parsed::Complete
        ) {
            return Err(ProbeFailure::Misconfigured(
                "`host` is not a host".to_owned(),
            ));
        }
        let mut codec = Connection::client(Limits::default());
        let mut out = Vec::new();
        codec.begin(&mut out);
        let edit = RequestEdit {
            scheme,
            ..RequestEdit::default()
        };
        let stream = codec.open(Method::Post, &mut out, |encoder, out| {
            write_request(out, encoder, &head, text.as_bytes(), &edit);
            false
        });
        let stream = stream.ok_or_else(|| "no stream can be opened".to_owned())?;
        codec.send_data(stream, message, true, &mut out);
        Ok(Self {
            codec,
            out,
            input: Vec::new(),
            stream,
            response: Response::default(),
        })
    }

    /// Reads what was received. Returns whether more of the response is needed.
    fn progress(&mut self) -> Result<bool, ProbeFailure> {
        let input = std::mem::take(&mut self.input);
        let mut rest = &*input;
        while !self.response.has_ended {
            match self.codec.read(rest, 0, &mut self.out) {
                Read::Incomplete => {
                    self.input = rest.to_vec();
                    return Ok(true);
                }
                Read::Used { length, event } => {
                    if let Some(event) = event {
                        self.handle(event, rest)?;
                    }
                    rest = rest.get(length..).unwrap_or_default();
                }
                Read::Failed(error) => {
                    return Err(format!("malformed HTTP/2: {}", error.why).into());
                }
            }
        }
        Ok(false)
    }

    fn handle(&mut self, event: Event, bytes: &[u8]) -> Result<(), ProbeFailure> {
        let response = &mut self.response;
        match event {
            Event::Response { end, .. } => {
                let text = self.codec.head_text();
                let mut head = ResponseHead::default();
                let parsed = head.parse(text, &HeadLimits::default(), Method::Post);
                if !matches!(parsed, Parsed::Complete) {
                    return Err("malformed response".to_owned().into());
                }
                response.status = head.status();
                response.note_code(head.fields(text).map(|field| (field.name, field.value)));
                response.has_ended = end;
            }
            Event::Data { range, end, .. } => {
                let data = bytes.get(range).unwrap_or_default();
                if response.body.len().saturating_add(data.len()) > MESSAGE_BYTES_MAX {
                    return Err("the response of the health service is too long"
                        .to_owned()
                        .into());
                }
                response.body.extend_from_slice(data);
                response.has_ended = end;
            }
            Event::Trailers { .. } => {
                let fields = self.codec.trailers().fields();
                response.note_code(fields.map(|field| (field.name, field.value)));
                response.has_ended = true;
            }
            Event::Reset { code, .. } => {
                return Err(format!("the server has reset the stream: {code:?}").into());
            }
            Event::Unprocessed { .. } => {
                return Err("the server has refused the stream".to_owned().into());
            }
            Event::GoAway { .. }
            | Event::WindowOpened { .. }
            | Event::Request { .. }
            | Event::Refused { .. } => {}
        }
        Ok(())
    }

    /// Sends what is there, and receives.
    async fn exchange(&mut self, socket: &mut dyn Socket) -> io::Result<()> {
        socket.write_all(&self.out).await?;
        socket.flush().await?;
        self.out.clear();
        match socket.read_buf(&mut self.input).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    async fn end(mut self, socket: &mut dyn Socket) -> io::Result<()> {
        self.codec.finished(self.stream, &mut self.out);
        self.codec.close_gracefully(&mut self.out);
        socket.write_all(&self.out).await?;
        socket.shutdown().await
    }
}

impl Response {
    fn note_code<'f>(&mut self, mut fields: impl Iterator<Item = (&'f [u8], &'f [u8])>) {
        let code = fields.find(|(name, _)| name.eq_ignore_ascii_case(b"grpc-status"));
        if let Some((_, value)) = code {
            self.code = value.to_vec();
        }
    }
}

/// Returns the message of a request: its length, and the field `service`, which has number 1.
fn message(service: &str) -> Vec<u8> {
    let mut content = Vec::new();
    if !service.is_empty() {
        content.push(0x0a);
        write_number(&mut content, service.len());
        content.extend_from_slice(service.as_bytes());
    }
    let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
    let mut message = vec![0];
    message.extend_from_slice(&length.to_be_bytes());
    message.extend_from_slice(&content);
    message
}

fn write_number(out: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push((number & 0x7f) as u8);
}

/// Returns the field `status` of a response, which has number 1; 0 if it is absent. `None`: the
/// message is malformed.
fn serving_status(body: &[u8]) -> Option<u64> {
    let (prefix, message) = body.split_at_checked(5)?;
    let length: [u8; 4] = prefix.get(1..)?.try_into().ok()?;
    if prefix.first() != Some(&0) || u32::from_be_bytes(length) as usize != message.len() {
        return None;
    }
    match message {
        [] => Some(0),
        [0x08, value, ..] if *value < 0x80 => Some(u64::from(*value)),
        _ => None,
    }
}

fn explain(error: io::Error) -> ProbeFailure {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => messages::closed().into(),
        _ => messages::io(&error).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_their_length_and_the_service() {
        assert_eq!(message(""), [0, 0, 0, 0, 0]);
        assert_eq!(message("ab"), [0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b']);
        let long = message(&"x".repeat(300));
        assert_eq!(long[..8], [0, 0, 0, 1, 0x2f, 0x0a, 0xac, 0x02]);
    }

    #[test]
    fn the_serving_status_is_read() {
        assert_eq!(serving_status(&[0, 0, 0, 0, 2, 8, 1]), Some(SERVING));
        assert_eq!(serving_status(&[0, 0, 0, 0, 2, 8, 2]), Some(2));
        assert_eq!(serving_status(&[0, 0, 0, 0, 0]), Some(0));
        for malformed in [&[0, 0, 0, 0, 2, 8][..], &[1, 0, 0, 0, 2, 8, 1], &[0, 0]] {
            assert_eq!(serving_status(malformed), None);
        }
    }
}
