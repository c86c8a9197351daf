//! Defines conflicts between several servers that claim to be the primary, for every kind of
//! cluster.

use super::member::Claim;
use super::report::ReplicationState;

/// Role that a server's own report implies, before it is compared with others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ClaimedRole {
    /// The server was not queried yet, or is down.
    Unknown,
    /// The server reports that it takes writes.
    Claims,
    /// The server serves reads.
    Follows,
    /// The server serves nothing, for this reason.
    Unfit(String),
    /// The server serves nothing, and an operator must know the reason.
    Refused(String),
}

/// Server that claims to be the primary.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate<'a> {
    pub(super) id: u64,
    pub(super) name: &'a str,
    pub(super) status: &'a ReplicationState,
    pub(super) queried_ms: u64,
    pub(super) claim: &'a Claim,
    pub(super) is_primary: bool,
    /// True if the server does not respond over a new connection.
    pub(super) is_silent: bool,
}

impl Candidate<'_> {
    /// Returns whether the server was found to take writes, twice, since the other one was last
    /// queried.
    pub(super) fn succeeds(&self, other: &Candidate<'_>) -> bool {
        let came_later = self.claim.noticed_ms > other.queried_ms;
        self.id != other.id && self.claim.verified && came_later
    }
}

/// Result of a conflict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ConflictResult {
    /// One server wins. `stale` are those whose report is too old to be compared.
    Won {
        winner: u64,
        losers: Vec<(u64, String)>,
        stale: Vec<u64>,
    },
    /// No server wins; an operator must decide.
    Tied {
        message: String,
        losers: Vec<(u64, String)>,
        stale: Vec<u64>,
    },
}

/// Returns an uncontested result: `winner` is the primary, and the others follow.
pub(super) fn uncontested(winner: u64) -> ConflictResult {
    ConflictResult::Won {
        winner,
        losers: Vec::new(),
        stale: Vec::new(),
    }
}

/// Returns the servers that were last queried before another's claim was noticed. Their reports say
/// nothing about now: they may have stepped down, or written more.
pub(super) fn stale(candidates: &[Candidate<'_>]) -> Vec<u64> {
    let is_stale = |one: &&Candidate<'_>| {
        let mut others = candidates.iter().filter(|other| other.id != one.id);
        others.any(|other| one.queried_ms < other.claim.noticed_ms)
    };
    candidates
        .iter()
        .filter(is_stale)
        .map(|one| one.id)
        .collect()
}

/// Returns a list like "db1, db2 and db3".
pub(super) fn listed(names: &[&str]) -> String {
    match names {
        [] => "no server".to_owned(),
        [only] => (*only).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
