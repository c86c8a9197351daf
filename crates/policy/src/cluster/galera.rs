//! Applies the rules of Galera: every synced node of the primary component could take writes; one
//! at a time does.

use super::conflict::{Candidate, ClaimedRole, ConflictResult, uncontested};
use super::report::{Galera, GaleraState, ReplicationState};

pub(super) fn claim_of(said: &Galera) -> Option<(String, u64)> {
    (stand(said) == ClaimedRole::Claims).then(|| (said.server_identity.clone(), 0))
}

pub(super) fn stand(said: &Galera) -> ClaimedRole {
    match out_of_use(said) {
        Some(why) => ClaimedRole::Unfit(why.to_owned()),
        None if said.read_only => ClaimedRole::Follows,
        None => ClaimedRole::Claims,
    }
}

fn out_of_use(said: &Galera) -> Option<&'static str> {
    if said.set_aside {
        return Some("taken out of service on the node (wsrep_desync or wsrep_reject_queries)");
    }
    if !said.in_primary_component {
        return Some("no quorum: not in the primary component (non-Primary)");
    }
    match said.state {
        GaleraState::Joining => Some("joining: state transfer not complete"),
        GaleraState::Donor | GaleraState::Joined | GaleraState::Synced => {
            (!said.ready).then_some("rejects queries (wsrep_ready is OFF)")
        }
    }
}

/// Returns whether the node completes work in progress, though new work may go to another node.
pub(super) fn goes_on(said: &Galera) -> bool {
    said.in_primary_component && said.ready && said.state != GaleraState::Joining
}

/// Returns the reason for which the node lags and is used only if no other can be.
pub(super) fn is_behind(said: &ReplicationState) -> Option<&'static str> {
    match said {
        ReplicationState::Galera(said) if said.state == GaleraState::Donor => {
            Some("donor for a joining node (Donor/Desynced)")
        }
        ReplicationState::Galera(said) if said.state == GaleraState::Joined => {
            Some("joined, still catching up")
        }
        _ => None,
    }
}

/// Returns the current writer while it can write, then the first in the order of the configuration:
/// no failback. A node that lags writes only while no other can.
pub(super) fn contest(candidates: &[Candidate<'_>]) -> Option<ConflictResult> {
    let current = || candidates.iter().filter(|one| one.is_primary);
    let is_synced = |one: &&Candidate<'_>| is_behind(one.said).is_none();
    let mut synced = current().chain(candidates).filter(is_synced);
    let winner = synced.next().or(current().next()).or(candidates.first())?;
    Some(uncontested(winner.id))
}
