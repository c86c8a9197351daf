//! A stream of HTTP/2 as the client of one exchange.

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

use evenkeel_engine::socket::Chunk;
use evenkeel_wire::http::{Answer, Field, Framing, Method, ResponseEdit, ResponseHead};
use evenkeel_wire::http2::hpack::Encoder;
use evenkeel_wire::http2::{ErrorCode, StreamId, write_answer, write_response};

use super::shared::{BodyEnd, SentEnd, Shared, add_line, fields_of};
use crate::worker::Worker;

/// Stream of a connection, for the task that serves it. It ends on drop: a response that is not
/// complete is reset.
pub(in crate::session::http) struct ClientStream {
    shared: Rc<Shared>,
    id: StreamId,
    /// Lines of the request's trailers, if it has ended.
    trailers: Option<Vec<u8>>,
}

impl ClientStream {
    /// Creates the stream of a request, which the shared state has.
    pub(super) fn new(shared: Rc<Shared>, id: StreamId) -> Self {
        Self {
            shared,
            id,
            trailers: None,
        }
    }

    pub(in crate::session::http) fn connection(&self) -> &Shared {
        &self.shared
    }

    /// Fails if the stream was reset.
    pub(in crate::session::http) fn check(&self) -> io::Result<()> {
        self.shared.state().stream(self.id).map(drop)
    }

    /// Polls for bytes of the body. Fails if the stream was reset. After the end it stays pending
    /// until then.
    pub(in crate::session::http) fn poll_chunk<'a>(
        &mut self,
        worker: &Worker,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Chunk<'a>>> {
        let mut state = self.shared.state();
        let state = &mut *state;
        let stream = state.stream(self.id)?;
        if stream.available() == 0 {
            stream.watch(context);
            return Poll::Pending;
        }
        let bytes = stream.take(worker.take_spare());
        state.codec.release(self.id, bytes.len(), &mut state.out);
        state.wake();
        Poll::Ready(Ok(Chunk::own(bytes)))
    }

    /// Returns whether all of the body was received and taken.
    pub(in crate::session::http) fn has_ended_body(&mut self) -> bool {
        let mut state = self.shared.state();
        let Some(stream) = state.streams.get_mut(&self.id) else {
            return false;
        };
        match &mut stream.body {
            BodyEnd::Ended(trailers) if stream.received.is_empty() => {
                self.trailers
                    .get_or_insert_with(|| std::mem::take(trailers));
                true
            }
            BodyEnd::Ended(_)
            | BodyEnd::Open
            | BodyEnd::Broken(_)
            | BodyEnd::Unprocessed
            | BodyEnd::Canceled => false,
        }
    }

    /// Returns the trailers of a request that has ended.
    pub(in crate::session::http) fn request_trailers(&self) -> impl Iterator<Item = Field<'_>> {
        fields_of(self.trailers.as_deref().unwrap_or_default())
    }

    /// Polls until more of the response may be sent: no bytes wait for a window, and few for the
    /// socket.
    pub(in crate::session::http) fn poll_sent(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        self.shared.state().poll_sent(self.id, context)
    }

    /// Ends the response or the own side of a tunnel, and polls until all bytes are on their way.
    pub(in crate::session::http) fn poll_end(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        self.shared.state().poll_end(self.id, context)
    }

    /// Sends bytes of the response's body, and its end.
    pub(in crate::session::http) fn send(&mut self, bytes: &[u8], ends: bool) -> io::Result<()> {
        self.shared.state().send(self.id, bytes, ends);
        Ok(())
    }

    /// Sends a response head, with the end of the response if it has no body. Returns the framing
    /// of the body after the edit, and the length of the head.
    pub(in crate::session::http) fn send_head(
        &mut self,
        head: &ResponseHead,
        bytes: &[u8],
        edit: &ResponseEdit<'_>,
        ends: bool,
    ) -> (Framing, usize) {
        let framing = edit.framing_of(head);
        let length = self.send_block(ends, |encoder, out| {
            write_response(out, encoder, head, bytes, edit);
        });
        (framing, length)
    }

    /// Sends the head of an answer of Evenkeel, and appends its body to `out`. Returns the length
    /// of the head.
    pub(in crate::session::http) fn send_answer(
        &mut self,
        out: &mut Vec<u8>,
        answer: &Answer<'_>,
    ) -> usize {
        let has_content = !matches!(answer.status, 100..200 | 204 | 304);
        if has_content && answer.method != Method::Head {
            out.extend_from_slice(answer.body);
        }
        let ends = out.is_empty();
        self.send_block(ends, |encoder, out| write_answer(out, encoder, answer))
    }

    /// Resets the stream as the server has reset its own.
    pub(in crate::session::http) fn cancel(&mut self) {
        let mut state = self.shared.state();
        let state = &mut *state;
        state
            .codec
            .reset(self.id, ErrorCode::Cancel, &mut state.out);
        state.wake();
    }

    /// Ends the response with trailers.
    pub(in crate::session::http) fn send_trailers<'t>(
        &mut self,
        trailers: impl Iterator<Item = Field<'t>>,
    ) -> io::Result<()> {
        let mut lines = Vec::new();
        trailers.for_each(|field| add_line(&mut lines, field));
        self.shared.state().send_trailers(self.id, lines);
        Ok(())
    }

    /// Sends a head, perhaps with the end of the response. Returns its length in bytes.
    fn send_block(&self, ends: bool, write: impl FnOnce(&mut Encoder, &mut Vec<u8>)) -> usize {
        let mut state = self.shared.state();
        let state = &mut *state;
        let before = state.out.len();
        state
            .codec
            .send_head(self.id, &mut state.out, |encoder, out| {
                write(encoder, out);
                ends
            });
        if let (Some(stream), true) = (state.streams.get_mut(&self.id), ends) {
            stream.sent = SentEnd::Sent;
        }
        state.wake();
        state.out.len() - before
    }
}

impl Drop for ClientStream {
    fn drop(&mut self) {
        self.shared.state().remove(self.id);
    }
}
