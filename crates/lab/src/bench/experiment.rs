//! Types of an experiment's file: servers, loads, targets, sweep, figures, findings.

mod check;
mod library;
mod load;

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::outcome::{Figure, Finding, Published, Study};
use crate::web::WebProgram;

pub(crate) use check::parse;
pub(crate) use library::{all, find};
pub(crate) use load::{Load, Sends, Sweep, Tool};

/// One experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Experiment {
    /// Short name for the command line and file names.
    pub(crate) name: String,
    /// Number among the published experiments, such as `E1`; empty for a user's own.
    #[serde(default)]
    pub(crate) code: String,
    pub(crate) title: String,
    #[serde(default)]
    pub(crate) study: Option<Study>,
    /// Description of the setup.
    #[serde(default)]
    pub(crate) topology: String,
    /// Notes for the reader.
    #[serde(default)]
    pub(crate) notes: Vec<String>,
    /// Targets with which all others are compared.
    #[serde(default)]
    pub(crate) references: Vec<String>,
    pub(crate) quick: Effort,
    pub(crate) normal: Effort,
    pub(crate) full: Effort,
    pub(crate) part: Vec<Part>,
    #[serde(default)]
    pub(crate) figure: Vec<Figure>,
    #[serde(default)]
    pub(crate) finding: Vec<Finding>,
    /// Figures of the study, shown with those measured here.
    #[serde(default)]
    pub(crate) published: Vec<Published>,
}

/// Extent of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Depth {
    Quick,
    Normal,
    Full,
}

/// Numbers and durations of the runs at one depth.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Effort {
    /// Number of blocks; each block runs every target once.
    pub(crate) blocks: usize,
    /// Length of a run in seconds.
    pub(crate) seconds: u32,
    /// Length in seconds of the runs before the first block, which are discarded.
    #[serde(default = "one")]
    pub(crate) warm_up_seconds: u32,
    /// Pause before each run, in ms.
    #[serde(default)]
    pub(crate) pause_ms: u64,
    /// Number of trials of each fault.
    #[serde(default)]
    pub(crate) trials: usize,
    /// Percentages of the measured peak at which the open-loop companion runs.
    #[serde(default)]
    pub(crate) open_loop_percent: OpenLoop,
}

/// Percentages of the peak; empty means no companion.
pub(crate) type OpenLoop = Percentages;

/// A list of at most three percentages.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(from = "Vec<u32>")]
pub(crate) struct Percentages([Option<u32>; 3]);

impl From<Vec<u32>> for Percentages {
    fn from(given: Vec<u32>) -> Percentages {
        let mut given = given.into_iter();
        Percentages(std::array::from_fn(|_| given.next()))
    }
}

impl Percentages {
    pub(crate) fn iter(self) -> impl Iterator<Item = u32> {
        self.0.into_iter().flatten()
    }
}

/// A part of an experiment: servers, targets in front of them, and loads.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) servers: Servers,
    pub(crate) target: Vec<Target>,
    pub(crate) load: Vec<Load>,
    #[serde(default)]
    pub(crate) fault: Vec<Fault>,
}

/// The servers; each imitates a separate machine as far as this machine allows.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Servers {
    pub(crate) kind: ServerKind,
    /// Program of web servers; nginx if absent.
    #[serde(default)]
    pub(crate) program: Option<WebProgram>,
    /// Number of servers, including a primary.
    #[serde(default)]
    pub(crate) count: usize,
    /// Rows of each sysbench table; 0 creates none.
    #[serde(default)]
    pub(crate) rows: u32,
    /// Rows in quick runs, if different.
    #[serde(default)]
    pub(crate) quick_rows: Option<u32>,
    #[serde(default = "one")]
    pub(crate) tables: u32,
    /// Per cent of one processor for each server; the last value applies to all further servers.
    #[serde(default)]
    pub(crate) cpu_percent: Vec<u32>,
    /// Memory limit of each server in MB; `None` means unlimited.
    #[serde(default)]
    pub(crate) memory_mb: Option<u32>,
    /// Delay of each packet that a server sends, in us; puts each server in its own network
    /// namespace.
    #[serde(default)]
    pub(crate) delay_us: Option<u64>,
    /// Statements that the first server runs before the load, such as tables and rows.
    #[serde(default)]
    pub(crate) sql: Vec<String>,
    /// Addresses of existing servers, with `kind = "external"`.
    #[serde(default)]
    pub(crate) address: Vec<SocketAddr>,
    /// Protocol of the servers, with `kind = "external"`.
    #[serde(default)]
    pub(crate) speaks: Option<Speech>,
}

/// Kind of servers to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ServerKind {
    /// A MariaDB primary and replicas.
    Mariadb,
    /// A MySQL primary and replicas.
    Mysql,
    /// A MySQL group that elects its primary.
    GroupReplication,
    /// Galera nodes that all accept writes.
    Galera,
    /// A PostgreSQL primary and hot standbys.
    Postgres,
    /// Web servers.
    Web,
    /// Existing servers; none is started.
    External,
}

