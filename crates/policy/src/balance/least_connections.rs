//! Algorithm `least-connections`: chooses the server with the fewest connections for its weight.

use super::{Balance, CandidateSet};
use crate::sample;
use crate::server_set::PickRequest;

pub(super) struct LeastConnections;

impl Balance for LeastConnections {
    fn pick(&self, candidates: &CandidateSet<'_>, request: &PickRequest<'_>) -> Option<usize> {
        let with_cost = |slot: usize| (slot, candidates.cost(slot));
        if sample::is_sampled(candidates) {
            let drawn = sample::sample(candidates, request);
            if let Some(slot) = sample::cheapest(drawn.map(with_cost)) {
                return Some(slot);
            }
        }
        candidates.cheapest(candidates.open(request).map(with_cost))
    }
}
