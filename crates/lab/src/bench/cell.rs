//! Runs one load against one target once, and measures everything else during the run.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;

use super::experiment::Tool;
use super::load::{Report, Run, Task};
use super::machine::{self, Reading};
use super::outcome::{Cell, Metric, ServerShare, Vitals};
use super::target::Front;
use super::topology::Topology;
use crate::procfs;
use crate::stop::Stop;

/// Runs the task against the target. Failures of the generator are recorded in the cell. An error
/// ends the whole run, for example when the user has stopped it.
pub(crate) fn measure(
    task: &Task,
    front: &Front,
    topology: &Topology,
    stop: &Stop,
) -> Result<(Cell, String)> {
    let started = SystemTime::now();
    let counts = topology.counts();
    let before = Counters::now(front, topology);
    let memory_kb = front.memory_kb();
    let began = Reading::now();
    let run = task.run(stop)?;
    let (machine_percent, steal_percent) = Reading::now().percent_since(began);
    let used = Counters::now(front, topology).since(before);
    let memory_kb = memory_kb.max(front.memory_kb());
    let mut values = BTreeMap::new();
    if let Ok(report) = &run.report {
        values = metrics(task, report);
        if report.requests > 0 {
            values.extend(used.per_request(report.requests, !front.pids().is_empty()));
        }
        if task.load.tool == Tool::Httperf {
            // wrk waits by polling the clock, so its processor time means little.
            values.remove(&Metric::LoadCpuUs);
        }
        if memory_kb > 0 {
            values.insert(Metric::BalancerMemoryMb, memory_kb as f64 / 1024.0);
        }
        values.insert(Metric::MachineCpuPercent, machine_percent);
        values.insert(Metric::MachineMemoryPercent, machine::memory_percent());
    }
    let seconds = run.took.as_secs_f64();
    let cell = Cell {
        target: front.name.clone(),
        load: task.load.name.clone(),
        point: f64::from(task.point),
        started_unix_ms: started
            .duration_since(UNIX_EPOCH)
            .map_or(0, |span| span.as_millis() as u64),
        seconds,
        values,
        each_second: run
            .report
            .as_ref()
            .map(|report| report.each_second.clone())
            .unwrap_or_default(),
        shares: shares(&counts, &topology.counts()),
        vitals: Vitals {
            load_busy_percent: load_busy(task, &used, seconds),
            machine_busy_percent: machine_percent,
            steal_percent,
            local_ports_used: machine::ports_used(task.addresses),
            offered_percent: offered_percent(task, &run),
        },
        failure: failure(&run, task),
        ..Cell::default()
    };
    let mut raw = run.raw;
    if cell.failure.is_some() {
        raw.push_str("\n== last output of the balancer\n");
        raw.push_str(&front.log_tail());
    }
    Ok((cell, raw))
}

/// Returns the load generator's processor time, in per cent of what its threads could have used.
fn load_busy(task: &Task, used: &Counters, seconds: f64) -> f64 {
    let threads = match task.load.tool {
        // httperf is always busy and reports by itself what it could not do.
        Tool::Httperf => return 0.0,
        Tool::Ab | Tool::Wrk => 1,
        Tool::Pgbench => 2,
        Tool::Sysbench | Tool::Command => task.point.max(1),
    };
    let could_s = seconds * f64::from(threads.min(machine::cores()));
    used.load_us as f64 / 1e4 / could_s.max(0.001)
}

/// Returns the rate that the generator offered, in per cent of the requested one.
fn offered_percent(task: &Task, run: &Run) -> Option<f64> {
    let offered = run.report.as_ref().ok()?.offered_per_s?;
    Some(100.0 * offered / task.rate?)
}

/// Returns why the run failed. For an open loop, a run without any answer is a result and not a
/// failure.
fn failure(run: &Run, task: &Task) -> Option<String> {
    match &run.report {
        Err(why) => Some(format!("{:?}: {why}", task.load.tool).to_lowercase()),
        Ok(report) if report.requests == 0 && (task.rate.is_none() || report.errors == 0) => {
            Some("no request was answered".to_owned())
        }
        Ok(_) => None,
    }
}

