//! Algorithm `random-two`: chooses the less busy of two random servers, which avoids herds even if
//! counts are stale.

use super::{Balance, CandidateSet};
use crate::server_set::PickRequest;
use std::cmp::Ordering;

pub(super) struct RandomTwo;

impl Balance for RandomTwo {
    fn pick(&self, candidates: &CandidateSet<'_>, request: &PickRequest<'_>) -> Option<usize> {
        let one = draw(candidates, request, request.random >> 32, None)?;
        let Some(two) = draw(candidates, request, request.random & 0xffff_ffff, Some(one)) else {
            return Some(one);
        };
        match candidates.cost(two).compare(candidates.cost(one)) {
            Ordering::Less => Some(two),
            _ => Some(one),
        }
    }
}

/// Returns a random open slot, in proportion to the weights; never the slot `except`.
fn draw(
    candidates: &CandidateSet<'_>,
    request: &PickRequest<'_>,
    random_32: u64,
    except: Option<usize>,
) -> Option<usize> {
    let slots = || {
        candidates
            .open(request)
            .filter(|&slot| Some(slot) != except)
    };
    let total: u64 = slots().map(|slot| candidates.weight(slot)).sum();
    let mut ticket = ((u128::from(total) * u128::from(random_32)) >> 32) as u64;
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
