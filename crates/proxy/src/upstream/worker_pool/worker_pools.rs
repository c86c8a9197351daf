//! Holds one worker's parts of the pools of every service that has any.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use super::{PoolMessage, PoolableConnection, WorkerPool};
use crate::data_plane::describe::IdleInfo;
use crate::service::Service;
use crate::session::{mysql, postgres};
use crate::worker::Worker;

/// Pools of one protocol, by service id.
pub(crate) type ById<C> = RefCell<HashMap<u64, Rc<WorkerPool<C>>>>;

/// Pools of all protocols.
#[derive(Default)]
pub(crate) struct WorkerPools {
    pub(crate) postgres: ById<postgres::server::ServerConnection>,
    pub(crate) mysql: ById<mysql::server::ServerConnection>,
}

impl WorkerPools {
    /// Returns a service's pool; `None`: the service has none.
    pub(crate) fn get_or_create<C: PoolableConnection>(
        &self,
        worker: &Rc<Worker>,
        service: &Arc<Service>,
    ) -> Option<Rc<WorkerPool<C>>> {
        let known = C::worker_pools(self);
        if let Some(worker_pool) = known.borrow().get(&service.id) {
            return Some(Rc::clone(worker_pool));
        }
        let registry = &service.database()?.pool_registry;
        let worker_pool = Rc::new(WorkerPool::new(worker, service, registry));
        known
            .borrow_mut()
            .insert(service.id, Rc::clone(&worker_pool));
        Some(worker_pool)
    }

    /// Maintains all pools; runs twice a second.
    pub(crate) fn run_maintenance(&self) {
        all(&self.postgres)
            .iter()
            .for_each(WorkerPool::run_maintenance);
        all(&self.mysql)
            .iter()
            .for_each(WorkerPool::run_maintenance);
    }

    /// Handles a message of another worker.
    pub(crate) fn handle_message(
        &self,
        worker: &Rc<Worker>,
        service_id: u64,
        message: PoolMessage,
    ) {
        if let Some(worker_pool) = one(&self.postgres, service_id) {
            worker_pool.handle_message(worker, message);
        } else if let Some(worker_pool) = one(&self.mysql, service_id) {
            worker_pool.handle_message(worker, message);
        }
    }

    /// Describes a service's connections that no session uses now.
    pub(crate) fn describe_idle(&self, service_id: u64, idle: &mut Vec<IdleInfo>) {
        if let Some(worker_pool) = one(&self.postgres, service_id) {
            worker_pool.describe_idle(idle);
        }
        if let Some(worker_pool) = one(&self.mysql, service_id) {
            worker_pool.describe_idle(idle);
        }
    }

    /// Returns the services that this worker has pools of.
    pub(crate) fn services(&self) -> Vec<Arc<Service>> {
        let mut services = Vec::new();
        services.extend(
            all(&self.postgres)
                .iter()
                .map(|one| Arc::clone(&one.service)),
        );
        services.extend(all(&self.mysql).iter().map(|one| Arc::clone(&one.service)));
        services
    }
}

fn one<C: PoolableConnection>(
    worker_pools: &ById<C>,
    service_id: u64,
) -> Option<Rc<WorkerPool<C>>> {
    worker_pools.borrow().get(&service_id).cloned()
}

fn all<C: PoolableConnection>(worker_pools: &ById<C>) -> Vec<Rc<WorkerPool<C>>> {
    worker_pools.borrow().values().cloned().collect()
}
