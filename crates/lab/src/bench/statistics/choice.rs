//! Determines the best balancer and those that are equivalent to it.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use serde::Serialize;

use super::bootstrap::{BLOCKS_LEAST, Bootstrap, Interval, Reading};
use super::pairs::{Points, Question, ratio, within};
use crate::bench::outcome::{Better, Cell, Check, Experiment, Load, Loop, Metric, Target};

/// The best of the balancers in front of the same servers, by one metric of one load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Choice {
    pub(crate) load: String,
    pub(crate) metric: Metric,
    pub(crate) points: Points,
    pub(crate) best: String,
    /// The reference that is no balancer, if it has run this load, and the best one's ratio to it.
    pub(crate) by_reference: Option<(String, Interval)>,
    /// The other balancers in relation to the best, better ones first.
    pub(crate) others: Vec<Other>,
}

/// A balancer other than the best.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Other {
    pub(crate) target: String,
    /// Ratio of its metric to the best one's.
    pub(crate) by_best: Interval,
    pub(crate) standing: Standing,
}

/// Relation of a balancer to the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Standing {
    /// The blocks do not distinguish the two, or there is no difference.
    Alike,
    /// The whole interval is on the worse side, beyond the no-difference band.
    Behind,
    /// The two have too few common blocks.
    TooFewBlocks,
}

/// Returns choices for each part of the experiment, by the metric of its first finding and by the
/// balancer's own processor time.
pub(crate) fn choices(experiment: &Experiment, bootstrap: &Bootstrap) -> Vec<Choice> {
    let mut choices = Vec::new();
    for loads in parts(experiment) {
        let Some((load, metric, points)) = topic(experiment, &loads) else {
            continue;
        };
        let contests = [metric, Metric::BalancerCpuUs].map(|metric| Contest {
            experiment,
            bootstrap,
            load,
            metric,
            points,
        });
        choices.extend(contests.iter().filter_map(Contest::choice));
    }
    choices
}

/// Groups loads whose cells share targets: they used the same servers.
fn parts(experiment: &Experiment) -> Vec<Vec<&Load>> {
    let mut parts: Vec<(BTreeSet<&str>, Vec<&Load>)> = Vec::new();
    for load in &experiment.loads {
        let cells = experiment.cells.iter().filter(|c| c.load == load.name);
        let targets: BTreeSet<&str> = cells.map(|cell| cell.target.as_str()).collect();
        let known = parts.iter_mut().find(|(of, _)| !of.is_disjoint(&targets));
        match known {
            Some((of, loads)) => {
                of.extend(targets);
                loads.push(load);
            }
            None if !targets.is_empty() => parts.push((targets, vec![load])),
            None => {}
        }
    }
    parts.into_iter().map(|(_, loads)| loads).collect()
}

type Topic<'a> = (&'a str, Metric, Points);

/// Returns the subject of the first finding about one of these loads, if it was run; otherwise the
/// first load.
fn topic<'a>(experiment: &'a Experiment, loads: &[&'a Load]) -> Option<Topic<'a>> {
    let was_run = |(load, metric, points): &Topic| {
        let mut cells = experiment.cells.iter().filter(|c| c.failure.is_none());
        cells.any(|c| c.load == *load && within(*points, c.point) && c.values.contains_key(metric))
    };
    let checks = experiment.findings.iter().flat_map(|f| &f.checks);
    let found = checks
        .filter_map(compared)
        .filter(|(load, ..)| loads.iter().any(|of_part| of_part.name == *load))
        .find(was_run);
    let first = || {
        let closed = loads.iter().find(|load| load.kind == Loop::Closed);
        let load = closed.or(loads.first())?;
        Some((load.name.as_str(), Metric::Rate, None))
    };
    found.or_else(first)
}

fn compared(check: &Check) -> Option<Topic<'_>> {
    match check {
        Check::Ratio {
            load,
            metric,
            points,
            ..
        }
        | Check::Order {
            load,
            metric,
            points,
            ..
        } => Some((load, *metric, *points)),
        Check::Knee { .. } | Check::Peak { .. } | Check::Keeps { .. } | Check::Outage { .. } => {
            None
        }
    }
}

struct Contest<'a> {
    experiment: &'a Experiment,
    bootstrap: &'a Bootstrap,
    load: &'a str,
    metric: Metric,
    points: Points,
}

