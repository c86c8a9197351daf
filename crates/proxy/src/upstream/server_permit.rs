//! Holds permits on servers, and passes on those that are released.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst, fence};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use evenkeel_engine::panics::lock;

use super::queue;
use crate::server::Server;
use crate::service::Service;

/// One permit on a server: the pick reserved it, the drop releases it.
#[derive(Debug)]
pub(crate) struct ServerPermit {
    server: Arc<Server>,
    registry: Arc<ServiceRegistry>,
}

impl ServerPermit {
    /// Takes over the reservation that a pick has made.
    pub(crate) fn new(server: &Arc<Server>, registry: &Arc<ServiceRegistry>) -> Self {
        Self {
            server: Arc::clone(server),
            registry: Arc::clone(registry),
        }
    }

    pub(crate) fn server(&self) -> &Arc<Server> {
        &self.server
    }
}

impl Drop for ServerPermit {
    fn drop(&mut self) {
        self.server.load.release();
        self.registry.handle_freed_permit(&self.server);
    }
}

/// All services, so that a permit released by one can serve a client that waits at another.
#[derive(Debug, Default)]
pub(crate) struct ServiceRegistry {
    /// Clients waiting in any service. While zero, which is nearly always, a release costs nothing.
    pub(crate) queued: AtomicUsize,
    /// Source of tickets for waiting clients, which order them across services.
    pub(super) tickets: AtomicU64,
    services: Mutex<Vec<Weak<Service>>>,
}

impl ServiceRegistry {
    pub(crate) fn add(&self, service: &Arc<Service>) {
        let mut services = self.lock();
        services.retain(|known| known.strong_count() > 0);
        services.push(Arc::downgrade(service));
    }

    /// Reports that a permit on the server is free, or may be; the client that has waited longest
    /// gets it.
    pub(crate) fn handle_freed_permit(self: &Arc<Self>, server: &Arc<Server>) {
        // The release before this fence and the load after it must not be reordered: a client
        // counts itself before it checks for a free permit.
        fence(SeqCst);
        if self.queued.load(SeqCst) == 0 {
            return;
        }
        let mut services: Vec<_> = self.lock().iter().filter_map(Weak::upgrade).collect();
        services.retain(|service| service.queued() > 0 && service.snapshot().lists(server.id));
        // One permit at a time, so that clients are served in order across services.
        loop {
            services.sort_by_cached_key(|service| service.queue.first_ticket().unwrap_or(u64::MAX));
            if !services
                .iter()
                .any(|service| queue::serve_one(service, self))
            {
                return;
            }
        }
    }

    /// Returns the services with connection pools, except one.
    pub(super) fn pooled_services_besides(&self, service_id: u64) -> Vec<Arc<Service>> {
        let services = self.lock();
        let alive = services.iter().filter_map(Weak::upgrade);
        alive
            .filter(|one| one.id != service_id && one.pool_registry().is_some())
            .collect()
    }

    /// Returns the services with connection pools.
    pub(crate) fn pooled_services(&self) -> Vec<Arc<Service>> {
        let services = self.lock();
        let alive = services.iter().filter_map(Weak::upgrade);
        alive.filter(|one| one.pool_registry().is_some()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Service>>> {
        lock(&self.services)
    }
}
