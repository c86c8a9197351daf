//! Writes the summary of outages: the target with the shortest outage of writes in each fault, with
//! no row lost.

use super::super::super::html::Html;
use super::super::super::number::short;
use super::super::tables::title;
use crate::bench::outcome::Experiment;
use crate::bench::statistics::{BLOCKS_LEAST, Interval, OutageSummary};

pub(super) fn write(html: &mut Html, experiment: &Experiment, outages: &[OutageSummary]) {
    let mut scenarios: Vec<&str> = Vec::new();
    for outage in outages {
        if !scenarios.contains(&outage.scenario.as_str()) {
            scenarios.push(&outage.scenario);
        }
    }
    for scenario in scenarios {
        let of_scenario: Vec<&OutageSummary> =
            outages.iter().filter(|o| o.scenario == scenario).collect();
        // An outage near zero for all targets is no reason for a choice.
        let lasts = |o: &&OutageSummary| o.outage_ms.is_some_and(|length| length.middle > 0.0);
        if of_scenario.iter().any(lasts) {
            html.inside("div", |html| {
                html.text(&format!("Shortest outage of writes ({scenario}): "));
                shortest(html, experiment, &of_scenario);
            });
        }
    }
}

fn shortest(html: &mut Html, experiment: &Experiment, outages: &[&OutageSummary]) {
    let title = |outage: &OutageSummary| title(experiment, &outage.target).to_owned();
    let listed = |words: &str, of: &[String]| match of {
        [] => String::new(),
        some => format!(" {words}: {}.", some.join("; ")),
    };
    let (sound, amiss): (Vec<&OutageSummary>, Vec<&OutageSummary>) =
        outages.iter().copied().partition(|outage| is_sound(outage));
    let mut lengths: Vec<(String, Interval)> = sound
        .iter()
        .filter_map(|outage| Some((title(outage), outage.outage_ms?)))
        .filter(|(_, length)| length.blocks >= BLOCKS_LEAST)
        .collect();
    lengths.sort_by(|(_, a), (_, b)| a.middle.total_cmp(&b.middle));
    match lengths.split_first() {
        None => {
            html.text("too few trials to separate the candidates.");
        }
        Some(((best, length), others)) => {
            html.raw("<strong>").text(best).raw("</strong>");
            let (low, high) = (short(length.low), short(length.high));
            html.text(&format!(", {} ms ({low} to {high}).", short(length.middle)));
            let names = |is_behind: bool| -> Vec<String> {
                let others = others.iter();
                let others = others.filter(|(_, other)| (other.low > length.high) == is_behind);
                let words = |(name, other): &(String, Interval)| {
                    format!("{name} ({} ms)", short(other.middle))
                };
                others.map(words).collect()
            };
            html.text(&listed("No significant difference", &names(false)));
            html.text(&listed("Worse", &names(true)));
        }
    }
    let amiss: Vec<String> = amiss.into_iter().map(title).collect();
    let why = "Excluded because rows were lost, duplicated or not caught up, or writes never \
               resumed";
    html.text(&listed(why, &amiss));
}

fn is_sound(outage: &OutageSummary) -> bool {
    outage.lost + outage.doubled + outage.behind + outage.without_end as u64 == 0
}
