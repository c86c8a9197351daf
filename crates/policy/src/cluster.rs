//! Decides which server is the primary, which are replicas, and their lag, from the role reports of
//! all servers of a cluster. At most one server is the primary; in doubt there is none, and the
//! result states the reason.

use std::collections::BTreeMap;

mod conflict;
mod decide;
mod fence;
mod galera;
mod group;
pub mod gtid;
mod handover_state;
mod identity;
mod last_primary;
mod member;
mod postgres;
mod replication;
pub mod report;
mod roles;

#[cfg(test)]
mod tests;

pub use gtid::Gtids;
pub use handover_state::{HandedOverOverride, HandoverState};
pub use report::RoleReport;

use fence::Fence;
use identity::ClusterIdentity;
use last_primary::LastPrimary;
use member::{LastReport, Member};
use postgres::PrimaryLsnHistory;
use report::ReplicationState;

/// Lag of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lag {
    /// Lag in ms; `None` is unknown.
    pub ms: Option<u64>,
    /// Lag in bytes of WAL, if the database reports it.
    pub bytes: Option<u64>,
}

impl Lag {
    /// Unknown lag.
    pub const UNKNOWN: Lag = Lag {
        ms: None,
        bytes: None,
    };
}

/// Current role of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// The server was not queried yet, or is down.
    Unknown,
    /// The server takes the writes; at most one of a cluster.
    Primary,
    /// The server follows the primary (or a dead one, and still serves the data it has).
    Replica(Lag),
    /// The server serves reads only while no replica can, for this reason.
    Spare(String),
    /// The server is alive but unusable, for this reason.
    Unfit(String),
}

/// State of a whole cluster, derived again after each report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterRoles {
    /// Server that takes writes.
    pub primary: Option<u64>,
    /// Role of each member, in the order of the configuration.
    pub roles: Vec<(u64, Role)>,
    /// Servers that must be queried immediately over fresh connections: one of them is about to
    /// become the primary.
    pub verify: Vec<u64>,
    /// Reasons for a missing primary or a refused server, to be reported to the operator.
    pub problems: Vec<Problem>,
}

/// Problem that an operator must know about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Server with the problem; `None` is the cluster as a whole.
    pub server: Option<u64>,
    /// Description, and what to do.
    pub message: String,
}

/// State of one cluster: its members, their last reports, and the decisions so far.
///
/// Every event is followed by a decision, which [`Cluster::roles`] returns. All times are of one
/// monotonic clock, the clock of [`RoleReport::queried_ms`].
#[derive(Debug, Clone)]
pub struct Cluster {
    members: Vec<Member>,
    /// Current primary.
    primary: Option<u64>,
    /// Current or last primary.
    last_primary: Option<u64>,
    /// Cluster identity of the current or last primary; servers of any other are refused.
    identity: Option<ClusterIdentity>,
    /// PostgreSQL: the highest timeline seen, by system identifier.
    fences: BTreeMap<u64, Fence>,
    /// PostgreSQL: recent positions of the current primary, with times.
    lsn_history: PrimaryLsnHistory,
    /// MySQL and MariaDB replication: the last report of the current or last primary.
    predecessor: Option<LastPrimary>,
    selected: Option<PrimaryOverride>,
    /// Reason for which the manual override was dropped; kept until the next override is set or
    /// removed.
    override_problem: Option<Problem>,
    roles: ClusterRoles,
}

/// Manual override of the primary.
#[derive(Debug, Clone, Copy)]
struct PrimaryOverride {
    id: u64,
    /// True if the server has claimed since the override, so that the end of the claim is the end
    /// of the override.
    held: bool,
    /// PostgreSQL: the higher timeline that the override disregards.
    overridden_timeline: Option<u32>,
}

impl Cluster {
    /// Creates a cluster in unknown state; members in the order of the configuration, with a name
    /// for messages.
    #[must_use]
    pub fn new(members: Vec<(u64, String)>) -> Cluster {
        let mut cluster = Cluster {
            members: Vec::new(),
            primary: None,
            last_primary: None,
            identity: None,
            fences: BTreeMap::new(),
            lsn_history: PrimaryLsnHistory::default(),
            predecessor: None,
            selected: None,
            override_problem: None,
            roles: ClusterRoles {
                primary: None,
                roles: Vec::new(),
                verify: Vec::new(),
                problems: Vec::new(),
            },
        };
        cluster.set_members(members);
        cluster
    }

