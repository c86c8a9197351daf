//! Measures the cost of the read/write split, and its gain when the servers are the bottleneck.

use anyhow::Result;
use evenkeel_lab::{
    Driver, Lab, MariadbOptions, Pooler, PoolerKind, PoolerOptions, Server, Sysbench,
};

use super::blocks::{Comparison, Target, interleaved};
use super::selects::{self, FORMS, METRICS};
use super::{Options, postgres};
use crate::stop::Stop;

const CLIENTS: u32 = 16;
const CLIENTS_OF_COST: u32 = 64;
const OFF: &str = "split off";
const ONE: &str = "one server";

/// Mixes of sysbench: title, script and options.
const LOADS: [(&str, &str, &[&str]); 4] = [
    ("point selects", "oltp_point_select", &["--skip_trx=on"]),
    ("read-only mix", "oltp_read_only", &["--skip_trx=on"]),
    ("updates", "oltp_update_index", &[]),
    ("reads and writes in transactions", "oltp_read_write", &[]),
];

/// A primary with a replica.
struct Pair {
    name: &'static str,
    driver: Driver,
    servers: Vec<Server>,
}

/// Measures PostgreSQL, first without limits on the servers, then with a share for each.
pub(super) fn of_postgres(options: &Options, stop: &Stop) -> Result<()> {
    let lab = Lab::new("split")?;
    let cluster = lab.postgres(postgres::tables(options, 1))?;
    let pair = Pair {
        name: "PostgreSQL",
        driver: Driver::Pgsql,
        servers: cluster.servers(),
    };
    pair.measure(options, stop)
}

/// Measures MariaDB, as in [`of_postgres`].
pub(super) fn of_mysql(options: &Options, stop: &Stop) -> Result<()> {
    let lab = Lab::new("mysql-split")?;
    let cluster = lab.mariadb(MariadbOptions {
        replicas: 1,
        sbtest_rows: Some(options.rows),
        ..MariadbOptions::default()
    })?;
    let pair = Pair {
        name: "MariaDB",
        driver: Driver::Mysql,
        servers: cluster.servers(),
    };
    pair.measure(options, stop)
}

impl Pair {
    fn measure(&self, options: &Options, stop: &Stop) -> Result<()> {
        stop.check()?;
        self.cost(options, stop)?;
        for server in &self.servers {
            server.cpu_share(options.share_percent)?;
        }
        self.gain(options, stop)
    }

    /// Measures the same queries with and without the split.
    fn cost(&self, options: &Options, stop: &Stop) -> Result<()> {
        let poolers = [("split on", true), (OFF, false)]
            .into_iter()
            .map(|(name, reads)| Ok((name, self.evenkeel(reads)?)))
            .collect::<Result<Vec<(&str, Pooler)>>>()?;
        for (form, option) in FORMS {
            let title = format!("{} point selects, {form}, split on and off", self.name);
            let load = |pooler: &Pooler| {
                let to = (self.driver, pooler.address);
                selects::load(to, option, CLIENTS_OF_COST, options)
            };
            let mut targets: Vec<Target> = poolers
                .iter()
                .map(|(name, pooler)| selects::target(name, || pooler.cpu_us(), load(pooler)))
                .collect();
            interleaved(&compared_with(OFF, &title, options), &mut targets, stop)?;
        }
        Ok(())
    }

    /// Measures two servers together against one of them alone.
    fn gain(&self, options: &Options, stop: &Stop) -> Result<()> {
        let mut named = vec![
            ("evenkeel, reads on both", self.evenkeel(true)?),
            ("evenkeel, split off", self.evenkeel(false)?),
        ];
        if self.driver == Driver::Pgsql {
            let pgpool = self.start(PoolerKind::Pgpool, false)?;
            named.extend(pgpool.map(|pgpool| ("pgpool-ii, reads on both", pgpool)));
        }
        let alone = self.start(PoolerKind::Direct, false)?;
        named.extend(alone.map(|alone| (ONE, alone)));
        for (what, script, extra) in LOADS {
            let title = format!(
                "{} {what}, {CLIENTS} clients, servers held to {} % of a processor each",
                self.name, options.share_percent
            );
            let mut targets: Vec<Target> = named
                .iter()
                .map(|(name, pooler)| {
                    let load = self.load(pooler, script, extra, options);
                    selects::target(name, || pooler.cpu_us(), load)
                })
                .collect();
            interleaved(&compared_with(ONE, &title, options), &mut targets, stop)?;
        }
        Ok(())
    }

    fn evenkeel(&self, reads: bool) -> Result<Pooler> {
        let pooler = self.start(PoolerKind::IoUring, reads)?;
        Ok(pooler.expect("this project's own program is there or an error"))
    }

    fn start(&self, kind: PoolerKind, reads: bool) -> Result<Option<Pooler>> {
        let options = PoolerOptions {
            driver: self.driver,
            reads,
            ..PoolerOptions::default()
        };
        Pooler::start(kind, &self.servers, &options)
    }

    fn load(&self, pooler: &Pooler, script: &str, extra: &[&str], options: &Options) -> Sysbench {
        let extra = extra.iter().chain(&["--histogram=on"]);
        Sysbench {
            script: script.to_owned(),
            threads: CLIENTS,
            seconds: options.seconds,
            rows: options.rows,
            extra: extra.map(|one| (*one).to_owned()).collect(),
            ..Sysbench::new(self.driver, pooler.address)
        }
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
