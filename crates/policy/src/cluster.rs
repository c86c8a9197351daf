//! Who is primary, who is a replica and how far behind: decided from what every server of a cluster
//! says of itself. At most one server is ever the primary; in doubt none is, and the verdict says
//! why.

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

/// How far a replica is behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lag {
    /// Time; `None` is unknown.
    pub ms: Option<u64>,
    /// Bytes of WAL, where the database counts them.
    pub bytes: Option<u64>,
}

impl Lag {
    /// Nothing is known.
    pub const UNKNOWN: Lag = Lag {
        ms: None,
        bytes: None,
    };
}

/// What a server is at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// Nobody has asked it yet, or it is down.
    Unknown,
    /// Takes the writes: at most one of a cluster.
    Primary,
    /// Follows the primary (or a dead one, and still serves what it has).
    Replica(Lag),
    /// Serves reads, but only while no replica can: for this reason.
    Spare(String),
    /// Alive, and neither: for this reason.
    Unfit(String),
}

/// The state of a whole cluster, derived anew after each report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterRoles {
    /// The one that takes writes.
    pub primary: Option<u64>,
    /// A role for each member, in the order of the configuration.
    pub roles: Vec<(u64, Role)>,
    /// Ask these at once over fresh connections: one of them is about to become the primary.
    pub verify: Vec<u64>,
    /// Why there is no primary, or which server was refused and why: for an operator, loudly.
    pub problems: Vec<Problem>,
}

/// Something an operator must know, with the server it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The server; `None` is the cluster as a whole.
    pub server: Option<u64>,
    /// What, and what to do.
    pub message: String,
}

/// One cluster: its members, what they said last, and what has been decided so far.
///
/// Every event is followed by a decision; [`Cluster::verdict`] only tells it. All times are of one
/// monotonic clock, the one that [`Report::asked_ms`] is of.
#[derive(Debug, Clone)]
pub struct Cluster {
    members: Vec<Member>,
    /// The current primary.
    primary: Option<u64>,
    /// The current or last one.
    last_primary: Option<u64>,
    /// What the current or last primary belongs to; a server of anything else is refused.
    identity: Option<ClusterIdentity>,
    /// PostgreSQL: the highest timeline seen, by system identifier.
    fences: BTreeMap<u64, Fence>,
    /// PostgreSQL: where the current primary was, and when.
    track: PrimaryLsnHistory,
    /// MySQL and MariaDB replication: what the current or last primary told.
    succession: Option<LastPrimary>,
    named: Option<PrimaryOverride>,
    /// Why the name that an operator gave holds no more; until the next one is given or taken back.
    lapse: Option<Problem>,
    verdict: ClusterRoles,
}

/// An operator's word.
#[derive(Debug, Clone, Copy)]
struct PrimaryOverride {
    id: u64,
    /// It has claimed since it was named, so that the end of the claim is the end of the name.
    held: bool,
    /// PostgreSQL: the higher timeline that counts no more because of it.
    overridden_timeline: Option<u32>,
}

impl Cluster {
    /// A cluster of which nothing is known; members in the order of the configuration, with a name
    /// for messages.
    #[must_use]
    pub fn new(members: Vec<(u64, String)>) -> Cluster {
        let mut cluster = Cluster {
            members: Vec::new(),
            primary: None,
            last_primary: None,
            identity: None,
            fences: BTreeMap::new(),
            track: PrimaryLsnHistory::default(),
            succession: None,
            named: None,
            lapse: None,
            verdict: ClusterRoles {
                primary: None,
                roles: Vec::new(),
                verify: Vec::new(),
                problems: Vec::new(),
            },
        };
        cluster.set_members(members);
        cluster
    }

    /// Takes a new list of members; what is known of those that stay, stays.
    pub fn set_members(&mut self, members: Vec<(u64, String)>) {
        let mut known = std::mem::take(&mut self.members);
        for (id, name) in members {
            let stays = known.iter().position(|member| member.id == id);
            let member = match stays {
                Some(index) => Member {
                    name,
                    ..known.swap_remove(index)
                },
                None => Member::new(id, name),
            };
            self.members.push(member);
        }
        if known.iter().any(|gone| self.named_is(gone.id)) {
            self.named = None;
        }
        self.forget_witnesses();
        self.decide();
    }

