//! Measures the load of one server: connections in use against the limit, and latency.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::permits::{Permits, UNLIMITED};

/// Time in which half of the difference to a lower latency is forgotten.
const LATENCY_HALF_LIFE_MS: f32 = 10_000.0;

/// Interval at which a server that was never measured is offered one trial client.
const TRIAL_PAUSE_MS: u32 = 1_000;

/// Counters of one server, shared by every service that lists it and by every worker.
///
/// All orderings are relaxed: the counters are independent and publish no other data. Aligned to a
/// cache line so that the counters of two servers never share one.
#[derive(Debug)]
#[repr(align(64))]
pub struct Load {
    /// Connections of the server against its limit.
    pub permits: Permits,
    latency: AtomicU64,
}

impl Load {
    /// Creates the counters of an idle server; `None` means no limit.
    pub fn new(max_connections: Option<u32>) -> Load {
        Load {
            permits: Permits::new(max_connections.unwrap_or(UNLIMITED)),
            latency: AtomicU64::new(0),
        }
    }

    /// Changes the limit. Connections above a lowered limit remain until they end by themselves.
    pub fn set_max_connections(&self, max_connections: Option<u32>) {
        self.permits.set_limit(max_connections.unwrap_or(UNLIMITED));
    }

    /// Returns the number of reserved connections in this process.
    pub fn active(&self) -> u32 {
        self.permits.in_use()
    }

    /// Returns the number of reserved connections in all processes.
    pub fn active_everywhere(&self) -> u32 {
        self.active()
            .saturating_add(self.permits.in_use_elsewhere())
    }

    /// Returns whether a reservation would fail now.
    pub fn is_full(&self) -> bool {
        self.permits.is_full()
    }

    /// Reserves one connection under the limit; false if the server is full.
    pub fn try_reserve(&self) -> bool {
        self.permits.try_acquire()
    }

    /// Releases one reserved connection.
    pub fn release(&self) {
        let released = self.permits.release();
        debug_assert!(released, "released a connection that was not reserved");
    }

    /// Records that the server took `took_us` to respond.
    ///
    /// Peak EWMA: a slower response counts immediately and in full; faster ones lower the value
    /// slowly.
    pub fn observe_latency(&self, now_us: u64, took_us: u64) {
        let now = now_ms(now_us);
        let sample = (took_us as f32).max(1.0);
        // A lost race loses one sample, which the next sample compensates.
        let _ = self.latency.fetch_update(Relaxed, Relaxed, |packed| {
            let old = Latency::unpack(packed);
            Some(old.observe(now, sample).pack())
        });
    }

    /// Returns the estimated latency at `now_us`; zero means never measured.
    ///
    /// The value decays while nothing is measured, so that a server that was slow once is tried
    /// again.
    pub fn latency_us(&self, now_us: u64) -> u64 {
        let latency = Latency::unpack(self.latency.load(Relaxed));
        if latency.value_us == 0.0 {
            return 0;
        }
        let faded = latency.value_us * latency.kept(now_ms(now_us));
        (faded as u64).max(1)
    }

    /// Claims the trial of a server that was never measured; false if another client has claimed
    /// it.
    pub(crate) fn claim_trial(&self, now_us: u64) -> bool {
        let now = now_ms(now_us).max(1);
        self.latency
            .fetch_update(Relaxed, Relaxed, |packed| {
                let last = Latency::unpack(packed);
                let free = packed == 0 || age_ms(last.at_ms, now) >= TRIAL_PAUSE_MS;
                let claimed = Latency {
                    at_ms: now,
                    value_us: 0.0,
                };
                (last.value_us == 0.0 && free).then(|| claimed.pack())
            })
            .is_ok()
    }
}

/// Content of the 64-bit word: time of the last change and the value then; zero means never
/// measured.
///
/// Packed in one word so that readers never see the time of one sample with the value of another.
/// The value is a float because decay between two close samples is far below one microsecond.
#[derive(Clone, Copy)]
struct Latency {
    at_ms: u32,
    value_us: f32,
}

impl Latency {
    fn unpack(packed: u64) -> Latency {
        Latency {
            at_ms: (packed >> 32) as u32,
            value_us: f32::from_bits(packed as u32),
        }
    }

    fn pack(self) -> u64 {
        u64::from(self.at_ms) << 32 | u64::from(self.value_us.to_bits())
    }

