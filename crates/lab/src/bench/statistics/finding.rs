//! Whether a study's finding holds here: its checks, one after the other, with their numbers.

use std::collections::BTreeMap;

use serde::Serialize;

use super::bootstrap::{BAND, BLOCKS_LEAST, Bootstrap, Interval, Reading, median};
use super::outage;
use super::pairs::{Points, Question, ratio};
use crate::bench::outcome::{Better, Cell, Check, Experiment, Finding, Metric};

/// A finding with its verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Judged {
    pub(crate) statement: String,
    pub(crate) published: String,
    pub(crate) verdict: Verdict,
    /// What each check found, in words and numbers.
    pub(crate) numbers: Vec<String>,
}

/// Whether a finding holds; the worst of its checks decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    Holds,
    /// It was not run, or the blocks do not settle it.
    NotShown,
    DoesNotHold,
}

impl Verdict {
    /// In words.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::NotShown => "not shown here",
            Verdict::DoesNotHold => "does not hold",
        }
    }
}

/// All findings of an experiment, in its order.
pub(crate) fn judge(experiment: &Experiment, bootstrap: &Bootstrap) -> Vec<Judged> {
    let court = Court {
        experiment,
        bootstrap,
    };
    let findings = experiment.findings.iter();
    findings.map(|finding| court.finding(finding)).collect()
}

/// A verdict and what it stands on.
type Opinion = (Verdict, String);

struct Court<'a> {
    experiment: &'a Experiment,
    bootstrap: &'a Bootstrap,
}

