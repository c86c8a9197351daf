//! Implements an operator's commands for pooled services: end sessions, pause clients, reopen
//! connections.

use std::rc::Rc;

use evenkeel_policy::connection_pool::{self, LimitScope, WaitTicket};

use super::{CutCount, DataPlane};
use crate::record::{CutReason, TerminationReason};
use crate::service::Service;
use crate::service::database::DatabaseService;
use crate::session::cancel;
use crate::upstream::pool_registry::PoolHandle;
use crate::upstream::worker_pool::PoolMessage;
use crate::worker::Worker;

/// Selects sessions of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionFilter {
    /// The session with this id.
    Session(u64),
    /// The session with the connection to this server process.
    ServerProcess(u32),
    /// Sessions in a database; `None`: all.
    Database(Option<String>),
}

impl DataPlane {
    /// Cancels the statements of sessions, and ends the sessions.
    pub fn kill(&self, service: &Service, filter: &SessionFilter) -> CutCount {
        let count = CutCount::default();
        let (service_id, filter, counted) = (service.id, filter.clone(), count.clone());
        self.shared
            .workers
            .run_on_all(move |worker| kill(worker, service_id, &filter, &counted));
        count
    }

    /// Makes clients of a database (`None`: of all) wait, and closes free connections. When
    /// [`DatabaseService::open_connections`] returns zero, no statement runs at the servers.
    pub fn pause(&self, service: &Service, database: Option<&str>) {
        if let Some(shared) = service.database() {
            shared.pool_registry.pause(database);
            self.reconnect(service, database);
        }
    }

    /// Ends a pause; without a database, every pause. Returns false if nothing was paused.
    pub fn resume(&self, service: &Service, database: Option<&str>) -> bool {
        let Some(shared) = service.database() else {
            return false;
        };
        let mut tasks = Vec::new();
        let was_paused = shared.pool_registry.resume(database, &mut tasks);
        self.send_tasks(service, tasks);
        was_paused
    }

    /// Closes every connection to a database (`None`: to all) as soon as it is free; new ones are
    /// opened when needed.
    pub fn reconnect(&self, service: &Service, database: Option<&str>) {
        self.retire_pools(service, |one| {
            database.is_none_or(|name| *name == *one.pool_user.database)
        });
    }

    /// Closes every connection of a service to a server as soon as it is free: the server gets no
    /// new work.
    pub fn disconnect_server(&self, service: &Service, server_id: u64) {
        self.retire_pools(service, |one| one.server.id == server_id);
    }

    fn retire_pools(&self, service: &Service, is_meant: impl Fn(&PoolHandle) -> bool) {
        let Some(registry) = service.pool_registry() else {
            return;
        };
        for ticket in registry.retire_pools(is_meant) {
            self.requeue(service, ticket);
        }
    }

    /// Applies the limits of the current snapshot to the existing pools.
    pub(super) fn resize_pools(&self, service: &Service) {
        let view = service.snapshot();
        let (Some(registry), Some(limits)) = (service.pool_registry(), view.connection_limits())
        else {
            return;
        };
        let mut tasks = Vec::new();
        registry.resize(limits, &mut tasks);
        self.send_tasks(service, tasks);
    }

    /// Limits all server connections of a pooled service.
    pub fn limit_pools(&self, service: &Service, limit: u32) {
        let Some(registry) = service.pool_registry() else {
            return;
        };
        let mut tasks = Vec::new();
        let pools = &registry.pools;
        pools.set_limit(
            LimitScope::Service,
            limit,
            evenkeel_engine::clock::now_ms(),
            &mut tasks,
        );
        self.send_tasks(service, tasks);
    }

    /// Makes a client that waited for a connection of a removed pool repeat its request.
    fn requeue(&self, service: &Service, ticket: WaitTicket) {
        let message = PoolMessage::Again(ticket);
        message.send(&self.shared.workers, ticket.worker, service.id);
    }

    fn send_tasks(&self, service: &Service, tasks: Vec<connection_pool::WorkerTask>) {
        for task in tasks {
            let to = task.worker;
            PoolMessage::Task(task).send(&self.shared.workers, to, service.id);
        }
    }
}

impl DatabaseService {
    /// Returns the number of server connections of a database (`None`: of all), including those
    /// that are opening or closing.
    pub fn open_connections(&self, database: Option<&str>) -> u64 {
        let number = database.map(|name| self.pool_registry.number(name.as_bytes()).get());
        let stats = self.pool_registry.pools.stats();
        let meant = stats
            .iter()
            .filter(|one| number.is_none_or(|number| one.key.database == number));
        meant.map(|one| u64::from(one.connections)).sum()
    }
}

/// Executes a worker's part of [`DataPlane::kill`].
pub(super) fn kill(worker: &Rc<Worker>, service_id: u64, filter: &SessionFilter, count: &CutCount) {
    worker.each_session(|session| {
        let is_meant = session.is_login(|login| match filter {
            SessionFilter::Session(id) => login.id == *id,
            SessionFilter::ServerProcess(process) => {
                let target = session.target();
                target.and_then(|target| target.process()) == Some(*process)
            }
            SessionFilter::Database(database) => database
                .as_ref()
                .is_none_or(|name| **name == *login.database),
        });
        if is_meant && session.service.id == service_id {
            // The server would continue the query of a client that has disconnected.
            cancel::cancel(worker, session);
            session.cut(TerminationReason::Cut(CutReason::Command));
            count.add();
        }
    });
}
