//! Summarizes the fault trials of one target and scenario.

use serde::Serialize;

use super::bootstrap::{Bootstrap, Interval};
use crate::bench::outcome::{FaultTrial, Probe};

/// All trials of one scenario with one target.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct OutageSummary {
    pub(crate) target: String,
    pub(crate) scenario: String,
    pub(crate) probe: Probe,
    /// Valid trials.
    pub(crate) trials: usize,
    /// Invalid trials.
    pub(crate) failed_trials: usize,
    /// Trials in which tries never succeeded again.
    pub(crate) without_end: usize,
    /// Outage of the trials with an end; `None` if there are none.
    pub(crate) outage_ms: Option<Interval>,
    pub(crate) longest_ms: f64,
    /// Median of the longest times without a success.
    pub(crate) silence_ms: Option<f64>,
    /// Name and median duration of each step, in the order of the trials.
    pub(crate) steps: Vec<(String, f64)>,
    pub(crate) acknowledged: u64,
    pub(crate) failed: u64,
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    pub(crate) unexpected: u64,
    pub(crate) behind: u64,
}

/// Summarizes trials, in the order in which target and scenario first appear.
pub(crate) fn summaries(trials: &[FaultTrial], bootstrap: &Bootstrap) -> Vec<OutageSummary> {
    let mut kinds: Vec<(&str, &str)> = Vec::new();
    for trial in trials {
        let kind = (trial.target.as_str(), trial.scenario.as_str());
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds
        .into_iter()
        .map(|(target, scenario)| {
            let of_kind = |t: &&FaultTrial| t.target == target && t.scenario == scenario;
            let trials: Vec<&FaultTrial> = trials.iter().filter(of_kind).collect();
            summary(&trials, bootstrap)
        })
        .collect()
}

fn summary(all: &[&FaultTrial], bootstrap: &Bootstrap) -> OutageSummary {
    let trials: Vec<&FaultTrial> = all
        .iter()
        .copied()
        .filter(|t| t.failure.is_none())
        .collect();
    let outages: Vec<f64> = trials
        .iter()
        .filter_map(|trial| trial.outage_ms())
        .collect();
    let silences: Vec<f64> = trials.iter().filter_map(|trial| trial.silence_ms).collect();
    let sum = |of: &dyn Fn(&FaultTrial) -> u64| trials.iter().map(|trial| of(trial)).sum();
    OutageSummary {
        target: all[0].target.clone(),
        scenario: all[0].scenario.clone(),
        probe: trials.first().map_or(all[0].probe, |trial| trial.probe),
        trials: trials.len(),
        failed_trials: all.len() - trials.len(),
        without_end: trials.len() - outages.len(),
        outage_ms: bootstrap.interval(&outages),
        longest_ms: outages.iter().copied().fold(0.0, f64::max),
        silence_ms: super::median(&silences),
        steps: steps(&trials),
        acknowledged: sum(&|trial| trial.acknowledged),
        failed: sum(&|trial| trial.failed),
        lost: sum(&|trial| trial.lost),
        doubled: sum(&|trial| trial.doubled),
        unexpected: sum(&|trial| trial.unexpected),
        behind: sum(&|trial| trial.behind),
    }
}

/// Returns the steps; the median of a step ignores trials without it, instead of counting them as
/// zero.
fn steps(trials: &[&FaultTrial]) -> Vec<(String, f64)> {
    let mut names: Vec<&str> = Vec::new();
    for step in trials.iter().flat_map(|trial| &trial.steps) {
        if !names.contains(&step.name.as_str()) {
            names.push(&step.name);
        }
    }
    let length = |name: &str| {
        let of_name = trials.iter().flat_map(|trial| &trial.steps);
        let lengths: Vec<f64> = of_name
            .filter(|step| step.name == name)
            .map(|step| step.to_ms - step.from_ms)
            .collect();
        super::median(&lengths).unwrap_or(0.0)
    };
    names
        .iter()
        .map(|name| ((*name).to_owned(), length(name)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(error_ms: Option<f64>, success_ms: Option<f64>) -> FaultTrial {
        FaultTrial {
            target: "own".to_owned(),
            scenario: "killed".to_owned(),
            first_error_ms: error_ms,
            first_success_ms: success_ms,
            acknowledged: 10,
            ..FaultTrial::default()
        }
    }

    #[test]
    fn an_outage_lasts_from_the_first_error_to_the_first_success() {
        let trials = [
            trial(Some(5.0), Some(105.0)),
            trial(Some(5.0), Some(305.0)),
            trial(None, None),
        ];
        let found = &summaries(&trials, &Bootstrap::new(1))[0];
        assert_eq!(found.outage_ms.unwrap().middle, 100.0);
        assert_eq!((found.longest_ms, found.acknowledged), (300.0, 30));
    }

    #[test]
    fn a_trial_without_an_end_is_counted_and_not_averaged() {
        let trials = [trial(Some(5.0), None), trial(Some(5.0), Some(15.0))];
        let found = &summaries(&trials, &Bootstrap::new(1))[0];
        assert_eq!((found.trials, found.without_end), (2, 1));
        assert_eq!(found.outage_ms.unwrap().middle, 10.0);
    }

    #[test]
    fn a_trial_that_failed_as_a_trial_counts_for_nothing_else() {
        let mut failed = trial(Some(0.0), Some(9_000.0));
        failed.failure = Some("the server did not start again".to_owned());
        let found = &summaries(&[failed, trial(Some(0.0), Some(20.0))], &Bootstrap::new(1))[0];
        assert_eq!((found.trials, found.failed_trials), (1, 1));
        assert_eq!((found.longest_ms, found.acknowledged), (20.0, 10));
    }
}