    /// Sets the list of members; state of members that remain is kept.
    pub fn set_members(&mut self, members: Vec<(u64, String)>) {
        let mut known = std::mem::take(&mut self.members);
        for (id, name) in members {
            let old_index = known.iter().position(|member| member.id == id);
            let member = match old_index {
                Some(index) => Member {
                    name,
                    ..known.swap_remove(index)
                },
                None => Member::new(id, name),
            };
            self.members.push(member);
        }
        if known.iter().any(|gone| self.is_selected(gone.id)) {
            self.selected = None;
        }
        self.forget_witnesses();
        self.decide();
    }

    /// Applies the report of a server. A reply to an older query than the last one's is ignored.
    pub fn report_received(&mut self, now_ms: u64, server: u64, report: RoleReport) {
        let Some(index) = self.index_of(server) else {
            return;
        };
        if report.queried_ms < self.members[index].queried_ms {
            return;
        }
        self.raise_fence(index, &report.status);
        let is_other_server = self.members[index].receive(now_ms, report);
        if is_other_server && self.primary == Some(server) {
            self.primary = None;
        }
        self.decide();
    }

    /// Records that a server replied without its role (missing privilege, invalid reply): it is
    /// alive, with an unknown role. The current primary remains until another server claims.
    pub fn role_unknown(&mut self, server: u64, why: String) {
        let is_primary = self.primary == Some(server);
        if let Some(index) = self.index_of(server) {
            self.members[index].set_role_unknown(why, is_primary);
            self.decide();
        }
    }

    /// Records that a server does not respond over a new connection: it may be about to stop,
    /// frozen, or overloaded. No server is promoted for that reason. If several servers may take
    /// writes or serve reads, another one does until this one responds. So does a server that was
    /// promoted meanwhile.
    pub fn server_unresponsive(&mut self, server: u64) {
        if let Some(index) = self.index_of(server) {
            self.members[index].is_silent = true;
            self.decide();
        }
    }

    /// Records that a server is down: its reports no longer count, except for fencing.
    pub fn server_down(&mut self, now_ms: u64, server: u64) {
        let Some(index) = self.index_of(server) else {
            return;
        };
        self.members[index].set_down(now_ms);
        if self.is_selected(server) {
            self.drop_override("is down");
        }
        self.decide();
    }

    /// Returns whether work in progress on a server may finish although another server takes the
    /// writes: several nodes of Galera may write.
    #[must_use]
    pub fn may_finish(&self, server: u64) -> bool {
        let member = self.member(server);
        member.is_some_and(|member| {
            let may = match &member.status {
                Some(ReplicationState::Galera(status)) => galera::may_finish(status),
                _ => false,
            };
            may && member.last_report == LastReport::Received && !member.is_silent
        })
    }

    /// Returns whether the state of a member is still unknown: no server is promoted before it is
    /// known.
    #[must_use]
    pub fn awaits(&self, server: u64) -> bool {
        self.member(server)
            .is_some_and(|member| member.last_report == LastReport::Pending)
    }

    /// Sets the operator's override of the primary; `None` removes it. It holds until that server
    /// is down or no longer claims. PostgreSQL: it takes precedence over a higher timeline that no
    /// reachable server is on.
    pub fn override_primary(&mut self, server: Option<u64>) {
        self.override_problem = None;
        self.selected = None;
        if let Some(id) = server {
            let mut selected = PrimaryOverride {
                id,
                held: false,
                overridden_timeline: None,
            };
            self.override_fence(&mut selected);
            self.selected = Some(selected);
        }
        self.decide();
    }

    /// Returns the server of the override while it holds.
    #[must_use]
    pub fn selected_primary(&self) -> Option<u64> {
        self.selected.map(|selected| selected.id)
    }

    /// Returns the current decision.
    #[must_use]
    pub fn roles(&self) -> ClusterRoles {
        self.roles.clone()
    }

    fn index_of(&self, id: u64) -> Option<usize> {
        self.members.iter().position(|member| member.id == id)
    }

    fn member(&self, id: u64) -> Option<&Member> {
        self.members.iter().find(|member| member.id == id)
    }

    fn is_selected(&self, id: u64) -> bool {
        self.selected.is_some_and(|selected| selected.id == id)
    }

    /// Drops the override and reports that.
    fn drop_override(&mut self, why: &str) {
        let Some(member) = self
            .selected
            .take()
            .and_then(|selected| self.member(selected.id))
        else {
            return;
        };
        self.override_problem = Some(Problem {
            server: Some(member.id),
            message: format!(
                "{}: the operator's override ended: server {why}",
                member.name
            ),
        });
    }

    /// Returns whether every member has reported or was found down once; before that, the first
    /// report would win a race.
    fn have_all_reported(&self) -> bool {
        self.members
            .iter()
            .all(|one| one.last_report != LastReport::Pending)
    }
}
