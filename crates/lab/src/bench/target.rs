//! Starts the targets between load and servers, as their documentation and the study advise.

mod evenkeel;
mod glb;
mod haproxy;
mod nginx;
mod router;

use std::net::SocketAddr;
use std::path::Path;

use anyhow::Result;

use super::experiment::{Program, Sends, Speech, Target};
use super::outcome::ConfigFile;
use super::topology::Topology;
use super::versions;
use crate::rival::{Endpoint, Rival, joined};
use crate::{Balancer, Odyssey, Pgbouncer, Pgpool, free_port, procfs};

/// A running target, or a direct connection.
pub(crate) struct Front {
    pub(crate) name: String,
    /// Addresses for reads; several only if the generator does the round robin itself.
    pub(crate) reads: Vec<SocketAddr>,
    /// Addresses for writes.
    pub(crate) writes: Vec<SocketAddr>,
    pub(crate) configs: Vec<ConfigFile>,
    pub(crate) version: String,
    pub(crate) notes: Vec<String>,
    process: Process,
}

enum Process {
    Nothing,
    Evenkeel(Box<Balancer>),
    Rival(Box<Rival>),
}

/// Result of starting a target.
pub(crate) enum Started {
    Front(Box<Front>),
    /// The target is unavailable for this reason: a row of the report, not a failure.
    Missing(String),
}

/// Parameters for starting a target.
pub(crate) struct Order<'a> {
    pub(crate) target: &'a Target,
    pub(crate) topology: &'a Topology,
    pub(crate) servers: Vec<SocketAddr>,
    /// Address to listen on.
    pub(crate) listen: SocketAddr,
    /// Address at which clients reach the target.
    pub(crate) endpoint: Endpoint,
    /// True if writes must follow the primary when it changes.
    pub(crate) follows_primary: bool,
    /// A directory that every program can read.
    pub(crate) work_dir: &'a Path,
}

/// A balancer's process with its two ports.
struct Running {
    reads: SocketAddr,
    writes: SocketAddr,
    process: Process,
    version: String,
    notes: Vec<String>,
}

/// Starts a target. A program that is not installed is no error; one that does not start is.
pub(crate) fn start(
    target: &Target,
    topology: &Topology,
    follows_primary: bool,
) -> Result<Started> {
    let listen = another_port();
    let order = Order::new(target, topology, listen, listen.into());
    started(&Order {
        follows_primary,
        ..order
    })
}

/// Starts a target with a separate client address; it listens on that port of all local addresses.
pub(crate) fn start_behind(
    target: &Target,
    topology: &Topology,
    endpoint: Endpoint,
) -> Result<Started> {
    let listen = SocketAddr::from(([0, 0, 0, 0], endpoint.address.port()));
    started(&Order::new(target, topology, listen, endpoint))
}

fn started(order: &Order) -> Result<Started> {
    let target = order.target;
    let running = match target.program {
        Program::Direct => return Ok(order.without_balancer(&order.direct())),
        Program::OwnRoundRobin => return Ok(order.own_round_robin()),
        Program::Evenkeel => evenkeel::start(order),
        Program::Haproxy => haproxy::start(order),
        Program::Nginx => nginx::start(order),
        Program::MysqlRouter => router::start(order),
        Program::Pgpool => order.pooler(Pgpool::start(&order.servers, order.listen), "pgpool2"),
        Program::Pgbouncer => {
            let first = order.servers[0];
            order.pooler(Pgbouncer::start(first, order.listen), "pgbouncer")
        }
        Program::Odyssey => order.pooler(Odyssey::start(&order.servers, order.listen), "odyssey"),
        Program::Command => order.command(),
        Program::Glb => glb::start(order),
        Program::Proxysql | Program::Maxscale | Program::MysqlProxy | Program::Ipvs => Ok(None),
    };
    Ok(match running? {
        Some(running) => Started::Front(Box::new(order.front(running))),
        None => Started::Missing(absent(target.program)),
    })
}

/// Returns whether the program cannot run here: Debian has no package of it, and it was not
/// installed manually.
pub(crate) fn is_absent(program: Program) -> bool {
    use Program::{Glb, Ipvs, Maxscale, MysqlProxy, Proxysql};
    match program {
        Glb => !glb::is_installed(),
        program => matches!(program, Ipvs | Maxscale | MysqlProxy | Proxysql),
    }
}

