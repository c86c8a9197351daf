//! Algorithm `least-connections`: chooses the server with the fewest connections for its weight.

use super::{Balance, Field};
use crate::server_set::PickRequest;

pub(super) struct LeastConnections;

impl Balance for LeastConnections {
    fn pick(&self, field: &Field<'_>, request: &PickRequest<'_>) -> Option<usize> {
        field.cheapest(field.open(request).map(|seat| (seat, field.cost(seat))))
    }
}
