//! Types of a load: its tool, its requests, and the points of its sweep.

use serde::Deserialize;

use super::{Depth, yes};

/// Requests that are sent, and the tool that sends them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Load {
    /// Name, unique in the experiment.
    pub(crate) name: String,
    /// Title for readers; the name if absent.
    #[serde(default)]
    pub(crate) title: String,
    pub(crate) tool: Tool,
    /// A mix of sysbench or the path of the user's script; for pgbench, a file of SQL.
    #[serde(default)]
    pub(crate) script: String,
    /// Queries instead of a script; `{1..500}` stands for a random number.
    #[serde(default)]
    pub(crate) sql: Vec<String>,
    /// Further arguments of the tool.
    #[serde(default)]
    pub(crate) options: Vec<String>,
    /// Page to request, for HTTP tools.
    #[serde(default)]
    pub(crate) page: String,
    /// Requests of a session, for httperf: they share a connection and the cookies of the answers.
    #[serde(default)]
    pub(crate) session_requests: Option<u32>,
    /// Number of client addresses that the requests have in `X-Forwarded-For`, for wrk.
    #[serde(default)]
    pub(crate) client_addresses: Option<u32>,
    /// Port to use at a target with `roles`.
    #[serde(default)]
    pub(crate) sends: Sends,
    /// Quantity that the sweep varies.
    pub(crate) sweep: Sweep,
    /// Threads or connections when the sweep varies something else.
    #[serde(default = "ten")]
    pub(crate) at_once: u32,
    pub(crate) points: Points,
    #[serde(default = "yes")]
    pub(crate) quick: bool,
    /// True if the open-loop companion runs for this load.
    #[serde(default)]
    pub(crate) open_loop: bool,
}

/// A load generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Tool {
    Sysbench,
    Pgbench,
    Ab,
    Wrk,
    Httperf,
    /// A program of the user's.
    Command,
}

/// Kind of requests in a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Sends {
    /// Reads only: any server can answer them.
    #[default]
    Reads,
    /// Reads and writes, which need the primary.
    Writes,
}

/// Quantity that varies from point to point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Sweep {
    Threads,
    Connections,
    /// Requests per second.
    Rate,
    /// Total number of requests.
    Requests,
}

/// The points of the sweep at each depth.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Points {
    pub(crate) quick: Vec<u32>,
    pub(crate) normal: Vec<u32>,
    pub(crate) full: FullPoints,
}

/// A list of the points, or their first and last one.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum FullPoints {
    List(Vec<u32>),
    Range { from: u32, to: u32, step: u32 },
}

impl Load {
    pub(crate) fn path(&self) -> &str {
        if self.page.is_empty() {
            "/"
        } else {
            &self.page
        }
    }

    pub(crate) fn points(&self, depth: Depth) -> Vec<u32> {
        match (depth, &self.points.full) {
            (Depth::Quick, _) => self.points.quick.clone(),
            (Depth::Normal, _) => self.points.normal.clone(),
            (Depth::Full, FullPoints::List(points)) => points.clone(),
            (Depth::Full, FullPoints::Range { from, to, step }) => {
                (*from..=*to).step_by(*step as usize).collect()
            }
        }
    }
}

fn ten() -> u32 {
    10
}
