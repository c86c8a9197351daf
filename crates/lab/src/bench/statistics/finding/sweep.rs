//! Checks a target along its sweep: the knee, the peak, and the share that it keeps.

use std::collections::BTreeMap;

use super::super::bootstrap::{BAND, BLOCKS_LEAST, Interval, median};
use super::super::pairs::{self, Question};
use super::{FindingChecker, Opinion, Verdict, several, within_limits};
use crate::bench::outcome::{Better, Metric};

impl FindingChecker<'_> {
    /// Checks the point at which a target first reaches a gain.
    pub(super) fn knee(
        &self,
        question: &Question,
        gain: f64,
        (from, until): (f64, f64),
    ) -> Opinion {
        let ratios = self.ratios(question);
        if ratios.is_empty() {
            return self.not_run(question);
        }
        let pair = self.pair(question);
        let reached = ratios.iter().find(|(_, found)| found.middle >= gain);
        let numbers = match reached {
            Some((at, found)) => format!(
                "{pair} reaches × {gain} at {at} (× {:.2}, {:.2} to {:.2}; {})",
                found.middle,
                found.low,
                found.high,
                several(found.blocks, "block")
            ),
            None => {
                let most = ratios.iter().map(|(_, found)| found.middle);
                let most = most.fold(0.0, f64::max);
                format!("{pair} never reaches × {gain}; the most is × {most:.2}")
            }
        };
        let axis = self.axis(question.load);
        (
            knee_within(&ratios, gain, (from, until)),
            format!("{numbers}; holds if {from} to {until} {axis}"),
        )
    }

    /// Checks the point at which a target is best.
    pub(super) fn peak(
        &self,
        load: &str,
        metric: Metric,
        target: &str,
        (from, until): (f64, f64),
    ) -> Opinion {
        let medians = self.medians(load, metric, target);
        let Some((at, best)) = best(&medians, metric) else {
            let numbers = format!("{} was not run", self.title(target));
            return (Verdict::NotShown, numbers);
        };
        let is_within = |at: f64| (from..=until).contains(&at);
        let near = |value: f64| (value / best - 1.0).abs() <= BAND;
        let is_enough = medians.iter().all(|(.., blocks)| *blocks >= BLOCKS_LEAST);
        let inside = || medians.iter().filter(|(at, ..)| is_within(*at));
        let verdict = if !is_enough || [0, medians.len()].contains(&inside().count()) {
            Verdict::NotShown
        } else if inside().any(|(_, value, _)| near(*value)) {
            Verdict::Holds
        } else {
            Verdict::DoesNotHold
        };
        let numbers = format!(
            "{} is best at {at} ({best:.decimals$} {}); holds if {from} to {until} {}",
            self.title(target),
            self.noun(metric, load),
            self.axis(load),
            decimals = if best >= 100.0 { 0 } else { 2 },
        );
        (verdict, numbers)
    }

    /// Checks the share of its best that a target keeps at a point.
    pub(super) fn keeps(
        &self,
        load: &str,
        metric: Metric,
        target: &str,
        (at, at_least): (f64, f64),
    ) -> Opinion {
        let kept = self.kept(load, metric, target, at);
        let Some(found) = pairs::interval(&kept, self.bootstrap) else {
            let title = self.title(target);
            let numbers = format!("{title} was not run at {at} and at another point");
            return (Verdict::NotShown, numbers);
        };
        let numbers = format!(
            "{} at {at} {}: × {:.2} of its best ({:.2} to {:.2}; {}); holds if at least {at_least}",
            self.title(target),
            self.axis(load),
            found.middle,
            found.low,
            found.high,
            several(found.blocks, "block")
        );
        (within_limits(found, Some(at_least), None), numbers)
    }

    /// Returns the kept share of each block that has the point and another one.
    fn kept(&self, load: &str, metric: Metric, target: &str, at: f64) -> Vec<f64> {
        let mut blocks: BTreeMap<u32, Vec<(f64, f64)>> = BTreeMap::new();
        for cell in self.cells(load, target) {
            let value = cell.values.get(&metric).filter(|value| **value > 0.0);
            let points = blocks.entry(cell.block).or_default();
            points.extend(value.map(|value| (cell.point, *value)));
        }
        let of_block = |points: Vec<(f64, f64)>| {
            let (_, value) = points.iter().find(|(point, _)| *point == at)?;
            let others = points.iter().filter(|(point, _)| *point != at);
            let share = |other: &f64| match metric.better() {
                Better::More => value / other,
                Better::Less => other / value,
            };
            others.map(|(_, other)| share(other)).min_by(f64::total_cmp)
        };
        let kept = blocks.into_values().filter_map(of_block);
        kept.map(|share| share.min(1.0)).collect()
    }

    /// Returns the ratio at each point at which both were run, in ascending order.
    fn ratios(&self, question: &Question) -> Vec<(f64, Interval)> {
        let mut points: Vec<f64> = self
            .cells(question.load, question.target)
            .map(|cell| cell.point)
            .collect();
        points.sort_by(f64::total_cmp);
        points.dedup();
        let at = |point: f64| {
            let points = Some((point, point));
            let found = self.measured_ratio(&Question {
                points,
                ..*question
            })?;
            Some((point, found))
        };
        points.into_iter().filter_map(at).collect()
    }

    /// Returns point, median and number of blocks, in ascending order of points.
    fn medians(&self, load: &str, metric: Metric, target: &str) -> Vec<(f64, f64, usize)> {
        let mut values: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for cell in self.cells(load, target) {
            let values = values.entry(cell.point.to_bits()).or_default();
            values.extend(cell.values.get(&metric));
        }
        values
            .into_iter()
            .filter_map(|(bits, values)| {
                Some((f64::from_bits(bits), median(&values)?, values.len()))
            })
            .collect()
    }
}

/// Checks the knee; between two measured points its position is unknown.
fn knee_within(ratios: &[(f64, Interval)], gain: f64, (from, until): (f64, f64)) -> Verdict {
    if ratios.iter().any(|(_, found)| found.blocks < BLOCKS_LEAST) {
        return Verdict::NotShown;
    }
    let reaches = |at: &dyn Fn(f64) -> bool| {
        ratios
            .iter()
            .any(|(point, found)| at(*point) && found.low >= gain)
    };
    let misses = |at: &dyn Fn(f64) -> bool| {
        ratios
            .iter()
            .any(|(point, found)| at(*point) && found.high < gain)
    };
    let is_early = reaches(&|point| point < from);
    let is_not_early = from <= 1.0 || misses(&|point| point < from);
    if is_early || misses(&|point| point >= until) {
        Verdict::DoesNotHold
    } else if is_not_early && reaches(&|point| (from..=until).contains(&point)) {
        Verdict::Holds
    } else {
        Verdict::NotShown
    }
}

fn best(medians: &[(f64, f64, usize)], metric: Metric) -> Option<(f64, f64)> {
    let points = medians.iter().map(|(at, value, _)| (*at, *value));
    points.reduce(|best, next| match metric.better() {
        Better::More if next.1 > best.1 => next,
        Better::Less if next.1 < best.1 => next,
        _ => best,
    })
}
