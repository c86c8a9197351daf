//! Writes the section of an experiment: study, verdicts, figures, tables, failures.

use super::super::figure;
use super::super::html::Html;
use super::opening::alarms;
use super::{tables, verdict};
use crate::bench::outcome::{Drawing, Experiment, Figure, Loop, Metric};
use crate::bench::statistics::{Analysed, Bootstrap};

pub(super) fn write(
    html: &mut Html,
    experiment: &Experiment,
    analysed: &Analysed,
    bootstrap: &Bootstrap,
    is_only: bool,
) {
    html.with(
        "section class=\"experiment\"",
        ("id", &experiment.name),
        |html| {
            html.element("h2", &experiment.title);
            study(html, experiment);
            // The findings of a single experiment are already directly above.
            if !is_only {
                findings(html, analysed);
            }
            cautions(html, experiment, analysed);
            figures(html, experiment, analysed, bootstrap);
            tables::at_peak(html, experiment, analysed);
            tables::outages(html, experiment, analysed);
            went_wrong(html, experiment);
        },
    );
}

fn study(html: &mut Html, experiment: &Experiment) {
    html.inside("dl class=\"study\"", |html| {
        let mut entry = |name: &'static str, text: &str| {
            if !text.is_empty() {
                html.element("dt", name).element("dd", text);
            }
        };
        if let Some(study) = &experiment.study {
            let setting = match study.year {
                0 => study.setting.clone(),
                year => format!("{year}: {}", study.setting),
            };
            entry("The study", &setting);
            entry("Result", &study.found);
        }
        entry("Here", &experiment.topology);
        if let Some(study) = &experiment.study {
            entry("Differences here", &study.differs);
        }
    });
}

fn findings(html: &mut Html, analysed: &Analysed) {
    if analysed.findings.is_empty() {
        return;
    }
    html.inside("ul class=\"findings\"", |html| {
        for found in &analysed.findings {
            html.inside("li", |html| {
                verdict(html, found.verdict);
                html.element("span class=\"statement\"", &found.statement);
                for numbers in &found.numbers {
                    html.element("div class=\"small\"", numbers);
                }
            });
        }
    });
}

fn cautions(html: &mut Html, experiment: &Experiment, analysed: &Analysed) {
    if !analysed.alarms.is_empty() {
        html.inside("div class=\"caution\"", |html| {
            html.inside("ul", |html| alarms(html, &analysed.alarms));
        });
    }
    html.inside("ul class=\"notes\"", |html| {
        for note in notes(experiment) {
            html.element("li", &note);
        }
    });
}

/// Returns the notes of the experiment and its targets, without duplicates.
fn notes(experiment: &Experiment) -> Vec<String> {
    let mut notes = experiment.notes.clone();
    notes.dedup();
    let mut of_targets: Vec<(&str, Vec<&str>)> = Vec::new();
    for target in &experiment.targets {
        for note in &target.notes {
            match of_targets.iter_mut().find(|(known, _)| known == note) {
                Some((_, titles)) => titles.push(&target.title),
                None => of_targets.push((note, vec![&target.title])),
            }
        }
    }
    let reported = of_targets.iter();
    notes.extend(reported.map(|(note, titles)| format!("{}: {note}", titles.join("; "))));
    notes
}

fn figures(html: &mut Html, experiment: &Experiment, analysed: &Analysed, bootstrap: &Bootstrap) {
    html.inside("div class=\"figures\"", |html| {
        for wanted in experiment.figures.iter().chain(&added(experiment)) {
            let drawn = figure::draw(experiment, wanted, &analysed.summaries, bootstrap);
            match drawn {
                Ok(Some(svg)) => {
                    html.inside("figure", |html| {
                        html.element("h3", &wanted.title);
                        html.svg(&svg);
                        html.element("figcaption", &caption(experiment, wanted));
                    });
                }
                Ok(None) => {}
                Err(error) => {
                    let words = format!("{}: could not be drawn: {error:#}", wanted.title);
                    html.element("p class=\"caution\"", &words);
                }
            }
        }
    });
}

/// Returns figures that every experiment has, even if its file does not declare them.
fn added(experiment: &Experiment) -> Vec<Figure> {
    let asks = |drawing| experiment.figures.iter().any(|f| f.drawing == drawing);
    let figure = |drawing, title: &str, caption: &str| Figure {
        title: title.to_owned(),
        caption: caption.to_owned(),
        drawing,
        load: None,
        metric: Metric::Rate,
        targets: Vec::new(),
        reference: None,
        points: None,
        scenario: None,
    };
    let ratios = figure(
        Drawing::Ratios,
        "Ratios, with their intervals",
        "At the point where the reference is fastest. An interval within the gray band of ±3 % \
         means no difference.",
    );
    let cpu = figure(
        Drawing::Cpu,
        "CPU time",
        "Per request, at each target's fastest point. This is meaningful although everything \
         shares one machine.",
    );
    let outage = figure(
        Drawing::Outage,
        "Duration of write outages",
        "One line per trial, shortest first; the median on the right.",
    );
    let shares = figure(
        Drawing::Shares,
        "Distribution of requests",
        "Dashed lines: equal shares.",
    );
    let mut added = Vec::new();
    for figure in [ratios, cpu, shares, outage] {
        if !asks(figure.drawing) {
            added.push(figure);
        }
    }
    added
}

/// Returns the declared caption and the loop of the load.
fn caption(experiment: &Experiment, figure: &Figure) -> String {
    let load = figure.load.as_ref();
    let load = load.and_then(|name| experiment.loads.iter().find(|l| l.name == *name));
    let closing = match load.map(|load| (load.kind, load.tool.as_str())) {
        Some((Loop::Closed, tool)) => format!("Closed loop ({tool})."),
        Some((Loop::Open, tool)) => format!("Open loop ({tool})."),
        None => String::new(),
    };
    let parts = [figure.caption.trim(), closing.as_str()];
    parts
        .into_iter()
        .filter(|p| !p.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

fn went_wrong(html: &mut Html, experiment: &Experiment) {
    if experiment.failures.is_empty() {
        return;
    }
    html.element("h3", "Failures");
    html.inside("dl class=\"study\"", |html| {
        for failure in &experiment.failures {
            html.element("dt", &failure.at).element("dd", &failure.why);
        }
    });
}
