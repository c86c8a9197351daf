//! Writes the tables of an experiment: every target at the busiest point or at each of a few, and
//! the outages.

use super::super::html::Html;
use super::super::number::{count, ratio as as_ratio, short};
use super::sweep;
use crate::bench::outcome::{Better, Experiment, Load, Metric, Probe, Target};
use crate::bench::statistics::{Analysed, OutageSummary, Ratio, Reading, Summary};

/// Metrics of the columns, if a load has them.
const COLUMNS: [Metric; 8] = [
    Metric::MeanMs,
    Metric::P50Ms,
    Metric::P95Ms,
    Metric::P99Ms,
    Metric::MaxMs,
    Metric::ErrorPercent,
    Metric::BalancerCpuUs,
    Metric::BalancerMemoryMb,
];

/// Maximum number of points for which a load has one table each.
const TABLES_MAX: usize = 3;

/// Writes all targets at each point of each load. If there are many points, writes a table of all
/// points and one at the reference's fastest point.
pub(super) fn at_peak(html: &mut Html, experiment: &Experiment, analysed: &Analysed) {
    for load in &experiment.loads {
        let of_load: Vec<&Summary> = analysed
            .summaries
            .iter()
            .filter(|summary| summary.load == load.name)
            .collect();
        let has_run = |name: &&String| of_load.iter().any(|s| s.target == **name);
        let references: Vec<&String> = experiment.references.iter().filter(has_run).collect();
        let Some(peak) = peak(&of_load, references.first().map(|r| r.as_str())) else {
            continue;
        };
        let points = points(&of_load);
        if points.len() > TABLES_MAX {
            sweep::write(html, experiment, load, &of_load, &points);
        }
        for point in shown(points, peak) {
            let at_point = |s: &&&Summary| s.point == point;
            let here: Vec<&Summary> = of_load.iter().filter(at_point).copied().collect();
            let columns: Vec<Metric> = COLUMNS
                .into_iter()
                .filter(|metric| here.iter().any(|s| s.metric == *metric))
                .collect();
            let table = Table {
                experiment,
                load,
                point,
                references: references.clone(),
                columns,
                here,
                ratios: &analysed.ratios,
            };
            table.write(html);
        }
    }
}

fn points(summaries: &[&Summary]) -> Vec<f64> {
    let mut points: Vec<f64> = summaries.iter().map(|summary| summary.point).collect();
    points.sort_by(f64::total_cmp);
    points.dedup();
    points
}

/// Returns all points, or only the peak if there are many.
fn shown(points: Vec<f64>, peak: f64) -> Vec<f64> {
    if points.len() > TABLES_MAX {
        vec![peak]
    } else {
        points
    }
}

/// Returns the point with the reference's highest median rate, or with the highest of any target.
fn peak(summaries: &[&Summary], reference: Option<&str>) -> Option<f64> {
    let rates = summaries.iter().filter(|s| s.metric == Metric::Rate);
    rates
        .filter(|s| reference.is_none_or(|reference| s.target == reference))
        .max_by(|a, b| a.median.total_cmp(&b.median))
        .map(|summary| summary.point)
}

struct Table<'a> {
    experiment: &'a Experiment,
    load: &'a Load,
    point: f64,
    references: Vec<&'a String>,
    columns: Vec<Metric>,
    here: Vec<&'a Summary>,
    ratios: &'a [Ratio],
}

impl Table<'_> {
    fn write(&self, html: &mut Html) {
        let load = self.load;
        html.element(
            "h3",
            &format!("{} – {}", load.title, load.point_label(self.point)),
        );
        html.inside("table class=\"numbers\"", |html| {
            html.inside("thead", |html| {
                html.inside("tr", |html| self.heading(html));
            });
            html.inside("tbody", |html| {
                for target in &self.experiment.targets {
                    self.row(html, target);
                }
            });
        });
    }

    fn heading(&self, html: &mut Html) {
        html.element("th", "")
            .element("th", &format!("{}/s", self.load.counted));
        for reference in &self.references {
            html.element("th", &format!("× {}", title(self.experiment, reference)));
        }
        for metric in &self.columns {
            html.element("th", metric.short());
        }
        html.element("th class=\"words\"", "CPU share, %");
    }

    fn row(&self, html: &mut Html, target: &Target) {
        let opening = if target.program == "evenkeel" {
            "tr class=\"own\""
        } else {
            "tr"
        };
        let Some(rate) = self.summary(target, Metric::Rate) else {
            // A target that runs other loads has no row here; a missing one has a row everywhere.
            if let Some(why) = &target.missing {
                html.inside("tr class=\"missing\"", |html| {
                    html.element("th", &target.title);
                    html.inside("td colspan=\"14\"", |html| {
                        html.text(why);
                    });
                });
            }
            return;
        };
        html.inside(opening, |html| {
            html.element("th", &target.title)
                .inside("td", |html| with_interval(html, rate));
            for reference in &self.references {
                html.inside("td", |html| self.ratio(html, target, reference));
            }
            for metric in &self.columns {
                let value = self.median(target, *metric);
                html.element("td", &value.map_or("–".to_owned(), short));
            }
            html.element("td class=\"small\"", &self.bottleneck(target));
        });
    }

    fn median(&self, target: &Target, metric: Metric) -> Option<f64> {
        Some(self.summary(target, metric)?.median)
    }

    fn summary(&self, target: &Target, metric: Metric) -> Option<&Summary> {
        let of = |s: &&&Summary| s.target == target.name && s.metric == metric;
        self.here.iter().find(of).copied()
    }

    fn ratio(&self, html: &mut Html, target: &Target, reference: &str) {
        if target.name == reference {
            html.text("1");
            return;
        }
        let found = self.ratios.iter().find(|ratio| {
            ratio.target == target.name
                && ratio.to == reference
                && ratio.load == self.load.name
                && ratio.point == self.point
                && ratio.metric == Metric::Rate
        });
        let Some(found) = found else {
            html.text("–");
            return;
        };
        html.element("strong", &as_ratio(found.interval.middle));
        let (low, high) = (as_ratio(found.interval.low), as_ratio(found.interval.high));
        let reading = reading(found.reading, found.metric.better());
        let range = match found.interval.blocks {
            0..3 => String::new(),
            _ => format!(" {low}–{high}"),
        };
        html.element("span class=\"small\"", &format!("{range} {reading}"));
    }

    /// Returns the component that uses most of a request's processor time.
    fn bottleneck(&self, target: &Target) -> String {
        let parts = [
            ("servers", Metric::ServersCpuUs),
            ("load", Metric::LoadCpuUs),
            ("balancer", Metric::BalancerCpuUs),
        ];
        let mut parts: Vec<(&str, f64)> = parts
            .into_iter()
            .filter_map(|(name, metric)| Some((name, self.median(target, metric)?)))
            .collect();
        let all: f64 = parts.iter().map(|(_, part)| part).sum();
        parts.sort_by(|a, b| b.1.total_cmp(&a.1));
        let words: Vec<String> = parts
            .iter()
            .filter(|(_, part)| *part > 0.0)
            .map(|(name, part)| format!("{name} {:.0}", 100.0 * part / all))
            .collect();
        words.join(", ")
    }
}

