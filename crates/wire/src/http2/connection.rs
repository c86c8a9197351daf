//! One side of an HTTP/2 connection as a state machine: received bytes in, events and bytes to
//! send out (RFC 9113). The caller has the socket and the clock.
//!
//! - [`Connection::read`] is called with received bytes until it returns [`Read::Incomplete`], also
//!   when none are left. Each event is handled before the next call.
//! - A server's exchange begins with [`Event::Request`] or [`Event::Refused`], a client's with
//!   [`Connection::open`]. [`Connection::finished`] ends it: until then it counts as a concurrent
//!   stream, whatever frames the peer sends. A client that resets streams cannot have more work
//!   done than one that waits for its answers (CVE-2023-44487).
//! - All methods that write append whole frames to `out`, which the caller sends in this order.
//! - After an error, [`Connection::failed`] is set: the caller sends `out`, then closes.

mod check;
mod client;
mod control;
mod data;
mod headers;
mod read;
mod role;
mod send;

#[cfg(test)]
mod tests;

pub use read::PREFACE;
pub use send::DataHeader;

use std::ops::Range;

use self::role::Role;
use super::budget::{Budget, BudgetLimits};
use super::error::{ConnectionError, ErrorCode, StreamId};
use super::frame;
use super::head::{HeadFault, HeadListLimits, TrailerText};
use super::hpack::{Decoder, Encoder, TABLE_BYTES_DEFAULT};
use super::settings::PeerSettings;
use super::stream::{Stream, Streams};
use super::window::{ReceiveWindow, SendWindow, WINDOW_INITIAL, WINDOW_MAX};

/// Limits of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Exchanges that are unfinished concurrently. A server refuses more with REFUSED_STREAM, a
    /// client opens no more.
    pub streams_max: u32,
    /// Header list of a received head, as SETTINGS_MAX_HEADER_LIST_SIZE counts it (RFC 9113
    /// §6.5.2). The compressed field block may have twice as many bytes.
    pub head_bytes_max: u32,
    /// Fields of a received head, crumbs of cookies counted one by one.
    pub fields_max: u32,
    /// Bytes of DATA of a stream that the caller holds; at least 65,535, which the peer sends
    /// before it knows our SETTINGS.
    pub stream_window: u32,
    /// Bytes of DATA of all streams that the caller holds; at least 65,535.
    pub connection_window: u32,
    /// Work without use.
    pub budget: BudgetLimits,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            streams_max: 100,
            head_bytes_max: 32_768,
            fields_max: 100,
            stream_window: 256 * 1024,
            connection_window: 1024 * 1024,
            budget: BudgetLimits::default(),
        }
    }
}

/// Result of [`Connection::read`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read {
    /// No byte was used: call again with the same bytes and those that follow them. At most 24
    /// bytes are needed together, whatever the length of a frame.
    Incomplete,
    /// The first `length` bytes were used; call again with the rest.
    Used {
        /// Bytes that were used.
        length: usize,
        /// Event in them, of which there is at most one.
        event: Option<Event>,
    },
    /// GOAWAY is in `out`: send it, then close.
    Failed(ConnectionError),
}

