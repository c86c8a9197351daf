//! State of one request and its response.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use evenkeel_wire::http::chunked::{ChunkDecoder, ChunkEncoder, ChunkLimits, Step};
use evenkeel_wire::http::{Fault, Framing, Method, Version, WebSocketKey};

use super::compress::ClientCodings;
use super::limits::RequestLimits;
use super::log::{Noted, OwnEnd, Sent};
use super::server::ServerTransport;
use super::target::Target;
use crate::server::Server;
use crate::service::ServiceSnapshot;
use crate::service::http::routes::{RouteAction, Routes};
use crate::service::http::{HttpServer, HttpSnapshot};
use crate::upstream::connect_error::ConnectError;

/// A request from its head to the end of its response.
#[derive(Default)]
pub(super) struct Exchange {
    /// Service of a route; `None`: the session's own.
    pub(super) target: Option<Rc<Target>>,
    /// Snapshot and index of the request's route.
    pub(super) route: Option<(Arc<Routes>, usize)>,
    /// Limits of the request; `None`: its route is not known yet.
    pub(super) limits: Option<RequestLimits>,
    /// Address of the client, perhaps reported by a proxy.
    pub(super) client: Option<IpAddr>,
    /// Id that the server receives. `None`: what the client sends passes.
    pub(super) request_id: Option<Box<str>>,
    /// Name of a user that the client has sent, for the log.
    pub(super) user: Option<Box<str>>,
    /// Key that the `source` algorithm hashes.
    pub(super) hash_key: u64,
    /// Value of the client's cookie that names a server.
    pub(super) sticky: Option<Vec<u8>>,
    /// Codings of the client. `None`: the service compresses no responses.
    pub(super) codings: Option<Box<ClientCodings>>,
    /// Cookie that the response sets.
    pub(super) set_cookie: Option<String>,
    pub(super) method: Method,
    /// Version of the client.
    pub(super) version: Version,
    /// True if the client's connection serves another request afterwards.
    pub(super) keeps_client: bool,
    /// True if the client awaits a status of gRPC, also with an error.
    pub(super) is_grpc: bool,
    /// True if the client awaits an interim response 100.
    pub(super) awaits_continue: bool,
    /// Key of a request to change to WebSocket.
    pub(super) websocket: Option<WebSocketKey>,
    pub(super) upload: Upload,
    /// Bytes of the body that have been received.
    pub(super) body_bytes: u64,
    /// Bytes for the server that have not been sent: the head, and what follows of the body.
    pub(super) outgoing: Vec<u8>,
    pub(super) kept: Kept,
    pub(super) attempts: Attempts,
    pub(super) place: Option<Place>,
    pub(super) server: Option<ServerTransport>,
    /// Beginning of a response head.
    pub(super) held: Vec<u8>,
    /// Time of the request head, in microseconds of the clock; zero: there is no request.
    pub(super) began_us: u64,
    /// Time of the last send of the request head.
    pub(super) sent_us: u64,
    /// Time of the first byte of the final response; zero: there is none yet.
    pub(super) first_byte_us: u64,
    /// Status of the response; zero: there is none yet.
    pub(super) status: u16,
    /// True if the server connection may serve other requests after this response.
    pub(super) keeps_server: bool,
    pub(super) sent: Sent,
    /// Part of the head for the access log. `None`: the request is not logged.
    pub(super) noted: Option<Noted>,
    /// Reason why Evenkeel answers the request itself.
    pub(super) own_end: Option<OwnEnd>,
}

/// Attempts to get a response.
#[derive(Default)]
pub(super) struct Attempts {
    /// Servers that have failed this request.
    pub(super) tried: Vec<u64>,
    pub(super) failures: u32,
    /// Error of the last connect. `None`: it has not failed.
    pub(super) connect_error: Option<Arc<ConnectError>>,
    /// True if the current attempt counts in the budget of retries.
    pub(super) is_budgeted: bool,
}

/// Copy of the request for another attempt, as far as it was sent.
pub(super) enum Kept {
    Whole(Vec<u8>),
    /// Too long, or no longer needed.
    Gone,
}

