//! Algorithm `least-connections`: chooses the server with the fewest connections for its weight.

use super::{Balance, CandidateSet};
use crate::server_set::PickRequest;

pub(super) struct LeastConnections;

impl Balance for LeastConnections {
    fn pick(&self, candidates: &CandidateSet<'_>, request: &PickRequest<'_>) -> Option<usize> {
        candidates.cheapest(
            candidates
                .open(request)
                .map(|slot| (slot, candidates.cost(slot))),
        )
    }
}