/// Event that the caller has to handle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The head of a request; its text is [`Connection::head_text`]. An exchange begins.
    Request {
        /// Stream of the request.
        stream: StreamId,
        /// The request has no body.
        end: bool,
        /// Value of Content-Length.
        content_length: Option<u64>,
    },
    /// The head of a request that is refused, and may be answered, with 431 for example. Its body
    /// is discarded without events. An exchange begins.
    Refused {
        /// Stream of the request.
        stream: StreamId,
        /// Fault of the head.
        why: HeadFault,
    },
    /// The head of a response; its text is [`Connection::head_text`]. An interim one (1xx) is
    /// followed by another.
    Response {
        /// Stream of the response.
        stream: StreamId,
        /// The response ends with its head: neither body nor trailers follow.
        end: bool,
        /// Value of Content-Length, also where the response has no body (`HEAD`, 204, 304).
        content_length: Option<u64>,
    },
    /// A part of a body. It is held until [`Connection::release`].
    Data {
        /// Stream of the message.
        stream: StreamId,
        /// Range of the bytes that were given to [`Connection::read`]; may be empty at the end.
        range: Range<usize>,
        /// The body ends with it.
        end: bool,
    },
    /// The trailers of a message, which end it; they are in [`Connection::trailers`].
    Trailers {
        /// Stream of the message.
        stream: StreamId,
    },
    /// The stream was reset by the peer, or by us for a fault of the peer. Nothing can be sent on
    /// it; the exchange goes on until [`Connection::finished`]. A server that has sent a whole
    /// response stops the rest of the request with NO_ERROR (RFC 9113 §8.1).
    Reset {
        /// Stream of the exchange.
        stream: StreamId,
        /// Code of the RST_STREAM frame.
        code: ErrorCode,
        /// Fault of the peer, for logs. `None`: the peer reset the stream.
        why: Option<&'static str>,
    },
    /// The server has not worked on the request, and never will: it refused the stream, or GOAWAY
    /// excluded it. The request may be sent again on another connection, whatever its method
    /// (RFC 9113 §8.7). The exchange goes on until [`Connection::finished`].
    Unprocessed {
        /// Stream of the request.
        stream: StreamId,
    },
    /// A window opened for data of which [`Connection::send_data`] did not take all.
    WindowOpened {
        /// Stream. `None`: perhaps all streams.
        stream: Option<StreamId>,
    },
    /// The peer ends the connection: a client opens no more streams, a server accepts no more. Each
    /// stream of ours above `last` without a response follows as [`Event::Unprocessed`].
    GoAway {
        /// Reason.
        code: ErrorCode,
        /// The highest stream of ours that the peer works on. It means nothing to a server.
        last: u32,
    },
}

/// Progress of closing without an error (RFC 9113 §6.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Closing {
    No,
    /// GOAWAY with the highest number: new streams are still accepted.
    Announced,
    /// GOAWAY with this last stream of the peer: later ones are ignored.
    Last(u32),
    Failed(ConnectionError),
}

impl Closing {
    fn is_failed(self) -> bool {
        matches!(self, Closing::Failed(_))
    }
}

/// One side of an HTTP/2 connection.
pub struct Connection {
    limits: Limits,
    role: Role,
    reading: read::Reading,
    /// Field block of which the last frame is missing.
    block: Option<headers::Block>,
    decoder: Decoder,
    encoder: Encoder,
    trailers: TrailerText,
    streams: Streams,
    peer: PeerSettings,
    send: SendWindow,
    receive: ReceiveWindow,
    budget: Budget,
    closing: Closing,
    /// The peer knows our SETTINGS.
    settings_acknowledged: bool,
    /// The time of the last call that had one.
    now_ms: u64,
}

impl Connection {
    /// Creates the server side of a connection.
    #[must_use]
    pub fn server(limits: Limits) -> Self {
        Connection::new(limits, Role::server())
    }

    /// Creates the client side of a connection.
    #[must_use]
    pub fn client(limits: Limits) -> Self {
        Connection::new(limits, Role::client())
    }

    fn new(limits: Limits, role: Role) -> Self {
        let limits = Limits {
            stream_window: limits.stream_window.clamp(WINDOW_INITIAL, WINDOW_MAX),
            connection_window: limits.connection_window.clamp(WINDOW_INITIAL, WINDOW_MAX),
            ..limits
        };
        Connection {
            reading: role.first_reading(),
            role,
            block: None,
            decoder: Decoder::new(TABLE_BYTES_DEFAULT),
            encoder: Encoder::new(),
            trailers: TrailerText::default(),
            streams: Streams::default(),
            peer: PeerSettings::default(),
            send: SendWindow::new(WINDOW_INITIAL),
            receive: ReceiveWindow::new(limits.connection_window),
            budget: Budget::new(&limits.budget),
            closing: Closing::No,
            settings_acknowledged: false,
            now_ms: 0,
            limits,
        }
    }

