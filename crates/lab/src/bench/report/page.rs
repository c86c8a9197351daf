//! Renders the page: a summary, each experiment, and an appendix.

mod appendix;
mod experiment;
mod opening;
mod short;
mod sweep;
mod tables;

use super::figure;
use super::html::Html;
use crate::bench::outcome::Outcome;
use crate::bench::statistics::{Analysis, Bootstrap, Verdict};

const STYLE: &str = include_str!("page/style.css");

/// Renders the whole page, self-contained.
pub(super) fn render(outcome: &Outcome, analysis: &Analysis) -> String {
    let mut html = Html::default();
    html.raw("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    html.raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    html.raw("<meta name=\"color-scheme\" content=\"light dark\">\n");
    html.element(
        "title",
        &format!("Evenkeel bench, {}", opening::day(outcome)),
    );
    html.raw("<style>\n").raw(STYLE);
    html.style(&format!(
        "@media screen and (prefers-color-scheme:dark){{{}}}",
        figure::dark_rules()
    ));
    html.raw("</style>\n</head>\n<body>\n<main>\n");
    opening::write(&mut html, outcome, analysis);
    let is_only = outcome.experiments.len() == 1;
    let bootstrap = Bootstrap::new(outcome.seed);
    for (experiment, analysed) in outcome.experiments.iter().zip(&analysis.experiments) {
        experiment::write(&mut html, experiment, analysed, &bootstrap, is_only);
    }
    appendix::write(&mut html, outcome, analysis);
    html.raw("</main>\n</body>\n</html>\n");
    html.finish()
}

/// Writes a verdict with a sign that is recognizable without color.
fn verdict(html: &mut Html, verdict: Verdict) {
    let (opening, sign) = match verdict {
        Verdict::Holds => ("span class=\"verdict holds\"", "✓ "),
        Verdict::NotShown => ("span class=\"verdict open\"", "○ "),
        Verdict::DoesNotHold => ("span class=\"verdict fails\"", "✗ "),
    };
    html.element(opening, &format!("{sign}{}", verdict.words()));
}
