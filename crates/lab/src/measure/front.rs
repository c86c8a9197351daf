//! Starts a front for servers: none, Evenkeel on either driver, or a rival.

use std::net::SocketAddr;

use anyhow::Result;
use evenkeel_lab::{Balancer, Haproxy, Nginx, Server, Service, free_port, procfs};

/// Kind of a front.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Direct,
    IoUring,
    Epoll,
    Nginx,
    Haproxy,
}

/// All kinds, in the order of the tables.
pub(crate) const ALL: [Kind; 5] = [
    Kind::IoUring,
    Kind::Epoll,
    Kind::Nginx,
    Kind::Haproxy,
    Kind::Direct,
];

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Direct => "direct",
            Kind::IoUring => "evenkeel io_uring",
            Kind::Epoll => "evenkeel epoll",
            Kind::Nginx => "nginx stream",
            Kind::Haproxy => "haproxy tcp",
        }
    }
}

/// A running front.
pub(crate) struct Front {
    pub(crate) kind: Kind,
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
    pub(crate) fn start(kind: Kind, servers: &[Server]) -> Result<Front> {
        let addresses: Vec<SocketAddr> = servers.iter().map(|server| server.address).collect();
        let listen = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let (address, process) = match kind {
            Kind::Direct => (addresses[0], Running::Nothing),
            Kind::IoUring => (
                listen,
                Running::Evenkeel(evenkeel("io_uring", listen, servers)?),
            ),
            Kind::Epoll => (
                listen,
                Running::Evenkeel(evenkeel("epoll", listen, servers)?),
            ),
            Kind::Nginx => (listen, Running::Nginx(Nginx::stream(&addresses, listen)?)),
            Kind::Haproxy => (listen, Running::Haproxy(Haproxy::tcp(&addresses, listen)?)),
        };
        Ok(Front {
            kind,
            address,
            process,
        })
    }

    /// Starts one of each kind.
    pub(crate) fn start_all(kinds: &[Kind], servers: &[Server]) -> Result<Vec<Front>> {
        kinds
            .iter()
            .map(|kind| Front::start(*kind, servers))
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

/// Starts Evenkeel with a TCP probe every two seconds; the rivals here do not probe.
fn evenkeel(io: &str, listen: SocketAddr, servers: &[Server]) -> Result<Balancer> {
    let mut service = Service::new("measured", listen, "tcp", servers);
    service.interval_ms = 2000;
    service.extra.push("max_connections = 20000".to_owned());
    Balancer::start(&format!(
        "[engine]\nio = \"{io}\"\nworkers = 2\n\n{}",
        service.toml()
    ))
}
