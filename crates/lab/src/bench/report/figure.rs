//! Draws the figures that an experiment's file declares, from its cells.

mod chart;
mod lines;
mod outage;
mod palette;
mod rows;

pub(super) use chart::SCALE;
pub(super) use palette::dark_rules;
pub(super) use rows::singular;

use anyhow::Result;

use super::html::Svg;
use crate::bench::outcome::{Better, Cell, Drawing, Experiment, Figure, Load, Metric};
use crate::bench::statistics::{Bootstrap, Points, Summary, within};
use palette::TargetStyle;

/// A figure and the data it is drawn from.
struct Subject<'a> {
    experiment: &'a Experiment,
    figure: &'a Figure,
    summaries: &'a [Summary],
    cells: Vec<&'a Cell>,
    target_styles: &'a [TargetStyle],
    bootstrap: &'a Bootstrap,
}

/// Draws a figure; returns `None` if there is nothing to show.
pub(super) fn draw(
    experiment: &Experiment,
    figure: &Figure,
    summaries: &[Summary],
    bootstrap: &Bootstrap,
) -> Result<Option<Svg>> {
    let subject = Subject {
        experiment,
        figure,
        summaries,
        cells: experiment.cells.iter().collect(),
        target_styles: &palette::target_styles(&experiment.targets),
        bootstrap,
    };
    let loads = subject.loads();
    match (figure.drawing, loads.first()) {
        (Drawing::Outage, _) => outage::timeline(&subject),
        (_, None) => Ok(None),
        (Drawing::Bars, _) => rows::bars(&subject, &loads),
        (Drawing::Shares, _) => rows::shares(&subject, &loads),
        (Drawing::Cpu, _) => rows::cpu(&subject, &loads),
        (Drawing::Ratios, _) => rows::ratios(&subject, &loads),
        // A single point makes no line.
        (Drawing::Lines, Some(load)) => match lines::medians(&subject, load)? {
            Some(svg) => Ok(Some(svg)),
            None => rows::bars(&subject, &loads[..1]),
        },
        (Drawing::Percent, Some(load)) => match lines::percent(&subject, load)? {
            Some(svg) => Ok(Some(svg)),
            None => rows::ratios(&subject, &loads[..1]),
        },
    }
}

impl<'a> Subject<'a> {
    /// Returns the load that the figure names, or all.
    fn loads(&self) -> Vec<&'a Load> {
        let named = self.figure.load.as_ref();
        self.experiment
            .loads
            .iter()
            .filter(|load| named.is_none_or(|name| *name == load.name))
            .collect()
    }

    /// Returns the target with which the others are compared under this load.
    fn reference(&self, load: &str) -> Option<&'a str> {
        let has_run = |name: &&String| self.good_cells(name, load).next().is_some();
        let named = self.figure.reference.as_ref();
        let first = || self.experiment.references.iter().find(has_run);
        named.or_else(first).map(String::as_str)
    }

    fn title(&self, target: &'a str) -> &'a str {
        self.index_of(target)
            .map_or(target, |index| self.title_of(index))
    }

    fn servers(&self, target: &str) -> u32 {
        self.index_of(target)
            .map_or(0, |index| self.experiment.targets[index].servers)
    }

    fn title_of(&self, target: usize) -> &'a str {
        &self.experiment.targets[target].title
    }

    fn index_of(&self, target: &str) -> Option<usize> {
        self.experiment
            .targets
            .iter()
            .position(|t| t.name == target)
    }

    /// Returns `of` each of the figure's targets, in the experiment's order.
    fn each_target<T>(&self, of: impl Fn(usize, &'a str) -> T) -> Vec<T> {
        let wanted = &self.figure.targets;
        self.experiment
            .targets
            .iter()
            .enumerate()
            .filter(|(_, target)| wanted.is_empty() || wanted.contains(&target.name))
            .map(|(index, target)| of(index, target.name.as_str()))
            .collect()
    }

    fn rows<T>(&self, of: impl Fn(&'a str) -> Option<T>) -> Vec<(usize, T)> {
        let rows = self.each_target(|index, name| Some((index, of(name)?)));
        rows.into_iter().flatten().collect()
    }

    /// Returns the summaries of the figure's metric.
    fn summaries(&self, target: &str, load: &str) -> impl Iterator<Item = &'a Summary> {
        let (target, load) = (target.to_owned(), load.to_owned());
        let metric = self.figure.metric;
        self.summaries
            .iter()
            .filter(move |s| s.metric == metric && s.target == target && s.load == load)
    }

    fn points(&self, load: &str) -> Vec<f64> {
        let of_load = self.cells.iter().filter(|cell| cell.load == load);
        let mut points: Vec<f64> = of_load.map(|cell| cell.point).collect();
        points.sort_by(f64::total_cmp);
        points.dedup();
        points
    }

    fn good_cells(&self, target: &str, load: &str) -> impl Iterator<Item = &'a Cell> {
        let good = |cell: &&&Cell| cell.failure.is_none();
        let of = |cell: &&&Cell| cell.target == target && cell.load == load;
        let cells: Vec<&'a Cell> = self.cells.iter().filter(of).filter(good).copied().collect();
        cells.into_iter()
    }

    /// Returns the values of all blocks at the points that count.
    fn values(&self, target: &str, load: &str, metric: Metric, points: Points) -> Vec<f64> {
        self.good_cells(target, load)
            .filter(|cell| within(points, cell.point))
            .filter_map(|cell| cell.values.get(&metric).copied())
            .filter(|value| value.is_finite())
            .collect()
    }

    /// Returns each block's mean over the figure's points; blocks that lack some are left out.
    fn block_means(&self, target: &str, load: &str, metric: Metric) -> Vec<f64> {
        let mut blocks = std::collections::BTreeMap::<u32, Vec<f64>>::new();
        for cell in self.good_cells(target, load) {
            if within(self.figure.points, cell.point)
                && let Some(value) = cell.values.get(&metric).filter(|v| v.is_finite())
            {
                blocks.entry(cell.block).or_default().push(*value);
            }
        }
        let whole = blocks.values().map(Vec::len).max().unwrap_or(0);
        blocks
            .into_values()
            .filter(|values| values.len() == whole)
            .map(|values| values.iter().sum::<f64>() / whole as f64)
            .collect()
    }

    /// Returns the point at which a target's median is best.
    fn peak(&self, target: &str, load: &str, metric: Metric) -> Option<f64> {
        let of = |s: &&Summary| s.metric == metric && s.target == target && s.load == load;
        let found = self.summaries.iter().filter(of);
        let by_median = |a: &&Summary, b: &&Summary| a.median.total_cmp(&b.median);
        let best = match metric.better() {
            Better::More => found.max_by(by_median),
            Better::Less => found.min_by(by_median),
        };
        best.map(|summary| summary.point)
    }

    /// Returns each server's share of a target's requests, in per cent.
    fn shares(&self, target: &str, load: &str, servers: &[String]) -> Option<Vec<f64>> {
        let cells: Vec<&Cell> = self
            .good_cells(target, load)
            .filter(|cell| within(self.figure.points, cell.point))
            .collect();
        let shares = || cells.iter().flat_map(|cell| &cell.shares);
        let all: u64 = shares().map(|share| share.requests).sum();
        let of = |server: &String| {
            let own = shares().filter(|share| share.server == *server);
            100.0 * own.map(|share| share.requests).sum::<u64>() as f64 / all as f64
        };
        (all > 0).then(|| servers.iter().map(of).collect())
    }
}
