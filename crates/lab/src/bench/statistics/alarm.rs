//! Detects reasons to distrust the numbers, from the numbers themselves.

use serde::Serialize;

use super::bootstrap::Reading;
use super::summary::Ratio;
use crate::bench::outcome::{Cell, Experiment, Metric, Outcome};

/// Load of the generator in per cent from which the run measures the generator itself.
const LOAD_BUSY_PERCENT: f64 = 90.0;
/// Shortfall of the offered rate in per cent from which the run measures the generator.
const NOT_OFFERED_PERCENT: f64 = 5.0;
/// Share of the local ports in use from which new connections must search for one.
const PORTS_USED: f64 = 0.8;
const STEAL_PERCENT: f64 = 2.0;
/// Load average per core before the run above which other programs were active.
const BUSY_BEFORE: f64 = 0.5;
const BLOCKS_LEAST: u32 = 5;
/// Number of sweep points that are named before "and N more".
const PLACES_NAMED: usize = 4;

/// A warning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Alarm {
    pub(crate) kind: Kind,
    /// The observation, with its numbers.
    pub(crate) seen: String,
    /// Effect on the results, and what to do.
    pub(crate) means: String,
}

/// Kind of an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    SaturatedLoad,
    RateNotOffered,
    FasterThanDirect,
    PortExhaustion,
    StealTime,
    BusyBefore,
    FewBlocks,
    Unfinished,
    FailedRuns,
}

/// Returns the alarms about the whole run.
pub(crate) fn of_machine(outcome: &Outcome) -> Vec<Alarm> {
    let mut alarms = Vec::new();
    let machine = &outcome.machine;
    if machine.load_average > BUSY_BEFORE * f64::from(machine.cores) {
        alarms.push(Alarm {
            kind: Kind::BusyBefore,
            seen: format!(
                "the load average before the run was {:.1} on {} cores",
                machine.load_average, machine.cores
            ),
            means: "other processes were using the CPU; repeat the run on an idle machine"
                .to_owned(),
        });
    }
    if outcome.ended_unix_s.is_none() {
        alarms.push(Alarm {
            kind: Kind::Unfinished,
            seen: "the run was aborted".to_owned(),
            means: "the results shown are valid; `--resume` adds the missing ones".to_owned(),
        });
    }
    alarms
}

