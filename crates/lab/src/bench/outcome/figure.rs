//! Types of an experiment's figures, as its file declares them.

use serde::{Deserialize, Serialize};

use super::Metric;

/// One figure.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Figure {
    pub(crate) title: String,
    /// Caption in a sentence.
    #[serde(default)]
    pub(crate) caption: String,
    pub(crate) drawing: Drawing,
    /// One of the experiment's loads; in `bars` and `shares`, `None` means all.
    #[serde(default)]
    pub(crate) load: Option<String>,
    #[serde(default)]
    pub(crate) metric: Metric,
    /// Targets of the figure; all that took part if empty.
    #[serde(default)]
    pub(crate) targets: Vec<String>,
    /// Target with which `percent`, `ratios` and `bars` compare. If `None`: the experiment's first
    /// reference that has run the load.
    #[serde(default)]
    pub(crate) reference: Option<String>,
    /// First and last point whose mean `bars` and `shares` show; all if `None`. `ratios` shows each
    /// of them, or the reference's best point if `None`.
    #[serde(default)]
    pub(crate) points: Option<(f64, f64)>,
    /// Fault scenario of an `outage` figure; all if `None`.
    #[serde(default)]
    pub(crate) scenario: Option<String>,
}

/// Kind of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Drawing {
    /// The metric over the sweep, one line per target: median with a band from minimum to maximum
    /// over the blocks.
    Lines,
    /// The metric in per cent of `reference`'s over the sweep, with the interval as a band.
    Percent,
    /// One bar per target, grouped by load.
    Bars,
    /// Each server's share of the requests, one stacked bar per target.
    Shares,
    /// Each fault trial's outage, split into its steps, one line per trial.
    Outage,
    /// The ratio of the metric to `reference`'s at its best point, one interval per target.
    Ratios,
    /// Processor time per request (us) of balancer, servers and load, one stacked bar per target.
    Cpu,
}
