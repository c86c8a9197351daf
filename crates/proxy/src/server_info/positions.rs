//! Where the servers are in the WAL, and who wants to know.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use arc_swap::{ArcSwap, Guard};
use evenkeel_policy::causality::{Position, Replica, Sample, WaitSupport, Writes};
use tokio::sync::Notify;

/// A wish that is not older than this need not be said again.
const WANTED_AGAIN_US: u64 = 100_000;

/// One picture of the servers' positions; nothing in it changes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Positions {
    /// The time of the present primary, or of the last one; zero before the first.
    pub epoch: u64,
    /// The server that is the primary; none while there is none.
    pub primary: Option<u64>,
    /// Where the primary was; of an earlier epoch until the first of the present one has come.
    pub sample: Option<Sample>,
    servers: Vec<(u64, ReplicaProgress)>,
    /// Those that can wait for all that their cluster has committed.
    causal: Vec<u64>,
}

/// How far a replica is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaProgress {
    /// What it had replayed when it was asked; none if it has not told.
    pub position: Option<Position>,
    /// When that was asked.
    pub asked_us: u64,
    /// How far it is behind, as roles are watched; none is unknown.
    pub lag_ms: Option<u64>,
    /// What it can wait for.
    pub wait: WaitSupport,
}

impl ReplicaProgress {
    /// Nothing is known.
    pub const UNKNOWN: ReplicaProgress = ReplicaProgress {
        position: None,
        asked_us: 0,
        lag_ms: None,
        wait: WaitSupport::Nothing,
    };

    /// As the choice among replicas wants it.
    #[must_use]
    pub fn as_replica(&self) -> Replica<'_> {
        Replica {
            applied: self.position.as_ref(),
            asked_us: self.asked_us,
            lag_ms: self.lag_ms,
            wait: self.wait,
        }
    }
}

impl Positions {
    /// How far a server is, if it is listed.
    #[must_use]
    pub fn applied(&self, server_id: u64) -> Option<&ReplicaProgress> {
        let found = self.servers.iter().find(|(id, _)| *id == server_id);
        found.map(|(_, applied)| applied)
    }

    /// The same for the choice among replicas; of one that is not listed nothing is known.
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

    /// Whether a server can wait for all that its cluster has committed; and must, as the primary,
    /// where it has come after another: what that one acknowledged it may not have applied yet.
    #[must_use]
    pub fn is_causal(&self, server_id: u64) -> bool {
        self.causal.contains(&server_id)
    }

    /// Whether a server has all that the last sample of the primary stands for.
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

/// Keeps the picture: sessions look and mark their writes, the control plane asks and replaces.
#[derive(Debug)]
pub struct PositionTracker {
    positions: ArcSwap<Positions>,
    writes: Writes,
    /// The control plane sleeps until the next write.
    asleep: AtomicBool,
    wrote: Notify,
    /// When a read last found no replica that has what it must see; zero: never.
    wanted_us: AtomicU64,
    wanted: Notify,
}

impl PositionTracker {
    pub(super) fn new(workers: usize, now_us: u64) -> Self {
        Self {
            positions: ArcSwap::default(),
            writes: Writes::new(workers, now_us),
            asleep: AtomicBool::new(false),
            wrote: Notify::new(),
            wanted_us: AtomicU64::new(0),
            wanted: Notify::new(),
        }
    }

    /// The picture that holds now.
    pub fn positions(&self) -> Guard<Arc<Positions>> {
        self.positions.load()
    }

    /// When workers wrote last.
    pub fn writes(&self) -> &Writes {
        &self.writes
    }

    pub(super) fn wrote(&self, worker: usize, now_us: u64) {
        self.writes.wrote(worker, now_us);
        // Looked at before it is swapped: in the steady state nobody sleeps, and the line stays
        // shared between the workers.
        if self.asleep.load(SeqCst) && self.asleep.swap(false, SeqCst) {
            self.wrote.notify_waiters();
        }
    }

    /// Waits for a write after that time; one caller at a time. Nobody is disturbed by a write
    /// that is not waited for.
    pub async fn written_after(&self, last_us: u64) {
        loop {
            let mut wrote = std::pin::pin!(self.wrote.notified());
            // From here on a wake-up is not lost; then the bell is hung up, then the last look.
            wrote.as_mut().enable();
            self.asleep.store(true, SeqCst);
            if self.writes.last_us() > last_us {
                self.asleep.store(false, SeqCst);
                return;
            }
            wrote.await;
        }
    }

    /// A read has found no replica that has what it must see: positions are worth asking for.
    pub fn want(&self, now_us: u64) {
        let last_us = self.wanted_us.load(Relaxed);
        if last_us == 0 || now_us > last_us.saturating_add(WANTED_AGAIN_US) {
            self.wanted_us.store(now_us, SeqCst);
            self.wanted.notify_waiters();
        }
    }

    /// When that was last, within a tenth of a second; zero: never.
    pub fn wanted_us(&self) -> u64 {
        self.wanted_us.load(SeqCst)
    }

    /// Waits until it is so again.
    pub async fn wanted_after(&self, last_us: u64) {
        loop {
            let mut wanted = std::pin::pin!(self.wanted.notified());
            wanted.as_mut().enable();
            if self.wanted_us() != last_us {
                return;
            }
            wanted.await;
        }
    }

    /// Another server, or the same anew, is the primary, or nobody is. `begins`: its time begins.
    pub fn set_primary(&self, primary: Option<u64>, begins: bool) {
        self.change(|positions| {
            positions.primary = primary;
            positions.epoch += u64::from(begins);
        });
    }

    /// Lists exactly these servers, each with its lag; what they have told of themselves stays.
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

    /// The primary has told where it is. Counts only while its time lasts; says whether it did.
    pub fn sampled(&self, sample: &Sample) -> bool {
        let newest = self.change(|positions| {
            if positions.epoch == sample.epoch && positions.primary.is_some() {
                positions.sample = Some(sample.clone());
            }
        });
        newest.sample.as_ref() == Some(sample)
    }

    /// A replica has told where it is, and perhaps what it can wait for.
    pub fn applied(
        &self,
        server_id: u64,
        position: Position,
        asked_us: u64,
        wait: Option<WaitSupport>,
    ) {
        self.change(|positions| {
            let Some(applied) = positions.entry(server_id) else {
                return;
            };
            // Answers of two connections may come in another order than they were asked for.
            if applied.asked_us <= asked_us {
                applied.position = Some(position.clone());
                applied.asked_us = asked_us;
            }
            applied.wait = wait.unwrap_or(applied.wait);
        });
    }

    /// A server has said whether it can wait for all that its cluster has committed.
    pub fn set_causal(&self, server_id: u64, is_causal: bool) {
        if self.positions().is_causal(server_id) == is_causal {
            return;
        }
        self.change(|positions| match is_causal {
            true => positions.causal.push(server_id),
            false => positions.causal.retain(|id| *id != server_id),
        });
    }

    /// A replica's word counts no more: it is down, or another server may answer there.
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
