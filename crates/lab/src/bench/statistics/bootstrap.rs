//! Computes the median of a few blocks and its bootstrap interval.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use serde::Serialize;

/// Distance of a ratio from 1 that counts as no difference.
pub(crate) const BAND: f64 = 0.03;

/// Minimum number of blocks for a statement.
pub(crate) const BLOCKS_LEAST: usize = 3;

/// Number of bootstrap draws; more change no digit that is shown.
const DRAWS: usize = 2_000;
/// Probability outside the interval on each side.
const TAIL: f64 = 0.025;

/// A median with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Interval {
    pub(crate) low: f64,
    pub(crate) middle: f64,
    pub(crate) high: f64,
    /// Number of blocks; with fewer than three, the interval is the observed range.
    pub(crate) blocks: usize,
}

/// Interpretation of the interval of a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Reading {
    /// The whole interval is above 1 by more than 3 %.
    More,
    /// The whole interval is below 1 by more than 3 %.
    Less,
    /// The whole interval is within 3 % of 1.
    NoDifference,
    /// The interval contains a limit, or there are too few blocks: the result is open.
    Unsettled,
}

impl Interval {
    /// Returns the interpretation as a ratio.
    pub(crate) fn reading(self) -> Reading {
        if self.blocks < BLOCKS_LEAST {
            Reading::Unsettled
        } else if self.low > 1.0 + BAND {
            Reading::More
        } else if self.high < 1.0 - BAND {
            Reading::Less
        } else if self.low >= 1.0 - BAND && self.high <= 1.0 + BAND {
            Reading::NoDifference
        } else {
            Reading::Unsettled
        }
    }

    /// Returns whether a value is within the interval after each end is moved out by 3 %.
    pub(crate) fn holds_when_widened(self, value: f64) -> bool {
        value >= self.low * (1.0 - BAND) && value <= self.high * (1.0 + BAND)
    }
}

/// Draws blocks with replacement. The draws depend only on the seed and the number of blocks, so
/// each number of blocks is drawn once and used for all intervals.
pub(crate) struct Bootstrap {
    seed: u64,
    drawn: RefCell<BTreeMap<usize, Rc<[Ranks]>>>,
}

/// Ranks, among all values, of the one or two values in the middle of a draw.
type Ranks = (usize, usize);

impl Bootstrap {
    pub(crate) fn new(seed: u64) -> Bootstrap {
        Bootstrap {
            seed,
            drawn: RefCell::default(),
        }
    }

    /// Returns the 95 % interval of the median: the middle 95 % of the draws' medians. Values that
    /// are not finite are left out; `None` if no value remains.
    pub(crate) fn interval(&self, values: &[f64]) -> Option<Interval> {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        let middle = middle(&sorted);
        let blocks = sorted.len();
        let (low, high) = match blocks {
            0..BLOCKS_LEAST => (least, most),
            _ => self.tails(&sorted),
        };
        Some(Interval {
            low,
            middle,
            high,
            blocks,
        })
    }

    fn tails(&self, sorted: &[f64]) -> (f64, f64) {
        let ranks = self.ranks(sorted.len());
        let mut medians: Vec<f64> = ranks
            .iter()
            .map(|(lower, upper)| f64::midpoint(sorted[*lower], sorted[*upper]))
            .collect();
        let tail = (TAIL * (DRAWS - 1) as f64).floor() as usize;
        let low = *medians.select_nth_unstable_by(tail, f64::total_cmp).1;
        let high = *medians
            .select_nth_unstable_by(DRAWS - 1 - tail, f64::total_cmp)
            .1;
        (low, high)
    }

    fn ranks(&self, blocks: usize) -> Rc<[Ranks]> {
        let mut drawn = self.drawn.borrow_mut();
        let draw = || {
            let mut random = Random(self.seed);
            let mut draw = vec![0; blocks];
            let mut ranks = || {
                draw.fill_with(|| random.below(blocks));
                draw.sort_unstable();
                (draw[(blocks - 1) / 2], draw[blocks / 2])
            };
            (0..DRAWS).map(|_| ranks()).collect()
        };
        drawn.entry(blocks).or_insert_with(draw).clone()
    }
}

