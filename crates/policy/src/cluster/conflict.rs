//! Several servers claim to be the primary: what a contest is, whatever the kind of cluster.

use super::member::Claim;
use super::report::ReplicationState;

/// What a server's own word makes of it, before it is compared with others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ClaimedRole {
    /// Not asked yet, or down.
    Unknown,
    /// It says that it takes writes.
    Claims,
    /// It serves reads.
    Follows,
    /// It serves nothing: for this reason.
    Unfit(String),
    /// The same, and an operator must know.
    Refused(String),
}

/// A server that claims.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate<'a> {
    pub(super) id: u64,
    pub(super) name: &'a str,
    pub(super) said: &'a ReplicationState,
    pub(super) asked_ms: u64,
    pub(super) claim: &'a Claim,
    pub(super) is_primary: bool,
    /// It does not answer over a new connection.
    pub(super) is_silent: bool,
}

impl Candidate<'_> {
    /// Whether it was found to take writes, twice, since the other one was last asked.
    pub(super) fn succeeds(&self, other: &Candidate<'_>) -> bool {
        let came_later = self.claim.noticed_ms > other.asked_ms;
        self.id != other.id && self.claim.verified && came_later
    }
}

/// How a contest ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ConflictResult {
    /// One is right. `stale` are those whose word is too old to be compared.
    Won {
        winner: u64,
        beaten: Vec<(u64, String)>,
        stale: Vec<u64>,
    },
    /// Nobody is, among these; an operator must say.
    Tied {
        message: String,
        beaten: Vec<(u64, String)>,
        stale: Vec<u64>,
    },
}

/// Nothing to compare: this one, and the others follow.
pub(super) fn uncontested(winner: u64) -> ConflictResult {
    ConflictResult::Won {
        winner,
        beaten: Vec::new(),
        stale: Vec::new(),
    }
}

/// Those who were asked last before another's claim was noticed: what they said then tells nothing
/// of now, be it that they have stepped back, be it that they have written more.
pub(super) fn stale(candidates: &[Candidate<'_>]) -> Vec<u64> {
    let is_stale = |one: &&Candidate<'_>| {
        let mut others = candidates.iter().filter(|other| other.id != one.id);
        others.any(|other| one.asked_ms < other.claim.noticed_ms)
    };
    candidates
        .iter()
        .filter(is_stale)
        .map(|one| one.id)
        .collect()
}

/// "db1, db2 and db3".
pub(super) fn listed(names: &[&str]) -> String {
    match names {
        [] => "no server".to_owned(),
        [only] => (*only).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
