//! Holds one worker's parts of the pools of every service that has any.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use super::{PoolMessage, PoolableConnection, WorkerPool};
use crate::engine::describe::IdleInfo;
use crate::engine::worker::Worker;
use crate::service::Service;
use crate::session::{mysql, postgres};

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
    pub(crate) fn of<C: PoolableConnection>(
        &self,
        worker: &Rc<Worker>,
        service: &Arc<Service>,
    ) -> Option<Rc<WorkerPool<C>>> {
        let known = C::lendings(self);
        if let Some(lending) = known.borrow().get(&service.id) {
            return Some(Rc::clone(lending));
        }
        let lender = &service.database.as_ref()?.lender;
        let lending = Rc::new(WorkerPool::new(worker, service, lender));
        known.borrow_mut().insert(service.id, Rc::clone(&lending));
        Some(lending)
    }

    /// Maintains all pools; runs twice a second.
    pub(crate) fn upkeep(&self) {
        all(&self.postgres).iter().for_each(WorkerPool::upkeep);
        all(&self.mysql).iter().for_each(WorkerPool::upkeep);
    }

    /// Handles a message of another worker.
    pub(crate) fn run_errand(&self, worker: &Rc<Worker>, service_id: u64, errand: PoolMessage) {
        if let Some(lending) = one(&self.postgres, service_id) {
            lending.handle_message(worker, errand);
        } else if let Some(lending) = one(&self.mysql, service_id) {
            lending.handle_message(worker, errand);
        }
    }

    /// Describes a service's connections that no session uses now.
    pub(crate) fn describe_idle(&self, service_id: u64, idle: &mut Vec<IdleInfo>) {
        if let Some(lending) = one(&self.postgres, service_id) {
            lending.describe_idle(idle);
        }
        if let Some(lending) = one(&self.mysql, service_id) {
            lending.describe_idle(idle);
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

fn one<C: PoolableConnection>(lendings: &ById<C>, service_id: u64) -> Option<Rc<WorkerPool<C>>> {
    lendings.borrow().get(&service_id).cloned()
}

fn all<C: PoolableConnection>(lendings: &ById<C>) -> Vec<Rc<WorkerPool<C>>> {
    lendings.borrow().values().cloned().collect()
}
