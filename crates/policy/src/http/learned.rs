//! Learns how long a server keeps an idle connection, so that requests that cannot be repeated are
//! not sent over one that it is about to close.
//!
//! A server closes an idle connection without notice (RFC 9112 §9.5), and the close may cross a
//! request. Half of the shortest age at which it has closed one is far from its limit.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Time in which the learned limit doubles, until it has no effect. A server may have closed its
/// connections for another reason, such as a restart, or its limit may have been raised. A server
/// that keeps its limit confirms it sooner, whenever it closes a connection.
const DOUBLING_S: u32 = 60;

/// Limit of one server for idle connections, shared by all workers.
#[derive(Debug, Default)]
pub struct LearnedIdle {
    /// Second of the observation in the upper half, the limit then plus 1 in the lower half, in
    /// milliseconds. Zero: nothing was observed.
    packed: AtomicU64,
}

impl LearnedIdle {
    /// Records that the server closed a connection that had been idle for `idle_ms`. That includes
    /// a connection that broke before the first byte of an answer: its idle age when the request
    /// was sent.
    pub fn closed(&self, now_s: u32, idle_ms: u64) {
        let idle_ms = u32::try_from(idle_ms).unwrap_or(u32::MAX - 1);
        // A limit that has grown by an eighth is written again, and not before: workers report an
        // announced limit with every answer.
        let written_ms = idle_ms.saturating_add(idle_ms / 8);
        let shorter = |packed| {
            let is_shorter = limit_ms(packed, now_s).is_none_or(|limit_ms| written_ms < limit_ms);
            is_shorter.then(|| u64::from(now_s) << 32 | u64::from(idle_ms.saturating_add(1)))
        };
        // An error means that this limit or a shorter one is known.
        let _ = self.packed.fetch_update(Relaxed, Relaxed, shorter);
    }

    /// Records that the server has announced its limit: `Keep-Alive: timeout=SECONDS`. Writes
    /// nothing while the limit is known, so that workers may call it for every answer.
    pub fn announced(&self, now_s: u32, timeout_s: u32) {
        self.closed(now_s, u64::from(timeout_s) * 1_000);
    }

    /// Returns the age up to which an idle connection may carry a request that cannot be repeated:
    /// half of the learned limit. `None`: nothing is known.
    pub fn safe_age_ms(&self, now_s: u32) -> Option<u32> {
        limit_ms(self.packed.load(Relaxed), now_s).map(|limit_ms| limit_ms / 2)
    }

    /// Returns whether a connection that has been idle for `idle_ms` may carry a request.
    pub fn may_carry(&self, now_s: u32, idle_ms: u64, may_race: bool) -> bool {
        let is_safe = |safe_ms: u32| idle_ms < u64::from(safe_ms);
        may_race || self.safe_age_ms(now_s).is_none_or(is_safe)
    }
}

