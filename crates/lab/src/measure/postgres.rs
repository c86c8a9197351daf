//! What a PostgreSQL query costs in a pooler, and how long it takes there.

mod logins;
mod split;

use anyhow::Result;
use evenkeel_lab::{
    Driver, Lab, Pooler, PoolerKind, PoolerOptions, PostgresOptions, Server, Sysbench,
};

use super::Options;
use super::blocks::{Comparison, Metric, Target, interleaved_against};
use crate::stop::Stop;

pub(super) use logins::measure as logins;
pub(super) use split::measure as split;

const METRICS: &[Metric] = &[
    Metric {
        name: "us CPU/query",
        decimals: 1,
    },
    Metric {
        name: "queries/s",
        decimals: 0,
    },
    Metric {
        name: "p50 ms",
        decimals: 2,
    },
    Metric {
        name: "p99 ms",
        decimals: 2,
    },
];

/// In the order of the tables.
const KINDS: [PoolerKind; 6] = [
    PoolerKind::IoUring,
    PoolerKind::Epoll,
    PoolerKind::Pgbouncer,
    PoolerKind::Odyssey,
    PoolerKind::Pgpool,
    PoolerKind::Direct,
];

/// Whom the others are compared with, a table for each.
const RIVALS: [&str; 3] = ["pgbouncer", "pgpool-ii", "direct"];

/// How sysbench asks.
#[derive(Clone, Copy)]
enum Form {
    Prepared,
    Text,
}

const FORMS: [Form; 2] = [Form::Prepared, Form::Text];

impl Form {
    fn name(self) -> &'static str {
        match self {
            Form::Prepared => "prepared",
            Form::Text => "text",
        }
    }

    fn option(self) -> &'static str {
        match self {
            Form::Prepared => "--db-ps-mode=auto",
            Form::Text => "--db-ps-mode=disable",
        }
    }
}

/// One server; all poolers in transaction mode with 20 server connections.
pub(super) fn measure(options: &Options, stop: &Stop) -> Result<()> {
    let lab = Lab::new("postgres")?;
    let cluster = lab.postgres(tables(options, 0))?;
    stop.check()?;
    let poolers = start_all(&KINDS, &cluster.servers(), options)?;
    for clients in &options.clients {
        for form in FORMS {
            let title = format!(
                "PostgreSQL point selects, {}, {clients} clients",
                form.name()
            );
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
                    let load = point_selects(pooler, form, *clients, options);
                    target(pooler.kind.name(), pooler, load)
                })
                .collect();
            interleaved_against(&RIVALS, &comparison, &mut targets, stop)?;
        }
    }
    Ok(())
}

/// sysbench's tables, on a primary with this many replicas.
fn tables(options: &Options, replicas: usize) -> PostgresOptions {
    PostgresOptions {
        replicas,
        sbtest_rows: Some(options.rows),
        version: options.version,
        ..PostgresOptions::default()
    }
}

/// Those that are wanted and installed.
fn start_all(kinds: &[PoolerKind], servers: &[Server], options: &Options) -> Result<Vec<Pooler>> {
    let wanted = |kind: &&PoolerKind| options.pooler.is_empty() || options.pooler.contains(kind);
    let mut poolers = Vec::new();
    for kind in kinds.iter().filter(wanted) {
        match Pooler::start(*kind, servers, &PoolerOptions::default())? {
            Some(pooler) => poolers.push(pooler),
            None => eprintln!("{}: not installed, left out", kind.name()),
        }
    }
    Ok(poolers)
}

fn point_selects(pooler: &Pooler, form: Form, clients: u32, options: &Options) -> Sysbench {
    let extra = ["--skip_trx=on", "--histogram=on", form.option()];
    Sysbench {
        threads: clients,
        seconds: options.seconds,
        rows: options.rows,
        extra: extra.map(str::to_owned).into(),
        ..Sysbench::new(Driver::Pgsql, pooler.address)
    }
}

/// A run of this load, with what the pooler used meanwhile.
fn target<'a>(name: &str, pooler: &'a Pooler, load: Sysbench) -> Target<'a> {
    let run = move || {
        let before = pooler.cpu_us();
        let report = load.run()?;
        let used_us = pooler.cpu_us().saturating_sub(before) as f64;
        let quantile_ms = |part| report.latencies.quantile_ms(part).unwrap_or(f64::NAN);
        Ok(vec![
            used_us / report.queries.max(1) as f64,
            report.qps,
            quantile_ms(0.5),
            quantile_ms(0.99),
        ])
    };
    Target {
        name: name.to_owned(),
        run: Box::new(run),
    }
}