impl Contest<'_> {
    fn choice(&self) -> Option<Choice> {
        let balancers: Vec<&Target> = self
            .experiment
            .targets
            .iter()
            .filter(|target| !target.program.is_empty() && self.was_run(&target.name))
            .collect();
        // Medians of ratios are not always transitive: the target that wins most pairs is first.
        let pairs_won = |one: &Target| {
            let won = |other: &&&Target| {
                let by = self.by(&one.name, &other.name);
                by.is_some_and(|by| self.is_better(by.middle))
            };
            balancers.iter().filter(won).count()
        };
        let mut places: Vec<(&str, usize)> = balancers
            .iter()
            .filter(|one| self.by(&one.name, &one.name).is_some())
            .map(|one| (one.name.as_str(), pairs_won(one)))
            .collect();
        places.sort_by_key(|(_, won)| Reverse(*won));
        let (best, _) = *places.first()?;
        let others = places.iter().skip(1);
        Some(Choice {
            load: self.load.to_owned(),
            metric: self.metric,
            points: self.points,
            best: best.to_owned(),
            by_reference: self.by_reference(best),
            others: others
                .filter_map(|(name, _)| self.other(name, best))
                .collect(),
        })
    }

    fn is_better(&self, ratio: f64) -> bool {
        match self.metric.better() {
            Better::More => ratio > 1.0,
            Better::Less => ratio < 1.0,
        }
    }

    fn was_run(&self, target: &str) -> bool {
        self.experiment.cells.iter().any(|cell| {
            cell.target == target && cell.load == self.load && within(self.points, cell.point)
        })
    }

    fn by(&self, target: &str, to: &str) -> Option<Interval> {
        let cells: Vec<&Cell> = self.experiment.cells.iter().collect();
        let question = Question {
            load: self.load,
            metric: self.metric,
            target,
            to,
            points: self.points,
        };
        ratio(&cells, &question, self.bootstrap)
    }

    fn by_reference(&self, best: &str) -> Option<(String, Interval)> {
        let is_none = |name: &&String| {
            let mut targets = self.experiment.targets.iter();
            targets.any(|t| t.name == **name && t.program.is_empty())
        };
        let mut references = self.experiment.references.iter().filter(is_none);
        references.find_map(|name| Some((name.clone(), self.by(best, name)?)))
    }

    fn other(&self, target: &str, best: &str) -> Option<Other> {
        let by_best = self.by(target, best)?;
        let worse = match self.metric.better() {
            Better::More => Reading::Less,
            Better::Less => Reading::More,
        };
        let standing = if by_best.blocks < BLOCKS_LEAST {
            Standing::TooFewBlocks
        } else if by_best.reading() == worse {
            Standing::Behind
        } else {
            Standing::Alike
        };
        Some(Other {
            target: target.to_owned(),
            by_best,
            standing,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{cell, experiment};
    use super::*;

    /// Cells with rates of three blocks for each target.
    fn measured(rates: &[(&str, [f64; 3])]) -> Experiment {
        let names: Vec<&str> = rates.iter().map(|(name, _)| *name).collect();
        let mut experiment = experiment(&names, &["read"]);
        experiment.references = vec!["direct".to_owned()];
        for (name, rates) in rates {
            for (block, rate) in (1..).zip(rates) {
                experiment.cells.push(cell(name, "read", 8.0, block, *rate));
            }
        }
        experiment
    }

    fn chosen(experiment: &Experiment) -> Vec<Choice> {
        choices(experiment, &Bootstrap::new(1))
    }

    #[test]
    fn who_is_best_is_told_with_who_is_behind_and_who_is_not() {
        let experiment = measured(&[
            ("direct", [300.0, 300.0, 300.0]),
            ("slow", [50.0, 51.0, 50.0]),
            ("unsteady", [80.0, 140.0, 90.0]),
            ("own", [100.0, 101.0, 100.0]),
        ]);
        let [found] = &chosen(&experiment)[..] else {
            panic!("one part, and nothing of processor time")
        };
        assert_eq!(found.best, "own", "direct is no balancer");
        let (reference, by_reference) = found.by_reference.as_ref().expect("direct has run");
        assert_eq!(reference, "direct");
        assert!((by_reference.middle - 1.0 / 3.0).abs() < 0.01);
        let others: Vec<(&str, Standing)> = found
            .others
            .iter()
            .map(|other| (other.target.as_str(), other.standing))
            .collect();
        let expected = [("unsteady", Standing::Alike), ("slow", Standing::Behind)];
        assert_eq!(others, expected);
    }

    #[test]
    fn of_latencies_the_shortest_is_best() {
        let mut experiment = measured(&[("slow", [50.0; 3]), ("own", [10.0; 3])]);
        for cell in &mut experiment.cells {
            let value = cell.values[&Metric::Rate];
            cell.values = [(Metric::BalancerCpuUs, value)].into();
        }
        let found = chosen(&experiment);
        assert_eq!((found.len(), found[0].best.as_str()), (1, "own"));
        assert_eq!(found[0].others[0].standing, Standing::Behind);
        assert_eq!(found[0].by_reference, None, "direct has not run");
    }

    #[test]
    fn two_blocks_leave_nobody_behind() {
        let mut experiment = measured(&[("slow", [50.0; 3]), ("own", [100.0; 3])]);
        experiment.cells.retain(|cell| cell.block < 3);
        let found = &chosen(&experiment)[0].others[0];
        assert_eq!(found.standing, Standing::TooFewBlocks);
    }

    #[test]
    fn each_part_has_its_own_and_the_findings_say_by_what() {
        let mut experiment = experiment(&["a", "b", "c"], &["read", "other", "write"]);
        for block in 1..=3 {
            for (target, load, point) in [
                ("a", "read", 1.0),
                ("b", "read", 1.0),
                ("c", "other", 1.0),
                ("a", "write", 4.0),
                ("b", "write", 4.0),
            ] {
                let cell = cell(target, load, point, block, 10.0);
                experiment.cells.push(cell);
            }
        }
        let loads = |experiment: &Experiment| {
            let found = chosen(experiment).into_iter();
            found.map(|choice| choice.load).collect::<Vec<_>>()
        };
        assert_eq!(loads(&experiment), ["read", "other"]);
        let finding = |load: &str, until| crate::bench::outcome::Finding {
            statement: String::new(),
            published: String::new(),
            checks: vec![Check::Order {
                load: load.to_owned(),
                metric: Metric::Rate,
                targets: Vec::new(),
                points: Some((1.0, until)),
            }],
        };
        // No cells exist at the first finding's points.
        experiment.findings = vec![finding("write", 2.0), finding("write", 8.0)];
        assert_eq!(loads(&experiment), ["write", "other"]);
    }
}
