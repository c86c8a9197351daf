//! Client side: opens streams, and reads which of them the server has not worked on.

use super::read::{Reading, Step};
use super::role::Role;
use super::{Closing, Connection, Event};
use crate::http::Method;
use crate::http2::error::StreamId;
use crate::http2::hpack::Encoder;
use crate::http2::settings::ExtendedConnect;
use crate::http2::stream::{Change, Owed, Stream};
use crate::http2::window::{ReceiveWindow, SendWindow};

impl Connection {
    /// Opens a stream with the head of a request: appends HEADERS, and CONTINUATION if the field
    /// block is long. `write` appends the field block, and returns whether it ends the request.
    /// `method` is that of the request: it decides whether the response has a body. CONNECT is that
    /// of an extended one: the text of a response that accepts it has the status 101. An exchange
    /// begins.
    ///
    /// `None`: there is no room for a stream, see [`Connection::free_streams`]. `write` is not
    /// called then, so that the table of the encoder never knows fields that the server has not
    /// received.
    pub fn open(
        &mut self,
        method: Method,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Encoder, &mut Vec<u8>) -> bool,
    ) -> Option<StreamId> {
        if self.free_streams() == 0 {
            return None;
        }
        let id = self.streams.next()?;
        self.streams.open(id);
        self.streams.insert(Stream::new(
            id,
            Some(Owed::Response { method }),
            SendWindow::new(self.peer.initial_window),
            ReceiveWindow::new(self.limits.stream_window),
        ));
        self.send_head(id, out, write);
        Some(id)
    }

    /// Returns how many streams can be opened now: as many as our limit and the server's
    /// SETTINGS_MAX_CONCURRENT_STREAMS have room for. 0 after a GOAWAY of either side, after an
    /// error, when all numbers are used (RFC 9113 §5.1.1), and for a server.
    #[must_use]
    pub fn free_streams(&self) -> u32 {
        let may_open = matches!(self.role, Role::Client { last: None, .. });
        if !may_open || self.closing != Closing::No || self.streams.next().is_none() {
            return 0;
        }
        let most = self.limits.streams_max.min(self.peer.streams_max);
        most.saturating_sub(self.open_streams())
    }

    /// Returns whether the server accepts extended CONNECT, as far as its SETTINGS have been
    /// received (RFC 8441 §3). [`Connection::open`] may open one only if they offer it.
    #[must_use]
    pub fn extended_connect(&self) -> ExtendedConnect {
        self.peer.connect
    }

    /// Notes the last stream of the server's GOAWAY.
    pub(super) fn stop_opening(&mut self, named: u32) {
        if let Role::Client { last, .. } = &mut self.role {
            *last = Some(named);
        }
    }

    /// Returns the next stream without a response that GOAWAY has excluded. `debug` bytes of the
    /// frame follow.
    pub(super) fn excluded(&mut self, debug: u32) -> Step {
        let Role::Client { last, .. } = &self.role else {
            self.reading = Reading::Skip { left: debug };
            return Step::Took(0);
        };
        let last = last.unwrap_or(u32::MAX);
        let mut streams = self.streams.iter_mut();
        let is_unanswered = |stream: &Stream| matches!(stream.owed(), Some(Owed::Response { .. }));
        let Some(stream) = streams.find(|it| it.id.get() > last && is_unanswered(it)) else {
            self.reading = Reading::Skip { left: debug };
            return Step::Took(0);
        };
        stream.advance(Change::Reset);
        Step::Event(0, Event::Unprocessed { stream: stream.id })
    }
}
