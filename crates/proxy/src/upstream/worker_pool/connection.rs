//! What pools need to know of a logged-in connection, whatever its protocol.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use compio::driver::SharedFd;
use evenkeel_policy::connection_pool::Checkout;

use super::worker_pools::{ById, WorkerPools};
use crate::clock;
use crate::engine::worker::Worker;
use crate::service::Service;
use crate::service::database::DatabaseService;
use crate::session::{mysql, postgres};
use crate::socket::Socket;
use crate::stream::Stream;
use crate::tls::Channel;
use crate::upstream::cancel_target::CancelTarget;
use crate::upstream::pool_registry::{PoolHandle, PoolUser};
use crate::upstream::server_login::ConnectError;

/// A logged-in connection, as it goes from session to session.
pub(crate) trait PoolableConnection: Sized + 'static {
    /// What sessions of one user in one database share at a worker besides their pools.
    type Known;

    fn known(who: &PoolUser, service: &DatabaseService) -> Self::Known;

    /// Where a worker has the pools of this kind.
    fn lendings(all: &WorkerPools) -> &ById<Self>;

    /// Opens one, and logs in.
    async fn open(
        worker: &Rc<Worker>,
        service: &Arc<Service>,
        pooled: &Arc<PoolHandle>,
    ) -> Result<Box<Self>, ConnectError>;

    fn lent(&self) -> &ConnectionCore;

    fn lent_mut(&mut self) -> &mut ConnectionCore;

    /// For another worker.
    fn into_transfer(self: Box<Self>) -> (ConnectionCore, TransferState);

    /// From another worker. `None`: it is a connection of another kind.
    fn from_transfer(
        worker: &Worker,
        lent: ConnectionCore,
        luggage: TransferState,
    ) -> Option<Box<Self>>;

    /// What is said before it is closed, so that the server does not report a lost connection.
    fn write_terminate(out: &mut Vec<u8>);

    /// Closes it.
    fn disconnect(mut self: Box<Self>, why: &str) {
        let lent = self.lent_mut();
        tracing::debug!(server = %lent.pooled.server.name, why, "server connection closed");
        let mut goodbye = Vec::new();
        Self::write_terminate(&mut goodbye);
        lent.stream.say_goodbye(&goodbye);
    }
}

/// The part of a connection that pools look at.
pub(crate) struct ConnectionCore {
    pub(crate) stream: Stream,
    /// While it is lent.
    pub(crate) loan: Option<Checkout>,
    pub(crate) pooled: Arc<PoolHandle>,
    /// How its query is cancelled.
    pub(crate) cancels: Rc<CancelTarget>,
    pub(crate) since_ms: u64,
}

/// What goes to another worker with a connection, as its protocol has it.
pub(crate) enum TransferState {
    Postgres(Box<postgres::server::TransferState>),
    MySql(Box<mysql::server::TransferState>),
}

/// A connection on its way to another worker.
pub(crate) struct ConnectionTransfer {
    socket: OwnedFd,
    tls: Option<Box<Channel>>,
    pooled: Arc<PoolHandle>,
    peer: Option<SocketAddr>,
    key: Option<(u32, Box<[u8]>)>,
    since_ms: u64,
    luggage: TransferState,
}

impl ConnectionCore {
    /// Of a stream that is about to log in.
    pub(crate) fn new(stream: Stream, pooled: &Arc<PoolHandle>) -> Self {
        let peer = stream.socket.peer();
        Self {
            stream,
            loan: None,
            pooled: Arc::clone(pooled),
            cancels: CancelTarget::new(pooled, peer, None),
            since_ms: clock::now_ms(),
        }
    }
}

impl ConnectionTransfer {
    /// `None`: the connection has ended, or said something.
    pub(super) async fn pack<C: PoolableConnection>(
        connection: Box<C>,
        worker: &Worker,
    ) -> Option<Self> {
        let (lent, luggage) = connection.into_transfer();
        let (socket, tls) = lent.stream.into_parts();
        let socket = socket.withdraw(worker).await?;
        let peer = lent.cancels.peer;
        let key = lent.cancels.key.borrow().clone();
        Some(Self {
            socket,
            tls,
            pooled: lent.pooled,
            peer,
            key,
            since_ms: lent.since_ms,
            luggage,
        })
    }

    /// `None`: this worker cannot take it.
    pub(super) fn unpack<C: PoolableConnection>(self, worker: &Worker) -> Option<Box<C>> {
        let socket = SharedFd::new(socket2::Socket::from(self.socket));
        let socket = Socket::new(worker, socket).ok()?;
        let lent = ConnectionCore {
            stream: Stream::with(socket, self.tls),
            loan: None,
            cancels: CancelTarget::new(&self.pooled, self.peer, self.key),
            pooled: self.pooled,
            since_ms: self.since_ms,
        };
        C::from_transfer(worker, lent, self.luggage)
    }
}
