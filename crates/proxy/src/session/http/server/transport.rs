//! Represents the server of an exchange: a connection of HTTP/1.1, which the exchange has alone.

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

use evenkeel_engine::socket::Chunk;
use evenkeel_policy::connection_pool::Condition;

use super::{ServerConnection, Usage};
use crate::session::http::bulk;
use crate::upstream::worker_pool::WorkerPool;
use crate::worker::Worker;

/// Way to a server.
pub(in crate::session::http) enum ServerTransport {
    /// A connection of HTTP/1.1.
    Http1(Box<ServerConnection>),
}

impl ServerTransport {
    /// Returns whether other requests have used the connection before.
    pub(in crate::session::http) fn was_used(&self) -> bool {
        match self {
            Self::Http1(connection) => connection.usage.responses > 0,
        }
    }

    /// Returns the use of a connection that was idle until the request was sent. `None`: it was
    /// not idle.
    pub(in crate::session::http) fn idle_usage(&self) -> Option<Usage> {
        match self {
            Self::Http1(connection) => Some(connection.usage).filter(|usage| usage.responses > 0),
        }
    }

    /// Polls for bytes of the response. `None`: the server has ended it, or the connection.
    pub(in crate::session::http) fn poll_chunk<'a>(
        &mut self,
        worker: &'a Worker,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Chunk<'a>>>> {
        match self {
            Self::Http1(connection) => connection.core.stream.poll_chunk(worker, context),
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
        }
    }

    /// Polls until the next send may begin.
    pub(in crate::session::http) fn poll_sent(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Self::Http1(connection) => connection.core.stream.poll_sent(context),
        }
    }

    /// Returns whether the server has taken all sent bytes, as far as it is known.
    pub(in crate::session::http) fn is_sent(&self) -> bool {
        match self {
            Self::Http1(connection) => connection.core.stream.is_sent(),
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
        }
    }

    /// Ends the use of the server before its response is complete: the request is canceled there.
    pub(in crate::session::http) fn abandon(self, pool: &Rc<WorkerPool<ServerConnection>>) {
        match self {
            Self::Http1(connection) => pool.release(connection, Condition::Unclean),
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
        }
    }
}