/// Returns the middle value, or the mean of the two in the middle; `None` for no values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    (!sorted.is_empty()).then(|| middle(&sorted))
}

fn middle(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[half]
    } else {
        f64::midpoint(sorted[half - 1], sorted[half])
    }
}

/// SplitMix64: sufficient to draw blocks, and identical on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        // The upper 64 bits of the product are uniform up to 1 part in 2^64.
        ((u128::from(mixed) * limit as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(low: f64, high: f64) -> Interval {
        Interval {
            low,
            middle: f64::midpoint(low, high),
            high,
            blocks: 5,
        }
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_two_in_the_middle() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[7.0, 1.0, 3.0]), Some(3.0));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn five_blocks_give_their_range() {
        // The median of five draws is the minimum block if three or more draws are: 5.8 % of the
        // time, more than the tail of 2.5 %.
        let interval = Bootstrap::new(7)
            .interval(&[1.0, 1.3, 1.1, 0.9, 1.2])
            .unwrap();
        assert_eq!(
            (interval.low, interval.middle, interval.high),
            (0.9, 1.1, 1.3)
        );
    }

    #[test]
    fn nine_blocks_leave_the_outermost_two_out() {
        // The median of nine draws is at most rank k if five or more draws are. For rank 2 that is
        // binomial(9, 2/9) >= 5, 2.6 %; for rank 1 it is 0.1 %.
        let values: Vec<f64> = (1..=9).map(f64::from).collect();
        for seed in [1, 2] {
            let interval = Bootstrap::new(seed).interval(&values).unwrap();
            assert!((2.0..=3.0).contains(&interval.low), "{interval:?}");
            assert_eq!(interval.middle, 5.0);
            assert!((7.0..=8.0).contains(&interval.high), "{interval:?}");
        }
    }

    #[test]
    fn the_interval_narrows_with_the_blocks_as_theory_says() {
        // 101 even steps from 0 to 1: the 95 % interval of the median is 0.5 +- 1.96/(2 sqrt 101).
        let values: Vec<f64> = (0..=100).map(|step| f64::from(step) / 100.0).collect();
        let interval = Bootstrap::new(3).interval(&values).unwrap();
        assert!((interval.low - 0.402).abs() < 0.02, "{interval:?}");
        assert!((interval.high - 0.598).abs() < 0.02, "{interval:?}");
    }

    #[test]
    fn a_seed_gives_the_same_interval_again() {
        let values: Vec<f64> = (0..12).map(|step| f64::from(step * step)).collect();
        let of = |seed| Bootstrap::new(seed).interval(&values);
        assert_eq!(of(5), of(5));
    }

    #[test]
    fn what_is_not_finite_is_left_out() {
        let interval = Bootstrap::new(1)
            .interval(&[f64::NAN, 2.0, f64::INFINITY])
            .unwrap();
        assert_eq!((interval.middle, interval.blocks), (2.0, 1));
        assert_eq!(Bootstrap::new(1).interval(&[f64::NAN]), None);
    }

    #[test]
    fn a_reading_needs_the_whole_interval() {
        for (low, high, expect) in [
            (1.04, 1.20, Reading::More),
            (1.02, 1.20, Reading::Unsettled),
            (0.98, 1.02, Reading::NoDifference),
            (0.97, 1.03, Reading::NoDifference),
            (0.90, 1.00, Reading::Unsettled),
            (0.50, 0.96, Reading::Less),
            (0.50, 2.00, Reading::Unsettled),
        ] {
            assert_eq!(of(low, high).reading(), expect, "{low}..{high}");
        }
    }

    #[test]
    fn two_blocks_settle_nothing() {
        let blocks = 2;
        let interval = Interval {
            blocks,
            ..of(1.5, 1.6)
        };
        assert_eq!(interval.reading(), Reading::Unsettled);
    }

    #[test]
    fn an_interval_is_widened_at_both_ends() {
        let interval = of(0.50, 2.00);
        assert!(interval.holds_when_widened(0.486) && interval.holds_when_widened(2.05));
        assert!(!interval.holds_when_widened(0.484) && !interval.holds_when_widened(2.07));
    }
}
