//! Represents the client of an exchange: a connection of HTTP/1.1, or a stream of HTTP/2.

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

use evenkeel_engine::socket::Chunk;
use evenkeel_engine::stream::Stream;
use evenkeel_tls::ClientPolicy;
use evenkeel_wire::http::{
    Answer, Field, Framing, Persistence, ResponseEdit, ResponseHead, Version, WebSocketKey,
    Written, write_answer, write_response,
};

use super::bulk;
use super::http2::ClientStream;
use crate::access_log::ClientVersion;
use crate::session::lingering_close;
use crate::worker::Worker;

/// Way to a client.
pub(super) enum Client {
    /// A connection of HTTP/1.1, which serves one request after another.
    Http1(Stream),
    /// A stream of HTTP/2, which serves one request.
    Http2(ClientStream),
}

/// Result of writing a head.
pub(super) struct HeadWritten {
    pub(super) written: Written,
    /// Bytes that were sent without a further call.
    pub(super) sent: usize,
}

impl Client {
    /// Returns the version that the client speaks, by that of the head.
    pub(super) fn version(&self, of_head: Version) -> ClientVersion {
        match (self, of_head) {
            (Self::Http1(_), Version::Http10) => ClientVersion::Http10,
            (Self::Http1(_), Version::Http11) => ClientVersion::Http11,
            (Self::Http2(_), _) => ClientVersion::Http2,
        }
    }

    /// Returns whether a further request can follow.
    pub(super) fn serves_more(&self) -> bool {
        matches!(self, Self::Http1(_))
    }

    /// Returns whether the client's bytes are encrypted.
    pub(super) fn is_encrypted(&self) -> bool {
        match self {
            Self::Http1(stream) => stream.is_encrypted(),
            Self::Http2(stream) => stream.connection().is_encrypted(),
        }
    }

    /// Returns the policy of client certificates under which the client was accepted. `None`: its
    /// connection is not encrypted.
    pub(super) fn client_policy(&self) -> Option<&ClientPolicy> {
        match self {
            Self::Http1(stream) => stream.client_policy(),
            Self::Http2(stream) => stream.connection().client_policy(),
        }
    }

    /// Fails if the client has reset the request, as far as it is known: the end of a connection of
    /// HTTP/1.1 is noticed when it is read.
    pub(super) fn check(&self) -> io::Result<()> {
        match self {
            Self::Http1(_) => Ok(()),
            Self::Http2(stream) => stream.check(),
        }
    }

    /// Polls for received bytes: of the connection, or of the body. `None`: the client has ended
    /// its connection. The end of a body of HTTP/2 is [`Client::has_ended_body`].
    pub(super) fn poll_chunk<'a>(
        &mut self,
        worker: &'a Worker,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Chunk<'a>>>> {
        match self {
            Self::Http1(stream) => stream.poll_chunk(worker, context),
            Self::Http2(stream) => stream.poll_chunk(worker, context).map_ok(Some),
        }
    }

    /// Polls for received bytes of a tunnel. `None`: the client has ended its side.
    pub(super) fn poll_tunnel<'a>(
        &mut self,
        worker: &'a Worker,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Chunk<'a>>>> {
        match self.has_ended_body() {
            true => Poll::Ready(Ok(None)),
            false => self.poll_chunk(worker, context),
        }
    }

    /// Returns the chunk and what has arrived after it, up to `left` bytes.
    pub(super) fn receive_bulk(
        &mut self,
        worker: &Worker,
        chunk: Chunk<'_>,
        left: u64,
    ) -> io::Result<Vec<u8>> {
        match self {
            Self::Http1(stream) => bulk::receive_bulk(worker, stream, chunk, left),
            Self::Http2(_) => Ok(chunk.into_own(worker)),
        }
    }

