//! Judges whether a study's finding holds here: evaluates its checks with their numbers.

mod sweep;

use serde::Serialize;

use super::bootstrap::{BAND, BLOCKS_LEAST, Bootstrap, Interval, Reading};
use super::outage;
use super::pairs::{Points, Question, ratio};
use crate::bench::outcome::{Better, Cell, Check, Experiment, Finding, Metric, Probe};

/// A finding with its verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Judged {
    pub(crate) statement: String,
    pub(crate) published: String,
    pub(crate) verdict: Verdict,
    /// Result of each check, as text with numbers.
    pub(crate) numbers: Vec<String>,
}

/// Verdict on a finding; the worst of its checks decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    Holds,
    /// The check was not run, or the blocks leave the result open.
    NotShown,
    DoesNotHold,
}

impl Verdict {
    /// Returns the verdict as text.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::NotShown => "not shown here",
            Verdict::DoesNotHold => "does not hold",
        }
    }
}

/// Judges all findings of an experiment, in order.
pub(crate) fn judge(experiment: &Experiment, bootstrap: &Bootstrap) -> Vec<Judged> {
    let checker = FindingChecker {
        experiment,
        bootstrap,
    };
    let findings = experiment.findings.iter();
    findings.map(|finding| checker.finding(finding)).collect()
}

/// A verdict and its explanation.
type Opinion = (Verdict, String);

struct FindingChecker<'a> {
    experiment: &'a Experiment,
    bootstrap: &'a Bootstrap,
}

impl FindingChecker<'_> {
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
            Check::Keeps {
                load,
                metric,
                target,
                at,
                at_least,
            } => self.keeps(load, *metric, target, (*at, *at_least)),
            Check::Outage {
                target,
                scenario,
                at_most_ms,
            } => self.outage(target, scenario, *at_most_ms),
        }
    }

    fn ratio(&self, question: &Question, at_least: Option<f64>, at_most: Option<f64>) -> Opinion {
        let Some(found) = self.measured_ratio(question) else {
            return self.not_run(question);
        };
        let verdict = within_limits(found, at_least, at_most);
        let wanted = match (at_least, at_most) {
            (Some(least), Some(most)) => format!("holds if {least} to {most}"),
            (Some(least), None) => format!("holds if at least {least}"),
            (None, Some(most)) => format!("holds if at most {most}"),
            (None, None) => "no limit is set".to_owned(),
        };
        (
            verdict,
            format!("{}; {wanted}", self.describe_ratio(question, found)),
        )
    }

    /// Checks each neighboring pair; the worst pair decides.
    fn order(&self, load: &str, metric: Metric, targets: &[String], points: Points) -> Opinion {
        let pairs = targets.windows(2).map(|pair| {
            // The target that should be better is the numerator, in either direction of the metric.
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
            let Some(found) = self.measured_ratio(&question) else {
                return self.not_run(&question);
            };
            (in_order(found), self.describe_ratio(&question, found))
        });
        let (verdicts, numbers): (Vec<Verdict>, Vec<String>) = pairs.unzip();
        let verdict = verdicts.into_iter().max().unwrap_or(Verdict::NotShown);
        (
            verdict,
            format!("{}; holds if above {}", numbers.join("; "), 1.0 + BAND),
        )
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
        let trials = several(found.trials, "trial");
        let counts = match found.probe {
            Probe::Pages => format!(
                "{trials} ({scenario}), {} of {} requests failed",
                found.failed,
                found.failed + found.acknowledged
            ),
            Probe::Writes => format!(
                "{trials}, lost {}, doubled {}, not caught up {}",
                found.lost, found.doubled, found.behind
            ),
        };
        let amiss = found.lost + found.doubled + found.behind;
        if amiss + found.without_end as u64 > 0 {
            let numbers = format!("{title}: {counts}, never ended {}", found.without_end);
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
             holds if at most {at_most_ms:.0} ms",
            outage.middle, outage.low, outage.high
        );
        (verdict, numbers)
    }

    /// Returns the cells of a target under a load.
    fn cells(&self, load: &str, target: &str) -> impl Iterator<Item = &Cell> {
        let cells = self.experiment.cells.iter();
        cells.filter(move |c| c.load == load && c.target == target && c.failure.is_none())
    }

    fn measured_ratio(&self, question: &Question) -> Option<Interval> {
        let cells: Vec<&Cell> = self.experiment.cells.iter().collect();
        ratio(&cells, question, self.bootstrap)
    }

    /// Formats a ratio: "HAProxy has 0.90 times (0.85 to 0.95) the requests per second of direct
    /// (ab, 3 blocks)".
    fn describe_ratio(&self, question: &Question, found: Interval) -> String {
        format!(
            "{} has {:.2} times ({:.2} to {:.2}) the {} of {} ({}, {})",
            self.title(question.target),
            found.middle,
            found.low,
            found.high,
            self.noun(question.metric, question.load),
            self.title(question.to),
            question.load,
            several(found.blocks, "block")
        )
    }

    /// Formats a pair: "HAProxy by direct, mean latency, simple-read:".
    fn pair(&self, question: &Question) -> String {
        format!(
            "{} by {}, {}, {}:",
            self.title(question.target),
            self.title(question.to),
            self.noun(question.metric, question.load),
            question.load
        )
    }

    fn noun(&self, metric: Metric, load: &str) -> String {
        let load = self.experiment.loads.iter().find(|l| l.name == load);
        metric.noun(load.map_or("requests", |load| load.counted.as_str()))
    }

    fn not_run(&self, question: &Question) -> Opinion {
        let missing = [question.target, question.to].into_iter().find_map(|name| {
            let target = self.experiment.targets.iter().find(|t| t.name == name)?;
            let why = target.missing.as_ref()?;
            Some(format!("{}: {why}", target.title))
        });
        let why = missing.unwrap_or_else(|| "no blocks in common".to_owned());
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

/// Checks the whole interval against the limits.
fn within_limits(found: Interval, at_least: Option<f64>, at_most: Option<f64>) -> Verdict {
    let least = at_least.unwrap_or(f64::NEG_INFINITY);
    let most = at_most.unwrap_or(f64::INFINITY);
    if found.blocks < BLOCKS_LEAST {
        Verdict::NotShown
    } else if found.low >= least && found.high <= most {
        Verdict::Holds
    } else if found.high < least || found.low > most {
        Verdict::DoesNotHold
    } else {
        Verdict::NotShown
    }
}

/// Checks that the whole interval is better by more than 3 %; equal values fail.
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
