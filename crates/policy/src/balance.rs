//! The balancing algorithms by name, and what one of them sees when it chooses.

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

/// Chooses among the servers of one tier; built from them, so it may precompute.
pub trait Balance: Send + Sync {
    /// The seat to ask next, or `None` when no seat is open to this request.
    fn pick(&self, field: &Field<'_>, request: &PickRequest<'_>) -> Option<usize>;
}

/// Makes the enum, `ALL`, `name` and `build` from one line per algorithm.
macro_rules! algorithms {
    ($($(#[$doc:meta])+ $variant:ident $name:literal $build:expr;)+) => {
        /// How a service spreads its clients over its servers.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Algorithm {
            $($(#[$doc])+ $variant,)+
        }

        impl Algorithm {
            /// Every algorithm; the laws run over it.
            pub const ALL: &[Algorithm] = &[$(Algorithm::$variant),+];

            /// Its name in the configuration.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Algorithm::$variant => $name,)+
                }
            }

            /// Prepares it for the servers of one tier; seats are numbered in their order.
            pub(crate) fn build(self, seats: &[&Member]) -> Box<dyn Balance> {
                match self {
                    $(Algorithm::$variant => Box::new($build(seats)),)+
                }
            }
        }
    };
}

algorithms! {
    /// By turns, smoothly interleaved by weight.
    RoundRobin "round-robin" round_robin::RoundRobin::new;
    /// The fewest connections for the weight.
    LeastConnections "least-connections" |_: &_| least_connections::LeastConnections;
    /// The same client to the same server.
    Source "source" source::Source::new;
    /// Two by chance, the less busy one of them.
    RandomTwo "random-two" |_: &_| random_two::RandomTwo;
    /// The first in the list that has room.
    First "first" |_: &_| first::First;
    /// The quickest to answer for its load.
    LeastLatency "least-latency" |_: &_| least_latency::LeastLatency;
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that no algorithm has.
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

/// The servers of one tier at the moment of a choice; a seat is a place in that tier.
pub struct Field<'a> {
    members: &'a [Member],
    tier: &'a [usize],
    cursor: &'a RotationCursor,
}

impl<'a> Field<'a> {
    pub(crate) fn new(
        members: &'a [Member],
        tier: &'a [usize],
        cursor: &'a RotationCursor,
    ) -> Field<'a> {
        Field {
            members,
            tier,
            cursor,
        }
    }

    /// Whether the seat may be given to this request: not full, not tried before.
    ///
    /// Down, draining and weightless servers have no seat at all.
    pub fn is_open(&self, seat: usize, request: &PickRequest<'_>) -> bool {
        !request.tried.contains(self.tier[seat]) && !self.load(seat).is_full()
    }

    /// The seats open to this request, in the order of the configuration.
    pub fn open(&self, request: &PickRequest<'_>) -> impl Iterator<Item = usize> {
        (0..self.tier.len()).filter(|&seat| self.is_open(seat, request))
    }

    /// The weight of the server in a seat; never zero.
    pub fn weight(&self, seat: usize) -> u64 {
        u64::from(self.members[self.tier[seat]].weight)
    }

    /// The counters of the server in a seat.
    pub fn load(&self, seat: usize) -> &Load {
        &self.members[self.tier[seat]].load
    }

    /// How busy a seat would be with one connection more.
    pub fn cost(&self, seat: usize) -> Cost {
        Cost {
            amount: u128::from(self.load(seat).active_everywhere()) + 1,
            weight: u128::from(self.weight(seat)),
        }
    }

    /// The service's place in its order of turns.
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

    /// The cheapest of some seats; equal ones take turns, else the first of the list gets every
    /// idle moment.
    fn cheapest(&self, seats: impl Iterator<Item = (usize, Cost)>) -> Option<usize> {
        let mut best: Option<Cost> = None;
        let mut equals = Vec::new();
        for (seat, cost) in seats {
            let order = best.map_or(Ordering::Less, |best| cost.compare(best));
            if order == Ordering::Less {
                best = Some(cost);
                equals.clear();
            }
            if order != Ordering::Greater {
                equals.push(seat);
            }
        }
        if equals.len() < 2 {
            return equals.pop();
        }
        // The next one in the round of all seats, as round-robin does. Taking the cursor modulo the
        // number of equals looks like a rotation too, but falls in step with how that number
        // changes.
        let seats = self.tier.len();
        let turn = (self.cursor.advance() % seats as u64) as usize;
        let ahead = |seat: usize| (seat + seats - turn) % seats;
        let next = equals.into_iter().min_by_key(|&seat| ahead(seat))?;
        self.cursor.skip(ahead(next) as u64);
        Some(next)
    }
}

/// An amount per weight; compared exactly, without division.
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

    fn compare(self, other: Cost) -> Ordering {
        (self.amount * other.weight).cmp(&(other.amount * self.weight))
    }
}
