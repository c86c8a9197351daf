//! Which servers a session may read from now, which after a short wait, and when only the primary
//! will do.

use super::position::Position;
use super::token::RequiredPosition;
use crate::server_set::MemberSet;

/// Limits of a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CausalitySettings {
    /// A read waits this long at most for a replica to catch up; zero is never.
    pub wait_ms: u64,
    /// What a replica said longer ago counts no more: it may be another server by now.
    pub stale_ms: u64,
    /// Nodes of Galera may serve what a session has written. One that is leaving its cluster
    /// answers with what it has, whatever it was told to wait for.
    pub causal: bool,
}

/// What is known of a replica that takes clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replica<'a> {
    /// What it had applied when it was asked; `None`: it does not say.
    pub applied: Option<&'a Position>,
    /// When that was asked.
    pub asked_us: u64,
    /// How far behind it was; `None` is unknown.
    pub lag_ms: Option<u64>,
    /// What it can wait for.
    pub wait: WaitSupport,
}

impl Replica<'_> {
    /// It is not to be told to wait: nobody knows for how long that would be.
    #[must_use]
    pub fn at_once(self) -> Self {
        Self {
            wait: WaitSupport::Nothing,
            ..self
        }
    }
}

/// What a server can be told to wait for before it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitSupport {
    /// Nothing (PostgreSQL before 19).
    Nothing,
    /// A position (`WAIT FOR LSN`, `WAIT_FOR_EXECUTED_GTID_SET`, `MASTER_GTID_WAIT`).
    Position,
    /// All that the cluster has committed (`wsrep_sync_wait`); no position is needed.
    Everything,
}

/// Whether a replica will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// It has all that is required.
    Fresh,
    /// It has, once it has waited for all that is committed: the read is to be sent with that.
    AfterSync,
    /// It may have within the wait: the read is to be sent with a wait for the position.
    AfterPosition,
    /// It has not, or that is not known.
    Behind,
}

/// A server of a service, as a read finds it.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// It takes writes.
    pub is_primary: bool,
    /// It takes reads as a replica.
    pub is_replica: bool,
    /// It has failed the read.
    pub is_tried: bool,
    /// How far it is.
    pub replica: Replica<'a>,
}

/// Who may serve a read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReadChoice {
    /// Replicas that take reads and have not failed it.
    pub replicas: usize,
    /// Those of them that have all that it must see.
    pub fresh: usize,
    /// If there is none of these: the one, by its place, that has it the soonest once it was told
    /// to wait for it.
    pub soonest: Option<usize>,
    /// If there is none of these: how many have it once they have waited for all that is committed.
    pub causal: usize,
    /// Servers, by their places, that must not be chosen as they are.
    pub barred: MemberSet,
    /// Those that must not be chosen even if they wait for all that is committed.
    pub barred_waiting: MemberSet,
}

/// Whether one replica will do.
#[must_use]
pub fn judge(
    requires: RequiredPosition<'_>,
    replica: &Replica<'_>,
    now_us: u64,
    settings: &CausalitySettings,
) -> Freshness {
    let target = match requires {
        RequiredPosition::Nothing => return Freshness::Fresh,
        _ if replica.wait == WaitSupport::Everything && !settings.causal => {
            return Freshness::Behind;
        }
        RequiredPosition::Everything(_) => return at_best(replica, settings),
        RequiredPosition::Position(target) => target,
    };
    let is_current = now_us.saturating_sub(replica.asked_us) <= settings.stale_ms * 1_000;
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

/// Of one that is not known to have what is required.
fn at_best(replica: &Replica<'_>, settings: &CausalitySettings) -> Freshness {
    match replica.wait {
        WaitSupport::Everything if settings.wait_ms > 0 => Freshness::AfterSync,
        _ => Freshness::Behind,
    }
}

/// Who of a service's servers may serve a read.
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
            true => judge(requires, &server.replica, now_us, settings),
            false => Freshness::Behind,
        };
        let is_fresh = freshness == Freshness::Fresh;
        readers.replicas += usize::from(may_read);
        readers.fresh += usize::from(is_fresh);
        let is_causal = freshness == Freshness::AfterSync;
        readers.causal += usize::from(is_causal);
        if freshness == Freshness::AfterPosition {
            soonest = soonest.min_some((server.replica.lag_ms, index));
        }
        if server.is_tried || !server.is_primary && !is_fresh {
            readers.barred.insert(index);
            if !is_causal {
                readers.barred_waiting.insert(index);
            }
        }
    }
    match readers.fresh {
        0 => readers.soonest = soonest.map(|(_, index)| index),
        _ => readers.causal = 0,
    }
    readers
}

trait MinSome<T> {
    /// The lesser of what there is and another.
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
