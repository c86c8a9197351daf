//! Least latency: the server with the lowest time to answer, times its connections, per weight.

use super::{Balance, Field};
use crate::pool::Request;

pub(super) struct LeastLatency;

impl Balance for LeastLatency {
    fn pick(&self, field: &Field<'_>, request: &Request<'_>) -> Option<usize> {
        let latency_us = |seat: usize| field.load(seat).latency_us(request.now_us);
        let mut unmeasured = field.open(request).filter(|&seat| latency_us(seat) == 0);
        // Nothing is known of it, so one client finds out. Taken as fast, it would get all of them at once.
        if let Some(seat) = unmeasured.find(|&seat| field.load(seat).claim_trial(request.now_us)) {
            return Some(seat);
        }
        let measured = field.open(request).map(|seat| (seat, latency_us(seat)));
        let measured = measured.filter(|&(_, latency_us)| latency_us > 0);
        let best = field.cheapest(measured.map(|(seat, us)| (seat, field.cost(seat).times(us))));
        // Nobody measured has room: as long as nothing is known, connections alone decide.
        best.or_else(|| field.cheapest(field.open(request).map(|seat| (seat, field.cost(seat)))))
    }
}
