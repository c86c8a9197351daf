//! `evenkeel-lab measure`: measures Evenkeel and its rivals in interleaved blocks, as ratios.
//!
//! Load, balancer and servers share the machine. Therefore only numbers of one block may be
//! compared, and the result is the ratio in each block.

mod blocks;
mod compress;
mod failover;
mod floods;
mod front;
mod http;
mod idle;
mod logins;
mod mysql;
mod postgres;
mod program;
mod scale;
mod selects;
mod speed;
mod split;
mod transfer;
mod web;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueEnum};
use evenkeel_lab::SchedulingGroup;

use program::Build;

use crate::stop::Stop;

/// Number and length of the runs.
#[derive(Args)]
pub(crate) struct Options {
    /// Blocks; each runs every balancer once.
    #[arg(long, default_value_t = 5)]
    blocks: usize,
    /// Length of one run.
    #[arg(long, default_value_t = 5)]
    seconds: u32,
    /// Rows in each of the four sysbench tables.
    #[arg(long, default_value_t = 100_000)]
    rows: u32,
    /// Idle connections.
    #[arg(long, default_value_t = 4_500)]
    connections: usize,
    /// Number of primary failovers of each kind, planned and unplanned.
    #[arg(long, default_value_t = 10)]
    trials: usize,
    /// Only clusters of these kinds.
    #[arg(long, value_enum, value_delimiter = ',')]
    kind: Vec<failover::Kind>,
    /// Numbers of pooler clients, measured one after the other.
    #[arg(long, value_delimiter = ',', default_value = "8,64,500")]
    clients: Vec<u32>,
    /// Idle logged-in clients.
    #[arg(long, default_value_t = 5_000)]
    logins: usize,
    /// Percent of one processor for each of two servers that share reads. Load and balancer need
    /// the rest of the machine: on two cores half a core each leaves too little.
    #[arg(long, default_value_t = 50)]
    share_percent: u32,
    /// Server connections in a pool for MySQL.
    #[arg(long, default_value_t = 20)]
    pool_size: u32,
    /// Servers of the service in the part `scale`.
    #[arg(long, default_value_t = 10_000)]
    servers: usize,
    /// Services with three servers each in the part `scale`.
    #[arg(long, default_value_t = 1_000)]
    services: usize,
    /// Only programs whose name in the tables contains one of these words.
    #[arg(long, value_delimiter = ',')]
    programs: Vec<String>,
    /// Another build of Evenkeel that is measured too: NAME=PATH of its binary.
    #[arg(long = "build", value_name = "NAME=PATH")]
    builds: Vec<Build>,
    /// Scheduling groups of the programs.
    #[arg(long, value_enum, default_value_t = SchedulingGroup::Own)]
    groups: SchedulingGroup,
    /// PostgreSQL's version; the newest of this machine if none is given.
    #[arg(long)]
    version: Option<u32>,
    /// Only these parts; from `failover` on they are measured only when they are named here.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
}

/// A part of the measurement.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// MariaDB's point selects through TCP services and rivals.
    Speed,
    /// HTTP requests through TCP services and rivals, a new connection for each.
    Web,
    /// HTTP requests through HTTP services and rivals, and the memory of their idle clients.
    Http,
    /// HTTP responses that services and nginx compress.
    Compress,
    /// One gigabyte through one connection.
    Transfer,
    /// Memory and processor time of idle connections.
    Idle,
    /// Changes of primary in clusters of databases.
    Failover,
    /// PostgreSQL's point selects through poolers, prepared and as text.
    Postgres,
    /// MySQL's, through services that speak MySQL and through rivals.
    Mysql,
    /// Cost and gain of reads on PostgreSQL's replicas.
    Split,
    /// Cost and gain of reads on MariaDB's replicas.
    MysqlSplit,
    /// Memory of idle clients that have logged in.
    Logins,
    /// Latency of clients while others send floods of HTTP/2 frames.
    Floods,
    /// The control plane with many servers, against limits. A missed one is a failure.
    Scale,
}

impl Part {
    /// Returns whether the part is measured by default.
    fn is_of_every_run(self) -> bool {
        matches!(
            self,
            Part::Speed | Part::Web | Part::Http | Part::Transfer | Part::Idle
        )
    }
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let stop = Stop::on_signals()?;
    options.groups.set()?;
    println!("{}\n", options.groups.description());
    let by_default = |part: &Part| options.only.is_empty() && part.is_of_every_run();
    let wanted = |part: &Part| by_default(part) || options.only.contains(part);
    let mut is_kept = true;
    for part in Part::value_variants().iter().filter(|part| wanted(part)) {
        match part {
            Part::Speed => speed::measure(options, &stop)?,
            Part::Web => web::measure(options, &stop)?,
            Part::Http => http::measure(options, &stop)?,
            Part::Compress => compress::measure(options, &stop)?,
            Part::Transfer => transfer::measure(options, &stop)?,
            Part::Floods => floods::measure(options, &stop)?,
            Part::Idle => idle::measure(options, &stop)?,
            Part::Failover => failover::measure(options, &stop)?,
            Part::Postgres => postgres::measure(options, &stop)?,
            Part::Mysql => mysql::measure(options, &stop)?,
            Part::Split => split::of_postgres(options, &stop)?,
            Part::MysqlSplit => split::of_mysql(options, &stop)?,
            Part::Logins => logins::measure(options, &stop)?,
            Part::Scale => is_kept &= scale::measure(options, &stop)?,
        }
    }
    Ok(match is_kept {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
