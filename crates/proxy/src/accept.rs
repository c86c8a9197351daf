//! Passes accepted clients to the worker that serves them.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use arc_swap::ArcSwap;
use evenkeel_engine::listen::{self, AcceptedClient, Listener, ListenerHandle};

use crate::event::Event;
use crate::service::Service;
use crate::settings::Assignment;
use crate::worker::{Accepted, Worker};

/// Surplus of sessions over the least loaded worker at which an accepted client is handed over; a
/// quarter of that worker's sessions if that is more. The handover costs a wake-up, which short
/// connections would notice.
const SESSIONS_AHEAD_MAX: usize = 2;

/// Listener and its service, shared by all workers.
pub(crate) struct ServiceListener {
    pub(crate) id: u64,
    handle: ListenerHandle,
    service: ArcSwap<Service>,
}

impl ServiceListener {
    pub(crate) fn new(id: u64, listener: &Listener, service: Arc<Service>) -> io::Result<Self> {
        Ok(Self {
            id,
            handle: listener.handle()?,
            service: ArcSwap::new(service),
        })
    }

    /// Assigns clients that are accepted from now on to this service.
    pub(crate) fn reassign(&self, service: &Arc<Service>) {
        self.service.store(Arc::clone(service));
    }
}

/// Starts accepting the clients of a listener on one worker.
pub(crate) fn listen(worker: &Rc<Worker>, listener: Arc<ServiceListener>) {
    let stop = worker.start_listening(listener.id);
    worker.spawn_vital(accept_clients(Rc::clone(worker), listener, stop));
}

/// Accepts the clients of a listener on one worker until `stop` has no sender.
async fn accept_clients(
    worker: Rc<Worker>,
    listener: Arc<ServiceListener>,
    stop: flume::Receiver<()>,
) {
    let welcome = |AcceptedClient { socket, peer }| {
        let service = listener.service.load_full();
        let accepted = Accepted {
            socket,
            peer,
            service,
        };
        assign(&worker, accepted);
    };
    let failed = |why| worker.shared.report_event(Event::AcceptFailed(why));
    listen::accept_clients(&worker, &listener.handle, stop, welcome, failed).await;
}

/// Keeps the client or hands it to the worker with the fewest sessions.
fn assign(worker: &Rc<Worker>, accepted: Accepted) {
    let shared = &worker.shared;
    let sessions = &shared.sessions;
    let assignment = accepted.service.snapshot().settings.assignment;
    let weight = |index: usize| match assignment {
        Assignment::Gather => shared.pooled_weight(index),
        Assignment::Keep => sessions[index].load(Relaxed),
    };
    let own = weight(worker.index());
    let (idlest, fewest) = (0..sessions.len())
        .map(|index| (index, weight(index)))
        .min_by_key(|(_, weight)| *weight)
        .unwrap_or((worker.index(), own));
    let is_kept = match assignment {
        // Among equally loaded workers the first one is chosen.
        Assignment::Gather => idlest == worker.index(),
        Assignment::Keep => own < fewest + SESSIONS_AHEAD_MAX.max(fewest / 4),
    };
    let index = if is_kept { worker.index() } else { idlest };
    // Counted immediately, so that the next client takes this one into account.
    sessions[index].fetch_add(1, Relaxed);
    match is_kept {
        true => worker.serve(accepted),
        false => shared.workers.run(index, |worker| worker.serve(accepted)),
    }
}
