//! Represents the server of an exchange: a connection of HTTP/1.1, which the exchange has alone, or
//! a stream of HTTP/2.

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

use evenkeel_engine::socket::Chunk;
use evenkeel_policy::connection_pool::Condition;
use evenkeel_wire::http::Field;

use super::{ServerConnection, Usage};
use crate::session::http::bulk;
use crate::session::http::http2::ServerStream;
use crate::upstream::worker_pool::WorkerPool;
use crate::worker::Worker;

/// Way to a server.
pub(in crate::session::http) enum ServerTransport {
    /// A connection of HTTP/1.1.
    Http1(Box<ServerConnection>),
    /// A stream of a connection that exchanges share.
    Http2(ServerStream),
}

impl ServerTransport {
    /// Returns whether other requests have used the connection before.
    pub(in crate::session::http) fn was_used(&self) -> bool {
        match self {
            Self::Http1(connection) => connection.usage.responses > 0,
            Self::Http2(stream) => stream.was_used(),
        }
    }

    /// Returns the use of a connection that was idle until the request was sent. `None`: it was
    /// not idle.
    pub(in crate::session::http) fn idle_usage(&self) -> Option<Usage> {
        match self {
            Self::Http1(connection) => Some(connection.usage).filter(|usage| usage.responses > 0),
            Self::Http2(_) => None,
        }
    }

    /// Returns whether the server has not worked on the request, so that it may be sent again.
    pub(in crate::session::http) fn is_unprocessed(&self) -> bool {
        match self {
            Self::Http1(_) => false,
            Self::Http2(stream) => stream.is_unprocessed(),
        }
    }

    /// Returns whether the body of the response comes without framing, and its end apart from its
    /// bytes, as in HTTP/2.
    pub(in crate::session::http) fn is_unframed(&self) -> bool {
        matches!(self, Self::Http2(_))
    }

    /// Returns whether nothing follows the bytes of a response that were received.
    pub(in crate::session::http) fn has_ended(&self) -> bool {
        match self {
            Self::Http1(_) => false,
            Self::Http2(stream) => stream.has_ended(),
        }
    }

    /// Returns the trailers of a response that has ended, of HTTP/2 only.
    pub(in crate::session::http) fn trailers(&self) -> impl Iterator<Item = Field<'_>> {
        let stream = match self {
            Self::Http1(_) => None,
            Self::Http2(stream) => Some(stream),
        };
        stream.into_iter().flat_map(ServerStream::trailers)
    }

    /// Polls for bytes of the response. `None`: the server has ended it, or the connection.
    pub(in crate::session::http) fn poll_chunk<'a>(
        &mut self,
        worker: &'a Worker,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Chunk<'a>>>> {
        match self {
            Self::Http1(connection) => connection.core.stream.poll_chunk(worker, context),
            Self::Http2(stream) => stream.poll_chunk(worker, context),
        }
    }

    /// Returns the chunk and what has arrived after it, up to `left` bytes.
    pub(in crate::session::http) fn receive_bulk(
        &mut self,
        worker: &Worker,
        chunk: Chunk<'_>,
        left: u64,
    ) -> io::Result<Vec<u8>> {
        match self {
            Self::Http1(connection) => {
                bulk::receive_bulk(worker, &mut connection.core.stream, chunk, left)
            }
            Self::Http2(_) => Ok(chunk.into_own(worker)),
        }
    }

    /// Polls until the next send may begin.
    pub(in crate::session::http) fn poll_sent(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Self::Http1(connection) => connection.core.stream.poll_sent(context),
            Self::Http2(stream) => stream.poll_sent(context),
        }
    }

    /// Ends the own side of a tunnel, and polls until all bytes are on their way.
    pub(in crate::session::http) fn poll_end(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Self::Http1(connection) => connection.core.stream.poll_end(context),
            Self::Http2(stream) => stream.poll_end(context),
        }
    }

    /// Returns whether the server has taken all sent bytes, as far as it is known.
    pub(in crate::session::http) fn is_sent(&self) -> bool {
        match self {
            Self::Http1(connection) => connection.core.stream.is_sent(),
            Self::Http2(stream) => stream.is_sent(),
        }
    }

    /// Sends received bytes of a request unchanged.
    pub(in crate::session::http) fn send_chunk(
        &mut self,
        worker: &Worker,
        chunk: Chunk<'_>,
    ) -> io::Result<()> {
        match self {
            Self::Http1(connection) => connection.core.stream.send_chunk(worker, chunk),
            Self::Http2(stream) => stream.send(chunk.bytes()),
        }
    }

    /// Sends bytes of a request in memory from
    /// [`Worker::take_spare`](evenkeel_engine::worker::Worker).
    pub(in crate::session::http) fn send_own(
        &mut self,
        worker: &Worker,
        bytes: Vec<u8>,
    ) -> io::Result<()> {
        match self {
            Self::Http1(connection) => connection.core.stream.send_own(worker, bytes),
            Self::Http2(stream) => {
                let sent = stream.send(&bytes);
                worker.keep_spare(bytes);
                sent
            }
        }
    }

    /// Ends the use of the server before its response is complete: the request is canceled there.
    pub(in crate::session::http) fn abandon(self, pool: &Rc<WorkerPool<ServerConnection>>) {
        match self {
            Self::Http1(connection) => pool.release(connection, Condition::Unclean),
            // Its drop cancels the stream; the connection lives on.
            Self::Http2(_) => {}
        }
    }

    /// Ends the use of the server after a complete response, at this time in milliseconds of the
    /// clock. `is_clean`: the messages have left nothing, as far as their framing says.
    pub(in crate::session::http) fn finish(
        self,
        pool: &Rc<WorkerPool<ServerConnection>>,
        is_clean: bool,
        now_ms: u64,
    ) {
        match self {
            Self::Http1(mut connection) => {
                let stream = &connection.core.stream;
                let condition = match is_clean && stream.is_sent() && stream.is_at_border() {
                    true => Condition::Clean,
                    false => Condition::Unclean,
                };
                connection.usage.responses += 1;
                connection.usage.last_ms = now_ms;
                pool.release(connection, condition);
            }
            Self::Http2(stream) => stream.finish(),
        }
    }
}
