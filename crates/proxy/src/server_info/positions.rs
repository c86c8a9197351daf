//! Tracks the servers' positions in the WAL, and the sessions' interest in them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use arc_swap::{ArcSwap, Guard};
use evenkeel_policy::causality::{Position, Replica, Sample, WaitSupport, Writes};
use event_listener::Event;

/// A request for positions is not repeated within this time.
const WANTED_AGAIN_US: u64 = 100_000;

/// An immutable snapshot of the servers' positions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Positions {
    /// Epoch of the current primary, or of the last one; zero before the first.
    pub epoch: u64,
    /// The current primary, if any.
    pub primary: Option<u64>,
    /// Position of the primary; from an earlier epoch until the first sample of the current one.
    pub sample: Option<Sample>,
    servers: Vec<(u64, ReplicaProgress)>,
    /// Servers that can wait for everything that their cluster has committed.
    causal: Vec<u64>,
}

/// Progress of a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaProgress {
    /// Position replayed when it was queried; `None` if it has not reported one.
    pub position: Option<Position>,
    /// Time of the query.
    pub queried_us: u64,
    /// Lag found by the role checks; `None`: unknown.
    pub lag_ms: Option<u64>,
    /// Positions that it can wait for.
    pub wait: WaitSupport,
}

impl ReplicaProgress {
    /// Progress of an unknown replica.
    pub const UNKNOWN: ReplicaProgress = ReplicaProgress {
        position: None,
        queried_us: 0,
        lag_ms: None,
        wait: WaitSupport::Nothing,
    };

    /// Converts it for the choice among replicas.
    #[must_use]
    pub fn as_replica(&self) -> Replica<'_> {
        Replica {
            applied: self.position.as_ref(),
            queried_us: self.queried_us,
            lag_ms: self.lag_ms,
            wait: self.wait,
        }
    }
}

impl Positions {
    /// Returns a server's progress, if it is listed.
    #[must_use]
    pub fn applied(&self, server_id: u64) -> Option<&ReplicaProgress> {
        let found = self.servers.iter().find(|(id, _)| *id == server_id);
        found.map(|(_, applied)| applied)
    }

    /// Returns a server's progress for the choice among replicas; unknown if it is not listed.
    #[must_use]
    pub fn replica(&self, server_id: u64) -> Replica<'_> {
        const UNKNOWN: &ReplicaProgress = &ReplicaProgress::UNKNOWN;
        let replica = self.applied(server_id).unwrap_or(UNKNOWN).as_replica();
        match self.is_causal(server_id) {
            true => Replica {
                wait: WaitSupport::Everything,
                ..replica
            },
            false => replica,
        }
    }

    /// Returns whether a server can wait for everything that its cluster has committed. A new
    /// primary must do so: it may not have applied all that its predecessor acknowledged.
    #[must_use]
    pub fn is_causal(&self, server_id: u64) -> bool {
        self.causal.contains(&server_id)
    }

    /// Returns whether a server has applied everything up to the primary's last sample.
    #[must_use]
    pub fn has_last_sample(&self, server_id: u64) -> bool {
        let applied = self.applied(server_id);
        let position = applied.and_then(|applied| applied.position.as_ref());
        match (&self.sample, position) {
            (Some(sample), Some(position)) => sample.position.is_reached_by(position),
            (None, _) => true,
            (Some(_), None) => false,
        }
    }

    fn entry(&mut self, server_id: u64) -> Option<&mut ReplicaProgress> {
        let mut servers = self.servers.iter_mut();
        let found = servers.find(|(id, _)| *id == server_id);
        found.map(|(_, applied)| applied)
    }
}

/// Maintains the positions: sessions read them and mark writes, the control plane queries servers.
#[derive(Debug)]
pub struct PositionTracker {
    positions: ArcSwap<Positions>,
    writes: Writes,
    /// True while the control plane sleeps until the next write.
    is_sleeping: AtomicBool,
    write_notify: Event,
    /// Time when a read last found no replica with the required position; zero: never.
    wanted_us: AtomicU64,
    request_notify: Event,
}

impl PositionTracker {
    pub(super) fn new(workers: usize, now_us: u64) -> Self {
        Self {
            positions: ArcSwap::default(),
            writes: Writes::new(workers, now_us),
            is_sleeping: AtomicBool::new(false),
            write_notify: Event::new(),
            wanted_us: AtomicU64::new(0),
            request_notify: Event::new(),
        }
    }

    /// Returns the current positions.
    pub fn positions(&self) -> Guard<Arc<Positions>> {
        self.positions.load()
    }

