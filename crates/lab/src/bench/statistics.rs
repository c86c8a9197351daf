//! What the measurements say: medians, ratios with their intervals, verdicts, outages, alarms.

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

/// Everything that is worked out from one outcome.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Analysis {
    /// About the machine, for all experiments.
    pub(crate) alarms: Vec<Alarm>,
    /// In the order of the outcome's.
    pub(crate) experiments: Vec<Analysed>,
}

/// What is worked out from one experiment.
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

/// Works everything out; the same outcome gives the same analysis.
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