/// Writes a median, with its interval if there are enough blocks.
pub(super) fn with_interval(html: &mut Html, summary: &Summary) {
    html.text(&short(summary.median));
    if let Some((low, high)) = summary.interval {
        let range = format!(" {}–{}", short(low), short(high));
        html.element("span class=\"small\"", &range);
    }
}

/// Formats why a target did not take part: "IPVS: not installed".
pub(super) fn missing(target: &Target) -> Option<String> {
    let why = target.missing.as_ref()?;
    Some(format!("{}: {why}", target.title))
}

/// Returns a sign for the reading of a ratio.
fn reading(reading: Reading, better: Better) -> &'static str {
    match (reading, better) {
        (Reading::NoDifference, _) => "≈",
        (Reading::Unsettled, _) => "?",
        (Reading::More, Better::More) | (Reading::Less, Better::Less) => "▲",
        (Reading::More, Better::Less) | (Reading::Less, Better::More) => "▼",
    }
}

pub(super) fn title<'a>(experiment: &'a Experiment, target: &'a str) -> &'a str {
    let found = experiment.targets.iter().find(|t| t.name == target);
    found.map_or(target, |target| target.title.as_str())
}

/// Writes fault trials by target and scenario; pages leave nothing to verify afterwards.
pub(super) fn outages(html: &mut Html, experiment: &Experiment, analysed: &Analysed) {
    for (probe, title) in [
        (Probe::Writes, "Faults: what writers saw"),
        (Probe::Pages, "Faults: what clients saw"),
    ] {
        let of_probe = analysed.outages.iter().filter(|one| one.probe == probe);
        let found: Vec<&OutageSummary> = of_probe.collect();
        if found.is_empty() {
            continue;
        }
        html.element("h3", title);
        html.inside("table class=\"numbers\"", |html| {
            html.inside("thead", |html| {
                html.inside("tr", |html| outage_heading(html, probe));
            });
            html.inside("tbody", |html| {
                for one in found {
                    html.inside("tr", |html| outage(html, experiment, one));
                }
            });
        });
    }
}

fn outage_heading(html: &mut Html, probe: Probe) {
    html.raw("<th></th><th class=\"words\">fault</th><th>trials</th><th>outage ms</th>");
    html.raw("<th>longest</th><th>silence ms</th><th class=\"words\">made of</th>");
    html.raw(match probe {
        Probe::Writes => {
            "<th>written</th><th>failed</th><th>lost</th><th>duplicated</th><th>refused but \
             stored</th><th>not caught up</th>"
        }
        Probe::Pages => "<th>answered</th><th>failed</th>",
    });
}

fn outage(html: &mut Html, experiment: &Experiment, found: &OutageSummary) {
    let mut trials = found.trials.to_string();
    if found.failed_trials > 0 {
        trials += &format!(" (+{} that failed)", found.failed_trials);
    }
    let mut length = found.outage_ms.map_or("–".to_owned(), |outage| {
        if outage.blocks < 3 {
            return short(outage.middle);
        }
        format!(
            "{} ({}–{})",
            short(outage.middle),
            short(outage.low),
            short(outage.high)
        )
    });
    if found.without_end > 0 {
        length += &format!(", {} never ended", found.without_end);
    }
    let steps = found.steps.iter();
    let steps: Vec<String> = steps
        .map(|(name, ms)| format!("{name} {}", short(*ms)))
        .collect();
    html.element("th", title(experiment, &found.target));
    html.element("td class=\"small\"", &found.scenario);
    html.element("td", &trials).element("td", &length);
    html.element("td", &short(found.longest_ms));
    html.element("td", &found.silence_ms.map_or("–".to_owned(), short));
    html.element("td class=\"small\"", &steps.join(", "));
    let mut numbers = vec![found.acknowledged, found.failed];
    if found.probe == Probe::Writes {
        numbers.extend([found.lost, found.doubled, found.unexpected, found.behind]);
    }
    for number in numbers {
        html.element("td", &count(number));
    }
}
