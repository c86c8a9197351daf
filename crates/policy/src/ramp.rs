//! Slow start: computes the part of its weight that a server has while it warms up after recovery.

/// Factor between configured weights and members' weights, so that a tenth of weight 1 is still an
/// integer.
///
/// The weights of servers that do not ramp are scaled too: only the ratio between weights matters.
pub const WEIGHT_SCALE: u32 = 10;

/// Number of steps in which the weight grows. Each step costs a new snapshot, and clients would not
/// notice finer ones.
const STEPS: u64 = 10;

/// Weight of a server at one moment of its slow start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RampedWeight {
    /// Value for `Member::weight`: scaled by `WEIGHT_SCALE`, zero only if the configured weight is
    /// zero.
    pub weight: u32,
    /// Time until the next step, in ms; `None` at full weight.
    pub next_step_in_ms: Option<u64>,
}

/// Returns the weight of a server that has been up for `up_for_ms`. `slow_start_ms` zero means no
/// slow start.
///
/// The weight grows with the elapsed tenths of the slow start: at least one tenth, and full exactly
/// at the end.
pub fn effective_weight(weight: u32, up_for_ms: u64, slow_start_ms: u64) -> RampedWeight {
    if weight == 0 || up_for_ms >= slow_start_ms {
        return RampedWeight {
            weight: weight.saturating_mul(WEIGHT_SCALE),
            next_step_in_ms: None,
        };
    }
    let step = step_at(up_for_ms, slow_start_ms).max(1);
    let full = u64::from(weight) * u64::from(WEIGHT_SCALE);
    let ramped = (full * step / STEPS).max(1);
    RampedWeight {
        weight: u32::try_from(ramped).unwrap_or(u32::MAX),
        next_step_in_ms: Some(step_starts_ms(step + 1, slow_start_ms) - up_for_ms),
    }
}

fn step_at(up_for_ms: u64, slow_start_ms: u64) -> u64 {
    let step = u128::from(up_for_ms) * u128::from(STEPS) / u128::from(slow_start_ms);
    u64::try_from(step).unwrap_or(STEPS)
}

/// Returns the first millisecond at which `step_at` returns `step`.
fn step_starts_ms(step: u64, slow_start_ms: u64) -> u64 {
    let start = (u128::from(step) * u128::from(slow_start_ms)).div_ceil(u128::from(STEPS));
    u64::try_from(start).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_of_weight_one_starts_with_a_tenth_and_ends_with_all() {
        assert_eq!(effective_weight(1, 0, 10_000).weight, 1);
        assert_eq!(effective_weight(1, 5_000, 10_000).weight, 5);
        assert_eq!(effective_weight(1, 9_999, 10_000).weight, 9);
        assert_eq!(effective_weight(1, 10_000, 10_000).weight, WEIGHT_SCALE);
    }

    #[test]
    fn without_slow_start_the_weight_is_full_at_once() {
        let ramped = effective_weight(7, 0, 0);
        assert_eq!(
            ramped,
            RampedWeight {
                weight: 70,
                next_step_in_ms: None
            }
        );
    }

    #[test]
    fn a_weight_of_zero_stays_zero_and_no_other_becomes_it() {
        assert_eq!(effective_weight(0, 5, 10).weight, 0);
        for up_for_ms in 0..30 {
            assert!(effective_weight(1, up_for_ms, 30).weight > 0);
        }
    }

    #[test]
    fn following_the_steps_climbs_through_ten_levels_and_arrives_on_time() {
        for slow_start_ms in [1, 3, 7, 10, 999, 30_000, u64::MAX / 2] {
            let mut up_for_ms = 0;
            let mut levels = vec![effective_weight(3, 0, slow_start_ms)];
            while let Some(wait_ms) = levels.last().and_then(|level| level.next_step_in_ms) {
                assert!(wait_ms > 0, "a step of no time would spin");
                up_for_ms += wait_ms;
                levels.push(effective_weight(3, up_for_ms, slow_start_ms));
            }
            assert_eq!(up_for_ms, slow_start_ms);
            assert!(
                levels
                    .windows(2)
                    .all(|pair| pair[0].weight < pair[1].weight)
            );
            assert!(levels.len() == 10 || slow_start_ms < 10);
        }
    }

    #[test]
    fn huge_weights_do_not_overflow() {
        assert_eq!(effective_weight(u32::MAX, 0, 0).weight, u32::MAX);
        assert_eq!(effective_weight(u32::MAX, 9, 10).weight, u32::MAX);
    }
}