    /// A server has answered. An answer to an older question than the last one's is ignored.
    pub fn report_received(&mut self, now_ms: u64, server: u64, report: RoleReport) {
        let Some(index) = self.index_of(server) else {
            return;
        };
        if report.asked_ms < self.members[index].word_ms {
            return;
        }
        self.raise_fence(index, &report.said);
        let is_somebody_else = self.members[index].hear(now_ms, report);
        if is_somebody_else && self.primary == Some(server) {
            self.primary = None;
        }
        self.decide();
    }

    /// A server was asked and could not tell (a privilege is missing, a nonsense answer): alive,
    /// role unknown. The current primary stays in place until somebody else claims.
    pub fn role_unknown(&mut self, server: u64, why: String) {
        let stays = self.primary == Some(server);
        if let Some(index) = self.index_of(server) {
            self.members[index].fall_mute(why, stays);
            self.decide();
        }
    }

    /// A server does not answer over a new connection. It may be about to end, frozen, or too busy:
    /// nobody is promoted for that, but where several may take writes, or serve reads, another one
    /// does until it answers; so does one that was promoted meanwhile.
    pub fn server_unresponsive(&mut self, server: u64) {
        if let Some(index) = self.index_of(server) {
            self.members[index].is_silent = true;
            self.decide();
        }
    }

    /// A server was found to be down: what it said counts no more, but for fencing.
    pub fn server_down(&mut self, now_ms: u64, server: u64) {
        let Some(index) = self.index_of(server) else {
            return;
        };
        self.members[index].lose(now_ms);
        if self.named_is(server) {
            self.drop_override("is down");
        }
        self.decide();
    }

    /// Whether what is under way at a server may end though another one takes the writes: several
    /// nodes of Galera may write.
    #[must_use]
    pub fn may_finish(&self, server: u64) -> bool {
        let member = self.member(server);
        member.is_some_and(|member| {
            let says = matches!(&member.said, Some(ReplicationState::Galera(said)) if galera::goes_on(said));
            says && member.word == LastReport::Said && !member.is_silent
        })
    }

    /// Whether nothing is known of a member yet: nobody is promoted before something is.
    #[must_use]
    pub fn awaits(&self, server: u64) -> bool {
        self.member(server)
            .is_some_and(|member| member.word == LastReport::Unasked)
    }

    /// An operator names the primary (`None` takes that back); holds until the named one is down
    /// or claims no more. PostgreSQL: it overrules a higher timeline that nobody is on any more.
    pub fn override_primary(&mut self, server: Option<u64>) {
        self.lapse = None;
        self.named = None;
        if let Some(id) = server {
            let mut named = PrimaryOverride {
                id,
                held: false,
                overridden_timeline: None,
            };
            self.overrule_fence(&mut named);
            self.named = Some(named);
        }
        self.decide();
    }

    /// Whom an operator named, while that holds.
    #[must_use]
    pub fn named(&self) -> Option<u64> {
        self.named.map(|named| named.id)
    }

    /// The decision as of now.
    #[must_use]
    pub fn roles(&self) -> ClusterRoles {
        self.verdict.clone()
    }

    fn index_of(&self, id: u64) -> Option<usize> {
        self.members.iter().position(|member| member.id == id)
    }

    fn member(&self, id: u64) -> Option<&Member> {
        self.members.iter().find(|member| member.id == id)
    }

    fn named_is(&self, id: u64) -> bool {
        self.named.is_some_and(|named| named.id == id)
    }

    /// Ends what an operator said, and says so.
    fn drop_override(&mut self, why: &str) {
        let Some(member) = self.named.take().and_then(|named| self.member(named.id)) else {
            return;
        };
        self.lapse = Some(Problem {
            server: Some(member.id),
            message: format!("{}: operator override dropped: server {why}", member.name),
        });
    }

    /// Whether every member has been heard or found down once; before that the first to answer
    /// would win a race.
    fn everyone_spoke(&self) -> bool {
        self.members
            .iter()
            .all(|one| one.word != LastReport::Unasked)
    }
}
