//! Algorithm `random-two`: chooses the less busy of two random servers, which avoids herds even if
//! counts are stale.

use super::{Balance, CandidateSet, Tier};
use crate::sample::Draws;
use crate::server_set::PickRequest;
use std::cmp::Ordering;

/// Number of draws that may meet a closed server before the open ones are searched.
const MISSES_MAX: usize = 16;

/// Sums of the weights of the slots up to each one. A draw is a search in them.
pub(super) struct RandomTwo {
    sums: Vec<u64>,
}

impl RandomTwo {
    pub(super) fn new(tier: &Tier<'_>) -> RandomTwo {
        let weights = tier.slots.iter().map(|slot| u64::from(slot.weight));
        let sums = weights.scan(0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        });
        RandomTwo {
            sums: sums.collect(),
        }
    }

    /// Returns a random slot, in proportion to the weights.
    fn draw(&self, random: u64) -> usize {
        let total = self.sums.last().copied().unwrap_or(0);
        let ticket = ((u128::from(total) * u128::from(random)) >> 64) as u64;
        self.sums.partition_point(|&sum| sum <= ticket)
    }

    /// Returns a random open slot, in proportion to the weights; never the slot `except`.
    fn draw_open(
        &self,
        (candidates, request): (&CandidateSet<'_>, &PickRequest<'_>),
        draws: &mut Draws,
        except: Option<usize>,
    ) -> Option<usize> {
        let is_meant = |slot: &usize| Some(*slot) != except && candidates.is_open(*slot, request);
        let mut drawn = draws.by_ref().take(MISSES_MAX);
        let drawn = drawn.find_map(|random| Some(self.draw(random)).filter(is_meant));
        drawn.or_else(|| search(candidates, request, draws.next()?, except))
    }
}

impl Balance for RandomTwo {
    fn pick(&self, candidates: &CandidateSet<'_>, request: &PickRequest<'_>) -> Option<usize> {
        if self.sums.is_empty() {
            return None;
        }
        let mut draws = Draws(request.random);
        let one = self.draw_open((candidates, request), &mut draws, None)?;
        let Some(two) = self.draw_open((candidates, request), &mut draws, Some(one)) else {
            return Some(one);
        };
        match candidates.cost(two).compare(candidates.cost(one)) {
            Ordering::Less => Some(two),
            _ => Some(one),
        }
    }
}

/// Returns a random open slot like `draw_open`, after a look at all slots.
fn search(
    candidates: &CandidateSet<'_>,
    request: &PickRequest<'_>,
    random: u64,
    except: Option<usize>,
) -> Option<usize> {
    let slots = || {
        candidates
            .open(request)
            .filter(|&slot| Some(slot) != except)
    };
    let total: u64 = slots().map(|slot| candidates.weight(slot)).sum();
    let mut ticket = ((u128::from(total) * u128::from(random)) >> 64) as u64;
    let mut drawn = None;
    for slot in slots() {
        drawn = Some(slot);
        let weight = candidates.weight(slot);
        if ticket < weight {
            break;
        }
        // A slot may have become full since the sum was computed: the last slot is then taken.
        ticket -= weight;
    }
    drawn
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::{Algorithm, Load, Member, MemberSet, Pick, PickRequest, ServerSet};

    #[test]
    fn of_two_servers_the_busier_for_its_weight_is_never_taken() {
        let member = |id, weight| Member {
            id,
            weight,
            backup: false,
            accepting: true,
            load: Arc::new(Load::new(None)),
        };
        let pool = ServerSet::new(
            Algorithm::RandomTwo,
            vec![member(0, 10), member(1, 30)],
            Arc::default(),
        );
        let mut random = 1_u64;
        for _ in 0..400 {
            random = random.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
            let tried = &MemberSet::none();
            let request = PickRequest {
                key: 0,
                tried,
                random,
                now_us: 0,
            };
            assert!(matches!(pool.pick(&request), Pick::Server(_)));
        }
        let active: Vec<u32> = pool
            .members()
            .iter()
            .map(|member| member.load.active())
            .collect();
        assert!(
            (99..=101).contains(&active[0]),
            "weights 1 and 3: {active:?}"
        );
    }
}
