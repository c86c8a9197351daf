//! Remembers the last report of the last primary, for MySQL and MariaDB replication.
//!
//! A server that took writes before that primary did, and has not replicated since, was not
//! promoted in its place. While the primary is unavailable, such a server takes writes again only
//! if it has all reported transactions, or by an override. Otherwise transactions that were
//! acknowledged since would be missing for all readers.

use super::gtid::Gtids;
use super::member::LastReport;
use super::report::ReplicationState;
use super::{Cluster, Member};

/// Current or last primary.
#[derive(Debug, Clone)]
pub(super) struct LastPrimary {
    id: u64,
    /// Time when it was first reported to take writes.
    since_ms: u64,
    /// Transactions of its last report.
    executed: Gtids,
}

impl Cluster {
    /// Stores the primary's report.
    pub(super) fn remember_predecessor(&mut self) {
        let primary = self.primary.and_then(|id| self.member(id));
        let report = primary.and_then(|one| Some((one.id, executed(one)?, one.claim.as_ref()?)));
        if let Some((id, executed, claim)) = report {
            self.predecessor = Some(LastPrimary {
                id,
                since_ms: claim.noticed_ms,
                executed: executed.clone(),
            });
        }
    }

    /// Returns the reason for which a server that takes writes is not used as the primary while the
    /// last one is unavailable.
    pub(super) fn superseded_reason(&self, member: &Member) -> Option<String> {
        let last = self.predecessor.as_ref()?;
        let is_other = last.id != member.id && !self.is_selected(member.id);
        let primary = self.member(last.id).filter(|_| is_other)?;
        let is_away = matches!(primary.last_report, LastReport::Down | LastReport::Pending);
        let writing = member.writing.as_ref().filter(|_| is_away)?;
        if writing.since_ms >= last.since_ms {
            return None;
        }
        let missing = last.executed.count_not_in(executed(member)?)?;
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
    match &member.status {
        Some(ReplicationState::Replication(status)) => Some(&status.executed),
        _ => None,
    }
}
