//! Gets a connection for the copy of a request, and sends the copy.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use evenkeel_engine::{clock, timers};
use evenkeel_policy::connection_pool::PoolRefusal;
use evenkeel_policy::server_set::Pick;

use super::{COPY_TIME_MAX, Failure, RequestCopy, other};
use crate::service::http::{ServerHttp2, now_s};
use crate::session::http::Heads;
use crate::session::http::acquire::http2_limits;
use crate::session::http::exchange::Place;
use crate::session::http::http2::{Acquired, ServerConnections, ServerStream, SharedConnection};
use crate::session::http::server::{ServerConnection, ServerProtocol, ServerTransport};
use crate::upstream::worker_pool::{AcquireResult, WaitResult};

/// Connection for a copy.
enum Way {
    Connection(Box<ServerConnection>),
    Stream(Rc<SharedConnection>),
    /// Delivered to the wait slot later, until this time in milliseconds of the clock.
    Later(u64),
    /// The request for it must be repeated.
    Again,
}

impl RequestCopy {
    /// Acquires a connection, and sends the request over it.
    pub(super) async fn send(&mut self) -> Result<(), Failure> {
        loop {
            let way = match self.acquire()? {
                Way::Later(until_ms) => self.delivery(until_ms).await?,
                way => way,
            };
            let is_sent = match way {
                Way::Connection(connection) => self.send_over(connection).await?,
                Way::Stream(shared) => self.open_stream(&shared)?,
                Way::Later(_) | Way::Again => false,
            };
            if is_sent {
                return Ok(());
            }
        }
    }

    /// Picks a server, and requests a connection to it.
    fn acquire(&mut self) -> Result<Way, Failure> {
        self.place = None;
        let target = Rc::clone(&self.target);
        let view = target.service.snapshot_owned();
        let http = view.http().ok_or_else(|| other("the service has ended"))?;
        let Pick::Server(index) = view.pick(self.hash_key, &[]) else {
            return Err(other("no server is available"));
        };
        let place = Place::reserved(&view, http, index);
        let pooled = target.pool_handle(&place.server, http, http.server_http2);
        self.place = Some(place);
        if http.server_http2 != ServerHttp2::Off {
            let connections = self.worker.local::<ServerConnections>();
            let pool = (target.service.id, &target.worker_pool);
            let limits = http2_limits(http);
            match connections.acquire(&self.worker, pool, &pooled, (&self.wait_slot, limits)) {
                Acquired::Connection(shared) => return Ok(Way::Stream(shared)),
                Acquired::Later(until_ms) => return Ok(Way::Later(until_ms)),
                Acquired::QueueFull => return Err(other("too many requests wait")),
                Acquired::Http1 => {}
            }
        }
        match target.worker_pool.acquire(&pooled, &self.wait_slot) {
            AcquireResult::Now(connection) => Ok(Way::Connection(connection)),
            AcquireResult::Later(until_ms) => Ok(Way::Later(until_ms)),
            AcquireResult::Refused(PoolRefusal::Outdated) => Ok(Way::Again),
            AcquireResult::Refused(PoolRefusal::QueueFull) => Err(other("too many requests wait")),
            AcquireResult::Refused(PoolRefusal::LimitIsZero) => {
                Err(other("no connection to the server is allowed"))
            }
        }
    }

    /// Waits for a connection until this time in milliseconds of the clock.
    async fn delivery(&mut self, until_ms: u64) -> Result<Way, Failure> {
        let slot = &self.wait_slot;
        let delivered = poll_fn(|context| match slot.take(context) {
            Some(result) => Poll::Ready(result),
            None => Poll::Pending,
        });
        let limit = Duration::from_millis(until_ms.saturating_sub(clock::now_ms()));
        let limited = timers::timeout(limit.min(COPY_TIME_MAX), delivered);
        match limited.await {
            Ok(WaitResult::Connection(connection)) => Ok(Way::Connection(connection)),
            Ok(WaitResult::Again) => Ok(Way::Again),
            Ok(WaitResult::Failed(error)) => Err(other(error.message.as_str())),
            Err(_) => Err(other("no connection became free")),
        }
    }

    /// Sends the request over a connection. Returns false if another one must be acquired.
    async fn send_over(&mut self, connection: Box<ServerConnection>) -> Result<bool, Failure> {
        let mut connection = connection;
        while connection.protocol == ServerProtocol::Http1 && !self.may_use(&connection) {
            let pool = Rc::clone(&self.target.worker_pool);
            pool.replace_connection(connection, &self.wait_slot);
            match self.delivery(u64::MAX).await? {
                Way::Connection(other) => connection = other,
                _ => return Ok(false),
            }
        }
        if connection.protocol == ServerProtocol::Http2 {
            let view = self.target.service.snapshot_owned();
            let limits = view.http().map(http2_limits).unwrap_or_default();
            let connections = self.worker.local::<ServerConnections>();
            let pool = (self.target.service.id, &self.target.worker_pool);
            let shared = connections.share(&self.worker, pool, connection, limits);
            return self.open_stream(&shared);
        }
        let mut out = self.worker.take_spare();
        out.extend_from_slice(&self.request);
        let mut transport = ServerTransport::Http1(connection);
        let sent = transport.send_own(&self.worker, out);
        self.note_sent(transport);
        sent.map_err(|error| Failure::Broken(error.to_string()))?;
        Ok(true)
    }

    /// Returns whether the copy may be sent over a connection that was idle until now. A copy is
    /// not sent again, so that it should not meet the end of the connection.
    fn may_use(&self, connection: &ServerConnection) -> bool {
        let (Some(place), 1..) = (&self.place, connection.usage.responses) else {
            return true;
        };
        let idle_ms = connection.usage.idle_ms();
        place.of_service.idle.may_carry(now_s(), idle_ms, false)
    }

    /// Sends the request over a stream. Returns false if the connection has no free one.
    fn open_stream(&mut self, shared: &Rc<SharedConnection>) -> Result<bool, Failure> {
        let heads = self.worker.local::<Heads>();
        let opened = ServerStream::open(shared, &mut heads.outgoing.borrow_mut(), &self.request);
        match opened {
            Some(Ok(stream)) => {
                self.note_sent(ServerTransport::Http2(stream));
                Ok(true)
            }
            Some(Err(error)) => Err(other(error.to_string())),
            None => Ok(false),
        }
    }

    /// Records that the request is sent.
    fn note_sent(&mut self, server: ServerTransport) {
        self.server = Some(server);
        self.sent_us = clock::now_us();
        if let Some(place) = &self.place {
            let bytes = place.server.counters.bytes.of(self.worker.index());
            bytes.add_from_client(self.request.len() as u64);
        }
    }
}
