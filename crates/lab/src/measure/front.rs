//! Starts a front for servers: none, Evenkeel on either driver, or a rival.

use std::net::SocketAddr;

use anyhow::Result;
use evenkeel_lab::balancer::find_binary;
use evenkeel_lab::{Balancer, Haproxy, Nginx, Server, Service, free_port, procfs};

use super::Options;
use super::program::{Program, programs};

/// Kind of a front.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Direct,
    IoUring,
    Epoll,
    Nginx,
    Haproxy,
    IoUringHttp,
    EpollHttp,
    NginxHttp,
    HaproxyHttp,
    IoUringGzip,
    EpollGzip,
    NginxGzip,
}

/// Kinds that compress responses, in the order of the tables.
pub(crate) const GZIP: [Kind; 3] = [Kind::IoUringGzip, Kind::EpollGzip, Kind::NginxGzip];

/// Kinds that parse HTTP, and none, in the order of the tables.
pub(crate) const HTTP: [Kind; 5] = [
    Kind::IoUringHttp,
    Kind::EpollHttp,
    Kind::NginxHttp,
    Kind::HaproxyHttp,
    Kind::Direct,
];

/// Kinds that forward connections, and none, in the order of the tables.
pub(crate) const ALL: [Kind; 5] = [
    Kind::IoUring,
    Kind::Epoll,
    Kind::Nginx,
    Kind::Haproxy,
    Kind::Direct,
];

impl Kind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Kind::Direct => "direct",
            Kind::IoUring | Kind::IoUringHttp | Kind::IoUringGzip => "evenkeel io_uring",
            Kind::Epoll | Kind::EpollHttp | Kind::EpollGzip => "evenkeel epoll",
            Kind::Nginx => "nginx stream",
            Kind::Haproxy => "haproxy tcp",
            Kind::NginxHttp | Kind::NginxGzip => "nginx http",
            Kind::HaproxyHttp => "haproxy http",
        }
    }

    /// Returns the protocol of Evenkeel's service.
    fn protocol(self) -> &'static str {
        match self {
            Kind::IoUringHttp | Kind::EpollHttp | Kind::IoUringGzip | Kind::EpollGzip => "http",
            _ => "tcp",
        }
    }

    /// Returns further tables of Evenkeel's service.
    fn tables(self) -> &'static str {
        match self {
            Kind::IoUringGzip | Kind::EpollGzip => "[service.http]\ncompress = [\"gzip\"]\n",
            _ => "",
        }
    }
}

/// A running front.
pub(crate) struct Front {
    /// Name in the tables.
    pub(crate) name: String,
    /// Address for clients.
    pub(crate) address: SocketAddr,
    process: Running,
}

enum Running {
    Nothing,
    Evenkeel(Balancer),
    Nginx(Nginx),
    Haproxy(Haproxy),
}

impl Front {
    /// Starts a front with round robin over the servers and two workers; "direct" is the first
    /// server.
    pub(crate) fn start(program: &Program<Kind>, servers: &[Server]) -> Result<Front> {
        let addresses: Vec<SocketAddr> = servers.iter().map(|server| server.address).collect();
        let listen = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let evenkeel = |io| {
            let binary = program.binary.clone().map_or_else(find_binary, Ok)?;
            Balancer::start_binary(binary, &config(io, program.kind, listen, servers))
        };
        let (address, process) = match program.kind {
            Kind::Direct => (addresses[0], Running::Nothing),
            Kind::IoUring | Kind::IoUringHttp | Kind::IoUringGzip => {
                (listen, Running::Evenkeel(evenkeel("io_uring")?))
            }
            Kind::Epoll | Kind::EpollHttp | Kind::EpollGzip => {
                (listen, Running::Evenkeel(evenkeel("epoll")?))
            }
            Kind::Nginx => (listen, Running::Nginx(Nginx::stream(&addresses, listen)?)),
            Kind::Haproxy => (listen, Running::Haproxy(Haproxy::tcp(&addresses, listen)?)),
            Kind::NginxHttp => (listen, Running::Nginx(Nginx::http(&addresses, listen)?)),
            Kind::NginxGzip => (listen, Running::Nginx(Nginx::gzip(&addresses, listen)?)),
            Kind::HaproxyHttp => (listen, Running::Haproxy(Haproxy::http(&addresses, listen)?)),
        };
        Ok(Front {
            name: program.name.clone(),
            address,
            process,
        })
    }

    /// Starts one of each kind that the options ask for.
    pub(crate) fn start_all(
        kinds: &[Kind],
        servers: &[Server],
        options: &Options,
    ) -> Result<Vec<Front>> {
        programs(kinds, Kind::name, options)
            .iter()
            .map(|program| Front::start(program, servers))
            .collect()
    }

    /// Returns the processor time used so far, in microseconds.
    pub(crate) fn cpu_us(&self) -> u64 {
        procfs::cpu_us(&self.pids())
    }

    /// Returns the anonymous memory in kB.
    pub(crate) fn memory_kb(&self) -> u64 {
        procfs::memory_kb(&self.pids())
    }

    fn pids(&self) -> Vec<u32> {
        match &self.process {
            Running::Nothing => Vec::new(),
            Running::Evenkeel(balancer) => vec![balancer.pid()],
            Running::Nginx(nginx) => nginx.pids(),
            Running::Haproxy(haproxy) => haproxy.pids(),
        }
    }
}

/// Returns a config with a TCP probe every two seconds; the rivals here do not probe.
fn config(io: &str, kind: Kind, listen: SocketAddr, servers: &[Server]) -> String {
    let mut service = Service::new("measured", listen, "tcp", servers);
    service.protocol = kind.protocol().to_owned();
    service.interval_ms = 2000;
    service.extra.push("max_connections = 20000".to_owned());
    let (service, tables) = (service.toml(), kind.tables());
    format!("[engine]\nio = \"{io}\"\nworkers = 2\n\n{service}\n{tables}")
}
