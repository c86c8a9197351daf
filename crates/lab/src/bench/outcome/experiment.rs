//! Types of an experiment's results: setup, requests, and every single measurement.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{FaultTrial, Figure, Finding, Metric};

/// Results of one experiment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Experiment {
    /// Name on the command line: `two-databases`.
    pub(crate) name: String,
    pub(crate) title: String,
    /// The published study that the experiment repeats; `None` for a user's own.
    pub(crate) study: Option<Study>,
    /// The setup as built here, in a sentence or two.
    pub(crate) topology: String,
    /// All requested targets, including those not installed. Names of targets and loads are unique
    /// in an experiment of several parts too: `mysql-direct`, `postgres-direct`.
    pub(crate) targets: Vec<Target>,
    /// Configuration of the servers of each part.
    pub(crate) servers: Vec<PartServers>,
    pub(crate) loads: Vec<Load>,
    /// Names of the targets with which all others are compared: direct, the study's winner. A ratio
    /// needs both targets with the same load, point and block, so each part may have its own
    /// references.
    pub(crate) references: Vec<String>,
    pub(crate) blocks_wanted: u32,
    pub(crate) cells: Vec<Cell>,
    pub(crate) faults: Vec<FaultTrial>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) figures: Vec<Figure>,
    /// Values that the study measured, for comparison.
    pub(crate) published: Vec<Published>,
    /// Failures; the rest of the experiment remains valid.
    pub(crate) failures: Vec<Failure>,
    /// Notes for the reader: "no control groups: both servers share the cores".
    pub(crate) notes: Vec<String>,
}

/// The study that is repeated.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Study {
    pub(crate) year: u32,
    /// Question of the study, as it continues "the question was": `whether ...`.
    pub(crate) asked: String,
    /// Setup of the study, in a sentence: programs, versions, machines.
    pub(crate) setting: String,
    /// Result of the study, in a sentence or two.
    pub(crate) found: String,
    /// Differences of this repetition, and their reasons.
    pub(crate) differs: String,
}

/// The servers of a part.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PartServers {
    /// Name of the part.
    pub(crate) part: String,
    /// Configuration files, named `server: file`; the first server's come first.
    pub(crate) configs: Vec<ConfigFile>,
}

/// Values that the study published for a load and target of this experiment.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Published {
    pub(crate) load: String,
    pub(crate) target: String,
    #[serde(default)]
    pub(crate) metric: Metric,
    /// Pairs of point and value.
    pub(crate) values: Vec<(f64, f64)>,
}

/// A balancer or server that clients connect to.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Target {
    /// Name in cells, findings and figures: `haproxy-two`.
    pub(crate) name: String,
    /// Title for readers: `HAProxy, two servers`.
    pub(crate) title: String,
    /// The program between clients and servers: `haproxy`; empty for direct connections. All
    /// figures draw it alike, and Evenkeel (`evenkeel`) stronger than the others.
    pub(crate) program: String,
    /// Version that the program reports.
    pub(crate) version: String,
    /// Number of its servers. A proxy with more servers than "direct" may be faster than direct.
    pub(crate) servers: u32,
    /// Configuration files as used, shown in the report.
    pub(crate) configs: Vec<ConfigFile>,
    /// Reason why the target did not take part: "not installed". The report has a row for it, not a
    /// failure.
    pub(crate) missing: Option<String>,
    /// Notes for the reader: "tcp mode: MySQL mode is not there yet".
    pub(crate) notes: Vec<String>,
}

/// The full text of a configuration file or command line.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ConfigFile {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// A load that was sent to the targets.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Load {
    /// Name in cells, findings and figures: `simple-read`.
    pub(crate) name: String,
    /// Title for readers: `Simple read: one point select`.
    pub(crate) title: String,
    /// The load generator: `sysbench`.
    pub(crate) tool: String,
    /// Command line of one run, for one point and target.
    pub(crate) command: String,
    #[serde(rename = "loop")]
    pub(crate) kind: Loop,
    /// Counted unit, in the plural: `transactions`, `queries`, `requests`.
    pub(crate) counted: String,
    /// Quantity of the sweep with its unit: `threads`, `offered rate (requests/s)`.
    pub(crate) axis: String,
    /// Length of one run in seconds.
    pub(crate) seconds: f64,
}

impl Load {
    /// Returns a point of the sweep as text: `8 threads`, `offered rate (requests/s): 60`.
    pub(crate) fn point_label(&self, point: f64) -> String {
        if self.axis.contains('(') {
            format!("{}: {point}", self.axis)
        } else {
            format!("{point} {}", self.axis)
        }
    }
}

/// Whether the load waits for an answer before its next request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Loop {
    /// The load waits: a stall hides the requests that would have shown it.
    #[default]
    Closed,
    /// The load sends on a schedule; latency counts from the intended start.
    Open,
}

/// One run of one load at one point against one target, in one block.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Cell {
    pub(crate) target: String,
    pub(crate) load: String,
    /// Point of the sweep: threads, requests per second, per cent of the peak.
    pub(crate) point: f64,
    /// Number of the block, from 1. Only cells of one block are compared with each other.
    pub(crate) block: u32,
    /// Position within the block, from 1.
    pub(crate) turn: u32,
    pub(crate) started_unix_ms: u64,
    pub(crate) seconds: f64,
    /// Measured values; metrics that the load does not provide are absent.
    pub(crate) values: BTreeMap<Metric, f64>,
    /// Requests in each second, if the load reports them.
    pub(crate) each_second: Vec<f64>,
    /// Requests of each server, if they can be counted.
    pub(crate) shares: Vec<ServerShare>,
    pub(crate) vitals: Vitals,
    /// Reason why there are no values: the load failed, the target died.
    pub(crate) failure: Option<String>,
    /// Path of the tool's output, relative to this file.
    pub(crate) raw: String,
}

/// Requests that one server received.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ServerShare {
    pub(crate) server: String,
    pub(crate) requests: u64,
}

/// State of the machine during a run, from which alarms are derived.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Vitals {
    /// Processor time of the load generator, in per cent of its threads' maximum, or of all cores
    /// if it has more threads than cores.
    pub(crate) load_busy_percent: f64,
    /// Busy share of all cores together.
    pub(crate) machine_busy_percent: f64,
    /// Share of all cores taken by the hypervisor.
    pub(crate) steal_percent: f64,
    /// Local ports in use at the end (any state, including TIME_WAIT) towards one address.
    pub(crate) local_ports_used: u32,
    /// Rate that the generator offered, in per cent of the requested rate, if it reports it.
    pub(crate) offered_percent: Option<f64>,
}

/// A failure during the run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// The step that failed: `haproxy-two, simple-read, 16 threads, block 3`.
    pub(crate) at: String,
    /// The reason, and what to do.
    pub(crate) why: String,
}
