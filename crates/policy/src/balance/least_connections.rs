//! Least connections: the server with the fewest connections for its weight.

use super::{Balance, Field};
use crate::pool::Request;

pub(super) struct LeastConnections;

impl Balance for LeastConnections {
    fn pick(&self, field: &Field<'_>, request: &Request<'_>) -> Option<usize> {
        field.cheapest(field.open(request).map(|seat| (seat, field.cost(seat))))
    }
}
