//! Receives the response to the copy of a request, and discards it.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use evenkeel_engine::clock;
use evenkeel_wire::http::chunked::{ChunkDecoder, ChunkLimits};
use evenkeel_wire::http::{Framing, HeadLimits, KnownName, Parsed, ResponseHead};

use super::{Failure, RequestCopy, other};
use crate::session::http::Heads;
use crate::session::http::download::{Passed, take, unchunk};
use crate::session::http::limits::RequestLimits;
use crate::session::http::response::note_idle_limit;
use crate::session::http::server::ServerTransport;
use crate::session::steps::poll_steps;

/// Maximum number of bytes that are received for a copy. Beyond them, the connection is closed.
const RESPONSE_BYTES_MAX: u64 = 16 << 20;

/// State of a response.
pub(super) enum Response {
    /// Beginning of a head.
    Head(Vec<u8>),
    /// Body after a head with this status.
    Body {
        status: u16,
        rest: Rest,
        /// True if the connection may serve other requests afterwards.
        keeps_server: bool,
    },
    /// All was received.
    Complete { status: u16, is_clean: bool },
}

/// Rest of a body.
pub(super) enum Rest {
    /// Number of bytes.
    Length(u64),
    Chunked(Box<ChunkDecoder>),
    /// All bytes until the end of the connection, or of the stream of HTTP/2.
    UntilEnd,
}

impl Default for Response {
    fn default() -> Self {
        Self::Head(Vec::new())
    }
}

impl Response {
    /// Returns whether the head of the final response was received.
    pub(super) fn has_begun(&self) -> bool {
        !matches!(self, Self::Head(_))
    }

    pub(super) fn is_complete(&self) -> bool {
        matches!(self, Self::Complete { .. })
    }

    /// Returns whether the connection may serve other requests.
    pub(super) fn is_clean(&self) -> bool {
        matches!(self, Self::Complete { is_clean: true, .. })
    }

    /// Returns the status; zero: it is not known.
    pub(super) fn status(&self) -> u16 {
        match self {
            Self::Head(_) => 0,
            Self::Body { status, .. } | Self::Complete { status, .. } => *status,
        }
    }
}

impl Rest {
    /// Returns the rest after a head. `None`: there is no body.
    fn new(framing: Framing, is_unframed: bool) -> Option<Self> {
        Some(match framing {
            Framing::None | Framing::Length(0) => return None,
            _ if is_unframed => Self::UntilEnd,
            Framing::Length(length) => Self::Length(length),
            Framing::Chunked => Self::Chunked(Box::new(ChunkDecoder::new(ChunkLimits::default()))),
            Framing::UntilClose => Self::UntilEnd,
        })
    }

    /// Returns the number of bytes that belong to the body, if they complete it.
    fn read(&mut self, bytes: &[u8], has_ended: bool) -> Result<Option<usize>, Failure> {
        match self {
            Self::Length(left) => {
                let taken = take(left, bytes).len();
                Ok((*left == 0).then_some(taken))
            }
            Self::Chunked(decoder) => match unchunk(decoder, bytes, |_| ()) {
                Ok(Passed::Partial) => Ok(None),
                Ok(Passed::Complete(used)) => Ok(Some(used)),
                Err(fault) => Err(other(format!("the response is invalid: {fault}"))),
            },
            Self::UntilEnd => Ok(has_ended.then_some(bytes.len())),
        }
    }
}

impl RequestCopy {
    /// Receives until the response is in a wanted state.
    pub(super) async fn receive(
        &mut self,
        is_reached: impl Fn(&Response) -> bool,
    ) -> Result<(), Failure> {
        poll_fn(|context| {
            poll_steps(context, |context| match is_reached(&self.response) {
                true => Err(Ok(())),
                false => self.step(context).map_err(Err),
            })
        })
        .await
    }

