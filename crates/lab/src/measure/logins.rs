//! Measures the cost of idle clients that have logged in and run one query.

use std::net::SocketAddr;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use evenkeel_lab::{Lab, PoolerKind, Server, raise_open_files_limit};
use mysql_async::prelude::Queryable;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::NoTls;

use super::blocks::{Comparison, Metric, Target, interleaved};
use super::program::{Program, programs};
use super::{Options, mysql, postgres};
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
const POSTGRES: [PoolerKind; 4] = [
    PoolerKind::IoUring,
    PoolerKind::Epoll,
    PoolerKind::Pgbouncer,
    PoolerKind::Odyssey,
];
/// Kinds for MySQL; MySQL Router is left out, as it opens a server connection for each client.
const MYSQL: [mysql::Kind; 2] = [mysql::Kind::IoUring, mysql::Kind::Epoll];
const POOL_SIZE: u32 = 20;
/// Number of concurrent logins.
const AT_ONCE: usize = 20;
/// Time after the last answer for programs to release memory.
const SETTLE: Duration = Duration::from_secs(1);

/// A pooler under test: address and resource counters.
struct Front<'a> {
    address: SocketAddr,
    memory_kb: &'a dyn Fn() -> u64,
    cpu_us: &'a dyn Fn() -> u64,
}

/// Measures memory without and with the clients; every run is a new process.
pub(super) fn measure(options: &Options, stop: &Stop) -> Result<()> {
    raise_open_files_limit();
    let lab = Lab::new("logins")?;
    let cluster = lab.postgres(postgres::tables(options, 0))?;
    let servers = cluster.servers();
    let poolers = programs(&POSTGRES, PoolerKind::name, options);
    let mut targets: Vec<Target> = poolers
        .iter()
        .map(|program| of_postgres(program, &servers, options))
        .collect();
    let rival = PoolerKind::Pgbouncer.name();
    compare(("PostgreSQL", rival), &mut targets, options, stop)?;
    let server = mysql::server(&lab, options)?;
    let fronts = programs(&MYSQL, mysql::Kind::name, options);
    let mut targets: Vec<Target> = fronts
        .iter()
        .map(|program| of_mysql(program, &server, options))
        .collect();
    let rival = mysql::Kind::Epoll.name();
    compare(("MariaDB", rival), &mut targets, options, stop)
}

fn compare(
    (database, rival): (&str, &str),
    targets: &mut [Target<'_>],
    options: &Options,
    stop: &Stop,
) -> Result<()> {
    let title = format!(
        "{} idle clients of {database} on a pool of {POOL_SIZE}, each logged in and answered once",
        options.logins
    );
    let comparison = Comparison {
        title: &title,
        metrics: METRICS,
        rival,
        // Memory does not vary from block to block.
        blocks: options.blocks.min(2),
    };
    interleaved(&comparison, targets, stop)
}

fn of_postgres<'a>(
    program: &'a Program<PoolerKind>,
    servers: &'a [Server],
    options: &'a Options,
) -> Target<'a> {
    let run = move || {
        let pooler = postgres::start(program, servers)?;
        let pooler = pooler.with_context(|| format!("{} is not installed", program.name))?;
        let front = Front {
            address: pooler.address,
            memory_kb: &|| pooler.memory_kb(),
            cpu_us: &|| pooler.cpu_us(),
        };
        figures(&front, client_of_postgres, options)
    };
    Target {
        name: program.name.clone(),
        run: Box::new(run),
    }
}

fn of_mysql<'a>(
    program: &'a Program<mysql::Kind>,
    server: &'a Server,
    options: &'a Options,
) -> Target<'a> {
    let run = move || {
        let own = mysql::Front::start(program, server, POOL_SIZE)?;
        let own = own.with_context(|| format!("{} is not installed", program.name))?;
        let front = Front {
            address: own.address,
            memory_kb: &|| own.memory_kb(),
            cpu_us: &|| own.cpu_us(),
        };
        figures(&front, client_of_mysql, options)
    };
    Target {
        name: program.name.clone(),
        run: Box::new(run),
    }
}

fn figures<C, F>(
    front: &Front<'_>,
    client: impl Fn(SocketAddr) -> F,
    options: &Options,
) -> Result<Vec<f64>>
where
    F: Future<Output = Result<C>> + Send + 'static,
    C: Send + 'static,
{
    let runtime = Builder::new_current_thread().enable_all().build()?;
    // The first clients trigger one-time allocations in each worker and each server connection.
    let _warm = log_in(&runtime, front.address, &client, 2 * AT_ONCE)?;
    let empty_kb = (front.memory_kb)();
    let clients = log_in(&runtime, front.address, &client, options.logins)?;
    sleep(SETTLE);
    let before_us = (front.cpu_us)();
    sleep(Duration::from_secs(u64::from(options.seconds)));
    let idle_us = (front.cpu_us)() - before_us;
    let used_kb = (front.memory_kb)().saturating_sub(empty_kb);
    Ok(vec![
        used_kb as f64 / clients.len() as f64,
        idle_us as f64 / 1e3 / f64::from(options.seconds),
    ])
}

fn log_in<C, F>(
    runtime: &Runtime,
    address: SocketAddr,
    client: impl Fn(SocketAddr) -> F,
    count: usize,
) -> Result<Vec<C>>
where
    F: Future<Output = Result<C>> + Send + 'static,
    C: Send + 'static,
{
    let mut clients = Vec::with_capacity(count);
    while clients.len() < count {
        let at_once = AT_ONCE.min(count - clients.len());
        let started: Vec<_> = (0..at_once)
            .map(|_| runtime.spawn(client(address)))
            .collect();
        for one in started {
            let number = clients.len() + 1;
            let client = runtime.block_on(one)?;
            clients.push(client.with_context(|| format!("client {number} of {count}"))?);
        }
    }
    Ok(clients)
}

async fn client_of_postgres(address: SocketAddr) -> Result<tokio_postgres::Client> {
    let mut config = tokio_postgres::Config::new();
    config.host(address.ip().to_string()).port(address.port());
    config.user("sbtest").password("sbtest").dbname("sbtest");
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    client.simple_query("SELECT 1").await?;
    Ok(client)
}

async fn client_of_mysql(address: SocketAddr) -> Result<mysql_async::Conn> {
    let options = mysql_async::OptsBuilder::default()
        .ip_or_hostname(address.ip().to_string())
        .tcp_port(address.port())
        .user(Some("sbtest"))
        .pass(Some("sbtest"))
        .db_name(Some("sbtest"))
        .prefer_socket(false);
    let mut client = mysql_async::Conn::new(options).await?;
    client.query_drop("SELECT 1").await?;
    Ok(client)
}