/// Server of a request, with a slot of its load that is released on drop.
pub(super) struct Place {
    pub(super) server: Arc<Server>,
    pub(super) of_service: Arc<HttpServer>,
}

/// Rest of the request body, on its way to the server.
#[derive(Default)]
pub(super) enum Upload {
    /// All of the body has been received.
    #[default]
    Done,
    /// Number of bytes that have not been received.
    Length(u64),
    Chunked(Box<Recoding>),
    /// Sent as chunks. Its end comes apart from its bytes, as in HTTP/2.
    Unframed(ChunkEncoder),
}

/// Chunked body that is decoded and encoded again.
pub(super) struct Recoding {
    pub(super) decoder: ChunkDecoder,
    pub(super) encoder: ChunkEncoder,
}

/// Result of recoding a part of a body.
pub(super) enum Recoded {
    /// All bytes are used, and more of the body follows.
    Partial,
    /// The body is complete after this number of bytes.
    Complete(usize),
}

impl Recoding {
    pub(super) fn new() -> Self {
        Self {
            decoder: ChunkDecoder::new(ChunkLimits::default()),
            encoder: ChunkEncoder::new(),
        }
    }

    /// Appends the next part of a body to `out`. `data_bytes` is increased by the length of the
    /// data.
    pub(super) fn recode(
        &mut self,
        bytes: &[u8],
        data_bytes: &mut u64,
        out: &mut Vec<u8>,
    ) -> Result<Recoded, Fault> {
        let mut used = 0;
        loop {
            match self.decoder.next(&bytes[used..]) {
                Step::Data(range) => {
                    let end = used + range.end;
                    let data = &bytes[used + range.start..end];
                    *data_bytes += data.len() as u64;
                    self.encoder.whole(data, out);
                    used = end;
                }
                Step::Incomplete => return Ok(Recoded::Partial),
                Step::End { consumed } => {
                    let finished = self.encoder.finish(self.decoder.trailers(), out);
                    debug_assert!(finished, "a body ends once");
                    return Ok(Recoded::Complete(used + consumed));
                }
                Step::Invalid(fault) => return Err(fault),
            }
        }
    }
}

impl Default for Kept {
    fn default() -> Self {
        Self::Whole(Vec::new())
    }
}

impl Kept {
    /// Appends bytes that are sent, unless the copy would be longer than `length_max`.
    pub(super) fn add(&mut self, bytes: &[u8], length_max: usize) {
        if let Self::Whole(kept) = self {
            match kept.len() + bytes.len() <= length_max {
                true => kept.extend_from_slice(bytes),
                false => *self = Self::Gone,
            }
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        matches!(self, Self::Gone)
    }

    /// Takes the copy; it is gone afterwards.
    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        match std::mem::replace(self, Self::Gone) {
            Self::Whole(kept) => Some(kept),
            Self::Gone => None,
        }
    }
}

impl Exchange {
    /// Returns whether a request is in progress.
    pub(super) fn has_begun(&self) -> bool {
        self.began_us != 0
    }

    /// Returns the treatment of the request by its route, if it has one.
    pub(super) fn action(&self) -> Option<&RouteAction> {
        let (routes, index) = self.route.as_ref()?;
        Some(&routes.table.routes()[*index].target)
    }
}

impl Place {
    /// Wraps a server that was picked, whose load has been reserved.
    pub(super) fn reserved(view: &ServiceSnapshot, http: &HttpSnapshot, index: usize) -> Self {
        Self {
            server: Arc::clone(&view.servers[index]),
            of_service: Arc::clone(&http.servers[index]),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.of_service.load.release();
    }
}

impl Upload {
    pub(super) fn new(framing: Framing) -> Self {
        match framing {
            Framing::None | Framing::UntilClose | Framing::Length(0) => Self::Done,
            Framing::Length(length) => Self::Length(length),
            Framing::Chunked => Self::Chunked(Box::new(Recoding::new())),
        }
    }

    pub(super) fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }
}