    fn observe(self, now: u32, sample_us: f32) -> Latency {
        if sample_us >= self.value_us {
            return Latency {
                at_ms: now,
                value_us: sample_us,
            };
        }
        let kept = self.kept(now);
        let value_us = self.value_us * kept + sample_us * (1.0 - kept);
        // A worker with a slightly older clock must not set the time back: the value would decay
        // twice.
        let at_ms = if age_ms(self.at_ms, now) == 0 {
            self.at_ms
        } else {
            now
        };
        Latency { at_ms, value_us }
    }

    fn kept(self, now: u32) -> f32 {
        (-(age_ms(self.at_ms, now) as f32) / LATENCY_HALF_LIFE_MS).exp2()
    }
}

/// Returns milliseconds truncated to 32 bits. They wrap after 49 days, which `age_ms` handles.
fn now_ms(now_us: u64) -> u32 {
    (now_us / 1_000) as u32
}

/// Returns the time from `then` to `now`. Zero if `then` is slightly later, since workers read
/// their clocks separately.
fn age_ms(then: u32, now: u32) -> u32 {
    let age = now.wrapping_sub(then);
    if age > u32::MAX / 2 { 0 } else { age }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    const SECOND_US: u64 = 1_000_000;

    /// Uses a limit below the number of processors, so that it is reached all the time. Fails if
    /// the code checks for a free permit and then adds in two steps.
    #[test]
    fn eight_workers_reserving_at_once_never_exceed_the_limit() {
        let load = Load::new(Some(1));
        let held = AtomicU32::new(0);
        let start = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    for _ in 0..3_000_000 {
                        if load.try_reserve() {
                            let now = held.fetch_add(1, Relaxed) + 1;
                            assert!(now == 1 && load.active() == 1, "{now} held");
                            held.fetch_sub(1, Relaxed);
                            load.release();
                        }
                    }
                });
            }
        });
        assert_eq!(load.active(), 0);
    }

    #[test]
    fn a_lowered_limit_lets_the_old_connections_end_first() {
        let load = Load::new(None);
        assert!(load.try_reserve() && load.try_reserve());
        load.set_max_connections(Some(1));
        assert!(load.is_full());
        load.release();
        assert!(!load.try_reserve(), "one of one is still in use");
        load.release();
        assert!(load.try_reserve());
    }

    #[test]
    fn zero_latency_means_never_measured_and_only_that() {
        let load = Load::new(None);
        assert_eq!(load.latency_us(SECOND_US), 0);
        load.observe_latency(SECOND_US, 0);
        assert_eq!(load.latency_us(SECOND_US), 1);
        assert_eq!(load.latency_us(9_999 * SECOND_US), 1);
    }

    #[test]
    fn a_slower_answer_counts_at_once_and_fades_by_half_in_ten_seconds() {
        let load = Load::new(None);
        load.observe_latency(0, 1_000);
        load.observe_latency(0, 9_000);
        assert_eq!(load.latency_us(0), 9_000);
        load.observe_latency(10 * SECOND_US, 1_000);
        assert_eq!(load.latency_us(10 * SECOND_US), 5_000);
        assert_eq!(
            load.latency_us(20 * SECOND_US),
            2_500,
            "fades unmeasured, too"
        );
    }

    #[test]
    fn many_quick_answers_in_a_row_are_not_lost_to_rounding() {
        let load = Load::new(None);
        load.observe_latency(0, 100);
        for now_us in (0..60 * SECOND_US).step_by(200) {
            load.observe_latency(now_us, 50);
        }
        assert!((50..=52).contains(&load.latency_us(60 * SECOND_US)));
    }

    #[test]
    fn a_worker_whose_clock_is_a_little_behind_changes_nothing_wrongly() {
        let load = Load::new(None);
        load.observe_latency(5 * SECOND_US, 1_000);
        load.observe_latency(5 * SECOND_US - 3_000, 10);
        assert_eq!(load.latency_us(5 * SECOND_US - 9_000), 1_000);
    }

    #[test]
    fn one_client_a_second_tries_an_unmeasured_server() {
        let load = Load::new(None);
        assert!(load.claim_trial(0));
        assert!(!load.claim_trial(SECOND_US / 2));
        assert!(load.claim_trial(SECOND_US * 2));
        load.observe_latency(SECOND_US * 2, 40);
        assert!(!load.claim_trial(SECOND_US * 9), "it is measured now");
    }
}
