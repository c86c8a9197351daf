//! An experiment as its file describes it: servers, loads, targets, sweep, figures, findings.

mod check;
mod library;

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::outcome::{Figure, Finding, Published, Study};
use crate::web::WebProgram;

pub(crate) use check::parse;
pub(crate) use library::{all, find};

/// One study.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Experiment {
    /// Short, for the command line and for files.
    pub(crate) name: String,
    /// Its number among the published ones, such as `E1`; empty for the user's own.
    #[serde(default)]
    pub(crate) code: String,
    pub(crate) title: String,
    #[serde(default)]
    pub(crate) study: Option<Study>,
    /// What stands where.
    #[serde(default)]
    pub(crate) topology: String,
    /// What a reader must know.
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
    /// Figures of the study that stand beside those measured here.
    #[serde(default)]
    pub(crate) published: Vec<Published>,
}

/// How much is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Depth {
    Quick,
    Normal,
    Full,
}

/// How much is done at one depth.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Effort {
    /// Each runs every target once.
    pub(crate) blocks: usize,
    /// Length of a run.
    pub(crate) seconds: u32,
    /// Length of the runs before the first block, which are thrown away.
    #[serde(default = "one")]
    pub(crate) warm_up_seconds: u32,
    /// Rest before each run.
    #[serde(default)]
    pub(crate) pause_ms: u64,
    /// Trials of each fault.
    #[serde(default)]
    pub(crate) trials: usize,
    /// Whether the open-loop companion runs, at these percentages of the measured peak.
    #[serde(default)]
    pub(crate) open_loop_percent: OpenLoop,
}

/// Percentages; none is no companion.
pub(crate) type OpenLoop = Percentages;

/// At most three.
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

/// Servers, what stands before them, and what is sent.
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

/// The servers, each imitating a machine of its own as well as this machine allows.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Servers {
    pub(crate) kind: ServerKind,
    /// Of web servers: nginx when left out.
    #[serde(default)]
    pub(crate) program: Option<WebProgram>,
    /// How many in all, a primary included.
    #[serde(default)]
    pub(crate) count: usize,
    /// Rows of each sysbench table; 0 makes none.
    #[serde(default)]
    pub(crate) rows: u32,
    /// The same for quick runs, when fewer must do.
    #[serde(default)]
    pub(crate) quick_rows: Option<u32>,
    #[serde(default = "one")]
    pub(crate) tables: u32,
    /// Percent of one processor for each server; the last one holds for all further ones.
    #[serde(default)]
    pub(crate) cpu_percent: Vec<u32>,
    /// Memory of each server; none is no limit.
    #[serde(default)]
    pub(crate) memory_mb: Option<u32>,
    /// Each server in a network namespace of its own, and each packet that it sends so late.
    #[serde(default)]
    pub(crate) delay_us: Option<u64>,
    /// Statements that the first server runs before the load, such as tables and rows.
    #[serde(default)]
    pub(crate) sql: Vec<String>,
    /// With `kind = "external"`: servers that run already, somewhere.
    #[serde(default)]
    pub(crate) address: Vec<SocketAddr>,
    /// With `kind = "external"`: what they speak.
    #[serde(default)]
    pub(crate) speaks: Option<Speech>,
}

/// What is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ServerKind {
    /// A primary and replicas.
    Mariadb,
    /// The same.
    Mysql,
    /// A group that elects its primary.
    GroupReplication,
    /// Nodes that all take writes.
    Galera,
    /// A primary and hot standbys.
    Postgres,
    /// Web servers.
    Web,
    /// Nothing: they are there.
    External,
}

/// What servers speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Speech {
    Mysql,
    Postgres,
    Http,
}