    /// Returns the trailers of a request whose body has ended, of HTTP/2 only.
    pub(super) fn request_trailers(&self) -> impl Iterator<Item = Field<'_>> {
        let stream = match self {
            Self::Http1(_) => None,
            Self::Http2(stream) => Some(stream),
        };
        stream.into_iter().flat_map(ClientStream::request_trailers)
    }

    /// Returns whether all of the request's body was received. It is known for HTTP/2 only.
    pub(super) fn has_ended_body(&mut self) -> bool {
        match self {
            Self::Http1(_) => false,
            Self::Http2(stream) => stream.has_ended_body(),
        }
    }

    /// Polls until the next send may begin.
    pub(super) fn poll_sent(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Http1(stream) => stream.poll_sent(context),
            Self::Http2(stream) => stream.poll_sent(context),
        }
    }

    /// Sends received bytes unchanged.
    pub(super) fn send_chunk(&mut self, worker: &Worker, chunk: Chunk<'_>) -> io::Result<()> {
        match self {
            Self::Http1(stream) => stream.send_chunk(worker, chunk),
            Self::Http2(stream) => stream.send(chunk.bytes(), false),
        }
    }

    /// Sends bytes in memory from [`Worker::take_spare`](evenkeel_engine::worker::Worker).
    pub(super) fn send_own(&mut self, worker: &Worker, bytes: Vec<u8>) -> io::Result<()> {
        match self {
            Self::Http1(stream) => stream.send_own(worker, bytes),
            Self::Http2(stream) => {
                let sent = stream.send(&bytes, false);
                worker.keep_spare(bytes);
                sent
            }
        }
    }

    /// Sends the last bytes to this client.
    pub(super) fn send_last(&mut self, worker: &Worker, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Http1(stream) => stream.send_last(worker, bytes),
            Self::Http2(stream) => stream.send(bytes, true),
        }
    }

    /// Sends the trailers of a response that was sent without its framing, and ends it.
    pub(super) fn send_trailers<'t>(
        &mut self,
        trailers: impl Iterator<Item = Field<'t>>,
    ) -> io::Result<()> {
        match self {
            // A client of HTTP/1.0 knows none.
            Self::Http1(_) => Ok(()),
            Self::Http2(stream) => stream.send_trailers(trailers),
        }
    }

    /// Polls until all bytes are on their way, and ends sending.
    pub(super) fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Http1(stream) => stream.poll_end(context),
            Self::Http2(stream) => stream.poll_end(context),
        }
    }

    /// Returns whether sending has ended.
    pub(super) fn has_ended(&self) -> bool {
        match self {
            Self::Http1(stream) => stream.has_ended(),
            Self::Http2(_) => false,
        }
    }

    /// Appends an interim response to `out`, or sends it. Returns the number of bytes that were
    /// sent.
    pub(super) fn write_interim(
        &mut self,
        out: &mut Vec<u8>,
        head: &ResponseHead,
        bytes: &[u8],
        edit: &ResponseEdit<'_>,
    ) -> usize {
        match self {
            Self::Http1(_) => {
                write_response(out, head, bytes, edit);
                0
            }
            Self::Http2(stream) => stream.send_head(head, bytes, edit, false).1,
        }
    }

    /// Appends the response that accepts a WebSocket with `key`, or sends it: 101, or 200 in HTTP/2
    /// (RFC 8441 §5). Returns its status, and the number of bytes that were sent.
    pub(super) fn write_change(
        &mut self,
        out: &mut Vec<u8>,
        (head, bytes): (&ResponseHead, &[u8]),
        key: &WebSocketKey,
    ) -> (u16, usize) {
        let accept = &b"Sec-WebSocket-Accept"[..];
        let edit = ResponseEdit {
            upgrade: true,
            ..ResponseEdit::default()
        };
        match self {
            Self::Http1(_) => {
                let value = key.accept();
                let set = &[(accept, &value[..])];
                write_response(out, head, bytes, &ResponseEdit { set, ..edit });
                (101, 0)
            }
            Self::Http2(stream) => {
                let remove = &[accept];
                let edit = ResponseEdit { remove, ..edit };
                (200, stream.send_head(head, bytes, &edit, false).1)
            }
        }
    }

    /// Appends the head of the final response to `out`, or sends it, with the end of the response
    /// if it has no body.
    pub(super) fn write_response(
        &mut self,
        out: &mut Vec<u8>,
        head: &ResponseHead,
        bytes: &[u8],
        edit: &ResponseEdit<'_>,
    ) -> HeadWritten {
        match self {
            Self::Http1(_) => HeadWritten {
                written: write_response(out, head, bytes, edit),
                sent: 0,
            },
            Self::Http2(stream) => {
                let is_end = !head.framing().has_body();
                let (framing, sent) = stream.send_head(head, bytes, edit, is_end);
                HeadWritten {
                    written: Written {
                        framing: unframed(framing),
                        persistence: Persistence::Close,
                    },
                    sent,
                }
            }
        }
    }

    /// Appends an answer of Evenkeel to `out`. The head of one to HTTP/2 is sent; `out` has the
    /// body. Returns the length of the head in bytes.
    pub(super) fn write_answer(&mut self, out: &mut Vec<u8>, answer: &Answer<'_>) -> u64 {
        match self {
            Self::Http1(_) => {
                write_answer(out, answer);
                super::log::head_length(out)
            }
            Self::Http2(stream) => stream.send_answer(out, answer) as u64,
        }
    }

    /// Ends the connection after a complete message, with the last bytes if they can be sent now.
    pub(super) fn close(self, worker: &Rc<Worker>) {
        if let Self::Http1(mut stream) = self {
            stream.send_and_close(&[]);
            lingering_close::close_gracefully(worker, stream.into_parts().0);
        }
    }

    /// Ends the connection, or the stream of HTTP/2, in the middle of a message.
    pub(super) fn reset(self) {
        if let Self::Http1(stream) = self {
            stream.socket().reset_on_close();
        }
    }

    /// Cancels the response, or the tunnel, of HTTP/2.
    pub(super) fn cancel(&mut self) {
        if let Self::Http2(stream) = self {
            stream.cancel();
        }
    }

    /// Sends the end of the encryption, if it has one.
    pub(super) fn send_close(&mut self) {
        if let Self::Http1(stream) = self {
            stream.send_and_close(&[]);
        }
    }
}

/// Returns the framing of a body towards a client for which its end comes apart from its bytes.
fn unframed(framing: Framing) -> Framing {
    match framing {
        Framing::None | Framing::Length(_) => framing,
        Framing::Chunked | Framing::UntilClose => Framing::UntilClose,
    }
}
