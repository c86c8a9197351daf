//! Limits the retries of a service to a part of its requests, so that retries do not multiply the
//! load of servers that fail because of it.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Retries that a service always permits: a part of few requests would be none.
const RETRIES_MIN: u32 = 3;

/// Retries of a service that run now, over all workers.
#[derive(Debug, Default)]
pub struct RetryBudget {
    running: AtomicU32,
}

impl RetryBudget {
    /// Begins a retry; false if that many run already. `in_flight` is the number of the service's
    /// requests that servers process now, `percent` the part of them that may be retries.
    ///
    /// Each retry that has begun must end.
    pub fn begin(&self, percent: u32, in_flight: u32) -> bool {
        let permitted = permitted(percent, in_flight);
        let one_more = |running: u32| (running < permitted).then(|| running + 1);
        self.running
            .fetch_update(Relaxed, Relaxed, one_more)
            .is_ok()
    }

    /// Ends a retry: the server has answered, or the attempt has failed.
    pub fn end(&self) {
        let ended = self
            .running
            .fetch_update(Relaxed, Relaxed, |running| running.checked_sub(1));
        debug_assert!(ended.is_ok(), "ended a retry that had not begun");
    }

    /// Returns the number of retries that run now.
    pub fn running(&self) -> u32 {
        self.running.load(Relaxed)
    }
}

/// Returns the number of retries that may run.
fn permitted(percent: u32, in_flight: u32) -> u32 {
    let part = u64::from(in_flight) * u64::from(percent) / 100;
    u32::try_from(part).unwrap_or(u32::MAX).max(RETRIES_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(budget: &RetryBudget, percent: u32, in_flight: u32) -> u32 {
        (0..1_000)
            .map(|_| u32::from(budget.begin(percent, in_flight)))
            .sum()
    }

    #[test]
    fn a_part_of_the_requests_may_be_retries_and_at_least_three() {
        for (percent, in_flight, expect) in [
            (20, 0, 3),
            (20, 15, 3),
            (20, 19, 3),
            (20, 20, 4),
            (20, 500, 100),
            (0, 500, 3),
            (100, 50, 50),
            (100, u32::MAX, 1_000),
        ] {
            let budget = RetryBudget::default();
            assert_eq!(
                begun(&budget, percent, in_flight),
                expect,
                "{percent} of {in_flight}"
            );
            assert_eq!(budget.running(), expect);
        }
    }

    #[test]
    fn an_ended_retry_makes_room_for_one() {
        let budget = RetryBudget::default();
        assert_eq!(begun(&budget, 20, 0), 3);
        budget.end();
        assert_eq!(begun(&budget, 20, 0), 1);
    }

    #[test]
    fn workers_that_begin_concurrently_never_exceed_the_budget() {
        let budget = RetryBudget::default();
        let start = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    start.wait();
                    for _ in 0..100_000 {
                        if budget.begin(20, 0) {
                            assert!(budget.running() <= 3);
                            budget.end();
                        }
                    }
                });
            }
        });
        assert_eq!(budget.running(), 0);
    }
}
