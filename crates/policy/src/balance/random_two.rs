//! Random two: two servers by chance, the less busy of them; no herd even when counts are stale.

use super::{Balance, Field};
use crate::pool::Request;
use std::cmp::Ordering;

pub(super) struct RandomTwo;

impl Balance for RandomTwo {
    fn pick(&self, field: &Field<'_>, request: &Request<'_>) -> Option<usize> {
        let one = draw(field, request, request.random >> 32, None)?;
        let Some(two) = draw(field, request, request.random & 0xffff_ffff, Some(one)) else {
            return Some(one);
        };
        match field.cost(two).compare(field.cost(one)) {
            Ordering::Less => Some(two),
            _ => Some(one),
        }
    }
}

/// An open seat by chance, in proportion to the weights; never the one in `except`.
fn draw(
    field: &Field<'_>,
    request: &Request<'_>,
    random_32: u64,
    except: Option<usize>,
) -> Option<usize> {
    let seats = || field.open(request).filter(|&seat| Some(seat) != except);
    let total: u64 = seats().map(|seat| field.weight(seat)).sum();
    let mut ticket = ((u128::from(total) * u128::from(random_32)) >> 32) as u64;
    let mut drawn = None;
    for seat in seats() {
        drawn = Some(seat);
        let weight = field.weight(seat);
        if ticket < weight {
            break;
        }
        // Between the sum and here a seat may have filled up: then the ticket ends at the last one.
        ticket -= weight;
    }
    drawn
}