/// What stands between the load and the servers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Target {
    /// Unique in the experiment.
    pub(crate) name: String,
    /// For readers; the name when left out.
    #[serde(default)]
    pub(crate) title: String,
    pub(crate) program: Program,
    /// With `program = "direct"`: which server, from 1.
    #[serde(default)]
    pub(crate) server: Option<usize>,
    /// How many of the servers it uses, from the first on; all when left out.
    #[serde(default)]
    pub(crate) servers: Option<usize>,
    /// Which protocol it looks into; `tcp` looks into none.
    #[serde(default)]
    pub(crate) mode: Mode,
    /// As the program does it by itself when left out.
    #[serde(default)]
    pub(crate) balance: Option<Balance>,
    /// Whether a quick run takes it too.
    #[serde(default = "yes")]
    pub(crate) quick: bool,
    /// Only for these loads, by name; all when left out.
    #[serde(default)]
    pub(crate) loads: Vec<String>,
    /// Whether writes go to the primary, over a port of their own where the balancer cannot tell
    /// them apart; otherwise every server gets everything.
    #[serde(default)]
    pub(crate) roles: bool,
    /// With `program = "command"`: its words.
    #[serde(default)]
    pub(crate) start: Vec<String>,
    /// With `program = "command"`: the text of `{config}`.
    #[serde(default)]
    pub(crate) config: String,
}

/// A balancer, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Program {
    /// The first server itself.
    Direct,
    /// The load generator goes round over the servers by itself.
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
    /// One of the user's.
    Command,
}

/// What a balancer looks into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    #[default]
    Tcp,
    Http,
    Mysql,
    Postgres,
}

/// How a server is chosen.
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

/// What is sent, with which tool.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Load {
    /// Unique in the experiment.
    pub(crate) name: String,
    /// For readers; the name when left out.
    #[serde(default)]
    pub(crate) title: String,
    pub(crate) tool: Tool,
    /// sysbench's mix, or the path of a script of the user's; for pgbench a file of SQL.
    #[serde(default)]
    pub(crate) script: String,
    /// Queries instead of a script; `{1..500}` draws a number.
    #[serde(default)]
    pub(crate) sql: Vec<String>,
    /// Further words for the tool.
    #[serde(default)]
    pub(crate) options: Vec<String>,
    /// The page, for what speaks HTTP.
    #[serde(default)]
    pub(crate) page: String,
    /// To which port of a target with `roles`.
    #[serde(default)]
    pub(crate) sends: Sends,
    /// What is varied.
    pub(crate) sweep: Sweep,
    /// How many threads or connections when something else is varied.
    #[serde(default = "ten")]
    pub(crate) at_once: u32,
    pub(crate) points: Points,
    #[serde(default = "yes")]
    pub(crate) quick: bool,
    /// At which point the open-loop companion takes the peak; none is no companion.
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
    /// One of the user's.
    Command,
}

/// What a load consists of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Sends {
    /// Nothing but reads: any server will do.
    #[default]
    Reads,
    /// Writes too: they need the primary.
    Writes,
}

/// What is varied from point to point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Sweep {
    Threads,
    Connections,
    /// Requests per second.
    Rate,
    /// Requests in all.
    Requests,
}

/// The points at each depth.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Points {
    pub(crate) quick: Vec<u32>,
    pub(crate) normal: Vec<u32>,
    pub(crate) full: FullPoints,
}

/// Either each of them, or where they begin and end.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum FullPoints {
    List(Vec<u32>),
    Range { from: u32, to: u32, step: u32 },
}

/// Something is broken under those who ask, and mended.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fault {
    pub(crate) name: String,
    pub(crate) victim: Victim,
    pub(crate) how: How,
    /// Only these, by name; all that can be tried when left out.
    #[serde(default)]
    pub(crate) targets: Vec<String>,
    /// With `victim = "balancer"`: the time between two of Keepalived's adverts.
    #[serde(default = "thousand")]
    pub(crate) advert_ms: u32,
}

/// Whom a fault hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Victim {
    Primary,
    Secondary,
    /// The active one of two that share an address.
    Balancer,
}

/// What is done to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum How {
    /// Nothing: what is written is looked for on the victim all the same.
    Nothing,
    /// A clean end; of a balancer: its Keepalived hands the address over.
    Stop,
    /// As `kill -9`; of a balancer: its whole machine is gone.
    Kill,
    /// The balancer's process only, as `kill -9`.
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
    /// Percent of one processor for the server of this number, from 0.
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

impl Fault {
    /// Whether trials of it are wanted with this target, if they are possible.
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

fn ten() -> u32 {
    10
}

fn thousand() -> u32 {
    1000
}

fn yes() -> bool {
    true
}
