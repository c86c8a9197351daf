//! What it all stands on: machine, versions, commands, configurations, every number.

use std::collections::BTreeSet;

use super::super::csv;
use super::super::html::Html;
use super::super::number::short;
use crate::bench::outcome::{Cell, ConfigFile, Experiment, Metric, Outcome, PartServers};
use crate::bench::statistics::Analysis;

pub(super) fn write(html: &mut Html, outcome: &Outcome, analysis: &Analysis) {
    html.inside("section class=\"appendix\"", |html| {
        html.element("h2", "What it stands on");
        html.inside("div class=\"columns\"", |html| {
            html.inside("div", |html| machine(html, outcome));
            html.inside("div", |html| versions(html, outcome));
        });
        for experiment in &outcome.experiments {
            configs(html, experiment);
        }
        for experiment in &outcome.experiments {
            cells(html, experiment);
        }
        let ratios: usize = analysis.experiments.iter().map(|e| e.ratios.len()).sum();
        html.element(
            "p class=\"small\"",
            &format!(
                "Beside this page: report.json (everything), cells.csv, ratios.csv ({ratios} \
                 ratios), faults.csv. Written by {}: {}",
                outcome.program, outcome.command
            ),
        );
    });
}

fn machine(html: &mut Html, outcome: &Outcome) {
    let machine = &outcome.machine;
    html.element("h3", "Machine");
    let mut entries = vec![
        ("Processor".to_owned(), machine.processor.clone()),
        ("Cores".to_owned(), machine.cores.to_string()),
        (
            "Memory".to_owned(),
            format!("{} MB", short(machine.memory_mb as f64)),
        ),
        ("Kernel".to_owned(), machine.kernel.clone()),
        ("System".to_owned(), machine.system.clone()),
        ("Virtualization".to_owned(), machine.virtualization.clone()),
        ("Frequency governor".to_owned(), machine.governor.clone()),
        (
            "Load average before".to_owned(),
            format!("{:.2}", machine.load_average),
        ),
        (
            "Local ports".to_owned(),
            format!("{} to {}", machine.local_ports.0, machine.local_ports.1),
        ),
    ];
    entries.extend(machine.further.clone());
    list(html, &entries);
}

fn versions(html: &mut Html, outcome: &Outcome) {
    html.element("h3", "Versions");
    let entries: Vec<(String, String)> = outcome.versions.clone().into_iter().collect();
    list(html, &entries);
}

fn list(html: &mut Html, entries: &[(String, String)]) {
    html.inside("table class=\"list\"", |html| {
        for (name, value) in entries.iter().filter(|(_, value)| !value.is_empty()) {
            html.inside("tr", |html| {
                html.element("th", name).element("td", value);
            });
        }
    });
}

/// Load commands, the servers' and the targets' configurations.
fn configs(html: &mut Html, experiment: &Experiment) {
    html.inside("details", |html| {
        let summary = format!("{}: commands and configurations", experiment.title);
        html.element("summary", &summary);
        for load in experiment
            .loads
            .iter()
            .filter(|load| !load.command.is_empty())
        {
            html.element("h4", &load.title)
                .element("pre", &load.command);
        }
        for servers in &experiment.servers {
            self::servers(html, servers);
        }
        for target in &experiment.targets {
            if target.version.is_empty() && target.configs.is_empty() {
                continue;
            }
            html.element("h4", &format!("{} {}", target.title, target.version));
            for config in &target.configs {
                html.element("p class=\"small\"", &config.name);
                html.element("pre", &config.text);
            }
        }
    });
}

/// The first server's configuration, and what another one has instead.
fn servers(html: &mut Html, servers: &PartServers) {
    if servers.configs.is_empty() {
        return;
    }
    html.element("h4", &format!("The servers of {}", servers.part));
    let file = |config: &ConfigFile| config.name.split(": ").nth(1).map(str::to_owned);
    for config in &servers.configs {
        let first = servers.configs.iter().find(|one| file(one) == file(config));
        let first = first.filter(|first| first.name != config.name);
        match first {
            None => html
                .element("p class=\"small\"", &config.name)
                .element("pre", &config.text),
            Some(first) => html
                .element(
                    "p class=\"small\"",
                    &format!("{}, where it is not as {}", config.name, first.name),
                )
                .element("pre", &differing(&first.text, &config.text)),
        };
    }
}

/// The lines that the first text has nowhere.
fn differing(first: &str, other: &str) -> String {
    let known: BTreeSet<&str> = first.lines().collect();
    let differing = other.lines().filter(|line| !known.contains(line));
    differing.collect::<Vec<_>>().join("\n")
}

/// A table of more runs than these makes a browser slow.
const TABLE_ROWS_MAX: usize = 3_000;

/// Every run, as it came.
fn cells(html: &mut Html, experiment: &Experiment) {
    let metrics: Vec<Metric> = Metric::ALL
        .into_iter()
        .filter(|metric| {
            experiment
                .cells
                .iter()
                .any(|c| c.values.contains_key(metric))
        })
        .collect();
    html.inside("details class=\"raw\"", |html| {
        let count = experiment.cells.len();
        html.element(
            "summary",
            &format!("{}: all {count} runs", experiment.title),
        );
        if count > TABLE_ROWS_MAX {
            html.element("pre", &csv::cells_of(experiment));
            return;
        }
        html.inside("table class=\"numbers\"", |html| {
            html.inside("thead", |html| {
                html.inside("tr", |html| {
                    for heading in ["load", "target", "point", "block", "turn"] {
                        html.element("th", heading);
                    }
                    for metric in &metrics {
                        html.element("th", metric.short());
                    }
                    html.element("th", "load busy %").element("th", "steal %");
                });
            });
            html.inside("tbody", |html| {
                for cell in &experiment.cells {
                    html.inside("tr", |html| row(html, cell, &metrics));
                }
            });
        });
    });
}

fn row(html: &mut Html, cell: &Cell, metrics: &[Metric]) {
    html.element("td", &cell.load).element("td", &cell.target);
    html.element("td", &cell.point.to_string());
    html.element("td", &cell.block.to_string());
    html.element("td", &cell.turn.to_string());
    if let Some(why) = &cell.failure {
        html.inside("td colspan=\"18\" class=\"small\"", |html| {
            html.text(why);
        });
        return;
    }
    for metric in metrics {
        let value = cell.values.get(metric);
        html.element("td", &value.map_or("–".to_owned(), |value| short(*value)));
    }
    html.element("td", &format!("{:.0}", cell.vitals.load_busy_percent));
    html.element("td", &format!("{:.1}", cell.vitals.steal_percent));
}
