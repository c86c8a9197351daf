//! What clients cost that have logged in, asked once, and say nothing.

use std::net::SocketAddr;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use evenkeel_lab::{Lab, Pooler, PoolerKind, PoolerOptions, Server, raise_open_files_limit};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, NoTls};

use crate::measure::Options;
use crate::measure::blocks::{Comparison, Metric, Target, interleaved};
use crate::stop::Stop;

const METRICS: &[Metric] = &[
    Metric {
        name: "kB/client",
        decimals: 2,
    },
    Metric {
        name: "CPU ms/s",
        decimals: 1,
    },
];
const KINDS: [PoolerKind; 4] = [
    PoolerKind::IoUring,
    PoolerKind::Epoll,
    PoolerKind::Pgbouncer,
    PoolerKind::Odyssey,
];
/// Logged in one after the other, these many at a time.
const AT_ONCE: usize = 20;
/// After the last answer, until everybody has put away what he can.
const SETTLE: Duration = Duration::from_secs(1);

/// Every run is a new process; memory is taken without and with the clients.
pub(in crate::measure) fn measure(options: &Options, stop: &Stop) -> Result<()> {
    raise_open_files_limit();
    let lab = Lab::new("logins")?;
    let cluster = lab.postgres(super::tables(options, 0))?;
    let servers = cluster.servers();
    let title = format!(
        "{} idle clients of PostgreSQL on a pool of 20, each logged in and answered once",
        options.logins
    );
    let comparison = Comparison {
        title: &title,
        metrics: METRICS,
        rival: PoolerKind::Pgbouncer.name(),
        // Memory does not vary from block to block.
        blocks: options.blocks.min(2),
    };
    let wanted = |kind: &&PoolerKind| options.pooler.is_empty() || options.pooler.contains(kind);
    let mut targets: Vec<Target> = KINDS
        .iter()
        .filter(wanted)
        .map(|kind| target(*kind, &servers, options))
        .collect();
    interleaved(&comparison, &mut targets, stop)
}

fn target<'a>(kind: PoolerKind, servers: &'a [Server], options: &'a Options) -> Target<'a> {
    let run = move || {
        let pooler = Pooler::start(kind, servers, &PoolerOptions::default())?;
        let pooler = pooler.with_context(|| format!("{} is not installed", kind.name()))?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        // The first clients bring in what is made once, in each worker and each server connection.
        let _warm = log_in(&runtime, pooler.address, 2 * AT_ONCE)?;
        let empty_kb = pooler.memory_kb();
        let clients = log_in(&runtime, pooler.address, options.logins)?;
        sleep(SETTLE);
        let before_us = pooler.cpu_us();
        sleep(Duration::from_secs(u64::from(options.seconds)));
        let idle_us = pooler.cpu_us() - before_us;
        let used_kb = pooler.memory_kb().saturating_sub(empty_kb);
        Ok(vec![
            used_kb as f64 / clients.len() as f64,
            idle_us as f64 / 1e3 / f64::from(options.seconds),
        ])
    };
    Target {
        name: kind.name().to_owned(),
        run: Box::new(run),
    }
}

fn log_in(runtime: &Runtime, address: SocketAddr, count: usize) -> Result<Vec<Client>> {
    let mut clients = Vec::with_capacity(count);
    while clients.len() < count {
        let at_once = AT_ONCE.min(count - clients.len());
        let begun: Vec<_> = (0..at_once)
            .map(|_| runtime.spawn(client(address)))
            .collect();
        for one in begun {
            let number = clients.len() + 1;
            let client = runtime.block_on(one)?;
            clients.push(client.with_context(|| format!("client {number} of {count}"))?);
        }
    }
    Ok(clients)
}

async fn client(address: SocketAddr) -> Result<Client> {
    let mut config = tokio_postgres::Config::new();
    config.host(address.ip().to_string()).port(address.port());
    config.user("sbtest").password("sbtest").dbname("sbtest");
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    client.simple_query("SELECT 1").await?;
    Ok(client)
}
