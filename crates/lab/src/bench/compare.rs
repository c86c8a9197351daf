//! `evenkeel-lab compare`: compares the ratios of two runs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use super::outcome::{Metric, Outcome};
use super::report;
use super::statistics::{BLOCKS_LEAST, Interval, analyse};
use crate::{row, table};

/// Metrics whose ratios are compared by default: those that a report's tables show first.
const USUAL: [Metric; 4] = [
    Metric::Rate,
    Metric::MeanMs,
    Metric::P95Ms,
    Metric::BalancerCpuUs,
];
/// Number of disagreements that are listed one by one.
const SHOWN: usize = 40;

/// Runs to compare.
#[derive(Args, Debug)]
pub struct Options {
    /// Folder, report.json or outcome.json of one run.
    a: PathBuf,
    /// Folder, report.json or outcome.json of the other run.
    b: PathBuf,
    /// Only ratios of these, such as `rate` or `p95-ms`.
    #[arg(long, value_delimiter = ',', value_parser = metric, value_name = "METRICS")]
    metric: Vec<Metric>,
    /// Fail when fewer per cent of the ratios agree.
    #[arg(long, value_name = "PERCENT")]
    at_least: Option<f64>,
}

fn metric(name: &str) -> Result<Metric, String> {
    serde_json::from_value(name.into()).map_err(|error| error.to_string())
}

