//! Measures processor time per query, and queries per second, through 8 and 64 connections.

use anyhow::Result;
use evenkeel_lab::{Driver, Lab, Sysbench};

use super::Options;
use super::blocks::{Comparison, Metric, Target, interleaved};
use super::front::{ALL, Front, Kind};
use crate::stop::Stop;

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
        name: "p95 ms",
        decimals: 2,
    },
];

/// Measures with two independent MariaDB servers and sysbench's prepared point selects.
pub(crate) fn measure(options: &Options, stop: &Stop) -> Result<()> {
    let lab = Lab::new("speed")?;
    let servers = lab.mariadb_stand_alone(2, Some(options.rows))?;
    stop.check()?;
    let fronts = Front::start_all(&ALL, &servers)?;
    for threads in [8, 64] {
        let title = format!("MariaDB point selects, {threads} clients");
        let comparison = Comparison {
            title: &title,
            metrics: METRICS,
            rival: Kind::Nginx.name(),
            blocks: options.blocks,
        };
        let mut targets: Vec<Target> = fronts
            .iter()
            .map(|front| target(front, threads, options))
            .collect();
        interleaved(&comparison, &mut targets, stop)?;
    }
    Ok(())
}

fn target<'a>(front: &'a Front, threads: u32, options: &Options) -> Target<'a> {
    let (seconds, rows) = (options.seconds, options.rows);
    let sysbench = Sysbench {
        threads,
        seconds,
        rows,
        ..Sysbench::new(Driver::Mysql, front.address)
    };
    let run = move || {
        let before = front.cpu_us();
        let report = sysbench.run()?;
        let used_us = (front.cpu_us() - before) as f64;
        Ok(vec![
            used_us / report.queries.max(1) as f64,
            report.qps,
            report.p95_ms,
        ])
    };
    Target {
        name: front.kind.name().to_owned(),
        run: Box::new(run),
    }
}
