//! Serde types of a run's measurements, read by the report, the statistics and `compare`.
//!
//! Facts only: medians, intervals, verdicts and alarms are computed from these. A newer program can
//! therefore judge an old file again.

mod experiment;
mod fault;
mod figure;
mod finding;
mod metric;

pub(crate) use experiment::{
    Cell, ConfigFile, Experiment, Failure, Load, Loop, PartServers, Published, ServerShare, Study,
    Target, Vitals,
};
pub(crate) use fault::{FaultStep, FaultTrial, Probe};
pub(crate) use figure::{Drawing, Figure};
pub(crate) use finding::{Check, Finding};
pub(crate) use metric::{Better, Metric};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Version of the file format; raised when an older program could misread the file.
pub(crate) const FORMAT: u32 = 1;

/// One run of `evenkeel-lab bench`, complete or not.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// [`FORMAT`] of the program that wrote the file.
    pub(crate) format: u32,
    /// Version of `evenkeel-lab`, with the commit if known.
    pub(crate) program: String,
    /// The command line, to repeat the run.
    pub(crate) command: String,
    /// Seconds since 1970, UTC.
    pub(crate) started_unix_s: u64,
    /// End of the run; `None` if it was ended early (Ctrl-C, kill, full disk).
    pub(crate) ended_unix_s: Option<u64>,
    /// Extent of the run, such as "quick" or "full".
    pub(crate) scale: String,
    /// Seed of the order, the loads and the bootstrap.
    pub(crate) seed: u64,
    pub(crate) machine: Machine,
    /// Version that each program reports: servers, balancers, load generators.
    pub(crate) versions: BTreeMap<String, String>,
    /// Notes on the whole run for the reader, for example on missing permissions.
    #[serde(default)]
    pub(crate) notes: Vec<String>,
    pub(crate) experiments: Vec<Experiment>,
}

/// The machine of the run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Machine {
    /// Name that the processor reports.
    pub(crate) processor: String,
    pub(crate) cores: u32,
    pub(crate) memory_mb: u64,
    pub(crate) kernel: String,
    /// `PRETTY_NAME` of os-release.
    pub(crate) system: String,
    /// Output of `systemd-detect-virt`; empty if unknown.
    pub(crate) virtualization: String,
    /// Frequency governor of the processor; empty if there is none.
    pub(crate) governor: String,
    /// Load average over one minute before the run; a value well above zero means that other
    /// programs were active.
    pub(crate) load_average: f64,
    /// First and last local port for outgoing connections.
    pub(crate) local_ports: (u16, u16),
    /// Further facts (file limit, control groups, mitigations), name and value.
    pub(crate) further: BTreeMap<String, String>,
}
