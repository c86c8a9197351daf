//! Writes a load of many points as one table: each point a row, each target a column.

use super::super::html::Html;
use super::super::number::short;
use super::tables::{missing, with_interval};
use crate::bench::outcome::{Experiment, Load, Metric, Published, Target};
use crate::bench::statistics::Summary;

/// Writes the rate over the sweep, and the study's published values of this load.
pub(super) fn write(
    html: &mut Html,
    experiment: &Experiment,
    load: &Load,
    of_load: &[&Summary],
    points: &[f64],
) {
    let published = |metric| {
        let of = |p: &&Published| p.load == load.name && p.metric == metric;
        experiment.published.iter().filter(of).collect()
    };
    for metric in Metric::ALL {
        let table = Sweep {
            experiment,
            load,
            metric,
            of_metric: of_load
                .iter()
                .copied()
                .filter(|s| s.metric == metric)
                .collect(),
            published: published(metric),
        };
        let is_wanted = metric == Metric::Rate || !table.published.is_empty();
        if is_wanted && !table.of_metric.is_empty() {
            table.write(html, points);
        }
    }
}

struct Sweep<'a> {
    experiment: &'a Experiment,
    load: &'a Load,
    metric: Metric,
    of_metric: Vec<&'a Summary>,
    published: Vec<&'a Published>,
}

impl Sweep<'_> {
    fn write(&self, html: &mut Html, points: &[f64]) {
        let label = self.metric.label(&self.load.counted);
        html.element("h3", &format!("{} – {label}", self.load.title));
        html.inside("table class=\"numbers sweep\"", |html| {
            html.inside("thead", |html| {
                html.inside("tr", |html| self.heading(html));
            });
            html.inside("tbody", |html| {
                for point in points {
                    html.inside("tr", |html| self.row(html, *point));
                }
            });
        });
        let absent: Vec<String> = self.experiment.targets.iter().filter_map(missing).collect();
        html.element(
            "p class=\"small\"",
            &format!(
                "Medians of the blocks, with 95 % intervals if there are at least three blocks. {}",
                absent.join("; ")
            ),
        );
    }

    fn heading(&self, html: &mut Html) {
        html.element("th", &self.load.axis);
        for target in self.targets() {
            let opening = if target.program == "evenkeel" {
                "th class=\"own\""
            } else {
                "th"
            };
            html.element(opening, &target.title);
        }
        let study = self.experiment.study.as_ref();
        let year = study.map_or(0, |study| study.year);
        for published in &self.published {
            let title = super::tables::title(self.experiment, &published.target);
            let heading = match year {
                0 => format!("{title}, published"),
                year => format!("{title}, published {year}"),
            };
            html.element("th class=\"published\"", &heading);
        }
    }

    fn row(&self, html: &mut Html, point: f64) {
        html.element("th", &point.to_string());
        for target in self.targets() {
            let found = self
                .of_metric
                .iter()
                .find(|s| s.target == target.name && s.point == point);
            html.inside("td", |html| match found {
                Some(found) => with_interval(html, found),
                None => {
                    html.text("–");
                }
            });
        }
        for published in &self.published {
            let value = published.values.iter().find(|(at, _)| *at == point);
            let value = value.map_or("–".to_owned(), |(_, value)| short(*value));
            html.element("td class=\"published\"", &value);
        }
    }

    /// Returns the targets that have run it.
    fn targets(&self) -> impl Iterator<Item = &Target> {
        let targets = self.experiment.targets.iter();
        targets.filter(|target| self.of_metric.iter().any(|s| s.target == target.name))
    }
}
