//! Runs servers of any kind of cluster with one writer, and changes of that writer.

mod election;
mod witness;

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};

use crate::server::Role;
use crate::{
    Driver, GaleraCluster, GaleraOptions, GroupOptions, GroupReplication, Lab, MariadbOptions,
    MysqlOptions, PostgresOptions, Server, eventually, rootfs,
};
use election::Election;
use witness::Witness;

/// Limit for a cluster to elect its writer.
const ELECTION_LIMIT: Duration = Duration::from_secs(60);

/// Time after which a stopping server is killed.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// Limit for replicas to catch up.
const CATCH_UP_LIMIT: Duration = Duration::from_secs(120);

/// Query for the number of PostgreSQL replicas that stream, on their primary.
const FOLLOWING: &str = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'";

/// Kind of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ClusterKind {
    /// MariaDB, asynchronous replication; promotion is a script's.
    Mariadb,
    /// MySQL, asynchronous replication; promotion is a script's.
    Mysql,
    /// PostgreSQL, streaming replication; promotion is a script's.
    Postgres,
    /// Galera: every node takes writes.
    Galera,
    /// MySQL Group Replication: the group elects.
    GroupReplication,
}

impl ClusterKind {
    /// All kinds of clusters.
    pub const ALL: [ClusterKind; 5] = [
        ClusterKind::Mariadb,
        ClusterKind::Mysql,
        ClusterKind::Postgres,
        ClusterKind::Galera,
        ClusterKind::GroupReplication,
    ];

    /// Returns the name in tables and on command lines.
    pub fn name(self) -> &'static str {
        match self {
            ClusterKind::Mariadb => "mariadb",
            ClusterKind::Mysql => "mysql",
            ClusterKind::Postgres => "postgres",
            ClusterKind::Galera => "galera",
            ClusterKind::GroupReplication => "group-replication",
        }
    }

    /// Returns the protocol of its clients.
    pub fn driver(self) -> Driver {
        match self {
            ClusterKind::Postgres => Driver::Pgsql,
            _ => Driver::Mysql,
        }
    }

    /// Returns why it cannot be started on this machine; `None` if it can.
    pub fn missing(self) -> Option<String> {
        match self {
            ClusterKind::Mysql | ClusterKind::GroupReplication => {
                rootfs::missing().or_else(|| rootfs::missing_program("mysqld"))
            }
            _ => None,
        }
    }

    fn probe(self) -> &'static str {
        match self {
            ClusterKind::Postgres => "postgres",
            _ => "mysql",
        }
    }
}

/// Kind of a change of writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Planned by the operator, who wants another writer or wants to stop this one.
    Planned,
    /// Death by `kill -9`.
    Killed,
    /// A stop by a service manager, without prior notice.
    Stopped,
    /// A freeze; the server resumes as a writer after [`Server::thaw`].
    Frozen,
}

/// A change of the writer, with its times.
#[derive(Clone, Debug)]
pub struct Change {
    /// Time of the request, or of the old writer's death.
    pub started: SystemTime,
    /// Time at which the new writer was chosen; `None` if unknown.
    pub decided_at: Option<SystemTime>,
    /// Time from which another server accepted writes.
    pub writable_at: SystemTime,
}

/// A cluster of three servers in its own lab.
pub struct Scenario {
    /// Kind of the cluster.
    pub kind: ClusterKind,
    /// Lab that owns the servers.
    pub lab: Lab,
    /// Servers in the order of a config; the first one initially accepts the writes.
    pub servers: Vec<Server>,
    group: Option<GroupReplication>,
}

impl Scenario {
    /// Starts three servers.
    pub fn start(kind: ClusterKind) -> Result<Scenario> {
        let lab = Lab::new(kind.name())?;
        let mut group = None;
        let replicas = 2;
        let servers = match kind {
            ClusterKind::Mariadb => {
                return Scenario::of_mariadb(lab, MariadbOptions::default().version);
            }
            ClusterKind::Mysql => {
                let options = MysqlOptions {
                    replicas,
                    ..Default::default()
                };
                lab.mysql(options)?.servers()
            }
            ClusterKind::Postgres => {
                let options = PostgresOptions {
                    replicas,
                    ..Default::default()
                };
                lab.postgres(options)?.servers()
            }
            ClusterKind::Galera => lab.galera(GaleraOptions::default())?.nodes,
            ClusterKind::GroupReplication => {
                let started = lab.group_replication(GroupOptions::default())?;
                group.insert(started).members.clone()
            }
        };
        Ok(Scenario {
            kind,
            lab,
            servers,
            group,
        })
    }

