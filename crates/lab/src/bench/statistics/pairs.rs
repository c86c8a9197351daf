//! Computes ratios within blocks, which cancels slowdowns of a whole block.

use std::collections::BTreeMap;

use super::bootstrap::{Bootstrap, Interval};
use super::student;
use crate::bench::outcome::{Cell, Metric};

/// Value that replaces zero per cent answered: otherwise the worst target would have no ratio at
/// all.
const LEAST_ANSWERED_PERCENT: f64 = 0.1;

/// First and last point of a sweep that count; all if `None`.
pub(crate) type Points = Option<(f64, f64)>;

/// A requested ratio: one target's metric to another's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<'a> {
    pub(crate) load: &'a str,
    pub(crate) metric: Metric,
    pub(crate) target: &'a str,
    pub(crate) to: &'a str,
    pub(crate) points: Points,
}

/// Computes a ratio. Each block's ratio is the geometric mean over the points; the result is the
/// blocks' median with its interval. Blocks and points of only one target are left out, as are zero
/// divisors.
pub(crate) fn ratio(
    cells: &[&Cell],
    question: &Question,
    bootstrap: &Bootstrap,
) -> Option<Interval> {
    let above = values(cells, question, question.target);
    let below = values(cells, question, question.to);
    let mut blocks: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for ((block, point), value) in &above {
        if let Some(divisor) = below.get(&(*block, *point))
            && *value > 0.0
            && *divisor > 0.0
        {
            blocks
                .entry(*block)
                .or_default()
                .push((value / divisor).ln());
        }
    }
    // A block that was stopped by Ctrl-C has fewer points, and therefore another mean.
    let whole = blocks.values().map(Vec::len).max()?;
    let ratios: Vec<f64> = blocks
        .values()
        .filter(|logarithms| logarithms.len() == whole)
        .map(|logarithms| (logarithms.iter().sum::<f64>() / whole as f64).exp())
        .collect();
    interval(&ratios, bootstrap)
}

/// Returns the median of the blocks' ratios, with the interval that their number allows.
pub(super) fn interval(ratios: &[f64], bootstrap: &Bootstrap) -> Option<Interval> {
    student::interval(ratios).or_else(|| bootstrap.interval(ratios))
}

/// Returns the target's values by block and point. Points are compared by their bits: they come
/// from one list.
fn values(cells: &[&Cell], question: &Question, target: &str) -> BTreeMap<(u32, u64), f64> {
    cells
        .iter()
        .filter(|cell| cell.target == target && cell.load == question.load)
        .filter(|cell| cell.failure.is_none() && within(question.points, cell.point))
        .filter_map(|cell| {
            let mut value = *cell.values.get(&question.metric)?;
            if question.metric == Metric::AnsweredPercent {
                value = value.max(LEAST_ANSWERED_PERCENT);
            }
            Some(((cell.block, cell.point.to_bits()), value))
        })
        .collect()
}

/// Returns whether a point counts.
pub(crate) fn within(points: Points, point: f64) -> bool {
    points.is_none_or(|(from, until)| (from..=until).contains(&point))
}

#[cfg(test)]
mod tests {
    use super::super::sample::cell;
    use super::*;

    const QUESTION: Question = Question {
        load: "read",
        metric: Metric::Rate,
        target: "own",
        to: "direct",
        points: None,
    };

    fn asked(cells: &[Cell], question: &Question) -> Option<Interval> {
        ratio(
            &cells.iter().collect::<Vec<_>>(),
            question,
            &Bootstrap::new(1),
        )
    }

    #[test]
    fn a_ratio_is_taken_within_each_block() {
        // The ratio of the medians (5 and 10) is 0.5 too; within blocks the ratios are 0.5, 0.5 and
        // 2.
        let mut cells = Vec::new();
        for (block, own, direct) in [(1, 5.0, 10.0), (2, 20.0, 40.0), (3, 4.0, 2.0)] {
            cells.push(cell("own", "read", 8.0, block, own));
            cells.push(cell("direct", "read", 8.0, block, direct));
        }
        let interval = asked(&cells, &QUESTION).unwrap();
        assert!((interval.middle - 0.5).abs() < 1e-9, "{interval:?}");
        // The mean of the logarithms is a third of ln 0.5, their standard error 2/3 of ln 2.
        let high = (-2f64.ln() / 3.0 + 4.303 * 2f64.ln() * 2.0 / 3.0).exp();
        assert!((interval.high - high).abs() < 1e-9, "{interval:?}");
        assert_eq!(interval.blocks, 3);
    }

    #[test]
    fn points_are_averaged_geometrically() {
        let cells = [
            cell("own", "read", 8.0, 1, 10.0),
            cell("direct", "read", 8.0, 1, 20.0),
            cell("own", "read", 16.0, 1, 80.0),
            cell("direct", "read", 16.0, 1, 10.0),
        ];
        let all = asked(&cells, &QUESTION).unwrap();
        assert!((all.middle - 2.0).abs() < 1e-9, "{all:?}");
        let points = Some((10.0, 20.0));
        let upper = asked(&cells, &Question { points, ..QUESTION }).unwrap();
        assert!((upper.middle - 8.0).abs() < 1e-9, "{upper:?}");
    }

    #[test]
    fn a_block_that_was_cut_short_is_left_out() {
        let mut cells = vec![cell("own", "read", 8.0, 2, 1.0)];
        cells.push(cell("direct", "read", 8.0, 2, 9.0));
        for point in [8.0, 16.0] {
            cells.push(cell("own", "read", point, 1, 3.0));
            cells.push(cell("direct", "read", point, 1, 1.0));
        }
        let interval = asked(&cells, &QUESTION).unwrap();
        assert!((interval.middle - 3.0).abs() < 1e-9, "{interval:?}");
        assert_eq!(interval.blocks, 1);
    }

    #[test]
    fn who_answers_nothing_is_worse_than_who_answers_little() {
        let answers = |target: &str, percent: f64| {
            let mut cell = cell(target, "read", 8.0, 1, 0.0);
            cell.values.insert(Metric::AnsweredPercent, percent);
            cell
        };
        let metric = Metric::AnsweredPercent;
        let cells = [answers("own", 0.0), answers("direct", 50.0)];
        let found = asked(&cells, &Question { metric, ..QUESTION }).unwrap();
        assert!((found.middle - 0.002).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn what_failed_or_used_nothing_gives_no_ratio() {
        let mut failed = cell("own", "read", 8.0, 1, 5.0);
        failed.failure = Some("gave up".to_owned());
        let direct = cell("direct", "read", 8.0, 1, 10.0);
        assert_eq!(asked(&[failed, direct.clone()], &QUESTION), None);
        let nothing = cell("direct", "read", 8.0, 1, 0.0);
        let own = cell("own", "read", 8.0, 1, 5.0);
        assert_eq!(asked(&[own, nothing], &QUESTION), None);
        assert_eq!(asked(&[direct], &QUESTION), None);
    }
}
