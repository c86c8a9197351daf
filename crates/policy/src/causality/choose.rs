//! Chooses the servers that a session may read from: immediately, after a short wait, or only the
//! primary.

use super::position::Position;
use super::token::RequiredPosition;
use crate::server_set::MemberSet;

/// Limits of a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CausalitySettings {
    /// Maximum time that a read waits for a replica to catch up, in ms; zero means never.
    pub wait_ms: u64,
    /// Maximum age of a replica's report, in ms: by now it may be another server.
    pub stale_ms: u64,
    /// True if Galera nodes may serve reads that must see the session's writes. A node that is
    /// leaving its cluster replies with the data it has, regardless of the requested wait.
    pub galera_wait: bool,
}

/// Known state of a replica that takes clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replica<'a> {
    /// Position that the replica had applied at the query; `None` if it does not report one.
    pub applied: Option<&'a Position>,
    /// Time of the query.
    pub queried_us: u64,
    /// Lag of the replica; `None` is unknown.
    pub lag_ms: Option<u64>,
    /// Kind of wait that the replica supports.
    pub wait: WaitSupport,
}

impl Replica<'_> {
    /// Returns the replica without support for waits, because their duration would be unknown.
    #[must_use]
    pub fn without_wait_support(self) -> Self {
        Self {
            wait: WaitSupport::Nothing,
            ..self
        }
    }
}

/// Condition that a server can wait for before it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitSupport {
    /// No condition (PostgreSQL before 19).
    Nothing,
    /// A position (`WAIT FOR LSN`, `WAIT_FOR_EXECUTED_GTID_SET`, `MASTER_GTID_WAIT`).
    Position,
    /// All transactions that the cluster has committed (`wsrep_sync_wait`); no position is needed.
    Everything,
}

/// Suitability of a replica for a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// The replica has all required writes.
    Fresh,
    /// The replica has them after it waits for all committed transactions; the read must be sent
    /// with that wait.
    AfterSync,
    /// The replica may have them in time; the read must be sent with a wait for the position.
    AfterPosition,
    /// The replica does not have them, or that is unknown.
    Behind,
}

/// Server of a service, as a candidate for a read.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// True if the server takes writes.
    pub is_primary: bool,
    /// True if the server takes reads as a replica.
    pub is_replica: bool,
    /// True if the read has already failed on this server.
    pub is_tried: bool,
    /// Replication progress.
    pub replica: Replica<'a>,
}

/// Servers that may serve a read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReadChoice {
    /// Number of replicas that take reads and have not failed this one.
    pub replicas: usize,
    /// Number of these that have all that the read must see.
    pub fresh: usize,
    /// Index of the replica that will have the position first if it waits. Set only if no replica
    /// is fresh.
    pub soonest: Option<usize>,
    /// Number of replicas that are fresh after a wait for all committed transactions. Zero if any
    /// replica is fresh.
    pub fresh_after_sync: usize,
    /// Indices of servers that must not be chosen without a wait.
    pub barred: MemberSet,
    /// Indices of servers that must not be chosen even with a wait for all committed transactions.
    pub barred_waiting: MemberSet,
}

/// Returns whether a replica is suitable.
#[must_use]
pub fn assess(
    requires: RequiredPosition<'_>,
    replica: &Replica<'_>,
    now_us: u64,
    settings: &CausalitySettings,
) -> Freshness {
    let target = match requires {
        RequiredPosition::Nothing => return Freshness::Fresh,
        _ if replica.wait == WaitSupport::Everything && !settings.galera_wait => {
            return Freshness::Behind;
        }
        RequiredPosition::Everything(_) => return at_best(replica, settings),
        RequiredPosition::Position(target) => target,
    };
    let is_current = now_us.saturating_sub(replica.queried_us) <= settings.stale_ms * 1_000;
    let reaches = |applied| is_current && target.is_reached_by(applied);
    if replica.applied.is_some_and(reaches) {
        return Freshness::Fresh;
    }
    let may_come = replica
        .lag_ms
        .is_some_and(|lag_ms| lag_ms <= settings.wait_ms);
    if replica.wait == WaitSupport::Position && settings.wait_ms > 0 && may_come {
        return Freshness::AfterPosition;
    }
    at_best(replica, settings)
}

/// Returns the freshness of a replica that is not known to have the required writes.
fn at_best(replica: &Replica<'_>, settings: &CausalitySettings) -> Freshness {
    match replica.wait {
        WaitSupport::Everything if settings.wait_ms > 0 => Freshness::AfterSync,
        _ => Freshness::Behind,
    }
}

/// Returns which of a service's servers may serve a read.
#[must_use]
pub fn readers<'a>(
    requires: RequiredPosition<'_>,
    servers: impl IntoIterator<Item = Candidate<'a>>,
    now_us: u64,
    settings: &CausalitySettings,
) -> ReadChoice {
    let (mut readers, mut soonest) = (ReadChoice::default(), None);
    for (index, server) in servers.into_iter().enumerate() {
        let may_read = server.is_replica && !server.is_tried;
        let freshness = match may_read {
            true => assess(requires, &server.replica, now_us, settings),
            false => Freshness::Behind,
        };
        let is_fresh = freshness == Freshness::Fresh;
        readers.replicas += usize::from(may_read);
        readers.fresh += usize::from(is_fresh);
        let is_after_sync = freshness == Freshness::AfterSync;
        readers.fresh_after_sync += usize::from(is_after_sync);
        if freshness == Freshness::AfterPosition {
            soonest = soonest.min_some((server.replica.lag_ms, index));
        }
        if server.is_tried || !server.is_primary && !is_fresh {
            readers.barred.insert(index);
            if !is_after_sync {
                readers.barred_waiting.insert(index);
            }
        }
    }
    match readers.fresh {
        0 => readers.soonest = soonest.map(|(_, index)| index),
        _ => readers.fresh_after_sync = 0,
    }
    readers
}

trait MinSome<T> {
    /// Returns the lesser of both values, or the only one.
    fn min_some(self, other: T) -> Self;
}

impl<T: Ord> MinSome<T> for Option<T> {
    fn min_some(self, other: T) -> Option<T> {
        Some(match self {
            Some(own) => own.min(other),
            None => other,
        })
    }
}
