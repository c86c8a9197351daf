//! What the read/write split costs, and what it brings when the servers are the limit.

use anyhow::Result;
use evenkeel_lab::{Driver, Lab, Pooler, PoolerKind, PoolerOptions, Server, Sysbench};

use super::{FORMS, METRICS, point_selects, tables, target};
use crate::measure::Options;
use crate::measure::blocks::{Comparison, Target, interleaved};
use crate::stop::Stop;

/// Of one processor, for each server.
const SHARE_PERCENT: u32 = 50;
const CLIENTS: u32 = 16;
const OFF: &str = "split off";
const ONE: &str = "one server";

/// A primary with a replica, both as fast as they are, then each held to half a processor.
pub(in crate::measure) fn measure(options: &Options, stop: &Stop) -> Result<()> {
    let lab = Lab::new("split")?;
    let cluster = lab.postgres(tables(options, 1))?;
    stop.check()?;
    let servers = cluster.servers();
    cost(&servers, options, stop)?;
    for server in &servers {
        server.cpu_share(SHARE_PERCENT)?;
    }
    gain(&servers, options, stop)
}

/// The same queries with the split and without.
fn cost(servers: &[Server], options: &Options, stop: &Stop) -> Result<()> {
    let poolers = [("split on", true), (OFF, false)]
        .into_iter()
        .map(|(name, reads)| Ok((name, evenkeel(servers, reads)?)))
        .collect::<Result<Vec<(&str, Pooler)>>>()?;
    for form in FORMS {
        let title = format!(
            "PostgreSQL point selects, {}, split on and off",
            form.name()
        );
        let mut targets: Vec<Target> = poolers
            .iter()
            .map(|(name, pooler)| target(name, pooler, point_selects(pooler, form, 64, options)))
            .collect();
        interleaved(&compared_with(OFF, &title, options), &mut targets, stop)?;
    }
    Ok(())
}

/// sysbench's read-only mix without transactions around it.
fn gain(servers: &[Server], options: &Options, stop: &Stop) -> Result<()> {
    let none = PoolerOptions::default();
    let alone = Pooler::start(PoolerKind::Direct, servers, &none)?;
    let pgpool = Pooler::start(PoolerKind::Pgpool, servers, &none)?;
    let named = [
        ("evenkeel, reads on both", Some(evenkeel(servers, true)?)),
        ("evenkeel, split off", Some(evenkeel(servers, false)?)),
        ("pgpool-ii, reads on both", pgpool),
        (ONE, alone),
    ];
    let title = format!(
        "PostgreSQL read-only mix, {CLIENTS} clients, servers held to {SHARE_PERCENT} % of a \
         processor each"
    );
    let mut targets: Vec<Target> = named
        .iter()
        .filter_map(|(name, pooler)| {
            let pooler = pooler.as_ref()?;
            Some(target(name, pooler, read_only(pooler, options)))
        })
        .collect();
    interleaved(&compared_with(ONE, &title, options), &mut targets, stop)
}

fn evenkeel(servers: &[Server], reads: bool) -> Result<Pooler> {
    let options = PoolerOptions {
        reads,
        ..PoolerOptions::default()
    };
    let pooler = Pooler::start(PoolerKind::IoUring, servers, &options)?;
    Ok(pooler.expect("this project's own program is there or an error"))
}

fn read_only(pooler: &Pooler, options: &Options) -> Sysbench {
    Sysbench {
        script: "oltp_read_only".to_owned(),
        threads: CLIENTS,
        seconds: options.seconds,
        rows: options.rows,
        extra: ["--skip_trx=on", "--histogram=on"]
            .map(str::to_owned)
            .into(),
        ..Sysbench::new(Driver::Pgsql, pooler.address)
    }
}

fn compared_with<'a>(rival: &'a str, title: &'a str, options: &Options) -> Comparison<'a> {
    Comparison {
        title,
        metrics: METRICS,
        rival,
        blocks: options.blocks,
    }
}
