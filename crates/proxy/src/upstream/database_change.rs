//! Closes idle connections to databases that must have no sessions for a statement.

use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use evenkeel_engine::{clock, timers};
use evenkeel_policy::connection_pool::PoolKey;

use crate::service::Service;
use crate::upstream::pool_registry::PoolHandle;
use crate::upstream::worker_pool::PoolMessage;
use crate::worker::Worker;
use evenkeel_sql::session_state::analysis;

/// Delay before the first round. A statement without a reply by then waits for other sessions or is
/// running; a statement that the server refuses immediately closes no connections.
const FIRST: Duration = Duration::from_millis(20);

/// Interval of further rounds, which close connections released or opened meanwhile. Servers wait
/// for 5 s.
const INTERVAL: Duration = Duration::from_millis(250);

/// Time for which catalog readers stay away, counted from each round, in milliseconds.
const CLOSED_MS: u64 = 1_000;

/// Pauses after a RENAME; a replica with a longer lag than their sum is not waited for.
const REPLICA_PAUSES: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_secs(120),
];

/// A statement in progress that requires that no other session uses its database.
pub(crate) struct ActiveDatabaseChange {
    worker: Rc<Worker>,
    task: Rc<DatabaseChangeTask>,
    /// True if the statement may have been executed.
    may_have_run: bool,
}

#[derive(Clone)]
struct DatabaseChangeTask {
    server_id: u64,
    effect: Box<analysis::DatabaseChange>,
}

impl ActiveDatabaseChange {
    /// Starts when the statement is being sent to a server.
    pub(crate) fn begin(
        worker: &Rc<Worker>,
        server_id: u64,
        effect: &analysis::DatabaseChange,
    ) -> Self {
        let effect = Box::new(effect.clone());
        let task = Rc::new(DatabaseChangeTask { server_id, effect });
        worker.spawn(close_repeatedly(
            Rc::downgrade(worker),
            Rc::downgrade(&task),
        ));
        Self {
            worker: Rc::clone(worker),
            task,
            may_have_run: true,
        }
    }

    /// Records the server's reply to the statement.
    pub(crate) fn record_reply(&mut self, has_failed: bool) {
        self.may_have_run = !has_failed;
    }
}

impl Drop for ActiveDatabaseChange {
    fn drop(&mut self) {
        if !self.may_have_run {
            return;
        }
        for service in services_with(&self.worker, self.task.server_id) {
            for name in &self.task.effect.affected_names {
                replaced(&service, name);
            }
        }
        if self.task.effect.is_rename {
            // A copy: `close_repeatedly` runs for as long as the statement's own instance exists.
            let task = DatabaseChangeTask::clone(&self.task);
            let worker = Rc::downgrade(&self.worker);
            self.worker.spawn(retire_replica_pools(worker, task));
        }
    }
}

/// Retires connections to a renamed database at replicas, where no session must leave for the
/// statement. Connections opened under a name before the replica has applied the statement are in
/// another database than later ones.
async fn retire_replica_pools(worker: Weak<Worker>, task: DatabaseChangeTask) {
    for pause in REPLICA_PAUSES {
        timers::sleep(pause).await;
        let Some(worker) = worker.upgrade() else {
            return;
        };
        for service in services_with(&worker, task.server_id) {
            retire_at_replicas(&worker, &service, &task);
        }
    }
}

fn retire_at_replicas(worker: &Worker, service: &Service, task: &DatabaseChangeTask) {
    let Some(shared) = service.database() else {
        return;
    };
    let is_meant = |one: &PoolHandle| {
        let mut names = task.effect.affected_names.iter();
        one.server.id != task.server_id && names.any(|name| **name == *one.pool_user.database)
    };
    for ticket in shared.pool_registry.retire_pools(is_meant) {
        PoolMessage::Again(ticket).send(&worker.shared.workers, ticket.worker, service.id);
    }
}

/// Discards what is known about a name that belongs to another database from now on.
fn replaced(service: &Service, name: &str) {
    let shared = service.database();
    let known = shared.and_then(|shared| shared.server_info.databases().get(name));
    if let Some(database) = known {
        database.replaced();
    }
}

async fn close_repeatedly(worker: Weak<Worker>, task: Weak<DatabaseChangeTask>) {
    let mut pause = FIRST;
    loop {
        timers::sleep(pause).await;
        let (Some(worker), Some(task)) = (worker.upgrade(), task.upgrade()) else {
            return;
        };
        for service in services_with(&worker, task.server_id) {
            close_idle(&worker, &service, &task);
        }
        pause = INTERVAL;
    }
}

fn services_with(worker: &Worker, server_id: u64) -> Vec<Arc<Service>> {
    let mut services = worker.shared.registry.pooled_services();
    services.retain(|service| service.snapshot().lists(server_id));
    services
}

/// Closes the service's idle connections at all workers, and suspends reads of the catalog.
fn close_idle(worker: &Worker, service: &Service, task: &DatabaseChangeTask) {
    let Some(shared) = service.database() else {
        return;
    };
    let name = &*task.effect.database;
    if let Some(database) = shared.server_info.databases().get(name) {
        database.close_until(clock::now_ms() + CLOSED_MS);
    }
    let server = task.server_id;
    let database = shared.pool_registry.number(name.as_bytes()).get();
    let is_meant = |key: &PoolKey| key.server == server && key.database == database;
    let stats = shared.pool_registry.pools.stats();
    if !stats.iter().any(|one| one.idle > 0 && is_meant(&one.key)) {
        return;
    }
    let workers = &worker.shared.workers;
    for index in 0..workers.count() {
        PoolMessage::CloseIdle { server, database }.send(workers, index, service.id);
    }
}
