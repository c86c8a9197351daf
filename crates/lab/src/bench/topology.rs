//! Provides the servers of a part: started in one lab with their resource limits, or existing ones.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::experiment::{ServerKind, Servers, Speech};
use super::machine;
use super::outcome::ConfigFile;
use crate::network::Network;
use crate::sysbench::Driver;
use crate::web::WebProgram;
use crate::{
    ClusterKind, GaleraOptions, GroupOptions, GroupReplication, Lab, MariadbOptions, MysqlOptions,
    PostgresOptions, Scenario, Server, rootfs,
};

/// Running servers.
pub(crate) struct Topology {
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) speech: Speech,
    /// Program of the web servers.
    pub(crate) web: WebProgram,
    /// Deviations from the requested setup, for the report.
    pub(crate) notes: Vec<String>,
    home: Home,
    work_dir: PathBuf,
}

enum Home {
    Scenario(Box<Scenario>),
    Web(Lab, Vec<Server>),
    External(tempfile::TempDir),
}

impl Topology {
    /// Starts the servers and loads their data.
    pub(crate) fn start(servers: &Servers, rows: u32) -> Result<Topology> {
        if let Some(why) = missing(servers) {
            bail!("{why}");
        }
        let mut notes = Vec::new();
        let home = match servers.kind {
            ServerKind::External => Home::External(tempfile::tempdir_in(crate::home())?),
            _ => start(servers, rows, &mut notes)?,
        };
        let mut topology = Topology {
            addresses: servers.address.clone(),
            speech: servers.speech(),
            web: servers.program.unwrap_or_default(),
            notes,
            work_dir: PathBuf::new(),
            home,
        };
        if !topology.is_external() {
            let own = topology.servers().iter();
            topology.addresses = own.map(|server| server.address).collect();
        }
        topology.work_dir = topology.create_work_dir()?;
        topology.fill(servers)?;
        topology.limit(servers);
        Ok(topology)
    }

    /// Starts another set of the same servers, each in its own network namespace.
    pub(crate) fn in_namespaces(servers: &Servers, rows: u32) -> Result<Topology> {
        let delay_us = Some(servers.delay_us.unwrap_or(0));
        let servers = Servers {
            delay_us,
            ..servers.clone()
        };
        Topology::start(&servers, rows)
    }

    /// Returns the network of the servers' namespaces, if they have any.
    pub(crate) fn network(&self) -> Option<&Network> {
        match &self.home {
            Home::Scenario(scenario) => scenario.lab.network(),
            Home::Web(lab, _) => lab.network(),
            Home::External(_) => None,
        }
    }

    /// Returns the lab's servers; empty for external ones.
    pub(crate) fn servers(&self) -> &[Server] {
        match &self.home {
            Home::Scenario(scenario) => &scenario.servers,
            Home::Web(_, servers) => servers,
            Home::External(_) => &[],
        }
    }

    /// Returns the cluster, if the servers form one whose writer can change.
    pub(crate) fn scenario(&self) -> Option<&Scenario> {
        match &self.home {
            Home::Scenario(scenario) => Some(scenario),
            _ => None,
        }
    }

    pub(crate) fn is_external(&self) -> bool {
        matches!(self.home, Home::External(_))
    }

    /// Returns a directory that every program can read, removed with the servers.
    pub(crate) fn work_dir(&self) -> &Path {
        &self.work_dir
    }

    pub(crate) fn driver(&self) -> Driver {
        match self.speech {
            Speech::Postgres => Driver::Pgsql,
            _ => Driver::Mysql,
        }
    }

