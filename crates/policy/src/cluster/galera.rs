//! Galera: every synced node of the primary component could take writes; one at a time does.

use super::contest::{Candidate, Contest, Stand, uncontested};
use super::report::{Galera, GaleraState};

pub(super) fn claim_of(said: &Galera) -> Option<(String, u64)> {
    (stand(said) == Stand::Claims).then(|| (String::new(), 0))
}

pub(super) fn stand(said: &Galera) -> Stand {
    match out_of_use(said) {
        Some(why) => Stand::Unfit(why.to_owned()),
        None if said.read_only => Stand::Follows,
        None => Stand::Claims,
    }
}

fn out_of_use(said: &Galera) -> Option<&'static str> {
    if said.set_aside {
        return Some("an operator has set it aside (wsrep_desync or wsrep_reject_queries)");
    }
    if !said.in_primary_component {
        return Some("its part of the Galera cluster has no quorum (non-Primary)");
    }
    match said.state {
        GaleraState::Joining => Some("it is joining and has not received the state yet"),
        GaleraState::Donor => Some("it feeds a joining node (Donor/Desynced)"),
        GaleraState::Joined => Some("it has joined and still catches up"),
        GaleraState::Synced if !said.ready => Some("it refuses queries (wsrep_ready is OFF)"),
        GaleraState::Synced => None,
    }
}

/// The current writer while it can, then the first in the order of the configuration: no failback.
pub(super) fn contest(candidates: &[Candidate<'_>]) -> Option<Contest> {
    let current = candidates.iter().find(|one| one.is_primary);
    let winner = current.or(candidates.first())?;
    Some(uncontested(winner.id))
}
