//! What a query of MySQL's costs in a service that speaks MySQL, and in those that do not.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use evenkeel_lab::{
    Balancer, Driver, Lab, MariadbOptions, MysqlRouter, Nginx, Server, Sysbench, eventually,
    free_port, procfs,
};

use super::Options;
use super::blocks::{Comparison, Metric, Target, interleaved_against};
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
        name: "p50 ms",
        decimals: 2,
    },
    Metric {
        name: "p99 ms",
        decimals: 2,
    },
];

/// Whom the others are compared with, a table for each.
const RIVALS: [&str; 3] = ["nginx stream", "mysql router", "direct"];

const READY_LIMIT: Duration = Duration::from_secs(20);

/// How sysbench asks: its own way, which prepares, and without.
const FORMS: [(&str, &str); 2] = [
    ("prepared", "--db-ps-mode=auto"),
    ("text", "--db-ps-mode=disable"),
];

/// Server connections of a pool.
const POOL_SIZE: u32 = 40;

/// What stands before the server.
struct Front {
    name: &'static str,
    address: SocketAddr,
    process: Running,
}

enum Running {
    Nothing,
    Evenkeel(Balancer),
    Nginx(Nginx),
    Router(MysqlRouter),
}

impl Front {
    fn cpu_us(&self) -> u64 {
        procfs::cpu_us(&match &self.process {
            Running::Nothing => Vec::new(),
            Running::Evenkeel(balancer) => vec![balancer.pid()],
            Running::Nginx(nginx) => nginx.pids(),
            Running::Router(router) => router.pids(),
        })
    }
}

/// One MariaDB server; pooling by transaction with reads split, as a user would set it up.
pub(super) fn measure(options: &Options, stop: &Stop) -> Result<()> {
    let lab = Lab::new("mysql")?;
    let cluster = lab.mariadb(MariadbOptions {
        sbtest_rows: Some(options.rows),
        ..MariadbOptions::default()
    })?;
    let server = cluster.primary;
    server.sql(
        "GRANT SELECT ON mysql.* TO monitor@'127.0.0.1'; \
         GRANT SHOW VIEW ON *.* TO monitor@'127.0.0.1'",
    )?;
    stop.check()?;
    let fronts = fronts(&server)?;
    for clients in &options.clients {
        for (form, option) in FORMS {
            let title = format!("MariaDB point selects, {form}, {clients} clients");
            let comparison = Comparison {
                title: &title,
                metrics: METRICS,
                rival: RIVALS[0],
                blocks: options.blocks,
            };
            let mut targets: Vec<Target> = fronts
                .iter()
                .map(|front| target(front, load(front, option, *clients, options)))
                .collect();
            interleaved_against(&RIVALS, &comparison, &mut targets, stop)?;
        }
    }
    Ok(())
}

/// In the order of the tables.
fn fronts(server: &Server) -> Result<Vec<Front>> {
    let address = server.address;
    let mut fronts = Vec::new();
    for (name, io) in [
        ("evenkeel io_uring", "io_uring"),
        ("evenkeel epoll", "epoll"),
    ] {
        let listen = free_address();
        let balancer = Balancer::start(&config(io, listen, server))?;
        let front = Front {
            name,
            address: listen,
            process: Running::Evenkeel(balancer),
        };
        wait_ready(&front)?;
        fronts.push(front);
    }
    let listen = free_address();
    fronts.push(Front {
        name: RIVALS[0],
        address: listen,
        process: Running::Nginx(Nginx::stream(&[address], listen)?),
    });
    let listen = free_address();
    match MysqlRouter::start(&[address], listen)? {
        Some(router) => fronts.push(Front {
            name: RIVALS[1],
            address: listen,
            process: Running::Router(router),
        }),
        None => eprintln!("{}: not installed, left out", RIVALS[1]),
    }
    fronts.push(Front {
        name: RIVALS[2],
        address,
        process: Running::Nothing,
    });
    Ok(fronts)
}

fn free_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}

fn config(io: &str, listen: SocketAddr, server: &Server) -> String {
    let address = server.address;
    format!(
        "[engine]\nio = {io:?}\nworkers = 2\nshutdown_limit_ms = 3000\n\n\
         [[service]]\nname = \"mysql\"\nprotocol = \"mysql\"\nlisten = \"{listen}\"\n\
         max_connections = 20000\nservers = [\"{address}\"]\n\
         [service.monitor]\nuser = \"monitor\"\npassword = \"monitor\"\n\
         [service.pool]\nsize = {POOL_SIZE}\n[service.split]\nreads = true\n"
    )
}

/// Who has just been started may not know yet who is primary.
fn wait_ready(front: &Front) -> Result<()> {
    let once = Sysbench {
        threads: 1,
        seconds: 1,
        rows: 1,
        ..Sysbench::new(Driver::Mysql, front.address)
    };
    let ready = eventually(READY_LIMIT, "a first session", || Ok(once.run().ok()));
    ready.with_context(|| {
        let log = match &front.process {
            Running::Evenkeel(balancer) => balancer.log(),
            _ => String::new(),
        };
        format!("{}: {log}", front.name)
    })?;
    Ok(())
}

fn load(front: &Front, form: &str, clients: u32, options: &Options) -> Sysbench {
    let extra = ["--skip_trx=on", "--histogram=on", form];
    Sysbench {
        threads: clients,
        seconds: options.seconds,
        rows: options.rows,
        extra: extra.map(str::to_owned).into(),
        ..Sysbench::new(Driver::Mysql, front.address)
    }
}

/// A run of this load, with what the front used meanwhile.
fn target(front: &Front, load: Sysbench) -> Target<'_> {
    let run = move || {
        let before = front.cpu_us();
        let report = load.run()?;
        let used_us = front.cpu_us().saturating_sub(before) as f64;
        let quantile_ms = |part| report.latencies.quantile_ms(part).unwrap_or(f64::NAN);
        Ok(vec![
            used_us / report.queries.max(1) as f64,
            report.qps,
            quantile_ms(0.5),
            quantile_ms(0.99),
        ])
    };
    Target {
        name: front.name.to_owned(),
        run: Box::new(run),
    }
}
