//! Clients that wait because all servers are full: first come, first served, over all workers.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use evenkeel_policy::server_set::Pick;

use super::ConnectRequest;
use super::server_permit::{ServerPermit, ServiceRegistry};
use crate::record::TerminationReason;
use crate::service::{Service, ServiceSnapshot};

type Grant = (ServerPermit, Arc<ServiceSnapshot>);

/// The waiting clients of one service. The lock is taken only while somebody waits.
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

    /// The number of the longest waiting: lower is earlier, over all services.
    pub(super) fn first_ticket(&self) -> Option<u64> {
        self.lock().front().map(|waiter| waiter.ticket)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Waiter>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counted before the lock and the pick, so that a place freed meanwhile is seen by one side.
    fn count(&self, registry: &ServiceRegistry) {
        self.length.fetch_add(1, SeqCst);
        registry.queued.fetch_add(1, SeqCst);
    }

    fn uncount(&self, registry: &ServiceRegistry) {
        self.length.fetch_sub(1, SeqCst);
        registry.queued.fetch_sub(1, SeqCst);
    }
}

/// Waits at most `wait` for a place on a server.
pub(super) async fn wait(
    seeker: &ConnectRequest<'_>,
    tried_ids: &[u64],
    wait: Duration,
) -> Result<Grant, TerminationReason> {
    let (service, registry) = (seeker.service, &seeker.worker.shared.registry);
    if service.queued() >= service.snapshot().settings.queue_length {
        service.counters.queue_full.add(1);
        return Err(TerminationReason::QueueFull);
    }
    let (granted, grant) = flume::bounded(1);
    let place = QueueEntry::take(seeker, tried_ids, granted);
    serve_waiting(service, registry);
    let outcome = compio::time::timeout(wait, grant.recv_async()).await;
    drop(place);
    // A grant may have come while the time ran out: it is in the channel then.
    if matches!(outcome, Ok(Err(_))) {
        service.counters.no_server.add(1);
        return Err(TerminationReason::NoServer);
    }
    match outcome
        .ok()
        .and_then(Result::ok)
        .or_else(|| grant.try_recv().ok())
    {
        Some(_) if (seeker.client_left)() => Err(TerminationReason::ClientLeft),
        Some(granted) => Ok(granted),
        None => {
            service.counters.queue_timeout.add(1);
            Err(TerminationReason::QueueTimeout)
        }
    }
}

/// Gives free places to the longest waiting, until there is none or nobody waits.
pub(crate) fn serve_waiting(service: &Arc<Service>, registry: &Arc<ServiceRegistry>) {
    while serve_one(service, registry) {}
}

/// Turns away who waits for a service that has nobody left: the next clients are refused at once,
/// so these must not wait on.
pub(crate) fn refuse_waiting(service: &Arc<Service>, registry: &Arc<ServiceRegistry>) {
    let turned_away = std::mem::take(&mut *service.queue.lock());
    for _ in &turned_away {
        service.queue.uncount(registry);
    }
}

/// Gives one free place to the longest waiting. False: there is none, or nobody can use it.
pub(super) fn serve_one(service: &Arc<Service>, registry: &Arc<ServiceRegistry>) -> bool {
    let view = service.view_owned();
    let mut waiting = service.queue.lock();
    let Some((index, server)) = first_servable(&waiting, &view) else {
        return false;
    };
    let lease = ServerPermit::new(&view.servers[server], registry);
    let waiter = waiting.remove(index);
    // A grant whose receiver is gone gives its place back on drop, which comes back here: outside
    // the lock.
    drop(waiting);
    let Some(waiter) = waiter else { return false };
    service.queue.uncount(registry);
    let _ = waiter.granted.send((lease, view));
    true
}

/// The longest waiting for whom there is a place now, and the reserved server.
fn first_servable(waiting: &VecDeque<Waiter>, view: &ServiceSnapshot) -> Option<(usize, usize)> {
    for (index, waiter) in waiting.iter().enumerate() {
        let mut pick = view.pick(waiter.key, &waiter.tried_ids);
        if pick == Pick::NoneUp && !waiter.tried_ids.is_empty() {
            // Those it waited for are gone: then one that failed it before is better than none.
            pick = view.pick(waiter.key, &[]);
        }
        if let Pick::Server(server) = pick {
            return Some((index, server));
        }
        // Only who avoids servers that failed it lets others pass: they may take those.
        if waiter.tried_ids.is_empty() {
            return None;
        }
    }
    None
}

/// A place in the queue, left on drop.
struct QueueEntry<'a> {
    service: &'a Arc<Service>,
    registry: &'a ServiceRegistry,
    ticket: u64,
}

impl<'a> QueueEntry<'a> {
    fn take(seeker: &ConnectRequest<'a>, tried_ids: &[u64], granted: flume::Sender<Grant>) -> Self {
        let (service, registry) = (seeker.service, &seeker.worker.shared.registry);
        let queue = &service.queue;
        let ticket = registry.tickets.fetch_add(1, Relaxed);
        queue.count(registry);
        let tried_ids = tried_ids.to_vec();
        queue.lock().push_back(Waiter {
            ticket,
            key: seeker.key,
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
