//! What stands between load and servers, started as its own documentation and the study advise.

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
use crate::rival::{Door, Rival, joined};
use crate::{Balancer, Odyssey, Pgbouncer, Pgpool, free_port, procfs};

/// A target that runs, or what it takes none of: a direct connection.
pub(crate) struct Front {
    pub(crate) name: String,
    /// Where reads go; several only for a generator that goes round by itself.
    pub(crate) reads: Vec<SocketAddr>,
    /// Where writes go.
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

/// Whether it could be started.
pub(crate) enum Started {
    Front(Box<Front>),
    /// Why not: a row of the report, not a failure.
    Missing(String),
}

/// What a target is to be started with.
pub(crate) struct Order<'a> {
    pub(crate) target: &'a Target,
    pub(crate) topology: &'a Topology,
    pub(crate) servers: Vec<SocketAddr>,
    /// What it binds.
    pub(crate) listen: SocketAddr,
    /// Where clients reach that.
    pub(crate) door: Door,
    /// Writes must follow the primary when it changes.
    pub(crate) follows_primary: bool,
    /// A directory that every program can read.
    pub(crate) room: &'a Path,
}

/// A balancer's process with its two ports.
struct Running {
    reads: SocketAddr,
    writes: SocketAddr,
    process: Process,
    version: String,
    notes: Vec<String>,
}

/// Starts it. A program that is not installed is no error; one that does not start is.
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

/// Starts it behind a door of its own, binding that port of all addresses which are there.
pub(crate) fn start_behind(target: &Target, topology: &Topology, door: Door) -> Result<Started> {
    let listen = SocketAddr::from(([0, 0, 0, 0], door.address.port()));
    started(&Order::new(target, topology, listen, door))
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

/// Whether no run of it can come about here: Debian has none, and nobody installed one by hand.
pub(crate) fn is_absent(program: Program) -> bool {
    use Program::{Glb, Ipvs, Maxscale, MysqlProxy, Proxysql};
    match program {
        Glb => !glb::is_installed(),
        program => matches!(program, Ipvs | Maxscale | MysqlProxy | Proxysql),
    }
}

impl<'a> Order<'a> {
    fn new(target: &'a Target, topology: &'a Topology, listen: SocketAddr, door: Door) -> Self {
        let count = target.servers.unwrap_or(topology.addresses.len());
        Order {
            target,
            topology,
            servers: topology.addresses.iter().take(count).copied().collect(),
            listen,
            door,
            follows_primary: false,
            room: topology.room(),
        }
    }

    /// Clients of a direct connection talk to the first server, or to the one that is named.
    fn direct(&self) -> Vec<SocketAddr> {
        let number = self.target.server.unwrap_or(1);
        self.topology
            .addresses
            .get(number - 1)
            .copied()
            .into_iter()
            .collect()
    }

    /// sysbench goes round over MySQL servers, each host with each port.
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

    /// One that has a single port, of the rivals' root file system.
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

    /// One of the user's, whose words and configuration are filled in, and `{config}` in its words.
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

    /// All servers for reads; the primary, or whoever follows it, for writes.
    fn has_two_ports(&self) -> bool {
        self.target.roles || self.follows_primary
    }
}

/// Of what a balancer said, so many lines are kept with a run that failed.
const LOG_LINES: usize = 40;

impl Front {
    /// Where a load of this kind goes.
    pub(crate) fn addresses(&self, sends: Sends) -> &[SocketAddr] {
        match sends {
            Sends::Reads => &self.reads,
            Sends::Writes => &self.writes,
        }
    }

    /// The balancer's processes; none for a direct connection.
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

    /// What it said last, if it has ended though nobody asked it to.
    pub(crate) fn crash(&self) -> Option<String> {
        match &self.process {
            Process::Evenkeel(balancer) if !balancer.is_running() => Some(balancer.log()),
            Process::Rival(rival) if !rival.is_running() => Some(rival.log_tail()),
            _ => None,
        }
    }

    /// The last that the balancer said, whether it still runs or not.
    pub(crate) fn said(&self) -> String {
        match &self.process {
            Process::Nothing => String::new(),
            Process::Evenkeel(balancer) => last_lines(&balancer.log(), LOG_LINES),
            Process::Rival(rival) => rival.log_tail(),
        }
    }

    /// Ends it, as `kill -9` does.
    pub(crate) fn kill(&self) -> Result<()> {
        match &self.process {
            Process::Nothing => Ok(()),
            Process::Evenkeel(balancer) => balancer.kill(),
            Process::Rival(rival) => rival.kill(),
        }
    }

    /// Evenkeel, if it is that.
    pub(crate) fn evenkeel(&self) -> Option<&Balancer> {
        match &self.process {
            Process::Evenkeel(balancer) => Some(balancer),
            _ => None,
        }
    }
}

/// `{listen}`, `{host}` and `{port}` are the target's own, `{servers}` are those behind it, one by
/// one `{host-1}` and `{port-1}`.
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

/// A port of loopback that nobody has.
fn another_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}

/// Why it does not run: nobody installed it, or the lab or this kernel cannot do it.
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
        let told = |text| filled(text, SocketAddr::from(([127, 0, 0, 1], 9)), &servers);
        assert_eq!(told("{listen} {host} {port}"), "127.0.0.1:9 127.0.0.1 9");
        assert_eq!(told("{servers}"), "10.0.0.1:80 10.0.0.2:81");
        assert_eq!(
            told("{host-2}, {port-2}; {host-3}"),
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
