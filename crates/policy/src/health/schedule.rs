//! Computes the time of the next probe: with jitter, sooner while in doubt, and later and later for
//! a dead server.

/// Minimum interval: a server in doubt is probed more often, but at most ten times per second.
const IN_DOUBT_MS_MIN: u64 = 100;

/// Returns the wait ±10 %, so that probes that began together drift apart.
pub(super) fn jittered(wait_ms: u64, random: u64) -> u64 {
    let tenth_ms = wait_ms / 10;
    (wait_ms - tenth_ms).saturating_add(random % (tenth_ms.saturating_mul(2) + 1))
}

/// Returns a quarter of the interval: the sooner the state is known, the fewer clients meet a dead
/// server.
pub(super) fn in_doubt_ms(interval_ms: u64, random: u64) -> u64 {
    jittered(interval_ms / 4, random).max(IN_DOUBT_MS_MIN)
}

/// Returns the next, longer wait for a server that stays dead.
pub(super) fn grown(wait_ms: u64, wait_ms_max: u64) -> u64 {
    let longer_ms = wait_ms.saturating_add((wait_ms / 2).max(1));
    longer_ms.min(wait_ms_max.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_stays_within_a_tenth_and_reaches_both_ends() {
        let waits: Vec<u64> = (0..1_000).map(|random| jittered(1_000, random)).collect();
        assert_eq!(waits.iter().min(), Some(&900));
        assert_eq!(waits.iter().max(), Some(&1_100));
    }

    #[test]
    fn the_wait_for_the_dead_grows_by_half_up_to_the_limit() {
        assert_eq!(grown(1_000, 60_000), 1_500);
        assert_eq!(grown(50_000, 60_000), 60_000);
        assert_eq!(grown(1, 60_000), 2, "small waits grow too");
    }

    #[test]
    fn extreme_waits_do_not_overflow() {
        for random in [0, 7, u64::MAX] {
            assert!(jittered(u64::MAX, random) > 0);
            assert!(in_doubt_ms(0, random) >= IN_DOUBT_MS_MIN);
        }
        assert_eq!(grown(u64::MAX, u64::MAX), u64::MAX);
    }
}
