//! A study's finding as a statement that can be checked against the cells.

use serde::{Deserialize, Serialize};

use super::Metric;

/// One finding. It holds when all its checks do.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Finding {
    /// In words: `Two servers read nearly twice as fast as one`.
    pub(crate) statement: String,
    /// The figures as published; empty for a user's own.
    #[serde(default)]
    pub(crate) published: String,
    pub(crate) checks: Vec<Check>,
}

/// What must be true. "Points" are the first and the last of the sweep that count; their blocks'
/// ratios are averaged (geometric mean) before the interval is drawn. All points when absent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "check", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Check {
    /// `target`'s metric, divided by `to`'s, lies at or above `at_least` and at or below `at_most`.
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
    /// Each of `targets` is better than the next by more than what counts as no difference.
    Order {
        load: String,
        #[serde(default)]
        metric: Metric,
        targets: Vec<String>,
        #[serde(default)]
        points: Option<(f64, f64)>,
    },
    /// The point at which `target` first reaches `gain` times `to` lies within `from..=until`: with
    /// the whole interval by then, and not before.
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
    /// `target`'s metric reaches its best at a point within `from..=until`, or within 3 % of it.
    Peak {
        load: String,
        #[serde(default)]
        metric: Metric,
        target: String,
        from: f64,
        until: f64,
    },
    /// At the point `at`, `target`'s metric is at least this share of the best of its other points.
    Keeps {
        load: String,
        #[serde(default)]
        metric: Metric,
        target: String,
        at: f64,
        at_least: f64,
    },
    /// The median outage of the trials of `scenario` is at most `at_most_ms`, no acknowledged write
    /// is lost or doubled, and who was away has them all afterwards.
    Outage {
        target: String,
        scenario: String,
        at_most_ms: f64,
    },
}
