//! Holds an immutable snapshot of a service's servers and chooses one of them for a client.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::balance::{Algorithm, Balance, CandidateSet, Tier};
use crate::load::Load;

/// Consecutive reservations lost to other workers after which the servers count as full.
const RACES_LOST_MAX: usize = 64;

/// One server of a service in a snapshot.
#[derive(Debug, Clone)]
pub struct Member {
    /// Identity of the server: a hash of its address, independent of its index. `source` maps keys
    /// by it. So a reload that removes one server moves few other keys, and other balancers choose
    /// alike.
    pub id: u64,
    /// Current effective weight, scaled by `ramp::WEIGHT_SCALE`; zero takes no new clients.
    pub weight: u32,
    /// True if the server is used only while no other server takes clients.
    pub backup: bool,
    /// True if the server is up (or not yet known to be down) and not draining.
    pub accepting: bool,
    /// Counters of the server, shared with every other service and snapshot that lists it.
    pub load: Arc<Load>,
}

impl Member {
    pub(crate) fn takes_clients(&self) -> bool {
        self.accepting && self.weight > 0
    }
}

/// Input of a choice, besides the servers.
#[derive(Debug, Clone, Copy)]
pub struct PickRequest<'a> {
    /// Hash of the client's identity; equal keys get the same server under `source`.
    pub key: u64,
    /// Servers that already failed for this client.
    pub tried: &'a MemberSet,
    /// 64 random bits.
    pub random: u64,
    /// Current time, on the clock that latencies are measured with.
    pub now_us: u64,
}

/// Outcome of a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pick {
    /// Index of a member. One connection of its `Load` is now reserved; the caller releases it.
    Server(usize),
    /// Servers are up, but every untried one is at its limit: the client may wait.
    AllFull,
    /// No server is left to try: all are down, draining, or have already failed for this client.
    NoneUp,
}

/// Servers of one service at one moment; rebuilt on every change.
pub struct ServerSet {
    algorithm: Algorithm,
    members: Vec<Member>,
    tier: Vec<usize>,
    balance: Box<dyn Balance>,
    cursor: Arc<RotationCursor>,
}

impl ServerSet {
    /// Creates a snapshot of `members`. The cursor belongs to the service and is passed from
    /// snapshot to snapshot.
    pub fn new(
        algorithm: Algorithm,
        members: Vec<Member>,
        cursor: Arc<RotationCursor>,
    ) -> ServerSet {
        let tier = tier_in_use(&members);
        let slots: Vec<&Member> = tier.iter().map(|&index| &members[index]).collect();
        let balance = algorithm.build(&Tier {
            slots: &slots,
            listed: members.len(),
        });
        ServerSet {
            algorithm,
            members,
            tier,
            balance,
            cursor,
        }
    }

    /// Chooses a server and reserves one of its connections.
    pub fn pick(&self, request: &PickRequest<'_>) -> Pick {
        let candidates = CandidateSet::new(&self.members, &self.tier, &self.cursor);
        for _ in 0..RACES_LOST_MAX {
            match self.balance.pick(&candidates, request) {
                Some(slot) if self.reserve(slot) => return Pick::Server(self.tier[slot]),
                Some(_) => {}
                None if candidates.any_open(request) => {}
                None => break,
            }
        }
        if candidates.any_untried(request) {
            Pick::AllFull
        } else {
            Pick::NoneUp
        }
    }

    /// Returns all servers of the service, in the order of the configuration.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Returns the number of servers that clients are sent to now, including full ones. Backup
    /// servers count while they serve.
    pub fn eligible_count(&self) -> usize {
        self.tier.len()
    }

    fn reserve(&self, slot: usize) -> bool {
        self.members[self.tier[slot]].load.try_reserve()
    }
}

impl fmt::Debug for ServerSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("algorithm", &self.algorithm)
            .field("members", &self.members)
            .finish_non_exhaustive()
    }
}

/// Returns the members that take clients: backup servers only if there is no other. A full server
/// is not down and remains included.
fn tier_in_use(members: &[Member]) -> Vec<usize> {
    let select = |backup: bool| {
        let of_tier =
            |(_, member): &(usize, &Member)| member.backup == backup && member.takes_clients();
        let tier = members.iter().enumerate().filter(of_tier);
        tier.map(|(index, _)| index).collect::<Vec<_>>()
    };
    let primaries = select(false);
    if primaries.is_empty() {
        select(true)
    } else {
        primaries
    }
}

/// Position of a service in its rotation, shared by all workers and kept across snapshots.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct RotationCursor(AtomicU64);

impl RotationCursor {
    /// Returns this turn and advances to the next one.
    pub(crate) fn advance(&self) -> u64 {
        self.0.fetch_add(1, Relaxed)
    }

    /// Skips unused turns.
    pub(crate) fn skip(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }
}

/// Small set of member indices. The first 64 need no allocation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemberSet {
    first: u64,
    more: Vec<usize>,
}

impl MemberSet {
    /// Returns the empty set.
    pub const fn none() -> MemberSet {
        MemberSet {
            first: 0,
            more: Vec::new(),
        }
    }

    /// Adds a member.
    pub fn insert(&mut self, index: usize) {
        if index < 64 {
            self.first |= 1 << index;
        } else if !self.more.contains(&index) {
            self.more.push(index);
        }
    }

    /// Returns whether a member is in the set.
    pub fn contains(&self, index: usize) -> bool {
        if index < 64 {
            self.first & 1 << index != 0
        } else {
            self.more.contains(&index)
        }
    }
}

#[cfg(test)]
mod tests;
