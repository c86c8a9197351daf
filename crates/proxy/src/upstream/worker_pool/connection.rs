//! Defines what pools need from a logged-in connection of any protocol.

use std::any::Any;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use evenkeel_engine::clock;
use evenkeel_engine::socket::Socket;
use evenkeel_engine::stream::Stream;
use evenkeel_tls::Channel;

use super::HeldCheckout;
use crate::service::Service;
use crate::upstream::cancel_target::CancelTarget;
use crate::upstream::connect_error::ConnectError;
use crate::upstream::pool_registry::PoolHandle;
use crate::worker::Worker;

/// A logged-in connection that sessions use one after another.
pub(crate) trait PoolableConnection: Sized + 'static {
    /// State that sessions of one user in one database share at a worker, besides their pools.
    type Known;

    /// State of a connection while it moves to another worker, besides [`ConnectionCore`].
    type Parked: Send;

    /// Opens a connection and logs in.
    async fn open(
        worker: &Rc<Worker>,
        service: &Arc<Service>,
        pool_handle: &Arc<PoolHandle>,
    ) -> Result<Box<Self>, ConnectError>;

    fn core(&self) -> &ConnectionCore;

    fn core_mut(&mut self) -> &mut ConnectionCore;

    /// Prepares the connection for the move to another worker.
    fn park(self: Box<Self>) -> (ConnectionCore, Self::Parked);

    /// Restores a connection from another worker.
    fn unpark(worker: &Worker, core: ConnectionCore, parked: Self::Parked) -> Box<Self>;

    /// Sends a cancel request for a connection. Returns false if it may still arrive.
    fn send_cancel(
        worker: Rc<Worker>,
        service: Arc<Service>,
        target: Rc<CancelTarget>,
    ) -> Pin<Box<dyn Future<Output = bool>>>;

    /// Returns whether the server has ended an idle connection, as far as it is known: servers of
    /// most protocols send nothing to one.
    fn has_ended(&self) -> bool {
        self.core().stream.has_arrived()
    }

    /// Learns from an idle connection that its server has ended. Most protocols learn nothing.
    fn note_idle_end(&self, _: &Service) {}

    /// Writes the protocol's termination message, so that the server does not report a lost
    /// connection.
    fn write_terminate(out: &mut Vec<u8>);

    /// Closes the connection.
    fn disconnect(mut self: Box<Self>, why: &str) {
        let core = self.core_mut();
        tracing::debug!(server = %core.pool_handle.server.name, why, "server connection closed");
        let mut goodbye = Vec::new();
        Self::write_terminate(&mut goodbye);
        core.stream.send_and_close(&goodbye);
    }
}

/// The part of a connection that pools use.
pub(crate) struct ConnectionCore {
    pub(crate) stream: Stream,
    /// Beginning of an incomplete message of the server. Empty while no session has the connection.
    pub(crate) held: Vec<u8>,
    /// Set while a session has the connection.
    pub(crate) checkout: Option<HeldCheckout>,
    pub(crate) pool_handle: Arc<PoolHandle>,
    /// Target for cancel requests to this connection.
    pub(crate) cancel_target: Rc<CancelTarget>,
    pub(crate) since_ms: u64,
}

/// A connection in transfer to another worker.
pub(crate) struct ConnectionTransfer {
    socket: OwnedFd,
    tls: Option<Box<Channel>>,
    pool_handle: Arc<PoolHandle>,
    peer: Option<SocketAddr>,
    key: Option<(u32, Box<[u8]>)>,
    since_ms: u64,
    /// [`PoolableConnection::Parked`] of the connection's type.
    parked: Box<dyn Any + Send>,
}

impl ConnectionCore {
    /// Wraps the stream of a connection of type `C` that is about to log in.
    pub(crate) fn new<C: PoolableConnection>(
        stream: Stream,
        pool_handle: &Arc<PoolHandle>,
    ) -> Self {
        let peer = stream.socket().peer();
        Self {
            stream,
            held: Vec::new(),
            checkout: None,
            pool_handle: Arc::clone(pool_handle),
            cancel_target: CancelTarget::new(pool_handle, peer, None, C::send_cancel),
            since_ms: clock::now_ms(),
        }
    }
}

impl ConnectionTransfer {
    /// Packs a connection for a transfer. `None`: the connection has ended, or the server has sent
    /// data.
    pub(super) async fn pack<C: PoolableConnection>(
        connection: Box<C>,
        worker: &Worker,
    ) -> Option<Self> {
        let (core, parked) = connection.park();
        let (socket, tls) = core.stream.into_parts();
        let socket = socket.withdraw(worker).await?;
        let peer = core.cancel_target.peer;
        let key = core.cancel_target.key.borrow().clone();
        Some(Self {
            socket,
            tls,
            pool_handle: core.pool_handle,
            peer,
            key,
            since_ms: core.since_ms,
            parked: Box::new(parked),
        })
    }

    /// Unpacks a connection. `None`: this worker cannot take it, or it is not of type `C`.
    pub(super) fn unpack<C: PoolableConnection>(self, worker: &Worker) -> Option<Box<C>> {
        let parked = self.parked.downcast::<C::Parked>().ok()?;
        let socket = Socket::new(worker, socket2::Socket::from(self.socket)).ok()?;
        let core = ConnectionCore {
            stream: Stream::with(socket, self.tls),
            held: Vec::new(),
            checkout: None,
            cancel_target: CancelTarget::new(
                &self.pool_handle,
                self.peer,
                self.key,
                C::send_cancel,
            ),
            pool_handle: self.pool_handle,
            since_ms: self.since_ms,
        };
        Some(C::unpark(worker, core, *parked))
    }
}
