//! An experiment as it ran: what stood where, what was asked of it, and every single measurement.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{FaultTrial, Figure, Finding, Metric};

/// One experiment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Experiment {
    /// As the command line names it: `two-databases`.
    pub(crate) name: String,
    pub(crate) title: String,
    /// The published study that it repeats; nothing for a user's own.
    pub(crate) study: Option<Study>,
    /// What stands where, in a sentence or two, as it was really built here.
    pub(crate) topology: String,
    /// Everything that was wanted, also what is not installed. Names of targets and of loads are
    /// unique in the experiment, also when it has several parts: `mysql-direct`, `postgres-direct`.
    pub(crate) targets: Vec<Target>,
    /// How the servers of each part were configured.
    pub(crate) servers: Vec<PartServers>,
    pub(crate) loads: Vec<Load>,
    /// Names of the targets with which all others are compared: direct, the study's winner. A ratio
    /// is taken where both have run the same load at the same point in the same block, so each part
    /// of an experiment may have references of its own.
    pub(crate) references: Vec<String>,
    pub(crate) blocks_wanted: u32,
    pub(crate) cells: Vec<Cell>,
    pub(crate) faults: Vec<FaultTrial>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) figures: Vec<Figure>,
    /// What the study measured, to stand beside what was measured here.
    pub(crate) published: Vec<Published>,
    /// What went wrong; the rest of the experiment stands.
    pub(crate) failures: Vec<Failure>,
    /// What a reader must know: "no control groups: both servers share the cores".
    pub(crate) notes: Vec<String>,
}

/// The study that is repeated.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Study {
    pub(crate) year: u32,
    /// Its question as it stands behind "the question was": `whether ...`.
    pub(crate) asked: String,
    /// What it had, in a sentence: programs, versions, machines.
    pub(crate) setting: String,
    /// What it found, in a sentence or two.
    pub(crate) found: String,
    /// Where this re-run differs and why.
    pub(crate) differs: String,
}

/// The servers of a part.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PartServers {
    /// The part's name.
    pub(crate) part: String,
    /// Named `server: file`; the first server's come first.
    pub(crate) configs: Vec<ConfigFile>,
}

/// Figures of the study, of what stands here under these names.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Published {
    pub(crate) load: String,
    pub(crate) target: String,
    #[serde(default)]
    pub(crate) metric: Metric,
    /// Point and value.
    pub(crate) values: Vec<(f64, f64)>,
}

/// What clients connect to.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Target {
    /// By which cells, findings and figures name it: `haproxy-two`.
    pub(crate) name: String,
    /// As a reader sees it: `HAProxy, two servers`.
    pub(crate) title: String,
    /// The program that stands between: `haproxy`; empty for direct connections. Drawn alike in
    /// every figure, and Evenkeel (`evenkeel`) stronger than the others.
    pub(crate) program: String,
    /// As the program states it.
    pub(crate) version: String,
    /// Servers behind it. A proxy with more of them than "direct" may be faster than direct.
    pub(crate) servers: u32,
    /// Its configuration as it was used, shown in the report.
    pub(crate) configs: Vec<ConfigFile>,
    /// Why it did not take part: "not installed". A row of the report, not a failure.
    pub(crate) missing: Option<String>,
    /// What a reader must know of it: "tcp mode: MySQL mode is not there yet".
    pub(crate) notes: Vec<String>,
}

/// A configuration file, or a command line, whole.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ConfigFile {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// What was asked of the targets.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Load {
    /// By which cells, findings and figures name it: `simple-read`.
    pub(crate) name: String,
    /// As a reader sees it: `Simple read: one point select`.
    pub(crate) title: String,
    /// The program: `sysbench`.
    pub(crate) tool: String,
    /// One run's command, for one point and target.
    pub(crate) command: String,
    #[serde(rename = "loop")]
    pub(crate) kind: Loop,
    /// What is counted, in the plural: `transactions`, `queries`, `requests`.
    pub(crate) counted: String,
    /// What the points of the sweep are, with its unit: `threads`, `offered rate (requests/s)`.
    pub(crate) axis: String,
    /// Length of one run.
    pub(crate) seconds: f64,
}

impl Load {
    /// A point of its sweep, as a reader sees it: `8 threads`, `offered rate (requests/s): 60`.
    pub(crate) fn place(&self, point: f64) -> String {
        if self.axis.contains('(') {
            format!("{}: {point}", self.axis)
        } else {
            format!("{point} {}", self.axis)
        }
    }
}

/// Whether the load waits for answers before it asks again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Loop {
    /// It waits: a stall hides the requests that would have shown it.
    #[default]
    Closed,
    /// It asks on a schedule; latency counts from the intended start.
    Open,
}

/// One run of one load at one point against one target, in one block.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Cell {
    pub(crate) target: String,
    pub(crate) load: String,
    /// Where in the sweep: threads, requests a second, per cent of the peak.
    pub(crate) point: f64,
    /// From 1. Only cells of one block are compared with one another.
    pub(crate) block: u32,
    /// Its turn within the block, from 1.
    pub(crate) turn: u32,
    pub(crate) started_unix_ms: u64,
    pub(crate) seconds: f64,
    /// What was measured; a metric the load does not give is absent.
    pub(crate) values: BTreeMap<Metric, f64>,
    /// Requests a second, second by second, when the load reports it.
    pub(crate) each_second: Vec<f64>,
    /// What each server did, when it can be counted.
    pub(crate) shares: Vec<ServerShare>,
    pub(crate) vitals: Vitals,
    /// Why there is nothing: the load gave up, the target died.
    pub(crate) failure: Option<String>,
    /// Where the tool's own output lies, relative to this file.
    pub(crate) raw: String,
}

/// What one server was given.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ServerShare {
    pub(crate) server: String,
    pub(crate) requests: u64,
}

/// What the machine was like during a run; alarms are read off this.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Vitals {
    /// Processor time of the load generator, in per cent of what it could have had: its threads,
    /// or the machine's cores where it has more threads than these.
    pub(crate) load_busy_percent: f64,
    /// Of all cores together.
    pub(crate) machine_busy_percent: f64,
    /// Taken by the hypervisor, of all cores together.
    pub(crate) steal_percent: f64,
    /// Local ports in use at the end (any state, TIME_WAIT among them) towards the same address.
    pub(crate) local_ports_used: u32,
    /// What the generator really offered, in per cent of the rate that it was given, where it says
    /// so.
    pub(crate) offered_percent: Option<f64>,
}

/// Something that went wrong.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// What was being done: `haproxy-two, simple-read, 16 threads, block 3`.
    pub(crate) at: String,
    /// What happened and what to do.
    pub(crate) why: String,
}
