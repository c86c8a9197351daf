//! Applies the rules of PostgreSQL: the higher timeline wins, and an old primary that returns is
//! not used.

use std::collections::VecDeque;

use super::Lag;
use super::conflict::{Candidate, ClaimedRole, ConflictResult, listed, stale, uncontested};
use super::fence::Fence;
use super::report::{Postgres, ReplicationState};

/// Maximum number of remembered positions of the primary; a minute at one query per second.
const TRACK_LENGTH_MAX: usize = 64;

/// Positions of the primary by time, with which a replica's position is compared.
#[derive(Debug, Clone, Default)]
pub(super) struct PrimaryLsnHistory {
    /// (time of the query, position), increasing.
    samples: VecDeque<(u64, u64)>,
}

impl PrimaryLsnHistory {
    pub(super) fn clear(&mut self) {
        self.samples.clear();
    }

    pub(super) fn add(&mut self, queried_ms: u64, lsn: u64) {
        if self.samples.back().is_some_and(|last| last.0 >= queried_ms) {
            return;
        }
        if self.samples.len() == TRACK_LENGTH_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back((queried_ms, lsn));
    }

    /// Returns whether the primary's position at the replica's query is known, or the replica has
    /// everything that the primary had later. Otherwise its lag is a guess.
    pub(super) fn can_compare(
        &self,
        queried_ms: u64,
        replica: &Postgres,
        primary: &Postgres,
    ) -> bool {
        let oldest = self.samples.front();
        oldest.is_some_and(|sample| sample.0 < queried_ms) || replica.lsn >= primary.lsn
    }

    /// Returns the replica's lag at its query: the time since the primary was first known to have
    /// what the replica lacks. Zero if it had all that was known by then. The age of the last
    /// replayed transaction is at least the lag, so it is an upper bound. It grows while the
    /// primary is idle, so it is used as the lag only if the history is too short.
    fn lag_ms(&self, queried_ms: u64, replica: &Postgres, primary: &Postgres) -> Option<u64> {
        if !self.can_compare(queried_ms, replica, primary) {
            return replica.replay_age_ms;
        }
        let mut known = self.samples.iter().filter(|sample| sample.0 < queried_ms);
        let age_ms = replica.replay_age_ms;
        match known.position(|sample| sample.1 > replica.lsn) {
            None => Some(0),
            Some(0) => age_ms,
            Some(index) => {
                let since_ms = self.samples.get(index)?.0;
                let behind_ms = queried_ms.saturating_sub(since_ms);
                Some(age_ms.map_or(behind_ms, |age_ms| age_ms.min(behind_ms)))
            }
        }
    }
}

pub(super) fn claim_of(status: &Postgres) -> Option<(String, u64)> {
    let writes = !status.in_recovery && !status.read_only_by_default;
    let who = || format!("{} since {}", status.system_id, status.started);
    writes.then(|| (who(), u64::from(status.timeline)))
}

pub(super) fn claimed_role(name: &str, status: &Postgres, fence: Option<&Fence>) -> ClaimedRole {
    if status.in_recovery {
        return ClaimedRole::Follows;
    }
    if let Some(fence) = fence.filter(|fence| fence.timeline > status.timeline) {
        return ClaimedRole::Refused(format!(
            "timeline {} is older than the cluster's timeline {} (seen on {}): a former primary; \
             rebuild it as a replica (pg_rewind or pg_basebackup). If timeline {} is lost for \
             good, choose this server: `evenkeel primary {name}`",
            status.timeline,
            fence.timeline,
            fence.seen_at(),
            fence.timeline
        ));
    }
    if status.read_only_by_default {
        return ClaimedRole::Refused(
            "default_transaction_read_only is on: writes are refused until it is off".to_owned(),
        );
    }
    ClaimedRole::Claims
}

/// Decides among servers that are all on the highest timeline: a single one, or none.
pub(super) fn resolve_conflict(candidates: &[Candidate<'_>]) -> ConflictResult {
    if let [only] = candidates {
        return uncontested(only.id);
    }
    let names: Vec<&str> = candidates.iter().map(|one| one.name).collect();
    let timeline = candidates.first().map_or(0, |one| one.claim.epoch);
    ConflictResult::Tied {
        message: format!(
            "{} all claim to be primary on timeline {timeline} (at {}). Stop the wrong one, or \
             choose the right one: `evenkeel primary SERVER`",
            listed(&names),
            positions(candidates)
        ),
        losers: Vec::new(),
        stale: stale(candidates),
    }
}

fn positions(candidates: &[Candidate<'_>]) -> String {
    let lsn = |one: &Candidate<'_>| match one.status {
        ReplicationState::Postgres(status) => {
            format!("{:X}/{:X}", status.lsn >> 32, status.lsn & 0xFFFF_FFFF)
        }
        _ => String::new(),
    };
    let all: Vec<String> = candidates.iter().map(lsn).collect();
    all.join(", ")
}

/// Returns a replica's lag while there is a primary.
pub(super) fn lag(
    queried_ms: u64,
    replica: &Postgres,
    primary: &Postgres,
    lsn_history: &PrimaryLsnHistory,
) -> Lag {
    // On an older timeline it has not found the new primary yet, or follows an old one: positions
    // of two timelines cannot be compared.
    if replica.timeline < primary.timeline {
        return Lag::UNKNOWN;
    }
    Lag {
        ms: lsn_history.lag_ms(queried_ms, replica, primary),
        bytes: Some(primary.lsn.saturating_sub(replica.lsn)),
    }
}
