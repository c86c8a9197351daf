//! Maintains a worker's part of a service's pools periodically.

use std::rc::Rc;
use std::sync::Arc;

use evenkeel_engine::clock;
use evenkeel_engine::panics::Indivisible;
use evenkeel_policy::connection_pool::{PoolKey, PoolSettings};

use super::{HeldCheckout, PoolMessage, PoolableConnection, WorkerPool};
use crate::worker::Worker;

impl<C: PoolableConnection> WorkerPool<C> {
    /// Runs twice a second: closes connections that have ended, are old or not needed, opens
    /// missing ones, and releases the checkouts of connections that tasks have dropped.
    pub(super) fn run_maintenance(self: &Rc<Self>) {
        let _change = Indivisible::begin();
        for checkout in self.lost.take() {
            self.release_lost(checkout);
        }
        self.close_ended();
        let now_ms = clock::now_ms();
        if now_ms.saturating_sub(self.last_maintenance_ms.get()) < 1_000 {
            return;
        }
        self.last_maintenance_ms.set(now_ms);
        if let Some(shared) = self.service.database() {
            shared.failover_queue.run_maintenance(now_ms);
        }
        self.registry.remove_unused();
        let mut tasks = Vec::new();
        let closings = self.idle.borrow_mut().maintain(now_ms, &mut tasks);
        for closing in closings {
            self.close(closing);
        }
        self.send_tasks(tasks);
        if let Some(worker) = self.worker.upgrade() {
            self.evict_idle(&worker);
        }
    }

    /// Returns the settings of the pools.
    pub(crate) fn settings(&self) -> PoolSettings {
        self.registry.pools.settings()
    }

    /// Returns whether a connection that a task keeps should end, by its age, its time without use
    /// (`None`: it is in use), the limits, or since its pool is outdated.
    pub(crate) fn is_unwanted(&self, connection: &C, idle_since_ms: Option<u64>) -> bool {
        let core = connection.core();
        let checkout = core.checkout.as_ref().and_then(HeldCheckout::checkout);
        checkout.is_none_or(|checkout| {
            let pools = &self.registry.pools;
            pools.is_unwanted(
                &core.pool_handle.pool,
                checkout,
                idle_since_ms,
                clock::now_ms(),
            )
        })
    }

    /// Closes every connection to a server as soon as it is free; new ones are opened.
    pub(crate) fn renew(&self, worker: &Worker, server_id: u64) {
        for ticket in self.registry.retire_pools(|one| one.server.id == server_id) {
            self.send_message(worker, ticket.worker, PoolMessage::Again(ticket));
        }
    }

    /// Closes idle connections to a database of a server.
    pub(super) fn close_idle(self: &Rc<Self>, server: u64, database: u64) {
        let is_meant = |key: &PoolKey| key.server == server && key.database == database;
        let closings = self.idle.borrow_mut().close_idle_of_database(is_meant);
        for closing in closings {
            self.close(closing);
        }
    }

    /// Closes idle connections whose server has sent data: no request is pending, so this must be
    /// the end.
    fn close_ended(self: &Rc<Self>) {
        let connections = self.connections.borrow();
        let idle = connections.iter();
        let ended: Vec<_> = idle
            .filter_map(|(number, connection)| Some((number, connection.as_ref()?)))
            .filter(|(_, connection)| connection.has_ended())
            .inspect(|(_, connection)| connection.note_idle_end(&self.service))
            .map(|(number, connection)| (number, Arc::clone(&connection.core().pool_handle)))
            .collect();
        drop(connections);
        for (number, pool_handle) in ended {
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            let closing = self.idle.borrow_mut().idle_ended(&pool_handle.pool, number);
            if let Some(closing) = closing {
                self.close(closing);
            }
        }
    }
}
