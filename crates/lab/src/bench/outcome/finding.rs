//! Types of a study's finding: a statement that can be checked against the cells.

use serde::{Deserialize, Serialize};

use super::Metric;

/// A finding, which holds if all its checks hold.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Finding {
    /// The finding as text: `Two servers read nearly twice as fast as one`.
    pub(crate) statement: String,
    /// The published values; empty for a user's own finding.
    #[serde(default)]
    pub(crate) published: String,
    pub(crate) checks: Vec<Check>,
}

/// A condition. "Points" are the first and last point of the sweep that count, or all points if
/// absent. The geometric mean of their ratios is taken in each block before the interval is
/// computed.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "check", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Check {
    /// The ratio of `target`'s metric to `to`'s is at least `at_least` and at most `at_most`.
    Ratio {
        load: String,
        #[serde(default)]
        metric: Metric,
        target: String,
        to: String,
        #[serde(default)]
        points: Option<(f64, f64)>,
        #[serde(default)]
        at_least: Option<f64>,
        #[serde(default)]
        at_most: Option<f64>,
    },
    /// Each of `targets` is better than the next by more than the no-difference band.
    Order {
        load: String,
        #[serde(default)]
        metric: Metric,
        targets: Vec<String>,
        #[serde(default)]
        points: Option<(f64, f64)>,
    },
    /// The point at which `target` first reaches `gain` times `to` lies within `from..=until`: the
    /// whole interval reaches it there, and not before.
    Knee {
        load: String,
        #[serde(default)]
        metric: Metric,
        target: String,
        to: String,
        gain: f64,
        from: f64,
        until: f64,
    },
    /// The best value of `target`'s metric, or one within 3 % of it, is at a point within
    /// `from..=until`.
    Peak {
        load: String,
        #[serde(default)]
        metric: Metric,
        target: String,
        from: f64,
        until: f64,
    },
    /// The value of `target`'s metric at the point `at` is at least this share of its best other
    /// value.
    Keeps {
        load: String,
        #[serde(default)]
        metric: Metric,
        target: String,
        at: f64,
        at_least: f64,
    },
    /// The median outage in `scenario` is at most `at_most_ms`. No acknowledged write is lost or
    /// doubled, and the returned server has all of them.
    Outage {
        target: String,
        scenario: String,
        at_most_ms: f64,
    },
}