    /// Returns the names of these servers.
    pub(crate) fn named<'a>(
        &'a self,
        addresses: &'a [SocketAddr],
    ) -> impl Iterator<Item = (String, SocketAddr)> + 'a {
        addresses.iter().enumerate().map(|(number, address)| {
            let mut own = self.servers().iter();
            let found = own.find(|server| server.address == *address);
            let name = found.map_or_else(
                || format!("server-{}", number + 1),
                |server| server.name.clone(),
            );
            (name, *address)
        })
    }

    /// Returns each server's configuration.
    pub(crate) fn configs(&self) -> Vec<ConfigFile> {
        let of_server = |server: &Server| {
            let name = server.name.clone();
            let configs = server.configuration().into_iter();
            configs.map(move |(file, text)| ConfigFile {
                name: format!("{name}: {file}"),
                text,
            })
        };
        self.servers().iter().flat_map(of_server).collect()
    }

    /// Returns all processes of all servers.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.servers().iter().flat_map(Server::pids).collect()
    }

    /// Returns whether requests leave no data that must be kept.
    pub(crate) fn keeps_nothing(&self) -> bool {
        matches!(self.home, Home::Web(..))
    }

    /// Kills and restarts all servers.
    pub(crate) fn start_again(&self) -> Result<()> {
        for server in self.servers() {
            server.kill()?;
            server.start()?;
        }
        Ok(())
    }

    /// Returns a server of the lab that has ended unexpectedly, with its output.
    pub(crate) fn dead(&self) -> Option<(&Server, String)> {
        let mut servers = self.servers().iter();
        let found = servers.find(|server| !server.is_running());
        found.map(|server| (server, server.log_tail()))
    }

    /// Returns the requests that each server has received since its start; empty if they are not
    /// counted.
    pub(crate) fn counts(&self) -> Vec<(String, u64)> {
        let count = |server: &Server| -> Option<u64> {
            match self.speech {
                Speech::Mysql => {
                    let answer = server.sql("SHOW GLOBAL STATUS LIKE 'Questions'").ok()?;
                    answer.split_whitespace().last()?.parse().ok()
                }
                // PostgreSQL updates its counters seconds later.
                Speech::Postgres => None,
                Speech::Http => crate::web::requests(server.address),
            }
        };
        let all = self.servers().iter().map(|server| {
            let count = count(server)?;
            Some((server.name.clone(), count))
        });
        all.collect::<Option<Vec<_>>>().unwrap_or_default()
    }

    fn create_work_dir(&self) -> Result<PathBuf> {
        let parent = match &self.home {
            Home::Scenario(scenario) => scenario.lab.path(),
            Home::Web(lab, _) => lab.path(),
            Home::External(directory) => directory.path(),
        };
        let work_dir = parent.join("bench");
        std::fs::create_dir(&work_dir)
            .with_context(|| format!("cannot make {}", work_dir.display()))?;
        Ok(work_dir)
    }

    /// Runs the experiment's statements on the first server, and waits for the others.
    fn fill(&self, servers: &Servers) -> Result<()> {
        let Some(first) = self.servers().first() else {
            return Ok(());
        };
        for statements in &servers.sql {
            first
                .sql(statements)
                .context("the experiment's statements for the servers")?;
        }
        if servers.sql.is_empty() {
            return Ok(());
        }
        match &self.home {
            Home::Scenario(scenario) => scenario.wait_caught_up(),
            _ => Ok(()),
        }
    }

    /// Removes the servers' processor limits: fault trials measure no load, and a restart on a
    /// quarter of a core takes a minute.
    pub(crate) fn lift_shares(&self) -> Result<()> {
        let mut servers = self.servers().iter();
        servers.try_for_each(|server| server.cpu_share(100 * machine::cores()))
    }

    /// Applies each server's limits. Without the necessary rights, they run without limits, which
    /// is noted.
    fn limit(&mut self, wanted: &Servers) {
        let mut notes = Vec::new();
        for (number, server) in self.servers().iter().enumerate() {
            let limits = [
                wanted
                    .share(number)
                    .map(|percent| ("processor share", server.cpu_share(percent))),
                wanted
                    .memory_mb
                    .map(|limit| ("memory limit", server.memory_limit(limit))),
                wanted
                    .delay_us
                    .filter(|delay| *delay > 0 && server.has_link())
                    .map(|delay| {
                        let delayed = server.delay_packets(Duration::from_micros(delay));
                        ("network delay", delayed)
                    }),
            ];
            for (what, outcome) in limits.into_iter().flatten() {
                if let Err(error) = outcome {
                    let begins = format!("{what}: not set, the servers run without: ");
                    if !notes.iter().any(|note: &String| note.starts_with(&begins)) {
                        notes.push(format!("{begins}{error:#}"));
                    }
                }
            }
        }
        self.notes.extend(notes);
    }
}

