//! MySQL and MariaDB replication: what the last primary told is remembered.
//!
//! Whoever took writes before it did, and has not replicated since, was not promoted in its place.
//! While it is away, such a server takes writes again only if it has all that it told, or if an
//! operator names it: else what was acknowledged since would be gone for all who look.

use super::gtid::Gtids;
use super::member::LastReport;
use super::report::ReplicationState;
use super::{Cluster, Member};

/// The current or last primary.
#[derive(Debug, Clone)]
pub(super) struct LastPrimary {
    id: u64,
    /// When it was first heard to take writes.
    since_ms: u64,
    /// What it had when it was last heard.
    executed: Gtids,
}

impl Cluster {
    /// Keeps what the primary tells.
    pub(super) fn remember_succession(&mut self) {
        let primary = self.primary.and_then(|id| self.member(id));
        let told = primary.and_then(|one| Some((one.id, executed(one)?, one.claim.as_ref()?)));
        if let Some((id, executed, claim)) = told {
            self.succession = Some(LastPrimary {
                id,
                since_ms: claim.noticed_ms,
                executed: executed.clone(),
            });
        }
    }

    /// Why a server that takes writes is not used as the primary while the last one is away.
    pub(super) fn outdone(&self, member: &Member) -> Option<String> {
        let last = self.succession.as_ref()?;
        let is_other = last.id != member.id && !self.named_is(member.id);
        let primary = self.member(last.id).filter(|_| is_other)?;
        let is_away = matches!(primary.word, LastReport::Lost | LastReport::Unasked);
        let writing = member.writing.as_ref().filter(|_| is_away)?;
        if writing.since_ms >= last.since_ms {
            return None;
        }
        let missing = last.executed.missing_from(executed(member)?)?;
        let name = &primary.name;
        Some(format!(
            "accepted writes before {name}, which is down, and lacks {missing} that {name} had: \
             make it a replica once {name} is back, or, if that server is lost, select this one: \
             `evenkeel primary {}`",
            member.name
        ))
    }
}

fn executed(member: &Member) -> Option<&Gtids> {
    match &member.said {
        Some(ReplicationState::Replication(said)) => Some(&said.executed),
        _ => None,
    }
}
