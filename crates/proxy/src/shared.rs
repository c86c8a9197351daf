//! State that all workers and the control plane share.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use evenkeel_engine::engine::Workers;

use crate::access_log::AccessLogQueue;
use crate::cancel::Keyring;
use crate::event::Event;
use crate::numbers::Numbers;
use crate::upstream::server_permit::ServiceRegistry;
use crate::worker::Worker;

/// Stands for the start of a session that does not exist.
pub(crate) const NO_SESSION: u64 = u64::MAX;

/// State shared by all workers.
pub(crate) struct DataPlaneShared {
    pub(crate) registry: Arc<ServiceRegistry>,
    /// Sessions of each worker: the next client goes to the one with the fewest.
    pub(crate) sessions: Vec<AtomicUsize>,
    /// Start of the oldest session of each worker at its last sweep, or [`NO_SESSION`].
    pub(crate) oldest_ms: Vec<AtomicU64>,
    /// Recent load of each worker, in thousandths of its time.
    pub(crate) busy: Vec<AtomicU32>,
    pub(crate) workers: Workers<Worker>,
    pub(crate) records_enabled: AtomicBool,
    /// Creates and parses the keys of cancel requests.
    pub(crate) keyring: OnceLock<Keyring>,
    /// Source of connection ids for MySQL clients.
    pub(crate) connection_numbers: Arc<Numbers>,
    /// Forwards cancel requests to the predecessor process.
    pub(crate) predecessor: ArcSwapOption<PredecessorCancels>,
    pub(crate) events: flume::Sender<Event>,
    pub(crate) events_dropped: AtomicU64,
    pub(crate) access_log: Arc<AccessLogQueue>,
}

/// Number of sessions of pooled services that gather at one worker before the next one gets any:
/// their work comes in small pieces, so that two workers with few sessions would spend more on
/// falling asleep.
const GATHERED: usize = 8;

/// Load in thousandths above which a worker gathers no further sessions.
const BUSY_MAX: u32 = 600;

fn pooled_weight(sessions: usize, busy_permille: u32) -> usize {
    match busy_permille > BUSY_MAX {
        true => sessions + GATHERED + 1,
        false => sessions.max(GATHERED),
    }
}

impl DataPlaneShared {
    /// Returns the number of sessions that a worker counts as when it is chosen for a session of a
    /// pooled service.
    pub(crate) fn pooled_weight(&self, index: usize) -> usize {
        let busy = self.busy[index].load(Relaxed);
        pooled_weight(self.sessions[index].load(Relaxed), busy)
    }

    pub(crate) fn report_event(&self, event: Event) {
        if self.events.try_send(event).is_err() {
            self.events_dropped.fetch_add(1, Relaxed);
        }
    }
}

/// Receives the process number and the secret of a cancel request; returns whether it is taken.
pub type PredecessorCancels = Box<dyn Fn(u32, Vec<u8>) -> bool + Send + Sync>;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many of the clients each of two workers gets.
    fn spread(clients: usize, busy: [u32; 2]) -> [usize; 2] {
        let mut sessions = [0, 0];
        for _ in 0..clients {
            let weight = |index: usize| pooled_weight(sessions[index], busy[index]);
            let lightest = usize::from(weight(1) < weight(0));
            sessions[lightest] += 1;
        }
        sessions
    }

    #[test]
    fn few_pooled_clients_gather_at_one_worker_and_many_are_spread() {
        assert_eq!(spread(8, [0, 0]), [8, 0]);
        assert_eq!(spread(64, [0, 0]), [32, 32]);
    }

    #[test]
    fn a_busy_worker_gathers_nobody() {
        assert_eq!(spread(4, [900, 0]), [0, 4]);
    }
}
