//! Runs `evenkeel-lab up`: servers for experiments, until Ctrl-C.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use clap::{Args, Subcommand};
use evenkeel_lab::{
    GaleraOptions, GroupOptions, Lab, MariadbOptions, MysqlOptions, PostgresOptions, RingOptions,
    Server, Service, free_port,
};

use crate::control;
use crate::stop::Stop;

#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    up: Up,
    /// Each server in a network namespace of its own, so that it can be cut off (needs root).
    #[arg(long, global = true)]
    namespaces: bool,
}

/// Servers to start.
#[derive(Subcommand)]
pub(crate) enum Up {
    /// A MariaDB primary and its replicas (GTID).
    Mariadb(Mariadb),
    /// A MySQL 9 primary and its replicas (GTID); needs `cargo xtask rivals`.
    Mysql(Cluster),
    /// A MySQL 9 group, which elects its primary; needs `cargo xtask rivals`.
    GroupReplication(Nodes),
    /// A PostgreSQL primary and its replicas (streaming).
    Postgres(Postgres),
    /// A Galera cluster of MariaDB nodes, which all take writes.
    Galera(Nodes),
    /// A ring of MariaDB servers: each takes writes and replicates from the one before.
    Ring(Nodes),
    /// Web servers (nginx).
    Web(Web),
}

#[derive(Args)]
pub(crate) struct Cluster {
    /// How many replicas follow the primary.
    #[arg(long, default_value_t = 1)]
    replicas: usize,
    /// Load sysbench's four tables with this many rows each.
    #[arg(long)]
    rows: Option<u32>,
    /// Give each server this many percent of one processor (needs root).
    #[arg(long)]
    cpu_percent: Option<u32>,
}

#[derive(Args)]
pub(crate) struct Mariadb {
    #[command(flatten)]
    cluster: Cluster,
    /// The version, 11, which comes from `cargo xtask rivals`; this machine's own if none is given.
    #[arg(long)]
    version: Option<u32>,
}

#[derive(Args)]
pub(crate) struct Postgres {
    #[command(flatten)]
    cluster: Cluster,
    /// The version, for example 18; what this machine lacks comes from `cargo xtask rivals`.
    #[arg(long)]
    version: Option<u32>,
}

#[derive(Args)]
pub(crate) struct Nodes {
    /// How many.
    #[arg(long, default_value_t = 3)]
    nodes: usize,
    /// Load sysbench's four tables with this many rows each (not the ring).
    #[arg(long)]
    rows: Option<u32>,
    /// Give each server this many percent of one processor (needs root).
    #[arg(long)]
    cpu_percent: Option<u32>,
}

#[derive(Args)]
pub(crate) struct Web {
    /// How many.
    #[arg(long, default_value_t = 2)]
    servers: usize,
    /// Give each server this many percent of one processor (needs root).
    #[arg(long)]
    cpu_percent: Option<u32>,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let stop = Stop::on_signals()?;
    let lab = if options.namespaces {
        Lab::in_namespaces("lab")?
    } else {
        Lab::new("lab")?
    };
    let lab = Arc::new(lab);
    eprintln!("starting …");
    let (config, cpu_percent) = start(&lab, &options.up)?;
    let servers = lab.servers();
    for server in &servers {
        cpu_percent.map_or(Ok(()), |percent| server.cpu_share(percent))?;
    }
    control::serve(&lab)?;
    println!("{}", control::server_table(&servers));
    println!("In another terminal: evenkeel-lab list · kill|stop|start|freeze|thaw SERVER");
    println!("Databases: promote|demote|fail-over|rejoin SERVER · lag SERVER MS");
    println!("           stop-replication|start-replication SERVER\n");
    println!("evenkeel.toml for these servers:\n\n{config}");
    println!("Press Ctrl-C to stop the lab and delete its data.");
    stop.wait();
    Ok(ExitCode::SUCCESS)
}

fn start(lab: &Lab, up: &Up) -> Result<(String, Option<u32>)> {
    match up {
        Up::Mariadb(Mariadb { cluster, version }) => {
            let cpu_percent = cluster.cpu_percent;
            let usual = MariadbOptions::default();
            let cluster = lab.mariadb(MariadbOptions {
                replicas: cluster.replicas,
                sbtest_rows: cluster.rows,
                version: version.or(usual.version),
                ..usual
            })?;
            let config = reads_and_writes("mariadb", "mysql", &cluster.servers());
            Ok((config, cpu_percent))
        }
        Up::Mysql(options) => {
            let cluster = lab.mysql(MysqlOptions {
                replicas: options.replicas,
                sbtest_rows: options.rows,
                ..Default::default()
            })?;
            let config = reads_and_writes("mysql", "mysql", &cluster.servers());
            Ok((config, options.cpu_percent))
        }
        Up::GroupReplication(options) => {
            let group = lab.group_replication(GroupOptions {
                nodes: options.nodes,
                sbtest_rows: options.rows,
                ..Default::default()
            })?;
            let config = reads_and_writes("group", "mysql", &group.members);
            Ok((config, options.cpu_percent))
        }
        Up::Postgres(Postgres { cluster, version }) => {
            let cpu_percent = cluster.cpu_percent;
            let cluster = lab.postgres(PostgresOptions {
                replicas: cluster.replicas,
                sbtest_rows: cluster.rows,
                version: *version,
                ..Default::default()
            })?;
            let config = reads_and_writes("postgres", "postgres", &cluster.servers());
            Ok((config, cpu_percent))
        }
        Up::Galera(options) => {
            let cluster = lab.galera(GaleraOptions {
                nodes: options.nodes,
                sbtest_rows: options.rows,
                ..GaleraOptions::default()
            })?;
            let config = reads_and_writes("galera", "mysql", &cluster.nodes);
            Ok((config, options.cpu_percent))
        }
        Up::Ring(options) => {
            let ring = lab.ring(RingOptions {
                nodes: options.nodes,
            })?;
            let config = reads_and_writes("ring", "mysql", &ring.nodes);
            Ok((config, options.cpu_percent))
        }
        Up::Web(options) => {
            let servers = lab.web(options.servers)?;
            let config = service("web", "http", &servers).toml();
            Ok((config, options.cpu_percent))
        }
    }
}

/// Returns services with one port for the primary and one for replicas, with automatic roles.
fn reads_and_writes(name: &str, probe: &str, servers: &[Server]) -> String {
    let mut reads = service(&format!("{name}-reads"), probe, servers);
    reads.extra.push("role = \"replica\"".to_owned());
    reads.extra.push("fallback = \"primary\"".to_owned());
    let mut writes = service(&format!("{name}-writes"), probe, servers);
    writes.extra.push("role = \"primary\"".to_owned());
    let is_local = |server: &Server| server.address.ip().is_loopback();
    let tls = match servers.iter().all(is_local) {
        true => "",
        // Evenkeel verifies the servers' certificates outside loopback, and these servers have
        // none.
        false => "[service.server_tls]\nmode = \"off\"\n",
    };
    format!("{}{tls}\n{}{tls}", reads.toml(), writes.toml())
}

fn service(name: &str, probe: &str, servers: &[Server]) -> Service {
    Service::new(
        name,
        SocketAddr::from(([127, 0, 0, 1], free_port())),
        probe,
        servers,
    )
}
