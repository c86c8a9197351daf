//! Which replicas a session may read from now, which after a short wait, and when only the primary
//! will do.

use super::position::Position;
use super::token::Requires;

/// Limits of a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// A read waits this long at most for a replica to catch up; zero is never.
    pub wait_ms: u64,
    /// What a replica said longer ago counts no more: it may be another server by now.
    pub stale_ms: u64,
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
    pub wait: Wait,
}

/// What a server can be told to wait for before it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
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
    Causal,
    /// It may have within the wait: the read is to be sent with a wait for the position.
    Soon,
    /// It has not, or that is not known.
    Behind,
}

/// What follows for a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// So many replicas will do as they are: those that [`judge`] calls fresh or causal.
    Now {
        /// How many.
        replicas: usize,
    },
    /// This one, by its place in the list, after a wait; if that fails, the primary.
    Wait {
        /// Which.
        index: usize,
        /// How long at most.
        wait_ms: u64,
    },
    /// None of them.
    Primary(&'static str),
}

/// Whether one replica will do.
#[must_use]
pub fn judge(
    requires: Requires<'_>,
    replica: &Replica<'_>,
    now_us: u64,
    settings: &Settings,
) -> Freshness {
    let target = match requires {
        Requires::Nothing => return Freshness::Fresh,
        _ if replica.wait == Wait::Everything => return Freshness::Causal,
        Requires::Everything(_) => return Freshness::Behind,
        Requires::Position(target) => target,
    };
    let is_current = now_us.saturating_sub(replica.asked_us) <= settings.stale_ms * 1_000;
    let reaches = |applied| is_current && target.is_reached_by(applied);
    if replica.applied.is_some_and(reaches) {
        return Freshness::Fresh;
    }
    let may_come = replica
        .lag_ms
        .is_some_and(|lag_ms| lag_ms <= settings.wait_ms);
    if replica.wait == Wait::Position && settings.wait_ms > 0 && may_come {
        return Freshness::Soon;
    }
    Freshness::Behind
}

/// What follows for a read, from all replicas that take clients.
#[must_use]
pub fn choose<'a>(
    requires: Requires<'_>,
    replicas: impl IntoIterator<Item = Replica<'a>>,
    now_us: u64,
    settings: &Settings,
) -> Choice {
    let (mut now, mut soonest) = (0, None);
    for (index, replica) in replicas.into_iter().enumerate() {
        match judge(requires, &replica, now_us, settings) {
            Freshness::Fresh | Freshness::Causal => now += 1,
            Freshness::Soon => soonest = soonest.min_some((replica.lag_ms, index)),
            Freshness::Behind => {}
        }
    }
    let wait_ms = settings.wait_ms;
    match (now, soonest, requires) {
        (0, Some((_, index)), _) => Choice::Wait { index, wait_ms },
        (0, None, Requires::Everything(why)) => Choice::Primary(why),
        (0, None, _) => Choice::Primary("no replica has all that this session must see"),
        (replicas, _, _) => Choice::Now { replicas },
    }
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
