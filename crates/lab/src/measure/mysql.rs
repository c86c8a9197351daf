//! Measures the cost of a MySQL query in a service that parses the protocol, and in those that do
//! not.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use evenkeel_lab::balancer::find_binary;
use evenkeel_lab::{
    Balancer, Driver, Lab, MariadbOptions, MysqlRouter, Nginx, Server, Sysbench, eventually,
    free_port, procfs,
};

use super::Options;
use super::blocks::{Comparison, Target, interleaved_against};
use super::program::{Program, programs};
use super::selects::{self, FORMS, METRICS};
use crate::stop::Stop;

/// Rivals with which the others are compared, a table for each.
const RIVALS: [&str; 3] = [Kind::Nginx.name(), Kind::Router.name(), Kind::Direct.name()];

const READY_LIMIT: Duration = Duration::from_secs(20);

/// Kind of a front.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    IoUring,
    Epoll,
    Nginx,
    Router,
    Direct,
}

/// All kinds, in the order of the tables.
const KINDS: [Kind; 5] = [
    Kind::IoUring,
    Kind::Epoll,
    Kind::Nginx,
    Kind::Router,
    Kind::Direct,
];

impl Kind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Kind::IoUring => "evenkeel io_uring",
            Kind::Epoll => "evenkeel epoll",
            Kind::Nginx => "nginx stream",
            Kind::Router => "mysql router",
            Kind::Direct => "direct",
        }
    }
}

/// A running front.
pub(super) struct Front {
    pub(super) name: String,
    pub(super) address: SocketAddr,
    process: Running,
}

enum Running {
    Nothing,
    Evenkeel(Balancer),
    Nginx(Nginx),
    Router(MysqlRouter),
}

impl Front {
    /// Starts a front, with a pool of this size if it has one; `None` if it is not installed.
    pub(super) fn start(
        program: &Program<Kind>,
        server: &Server,
        pool_size: u32,
    ) -> Result<Option<Front>> {
        let kind = program.kind;
        let listen = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let servers = [server.address];
        let evenkeel = |io| {
            let binary = program.binary.clone().map_or_else(find_binary, Ok)?;
            Balancer::start_binary(binary, &config(io, listen, server, pool_size))
        };
        let process = match kind {
            Kind::IoUring => Running::Evenkeel(evenkeel("io_uring")?),
            Kind::Epoll => Running::Evenkeel(evenkeel("epoll")?),
            Kind::Nginx => Running::Nginx(Nginx::stream(&servers, listen)?),
            Kind::Router => match MysqlRouter::start(&servers, listen)? {
                Some(router) => Running::Router(router),
                None => return Ok(None),
            },
            Kind::Direct => Running::Nothing,
        };
        let address = match kind {
            Kind::Direct => server.address,
            _ => listen,
        };
        let front = Front {
            name: program.name.clone(),
            address,
            process,
        };
        front.wait_ready()?;
        Ok(Some(front))
    }

    /// Waits until the front knows the primary after its start.
    fn wait_ready(&self) -> Result<()> {
        let once = Sysbench {
            threads: 1,
            seconds: 1,
            rows: 1,
            ..Sysbench::new(Driver::Mysql, self.address)
        };
        let ready = eventually(READY_LIMIT, "a first session", || Ok(once.run().ok()));
        ready.with_context(|| {
            let log = match &self.process {
                Running::Evenkeel(balancer) => balancer.log(),
                _ => String::new(),
            };
            format!("{}: {log}", self.name)
        })?;
        Ok(())
    }

    pub(super) fn cpu_us(&self) -> u64 {
        procfs::cpu_us(&self.pids())
    }

    pub(super) fn memory_kb(&self) -> u64 {
        procfs::memory_kb(&self.pids())
    }

    fn pids(&self) -> Vec<u32> {
        match &self.process {
            Running::Nothing => Vec::new(),
            Running::Evenkeel(balancer) => vec![balancer.pid()],
            Running::Nginx(nginx) => nginx.pids(),
            Running::Router(router) => router.pids(),
        }
    }
}

/// Measures with one MariaDB server, and transaction pooling with read/write split, as users would
/// configure it.
pub(super) fn measure(options: &Options, stop: &Stop) -> Result<()> {
    let lab = Lab::new("mysql")?;
    let server = server(&lab, options)?;
    stop.check()?;
    let fronts = start_all(&server, options)?;
    for clients in &options.clients {
        for (form, option) in FORMS {
            let pool = options.pool_size;
            let title =
                format!("MariaDB point selects, {form}, {clients} clients on a pool of {pool}");
            let comparison = Comparison {
                title: &title,
                metrics: METRICS,
                rival: RIVALS[0],
                blocks: options.blocks,
            };
            let mut targets: Vec<Target> = fronts
                .iter()
                .map(|front| {
                    let at = (Driver::Mysql, front.address);
                    let load = selects::load(at, option, *clients, options);
                    selects::target(&front.name, || front.cpu_us(), load)
                })
                .collect();
            interleaved_against(&RIVALS, &comparison, &mut targets, stop)?;
        }
    }
    Ok(())
}

/// Starts a server with sysbench's tables, and an account with all rights that a service needs.
pub(super) fn server(lab: &Lab, options: &Options) -> Result<Server> {
    let cluster = lab.mariadb(MariadbOptions {
        sbtest_rows: Some(options.rows),
        ..MariadbOptions::default()
    })?;
    cluster.primary.sql(
        "GRANT SELECT ON mysql.* TO monitor@'127.0.0.1'; \
         GRANT SHOW VIEW, TRIGGER ON *.* TO monitor@'127.0.0.1'",
    )?;
    Ok(cluster.primary)
}

fn start_all(server: &Server, options: &Options) -> Result<Vec<Front>> {
    let mut fronts = Vec::new();
    for program in programs(&KINDS, Kind::name, options) {
        match Front::start(&program, server, options.pool_size)? {
            Some(front) => fronts.push(front),
            None => eprintln!("{}: not installed, skipped", program.name),
        }
    }
    Ok(fronts)
}

fn config(io: &str, listen: SocketAddr, server: &Server, pool_size: u32) -> String {
    let address = server.address;
    format!(
        "[engine]\nio = {io:?}\nworkers = 2\nshutdown_limit_ms = 3000\n\n\
         [[service]]\nname = \"mysql\"\nprotocol = \"mysql\"\nlisten = \"{listen}\"\n\
         max_connections = 20000\nservers = [\"{address}\"]\n\
         [service.monitor]\nuser = \"monitor\"\npassword = \"monitor\"\n\
         [service.pool]\nsize = {pool_size}\n[service.split]\nreads = true\n"
    )
}
