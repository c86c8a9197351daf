//! Measures the cost and latency of a PostgreSQL query in a pooler.

use anyhow::Result;
use evenkeel_lab::{
    Driver, Lab, Pooler, PoolerKind, PoolerOptions, PostgresOptions, Server, Sysbench,
};

use super::Options;
use super::blocks::{Comparison, Target, interleaved_against};
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
    let poolers = start_all(&KINDS, &cluster.servers(), options)?;
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
                .filter(|pooler| *clients <= pooler.kind.clients_max())
                .map(|pooler| {
                    let load = point_selects(pooler, option, *clients, options);
                    target(pooler.kind.name(), pooler, load)
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

/// Starts the requested poolers that are installed.
fn start_all(kinds: &[PoolerKind], servers: &[Server], options: &Options) -> Result<Vec<Pooler>> {
    let wanted = |kind: &&PoolerKind| options.pooler.is_empty() || options.pooler.contains(kind);
    let mut poolers = Vec::new();
    for kind in kinds.iter().filter(wanted) {
        match Pooler::start(*kind, servers, &PoolerOptions::default())? {
            Some(pooler) => poolers.push(pooler),
            None => eprintln!("{}: not installed, skipped", kind.name()),
        }
    }
    Ok(poolers)
}

fn point_selects(pooler: &Pooler, form: &str, clients: u32, options: &Options) -> Sysbench {
    selects::load((Driver::Pgsql, pooler.address), form, clients, options)
}

/// Returns a run of this load, with the pooler's resource use during it.
fn target<'a>(name: &str, pooler: &'a Pooler, load: Sysbench) -> Target<'a> {
    selects::target(name, || pooler.cpu_us(), load)
}
