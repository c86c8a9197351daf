//! Holds what the login of any database client needs, and makes the session's [`Core`] of it.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use evenkeel_engine::socket::Socket;
use evenkeel_engine::stream::Stream;

use super::acquirer::Acquirer;
use super::core::Core;
use super::handle::SessionHandle;
use super::{Arrival, proxy_protocol};
use crate::record::TerminationReason;
use crate::service::ClientPermit;
use crate::service::database::DatabaseService;
use crate::upstream::worker_pool::{PoolableConnection, UserPools, WorkerPool, WorkerPools};
use crate::worker::Worker;

/// Client that logs in, and the service that it wants.
pub(super) struct LoginContext<'a, C: PoolableConnection> {
    pub(super) worker: &'a Rc<Worker>,
    pub(super) permit: &'a ClientPermit,
    pub(super) handle: &'a SessionHandle,
    pub(super) service: Arc<DatabaseService>,
    pub(super) worker_pool: Rc<WorkerPool<C>>,
    /// Address of the client; `None`: it uses a Unix socket.
    pub(super) peer: Option<SocketAddr>,
}

impl<C: PoolableConnection> Clone for LoginContext<'_, C> {
    fn clone(&self) -> Self {
        Self {
            service: Arc::clone(&self.service),
            worker_pool: Rc::clone(&self.worker_pool),
            ..*self
        }
    }
}

impl<'a, C: PoolableConnection> LoginContext<'a, C> {
    /// Reads the client's address, if a PROXY header has it. Returns the context and the client's
    /// socket, or the reason if the client cannot be served.
    pub(super) async fn of(arrival: Arrival<'a>) -> Result<(Self, Socket), TerminationReason> {
        let service = arrival.permit.service();
        let (Some(database), Some(worker_pool)) = (
            service.database().cloned(),
            WorkerPools::part(arrival.worker, service),
        ) else {
            return Err(TerminationReason::NoServer);
        };
        let reading =
            proxy_protocol::read_client_address(arrival.handle, &arrival.socket, arrival.record);
        reading.await?;
        let context = Self {
            worker: arrival.worker,
            permit: arrival.permit,
            handle: arrival.handle,
            service: database,
            worker_pool,
            peer: arrival.record.client,
        };
        Ok((context, arrival.socket))
    }

    pub(super) fn address(&self) -> Option<IpAddr> {
        self.peer.map(|peer| peer.ip())
    }

    /// Counts a rejected login.
    pub(super) fn count_rejection(&self) {
        let stats = &self.service.stats()[self.worker.index()];
        stats.refused_logins.add(1);
    }

    /// Returns the core of the session of a client that has logged in to this account.
    pub(super) fn core(&self, account: &Rc<UserPools<C>>, client: Stream) -> Core<'a, C> {
        let worker_pool = Rc::clone(&self.worker_pool);
        let (worker, handle) = (self.worker, self.handle);
        Core {
            worker,
            permit: self.permit,
            service: Arc::clone(&self.service),
            handle,
            client: Some(client),
            answers: Vec::new(),
            server: None,
            acquirer: Acquirer::new(worker, &self.service, worker_pool, account, handle),
        }
    }
}
