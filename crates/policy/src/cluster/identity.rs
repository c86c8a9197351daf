//! Decides which servers belong together: a clone or a foreign server must not take another
//! cluster's writes.

use std::fmt;

use super::member::LastReport;
use super::report::ReplicationState;
use super::{Cluster, Member};

/// Cluster that a server reports to belong to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ClusterIdentity {
    Postgres(u64),
    /// Asynchronous replication, which has no name.
    Replication,
    Galera(String),
    Group(String),
}

/// Cluster identity that members are compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ClusterScope {
    /// No identity is known yet.
    Open,
    /// Servers with this identity belong to the cluster, others do not.
    Of(ClusterIdentity),
    /// Two identities are reported by equally many servers.
    Tied(String),
}

impl ClusterIdentity {
    /// Returns the reported identity. `None` for a Galera node without a state, since it is about
    /// to receive one, and for a group member without a group.
    pub(super) fn of(status: &ReplicationState) -> Option<ClusterIdentity> {
        match status {
            ReplicationState::Postgres(status) => Some(ClusterIdentity::Postgres(status.system_id)),
            ReplicationState::Replication(_) => Some(ClusterIdentity::Replication),
            ReplicationState::Galera(status) => {
                non_null(&status.cluster_uuid).map(ClusterIdentity::Galera)
            }
            ReplicationState::Group(status) => {
                non_null(&status.group_name).map(ClusterIdentity::Group)
            }
        }
    }

    fn is_same_kind(&self, other: &ClusterIdentity) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// Returns a UUID in lower case; `None` if it is empty or all zeros.
fn non_null(text: &str) -> Option<String> {
    let is_nothing = text.chars().all(|letter| matches!(letter, '0' | '-' | ' '));
    (!is_nothing).then(|| text.to_ascii_lowercase())
}

impl fmt::Display for ClusterIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClusterIdentity::Postgres(id) => write!(f, "PostgreSQL system identifier {id}"),
            ClusterIdentity::Replication => f.write_str("MySQL or MariaDB replication"),
            ClusterIdentity::Galera(uuid) => write!(f, "Galera cluster {uuid}"),
            ClusterIdentity::Group(name) => write!(f, "replication group {name}"),
        }
    }
}

impl Cluster {
    /// Returns the cluster's identity: that of its current or last primary, or without one, that of
    /// the majority.
    ///
    /// The server of an override decides if there is a tie, or if no server of the former identity
    /// is left.
    pub(super) fn scope(&self) -> ClusterScope {
        let identities = self.identities();
        let selected = self.selected.and_then(|selected| {
            let found = identities
                .iter()
                .find(|(member, _)| member.id == selected.id);
            found.map(|(_, identity)| identity.clone())
        });
        if let Some(known) = &self.identity {
            let is_left = identities.iter().any(|(_, identity)| identity == known);
            let rebuilt = selected.filter(|_| !is_left);
            return ClusterScope::Of(rebuilt.unwrap_or_else(|| known.clone()));
        }
        match (majority(&identities), selected) {
            (ClusterScope::Tied(_), Some(selected)) => ClusterScope::Of(selected),
            (scope, _) => scope,
        }
    }

    /// Returns the reason for which a server does not belong to the cluster.
    pub(super) fn foreign(
        &self,
        status: &ReplicationState,
        scope: &ClusterScope,
    ) -> Option<String> {
        let (ClusterScope::Of(ours), Some(theirs)) = (scope, ClusterIdentity::of(status)) else {
            return None;
        };
        if theirs == *ours {
            return None;
        }
        let identities = self.identities();
        let holder = identities.iter().find(|(_, identity)| identity == ours);
        let holder = holder.map_or("its last primary", |(member, _)| member.name.as_str());
        let what = match theirs.is_same_kind(ours) {
            true => "belongs to another cluster",
            false => "is of a different cluster type",
        };
        Some(format!(
            "{what}: it reports {theirs}, the cluster ({holder}) is {ours}; remove it from the \
             configuration or rebuild it as a member"
        ))
    }

    fn identities(&self) -> Vec<(&Member, ClusterIdentity)> {
        let reported = self
            .members
            .iter()
            .filter(|one| one.last_report == LastReport::Received);
        reported
            .filter_map(|one| Some((one, ClusterIdentity::of(one.status.as_ref()?)?)))
            .collect()
    }
}

/// Returns the majority: first the most frequent kind, then the identity within that kind. Of
/// equally frequent kinds the first in the order of the configuration counts; two clusters of one
/// kind are a tie.
fn majority(identities: &[(&Member, ClusterIdentity)]) -> ClusterScope {
    let kind_count = |of: &ClusterIdentity| {
        identities
            .iter()
            .filter(|(_, one)| one.is_same_kind(of))
            .count()
    };
    let count = |of: &ClusterIdentity| identities.iter().filter(|(_, one)| one == of).count();
    // `max_by_key` returns the last of equals; the first is needed.
    let Some((_, kind)) = identities
        .iter()
        .rev()
        .max_by_key(|(_, one)| kind_count(one))
    else {
        return ClusterScope::Open;
    };
    let of_kind = || identities.iter().filter(|(_, one)| one.is_same_kind(kind));
    let Some((first, most)) = of_kind().rev().max_by_key(|(_, one)| count(one)) else {
        return ClusterScope::Open;
    };
    let rival = of_kind().find(|(_, one)| one != most && count(one) == count(most));
    match rival {
        None => ClusterScope::Of(most.clone()),
        Some((second, other)) => ClusterScope::Tied(format!(
            "servers of two clusters are listed together: {} reports {most}, {} reports {other}. \
             Remove one from the configuration, or choose the primary: `evenkeel primary SERVER`",
            first.name, second.name
        )),
    }
}