impl Court<'_> {
    fn finding(&self, finding: &Finding) -> Judged {
        let opinions: Vec<Opinion> = finding.checks.iter().map(|c| self.check(c)).collect();
        let verdict = opinions.iter().map(|(verdict, _)| *verdict).max();
        Judged {
            statement: finding.statement.clone(),
            published: finding.published.clone(),
            verdict: verdict.unwrap_or(Verdict::NotShown),
            numbers: opinions.into_iter().map(|(_, numbers)| numbers).collect(),
        }
    }

    fn check(&self, check: &Check) -> Opinion {
        match check {
            Check::Ratio {
                load,
                metric,
                target,
                to,
                points,
                at_least,
                at_most,
            } => {
                let question = Question {
                    load,
                    metric: *metric,
                    target,
                    to,
                    points: *points,
                };
                self.ratio(&question, *at_least, *at_most)
            }
            Check::Order {
                load,
                metric,
                targets,
                points,
            } => self.order(load, *metric, targets, *points),
            Check::Knee {
                load,
                metric,
                target,
                to,
                gain,
                from,
                until,
            } => {
                let question = Question {
                    load,
                    metric: *metric,
                    target,
                    to,
                    points: None,
                };
                self.knee(&question, *gain, (*from, *until))
            }
            Check::Peak {
                load,
                metric,
                target,
                from,
                until,
            } => self.peak(load, *metric, target, (*from, *until)),
            Check::Outage {
                target,
                scenario,
                at_most_ms,
            } => self.outage(target, scenario, *at_most_ms),
        }
    }

    fn ratio(&self, question: &Question, at_least: Option<f64>, at_most: Option<f64>) -> Opinion {
        let Some(found) = self.ask(question) else {
            return self.not_run(question);
        };
        let (least, most) = (
            at_least.unwrap_or(f64::NEG_INFINITY),
            at_most.unwrap_or(f64::INFINITY),
        );
        let verdict = if found.blocks < BLOCKS_LEAST {
            Verdict::NotShown
        } else if found.low >= least && found.high <= most {
            Verdict::Holds
        } else if found.high < least || found.low > most {
            Verdict::DoesNotHold
        } else {
            Verdict::NotShown
        };
        let wanted = match (at_least, at_most) {
            (Some(least), Some(most)) => format!("wanted {least} to {most}"),
            (Some(least), None) => format!("wanted at least {least}"),
            (None, Some(most)) => format!("wanted at most {most}"),
            (None, None) => "nothing wanted".to_owned(),
        };
        (verdict, format!("{}; {wanted}", self.told(question, found)))
    }

    /// Neighbours are compared; the worst pair decides.
    fn order(&self, load: &str, metric: Metric, targets: &[String], points: Points) -> Opinion {
        let pairs = targets.windows(2).map(|pair| {
            // The one that should be better stands above the line, whichever way is better.
            let (target, to) = match metric.better() {
                Better::More => (&pair[0], &pair[1]),
                Better::Less => (&pair[1], &pair[0]),
            };
            let question = Question {
                load,
                metric,
                target,
                to,
                points,
            };
            let Some(found) = self.ask(&question) else {
                return self.not_run(&question);
            };
            (in_order(found), self.told(&question, found))
        });
        let (verdicts, numbers): (Vec<Verdict>, Vec<String>) = pairs.unzip();
        let verdict = verdicts.into_iter().max().unwrap_or(Verdict::NotShown);
        (
            verdict,
            format!("{}; wanted over {}", numbers.join("; "), 1.0 + BAND),
        )
    }

    fn knee(&self, question: &Question, gain: f64, (from, until): (f64, f64)) -> Opinion {
        let ratios: Vec<(f64, Interval)> = self
            .points(question.load)
            .into_iter()
            .filter_map(|point| {
                let points = Some((point, point));
                let found = self.ask(&Question {
                    points,
                    ..*question
                })?;
                Some((point, found))
            })
            .collect();
        if ratios.is_empty() {
            return self.not_run(question);
        }
        let is_measured = ratios.iter().any(|(at, _)| (from..=until).contains(at));
        let is_enough = ratios.iter().all(|(_, found)| found.blocks >= BLOCKS_LEAST);
        let reached = ratios.iter().find(|(_, found)| found.middle >= gain);
        let verdict = match reached {
            _ if !is_enough => Verdict::NotShown,
            Some((at, _)) if (from..=until).contains(at) => Verdict::Holds,
            Some((at, _)) if *at > until && !is_measured => Verdict::NotShown,
            None if !is_measured => Verdict::NotShown,
            _ => Verdict::DoesNotHold,
        };
        let pair = self.pair(question);
        let numbers = match reached {
            Some((at, found)) => format!(
                "{pair} reaches × {gain} at {at} (× {:.2}; {})",
                found.middle,
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
            verdict,
            format!("{numbers}; wanted {from} to {until} {axis}"),
        )
    }

    fn peak(&self, load: &str, metric: Metric, target: &str, (from, until): (f64, f64)) -> Opinion {
        let medians = self.medians(load, metric, target);
        let better = |a: f64, b: f64| match metric.better() {
            Better::More => a > b,
            Better::Less => a < b,
        };
        let best = medians
            .iter()
            .copied()
            .reduce(|best, next| if better(next.1, best.1) { next } else { best });
        let Some((at, best, _)) = best else {
            return (
                Verdict::NotShown,
                format!("{} was not run", self.title(target)),
            );
        };
        let near = |value: f64| (value / best - 1.0).abs() <= BAND;
        let mut within = medians
            .iter()
            .filter(|(at, ..)| (from..=until).contains(at))
            .peekable();
        let is_enough = medians.iter().all(|(.., blocks)| *blocks >= BLOCKS_LEAST);
        let verdict = if !is_enough || medians.len() < 2 || within.peek().is_none() {
            Verdict::NotShown
        } else if within.any(|(_, value, _)| near(*value)) {
            Verdict::Holds
        } else {
            Verdict::DoesNotHold
        };
        let numbers = format!(
            "{} is best at {at} ({best:.decimals$} {}); wanted {from} to {until} {}",
            self.title(target),
            metric.short(),
            self.axis(load),
            decimals = if best >= 100.0 { 0 } else { 2 },
        );
        (verdict, numbers)
    }

    fn outage(&self, target: &str, scenario: &str, at_most_ms: f64) -> Opinion {
        let found = outage::summaries(&self.experiment.faults, self.bootstrap);
        let found = found
            .iter()
            .find(|found| found.target == target && found.scenario == scenario);
        let title = self.title(target);
        let Some(found) = found else {
            return (
                Verdict::NotShown,
                format!("{title}: {scenario} was not run"),
            );
        };
        let counts = format!(
            "{}, lost {}, doubled {}",
            several(found.trials, "trial"),
            found.lost,
            found.doubled
        );
        if found.lost + found.doubled + found.without_end as u64 > 0 {
            let numbers = format!("{title}: {counts}, without end {}", found.without_end);
            return (Verdict::DoesNotHold, numbers);
        }
        let Some(outage) = found.outage_ms else {
            return (Verdict::NotShown, format!("{title}: {counts}"));
        };
        let verdict = if outage.blocks < BLOCKS_LEAST {
            Verdict::NotShown
        } else if outage.high <= at_most_ms {
            Verdict::Holds
        } else if outage.low > at_most_ms {
            Verdict::DoesNotHold
        } else {
            Verdict::NotShown
        };
        let numbers = format!(
            "{title}: outage {:.0} ms ({:.0} to {:.0}), {counts}; \
             wanted at most {at_most_ms:.0} ms",
            outage.middle, outage.low, outage.high
        );
        (verdict, numbers)
    }

    fn ask(&self, question: &Question) -> Option<Interval> {
        let cells: Vec<&Cell> = self.experiment.cells.iter().collect();
        ratio(&cells, question, self.bootstrap)
    }

    fn points(&self, load: &str) -> Vec<f64> {
        let mut points: Vec<f64> = self
            .experiment
            .cells
            .iter()
            .filter(|cell| cell.load == load)
            .map(|cell| cell.point)
            .collect();
        points.sort_by(f64::total_cmp);
        points.dedup();
        points
    }

    /// Point, median and number of blocks.
    fn medians(&self, load: &str, metric: Metric, target: &str) -> Vec<(f64, f64, usize)> {
        let mut values: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        let cells = self.experiment.cells.iter();
        for cell in cells.filter(|c| c.load == load && c.target == target && c.failure.is_none()) {
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

    fn told(&self, question: &Question, found: Interval) -> String {
        format!(
            "{} × {:.2} ({:.2} to {:.2}; {})",
            self.pair(question),
            found.middle,
            found.low,
            found.high,
            several(found.blocks, "block")
        )
    }

    /// "HAProxy / direct, p95 ms, simple-read:".
    fn pair(&self, question: &Question) -> String {
        format!(
            "{} / {}, {}, {}:",
            self.title(question.target),
            self.title(question.to),
            question.metric.short(),
            question.load
        )
    }

    fn not_run(&self, question: &Question) -> Opinion {
        let missing = [question.target, question.to].into_iter().find_map(|name| {
            let target = self.experiment.targets.iter().find(|t| t.name == name)?;
            let why = target.missing.as_ref()?;
            Some(format!("{}: {why}", target.title))
        });
        let why = missing.unwrap_or_else(|| "no common blocks".to_owned());
        (Verdict::NotShown, format!("{} {why}", self.pair(question)))
    }

    fn axis(&self, load: &str) -> &str {
        let load = self.experiment.loads.iter().find(|l| l.name == load);
        load.map_or("", |load| load.axis.as_str())
    }

    fn title<'a>(&'a self, name: &'a str) -> &'a str {
        let target = self.experiment.targets.iter().find(|t| t.name == name);
        target.map_or(name, |target| target.title.as_str())
    }
}

fn several(count: usize, thing: &str) -> String {
    match count {
        1 => format!("one {thing}"),
        _ => format!("{count} {thing}s"),
    }
}

/// Better by more than 3 %, with the whole interval; equal is not in order.
fn in_order(found: Interval) -> Verdict {
    match found.reading() {
        Reading::More => Verdict::Holds,
        Reading::Less | Reading::NoDifference => Verdict::DoesNotHold,
        Reading::Unsettled if found.high <= 1.0 && found.blocks >= BLOCKS_LEAST => {
            Verdict::DoesNotHold
        }
        Reading::Unsettled => Verdict::NotShown,
    }
}

#[cfg(test)]
mod tests;
