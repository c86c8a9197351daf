//! Holds one worker's parts of the pools of every service that has any.

use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use super::{IdleInfo, PoolMessage, PoolableConnection, WorkerPool};
use crate::service::Service;
use crate::worker::Worker;

/// One worker's part of a service's pools, whatever the type of their connections.
trait PoolPart {
    fn service(&self) -> &Arc<Service>;

    fn run_maintenance(self: Rc<Self>);

    fn handle_message(self: Rc<Self>, worker: &Rc<Worker>, message: PoolMessage);

    fn describe_idle(&self, idle: &mut Vec<IdleInfo>);

    fn into_any(self: Rc<Self>) -> Rc<dyn Any>;
}

impl<C: PoolableConnection> PoolPart for WorkerPool<C> {
    fn service(&self) -> &Arc<Service> {
        &self.service
    }

    fn run_maintenance(self: Rc<Self>) {
        WorkerPool::run_maintenance(&self);
    }

    fn handle_message(self: Rc<Self>, worker: &Rc<Worker>, message: PoolMessage) {
        WorkerPool::handle_message(&self, worker, message);
    }

    fn describe_idle(&self, idle: &mut Vec<IdleInfo>) {
        WorkerPool::describe_idle(self, idle);
    }

    fn into_any(self: Rc<Self>) -> Rc<dyn Any> {
        self
    }
}

/// Parts by service id.
#[derive(Default)]
pub(crate) struct WorkerPools(RefCell<HashMap<u64, Rc<dyn PoolPart>>>);

impl WorkerPools {
    /// Returns a worker's part of a service's pools. `None`: the service has none, or connections
    /// of another type.
    pub(crate) fn part<C: PoolableConnection>(
        worker: &Rc<Worker>,
        service: &Arc<Service>,
    ) -> Option<Rc<WorkerPool<C>>> {
        let all = worker.local::<Self>();
        let known = all.get(service.id);
        if let Some(known) = known {
            return known.into_any().downcast().ok();
        }
        let registry = service.pool_registry()?;
        let part = Rc::new(WorkerPool::<C>::new(worker, service, registry));
        let shared: Rc<dyn PoolPart> = Rc::<WorkerPool<C>>::clone(&part);
        all.0.borrow_mut().insert(service.id, shared);
        Some(part)
    }

    /// Maintains all pools; runs twice a second.
    pub(crate) fn run_maintenance(&self) {
        for part in self.all() {
            part.run_maintenance();
        }
    }

    /// Handles a message of another worker.
    pub(crate) fn handle_message(
        &self,
        worker: &Rc<Worker>,
        service_id: u64,
        message: PoolMessage,
    ) {
        if let Some(part) = self.get(service_id) {
            part.handle_message(worker, message);
        }
    }

    /// Describes a service's connections that no session uses now.
    pub(crate) fn describe_idle(&self, service_id: u64, idle: &mut Vec<IdleInfo>) {
        if let Some(part) = self.get(service_id) {
            part.describe_idle(idle);
        }
    }

    /// Returns the services that this worker has pools of.
    pub(crate) fn services(&self) -> Vec<Arc<Service>> {
        let parts = self.all();
        parts
            .iter()
            .map(|part| Arc::clone(part.service()))
            .collect()
    }

    fn get(&self, service_id: u64) -> Option<Rc<dyn PoolPart>> {
        self.0.borrow().get(&service_id).cloned()
    }

    fn all(&self) -> Vec<Rc<dyn PoolPart>> {
        self.0.borrow().values().cloned().collect()
    }
}
