//! Writes the summary: for each experiment the question, the study's finding, the result here, and
//! the recommended target.

mod outage;

use super::super::figure::singular;
use super::super::html::Html;
use super::super::number::ratio as as_ratio;
use super::opening::day;
use super::tables::title;
use crate::bench::outcome::{Better, Experiment, Metric, Outcome, Study};
use crate::bench::statistics::{
    Analysed, Analysis, Choice, Interval, Judged, Other, Standing, Verdict,
};

/// Maximum number of loads that are named; more are only counted.
const LOADS_NAMED: usize = 4;

pub(super) fn write(html: &mut Html, outcome: &Outcome, analysis: &Analysis) {
    html.element("h2", "Summary");
    let is_only = outcome.experiments.len() == 1;
    for (experiment, analysed) in outcome.experiments.iter().zip(&analysis.experiments) {
        html.inside("section class=\"short\"", |html| {
            if !is_only {
                html.inside("h3", |html| {
                    html.with("a", ("href", &format!("#{}", experiment.name)), |html| {
                        html.text(&experiment.title);
                    });
                });
            }
            html.inside("dl class=\"study\"", |html| {
                entries(html, experiment, analysed, &day(outcome));
            });
        });
    }
}

fn entries(html: &mut Html, experiment: &Experiment, analysed: &Analysed, day: &str) {
    match &experiment.study {
        Some(study) => html.element("dt", "Then").element("dd", &then(study)),
        None => html
            .element("dt", "Measured")
            .element("dd", &measured(experiment)),
    };
    if let Some((first, others)) = analysed.findings.split_first() {
        html.element("dt", "Here")
            .element("dd", &here(first, others, day));
    }
    if analysed.choices.is_empty() && analysed.outages.is_empty() {
        return;
    }
    html.element("dt", "Recommendation").inside("dd", |html| {
        for choice in &analysed.choices {
            html.inside("div", |html| take(html, experiment, choice));
        }
        outage::write(html, experiment, &analysed.outages);
    });
}

/// Formats the study: "In 2012 the question was whether …; the answer: …".
fn then(study: &Study) -> String {
    let when = match study.year {
        0 => "The".to_owned(),
        year => format!("In {year} the"),
    };
    let (asked, found) = (study.asked.trim(), study.found.trim());
    if asked.is_empty() {
        format!("{when} answer was: {found}")
    } else {
        format!("{when} question was {asked}; the answer: {found}")
    }
}

/// Describes an experiment that repeats no study: its targets and loads.
fn measured(experiment: &Experiment) -> String {
    let sound = || experiment.cells.iter().filter(|c| c.failure.is_none());
    let targets = experiment.targets.iter();
    let targets: Vec<&str> = targets
        .filter(|target| sound().any(|cell| cell.target == target.name))
        .map(|target| target.title.as_str())
        .collect();
    let loads = experiment.loads.iter();
    let loads: Vec<&str> = loads
        .filter(|load| sound().any(|cell| cell.load == load.name))
        .map(|load| load.title.as_str())
        .collect();
    let blocks = sound().map(|cell| cell.block).max().unwrap_or(0);
    if targets.is_empty() {
        return "No run produced a result.".to_owned();
    }
    let loads = match loads.len() {
        0..=LOADS_NAMED => loads.join("; "),
        many => format!("{many} loads"),
    };
    let blocks = several(blocks as usize, "block");
    format!("{}, under {loads}; {blocks}.", targets.join("; "))
}

/// Formats the first finding with its numbers, and the verdicts of the others.
fn here(first: &Judged, others: &[Judged], day: &str) -> String {
    let numbers = first.numbers.join("; ");
    let mut sentence = format!(
        "On {day} “{}” {}: {numbers}",
        first.statement,
        predicate(first.verdict)
    );
    if !others.is_empty() {
        let with = |verdict| others.iter().filter(|o| o.verdict == verdict).count();
        sentence += &format!(
            "; of the other {}, {} hold{}, {} {} not, {} {} not shown here",
            several(others.len(), "finding"),
            with(Verdict::Holds),
            if with(Verdict::Holds) == 1 { "s" } else { "" },
            with(Verdict::DoesNotHold),
            if with(Verdict::DoesNotHold) == 1 {
                "does"
            } else {
                "do"
            },
            with(Verdict::NotShown),
            if with(Verdict::NotShown) == 1 {
                "is"
            } else {
                "are"
            },
        );
    }
    sentence + "."
}

