//! Types of a fault trial: a server or balancer is removed, and a probe records what clients see.

use serde::{Deserialize, Serialize};

/// One trial. All times count from the fault.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct FaultTrial {
    pub(crate) target: String,
    /// Action: `primary killed`, `secondary stopped and started`.
    pub(crate) scenario: String,
    /// Number of the trial, from 1.
    pub(crate) trial: u32,
    pub(crate) probe: Probe,
    /// Time in ms between two tries of the probe.
    pub(crate) probe_ms: f64,
    /// Time of the first failed try; `None` if none failed.
    pub(crate) first_error_ms: Option<f64>,
    /// Time of the first success after it; `None` if no try failed or none succeeded again.
    pub(crate) first_success_ms: Option<f64>,
    /// Longest time between two successes. A balancer that holds writes hides it from the outage,
    /// as does the start of an outage in which tries are not refused.
    pub(crate) silence_ms: Option<f64>,
    /// Steps of the outage, in order; empty if they are unknown.
    pub(crate) steps: Vec<FaultStep>,
    pub(crate) acknowledged: u64,
    /// Tries that were answered with an error or not at all.
    pub(crate) failed: u64,
    /// Acknowledged rows that are missing afterwards; writes only, like the next two counts.
    pub(crate) lost: u64,
    /// Rows that are there twice.
    pub(crate) doubled: u64,
    /// Rows that are there although they were refused or unanswered.
    pub(crate) unexpected: u64,
    /// Rows missing on a server after its return.
    pub(crate) behind: u64,
    /// Reason why the trial is invalid.
    pub(crate) failure: Option<String>,
}

/// Request that the probe repeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Probe {
    /// Writes, each with an id that is looked up afterwards.
    #[default]
    Writes,
    /// Pages, each over a new connection; they leave nothing to verify.
    Pages,
}

/// A step of the outage: detect, decide, promote, route, reconnect.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct FaultStep {
    pub(crate) name: String,
    pub(crate) from_ms: f64,
    pub(crate) to_ms: f64,
}

impl FaultTrial {
    /// Returns the time from the first error to the first success; zero if no try failed.
    pub(crate) fn outage_ms(&self) -> Option<f64> {
        match (self.first_error_ms, self.first_success_ms) {
            _ if self.failure.is_some() => None,
            (None, _) => Some(0.0),
            (Some(error), Some(success)) => Some((success - error).max(0.0)),
            (Some(_), None) => None,
        }
    }
}
