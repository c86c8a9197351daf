//! Balancing algorithms by name, and the input of a choice.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

pub use source::key_of;

use crate::load::Load;
use crate::server_set::{Member, PickRequest, RotationCursor};

mod first;
mod least_connections;
mod least_latency;
mod random_two;
mod round_robin;
mod source;

#[cfg(test)]
mod laws;

/// An algorithm that chooses among the servers of one tier. Built from these servers, so it may
/// precompute.
pub trait Balance: Send + Sync {
    /// Returns the slot to try next, or `None` when no slot is open to this request.
    fn pick(&self, candidates: &CandidateSet<'_>, request: &PickRequest<'_>) -> Option<usize>;
}

/// Servers from which an algorithm chooses.
pub(crate) struct Tier<'a> {
    /// Servers that take clients, in the order of the configuration.
    pub(crate) slots: &'a [&'a Member],
    /// Number of servers of the service, whether they take clients or not.
    pub(crate) listed: usize,
}

/// Generates the enum, `ALL`, `name` and `build` from one line per algorithm.
macro_rules! algorithms {
    ($($(#[$doc:meta])+ $variant:ident $name:literal $build:expr;)+) => {
        /// Algorithm by which a service distributes its clients over its servers.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Algorithm {
            $($(#[$doc])+ $variant,)+
        }

        impl Algorithm {
            /// Every algorithm; the laws in the tests run over all of them.
            pub const ALL: &[Algorithm] = &[$(Algorithm::$variant),+];

            /// Names of all in the configuration.
            pub const NAMES: &[&str] = &[$($name),+];

            /// Returns the algorithm's name in the configuration.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Algorithm::$variant => $name,)+
                }
            }

            /// Prepares the algorithm for the servers of one tier; slots are numbered in the order
            /// of `slots`.
            pub(crate) fn build(self, tier: &Tier<'_>) -> Box<dyn Balance> {
                match self {
                    $(Algorithm::$variant => Box::new($build(tier)),)+
                }
            }
        }
    };
}

algorithms! {
    /// Each server in turn, smoothly interleaved by weight.
    RoundRobin "round-robin" round_robin::RoundRobin::new;
    /// The server with the fewest connections for its weight.
    LeastConnections "least-connections" |_: &_| least_connections::LeastConnections;
    /// A fixed server for each client address.
    Source "source" source::Source::new;
    /// The less busy one of two randomly chosen servers.
    RandomTwo "random-two" random_two::RandomTwo::new;
    /// The first server of the list that is not full.
    First "first" |_: &_| first::First;
    /// The server with the lowest latency for its load.
    LeastLatency "least-latency" |_: &_| least_latency::LeastLatency;
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Error: no algorithm has this name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownAlgorithm(String);

impl fmt::Display for UnknownAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = Algorithm::ALL.iter().map(|known| known.name()).collect();
        write!(
            f,
            "no algorithm is called `{}`; use one of {}",
            self.0,
            names.join(", ")
        )
    }
}

impl std::error::Error for UnknownAlgorithm {}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Algorithm, UnknownAlgorithm> {
        let known = Algorithm::ALL.iter().find(|known| known.name() == name);
        known
            .copied()
            .ok_or_else(|| UnknownAlgorithm(name.to_owned()))
    }
}

/// Servers of one tier at the moment of a choice. A slot is an index into the tier.
pub struct CandidateSet<'a> {
    members: &'a [Member],
    tier: &'a [usize],
    cursor: &'a RotationCursor,
}

impl<'a> CandidateSet<'a> {
    pub(crate) fn new(
        members: &'a [Member],
        tier: &'a [usize],
        cursor: &'a RotationCursor,
    ) -> CandidateSet<'a> {
        CandidateSet {
            members,
            tier,
            cursor,
        }
    }

    /// Returns whether the slot is available to this request: not full and not tried before.
    ///
    /// Servers that are down, draining or without weight have no slot.
    pub fn is_open(&self, slot: usize, request: &PickRequest<'_>) -> bool {
        !request.tried.contains(self.tier[slot]) && !self.load(slot).is_full()
    }

    /// Returns the number of slots.
    pub fn len(&self) -> usize {
        self.tier.len()
    }

    /// Returns whether there is no slot.
    pub fn is_empty(&self) -> bool {
        self.tier.is_empty()
    }

    /// Returns the slots that are open to this request, in the order of the configuration.
    pub fn open(&self, request: &PickRequest<'_>) -> impl Iterator<Item = usize> {
        (0..self.tier.len()).filter(|&slot| self.is_open(slot, request))
    }

    /// Returns the weight of the server in a slot; never zero.
    pub fn weight(&self, slot: usize) -> u64 {
        u64::from(self.members[self.tier[slot]].weight)
    }

    /// Returns the counters of the server in a slot.
    pub fn load(&self, slot: usize) -> &Load {
        &self.members[self.tier[slot]].load
    }

    /// Returns how busy a slot would be with one more connection.
    pub fn cost(&self, slot: usize) -> Cost {
        Cost {
            amount: u128::from(self.load(slot).active_everywhere()) + 1,
            weight: u128::from(self.weight(slot)),
        }
    }

    /// Returns the service's position in its rotation.
    pub fn cursor(&self) -> &RotationCursor {
        self.cursor
    }

    pub(crate) fn any_open(&self, request: &PickRequest<'_>) -> bool {
        self.open(request).next().is_some()
    }

    pub(crate) fn any_untried(&self, request: &PickRequest<'_>) -> bool {
        self.tier
            .iter()
            .any(|&index| !request.tried.contains(index))
    }

    /// Returns the cheapest of the slots. Slots of equal cost rotate; otherwise the first of the
    /// list would get every client while all are idle.
    fn cheapest(&self, slots: impl Iterator<Item = (usize, Cost)>) -> Option<usize> {
        let mut best: Option<Cost> = None;
        let mut equals = Vec::new();
        for (slot, cost) in slots {
            let order = best.map_or(Ordering::Less, |best| cost.compare(best));
            if order == Ordering::Less {
                best = Some(cost);
                equals.clear();
            }
            if order != Ordering::Greater {
                equals.push(slot);
            }
        }
        if equals.len() < 2 {
            return equals.pop();
        }
        // Choose the next of these slots in the rotation over all slots, like round-robin. The
        // cursor modulo the number of equal slots is not a rotation: it correlates with changes of
        // that number.
        let slots = self.tier.len();
        let start = (self.cursor.advance() % slots as u64) as usize;
        let ahead = |slot: usize| (slot + slots - start) % slots;
        let next = equals.into_iter().min_by_key(|&slot| ahead(slot))?;
        self.cursor.skip(ahead(next) as u64);
        Some(next)
    }
}

/// Amount per weight; compared exactly, without division.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    amount: u128,
    weight: u128,
}

impl Cost {
    fn times(self, factor: u64) -> Cost {
        Cost {
            amount: self.amount * u128::from(factor),
            ..self
        }
    }

    pub(crate) fn compare(self, other: Cost) -> Ordering {
        (self.amount * other.weight).cmp(&(other.amount * self.weight))
    }
}