/// Returns the alarms about one experiment.
pub(crate) fn of_experiment(
    outcome: &Outcome,
    experiment: &Experiment,
    ratios: &[Ratio],
) -> Vec<Alarm> {
    let first = f64::from(outcome.machine.local_ports.0);
    let ports = f64::from(outcome.machine.local_ports.1) - first + 1.0;
    [
        saturated_load(experiment),
        rate_not_offered(experiment),
        faster_than_direct(experiment, ratios),
        port_exhaustion(experiment, ports),
        steal_time(experiment),
        few_blocks(experiment),
        failed_runs(experiment),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn saturated_load(experiment: &Experiment) -> Option<Alarm> {
    let busy = |cell: &Cell| cell.vitals.load_busy_percent;
    let seen = seen(experiment, busy, LOAD_BUSY_PERCENT)?;
    Some(Alarm {
        kind: Kind::SaturatedLoad,
        seen: format!("the load generator was busy {seen}"),
        means: "the load generator was the bottleneck: rates are its limit, and latency includes \
                its own queueing. Compare CPU per request, or give it more cores"
            .to_owned(),
    })
}

/// Checks generators that wait by polling the clock: their processor time says nothing.
fn rate_not_offered(experiment: &Experiment) -> Option<Alarm> {
    let missing = |cell: &Cell| 100.0 - cell.vitals.offered_percent.unwrap_or(100.0);
    let seen = seen(experiment, missing, NOT_OFFERED_PERCENT)?;
    Some(Alarm {
        kind: Kind::RateNotOffered,
        seen: format!("the load generator offered less than the requested rate, {seen}"),
        means: "the load generator or the machine was the bottleneck: fewer requests were sent \
                than intended. Give it more cores, or lower the rate"
            .to_owned(),
    })
}

fn steal_time(experiment: &Experiment) -> Option<Alarm> {
    let seen = seen(experiment, |cell| cell.vitals.steal_percent, STEAL_PERCENT)?;
    Some(Alarm {
        kind: Kind::StealTime,
        seen: format!("CPU time was stolen by the hypervisor, {seen}"),
        means: "absolute numbers are too low; ratios within a block are less affected".to_owned(),
    })
}

fn port_exhaustion(experiment: &Experiment, ports: f64) -> Option<Alarm> {
    let used = |cell: &Cell| 100.0 * f64::from(cell.vitals.local_ports_used) / ports.max(1.0);
    let seen = seen(experiment, used, 100.0 * PORTS_USED)?;
    Some(Alarm {
        kind: Kind::PortExhaustion,
        seen: format!("the {ports:.0} local ports were in use, {seen}"),
        means: "connections waited for a free port: widen net.ipv4.ip_local_port_range or keep \
            connections open"
            .to_owned(),
    })
}

/// Describes the maximum, the number of runs over the limit, and their points; `None` if no run
/// reaches it.
fn seen(experiment: &Experiment, of: impl Fn(&Cell) -> f64, limit: f64) -> Option<String> {
    let over: Vec<&Cell> = experiment
        .cells
        .iter()
        .filter(|cell| of(cell) >= limit)
        .collect();
    let most = over.iter().map(|cell| of(cell)).fold(0.0, f64::max);
    let mut places: Vec<String> = Vec::new();
    for cell in &over {
        // A problem of all targets is listed once.
        let place = sweep_place(experiment, &cell.load, cell.point);
        if !places.contains(&place) {
            places.push(place);
        }
    }
    (!over.is_empty()).then(|| {
        format!(
            "up to {most:.0} %, in {} of {} runs: {}",
            over.len(),
            experiment.cells.len(),
            listed(&places)
        )
    })
}

/// Checks proxies that are faster than direct: that is plausible only with more servers.
fn faster_than_direct(experiment: &Experiment, ratios: &[Ratio]) -> Option<Alarm> {
    let target = |name: &str| experiment.targets.iter().find(|t| t.name == name);
    let strange = |ratio: &&Ratio| {
        let (Some(own), Some(direct)) = (target(&ratio.target), target(&ratio.to)) else {
            return false;
        };
        let is_proxy_to_direct = direct.program.is_empty() && !own.program.is_empty();
        ratio.metric == Metric::Rate
            && ratio.reading == Reading::More
            && is_proxy_to_direct
            && own.servers <= direct.servers
    };
    let places: Vec<String> = ratios
        .iter()
        .filter(strange)
        .map(|ratio| {
            let place = place(experiment, &ratio.target, &ratio.load, ratio.point);
            format!("{place} (× {:.2})", ratio.interval.middle)
        })
        .collect();
    (!places.is_empty()).then(|| Alarm {
        kind: Kind::FasterThanDirect,
        seen: format!(
            "faster than direct without more servers: {}",
            listed(&places)
        ),
        means: "a proxy cannot be faster by itself: either the servers have fewer connections to \
                maintain (pooling), or the load generator is the bottleneck, or connections differ \
                (reuse, TLS). Find the cause before counting it as an advantage"
            .to_owned(),
    })
}

fn few_blocks(experiment: &Experiment) -> Option<Alarm> {
    let done = experiment.cells.iter().map(|cell| cell.block).max()?;
    let seen = match done {
        _ if done < experiment.blocks_wanted => {
            format!("{done} of {} blocks done", experiment.blocks_wanted)
        }
        1 => "only one block".to_owned(),
        _ if done < BLOCKS_LEAST => format!("only {done} blocks"),
        _ => return None,
    };
    Some(Alarm {
        kind: Kind::FewBlocks,
        seen,
        means: "with few blocks, intervals are wide and results are inconclusive; more blocks \
                may show more"
            .to_owned(),
    })
}

fn failed_runs(experiment: &Experiment) -> Option<Alarm> {
    let failed = experiment.cells.iter().filter(|c| c.failure.is_some());
    let places: Vec<String> = failed
        .map(|cell| {
            let place = place(experiment, &cell.target, &cell.load, cell.point);
            format!("{place}, block {}", cell.block)
        })
        .collect();
    (!places.is_empty()).then(|| Alarm {
        kind: Kind::FailedRuns,
        seen: match places.as_slice() {
            [only] => format!("one run produced no result: {only}"),
            several => format!(
                "{} runs produced no result: {}",
                several.len(),
                listed(several)
            ),
        },
        means: "they are excluded from all figures; see \"Failures\"".to_owned(),
    })
}

fn place(experiment: &Experiment, target: &str, load: &str, point: f64) -> String {
    let title = experiment.targets.iter().find(|t| t.name == target);
    let title = title.map_or(target, |target| target.title.as_str());
    format!("{title}, {}", sweep_place(experiment, load, point))
}

fn sweep_place(experiment: &Experiment, load: &str, point: f64) -> String {
    let found = experiment.loads.iter().find(|l| l.name == load);
    let at = found.map_or_else(|| point.to_string(), |load| load.point_label(point));
    format!("{load}, {at}")
}

fn listed(places: &[String]) -> String {
    let named = places[..places.len().min(PLACES_NAMED)].join("; ");
    match places.len().saturating_sub(PLACES_NAMED) {
        0 => named,
        more => format!("{named}; and {more} more"),
    }
}

#[cfg(test)]
mod tests;
