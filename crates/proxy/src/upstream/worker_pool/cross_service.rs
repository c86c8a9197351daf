//! Closes a service's idle connections to a full server when clients of another service wait for
//! it.

use std::rc::Rc;
use std::sync::Arc;

use evenkeel_engine::clock;
use evenkeel_policy::connection_pool::WorkerTask;
use evenkeel_policy::permits::UNLIMITED;

use super::{PoolMessage, PoolableConnection, WorkerPool};
use crate::server::Server;
use crate::service::Service;
use crate::worker::Worker;

impl<C: PoolableConnection> WorkerPool<C> {
    /// Closes one idle connection of another service for each pool whose clients wait for a full
    /// server. This does not happen as soon as a client waits: busy services would close each
    /// other's connections continually.
    pub(super) fn evict_idle(&self, worker: &Worker) {
        if self.registry.pools.waiting() == 0 {
            return;
        }
        for stats in self.registry.pools.stats() {
            let pool_handle = (stats.waiting > 0).then(|| self.registry.pool_handle(&stats.key));
            if let Some(pool_handle) = pool_handle
                .flatten()
                .filter(|one| one.server.load.is_full())
            {
                self.evict_elsewhere(worker, &pool_handle.server);
            }
        }
    }

    fn evict_elsewhere(&self, worker: &Worker, server: &Server) {
        for other in worker
            .shared
            .registry
            .pooled_services_besides(self.service.id)
        {
            let Some(registry) = other.pool_registry() else {
                continue;
            };
            let mut tasks = Vec::new();
            let is_made = registry.pools.evict_for_server(&server.load, &mut tasks);
            send(worker, &other, tasks);
            if is_made {
                return;
            }
        }
    }

    /// Reports that a connection has released its permit at a server; other services may wait for
    /// it.
    pub(super) fn handle_freed_permit(&self, worker: &Rc<Worker>, server: &Arc<Server>) {
        if server.load.permits.limit() == UNLIMITED {
            return;
        }
        let registry = &worker.shared.registry;
        registry.handle_freed_permit(server);
        for other in registry.pooled_services_besides(self.service.id) {
            let pools = other.pool_registry().map(|registry| &registry.pools);
            if let Some(pools) = pools.filter(|pools| pools.waiting() > 0) {
                let mut tasks = Vec::new();
                pools.serve(clock::now_ms(), &mut tasks);
                send(worker, &other, tasks);
            }
        }
    }
}

/// Sends tasks to their workers; this worker receives its own through its command queue, too.
fn send(worker: &Worker, service: &Service, tasks: Vec<WorkerTask>) {
    for task in tasks {
        let to = task.worker;
        PoolMessage::Task(task).send(&worker.shared.workers, to, service.id);
    }
}
