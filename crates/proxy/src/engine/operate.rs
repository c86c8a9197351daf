//! What an operator may do to a service that lends server connections: end sessions, make clients
//! wait, have connections opened anew.

use std::rc::Rc;

use evenkeel_policy::connection_pool::{self, LimitScope, WaitTicket};

use super::worker::Worker;
use super::{CutCount, Engine, WorkerCommand};
use crate::record::{CutReason, TerminationReason};
use crate::service::Service;
use crate::service::database::DatabaseService;
use crate::session::cancel;
use crate::upstream::pool_registry::PoolHandle;
use crate::upstream::worker_pool::PoolMessage;

/// Which sessions of a service are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// The one with this id.
    Session(u64),
    /// The one that has the connection to this process of a server.
    ServerProcess(u32),
    /// Those in a database; `None`: all.
    Database(Option<String>),
}

impl Engine {
    /// Cancels what sessions do, and ends them.
    pub fn kill(&self, service: &Service, which: &Which) -> CutCount {
        let done = CutCount::default();
        for orders in &self.shared.orders {
            let _ = orders.send(WorkerCommand::Kill {
                service_id: service.id,
                which: which.clone(),
                done: done.clone(),
            });
        }
        done
    }

    /// From now on clients of a database (`None`: of all) wait, and connections that are free
    /// close: when [`DatabaseService::open_connections`] says zero, nothing runs at the servers.
    pub fn pause(&self, service: &Service, database: Option<&str>) {
        if let Some(shared) = &service.database {
            shared.lender.pause(database);
            self.reconnect(service, database);
        }
    }

    /// Ends a pause; without a database, every pause. False: nothing was paused.
    pub fn resume(&self, service: &Service, database: Option<&str>) -> bool {
        let Some(shared) = &service.database else {
            return false;
        };
        let mut orders = Vec::new();
        let was_paused = shared.lender.resume(database, &mut orders);
        self.give_out(service, orders);
        was_paused
    }

    /// Every connection to a database (`None`: to all) closes as soon as nobody uses it; new ones
    /// are opened as they are needed.
    /// What was found of statements there is forgotten.
    pub fn reconnect(&self, service: &Service, database: Option<&str>) {
        let own = service.database.as_ref();
        if let Some(own) = own.and_then(|own| own.of_postgres()) {
            own.forget_trials(database);
        }
        self.outdate(service, |one| {
            database.is_none_or(|name| *name == *one.who.database)
        });
    }

    /// Every connection of a service to a server closes as soon as nobody uses it: no new work goes
    /// there.
    pub fn part(&self, service: &Service, server_id: u64) {
        self.outdate(service, |one| one.server.id == server_id);
    }

    fn outdate(&self, service: &Service, is_meant: impl Fn(&PoolHandle) -> bool) {
        let Some(shared) = &service.database else {
            return;
        };
        for ticket in shared.lender.outdate(is_meant) {
            self.ask_again(service, ticket);
        }
    }

    /// The pools that there are keep to the sizes of the present view.
    pub(super) fn resize_pools(&self, service: &Service) {
        let view = service.snapshot();
        let (Some(shared), Some(own)) = (&service.database, &view.database) else {
            return;
        };
        let mut orders = Vec::new();
        shared.lender.resize(&own.sizes, &mut orders);
        self.give_out(service, orders);
    }

    /// Limits all server connections of a service that lends them.
    pub fn limit_pools(&self, service: &Service, limit: u32) {
        let Some(shared) = &service.database else {
            return;
        };
        let mut orders = Vec::new();
        let books = &shared.lender.books;
        books.set_limit(LimitScope::Service, limit, crate::now_ms(), &mut orders);
        self.give_out(service, orders);
    }

    /// Who waited for a connection of a pool that is no more asks once more.
    fn ask_again(&self, service: &Service, ticket: WaitTicket) {
        let (service_id, errand) = (service.id, PoolMessage::Again(ticket));
        let _ =
            self.shared.orders[ticket.worker].send(WorkerCommand::Lending { service_id, errand });
    }

    fn give_out(&self, service: &Service, orders: Vec<connection_pool::WorkerTask>) {
        for order in orders {
            let (to, service_id) = (order.worker, service.id);
            let errand = PoolMessage::Order(order);
            let _ = self.shared.orders[to].send(WorkerCommand::Lending { service_id, errand });
        }
    }
}

impl DatabaseService {
    /// Server connections of a database (`None`: of all), those that open and close among them.
    pub fn open_connections(&self, database: Option<&str>) -> u64 {
        let number = database.map(|name| self.lender.number(name.as_bytes()).get());
        let figures = self.lender.books.figures();
        let meant = figures
            .iter()
            .filter(|one| number.is_none_or(|number| one.key.database == number));
        meant.map(|one| u64::from(one.connections)).sum()
    }
}

/// A worker's part of [`Engine::kill`].
pub(super) fn kill(worker: &Rc<Worker>, service_id: u64, which: &Which, done: &CutCount) {
    worker.each_session(|live| {
        let Some(card) = live.card().filter(|_| live.service.id == service_id) else {
            return;
        };
        let is_meant = match which {
            Which::Session(id) => card.id == *id,
            Which::ServerProcess(process) => {
                let target = card.target();
                target.and_then(|target| target.process()) == Some(*process)
            }
            Which::Database(database) => database
                .as_ref()
                .is_none_or(|name| **name == *card.database()),
        };
        if is_meant {
            // The server would go on with the query of a client that has left.
            cancel::cancel(worker, &card, &live.service);
            live.cut(TerminationReason::Cut(CutReason::Command));
            done.add();
        }
    });
}