/// Returns why servers of this kind cannot be started here; `None` if they can.
fn missing(servers: &Servers) -> Option<String> {
    match servers.kind {
        ServerKind::Web => servers.program.unwrap_or_default().missing(),
        ServerKind::Mysql | ServerKind::GroupReplication => {
            rootfs::missing().or_else(|| rootfs::missing_program("mysqld"))
        }
        _ => None,
    }
}

/// Creates a lab, with namespaces if a delay is requested and this machine allows it.
fn lab(servers: &Servers, notes: &mut Vec<String>) -> Result<Lab> {
    const NAME: &str = "bench";
    if servers.delay_us.is_none() {
        return Lab::new(NAME);
    }
    Lab::in_namespaces(NAME).or_else(|error| {
        notes.push(format!(
            "network namespaces: not made, the servers share the machine's network: {error:#}"
        ));
        Lab::new(NAME)
    })
}

fn start(servers: &Servers, rows: u32, notes: &mut Vec<String>) -> Result<Home> {
    let lab = lab(servers, notes)?;
    let sbtest_rows = Some(rows).filter(|rows| *rows > 0);
    let sbtest_tables = servers.tables;
    let replicas = servers.count - 1;
    let mut group: Option<GroupReplication> = None;
    let (kind, started) = match servers.kind {
        ServerKind::Mariadb => {
            let options = MariadbOptions {
                replicas,
                sbtest_rows,
                sbtest_tables,
                ..MariadbOptions::default()
            };
            (ClusterKind::Mariadb, lab.mariadb(options)?.servers())
        }
        ServerKind::Mysql => {
            let options = MysqlOptions {
                replicas,
                sbtest_rows,
                sbtest_tables,
            };
            (ClusterKind::Mysql, lab.mysql(options)?.servers())
        }
        ServerKind::Postgres => {
            let options = PostgresOptions {
                replicas,
                sbtest_rows,
                sbtest_tables,
                version: None,
                ..PostgresOptions::default()
            };
            (ClusterKind::Postgres, lab.postgres(options)?.servers())
        }
        ServerKind::Galera => {
            let options = GaleraOptions {
                nodes: servers.count,
                sbtest_rows,
                sbtest_tables,
            };
            (ClusterKind::Galera, lab.galera(options)?.nodes)
        }
        ServerKind::GroupReplication => {
            let options = GroupOptions {
                nodes: servers.count,
                sbtest_rows,
                sbtest_tables,
            };
            let members = group
                .insert(lab.group_replication(options)?)
                .members
                .clone();
            elect_in_order(&members)?;
            (ClusterKind::GroupReplication, members)
        }
        ServerKind::Web => {
            let started = lab.web_by(servers.program.unwrap_or_default(), servers.count)?;
            return Ok(Home::Web(lab, started));
        }
        ServerKind::External => bail!("external servers are not started"),
    };
    Ok(Home::Scenario(Box::new(Scenario::of(
        kind, lab, started, group,
    ))))
}

/// Sets election weights in list order: a balancer without group support takes the next server in
/// its list after a failure, and the group must elect the same one.
fn elect_in_order(members: &[Server]) -> Result<()> {
    for (weight, member) in (1..=90).rev().step_by(10).zip(members) {
        member.sql(&format!(
            "SET GLOBAL group_replication_member_weight={weight}"
        ))?;
    }
    Ok(())
}
