//! A fault trial: a server or a balancer is taken away, and what clients saw of it.

use serde::{Deserialize, Serialize};

/// One trial. All times count from the moment of the fault.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct FaultTrial {
    pub(crate) target: String,
    /// What was done: `primary killed`, `secondary stopped and started`.
    pub(crate) scenario: String,
    /// From 1.
    pub(crate) trial: u32,
    pub(crate) probe: Probe,
    /// Between two of the probe's tries.
    pub(crate) probe_ms: f64,
    /// Until the first try failed; nothing when none did.
    pub(crate) first_error_ms: Option<f64>,
    /// Until tries succeeded again; nothing when none failed, or when they never did.
    pub(crate) first_success_ms: Option<f64>,
    /// The longest between two successes: what a balancer that holds writes hides from the outage,
    /// and so does the start of an outage in which tries are not refused.
    pub(crate) silence_ms: Option<f64>,
    /// What the outage was made of, in order; empty when it cannot be told.
    pub(crate) steps: Vec<FaultStep>,
    pub(crate) acknowledged: u64,
    /// Tries that were answered with an error or not at all.
    pub(crate) failed: u64,
    /// These are of writes only. Acknowledged, and not there afterwards.
    pub(crate) lost: u64,
    /// There twice.
    pub(crate) doubled: u64,
    /// Refused or unanswered, and there all the same.
    pub(crate) unexpected: u64,
    /// Rows that a server which came back did not catch up with.
    pub(crate) behind: u64,
    /// Why the trial says nothing.
    pub(crate) failure: Option<String>,
}

/// What is tried all the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Probe {
    /// Each with an id, looked for afterwards.
    #[default]
    Writes,
    /// Each over a new connection; nothing is left to look for.
    Pages,
}

/// A part of the outage: detect, decide, promote, route, reconnect.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct FaultStep {
    pub(crate) name: String,
    pub(crate) from_ms: f64,
    pub(crate) to_ms: f64,
}

impl FaultTrial {
    /// From the first error to the first success; zero when no try failed.
    pub(crate) fn outage_ms(&self) -> Option<f64> {
        match (self.first_error_ms, self.first_success_ms) {
            _ if self.failure.is_some() => None,
            (None, _) => Some(0.0),
            (Some(error), Some(success)) => Some((success - error).max(0.0)),
            (Some(_), None) => None,
        }
    }
}