    /// Returns the times of the workers' last writes.
    pub fn writes(&self) -> &Writes {
        &self.writes
    }

    pub(super) fn record_write(&self, worker: usize, now_us: u64) {
        self.writes.wrote(worker, now_us);
        // Loaded before the swap: normally no task sleeps, and the cache line stays shared between
        // the workers.
        if self.is_sleeping.load(SeqCst) && self.is_sleeping.swap(false, SeqCst) {
            self.write_notify.notify(usize::MAX);
        }
    }

    /// Waits for a write after that time; one caller at a time. Other writes wake no task.
    pub async fn wait_for_write(&self, last_us: u64) {
        loop {
            let write_notify = self.write_notify.listen();
            // From here on a wake-up is not lost; then the flag is set, and the time checked a last
            // time.
            self.is_sleeping.store(true, SeqCst);
            if self.writes.last_us() > last_us {
                self.is_sleeping.store(false, SeqCst);
                return;
            }
            write_notify.await;
        }
    }

    /// Records that a read has found no replica with the required position, so that positions are
    /// queried.
    pub fn request_positions(&self, now_us: u64) {
        let last_us = self.wanted_us.load(Relaxed);
        if last_us == 0 || now_us > last_us.saturating_add(WANTED_AGAIN_US) {
            self.wanted_us.store(now_us, SeqCst);
            self.request_notify.notify(usize::MAX);
        }
    }

    /// Returns the time of the last such request, within a tenth of a second; zero: never.
    pub fn wanted_us(&self) -> u64 {
        self.wanted_us.load(SeqCst)
    }

    /// Waits for the next such request.
    pub async fn wait_for_request(&self, last_us: u64) {
        loop {
            let request_notify = self.request_notify.listen();
            // From here on no request is missed.
            if self.wanted_us() != last_us {
                return;
            }
            request_notify.await;
        }
    }

    /// Sets the primary: another server, the same one again, or none. `begins`: an epoch begins.
    pub fn set_primary(&self, primary: Option<u64>, begins: bool) {
        self.change(|positions| {
            positions.primary = primary;
            positions.epoch += u64::from(begins);
        });
    }

    /// Lists exactly these servers with their lag; their reported progress is kept.
    pub fn list(&self, servers: &[(u64, Option<u64>)]) {
        self.change(|positions| {
            let listed = servers.iter().map(|(id, lag_ms)| {
                let known = positions.applied(*id).cloned();
                let applied = known.unwrap_or(ReplicaProgress::UNKNOWN);
                let lag_ms = *lag_ms;
                (*id, ReplicaProgress { lag_ms, ..applied })
            });
            positions.servers = listed.collect();
        });
    }

    /// Stores the primary's position, if its epoch is current. Returns whether it is.
    pub fn sampled(&self, sample: &Sample) -> bool {
        let newest = self.change(|positions| {
            if positions.epoch == sample.epoch && positions.primary.is_some() {
                positions.sample = Some(sample.clone());
            }
        });
        newest.sample.as_ref() == Some(sample)
    }

    /// Stores a replica's position, and optionally the positions it can wait for.
    pub fn applied(
        &self,
        server_id: u64,
        position: Position,
        queried_us: u64,
        wait: Option<WaitSupport>,
    ) {
        self.change(|positions| {
            let Some(applied) = positions.entry(server_id) else {
                return;
            };
            // Replies on two connections may arrive out of order.
            if applied.queried_us <= queried_us {
                applied.position = Some(position.clone());
                applied.queried_us = queried_us;
            }
            applied.wait = wait.unwrap_or(applied.wait);
        });
    }

    /// Records whether a server can wait for everything that its cluster has committed.
    pub fn set_causal(&self, server_id: u64, is_causal: bool) {
        if self.positions().is_causal(server_id) == is_causal {
            return;
        }
        self.change(|positions| match is_causal {
            true => positions.causal.push(server_id),
            false => positions.causal.retain(|id| *id != server_id),
        });
    }

    /// Discards a replica's position: it is down, or another server may use its address.
    pub fn forget(&self, server_id: u64) {
        self.change(|positions| {
            if let Some(applied) = positions.entry(server_id) {
                *applied = ReplicaProgress::UNKNOWN;
            }
        });
    }

    fn change(&self, change: impl Fn(&mut Positions)) -> Arc<Positions> {
        self.positions.rcu(|old| {
            let mut new = Positions::clone(old);
            change(&mut new);
            new
        });
        self.positions.load_full()
    }
}