    /// Appends what is sent first: the preface of a client, SETTINGS, and the window of the
    /// connection (RFC 9113 §3.4).
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        self.role.write_preface(out, &self.limits);
        let more = self.limits.connection_window.saturating_sub(WINDOW_INITIAL);
        if more > 0 {
            frame::write_window_update(out, None, more);
        }
    }

    /// Returns the head of the last [`Event::Request`] as the text of an HTTP/1.1 head, which
    /// [`crate::http::RequestHead`] parses; or that of the last [`Event::Response`], which
    /// [`crate::http::ResponseHead`] parses.
    #[must_use]
    pub fn head_text(&self) -> &[u8] {
        self.role.text()
    }

    /// Returns the trailers of the last [`Event::Trailers`].
    pub fn trailers(&mut self) -> &mut TrailerText {
        &mut self.trailers
    }

    /// Returns the fault that ended the connection.
    #[must_use]
    pub fn failed(&self) -> Option<ConnectionError> {
        match self.closing {
            Closing::Failed(error) => Some(error),
            Closing::No | Closing::Announced | Closing::Last(_) => None,
        }
    }

    /// Returns the number of exchanges that [`Connection::finished`] has not ended.
    #[must_use]
    pub fn open_streams(&self) -> u32 {
        u32::try_from(self.streams.len()).unwrap_or(u32::MAX)
    }

    /// Appends GOAWAY (RFC 9113 §6.8). The first call of a server announces the end and sends a
    /// PING; new requests are still accepted. The answer to the PING, or a second call, names the
    /// last stream; later ones are ignored. A client opens no streams after the first call. The
    /// connection can be closed when `out` was sent and [`Connection::is_drained`].
    pub fn close_gracefully(&mut self, out: &mut Vec<u8>) {
        match self.closing {
            Closing::No if self.role.is_client() => {
                self.closing = Closing::Last(0);
                frame::write_go_away(out, 0, ErrorCode::NoError, "");
            }
            Closing::No => {
                self.closing = Closing::Announced;
                frame::write_go_away(out, WINDOW_MAX, ErrorCode::NoError, "");
                frame::write_ping(out, control::CLOSING_PING);
            }
            Closing::Announced => {
                let last = self.streams.last();
                self.closing = Closing::Last(last);
                frame::write_go_away(out, last, ErrorCode::NoError, "");
            }
            Closing::Last(_) | Closing::Failed(_) => {}
        }
    }

    /// Returns whether no exchange is left and none can follow: our GOAWAY has named the last
    /// stream, or a client has received the GOAWAY of the server.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        let is_last = matches!(self.closing, Closing::Last(_)) || self.role.is_stopped();
        is_last && self.streams.len() == 0
    }

    /// Ends the connection with an error: appends GOAWAY. Nothing is read or sent afterwards.
    pub fn fail(&mut self, code: ErrorCode, why: &'static str, out: &mut Vec<u8>) {
        self.fail_with(ConnectionError { code, why }, out);
    }

    fn fail_with(&mut self, error: ConnectionError, out: &mut Vec<u8>) {
        if self.failed().is_none() {
            let last = match self.closing {
                Closing::Last(last) => last,
                _ if self.role.is_client() => 0,
                _ => self.streams.last(),
            };
            self.closing = Closing::Failed(error);
            frame::write_go_away(out, last, error.code, error.why);
        }
    }

    /// Ends the exchange of a stream: nothing is done for it any more. What is not ended on the
    /// stream is reset. A client resets it with CANCEL; a server with INTERNAL_ERROR if its own
    /// side is not ended, and with NO_ERROR if only the client's is not (RFC 9113 §8.1). Bytes that
    /// the caller still held are released.
    pub fn finished(&mut self, stream: StreamId, out: &mut Vec<u8>) {
        let Some(found) = self.streams.find(stream) else {
            return;
        };
        if let Some(code) = self.role.unfinished(found) {
            self.reset(stream, code, out);
        }
        let held = self
            .streams
            .remove(stream)
            .map_or(0, |stream: Stream| stream.held);
        self.release_connection(held, out);
    }

    /// Releases memory that a connection without exchanges does not need: call it when one rests.
    pub fn rest(&mut self) {
        if self.streams.len() == 0 {
            self.streams.release();
            self.role.release();
            self.trailers = TrailerText::default();
        }
    }

    /// Returns the limits of a header list.
    fn head_limits(&self) -> HeadListLimits {
        HeadListLimits {
            bytes_max: self.limits.head_bytes_max,
            fields_max: self.limits.fields_max,
        }
    }
}