/// Prints which ratios of either run lie within the other's interval, widened by 3 %. Fails if the
/// runs have no ratio in common, or if fewer ratios agree than requested.
pub fn run(options: &Options) -> Result<ExitCode> {
    let (a, b) = (report::read(&options.a)?, report::read(&options.b)?);
    let metrics = match options.metric.as_slice() {
        [] => &USUAL,
        named => named,
    };
    let common = pairs(&a, &b, metrics);
    let (pairs, thin): (Vec<Pair>, Vec<Pair>) = common.into_iter().partition(Pair::has_intervals);
    print!("{}", describe(&a, &b, &pairs, thin.len()));
    // Runs without a common ratio have not been compared.
    let at_least = options.at_least.unwrap_or(0.0);
    let is_enough = share(&pairs).is_some_and(|share| share >= at_least);
    Ok(if is_enough {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Identity of a ratio: the two targets, the load, the point and the metric.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    experiment: String,
    load: String,
    metric: Metric,
    target: String,
    to: String,
    /// Bits of the point: positive numbers have the order of their bits.
    point_bits: u64,
}

/// One ratio in both runs.
#[derive(Clone, Debug)]
struct Pair {
    key: Key,
    a: Interval,
    b: Interval,
}

impl Pair {
    /// Returns whether both ratios have enough blocks for an interval; failed runs may leave too
    /// few.
    fn has_intervals(&self) -> bool {
        self.a.blocks.min(self.b.blocks) >= BLOCKS_LEAST
    }

    /// Returns how many of the two ratios lie within the other's widened interval.
    fn agreeing(&self) -> usize {
        usize::from(self.b.holds_when_widened(self.a.middle))
            + usize::from(self.a.holds_when_widened(self.b.middle))
    }
}

fn pairs(a: &Outcome, b: &Outcome, metrics: &[Metric]) -> Vec<Pair> {
    let mut of_b = ratios(b, metrics);
    ratios(a, metrics)
        .into_iter()
        .filter_map(|(key, a)| {
            let b = of_b.remove(&key)?;
            Some(Pair { key, a, b })
        })
        .collect()
}

fn ratios(outcome: &Outcome, metrics: &[Metric]) -> BTreeMap<Key, Interval> {
    let mut found = BTreeMap::new();
    for experiment in analyse(outcome).experiments {
        for ratio in experiment.ratios {
            if metrics.contains(&ratio.metric) {
                let key = Key {
                    experiment: experiment.name.clone(),
                    load: ratio.load,
                    metric: ratio.metric,
                    target: ratio.target,
                    to: ratio.to,
                    point_bits: ratio.point.to_bits(),
                };
                found.insert(key, ratio.interval);
            }
        }
    }
    found
}

/// Returns the agreeing share in per cent; each pair counts twice, once per direction. `None` if
/// there are no pairs.
fn share<'p>(pairs: impl IntoIterator<Item = &'p Pair>) -> Option<f64> {
    let agreeing: Vec<usize> = pairs.into_iter().map(Pair::agreeing).collect();
    let all = 2 * agreeing.len();
    (all > 0).then(|| 100.0 * agreeing.iter().sum::<usize>() as f64 / all as f64)
}

fn describe(a: &Outcome, b: &Outcome, pairs: &[Pair], thin: usize) -> String {
    let mut text = differences(a, b);
    let Some(whole) = share(pairs) else {
        return text + "the runs have no ratio in common\n";
    };
    text += &table::columns(&by_experiment(pairs));
    let apart: Vec<&Pair> = pairs.iter().filter(|pair| pair.agreeing() < 2).collect();
    if !apart.is_empty() {
        text += "\nOutside the other run's interval (widened by 3 %):\n";
        text += &table::columns(&disagreements(&apart));
    }
    if apart.len() > SHOWN {
        text += &format!("and {} more\n", apart.len() - SHOWN);
    }
    text += &format!(
        "\n{whole:.1} % of {} ratios lie within the other run's interval, widened by 3 %\n",
        2 * pairs.len()
    );
    if thin > 0 {
        text += &format!(
            "{} more have fewer than {BLOCKS_LEAST} blocks because runs failed, and therefore no \
             interval\n",
            2 * thin
        );
    }
    text
}

/// Lists the differences of the runs that make their comparison doubtful.
fn differences(a: &Outcome, b: &Outcome) -> String {
    let mut text = String::new();
    let facts = [
        ("processor", &a.machine.processor, &b.machine.processor),
        ("kernel", &a.machine.kernel, &b.machine.kernel),
        ("extent", &a.scale, &b.scale),
        ("program", &a.program, &b.program),
    ];
    for (name, a, b) in facts.iter().filter(|(_, a, b)| a != b) {
        text += &format!("different {name}: {a} / {b}\n");
    }
    for (program, version) in &a.versions {
        if let Some(other) = b.versions.get(program).filter(|other| *other != version) {
            text += &format!("different {program}: {version} / {other}\n");
        }
    }
    text
}

fn by_experiment(pairs: &[Pair]) -> Vec<Vec<String>> {
    let mut groups: BTreeMap<(&str, Metric), Vec<&Pair>> = BTreeMap::new();
    for pair in pairs {
        let group = (pair.key.experiment.as_str(), pair.key.metric);
        groups.entry(group).or_default().push(pair);
    }
    let mut rows = vec![row!["experiment", "ratio of", "ratios", "agree"]];
    for ((experiment, metric), pairs) in groups {
        let share = share(pairs.iter().copied()).unwrap_or_default();
        rows.push(row![
            experiment,
            metric.short(),
            2 * pairs.len(),
            format!("{share:.0} %")
        ]);
    }
    rows
}

fn disagreements(apart: &[&Pair]) -> Vec<Vec<String>> {
    let shown =
        |found: Interval| format!("{:.2} ({:.2}..{:.2})", found.middle, found.low, found.high);
    let mut rows = vec![row![
        "experiment",
        "load",
        "point",
        "ratios of",
        "",
        "A",
        "B"
    ]];
    for pair in apart.iter().take(SHOWN) {
        let key = &pair.key;
        rows.push(row![
            key.experiment,
            key.load,
            f64::from_bits(key.point_bits),
            key.metric.short(),
            format!("{} / {}", key.target, key.to),
            shown(pair.a),
            shown(pair.b)
        ]);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::sample;

    #[test]
    fn a_run_agrees_with_itself() {
        let a = sample::outcome(1);
        let pairs = pairs(&a, &a, &USUAL);
        assert!(pairs.len() > 100, "{}", pairs.len());
        assert_eq!(share(&pairs), Some(100.0));
        assert_eq!(differences(&a, &a), "");
    }

    #[test]
    fn another_run_in_other_weather_agrees() {
        let pairs = pairs(&sample::outcome(1), &sample::outcome(5), &[Metric::Rate]);
        let share = share(&pairs).unwrap();
        assert!(share >= 90.0, "{share}");
    }

    #[test]
    fn a_target_that_became_slower_is_named() {
        let (a, mut b) = (sample::outcome(1), sample::outcome(1));
        for cell in &mut b.experiments[0].cells {
            if cell.target == "haproxy" {
                let rate = cell.values.get_mut(&Metric::Rate).unwrap();
                *rate *= 0.8;
            }
        }
        let pairs = pairs(&a, &b, &[Metric::Rate]);
        let text = describe(&a, &b, &pairs, 0);
        assert!(text.contains("haproxy / direct"), "{text}");
        assert!(!text.contains("nginx / direct"), "{text}");
        assert!(share(&pairs).unwrap() < 100.0);
    }

    #[test]
    fn one_side_may_agree_alone() {
        let wide = Interval {
            low: 0.5,
            middle: 1.0,
            high: 1.5,
            blocks: 5,
        };
        let narrow = Interval {
            low: 1.39,
            middle: 1.4,
            high: 1.41,
            blocks: 5,
        };
        let key = Key {
            experiment: String::new(),
            load: String::new(),
            metric: Metric::Rate,
            target: String::new(),
            to: String::new(),
            point_bits: 0,
        };
        let pair = Pair {
            key,
            a: wide,
            b: narrow,
        };
        assert_eq!(pair.agreeing(), 1);
        assert_eq!(share([&pair]), Some(50.0));
    }

    #[test]
    fn a_ratio_of_one_block_is_neither_in_nor_out() {
        let (a, mut b) = (sample::outcome(1), sample::outcome(1));
        let all = pairs(&a, &b, &[Metric::Rate]);
        assert!(all.iter().all(Pair::has_intervals));
        let cells = &mut b.experiments[0].cells;
        cells.retain(|cell| cell.target != "haproxy" || cell.block == 1);
        let common = pairs(&a, &b, &[Metric::Rate]);
        let (solid, thin): (Vec<Pair>, Vec<Pair>) =
            common.into_iter().partition(Pair::has_intervals);
        assert_eq!(solid.len() + thin.len(), all.len());
        let is_of_haproxy =
            |pair: &Pair| [&pair.key.target, &pair.key.to].contains(&&"haproxy".to_owned());
        assert!(!thin.is_empty() && thin.iter().all(is_of_haproxy));
        let text = describe(&a, &b, &solid, thin.len());
        assert!(text.contains("and therefore no interval"), "{text}");
    }

    #[test]
    fn what_differs_besides_the_numbers_is_told() {
        let (a, mut b) = (sample::outcome(1), sample::outcome(1));
        b.machine.kernel = "7.0".to_owned();
        b.versions.insert("sysbench".to_owned(), "1.1".to_owned());
        b.experiments.clear();
        let text = describe(&a, &b, &pairs(&a, &b, &USUAL), 0);
        assert_eq!(
            text,
            "different kernel: 6.18.0 / 7.0\ndifferent sysbench: 1.0.20 / 1.1\n\
             the runs have no ratio in common\n"
        );
    }

    #[test]
    fn metrics_are_named_as_in_the_json() {
        assert_eq!(metric("p95-ms"), Ok(Metric::P95Ms));
        assert!(
            metric("speed")
                .unwrap_err()
                .contains("unknown variant `speed`")
        );
    }
}
