//! What a run has measured, as serde types: all that the report, the statistics, `compare` read.
//!
//! Facts only: a median, an interval, a verdict or an alarm is worked out from these, so that an
//! old file can be judged again by a newer program.

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

/// The shape of the file; raised when an older program could misread it.
pub(crate) const FORMAT: u32 = 1;

/// One run of `evenkeel-lab bench`, finished or not.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// [`FORMAT`] of the program that wrote it.
    pub(crate) format: u32,
    /// `evenkeel-lab`'s version, with the commit where it is known.
    pub(crate) program: String,
    /// The command line, for whoever wants the same again.
    pub(crate) command: String,
    /// Seconds since 1970, UTC.
    pub(crate) started_unix_s: u64,
    /// Nothing when the run was ended before its time (Ctrl-C, kill, full disk).
    pub(crate) ended_unix_s: Option<u64>,
    /// "quick", "full" or what else the run is called.
    pub(crate) scale: String,
    /// From which the order, the loads' seeds and the bootstrap are drawn.
    pub(crate) seed: u64,
    pub(crate) machine: Machine,
    /// Program and version as it states it: servers, balancers, load generators.
    pub(crate) versions: BTreeMap<String, String>,
    /// What holds for the whole run and a reader must know: rights that were missing, for example.
    #[serde(default)]
    pub(crate) notes: Vec<String>,
    pub(crate) experiments: Vec<Experiment>,
}

/// Where it ran.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Machine {
    /// The processor's name for itself.
    pub(crate) processor: String,
    pub(crate) cores: u32,
    pub(crate) memory_mb: u64,
    pub(crate) kernel: String,
    /// `PRETTY_NAME` of os-release.
    pub(crate) system: String,
    /// As `systemd-detect-virt` says it; empty when unknown.
    pub(crate) virtualization: String,
    /// The processor's frequency governor; empty when there is none to see.
    pub(crate) governor: String,
    /// Over one minute, before the run: more than a little means that somebody else was at work.
    pub(crate) load_average: f64,
    /// The first and last of the ports from which clients' connections go out.
    pub(crate) local_ports: (u16, u16),
    /// Whatever else is worth knowing (file limit, control groups, mitigations), name and value.
    pub(crate) further: BTreeMap<String, String>,
}