impl<'a> Order<'a> {
    fn new(
        target: &'a Target,
        topology: &'a Topology,
        listen: SocketAddr,
        endpoint: Endpoint,
    ) -> Self {
        let count = target.servers.unwrap_or(topology.addresses.len());
        Order {
            target,
            topology,
            servers: topology.addresses.iter().take(count).copied().collect(),
            listen,
            endpoint,
            follows_primary: false,
            work_dir: topology.work_dir(),
        }
    }

    /// Returns the address of the first server, or of the one that the target names.
    fn direct(&self) -> Vec<SocketAddr> {
        let number = self.target.server.unwrap_or(1);
        self.topology
            .addresses
            .get(number - 1)
            .copied()
            .into_iter()
            .collect()
    }

    /// Returns the addresses for sysbench's own round robin over MySQL servers: each host with each
    /// port.
    fn own_round_robin(&self) -> Started {
        let is_one_host = self
            .servers
            .iter()
            .all(|one| one.ip() == self.servers[0].ip());
        if self.topology.speech == Speech::Mysql && is_one_host {
            return self.without_balancer(&self.servers);
        }
        Started::Missing("sysbench goes round over MySQL servers of one address only".to_owned())
    }

    fn without_balancer(&self, addresses: &[SocketAddr]) -> Started {
        Started::Front(Box::new(Front {
            name: self.target.name.clone(),
            reads: addresses.to_vec(),
            writes: addresses.to_vec(),
            configs: Vec::new(),
            version: String::new(),
            notes: Vec::new(),
            process: Process::Nothing,
        }))
    }

    fn front(&self, running: Running) -> Front {
        let configs = match &running.process {
            Process::Nothing => Vec::new(),
            Process::Evenkeel(balancer) => vec![("evenkeel.toml".to_owned(), balancer.config())],
            Process::Rival(rival) => rival.configs(),
        };
        let configs = configs
            .into_iter()
            .map(|(name, text)| ConfigFile { name, text });
        Front {
            name: self.target.name.clone(),
            reads: vec![running.reads],
            writes: vec![running.writes],
            configs: configs.collect(),
            version: running.version,
            notes: running.notes,
            process: running.process,
        }
    }

    /// Starts a pooler with a single port, from the rivals' root file system.
    fn pooler<R: Into<Rival>>(
        &self,
        started: Result<Option<R>>,
        package: &str,
    ) -> Result<Option<Running>> {
        let Some(rival) = started?.map(Into::into) else {
            return Ok(None);
        };
        Ok(Some(Running {
            reads: self.listen,
            writes: self.listen,
            process: Process::Rival(Box::new(rival)),
            version: versions::of_package(package),
            notes: Vec::new(),
        }))
    }

    /// Starts a program of the user's after filling in its command line and configuration,
    /// including `{config}`.
    fn command(&self) -> Result<Option<Running>> {
        let fill = |text: &str| filled(text, self.listen, &self.servers);
        let words: Vec<String> = self.target.start.iter().map(|word| fill(word)).collect();
        let is_there = words.first().is_some_and(|program| {
            Path::new(program).is_file() || crate::tool::find(program).is_ok()
        });
        if !is_there {
            return Ok(None);
        }
        let rival = Rival::command(&words, &fill(&self.target.config), self.listen)?;
        Ok(Some(Running {
            reads: self.listen,
            writes: self.listen,
            process: Process::Rival(Box::new(rival)),
            version: String::new(),
            notes: Vec::new(),
        }))
    }

    /// Returns whether the target has two ports: one with all servers for reads, one with the
    /// current primary for writes.
    fn has_two_ports(&self) -> bool {
        self.target.roles || self.follows_primary
    }
}

/// Number of a balancer's output lines that are kept with a failed run.
const LOG_LINES: usize = 40;

impl Front {
    /// Returns the addresses for this kind of load.
    pub(crate) fn addresses(&self, sends: Sends) -> &[SocketAddr] {
        match sends {
            Sends::Reads => &self.reads,
            Sends::Writes => &self.writes,
        }
    }

    /// Returns the balancer's processes; empty for a direct connection.
    pub(crate) fn pids(&self) -> Vec<u32> {
        match &self.process {
            Process::Nothing => Vec::new(),
            Process::Evenkeel(balancer) => balancer.pids(),
            Process::Rival(rival) => rival.pids(),
        }
    }

    pub(crate) fn cpu_us(&self) -> u64 {
        procfs::cpu_us(&self.pids())
    }

