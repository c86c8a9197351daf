//! A service's servers as an immutable snapshot, and the choice of one of them for one client.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::balance::{Algorithm, Balance, Field};
use crate::load::Load;

/// Reservations lost to other workers in a row before the servers are taken to be full.
const RACES_LOST_MAX: usize = 64;

/// One server of a service as the snapshot sees it.
#[derive(Debug, Clone)]
pub struct Member {
    /// Who it is, whatever its place in the list: a hash of its address. `source` places servers by
    /// it, so that a reload which removes one server, and every other balancer, keeps the rest in
    /// place.
    pub id: u64,
    /// Effective weight now, scaled by `ramp::WEIGHT_SCALE`; zero takes no new clients.
    pub weight: u32,
    /// Used only while no other server takes clients.
    pub backup: bool,
    /// Up (or not yet known to be down) and not draining.
    pub accepting: bool,
    /// Its counters, shared with every other service and snapshot that lists it.
    pub load: Arc<Load>,
}

impl Member {
    fn takes_clients(&self) -> bool {
        self.accepting && self.weight > 0
    }
}

/// What a choice depends on, besides the servers.
#[derive(Debug, Clone, Copy)]
pub struct PickRequest<'a> {
    /// A hash of what the client is known by; equal keys go to the same server under `source`.
    pub key: u64,
    /// Servers that already failed this client.
    pub tried: &'a MemberSet,
    /// Any 64 random bits.
    pub random: u64,
    /// The time on the clock that latencies are measured with.
    pub now_us: u64,
}

/// The outcome of a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pick {
    /// The index of a member. One connection of its `Load` is now reserved: the caller releases it.
    Server(usize),
    /// Servers are up, but all that may be asked are at their limit: the client may wait.
    AllFull,
    /// Nobody is left to ask: all are down, draining, or failed this client already.
    NoneUp,
}

/// The servers of one service at one moment; built anew whenever anything about them changes.
pub struct ServerSet {
    algorithm: Algorithm,
    members: Vec<Member>,
    tier: Vec<usize>,
    balance: Box<dyn Balance>,
    cursor: Arc<RotationCursor>,
}

impl ServerSet {
    /// A snapshot of `members`. The cursor belongs to the service and goes from snapshot to
    /// snapshot.
    pub fn new(
        algorithm: Algorithm,
        members: Vec<Member>,
        cursor: Arc<RotationCursor>,
    ) -> ServerSet {
        let tier = tier_in_use(&members);
        let seats: Vec<&Member> = tier.iter().map(|&index| &members[index]).collect();
        let balance = algorithm.build(&seats);
        ServerSet {
            algorithm,
            members,
            tier,
            balance,
            cursor,
        }
    }

    /// Chooses a server and reserves one connection of it.
    pub fn pick(&self, request: &PickRequest<'_>) -> Pick {
        let field = Field::new(&self.members, &self.tier, &self.cursor);
        for _ in 0..RACES_LOST_MAX {
            match self.balance.pick(&field, request) {
                Some(seat) if self.reserve(seat) => return Pick::Server(self.tier[seat]),
                Some(_) => {}
                None if field.any_open(request) => {}
                None => break,
            }
        }
        if field.any_untried(request) {
            Pick::AllFull
        } else {
            Pick::NoneUp
        }
    }

    /// All servers of the service, in the order of the configuration.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// How many servers clients are sent to now, full ones included; backups count while they
    /// serve.
    pub fn eligible_count(&self) -> usize {
        self.tier.len()
    }

    fn reserve(&self, seat: usize) -> bool {
        self.members[self.tier[seat]].load.try_reserve()
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

/// Members that take clients: the backups only if there is no other. Full is not down: it stays in.
fn tier_in_use(members: &[Member]) -> Vec<usize> {
    let taking = |backup: bool| {
        let of_tier =
            |(_, member): &(usize, &Member)| member.backup == backup && member.takes_clients();
        let tier = members.iter().enumerate().filter(of_tier);
        tier.map(|(index, _)| index).collect::<Vec<_>>()
    };
    let primaries = taking(false);
    if primaries.is_empty() {
        taking(true)
    } else {
        primaries
    }
}

/// A service's place in its order of turns, shared by all workers, outliving snapshots.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct RotationCursor(AtomicU64);

impl RotationCursor {
    /// This turn; the next caller gets the next one.
    pub(crate) fn advance(&self) -> u64 {
        self.0.fetch_add(1, Relaxed)
    }

    /// Counts turns that went unused.
    pub(crate) fn skip(&self, turns: u64) {
        self.0.fetch_add(turns, Relaxed);
    }
}

/// A small set of member indices. Holds the first 64 without allocating, more if it must.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemberSet {
    first: u64,
    more: Vec<usize>,
}

impl MemberSet {
    /// The empty set.
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

    /// Whether a member is in the set.
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
