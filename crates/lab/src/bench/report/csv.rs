//! Writes the raw numbers as CSV tables.

use std::fmt::Write;

use crate::bench::outcome::{Experiment, Metric, Outcome, Probe};
use crate::bench::statistics::Analysis;

/// Returns one line per run.
pub(super) fn cells(outcome: &Outcome) -> String {
    let mut table = Table::default();
    table.line(cells_heading());
    for experiment in &outcome.experiments {
        add_cells(&mut table, experiment);
    }
    table.0
}

/// Returns the lines of one experiment's runs.
pub(super) fn cells_of(experiment: &Experiment) -> String {
    let mut table = Table::default();
    table.line(cells_heading());
    add_cells(&mut table, experiment);
    table.0
}

fn cells_heading() -> Vec<String> {
    let metrics = Metric::ALL.map(metric_name);
    let first = [
        "experiment",
        "load",
        "target",
        "point",
        "block",
        "turn",
        "seconds",
    ];
    let last = [
        "load_busy_percent",
        "steal_percent",
        "local_ports_used",
        "offered_percent",
        "failure",
    ];
    let heading = first.into_iter().map(str::to_owned).chain(metrics);
    heading.chain(last.map(str::to_owned)).collect()
}

fn add_cells(table: &mut Table, experiment: &Experiment) {
    for cell in &experiment.cells {
        let place = [&experiment.name, &cell.load, &cell.target].map(String::clone);
        let numbers = [
            cell.point.to_string(),
            cell.block.to_string(),
            cell.turn.to_string(),
            cell.seconds.to_string(),
        ];
        let values = Metric::ALL.map(|metric| {
            let value = cell.values.get(&metric);
            value.map_or(String::new(), f64::to_string)
        });
        let offered = cell.vitals.offered_percent;
        let vitals = [
            cell.vitals.load_busy_percent.to_string(),
            cell.vitals.steal_percent.to_string(),
            cell.vitals.local_ports_used.to_string(),
            offered.map_or(String::new(), |percent| percent.to_string()),
            cell.failure.clone().unwrap_or_default(),
        ];
        let fields = place.into_iter().chain(numbers).chain(values).chain(vitals);
        table.line(fields);
    }
}

/// Returns one line per ratio, with its interval.
pub(super) fn ratios(analysis: &Analysis) -> String {
    let mut table = Table::default();
    let heading = [
        "experiment",
        "load",
        "target",
        "to",
        "point",
        "metric",
        "low",
        "ratio",
        "high",
        "blocks",
    ];
    table.line(heading.map(str::to_owned));
    for experiment in &analysis.experiments {
        for ratio in &experiment.ratios {
            table.line([
                experiment.name.clone(),
                ratio.load.clone(),
                ratio.target.clone(),
                ratio.to.clone(),
                ratio.point.to_string(),
                metric_name(ratio.metric),
                ratio.interval.low.to_string(),
                ratio.interval.middle.to_string(),
                ratio.interval.high.to_string(),
                ratio.interval.blocks.to_string(),
            ]);
        }
    }
    table.0
}

/// Returns one line per fault trial.
pub(super) fn faults(outcome: &Outcome) -> String {
    let mut table = Table::default();
    let heading = [
        "experiment",
        "target",
        "scenario",
        "trial",
        "probe",
        "first_error_ms",
        "first_success_ms",
        "outage_ms",
        "silence_ms",
        "acknowledged",
        "failed",
        "lost",
        "doubled",
        "unexpected",
        "lag",
        "steps",
        "failure",
    ];
    table.line(heading.map(str::to_owned));
    for experiment in &outcome.experiments {
        for trial in &experiment.faults {
            let of_writes = |count: u64| match trial.probe {
                Probe::Writes => count.to_string(),
                Probe::Pages => String::new(),
            };
            let probe = match trial.probe {
                Probe::Writes => "writes",
                Probe::Pages => "pages",
            };
            let number = |value: Option<f64>| value.map_or(String::new(), |v| v.to_string());
            let steps = trial.steps.iter();
            let steps: Vec<String> = steps
                .map(|step| format!("{} {}..{}", step.name, step.from_ms, step.to_ms))
                .collect();
            table.line([
                experiment.name.clone(),
                trial.target.clone(),
                trial.scenario.clone(),
                trial.trial.to_string(),
                probe.to_owned(),
                number(trial.first_error_ms),
                number(trial.first_success_ms),
                number(trial.outage_ms()),
                number(trial.silence_ms),
                trial.acknowledged.to_string(),
                trial.failed.to_string(),
                of_writes(trial.lost),
                of_writes(trial.doubled),
                of_writes(trial.unexpected),
                of_writes(trial.behind),
                steps.join("; "),
                trial.failure.clone().unwrap_or_default(),
            ]);
        }
    }
    table.0
}

/// Returns the metric's name in the JSON.
fn metric_name(metric: Metric) -> String {
    let name = serde_json::to_value(metric).unwrap_or_default();
    name.as_str().unwrap_or_default().to_owned()
}

#[derive(Default)]
struct Table(String);

impl Table {
    /// Appends a line. RFC 4180: a field with a comma, a quote or a line break is quoted.
    fn line(&mut self, fields: impl IntoIterator<Item = String>) {
        for (index, field) in fields.into_iter().enumerate() {
            if index > 0 {
                self.0.push(',');
            }
            if field.contains([',', '"', '\n', '\r']) {
                let _ = write!(self.0, "\"{}\"", field.replace('"', "\"\""));
            } else {
                self.0.push_str(&field);
            }
        }
        self.0.push_str("\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_with_a_comma_or_a_quote_stands_in_quotes() {
        let mut table = Table::default();
        table.line(["a,b", "say \"no\"", "plain"].map(str::to_owned));
        assert_eq!(table.0, "\"a,b\",\"say \"\"no\"\"\",plain\r\n");
    }

    #[test]
    fn metrics_are_named_as_in_the_json() {
        assert_eq!(metric_name(Metric::P95Ms), "p95-ms");
    }
}
