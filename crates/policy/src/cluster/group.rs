//! Applies the rules of Group Replication: the group elects; a member that lost the majority has no
//! vote.

use super::conflict::{Candidate, ClaimedRole, ConflictResult, listed, stale, uncontested};
use super::report::{Group, MemberState, ReplicationState};

pub(super) fn claim_of(status: &Group) -> Option<(String, u64)> {
    let claims = claimed_role(status) == ClaimedRole::Claims;
    let who = || format!("{} in {}", status.server_identity, status.incarnation);
    claims.then(|| (who(), status.view))
}

pub(super) fn claimed_role(status: &Group) -> ClaimedRole {
    let unfit = |why: &str| ClaimedRole::Unfit(why.to_owned());
    match status.state {
        MemberState::Recovering => return unfit("catching up with the group (RECOVERING)"),
        MemberState::Offline => return unfit("Group Replication is not running (OFFLINE)"),
        MemberState::Error => {
            return ClaimedRole::Refused(
                "expelled from the group or failed (ERROR): check its error log and restart Group \
                 Replication"
                    .to_owned(),
            );
        }
        MemberState::Unreachable => return unfit("suspected by the group (UNREACHABLE)"),
        MemberState::Online => {}
    }
    let reachable = u64::from(status.members_reachable);
    if 2 * reachable <= u64::from(status.members) {
        return ClaimedRole::Refused(format!(
            "no quorum: sees only {reachable} of {} members",
            status.members
        ));
    }
    match status.is_primary && !status.read_only {
        true => ClaimedRole::Claims,
        false => ClaimedRole::Follows,
    }
}

/// Decides by the later view. If it has only one primary, a primary of an earlier view need not be
/// queried again, and often cannot be, as it is stopping. If the group was bootstrapped twice,
/// every claimant has its own majority, and their views cannot be compared. Several claimants of
/// one view are a multi-primary group, if the view allows it. Then the current one wins, else the
/// first in the order of the configuration.
pub(super) fn resolve_conflict(candidates: &[Candidate<'_>]) -> Option<ConflictResult> {
    let all: Vec<(&Candidate<'_>, &Group)> = candidates
        .iter()
        .filter_map(|one| match one.status {
            ReplicationState::Group(status) => Some((one, status)),
            _ => None,
        })
        .collect();
    let &(latest, of_latest) = all.iter().max_by_key(|(_, status)| status.view)?;
    if all
        .iter()
        .any(|(_, status)| status.incarnation != of_latest.incarnation)
    {
        return Some(ConflictResult::Tied {
            message: bootstrapped_twice(&all),
            losers: Vec::new(),
            stale: stale(candidates),
        });
    }
    let (mut top, mut losers) = (Vec::new(), Vec::new());
    for &(one, status) in &all {
        match status.view == of_latest.view {
            true => top.push((one, status)),
            false => losers.push((one.id, outdated(status, latest.name, of_latest.view))),
        }
    }
    let mut stale = stale(candidates);
    stale.retain(|id| losers.iter().any(|(one, _)| one == id));
    if of_latest.primaries == 1 {
        losers.iter_mut().for_each(|(id, why)| {
            if stale.contains(id) {
                *why = succeeded(latest.name, of_latest.view);
            }
        });
        stale.clear();
    }
    let size = of_latest.members;
    let is_one_view = top.iter().all(|(_, status)| status.members == size);
    if !is_one_view || top.len() > size as usize {
        let names: Vec<&str> = top.iter().map(|(one, _)| one.name).collect();
        return Some(ConflictResult::Tied {
            message: split(&names, of_latest.view),
            losers,
            stale,
        });
    }
    let current = top.iter().find(|(one, _)| one.is_primary);
    let (winner, _) = current.or(top.first())?;
    if losers.is_empty() {
        return Some(uncontested(winner.id));
    }
    Some(ConflictResult::Won {
        winner: winner.id,
        losers,
        stale,
    })
}

fn outdated(status: &Group, newer: &str, view: u64) -> String {
    format!(
        "claims to be primary in view {} of the group, but {newer} is primary in view {view}: \
         outdated member, restart Group Replication on it",
        status.view
    )
}

fn succeeded(newer: &str, view: u64) -> String {
    format!("was primary; {newer} is the only primary since view {view} of the group")
}

fn bootstrapped_twice(all: &[(&Candidate<'_>, &Group)]) -> String {
    let names: Vec<&str> = all.iter().map(|(one, _)| one.name).collect();
    let views: Vec<String> = all
        .iter()
        .map(|(_, status)| format!("{}:{}", status.incarnation, status.view))
        .collect();
    format!(
        "{} are primaries of different groups with the same name (views: {}): the group was \
         bootstrapped twice. Rebuild the wrong one, or choose the right one: `evenkeel primary \
         SERVER`",
        listed(&names),
        views.join(", ")
    )
}

fn split(names: &[&str], view: u64) -> String {
    format!(
        "{} are primaries of different groups with the same name and view number {view}: the group \
         was bootstrapped twice. Rebuild the wrong one, or choose the right one: `evenkeel primary \
         SERVER`",
        listed(names)
    )
}
