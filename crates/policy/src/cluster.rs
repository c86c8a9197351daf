//! Who is primary, who is a replica and how far behind: decided from what every server of a cluster
//! says of itself. At most one server is ever the primary; in doubt none is, and the verdict says
//! why.

pub mod gtid;
pub mod report;

pub use gtid::Gtids;
pub use report::Report;

/// How far a replica is behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lag {
    /// Time; `None` is unknown.
    pub ms: Option<u64>,
    /// Bytes of WAL, where the database counts them.
    pub bytes: Option<u64>,
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
    /// Alive, and neither: for this reason.
    Unfit(String),
}

/// The state of a whole cluster, derived anew after each report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
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
#[derive(Debug, Clone)]
pub struct Cluster {
    members: Vec<(u64, String)>,
    verdict: Verdict,
}

impl Cluster {
    /// A cluster of which nothing is known; members in the order of the configuration, with a name
    /// for messages.
    #[must_use]
    pub fn new(members: Vec<(u64, String)>) -> Cluster {
        let roles = members.iter().map(|(id, _)| (*id, Role::Unknown)).collect();
        let verdict = Verdict {
            primary: None,
            roles,
            verify: Vec::new(),
            problems: Vec::new(),
        };
        Cluster { members, verdict }
    }

    /// Takes a new list of members; what is known of those that stay, stays.
    pub fn set_members(&mut self, members: Vec<(u64, String)>) {
        self.members = members;
    }

    /// A server has answered.
    pub fn heard(&mut self, now_ms: u64, server: u64, report: Report) {
        let _ = (now_ms, server, report);
    }

    /// A server was asked and could not tell (a privilege is missing, a nonsense answer): alive,
    /// role unknown.
    pub fn could_not_tell(&mut self, now_ms: u64, server: u64, why: String) {
        let _ = (now_ms, server, why);
    }

    /// A server was found to be down: what it said counts no more, but for fencing.
    pub fn lost(&mut self, now_ms: u64, server: u64) {
        let _ = (now_ms, server);
    }

    /// An operator names the primary (`None` takes that back); holds until the named one is down
    /// or claims no more.
    pub fn name_primary(&mut self, now_ms: u64, server: Option<u64>) {
        let _ = (now_ms, server);
    }

    /// The decision as of now.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.verdict.clone()
    }
}
