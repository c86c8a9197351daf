//! Holds what a session needs of a service whose servers answer its requests.

use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

use super::server::{ServerConnection, pool_user};
use crate::server::Server;
use crate::service::Service;
use crate::service::http::{HttpService, HttpSnapshot, RoutedRequest, ServerHttp2};
use crate::upstream::pool_registry::PoolHandle;
use crate::upstream::worker_pool::{UserPools, WorkerPool, WorkerPools};
use crate::worker::Worker;

/// A service whose servers answer requests: the one that the client has connected to, or one that a
/// route leads to.
pub(super) struct Target {
    pub(super) service: Arc<Service>,
    pub(super) shared: Arc<HttpService>,
    pub(super) worker_pool: Rc<WorkerPool<ServerConnection>>,
    accounts: [OnceCell<Rc<UserPools<ServerConnection>>>; 3],
    /// `None`: the service is the client's own.
    _routed: Option<RoutedRequest>,
}

impl Target {
    /// Returns the client's own service as a target. `None`: this worker has no pools of it.
    pub(super) fn own(
        worker: &Rc<Worker>,
        service: &Arc<Service>,
        shared: &Arc<HttpService>,
    ) -> Option<Rc<Self>> {
        Self::new(worker, service, shared, None)
    }

    /// Returns the service that a route leads a request to. `None`: this worker has no pools of it.
    pub(super) fn routed(
        worker: &Rc<Worker>,
        service: &Arc<Service>,
        shared: &Arc<HttpService>,
    ) -> Option<Rc<Self>> {
        Self::new(worker, service, shared, Some(RoutedRequest::begin(shared)))
    }

    fn new(
        worker: &Rc<Worker>,
        service: &Arc<Service>,
        shared: &Arc<HttpService>,
        routed: Option<RoutedRequest>,
    ) -> Option<Rc<Self>> {
        let worker_pool = WorkerPools::part::<ServerConnection>(worker, service)?;
        Some(Rc::new(Self {
            service: Arc::clone(service),
            shared: Arc::clone(shared),
            accounts: Default::default(),
            worker_pool,
            _routed: routed,
        }))
    }

    /// Returns the pool at a server, of connections that may speak HTTP/2 or not.
    pub(super) fn pool_handle(
        &self,
        server: &Arc<Server>,
        http: &HttpSnapshot,
        http2: ServerHttp2,
    ) -> Arc<PoolHandle> {
        let account = match http2 {
            ServerHttp2::Off => &self.accounts[0],
            ServerHttp2::Tls => &self.accounts[1],
            ServerHttp2::All => &self.accounts[2],
        };
        let account = account.get_or_init(|| {
            let user = pool_user(&self.shared, http2);
            self.worker_pool.account(user, |_| ())
        });
        account.pool_handle(server, &http.connection_limits)
    }
}