    /// Starts three servers of this version of MariaDB; see [`MariadbOptions`].
    pub fn of_mariadb(lab: Lab, version: Option<u32>) -> Result<Scenario> {
        let options = MariadbOptions {
            replicas: 2,
            version,
            ..Default::default()
        };
        let servers = lab.mariadb(options)?.servers();
        Ok(Scenario::of(ClusterKind::Mariadb, lab, servers, None))
    }

    /// Returns a scenario of servers that already run in this lab; `group` is that of Group
    /// Replication.
    pub fn of(
        kind: ClusterKind,
        lab: Lab,
        servers: Vec<Server>,
        group: Option<GroupReplication>,
    ) -> Scenario {
        Scenario {
            kind,
            lab,
            servers,
            group,
        }
    }

    /// Returns the config of two services with default settings: `writes` and `reads`.
    pub fn config(&self, writes: SocketAddr, reads: SocketAddr) -> String {
        let service = |name, listen, role| self.service(name, listen, role, "");
        service("writes", writes, "primary") + &service("reads", reads, "replica")
    }

    /// Returns the config of one service, with `further` lines of `[[service]]`.
    pub fn service(&self, name: &str, listen: SocketAddr, role: &str, further: &str) -> String {
        let wanted = ServiceSpec {
            name,
            listen,
            role,
            further,
        };
        wanted.toml(self.kind.probe(), &self.servers)
    }

    /// Returns the server with this name.
    pub fn named(&self, name: &str) -> Result<&Server> {
        let mut servers = self.servers.iter();
        let found = servers.find(|server| server.name == name);
        found.with_context(|| format!("no server {name:?}"))
    }

    /// Returns the server that listens on this port.
    pub fn at_port(&self, port: u16) -> Option<&Server> {
        let mut servers = self.servers.iter();
        servers.find(|server| server.address.port() == port)
    }

    /// Returns the current writer; for Galera, whose nodes all accept writes, the first that runs.
    pub fn writer(&self) -> Result<Server> {
        if let Some(group) = &self.group {
            return group.wait_primary(ELECTION_LIMIT);
        }
        let mut servers = self.servers.iter();
        let found = match self.kind {
            ClusterKind::Galera => servers.find(|one| one.is_running()).cloned(),
            _ => servers.next().and_then(|one| self.lab.primary_of(one)),
        };
        found.context("no server takes the writes")
    }

    /// Makes the first server the writer again, if it is not the only one that can be.
    pub fn hand_back(&self) -> Result<()> {
        let writer = self.writer()?;
        if self.kind == ClusterKind::Galera || writer.name == self.servers[0].name {
            return Ok(());
        }
        self.change(&writer, How::Planned).map(drop)
    }

    /// Moves the writes from this server to another. A Galera node is stopped, as for maintenance;
    /// in other clusters the old writer becomes a replica immediately.
    pub fn change(&self, old: &Server, how: How) -> Result<Change> {
        match (self.kind, how) {
            (ClusterKind::Galera | ClusterKind::GroupReplication, _) => self.elect(old, how),
            (_, How::Planned) => {
                let started = SystemTime::now();
                let change = self.lab.promote(self.other_than(old)?)?;
                Ok(Change {
                    started,
                    decided_at: Some(change.decided_at),
                    writable_at: change.writable_at,
                })
            }
            (_, How::Killed | How::Stopped | How::Frozen) => {
                let started = SystemTime::now();
                match how {
                    How::Stopped => old.stop_or_kill(STOP_LIMIT)?,
                    How::Frozen => old.freeze()?,
                    _ => old.kill()?,
                }
                let change = self.lab.fail_over(old)?;
                Ok(Change {
                    started,
                    decided_at: Some(change.decided_at),
                    writable_at: change.writable_at,
                })
            }
        }
    }

