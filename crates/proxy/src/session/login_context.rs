//! Holds what the login of any database client needs, and makes the session's [`Core`] of it.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_engine::socket::Socket;
use evenkeel_engine::stream::Stream;
use evenkeel_engine::timers;

use super::acquirer::Acquirer;
use super::core::Core;
use super::error_reply::{ErrorReply, ReplyCode};
use super::handle::SessionHandle;
use super::login_error::LoginError;
use super::{Arrival, login_connection, proxy_protocol};
use crate::error_catalog;
use crate::record::TerminationReason;
use crate::service::database::DatabaseService;
use crate::service::{ClientPermit, ServiceSnapshot};
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

/// Connection of a client that logs in.
pub(super) trait LoginClient {
    /// Code of an error in the protocol.
    type Code: ReplyCode;

    /// Sends the error with which the login ends.
    async fn send_rejection(&mut self, worker: &Worker, error_reply: &ErrorReply<Self::Code>);
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

    /// Logs a client in within the service's limits of logins and of their time. `login` takes the
    /// client out of its place when it succeeds; a client that is still there gets the error.
    pub(super) async fn admit<S, P: LoginClient, L>(
        &self,
        client: P,
        login: L,
    ) -> Result<S, TerminationReason>
    where
        L: AsyncFnOnce(&mut Option<P>, &Arc<ServiceSnapshot>) -> Result<S, LoginError<P::Code>>,
    {
        let view = self.permit.service().snapshot_owned();
        let limit = view.database().map(|database| database.time_limits.login);
        let limit = limit.unwrap_or_default();
        let mut client = Some(client);
        let login_limiter = self.service.login_limiter();
        let entering = login_limiter.enter_within(limit, self.address());
        let Some((_place, left)) = entering.await else {
            let error_reply = ErrorReply::new(&error_catalog::TOO_MANY_LOGINS);
            return Err(self.reject(client, error_reply).await);
        };
        let ended = timers::timeout(left, login(&mut client, &view)).await;
        match ended.unwrap_or_else(|_| Err(self.too_late(limit).into())) {
            Ok(session) => Ok(session),
            Err(LoginError::Disconnected) => Err(TerminationReason::ClientClosed),
            Err(LoginError::Rejected(error_reply)) => Err(self.reject(client, error_reply).await),
        }
    }

    /// Returns the error for a login that has not ended within this limit.
    fn too_late<E: ReplyCode>(&self, limit: Duration) -> ErrorReply<E> {
        let limit_ms = limit.as_millis();
        let why = login_connection::fault_suffix(self.permit.service());
        ErrorReply::with(&error_catalog::LOGIN_TIMEOUT, &[&limit_ms, &why])
    }

    async fn reject<P: LoginClient>(
        &self,
        client: Option<P>,
        error_reply: ErrorReply<P::Code>,
    ) -> TerminationReason {
        let stats = &self.service.stats()[self.worker.index()];
        stats.refused_logins.add(1);
        if let Some(mut client) = client {
            client.send_rejection(self.worker, &error_reply).await;
        }
        TerminationReason::Rejected(error_reply.message)
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
