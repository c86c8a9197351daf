//! Applies the rules of Galera: every synced node of the primary component could take writes; one
//! at a time does.

use super::conflict::{Candidate, ClaimedRole, ConflictResult, uncontested};
use super::report::{Galera, GaleraState, ReplicationState};

pub(super) fn claim_of(status: &Galera) -> Option<(String, u64)> {
    (claimed_role(status) == ClaimedRole::Claims).then(|| (status.server_identity.clone(), 0))
}

pub(super) fn claimed_role(status: &Galera) -> ClaimedRole {
    match out_of_use(status) {
        Some(why) => ClaimedRole::Unfit(why.to_owned()),
        None if status.read_only => ClaimedRole::Follows,
        None => ClaimedRole::Claims,
    }
}

fn out_of_use(status: &Galera) -> Option<&'static str> {
    if status.set_aside {
        return Some("taken out of service on the node (wsrep_desync or wsrep_reject_queries)");
    }
    if !status.in_primary_component {
        return Some("no quorum: not in the primary component (non-Primary)");
    }
    match status.state {
        GaleraState::Joining => Some("joining: state transfer not complete"),
        GaleraState::Donor | GaleraState::Joined | GaleraState::Synced => {
            (!status.ready).then_some("rejects queries (wsrep_ready is OFF)")
        }
    }
}

/// Returns whether the node completes work in progress, though new work may go to another node.
pub(super) fn may_finish(status: &Galera) -> bool {
    status.in_primary_component && status.ready && status.state != GaleraState::Joining
}

/// Returns the reason for which the node lags and is used only if no other can be.
pub(super) fn is_behind(status: &ReplicationState) -> Option<&'static str> {
    match status {
        ReplicationState::Galera(status) if status.state == GaleraState::Donor => {
            Some("donor for a joining node (Donor/Desynced)")
        }
        ReplicationState::Galera(status) if status.state == GaleraState::Joined => {
            Some("joined, still catching up")
        }
        _ => None,
    }
}

/// Returns the current writer while it can write, then the first in the order of the configuration:
/// no failback. A node that lags writes only while no other can.
pub(super) fn resolve_conflict(candidates: &[Candidate<'_>]) -> Option<ConflictResult> {
    let current = || candidates.iter().filter(|one| one.is_primary);
    let is_synced = |one: &&Candidate<'_>| is_behind(one.status).is_none();
    let mut synced = current().chain(candidates).filter(is_synced);
    let winner = synced.next().or(current().next()).or(candidates.first())?;
    Some(uncontested(winner.id))
}
