//! A stream of HTTP/2 as the server of one exchange.

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

use evenkeel_engine::clock;
use evenkeel_engine::socket::Chunk;
use evenkeel_wire::http::chunked::{ChunkDecoder, ChunkLimits, Step};
use evenkeel_wire::http::{
    Field, Framing, HeadLimits, Method, Parsed, RequestEdit, RequestHead, Scheme,
};
use evenkeel_wire::http2::{StreamId, write_request};

use super::connections::SharedConnection;
use crate::session::http::http2::shared::{BodyEnd, State, StreamState, add_line, fields_of};
use crate::worker::Worker;

/// Stream of a connection to a server, for the task of its exchange. It ends on drop: a request or
/// response that is not complete is canceled.
pub(in crate::session::http) struct ServerStream {
    shared: Rc<SharedConnection>,
    id: StreamId,
    rest: RequestRest,
    /// Lines of the response's trailers, if it has ended.
    trailers: Option<Vec<u8>>,
    opened_ms: u64,
    was_used: bool,
}

/// Rest of the request, in the framing of HTTP/1.1.
enum RequestRest {
    Done,
    /// Number of bytes.
    Length(u64),
    Chunked(Box<ChunkDecoder>),
    /// Bytes of a tunnel, which end apart from them.
    Tunnel,
}

impl ServerStream {
    /// Opens a stream with a request in the text of HTTP/1.1, as far as it was received. `head` is
    /// memory for parsing it. `None`: the connection has no free stream.
    pub(in crate::session::http) fn open(
        shared: &Rc<SharedConnection>,
        head: &mut RequestHead,
        request: &[u8],
    ) -> Option<io::Result<Self>> {
        if shared.free_streams() == 0 {
            return None;
        }
        let limits = HeadLimits {
            head_bytes_max: usize::MAX,
            target_bytes_max: usize::MAX,
            fields_max: usize::MAX,
            ..HeadLimits::default()
        };
        head.clear();
        if !matches!(head.parse(request, &limits), Parsed::Complete) {
            let why = "the request cannot be sent by HTTP/2";
            return Some(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
        }
        let edit = RequestEdit {
            scheme: match shared.is_encrypted() {
                true => Scheme::Https,
                false => Scheme::Http,
            },
            upgrade: true,
            ..RequestEdit::default()
        };
        let (method, rest) = match head.upgrade() {
            None => (head.method(), RequestRest::new(head.framing())),
            Some(_) => (Method::Connect, RequestRest::Tunnel),
        };
        let id = {
            let mut state = shared.state();
            let State { codec, out, .. } = &mut *state;
            let id = codec.open(method, out, |encoder, out| {
                write_request(out, encoder, head, request, &edit);
                matches!(rest, RequestRest::Done)
            })?;
            state.open(id, StreamState::new(false, None));
            id
        };
        let mut stream = Self {
            was_used: shared.begin_exchange(),
            shared: Rc::clone(shared),
            id,
            rest,
            trailers: None,
            opened_ms: clock::now_ms(),
        };
        let sent = stream.send(request.get(head.length()..).unwrap_or_default());
        Some(sent.map(|()| stream))
    }

    /// Returns whether the connection has served other requests before.
    pub(in crate::session::http) fn was_used(&self) -> bool {
        self.was_used
    }

    /// Returns whether the server has not worked on the request, so that it may be sent again.
    pub(in crate::session::http) fn is_unprocessed(&self) -> bool {
        let state = self.shared.state();
        let stream = state.streams.get(&self.id);
        stream.is_some_and(|stream| matches!(stream.body, BodyEnd::Unprocessed))
    }

    /// Returns whether the server has canceled the request.
    pub(in crate::session::http) fn is_canceled(&self) -> bool {
        let state = self.shared.state();
        let stream = state.streams.get(&self.id);
        stream.is_some_and(|stream| matches!(stream.body, BodyEnd::Canceled))
    }

    /// Polls for the text of response heads, then for bytes of the body. `None`: the response is
    /// complete.
    pub(in crate::session::http) fn poll_chunk<'a>(
        &mut self,
        worker: &Worker,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Chunk<'a>>>> {
        let mut state = self.shared.state();
        let state = &mut *state;
        let stream = state.stream(self.id)?;
        if !stream.head.is_empty() {
            let head = std::mem::take(&mut stream.head);
            return Poll::Ready(Ok(Some(Chunk::own(head))));
        }
        if stream.available() > 0 {
            let bytes = stream.take(worker.take_spare());
            state.codec.release(self.id, bytes.len(), &mut state.out);
            if !state.out.is_empty() {
                state.wake();
            }
            return Poll::Ready(Ok(Some(Chunk::own(bytes))));
        }
        if let BodyEnd::Ended(trailers) = &mut stream.body {
            self.trailers
                .get_or_insert_with(|| std::mem::take(trailers));
            return Poll::Ready(Ok(None));
        }
        stream.watch(context);
        Poll::Pending
    }