    pub(crate) fn memory_kb(&self) -> u64 {
        procfs::memory_kb(&self.pids())
    }

    /// Returns the last output of a balancer that has ended unexpectedly.
    pub(crate) fn crash(&self) -> Option<String> {
        match &self.process {
            Process::Evenkeel(balancer) if !balancer.is_running() => Some(balancer.log()),
            Process::Rival(rival) if !rival.is_running() => Some(rival.log_tail()),
            _ => None,
        }
    }

    /// Returns the last output of the balancer, running or not.
    pub(crate) fn log_tail(&self) -> String {
        match &self.process {
            Process::Nothing => String::new(),
            Process::Evenkeel(balancer) => last_lines(&balancer.log(), LOG_LINES),
            Process::Rival(rival) => rival.log_tail(),
        }
    }

    /// Waits until the balancer uses all servers, if it reports them.
    pub(crate) fn wait_servers_up(&self) {
        if let Process::Evenkeel(balancer) = &self.process {
            evenkeel::wait_servers_up(balancer);
        }
    }

    /// Kills the balancer as `kill -9` does.
    pub(crate) fn kill(&self) -> Result<()> {
        match &self.process {
            Process::Nothing => Ok(()),
            Process::Evenkeel(balancer) => balancer.kill(),
            Process::Rival(rival) => rival.kill(),
        }
    }

    /// Returns the balancer if it is Evenkeel.
    pub(crate) fn evenkeel(&self) -> Option<&Balancer> {
        match &self.process {
            Process::Evenkeel(balancer) => Some(balancer),
            _ => None,
        }
    }
}

/// Replaces `{listen}`, `{host}` and `{port}` by the target's own address, `{servers}` by all
/// servers, and `{host-1}`, `{port-1}` by single ones.
fn filled(text: &str, listen: SocketAddr, servers: &[SocketAddr]) -> String {
    let mut text = text
        .replace("{listen}", &listen.to_string())
        .replace("{host}", &listen.ip().to_string())
        .replace("{port}", &listen.port().to_string())
        .replace("{servers}", &joined(servers, " "));
    for (number, server) in (1..).zip(servers) {
        text = text
            .replace(&format!("{{host-{number}}}"), &server.ip().to_string())
            .replace(&format!("{{port-{number}}}"), &server.port().to_string());
    }
    text
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// Returns a free loopback port.
fn another_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}

/// Returns why a program is unavailable: not installed, or unsupported by the lab or this kernel.
fn absent(program: Program) -> String {
    let found = |name: &str| crate::tool::find(name).is_ok();
    match program {
        Program::Ipvs if !Path::new("/proc/net/ip_vs").exists() => {
            "not installed: this kernel has no ip_vs".to_owned()
        }
        Program::Proxysql if found("proxysql") => unsupported("ProxySQL"),
        Program::Maxscale if found("maxscale") => unsupported("MaxScale"),
        Program::MysqlProxy if found("mysql-proxy") => unsupported("MySQL Proxy"),
        Program::Ipvs if found("ipvsadm") => unsupported("IPVS"),
        program if is_absent(program) => "not installed".to_owned(),
        _ => "not installed; `make rivals`, as root, installs the balancers that Debian has"
            .to_owned(),
    }
}

fn unsupported(name: &str) -> String {
    format!(
        "{name} is installed, but the lab does not know how to set it up: describe it as \
         program = \"command\" in an experiment of your own"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_told_its_port_and_its_servers_together_or_one_by_one() {
        let servers = [([10, 0, 0, 1], 80), ([10, 0, 0, 2], 81)].map(SocketAddr::from);
        let reported = |text| filled(text, SocketAddr::from(([127, 0, 0, 1], 9)), &servers);
        assert_eq!(
            reported("{listen} {host} {port}"),
            "127.0.0.1:9 127.0.0.1 9"
        );
        assert_eq!(reported("{servers}"), "10.0.0.1:80 10.0.0.2:81");
        assert_eq!(
            reported("{host-2}, {port-2}; {host-3}"),
            "10.0.0.2, 81; {host-3}"
        );
    }

    #[test]
    fn of_what_a_balancer_said_the_last_lines_are_kept() {
        assert_eq!(last_lines("", 2), "");
        assert_eq!(last_lines("one\n", 2), "one");
        assert_eq!(last_lines("one\ntwo\nthree\n", 2), "two\nthree");
    }
}
