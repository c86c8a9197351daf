//! What pools need to know of a logged-in connection, whatever its protocol.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use compio::driver::SharedFd;
use evenkeel_policy::lending::Loan;

use super::lendings::{ById, Lendings};
use crate::clock;
use crate::engine::worker::Worker;
use crate::service::Service;
use crate::service::database::DatabaseService;
use crate::session::{mysql, postgres};
use crate::socket::Socket;
use crate::stream::Stream;
use crate::tls::Channel;
use crate::upstream::cancelling::Cancelling;
use crate::upstream::join::JoinError;
use crate::upstream::lender::{Pooled, Who};

/// A logged-in connection, as it goes from session to session.
pub(crate) trait Connection: Sized + 'static {
    /// What sessions of one user in one database share at a worker besides their pools.
    type Known;

    fn known(who: &Who, service: &DatabaseService) -> Self::Known;

    /// Where a worker has the pools of this kind.
    fn lendings(all: &Lendings) -> &ById<Self>;

    /// Opens one, and logs in.
    async fn open(
        worker: &Rc<Worker>,
        service: &Arc<Service>,
        pooled: &Arc<Pooled>,
    ) -> Result<Box<Self>, JoinError>;

    fn lent(&self) -> &Lent;

    fn lent_mut(&mut self) -> &mut Lent;

    /// For another worker.
    fn pack(self: Box<Self>) -> (Lent, Luggage);

    /// From another worker. `None`: it is a connection of another kind.
    fn unpack(worker: &Worker, lent: Lent, luggage: Luggage) -> Option<Box<Self>>;

    /// What is said before it is closed, so that the server does not report a lost connection.
    fn goodbye(out: &mut Vec<u8>);

    /// Closes it.
    fn part(mut self: Box<Self>, why: &str) {
        let lent = self.lent_mut();
        tracing::debug!(server = %lent.pooled.server.name, why, "server connection closed");
        let mut goodbye = Vec::new();
        Self::goodbye(&mut goodbye);
        lent.stream.say_goodbye(&goodbye);
    }
}

/// The part of a connection that pools look at.
pub(crate) struct Lent {
    pub(crate) stream: Stream,
    /// While it is lent.
    pub(crate) loan: Option<Loan>,
    pub(crate) pooled: Arc<Pooled>,
    /// How its query is cancelled.
    pub(crate) cancels: Rc<Cancelling>,
    pub(crate) since_ms: u64,
}

/// What goes to another worker with a connection, as its protocol has it.
pub(crate) enum Luggage {
    Postgres(Box<postgres::server::Luggage>),
    MySql(Box<mysql::server::Luggage>),
}

/// A connection on its way to another worker.
pub(crate) struct Parcel {
    socket: OwnedFd,
    tls: Option<Box<Channel>>,
    pooled: Arc<Pooled>,
    peer: Option<SocketAddr>,
    key: Option<(u32, Box<[u8]>)>,
    since_ms: u64,
    luggage: Luggage,
}

impl Lent {
    /// Of a stream that is about to log in.
    pub(crate) fn new(stream: Stream, pooled: &Arc<Pooled>) -> Self {
        let peer = stream.socket.peer();
        Self {
            stream,
            loan: None,
            pooled: Arc::clone(pooled),
            cancels: Cancelling::new(pooled, peer, None),
            since_ms: clock::now_ms(),
        }
    }
}

impl Parcel {
    /// `None`: the connection has ended, or said something.
    pub(super) async fn pack<C: Connection>(connection: Box<C>, worker: &Worker) -> Option<Self> {
        let (lent, luggage) = connection.pack();
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
    pub(super) fn unpack<C: Connection>(self, worker: &Worker) -> Option<Box<C>> {
        let socket = SharedFd::new(socket2::Socket::from(self.socket));
        let socket = Socket::new(worker, socket).ok()?;
        let lent = Lent {
            stream: Stream::with(socket, self.tls),
            loan: None,
            cancels: Cancelling::new(&self.pooled, self.peer, self.key),
            pooled: self.pooled,
            since_ms: self.since_ms,
        };
        C::unpack(worker, lent, self.luggage)
    }
}
