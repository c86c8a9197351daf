//! Measures the cost and latency of a PostgreSQL query in a pooler.

use anyhow::Result;
use evenkeel_lab::{Driver, Lab, Pooler, PoolerKind, PoolerOptions, PostgresOptions, Server};

use super::Options;
use super::blocks::{Comparison, Target, interleaved_against};
use super::program::{Program, programs};
use super::selects::{self, FORMS, METRICS};
use crate::stop::Stop;

/// Kinds in the order of the tables.
const KINDS: [PoolerKind; 6] = [
    PoolerKind::IoUring,
    PoolerKind::Epoll,
    PoolerKind::Pgbouncer,
    PoolerKind::Odyssey,
    PoolerKind::Pgpool,
    PoolerKind::Direct,
];

/// Rivals with which the others are compared, a table for each.
const RIVALS: [&str; 3] = ["pgbouncer", "pgpool-ii", "direct"];

/// Measures with one server, all poolers in transaction mode with 20 server connections.
pub(super) fn measure(options: &Options, stop: &Stop) -> Result<()> {
    let lab = Lab::new("postgres")?;
    let cluster = lab.postgres(tables(options, 0))?;
    stop.check()?;
    let poolers = start_all(&cluster.servers(), options)?;
    for clients in &options.clients {
        for (form, option) in FORMS {
            let title = format!("PostgreSQL point selects, {form}, {clients} clients");
            let comparison = Comparison {
                title: &title,
                metrics: METRICS,
                rival: RIVALS[0],
                blocks: options.blocks,
            };
            let mut targets: Vec<Target> = poolers
                .iter()
                .filter(|(_, pooler)| *clients <= pooler.kind.clients_max())
                .map(|(name, pooler)| {
                    let to = (Driver::Pgsql, pooler.address);
                    let load = selects::load(to, option, *clients, options);
                    selects::target(name, || pooler.cpu_us(), load)
                })
                .collect();
            interleaved_against(&RIVALS, &comparison, &mut targets, stop)?;
        }
    }
    Ok(())
}

/// Returns options for sysbench's tables on a primary with this many replicas.
pub(super) fn tables(options: &Options, replicas: usize) -> PostgresOptions {
    PostgresOptions {
        replicas,
        sbtest_rows: Some(options.rows),
        version: options.version,
        ..PostgresOptions::default()
    }
}

/// Starts the requested poolers that are installed, and returns them with their names.
fn start_all(servers: &[Server], options: &Options) -> Result<Vec<(String, Pooler)>> {
    let mut poolers = Vec::new();
    for program in programs(&KINDS, PoolerKind::name, options) {
        match start(&program, servers)? {
            Some(pooler) => poolers.push((program.name, pooler)),
            None => eprintln!("{}: not installed, skipped", program.name),
        }
    }
    Ok(poolers)
}

/// Starts a pooler in its default configuration; `None` if it is not installed.
pub(super) fn start(program: &Program<PoolerKind>, servers: &[Server]) -> Result<Option<Pooler>> {
    let options = PoolerOptions {
        binary: program.binary.clone(),
        ..PoolerOptions::default()
    };
    Pooler::start(program.kind, servers, &options)
}
