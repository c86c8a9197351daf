//! The figures an experiment wants, as its file states them.

use serde::{Deserialize, Serialize};

use super::Metric;

/// One figure.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Figure {
    pub(crate) title: String,
    /// What to see in it, in a sentence.
    #[serde(default)]
    pub(crate) caption: String,
    pub(crate) drawing: Drawing,
    /// One of the experiment's loads; `bars` and `shares` may leave it out and mean all.
    #[serde(default)]
    pub(crate) load: Option<String>,
    #[serde(default)]
    pub(crate) metric: Metric,
    /// Only these; all that took part when empty.
    #[serde(default)]
    pub(crate) targets: Vec<String>,
    /// With what `percent`, `ratios` and `bars` compare; the experiment's first reference that has
    /// run the load when absent.
    #[serde(default)]
    pub(crate) reference: Option<String>,
    /// First and last point that `bars` and `shares` take the mean of; all when absent. `ratios`
    /// shows each of them; the reference's best one when absent.
    #[serde(default)]
    pub(crate) points: Option<(f64, f64)>,
    /// Only this fault scenario, for `outage`; all when absent.
    #[serde(default)]
    pub(crate) scenario: Option<String>,
}

/// How it is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Drawing {
    /// The metric over the sweep, one line per target: median with a band from the least block to
    /// the most.
    Lines,
    /// The metric as per cent of `reference`'s over the sweep, with the band of the interval.
    Percent,
    /// One bar per target, grouped by load.
    Bars,
    /// The share of each server in the requests, one stacked bar per target.
    Shares,
    /// Each fault trial's outage, split into its steps, one line per trial.
    Outage,
    /// The metric by `reference`'s at the point where that is best, one interval per target.
    Ratios,
    /// CPU-us per request of balancer, servers and load, one stacked bar per target.
    Cpu,
}
