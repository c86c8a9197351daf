//! Algorithm `round-robin`: rotates over the servers, smoothly interleaved by weight (a a b a c a
//! a, not a a a a a b c).

use super::{Balance, CandidateSet, Tier};
use crate::server_set::PickRequest;

/// Maximum number of turns in one round. The weights 1000 and 999 would need 1,999. Longer rounds
/// cost memory and build time in every snapshot for differences below 0.1 %, so such weights are
/// scaled down.
const ROTATION_LENGTH_MAX: u64 = 2_048;

/// Maximum number of servers whose turns are interleaved as smoothly as possible: the time for that
/// grows with the square of their number.
const SMOOTH_MAX: usize = 64;

/// The order of turns, computed when the snapshot is built: a turn is then one atomic addition
/// without a lock.
pub(super) struct RoundRobin {
    rotation: Vec<u32>,
}

impl RoundRobin {
    pub(super) fn new(tier: &Tier<'_>) -> RoundRobin {
        let weights: Vec<u64> = tier
            .slots
            .iter()
            .map(|slot| u64::from(slot.weight))
            .collect();
        RoundRobin {
            rotation: order(&reduced(&weights)),
        }
    }
}

impl Balance for RoundRobin {
    fn pick(&self, candidates: &CandidateSet<'_>, request: &PickRequest<'_>) -> Option<usize> {
        if self.rotation.is_empty() {
            return None;
        }
        let step = candidates.cursor().advance();
        let slot = self.slot_at(step);
        if candidates.is_open(slot, request) {
            return Some(slot);
        }
        // Advancing the shared cursor past closed slots gives the same order as if they were not
        // part of it: all others take over in proportion. Only looking ahead would assign all of
        // these turns to the next slot.
        let open =
            |ahead: &u64| candidates.is_open(self.slot_at(step.wrapping_add(*ahead)), request);
        let ahead = (1..self.rotation.len() as u64).find(open)?;
        candidates.cursor().skip(ahead);
        Some(self.slot_at(step.wrapping_add(ahead)))
    }
}

impl RoundRobin {
    fn slot_at(&self, step: u64) -> usize {
        self.rotation[(step % self.rotation.len() as u64) as usize] as usize
    }
}

/// Returns smaller weights of the same (or nearly the same) ratio; none of them is zero.
fn reduced(weights: &[u64]) -> Vec<u64> {
    let divisor = weights.iter().copied().fold(0, gcd).max(1);
    let total: u64 = weights.iter().map(|weight| weight / divisor).sum();
    if total <= ROTATION_LENGTH_MAX {
        return weights.iter().map(|weight| weight / divisor).collect();
    }
    let scale = |weight: u64| weight / divisor * ROTATION_LENGTH_MAX / total;
    weights.iter().map(|&weight| scale(weight).max(1)).collect()
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Returns the order of turns of a round.
fn order(weights: &[u64]) -> Vec<u32> {
    match weights.len() {
        0..=SMOOTH_MAX => smooth_order(weights),
        _ => spread_order(weights),
    }
}

/// Returns an order of turns in which those of a slot have nearly equal distances.
fn spread_order(weights: &[u64]) -> Vec<u32> {
    /// 2^32 divided by the golden ratio: multiples of it are spread evenly.
    const GOLDEN: u32 = 2_654_435_769;
    let slots = weights.iter().zip(0_u32..);
    let mut turns: Vec<(u64, u32)> = slots
        .flat_map(|(&weight, slot)| {
            // The slot's first turn, as a fraction of 2^32 of its distance.
            let first = u64::from(slot.wrapping_mul(GOLDEN));
            (0..weight).map(move |turn| (((turn << 32) + first) / weight, slot))
        })
        .collect();
    turns.sort_unstable();
    turns.into_iter().map(|(_, slot)| slot).collect()
}

/// Returns the order of turns: in each turn every slot gains its weight as credit. The slot with
/// the most credit is chosen and pays the total.
fn smooth_order(weights: &[u64]) -> Vec<u32> {
    let total = weights.iter().sum::<u64>() as i64;
    let mut credit = vec![0_i64; weights.len()];
    let mut rotation = Vec::with_capacity(total as usize);
    for _ in 0..total {
        let mut richest = 0;
        for (slot, weight) in weights.iter().enumerate() {
            credit[slot] += *weight as i64;
            if credit[slot] > credit[richest] {
                richest = slot;
            }
        }
        credit[richest] -= total;
        rotation.push(richest as u32);
    }
    rotation
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heavier_servers_turns_are_spread_over_the_round() {
        assert_eq!(smooth_order(&[5, 1, 1]), [0, 0, 1, 0, 2, 0, 0]);
        assert_eq!(smooth_order(&[1, 1, 1]), [0, 1, 2]);
    }

    #[test]
    fn turns_of_many_servers_are_spread_over_the_round() {
        let mut weights = [1; 100];
        weights[7] = 4;
        let rotation = order(&weights);
        assert_eq!(rotation.len(), 103);
        let turns_of = |slot: u32| {
            let turns = rotation.iter().enumerate();
            let turns = turns.filter(move |(_, one)| **one == slot);
            turns.map(|(turn, _)| turn).collect::<Vec<_>>()
        };
        let heavy = turns_of(7);
        assert_eq!(heavy.len(), 4);
        let distances = heavy.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(
            distances.clone().all(|one| (24..28).contains(&one)),
            "{heavy:?}"
        );
        assert!((0..100).all(|slot| slot == 7 || turns_of(slot).len() == 1));
    }

    #[test]
    fn a_common_divisor_is_taken_out_of_the_weights() {
        assert_eq!(reduced(&[30, 10, 20]), [3, 1, 2]);
        assert_eq!(reduced(&[7]), [1]);
    }

    #[test]
    fn rounds_stay_short_and_nobody_is_left_out_of_them() {
        let weights = [10_000, 9_999, 5_000, 1];
        let shares = reduced(&weights);
        assert!(
            shares.iter().sum::<u64>() <= ROTATION_LENGTH_MAX + 4,
            "{shares:?}"
        );
        assert!(shares.iter().all(|&share| share > 0), "{shares:?}");
        assert!(shares[0].abs_diff(shares[2] * 2) <= 2, "{shares:?}");
        reduced(&[u64::from(u32::MAX); 3]);
        reduced(&[u64::from(u32::MAX), 1, 2]);
    }
}
