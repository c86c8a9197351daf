//! Queues clients while all servers are full: first come, first served, across all workers.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use evenkeel_engine::panics::lock;
use evenkeel_engine::timers;
use evenkeel_policy::server_set::Pick;

use super::ConnectRequest;
use super::server_permit::{ServerPermit, ServiceRegistry};
use crate::record::TerminationReason;
use crate::service::{Service, ServiceSnapshot};

type Grant = (ServerPermit, Arc<ServiceSnapshot>);

/// The waiting clients of one service. The lock is taken only while clients wait.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    length: AtomicUsize,
    waiting: Mutex<VecDeque<Waiter>>,
}

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    key: u64,
    tried_ids: Vec<u64>,
    granted: flume::Sender<Grant>,
}

impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.length.load(SeqCst)
    }

    /// Returns the ticket of the client that has waited longest: lower is earlier, across all
    /// services.
    pub(super) fn first_ticket(&self) -> Option<u64> {
        self.lock().front().map(|waiter| waiter.ticket)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Waiter>> {
        lock(&self.waiting)
    }

    /// Counts a client before the lock and the pick, so that one side sees a permit that is
    /// released meanwhile.
    fn count(&self, registry: &ServiceRegistry) {
        self.length.fetch_add(1, SeqCst);
        registry.queued.fetch_add(1, SeqCst);
    }

    fn uncount(&self, registry: &ServiceRegistry) {
        self.length.fetch_sub(1, SeqCst);
        registry.queued.fetch_sub(1, SeqCst);
    }
}

/// Waits at most `wait` for a permit on a server.
pub(super) async fn wait(
    request: &ConnectRequest<'_>,
    tried_ids: &[u64],
    wait: Duration,
) -> Result<Grant, TerminationReason> {
    let (service, registry) = (request.service, &request.worker.shared.registry);
    if service.queued() >= service.snapshot().settings.queue_length {
        service.counters.queue_full.add(1);
        return Err(TerminationReason::QueueFull);
    }
    let (granted, grant) = flume::bounded(1);
    let place = QueueEntry::take(request, tried_ids, granted);
    serve_waiting(service, registry);
    let outcome = timers::timeout(wait, grant.recv_async()).await;
    drop(place);
    // A grant may have arrived during the timeout: then it is in the channel.
    if matches!(outcome, Ok(Err(_))) {
        service.counters.no_server.add(1);
        return Err(TerminationReason::NoServer);
    }
    match outcome
        .ok()
        .and_then(Result::ok)
        .or_else(|| grant.try_recv().ok())
    {
        Some(_) if (request.has_client_left)() => Err(TerminationReason::ClientLeft),
        Some(granted) => Ok(granted),
        None => {
            service.counters.queue_timeout.add(1);
            Err(TerminationReason::QueueTimeout)
        }
    }
}

/// Grants free permits to the clients that have waited longest, until no permit is free or no
/// client waits.
pub(crate) fn serve_waiting(service: &Arc<Service>, registry: &Arc<ServiceRegistry>) {
    while serve_one(service, registry) {}
}

/// Rejects all clients that wait for a service without servers: new clients are refused
/// immediately, so these must not keep waiting.
pub(crate) fn refuse_waiting(service: &Arc<Service>, registry: &Arc<ServiceRegistry>) {
    let turned_away = std::mem::take(&mut *service.queue.lock());
    for _ in &turned_away {
        service.queue.uncount(registry);
    }
}

/// Grants one free permit to the client that has waited longest. Returns false if no permit is
/// free, or no client can use it.
pub(super) fn serve_one(service: &Arc<Service>, registry: &Arc<ServiceRegistry>) -> bool {
    let view = service.snapshot_owned();
    let mut waiting = service.queue.lock();
    let Some((index, server)) = first_servable(&waiting, &view) else {
        return false;
    };
    let lease = ServerPermit::new(&view.servers[server], registry);
    let waiter = waiting.remove(index);
    // If the receiver is gone, the drop of the grant releases its permit, which calls this function
    // again: hence outside the lock.
    drop(waiting);
    let Some(waiter) = waiter else { return false };
    service.queue.uncount(registry);
    let _ = waiter.granted.send((lease, view));
    true
}

/// Returns the client that has waited longest among those with a free permit now, and the reserved
/// server.
fn first_servable(waiting: &VecDeque<Waiter>, view: &ServiceSnapshot) -> Option<(usize, usize)> {
    for (index, waiter) in waiting.iter().enumerate() {
        let mut pick = view.pick(waiter.key, &waiter.tried_ids);
        if pick == Pick::NoneUp && !waiter.tried_ids.is_empty() {
            // The servers it waited for are gone: a server that failed it before is better than
            // none.
            pick = view.pick(waiter.key, &[]);
        }
        if let Pick::Server(server) = pick {
            return Some((index, server));
        }
        // Only a client that avoids failed servers can be overtaken: others may use those servers.
        if waiter.tried_ids.is_empty() {
            return None;
        }
    }
    None
}

/// An entry in the queue, removed on drop.
struct QueueEntry<'a> {
    service: &'a Arc<Service>,
    registry: &'a ServiceRegistry,
    ticket: u64,
}

impl<'a> QueueEntry<'a> {
    fn take(
        request: &ConnectRequest<'a>,
        tried_ids: &[u64],
        granted: flume::Sender<Grant>,
    ) -> Self {
        let (service, registry) = (request.service, &request.worker.shared.registry);
        let queue = &service.queue;
        let ticket = registry.tickets.fetch_add(1, Relaxed);
        queue.count(registry);
        let tried_ids = tried_ids.to_vec();
        queue.lock().push_back(Waiter {
            ticket,
            key: request.key,
            tried_ids,
            granted,
        });
        Self {
            service,
            registry,
            ticket,
        }
    }
}

impl Drop for QueueEntry<'_> {
    fn drop(&mut self) {
        let mut waiting = self.service.queue.lock();
        if let Some(index) = waiting
            .iter()
            .position(|waiter| waiter.ticket == self.ticket)
        {
            waiting.remove(index);
            self.service.queue.uncount(self.registry);
        }
    }
}