/// Protocol of the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Speech {
    Mysql,
    Postgres,
    Http,
}

/// A balancer, or a direct connection, between the load and the servers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Target {
    /// Name, unique in the experiment.
    pub(crate) name: String,
    /// Title for readers; the name if absent.
    #[serde(default)]
    pub(crate) title: String,
    pub(crate) program: Program,
    /// Number of the server, from 1, with `program = "direct"`.
    #[serde(default)]
    pub(crate) server: Option<usize>,
    /// Number of servers used, counted from the first; all if absent.
    #[serde(default)]
    pub(crate) servers: Option<usize>,
    /// Protocol that the balancer parses; `tcp` parses none.
    #[serde(default)]
    pub(crate) mode: Mode,
    /// Balancing algorithm; the program's default if absent.
    #[serde(default)]
    pub(crate) balance: Option<Balance>,
    /// True if a cookie keeps the requests of a session on one server.
    #[serde(default)]
    pub(crate) sticky: bool,
    /// True if a trusted proxy is in front: the client's address is that of `X-Forwarded-For`.
    #[serde(default)]
    pub(crate) forwarded: bool,
    /// True if quick runs include this target.
    #[serde(default = "yes")]
    pub(crate) quick: bool,
    /// Loads of this target, by name; all if empty.
    #[serde(default)]
    pub(crate) loads: Vec<String>,
    /// True if writes go to the primary, over a separate port if the balancer cannot distinguish
    /// them. Otherwise every server gets reads and writes.
    #[serde(default)]
    pub(crate) roles: bool,
    /// Command line, with `program = "command"`.
    #[serde(default)]
    pub(crate) start: Vec<String>,
    /// Text of the file `{config}`, with `program = "command"`.
    #[serde(default)]
    pub(crate) config: String,
}

/// A balancer, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Program {
    /// A direct connection to one server.
    Direct,
    /// Round robin over the servers by the load generator itself.
    OwnRoundRobin,
    Evenkeel,
    Haproxy,
    Nginx,
    MysqlRouter,
    Pgpool,
    Pgbouncer,
    Odyssey,
    Glb,
    Proxysql,
    Maxscale,
    MysqlProxy,
    Ipvs,
    /// A program of the user's.
    Command,
}

/// Protocol that a balancer parses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    #[default]
    Tcp,
    Http,
    Mysql,
    Postgres,
}

/// Balancing algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Balance {
    RoundRobin,
    LeastConnections,
    Source,
    RandomTwo,
    LeastLatency,
    First,
}

/// A fault that is injected under load and then repaired.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fault {
    pub(crate) name: String,
    pub(crate) victim: Victim,
    pub(crate) how: How,
    /// Targets of the trials, by name; all that can be tested if empty.
    #[serde(default)]
    pub(crate) targets: Vec<String>,
    /// Interval of Keepalived's advertisements in ms, with `victim = "balancer"`.
    #[serde(default = "thousand")]
    pub(crate) advert_ms: u32,
}

/// Server or balancer that a fault hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Victim {
    Primary,
    Secondary,
    /// The active one of two balancers that share an address.
    Balancer,
}

/// Action on the victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum How {
    /// No action: the written rows are still verified on the victim.
    Nothing,
    /// A clean stop; for a balancer, its Keepalived hands over the address.
    Stop,
    /// `kill -9`; for a balancer, the loss of its whole machine.
    Kill,
    /// `kill -9` of the balancer's process only.
    Crash,
}

impl Experiment {
    pub(crate) fn effort(&self, depth: Depth) -> Effort {
        match depth {
            Depth::Quick => self.quick,
            Depth::Normal => self.normal,
            Depth::Full => self.full,
        }
    }
}

impl Servers {
    /// Returns the per cent of one processor for the server with this number, from 0.
    pub(crate) fn share(&self, number: usize) -> Option<u32> {
        let last = self.cpu_percent.len().checked_sub(1)?;
        self.cpu_percent.get(number.min(last)).copied()
    }

    pub(crate) fn rows(&self, depth: Depth) -> u32 {
        match (depth, self.quick_rows) {
            (Depth::Quick, Some(rows)) => rows,
            _ => self.rows,
        }
    }

    pub(crate) fn speech(&self) -> Speech {
        match self.kind {
            ServerKind::Postgres => Speech::Postgres,
            ServerKind::Web => Speech::Http,
            ServerKind::External => self.speaks.unwrap_or(Speech::Mysql),
            _ => Speech::Mysql,
        }
    }
}

impl Fault {
    /// Returns whether the fault is to be tested with this target, if possible.
    pub(crate) fn names(&self, target: &Target) -> bool {
        self.targets.is_empty() || self.targets.contains(&target.name)
    }
}

impl Target {
    pub(crate) fn takes(&self, load: &Load) -> bool {
        self.loads.is_empty() || self.loads.contains(&load.name)
    }
}

fn one() -> u32 {
    1
}

fn thousand() -> u32 {
    1000
}

fn yes() -> bool {
    true
}