/// Returns the limit that is assumed now.
fn limit_ms(packed: u64, now_s: u32) -> Option<u32> {
    let limit_ms = u64::from((packed as u32).checked_sub(1)?);
    // The clocks of two workers may differ a little.
    let age_s = now_s.saturating_sub((packed >> 32) as u32);
    // A limit of zero grows, too.
    let grown_ms = limit_ms.max(u64::from(age_s >= DOUBLING_S));
    let doubled_ms = grown_ms.checked_mul(1_u64.checked_shl(age_s / DOUBLING_S)?)?;
    let part_ms = doubled_ms.checked_mul(u64::from(age_s % DOUBLING_S))? / u64::from(DOUBLING_S);
    u32::try_from(doubled_ms + part_ms).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_limits_before_something_was_observed() {
        let learned = LearnedIdle::default();
        assert_eq!(learned.safe_age_ms(5), None);
        assert!(learned.may_carry(5, u64::MAX, false));
    }

    #[test]
    fn half_of_the_shortest_age_is_safe() {
        let learned = LearnedIdle::default();
        learned.closed(100, 400);
        assert_eq!(learned.safe_age_ms(100), Some(200));
        learned.closed(100, 300);
        learned.closed(100, 900);
        learned.closed(100, 299);
        assert_eq!(learned.safe_age_ms(100), Some(150));
        assert!(learned.may_carry(100, 149, false));
        assert!(!learned.may_carry(100, 150, false));
        assert!(learned.may_carry(100, 150, true));
    }

    #[test]
    fn a_server_that_closes_immediately_gets_fresh_connections_only() {
        let learned = LearnedIdle::default();
        learned.closed(100, 0);
        assert_eq!(learned.safe_age_ms(100), Some(0));
        assert!(!learned.may_carry(100, 0, false));
        assert_eq!(learned.safe_age_ms(160), Some(1));
        assert!(
            learned
                .safe_age_ms(100 + 60 * 15)
                .is_some_and(|age| age > 10_000)
        );
    }

    #[test]
    fn the_limit_doubles_each_minute_until_it_has_no_effect() {
        let learned = LearnedIdle::default();
        learned.closed(100, 1_000);
        assert_eq!(learned.safe_age_ms(100), Some(500));
        assert_eq!(learned.safe_age_ms(130), Some(750));
        assert_eq!(learned.safe_age_ms(160), Some(1_000));
        assert_eq!(learned.safe_age_ms(280), Some(4_000));
        assert_eq!(learned.safe_age_ms(100 + 60 * 60), None);
        assert_eq!(learned.safe_age_ms(u32::MAX), None);
        assert_eq!(
            learned.safe_age_ms(99),
            Some(500),
            "a clock that is a little late"
        );
    }

    #[test]
    fn a_longer_age_does_not_delay_the_growth_and_ends_it() {
        let learned = LearnedIdle::default();
        learned.closed(0, 50);
        for now_s in 0..600 {
            learned.closed(now_s, 200);
        }
        let age = learned.safe_age_ms(600).expect("a limit");
        assert!((100..115).contains(&age), "{age}");
    }

    #[test]
    fn an_announced_limit_is_learned_and_written_some_times_a_minute() {
        let learned = LearnedIdle::default();
        learned.announced(100, 5);
        assert_eq!(learned.safe_age_ms(100), Some(2_500));
        let before = learned.packed.load(Relaxed);
        learned.announced(107, 5);
        assert_eq!(learned.packed.load(Relaxed), before);
        learned.announced(108, 5);
        assert_eq!(learned.safe_age_ms(108), Some(2_500));
        learned.announced(108, u32::MAX);
        assert_eq!(learned.safe_age_ms(108), Some(2_500));
        let first = LearnedIdle::default();
        first.announced(1, u32::MAX);
        assert!(first.safe_age_ms(1).is_some_and(|age| age > 2_000_000_000));
    }

    /// An origin with a fixed limit that closes idle connections, and requests at random times that
    /// cannot be repeated. The time between both ends is up to 10 ms each way.
    #[test]
    fn once_a_fixed_limit_is_learned_no_request_is_near_it() {
        const DELAY_MS: u64 = 10;
        for limit_ms in [50_u64, 80, 120, 300, 500] {
            let learned = LearnedIdle::default();
            let mut state = limit_ms;
            let (mut now_ms, mut idle_since_ms) = (0, 0);
            let (mut risks, mut learned_at_ms) = (0, None);
            for _ in 0..100_000 {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                now_ms += (state >> 33) % 700;
                let now_s = (now_ms / 1_000) as u32;
                let idle_ms = now_ms - idle_since_ms;
                if idle_ms > limit_ms + DELAY_MS {
                    learned.closed(now_s, limit_ms + DELAY_MS);
                    learned_at_ms.get_or_insert(now_ms);
                } else if learned.may_carry(now_s, idle_ms, false) {
                    let is_near = idle_ms + DELAY_MS >= limit_ms;
                    risks += u32::from(is_near && learned_at_ms.is_some());
                }
                idle_since_ms = now_ms;
            }
            assert_eq!(risks, 0, "limit {limit_ms}");
        }
    }
}
