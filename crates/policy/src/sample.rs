//! Chooses among a sample of the servers where a look at each of them would cost too much.

use crate::balance::{CandidateSet, Cost};
use crate::mixer::{INCREMENT, mixed};
use crate::server_set::PickRequest;
use std::cmp::Ordering;

/// Number of servers up to which each of them is examined for a choice. That of 10,000 takes 40 to
/// 150 microseconds.
const EXAMINED_MAX: usize = 256;

/// Number of servers drawn instead. With two choices the busiest server has few connections more
/// than the average, and each further choice makes the difference smaller.
const SAMPLE: usize = 32;

/// Returns whether a choice among this many servers is made from a sample.
pub(crate) fn is_sampled(candidates: &CandidateSet<'_>) -> bool {
    candidates.len() > EXAMINED_MAX
}

/// Returns the open slots of a sample, in random order; some may occur twice.
pub(crate) fn sample(
    candidates: &CandidateSet<'_>,
    request: &PickRequest<'_>,
) -> impl Iterator<Item = usize> {
    let slots = candidates.len() as u64;
    let drawn = Draws(request.random).take(SAMPLE);
    let drawn = drawn.map(move |random| ((u128::from(slots) * u128::from(random)) >> 64) as usize);
    drawn.filter(|&slot| candidates.is_open(slot, request))
}

/// Returns the cheapest of the slots; of equal ones the first, which a sample has in random order.
pub(crate) fn cheapest(slots: impl Iterator<Item = (usize, Cost)>) -> Option<usize> {
    let cheaper = |best: &(usize, Cost), one: &(usize, Cost)| best.1.compare(one.1);
    let best = slots.reduce(|best, one| match cheaper(&best, &one) {
        Ordering::Greater => one,
        _ => best,
    });
    best.map(|(slot, _)| slot)
}

/// Pseudorandom numbers from one random number (splitmix64).
pub(crate) struct Draws(pub(crate) u64);

impl Iterator for Draws {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let value = mixed(self.0);
        self.0 = self.0.wrapping_add(INCREMENT);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Draws;
    use crate::{Algorithm, Load, Member, MemberSet, Pick, PickRequest, ServerSet};

    const SERVERS: usize = 1_000;

    fn set(algorithm: Algorithm) -> ServerSet {
        let member = |id| Member {
            id,
            weight: 10,
            backup: false,
            accepting: true,
            load: Arc::new(Load::new(None)),
        };
        let members: Vec<_> = (0..SERVERS as u64).map(member).collect();
        for member in &members {
            member.load.observe_latency(1, 1_000);
        }
        ServerSet::new(algorithm, members, Arc::default())
    }

    fn pick(set: &ServerSet, random: u64) -> Option<usize> {
        let tried = &MemberSet::none();
        let request = PickRequest {
            key: 0,
            tried,
            random,
            now_us: 2,
        };
        match set.pick(&request) {
            Pick::Server(index) => Some(index),
            Pick::AllFull | Pick::NoneUp => None,
        }
    }

    #[test]
    fn many_servers_get_nearly_equal_numbers_of_connections() {
        for algorithm in [Algorithm::LeastConnections, Algorithm::LeastLatency] {
            let set = set(algorithm);
            for random in Draws(7).take(20 * SERVERS) {
                assert!(pick(&set, random).is_some());
            }
            let active = set.members().iter().map(|member| member.load.active());
            let (least, most) = (active.clone().min(), active.max());
            assert!(
                least >= Some(15) && most <= Some(21),
                "{algorithm}: {least:?} to {most:?} of 20 on average"
            );
        }
    }

    #[test]
    fn the_only_open_server_of_many_is_found() {
        for &algorithm in Algorithm::ALL {
            let set = set(algorithm);
            for (index, member) in set.members().iter().enumerate() {
                let limit = u32::from(index == 700);
                member.load.set_max_connections(Some(limit));
            }
            assert_eq!(pick(&set, 1), Some(700), "{algorithm}");
            assert_eq!(pick(&set, 2), None, "{algorithm}");
        }
    }
}
