//! Algorithm `round-robin`: rotates over the servers, smoothly interleaved by weight (a a b a c a
//! a, not a a a a a b c).

use super::{Balance, Field};
use crate::server_set::{Member, PickRequest};

/// Maximum number of turns in one round. The weights 1000 and 999 would need 1,999. Longer rounds
/// cost memory and build time in every snapshot for differences below 0.1 %, so such weights are
/// scaled down.
const TURNS_MAX: u64 = 2_048;

/// The order of turns, computed when the snapshot is built: a turn is then one atomic addition
/// without a lock.
pub(super) struct RoundRobin {
    turns: Vec<u32>,
}

impl RoundRobin {
    pub(super) fn new(seats: &[&Member]) -> RoundRobin {
        let weights: Vec<u64> = seats.iter().map(|seat| u64::from(seat.weight)).collect();
        RoundRobin {
            turns: smooth_order(&reduced(&weights)),
        }
    }
}

impl Balance for RoundRobin {
    fn pick(&self, field: &Field<'_>, request: &PickRequest<'_>) -> Option<usize> {
        if self.turns.is_empty() {
            return None;
        }
        let turn = field.cursor().advance();
        let seat = self.seat_at(turn);
        if field.is_open(seat, request) {
            return Some(seat);
        }
        // Advancing the shared cursor past closed seats gives the same order as if they were not
        // part of it: all others take over in proportion. Only looking ahead would assign all of
        // these turns to the next seat.
        let open = |ahead: &u64| field.is_open(self.seat_at(turn.wrapping_add(*ahead)), request);
        let ahead = (1..self.turns.len() as u64).find(open)?;
        field.cursor().skip(ahead);
        Some(self.seat_at(turn.wrapping_add(ahead)))
    }
}

impl RoundRobin {
    fn seat_at(&self, turn: u64) -> usize {
        self.turns[(turn % self.turns.len() as u64) as usize] as usize
    }
}

/// Returns smaller weights of the same (or nearly the same) ratio; none of them is zero.
fn reduced(weights: &[u64]) -> Vec<u64> {
    let divisor = weights.iter().copied().fold(0, gcd).max(1);
    let total: u64 = weights.iter().map(|weight| weight / divisor).sum();
    if total <= TURNS_MAX {
        return weights.iter().map(|weight| weight / divisor).collect();
    }
    let scale = |weight: u64| weight / divisor * TURNS_MAX / total;
    weights.iter().map(|&weight| scale(weight).max(1)).collect()
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Returns the order of turns: in each turn every seat gains its weight as credit. The seat with
/// the most credit is chosen and pays the total.
fn smooth_order(weights: &[u64]) -> Vec<u32> {
    let total = weights.iter().sum::<u64>() as i64;
    let mut credit = vec![0_i64; weights.len()];
    let mut turns = Vec::with_capacity(total as usize);
    for _ in 0..total {
        let mut richest = 0;
        for (seat, weight) in weights.iter().enumerate() {
            credit[seat] += *weight as i64;
            if credit[seat] > credit[richest] {
                richest = seat;
            }
        }
        credit[richest] -= total;
        turns.push(richest as u32);
    }
    turns
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
    fn a_common_divisor_is_taken_out_of_the_weights() {
        assert_eq!(reduced(&[30, 10, 20]), [3, 1, 2]);
        assert_eq!(reduced(&[7]), [1]);
    }

    #[test]
    fn rounds_stay_short_and_nobody_is_left_out_of_them() {
        let weights = [10_000, 9_999, 5_000, 1];
        let turns = reduced(&weights);
        assert!(turns.iter().sum::<u64>() <= TURNS_MAX + 4, "{turns:?}");
        assert!(turns.iter().all(|&turns| turns > 0), "{turns:?}");
        assert!(turns[0].abs_diff(turns[2] * 2) <= 2, "{turns:?}");
        reduced(&[u64::from(u32::MAX); 3]);
        reduced(&[u64::from(u32::MAX), 1, 2]);
    }
}