    /// Waits until every running server has all previous writes.
    pub fn wait_caught_up(&self) -> Result<()> {
        if let Some(group) = &self.group {
            return group.wait_caught_up();
        }
        if self.kind == ClusterKind::Galera {
            let nodes = self.servers.clone();
            return GaleraCluster { nodes }.wait_synced();
        }
        let writer = self.writer()?;
        let others = self
            .servers
            .iter()
            .filter(|one| one.role() == Role::Replica);
        for other in others.filter(|one| one.is_running()) {
            other.wait_for(&writer, CATCH_UP_LIMIT)?;
        }
        Ok(())
    }

    /// Waits until every server is part of the cluster and has all previous writes, so that any of
    /// them may fail.
    pub fn wait_whole(&self) -> Result<()> {
        let count = self.servers.len();
        match (self.kind, &self.group) {
            (ClusterKind::GroupReplication, Some(group)) => group.wait_size(count)?,
            (ClusterKind::Galera, _) => {
                let nodes = self.servers.clone();
                GaleraCluster { nodes }.wait_size(count)?;
            }
            (ClusterKind::Postgres, _) => self.wait_followed(count - 1)?,
            _ => {}
        }
        self.wait_caught_up()
    }

    fn wait_followed(&self, replicas: usize) -> Result<()> {
        let (primary, wanted) = (self.writer()?, replicas.to_string());
        eventually(CATCH_UP_LIMIT, "all replicas follow the primary", || {
            let count = primary.sql(FOLLOWING).unwrap_or_default();
            Ok((count == wanted).then_some(()))
        })
    }

    /// Makes the old writer follow the new one, however it ended.
    pub fn bring_back(&self, old: &Server) -> Result<()> {
        match self.kind {
            ClusterKind::Galera | ClusterKind::GroupReplication if old.is_running() => Ok(()),
            ClusterKind::Galera | ClusterKind::GroupReplication => old.start(),
            // A planned change has already made it a replica.
            _ if old.is_running() && old.role() == Role::Replica => Ok(()),
            _ => self.lab.rejoin(old),
        }
    }

    /// Waits for the cluster's own election, whose end is detected by writes to the others.
    fn elect(&self, old: &Server, how: How) -> Result<Change> {
        let others = self.servers.iter().filter(|one| one.name != old.name);
        let others: Vec<SocketAddr> = others.map(|one| one.address).collect();
        let election = match self.group {
            Some(_) => Some(Election::among(&others)?),
            None => None,
        };
        let witness = Witness::watch(old, others)?;
        let started = SystemTime::now();
        witness.begin();
        match (how, &self.group) {
            (How::Killed, _) => old.kill()?,
            (How::Stopped, _) => old.stop_or_kill(STOP_LIMIT)?,
            (How::Frozen, _) => old.freeze()?,
            (How::Planned, None) => old.stop()?,
            (How::Planned, Some(group)) => group.make_primary(self.other_than(old)?)?,
        }
        let writable_at = witness.first_write(ELECTION_LIMIT)?;
        let decided_at = election.and_then(|election| election.decided_at());
        Ok(Change {
            started,
            decided_at,
            writable_at,
        })
    }

    fn other_than(&self, old: &Server) -> Result<&Server> {
        let mut others = self.servers.iter();
        let found = others.find(|one| one.name != old.name && one.is_running());
        found.context("no other server runs")
    }
}

/// A service with a role and otherwise default settings.
#[derive(Clone, Copy, Debug)]
pub struct ServiceSpec<'a> {
    /// Name of the service.
    pub name: &'a str,
    /// Address on which it listens.
    pub listen: SocketAddr,
    /// Role: `primary` or `replica`.
    pub role: &'a str,
    /// Further lines of `[[service]]`.
    pub further: &'a str,
}

impl ServiceSpec<'_> {
    /// Returns the lines of the file for these servers, with this probe.
    pub fn toml(&self, probe: &str, servers: &[Server]) -> String {
        let ServiceSpec {
            name,
            listen,
            role,
            further,
        } = self;
        let servers: Vec<String> = servers
            .iter()
            .map(|one| {
                format!(
                    "  {{ name = {:?}, address = \"{}\" }},\n",
                    one.name, one.address
                )
            })
            .collect();
        format!(
            "[[service]]\nname = {name:?}\nlisten = \"{listen}\"\nrole = {role:?}\n\
             servers = [\n{}]\n{further}\n[service.health]\nprobe = {probe:?}\n\
             [service.monitor]\nuser = \"monitor\"\npassword = \"monitor\"\n",
            servers.concat()
        )
    }
}