fn metrics(task: &Task, report: &Report) -> BTreeMap<Metric, f64> {
    let mut values = BTreeMap::new();
    let mut put = |metric, value: Option<f64>| {
        if let Some(value) = value {
            values.insert(metric, value);
        }
    };
    put(Metric::Rate, Some(report.requests_per_s));
    put(Metric::MeanMs, report.latency.mean);
    put(Metric::P50Ms, report.latency.p50);
    put(Metric::P95Ms, report.latency.p95);
    put(Metric::P99Ms, report.latency.p99);
    put(Metric::MaxMs, report.latency.max);
    let unfairness = report
        .fairness
        .filter(|(mean, _)| *mean > 0.0)
        .map(|(mean, deviation)| deviation / mean * 100.0);
    put(Metric::UnfairnessPercent, unfairness);
    put(Metric::Errors, Some(report.errors as f64));
    let asked = (report.requests + report.errors).max(1) as f64;
    put(
        Metric::ErrorPercent,
        Some(report.errors as f64 / asked * 100.0),
    );
    put(Metric::AnsweredPercent, answered(task, report));
    values
}

/// Returns the share of answered requests, in per cent of the offered ones, if a rate was set.
fn answered(task: &Task, report: &Report) -> Option<f64> {
    let asked = task.rate? * f64::from(task.seconds);
    (asked > 0.0).then(|| (report.requests as f64 / asked * 100.0).min(100.0))
}

/// Returns each server's requests between two readings; empty unless both readings cover all
/// servers.
fn shares(before: &[(String, u64)], after: &[(String, u64)]) -> Vec<ServerShare> {
    if before.len() != after.len() {
        return Vec::new();
    }
    let pairs = before.iter().zip(after);
    let share = |(before, after): (&(String, u64), &(String, u64))| ServerShare {
        server: after.0.clone(),
        requests: after.1.saturating_sub(before.1),
    };
    pairs.map(share).collect()
}

/// Processor time of balancer, servers and load generator, in microseconds.
#[derive(Clone, Copy, Default)]
struct Counters {
    balancer_us: u64,
    servers_us: u64,
    load_us: u64,
}

impl Counters {
    fn now(front: &Front, topology: &Topology) -> Counters {
        Counters {
            balancer_us: front.cpu_us(),
            servers_us: procfs::cpu_us(&topology.pids()),
            // The generator's time is part of this process's after it has been waited for.
            load_us: procfs::cpu_us(&[std::process::id()]),
        }
    }

    fn since(self, before: Counters) -> Counters {
        Counters {
            balancer_us: self.balancer_us.saturating_sub(before.balancer_us),
            servers_us: self.servers_us.saturating_sub(before.servers_us),
            load_us: self.load_us.saturating_sub(before.load_us),
        }
    }

    fn per_request(self, requests: u64, has_balancer: bool) -> Vec<(Metric, f64)> {
        let each = |us: u64| us as f64 / requests as f64;
        let mut values = vec![
            (Metric::ServersCpuUs, each(self.servers_us)),
            (Metric::LoadCpuUs, each(self.load_us)),
        ];
        if has_balancer {
            values.push((Metric::BalancerCpuUs, each(self.balancer_us)));
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_what_came_since_and_nothing_when_a_server_could_not_be_asked() {
        let named = |counts: &[u64]| -> Vec<(String, u64)> {
            let all = counts.iter().enumerate();
            all.map(|(i, count)| (format!("s{i}"), *count)).collect()
        };
        let seen = shares(&named(&[10, 20]), &named(&[15, 60]));
        let requests: Vec<u64> = seen.iter().map(|share| share.requests).collect();
        assert_eq!(requests, [5, 40]);
        assert!(shares(&named(&[10, 20]), &[]).is_empty());
    }
}
