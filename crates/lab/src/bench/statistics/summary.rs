//! Summarizes each target at each point: medians of every metric, ratios to the references.

use std::collections::BTreeMap;

use serde::Serialize;

use super::bootstrap::{BLOCKS_LEAST, Bootstrap, Interval, Reading, median};
use super::pairs::{self, Question, ratio};
use crate::bench::outcome::{Cell, Experiment, Load, Metric};

/// Metrics with ratios. Shares and counts have none, and neither has the longest latency, which
/// depends on a single stall.
const COMPARED: [Metric; 8] = [
    Metric::Rate,
    Metric::MeanMs,
    Metric::P50Ms,
    Metric::P95Ms,
    Metric::P99Ms,
    Metric::BalancerCpuUs,
    Metric::ServersCpuUs,
    Metric::LoadCpuUs,
];

/// One metric of one target at one point, over the blocks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) target: String,
    pub(crate) load: String,
    pub(crate) point: f64,
    pub(crate) metric: Metric,
    pub(crate) blocks: usize,
    pub(crate) least: f64,
    pub(crate) median: f64,
    pub(crate) most: f64,
    /// The median's 95 % interval; `None` if there are too few blocks.
    pub(crate) interval: Option<(f64, f64)>,
}

/// Ratio of a target's metric to a reference's at one point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Ratio {
    pub(crate) target: String,
    pub(crate) to: String,
    pub(crate) load: String,
    pub(crate) point: f64,
    pub(crate) metric: Metric,
    #[serde(flatten)]
    pub(crate) interval: Interval,
    pub(crate) reading: Reading,
}

/// Returns summaries in the order of loads, targets, points and metrics.
pub(crate) fn summaries(experiment: &Experiment, bootstrap: &Bootstrap) -> Vec<Summary> {
    let mut values: BTreeMap<(usize, usize, u64, Metric), Vec<f64>> = BTreeMap::new();
    for cell in experiment.cells.iter().filter(|c| c.failure.is_none()) {
        let load = experiment.loads.iter().position(|l| l.name == cell.load);
        let target = experiment
            .targets
            .iter()
            .position(|t| t.name == cell.target);
        if let (Some(load), Some(target)) = (load, target) {
            for (metric, value) in cell.values.iter().filter(|(_, value)| value.is_finite()) {
                // The bits of positive numbers have the order of the numbers.
                let key = (load, target, cell.point.to_bits(), *metric);
                values.entry(key).or_default().push(*value);
            }
        }
    }
    let summary = |((load, target, point, metric), values): (_, Vec<f64>)| {
        let (load, target): (usize, usize) = (load, target);
        Summary {
            target: experiment.targets[target].name.clone(),
            load: experiment.loads[load].name.clone(),
            point: f64::from_bits(point),
            metric,
            blocks: values.len(),
            least: values.iter().copied().fold(f64::INFINITY, f64::min),
            median: median(&values).unwrap_or(f64::NAN),
            most: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            interval: interval(&values, bootstrap),
        }
    };
    values.into_iter().map(summary).collect()
}

/// Returns the interval, computed as for ratios if all values have logarithms.
fn interval(values: &[f64], bootstrap: &Bootstrap) -> Option<(f64, f64)> {
    let found = if values.iter().all(|value| *value > 0.0) {
        pairs::interval(values, bootstrap)
    } else {
        bootstrap.interval(values)
    };
    let found = found.filter(|found| found.blocks >= BLOCKS_LEAST)?;
    Some((found.low, found.high))
}

/// Returns each target's ratio to each reference at each point.
pub(crate) fn ratios(experiment: &Experiment, bootstrap: &Bootstrap) -> Vec<Ratio> {
    let mut ratios = Vec::new();
    for (load, at_points) in by_load_and_point(experiment) {
        for target in &experiment.targets {
            for to in experiment.references.iter().filter(|r| **r != target.name) {
                for (point, cells) in &at_points {
                    let found = |metric: &Metric| {
                        let question = Question {
                            load,
                            metric: *metric,
                            target: &target.name,
                            to,
                            points: None,
                        };
                        let interval = ratio(cells, &question, bootstrap)?;
                        Some(Ratio::of(&question, *point, interval))
                    };
                    ratios.extend(COMPARED.iter().filter_map(found));
                }
            }
        }
    }
    ratios
}

type AtPoint<'a> = (f64, Vec<&'a Cell>);

fn by_load_and_point(experiment: &Experiment) -> Vec<(&str, Vec<AtPoint<'_>>)> {
    let of_load = |load: &'_ Load| {
        let mut points: BTreeMap<u64, Vec<&Cell>> = BTreeMap::new();
        for cell in experiment.cells.iter().filter(|c| c.load == load.name) {
            points.entry(cell.point.to_bits()).or_default().push(cell);
        }
        points
            .into_iter()
            .map(|(bits, cells)| (f64::from_bits(bits), cells))
            .collect()
    };
    let loads = experiment.loads.iter();
    loads
        .map(|load| (load.name.as_str(), of_load(load)))
        .collect()
}

impl Ratio {
    fn of(question: &Question, point: f64, interval: Interval) -> Ratio {
        Ratio {
            target: question.target.to_owned(),
            to: question.to.to_owned(),
            load: question.load.to_owned(),
            point,
            metric: question.metric,
            interval,
            reading: interval.reading(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{cell, experiment};
    use super::*;

    #[test]
    fn medians_stand_with_the_least_and_the_most_block() {
        let mut experiment = experiment(&["own"], &["read"]);
        for (block, value) in [(1, 30.0), (2, 10.0), (3, 20.0)] {
            experiment
                .cells
                .push(cell("own", "read", 8.0, block, value));
        }
        let found = summaries(&experiment, &Bootstrap::new(1));
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].least, found[0].median, found[0].most),
            (10.0, 20.0, 30.0)
        );
        let (low, high) = found[0].interval.unwrap();
        assert!(low < 10.0 && high > 30.0, "three blocks say little");
        experiment.cells.truncate(2);
        let found = summaries(&experiment, &Bootstrap::new(1));
        assert_eq!(found[0].interval, None);
    }

    #[test]
    fn points_come_in_rising_order_and_targets_in_the_experiments() {
        let mut experiment = experiment(&["b", "a"], &["read"]);
        for (target, point) in [("a", 8.0), ("b", 128.0), ("b", 16.0)] {
            experiment.cells.push(cell(target, "read", point, 1, 1.0));
        }
        let found = summaries(&experiment, &Bootstrap::new(1));
        let order: Vec<_> = found.iter().map(|s| (s.target.as_str(), s.point)).collect();
        assert_eq!(order, [("b", 16.0), ("b", 128.0), ("a", 8.0)]);
    }

    #[test]
    fn every_target_is_compared_with_every_reference_but_itself() {
        let mut experiment = experiment(&["direct", "own"], &["read"]);
        experiment.references = vec!["direct".to_owned(), "own".to_owned()];
        for target in ["direct", "own"] {
            experiment.cells.push(cell(target, "read", 8.0, 1, 2.0));
        }
        let found = ratios(&experiment, &Bootstrap::new(1));
        let pairs: Vec<_> = found
            .iter()
            .map(|r| (r.target.as_str(), r.to.as_str()))
            .collect();
        assert_eq!(pairs, [("direct", "own"), ("own", "direct")]);
        assert_eq!(found[0].reading, Reading::Unsettled, "one block");
    }
}
