//! Writes the top of the page: verdicts, warnings, and an explanation of the figures.

use std::time::Duration;

use super::super::html::Html;
use super::super::number::{length, moment};
use super::{short, verdict};
use crate::bench::outcome::Outcome;
use crate::bench::statistics::{Alarm, Analysis};

/// Returns the day of the run.
pub(super) fn day(outcome: &Outcome) -> String {
    moment(outcome.started_unix_s)[..10].to_owned()
}

pub(super) fn write(html: &mut Html, outcome: &Outcome, analysis: &Analysis) {
    html.inside("header", |html| {
        html.element("p class=\"over\"", "Evenkeel bench");
        html.element("h1", &title(outcome));
        html.element("p class=\"facts\"", &facts(outcome));
    });
    short::write(html, outcome, analysis);
    verdicts(html, outcome, analysis);
    cautions(html, outcome, analysis);
    how_to_read(html);
}

fn title(outcome: &Outcome) -> String {
    match outcome.experiments.as_slice() {
        [only] => only.title.clone(),
        several => format!(
            "{} published experiments, run again on this machine",
            several.len()
        ),
    }
}

fn facts(outcome: &Outcome) -> String {
    let machine = &outcome.machine;
    let took = outcome.ended_unix_s.map_or("aborted".to_owned(), |end| {
        let took = end.saturating_sub(outcome.started_unix_s);
        format!("took {}", length(Duration::from_secs(took)))
    });
    format!(
        "{} · {took} · {} cores, {} · {} · seed {}",
        moment(outcome.started_unix_s),
        machine.cores,
        machine.processor,
        outcome.scale,
        outcome.seed
    )
}

fn verdicts(html: &mut Html, outcome: &Outcome, analysis: &Analysis) {
    if analysis.experiments.iter().all(|e| e.findings.is_empty()) {
        return;
    }
    html.element("h2", "Published findings and results on this machine");
    html.inside("table class=\"verdicts\"", |html| {
        html.raw("<thead><tr><th>Finding</th><th>Verdict</th><th>Measured here</th>");
        html.raw("<th>As published</th></tr></thead>\n");
        let experiments = outcome.experiments.iter().zip(&analysis.experiments);
        for (experiment, analysed) in experiments.filter(|(_, a)| !a.findings.is_empty()) {
            html.inside("tbody", |html| {
                html.inside("tr class=\"group\"", |html| {
                    html.inside("th colspan=\"4\"", |html| {
                        html.with("a", ("href", &format!("#{}", experiment.name)), |html| {
                            html.text(&experiment.title);
                        });
                    });
                });
                for found in &analysed.findings {
                    html.inside("tr", |html| {
                        html.element("td", &found.statement);
                        html.inside("td", |html| verdict(html, found.verdict));
                        html.inside("td class=\"small\"", |html| {
                            for numbers in &found.numbers {
                                html.element("div", numbers);
                            }
                        });
                        html.element("td class=\"small\"", &found.published);
                    });
                }
            });
        }
    });
}

fn cautions(html: &mut Html, outcome: &Outcome, analysis: &Analysis) {
    if analysis.alarms.is_empty() && outcome.notes.is_empty() {
        return;
    }
    html.inside("section class=\"caution\"", |html| {
        html.element("h2", "Warnings");
        html.inside("ul", |html| {
            alarms(html, &analysis.alarms);
            for note in &outcome.notes {
                html.element("li", note);
            }
        });
    });
}

/// Writes alarms as list items.
pub(super) fn alarms(html: &mut Html, alarms: &[Alarm]) {
    for alarm in alarms {
        html.inside("li", |html| {
            html.element("strong", &capital(&alarm.seen));
            html.text(&format!(" – {}.", alarm.means));
        });
    }
}

fn capital(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or(String::new(), |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

fn how_to_read(html: &mut Html) {
    html.inside("details class=\"reading\"", |html| {
        html.element("summary", "How to read this");
        html.raw(
            "<p>Load generator, balancer and servers share one machine. Absolute rates therefore \
             do not transfer to other machines; the <em>ratio</em> of two targets of the same \
             block and the CPU time per request do.</p>\n<p>Each block runs every target once, in \
             rotating order. A ratio is computed within each block; shown is the median of the \
             blocks with a 95 % interval (bootstrap over the blocks; with fewer than six blocks, \
             where a bootstrap is too narrow, Student's t on the logarithms). An interval within \
             3 % of 1 means no difference; one that includes both sides of a limit is \
             inconclusive. Bands and whiskers in figures span the lowest to the highest block. \
             After a ratio, ▲ means the first target is better, ▼ worse, ≈ no difference, \
             ? inconclusive.</p>\n<p>A finding <em>holds</em> if the whole interval is on the \
             side the study claims, <em>does not hold</em> if it is entirely on the other side, \
             and is <em>not shown here</em> otherwise, or if something it needs is not installed. \
             Only shapes are judged (order, ratio, knee), never absolute numbers. \
             <em>Holds if</em> is the limit that was set.</p>\n<p>In the summary, the recommended \
             target wins most comparisons by the median. <em>Worse</em> means worse by more than \
             3 % over the whole interval. Targets without a significant difference may be equally \
             good: decide by something else, or run more blocks.</p>\n<p>A closed loop waits for \
             each answer, so a stall hides the requests that would have shown it; an open loop \
             sends on a schedule and measures latency from the intended start.</p>\n",
        );
    });
}