    /// Receives a part of the response. Returns false if none is there.
    fn step(&mut self, context: &mut Context<'_>) -> Result<bool, Failure> {
        let worker = Rc::clone(&self.worker);
        let Some(server) = &mut self.server else {
            return Err(other("there is no server connection"));
        };
        match server.poll_chunk(&worker, context) {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(Some(chunk))) => {
                self.count(chunk.bytes().len() as u64)?;
                self.read(chunk.bytes())?;
                Ok(true)
            }
            Poll::Ready(Ok(None)) => {
                self.end_with_server()?;
                Ok(true)
            }
            Poll::Ready(Err(error)) => Err(Failure::Broken(error.to_string())),
        }
    }

    /// Counts received bytes.
    fn count(&mut self, length: u64) -> Result<(), Failure> {
        self.received += length;
        if let Some(place) = &self.place {
            let bytes = place.server.counters.bytes.of(self.worker.index());
            bytes.add_to_client(length);
        }
        match self.received <= RESPONSE_BYTES_MAX {
            true => Ok(()),
            false => Err(other(format!(
                "the response has more than {RESPONSE_BYTES_MAX} bytes"
            ))),
        }
    }

    fn end_with_server(&mut self) -> Result<(), Failure> {
        let Response::Body {
            status,
            rest: Rest::UntilEnd,
            ..
        } = self.response
        else {
            return Err(Failure::Broken(
                "the server has ended the connection".to_owned(),
            ));
        };
        self.response = Response::Complete {
            status,
            is_clean: false,
        };
        Ok(())
    }

    fn read(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        match &mut self.response {
            Response::Head(held) => {
                let mut text = std::mem::take(held);
                text.extend_from_slice(bytes);
                self.read_heads(&text)
            }
            Response::Body { .. } => self.read_body(bytes),
            Response::Complete { .. } => Ok(()),
        }
    }

    /// Reads heads until the final one is complete.
    fn read_heads(&mut self, text: &[u8]) -> Result<(), Failure> {
        let heads = self.worker.local::<Heads>();
        let head = &mut *heads.response.borrow_mut();
        let limits = self.head_limits();
        let mut bytes = text;
        loop {
            head.clear();
            match head.parse(bytes, &limits, self.method) {
                Parsed::Complete if head.status() == 101 => {
                    return Err(other("it changes to a protocol that was not requested"));
                }
                Parsed::Complete if head.is_interim() => {
                    bytes = bytes.get(head.length()..).unwrap_or_default();
                }
                Parsed::Complete => return self.begin_body(head, bytes),
                Parsed::Incomplete => {
                    self.response = Response::Head(bytes.to_vec());
                    return Ok(());
                }
                Parsed::Invalid(fault) => {
                    return Err(other(format!("the response is invalid: {fault}")));
                }
            }
        }
    }

    fn head_limits(&self) -> HeadLimits {
        let view = self.target.service.snapshot();
        let http = view.http();
        http.map_or_else(HeadLimits::default, |http| {
            RequestLimits::new(http, None).response
        })
    }

    /// Begins the body after the final head. `bytes` begin with the head.
    fn begin_body(&mut self, head: &ResponseHead, bytes: &[u8]) -> Result<(), Failure> {
        if let Some(place) = &self.place {
            let now_us = clock::now_us();
            let waited_us = now_us.saturating_sub(self.sent_us);
            place.of_service.load.observe_latency(now_us, waited_us);
            if let Some(value) = head.get(bytes, KnownName::KeepAlive) {
                note_idle_limit(value, &place.of_service);
            }
        }
        let server = self.server.as_ref();
        let is_unframed = server.is_some_and(ServerTransport::is_unframed);
        let status = head.status();
        let body = bytes.get(head.length()..).unwrap_or_default();
        match Rest::new(head.framing(), is_unframed) {
            None => {
                self.response = Response::Complete {
                    status,
                    is_clean: head.keeps_connection() && body.is_empty(),
                };
                Ok(())
            }
            Some(rest) => {
                self.response = Response::Body {
                    status,
                    rest,
                    keeps_server: head.keeps_connection(),
                };
                self.read_body(body)
            }
        }
    }

    fn read_body(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let server = self.server.as_ref();
        let has_ended = server.is_some_and(ServerTransport::has_ended);
        if let Response::Body {
            status,
            rest,
            keeps_server,
        } = &mut self.response
            && let Some(used) = rest.read(bytes, has_ended)?
        {
            self.response = Response::Complete {
                status: *status,
                is_clean: *keeps_server && used == bytes.len(),
            };
        }
        Ok(())
    }
}
