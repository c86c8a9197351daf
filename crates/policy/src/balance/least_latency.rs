//! Algorithm `least-latency`: chooses the server with the lowest product of latency and connections
//! per weight.

use super::{Balance, CandidateSet};
use crate::sample;
use crate::server_set::PickRequest;

pub(super) struct LeastLatency;

impl Balance for LeastLatency {
    fn pick(&self, candidates: &CandidateSet<'_>, request: &PickRequest<'_>) -> Option<usize> {
        if sample::is_sampled(candidates)
            && let Some(slot) = of_sample(candidates, request)
        {
            return Some(slot);
        }
        let latency_us = |slot: usize| candidates.load(slot).latency_us(request.now_us);
        let mut unmeasured = candidates
            .open(request)
            .filter(|&slot| latency_us(slot) == 0);
        // The latency of this server is unknown, so one client measures it. If it counted as fast,
        // it would get all clients immediately.
        if let Some(slot) =
            unmeasured.find(|&slot| candidates.load(slot).claim_trial(request.now_us))
        {
            return Some(slot);
        }
        let measured = candidates
            .open(request)
            .map(|slot| (slot, latency_us(slot)));
        let measured = measured.filter(|&(_, latency_us)| latency_us > 0);
        let best =
            candidates.cheapest(measured.map(|(slot, us)| (slot, candidates.cost(slot).times(us))));
        // No measured server has free capacity: until a latency is known, the connections alone
        // decide.
        best.or_else(|| {
            candidates.cheapest(
                candidates
                    .open(request)
                    .map(|slot| (slot, candidates.cost(slot))),
            )
        })
    }
}

/// Chooses among a sample of the servers. `None`: none of them is open.
fn of_sample(candidates: &CandidateSet<'_>, request: &PickRequest<'_>) -> Option<usize> {
    let drawn = || sample::sample(candidates, request);
    let latency_us = |slot: usize| candidates.load(slot).latency_us(request.now_us);
    let mut unmeasured = drawn().filter(|&slot| latency_us(slot) == 0);
    let trial = unmeasured.find(|&slot| candidates.load(slot).claim_trial(request.now_us));
    let measured = || {
        let measured = drawn().map(|slot| (slot, latency_us(slot)));
        let measured = measured.filter(|&(_, latency_us)| latency_us > 0);
        sample::cheapest(measured.map(|(slot, us)| (slot, candidates.cost(slot).times(us))))
    };
    let any = || sample::cheapest(drawn().map(|slot| (slot, candidates.cost(slot))));
    trial.or_else(measured).or_else(any)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::{Algorithm, Load, Member, MemberSet, Pick, PickRequest, ServerSet};

    const SECOND_US: u64 = 1_000_000;

    fn pool(count: u64) -> ServerSet {
        let member = |id| Member {
            id,
            weight: 10,
            backup: false,
            accepting: true,
            load: Arc::new(Load::new(None)),
        };
        let members = (0..count).map(member).collect();
        ServerSet::new(Algorithm::LeastLatency, members, Arc::default())
    }

    fn pick(pool: &ServerSet, now_us: u64) -> usize {
        let tried = &MemberSet::none();
        match pool.pick(&PickRequest {
            key: 0,
            tried,
            random: 0,
            now_us,
        }) {
            Pick::Server(index) => index,
            none => panic!("{none:?}"),
        }
    }

    fn observe(pool: &ServerSet, latencies_us: &[u64]) {
        for (member, &took_us) in pool.members().iter().zip(latencies_us) {
            member.load.observe_latency(SECOND_US, took_us);
        }
    }

    #[test]
    fn connections_balance_out_against_latency() {
        let pool = pool(2);
        observe(&pool, &[1_000, 3_000]);
        (0..400).for_each(|_| assert!(pick(&pool, SECOND_US) < 4));
        assert_eq!(pool.members()[0].load.active(), 300);
    }

    #[test]
    fn an_unmeasured_server_is_tried_by_one_client_a_second_not_by_a_herd() {
        let pool = pool(3);
        observe(&pool, &[1_000, 1_000]);
        let picks: Vec<usize> = (0..100).map(|_| pick(&pool, SECOND_US)).collect();
        assert_eq!(picks[0], 2);
        assert_eq!(picks.iter().filter(|&&index| index == 2).count(), 1);
        assert_eq!(
            pick(&pool, 3 * SECOND_US),
            2,
            "the first one never got an answer"
        );
    }

    #[test]
    fn while_nothing_is_measured_connections_decide() {
        let pool = pool(4);
        (0..40).for_each(|_| assert!(pick(&pool, SECOND_US) < 4));
        assert!(
            pool.members()
                .iter()
                .all(|member| member.load.active() == 10)
        );
    }

    #[test]
    fn a_server_that_was_slow_once_is_tried_again_when_that_is_long_ago() {
        let pool = pool(2);
        observe(&pool, &[1_000, 50_000]);
        assert_eq!(pick(&pool, SECOND_US), 0);
        pool.members()[0]
            .load
            .observe_latency(90 * SECOND_US, 1_000);
        assert_eq!(pick(&pool, 90 * SECOND_US), 1);
    }
}
