//! What a reader sees first: the verdicts, the cautions, and how to read the figures.

use std::time::Duration;

use super::super::html::Html;
use super::super::number::{length, moment};
use super::{short, verdict};
use crate::bench::outcome::Outcome;
use crate::bench::statistics::{Alarm, Analysis};

/// The day of the run.
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
    let took = outcome
        .ended_unix_s
        .map_or("ended before its time".to_owned(), |end| {
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
    html.element("h2", "What the studies found, and what this machine says");
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
        html.element("h2", "With caution");
        html.inside("ul", |html| {
            alarms(html, &analysis.alarms);
            for note in &outcome.notes {
                html.element("li", note);
            }
        });
    });
}

/// As items of a list.
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
        html.raw("<p>Load, balancer and servers share one machine. What can be carried to another \
            machine is therefore the <em>ratio</em> of two targets of one block, and the processor \
            time per request; the absolute rate cannot.</p>\n<p>Every target ran once in every \
            block, in rotating order. A ratio is taken within each block; shown is the median of \
            the blocks with its 95 % interval: of a bootstrap over the blocks, or, for fewer than six \
            blocks, which a bootstrap makes too narrow, of Student's t on the logarithms. An interval \
            that lies within 3 % of 1 is called no difference; one that lies on both sides of a limit \
            settles nothing. Bands in figures go from the least block to the most, whiskers too. Behind a \
            ratio, ▲ says that the first is better, ▼ that it is worse, ≈ that there is no difference, and ? \
            that the blocks do not settle it: the wider the interval, the less they say.</p>\n\
            <p>A finding <em>holds</em> when the whole interval lies where the study's claim has \
            it, <em>does not hold</em> when the whole interval lies elsewhere, and is <em>not shown \
            here</em> in between, or when something it needs is not installed. Only shapes are \
            judged (order, ratio, knee), never the old absolute figures. <em>Holds if</em> is the limit \
            that was set for the claim.</p>\n<p>In short: whom to take is who wins most pairs by the \
            median; <em>behind</em> it is whose whole interval is worse by more than 3 %, and whoever is \
            <em>not told apart</em> may be as good: choose among these by something else, or run more \
            blocks.</p>\n<p>A closed loop waits \
            for each answer, so a stall hides the requests that would have shown it; an open loop \
            asks on a schedule and counts latency from the intended start.</p>\n");
    });
}
