//! Services that lend connections to the same server, where that takes only so many: what is idle
//! at one makes room for who waits at another.

use std::rc::Rc;
use std::sync::Arc;

use evenkeel_policy::connection_pool::WorkerTask;
use evenkeel_policy::permits::UNLIMITED;

use super::{PoolMessage, PoolableConnection, WorkerPool};
use crate::clock;
use crate::engine::worker::Worker;
use crate::server::Server;
use crate::service::Service;

impl<C: PoolableConnection> WorkerPool<C> {
    /// For each pool in which somebody waits for a place at a full server, one idle connection of
    /// another service is closed. Not at once when somebody begins to wait: services that are busy
    /// would close each other's all the time.
    pub(super) fn make_room(&self, worker: &Worker) {
        if self.lender.books.waiting() == 0 {
            return;
        }
        for figures in self.lender.books.figures() {
            let pooled = (figures.waiting > 0).then(|| self.lender.pooled(&figures.key));
            if let Some(pooled) = pooled.flatten().filter(|one| one.server.load.is_full()) {
                self.ask_neighbours(worker, &pooled.server);
            }
        }
    }

    fn ask_neighbours(&self, worker: &Worker, server: &Server) {
        for other in worker.shared.registry.lenders_besides(self.service.id) {
            let Some(shared) = &other.database else {
                continue;
            };
            let mut orders = Vec::new();
            let is_made = shared.lender.books.make_room(&server.load, &mut orders);
            send(worker, &other, orders);
            if is_made {
                return;
            }
        }
    }

    /// A connection has given its place at a server back, which others may be waiting for.
    pub(super) fn place_freed(&self, worker: &Rc<Worker>, server: &Arc<Server>) {
        if server.load.places.limit() == UNLIMITED {
            return;
        }
        let registry = &worker.shared.registry;
        registry.place_freed(server);
        for other in registry.lenders_besides(self.service.id) {
            let books = other.database.as_ref().map(|shared| &shared.lender.books);
            if let Some(books) = books.filter(|books| books.waiting() > 0) {
                let mut orders = Vec::new();
                books.serve(clock::now_ms(), &mut orders);
                send(worker, &other, orders);
            }
        }
    }
}

/// To the workers that are to do it; this one, too, finds it among its orders.
fn send(worker: &Worker, service: &Service, orders: Vec<WorkerTask>) {
    for order in orders {
        let (to, service_id) = (order.worker, service.id);
        let errand = PoolMessage::Order(order);
        // A worker that is gone has no clients either.
        let _ = worker.shared.orders[to]
            .send(crate::engine::WorkerCommand::Lending { service_id, errand });
    }
}