fn predicate(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "holds",
        Verdict::NotShown => "is not shown",
        Verdict::DoesNotHold => "does not hold",
    }
}

/// Writes which target was best by which metric and margin, and which others are equivalent.
fn take(html: &mut Html, experiment: &Experiment, choice: &Choice) {
    let title = |name: &str| title(experiment, name).to_owned();
    let subject = subject(experiment, choice);
    let is_too_few = |other: &Other| other.standing == Standing::TooFewBlocks;
    if !choice.others.is_empty() && choice.others.iter().all(is_too_few) {
        html.text(&format!(
            "{subject}: too few blocks to separate the candidates."
        ));
        return;
    }
    html.text(&format!("{subject}: "));
    html.raw("<strong>")
        .text(&title(&choice.best))
        .raw("</strong>");
    if let Some((reference, by)) = &choice.by_reference {
        html.text(&format!(
            ", × {} of {}",
            describe_ratio(by),
            title(reference)
        ));
    }
    let Some(next) = choice.others.first() else {
        html.text("; no other balancer was run.");
        return;
    };
    html.text(&format!(
        "; the next, {}, × {} of it.",
        title(&next.target),
        describe_ratio(&next.by_best)
    ));
    for (standing, words) in [
        (Standing::Alike, "No significant difference"),
        (Standing::Behind, "Worse"),
        (Standing::TooFewBlocks, "Too few blocks"),
    ] {
        let others = choice.others.iter().filter(|o| o.standing == standing);
        let names: Vec<String> = others.map(|other| title(&other.target)).collect();
        if !names.is_empty() {
            html.text(&format!(" {words}: {}.", names.join("; ")));
        }
    }
}

/// Formats the topic: "Most transactions per second (MySQL, simple read; threads: 32)".
fn subject(experiment: &Experiment, choice: &Choice) -> String {
    let load = experiment.loads.iter().find(|l| l.name == choice.load);
    let (counted, title, axis) = load.map_or(("requests", choice.load.as_str(), ""), |load| {
        (&load.counted, &load.title, &load.axis)
    });
    let most = match choice.metric.better() {
        Better::More => "Most",
        Better::Less => "Least",
    };
    let noun = choice.metric.noun(counted);
    let points = points(experiment, choice);
    let per = match choice.metric {
        Metric::BalancerCpuUs => format!(" per {}", singular(counted)),
        _ => String::new(),
    };
    format!("{most} {noun}{per} ({title}; {axis}: {points})")
}

/// Returns the points that count and were run.
fn points(experiment: &Experiment, choice: &Choice) -> String {
    let cells = experiment.cells.iter();
    let points = cells
        .filter(|cell| cell.load == choice.load && cell.target == choice.best)
        .map(|cell| cell.point)
        .filter(|point| crate::bench::statistics::within(choice.points, *point));
    let (first, last) = points.fold((f64::INFINITY, 0.0f64), |(first, last), point| {
        (first.min(point), last.max(point))
    });
    if first < last {
        format!("{first} to {last}")
    } else {
        last.to_string()
    }
}

/// Formats a ratio, with its interval if there are enough blocks.
fn describe_ratio(by: &Interval) -> String {
    let middle = as_ratio(by.middle);
    match by.blocks {
        0..3 => middle,
        _ => format!("{middle} ({} to {})", as_ratio(by.low), as_ratio(by.high)),
    }
}

fn several(count: usize, thing: &str) -> String {
    match count {
        1 => format!("one {thing}"),
        _ => format!("{count} {thing}s"),
    }
}
