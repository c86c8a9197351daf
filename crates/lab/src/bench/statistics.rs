//! Computes statistics: medians, ratios with intervals, verdicts, outages, alarms.

pub(crate) mod alarm;
mod bootstrap;
mod choice;
mod finding;
pub(crate) mod outage;
mod pairs;
#[cfg(test)]
mod sample;
mod student;
mod summary;

pub(crate) use alarm::Alarm;
pub use bootstrap::median;
pub(crate) use bootstrap::{BLOCKS_LEAST, Bootstrap, Interval, Reading};
pub(crate) use choice::{Choice, Other, Standing};
pub(crate) use finding::{Judged, Verdict};
pub(crate) use outage::OutageSummary;
pub(crate) use pairs::{Points, Question, ratio, within};
pub(crate) use summary::{Ratio, Summary};

use serde::Serialize;

use super::outcome::{Experiment, Outcome};

/// Everything that is computed from one outcome.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Analysis {
    /// Alarms about the machine, for all experiments.
    pub(crate) alarms: Vec<Alarm>,
    /// Analyses in the order of the outcome's experiments.
    pub(crate) experiments: Vec<Analysed>,
}

/// Everything that is computed from one experiment.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Analysed {
    pub(crate) name: String,
    pub(crate) findings: Vec<Judged>,
    pub(crate) choices: Vec<Choice>,
    pub(crate) alarms: Vec<Alarm>,
    pub(crate) outages: Vec<OutageSummary>,
    pub(crate) ratios: Vec<Ratio>,
    pub(crate) summaries: Vec<Summary>,
}

/// Computes the analysis; it depends on the outcome only.
pub(crate) fn analyse(outcome: &Outcome) -> Analysis {
    let bootstrap = Bootstrap::new(outcome.seed);
    Analysis {
        alarms: alarm::of_machine(outcome),
        experiments: outcome
            .experiments
            .iter()
            .map(|experiment| analyse_one(outcome, experiment, &bootstrap))
            .collect(),
    }
}

fn analyse_one(outcome: &Outcome, experiment: &Experiment, bootstrap: &Bootstrap) -> Analysed {
    let ratios = summary::ratios(experiment, bootstrap);
    Analysed {
        name: experiment.name.clone(),
        findings: finding::judge(experiment, bootstrap),
        choices: choice::choices(experiment, bootstrap),
        alarms: alarm::of_experiment(outcome, experiment, &ratios),
        outages: outage::summaries(&experiment.faults, bootstrap),
        summaries: summary::summaries(experiment, bootstrap),
        ratios,
    }
}