    /// Returns whether all of the response was received and taken.
    pub(in crate::session::http) fn has_ended(&self) -> bool {
        let state = self.shared.state();
        let stream = state.streams.get(&self.id);
        stream.is_some_and(|stream| {
            matches!(&stream.body, BodyEnd::Ended(trailers) if trailers.is_empty())
                && stream.head.is_empty()
                && stream.received.is_empty()
        })
    }

    /// Returns the trailers of a response that has ended.
    pub(in crate::session::http) fn trailers(&self) -> impl Iterator<Item = Field<'_>> {
        fields_of(self.trailers.as_deref().unwrap_or_default())
    }

    /// Polls until more of the request may be sent: no bytes wait for a window, and few for the
    /// socket.
    pub(in crate::session::http) fn poll_sent(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        self.shared.state().poll_sent(self.id, context)
    }

    /// Returns whether no byte waits for a window of the server.
    pub(in crate::session::http) fn is_sent(&self) -> bool {
        let state = self.shared.state();
        let stream = state.streams.get(&self.id);
        stream.is_none_or(|stream| stream.waiting.is_empty())
    }

    /// Sends the next bytes of the request, which are in the framing of HTTP/1.1.
    pub(in crate::session::http) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.shared.state();
        match &mut self.rest {
            RequestRest::Done => {}
            RequestRest::Length(left) => {
                *left = left.saturating_sub(bytes.len() as u64);
                let is_last = *left == 0;
                if !bytes.is_empty() {
                    state.send(self.id, bytes, is_last);
                }
                if is_last {
                    self.rest = RequestRest::Done;
                }
            }
            RequestRest::Chunked(decoder) => {
                if send_chunked(&mut state, self.id, decoder, bytes)? {
                    self.rest = RequestRest::Done;
                }
            }
            RequestRest::Tunnel => state.send(self.id, bytes, false),
        }
        Ok(())
    }

    /// Ends the own side of a tunnel, and polls until all bytes are on their way.
    pub(in crate::session::http) fn poll_end(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        self.shared.state().poll_end(self.id, context)
    }

    /// Records that the response is not awaited any longer. A connection on which nothing has
    /// arrived since the request gets no further ones: it may be dead.
    pub(in crate::session::http) fn give_up(&self) {
        self.shared.doubt(self.opened_ms);
    }

    /// Records a complete response.
    pub(in crate::session::http) fn finish(&self) {
        self.shared.end_exchange();
    }
}

impl Drop for ServerStream {
    fn drop(&mut self) {
        self.shared.state().remove(self.id);
        self.shared.stream_freed();
    }
}

impl RequestRest {
    fn new(framing: Framing) -> Self {
        match framing {
            Framing::None | Framing::UntilClose | Framing::Length(0) => Self::Done,
            Framing::Length(length) => Self::Length(length),
            Framing::Chunked => Self::Chunked(Box::new(ChunkDecoder::new(ChunkLimits::default()))),
        }
    }
}

/// Sends the data of chunks. Returns whether they were the last.
fn send_chunked(
    state: &mut State,
    id: StreamId,
    decoder: &mut ChunkDecoder,
    bytes: &[u8],
) -> io::Result<bool> {
    let mut rest = bytes;
    loop {
        match decoder.next(rest) {
            Step::Data(range) => {
                let (data, after) = rest.split_at(range.end.min(rest.len()));
                state.send(id, data.get(range.start..).unwrap_or_default(), false);
                rest = after;
            }
            Step::Incomplete => return Ok(false),
            Step::End { .. } => {
                let mut lines = Vec::new();
                decoder
                    .trailers()
                    .for_each(|field| add_line(&mut lines, field));
                state.send_trailers(id, lines);
                return Ok(true);
            }
            Step::Invalid(fault) => {
                let why = fault.to_string();
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
        }
    }
}
