//! Represents one real server: its name and address, and operations on it.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::network::Link;
use crate::process::Process;
use crate::replication::{Cluster, Replication};
use crate::{cgroup, eventually, procfs};

const READY_LIMIT: Duration = Duration::from_secs(60);
const STOP_LIMIT: Duration = Duration::from_secs(60);
/// Limit for a freeze: a process that waits for a busy disk stops only after the I/O.
const FREEZE_LIMIT: Duration = Duration::from_secs(20);

/// Role of a server in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Accepts writes.
    Primary,
    /// Follows a primary, read only.
    Replica,
    /// Member of a cluster that determines its writers itself: all nodes of Galera, one of a group.
    Member,
    /// Has no connection with other servers.
    StandAlone,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Primary => "primary",
            Role::Replica => "replica",
            Role::Member => "member",
            Role::StandAlone => "alone",
        })
    }
}

/// Operations that differ between kinds of servers.
pub(crate) trait Kind: Send + Sync {
    /// Returns whether the server answers a query.
    fn answers(&self) -> bool;
    /// Runs statements as the superuser; columns separated by tabs, rows by newlines.
    fn sql(&self, statements: &str) -> Result<String>;
    /// Returns a command line that connects a person to it.
    fn connect_command(&self) -> String;
    /// Returns the configuration files that the lab has written; other settings are on the command
    /// line.
    fn config_files(&self) -> Vec<PathBuf> {
        Vec::new()
    }
    /// Returns further arguments of a start, which depend on the server's current role.
    fn start_arguments(&self, _server: &Server) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
    /// Completes the start of a server that answers, so that it becomes part of its cluster.
    fn after_start(&self) -> Result<()> {
        Ok(())
    }
    /// Returns the replication operations, if the kind has a primary and replicas.
    fn replication(&self) -> Option<&dyn Replication> {
        None
    }
}

/// Mutable state of the server, shared by all handles.
pub(crate) struct Membership {
    pub(crate) role: Role,
    pub(crate) cluster: Option<Arc<Cluster>>,
}

/// A handle to a running or stopped server; clones refer to the same one.
#[derive(Clone)]
pub struct Server {
    /// Name, unique in its lab, for example `mariadb-replica-1`.
    pub name: String,
    /// Address on which it listens; constant over restarts.
    pub address: SocketAddr,
    pub(crate) process: Arc<Process>,
    pub(crate) kind: Arc<dyn Kind>,
    pub(crate) work_dir: PathBuf,
    pub(crate) membership: Arc<Mutex<Membership>>,
    pub(crate) link: Option<Link>,
}

impl Server {
    /// Returns the configured role: a killed primary stays one until it is made a replica.
    pub fn role(&self) -> Role {
        self.membership
            .lock()
            .expect("no holder of the lock panics")
            .role
    }

    /// Kills it and all its processes, as `kill -9` does.
    pub fn kill(&self) -> Result<()> {
        self.process.kill()
    }

    /// Stops it cleanly.
    pub fn stop(&self) -> Result<()> {
        self.process.stop(STOP_LIMIT)
    }

    /// Stops it as a service manager does: cleanly, or with a kill after `limit`.
    pub fn stop_or_kill(&self, limit: Duration) -> Result<()> {
        self.process.stop(limit).or_else(|_| self.process.kill())
    }

    /// Restarts it on the same port with the same data, and waits until it answers.
    ///
    /// A node of Galera or of a group joins its cluster, or bootstraps it if no node runs.
    pub fn start(&self) -> Result<()> {
        if let Some(link) = &self.link {
            link.make()?;
        }
        self.process.start_with(self.kind.start_arguments(self)?)?;
        self.wait_ready()?;
        let name = &self.name;
        self.kind
            .after_start()
            .with_context(|| format!("{name} answers, but is not part of its cluster"))
    }

    /// Stops all its processes (SIGSTOP): it accepts connections and never answers.
    pub fn freeze(&self) -> Result<()> {
        let what = format!("freezing {}", self.name);
        eventually(FREEZE_LIMIT, &what, || {
            // Repeated each time: a process that is being forked is seen too late for the first
            // signal.
            self.process.signal(libc::SIGSTOP);
            // A process that has just ended would be reaped by its parent, which is frozen.
            let stands = |pid| procfs::is_stopped(pid) || !procfs::is_alive(pid);
            Ok(self.pids().into_iter().all(stands).then_some(()))
        })
    }

    /// Continues it after [`Server::freeze`].
    pub fn thaw(&self) -> Result<()> {
        self.process.signal(libc::SIGCONT);
        Ok(())
    }

    /// Returns whether it is frozen by [`Server::freeze`].
    pub fn is_frozen(&self) -> bool {
        self.pid().is_some_and(procfs::is_stopped)
    }

    /// Cuts its network link silently, as when a cable is pulled: established connections hang.
    /// Only in a lab created with [`Lab::in_namespaces`](crate::Lab::in_namespaces).
    pub fn cut_off(&self) -> Result<()> {
        self.link()?.cut_off()
    }

    /// Reverts [`Server::cut_off`].
    pub fn join_again(&self) -> Result<()> {
        self.link()?.join_again()
    }

    /// Returns whether [`Server::cut_off`] is in effect.
    pub fn is_cut_off(&self) -> bool {
        self.link.as_ref().is_some_and(Link::is_cut_off)
    }

    /// Returns whether it has its own network link.
    pub fn has_link(&self) -> bool {
        self.link.is_some()
    }

    /// Returns the end of its log.
    pub fn log_tail(&self) -> String {
        self.process.log_tail()
    }

    /// Returns its whole log.
    pub(crate) fn log(&self) -> String {
        self.process.log()
    }

    /// Delays each packet that it sends; zero ends the delay. Needs the kernel's netem.
    pub fn delay_packets(&self, delay: Duration) -> Result<()> {
        self.link()?.delay(delay)
    }

    /// Returns the process id of the server while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.process.pid()
    }

    /// Returns all its processes, the server itself first; empty if it does not run.
    pub fn pids(&self) -> Vec<u32> {
        self.process.pids()
    }

    /// Returns whether it runs; a frozen server does.
    pub fn is_running(&self) -> bool {
        self.process.is_running()
    }

    /// Runs statements as the superuser over the server's private Unix socket.
    pub fn sql(&self, statements: &str) -> Result<String> {
        self.kind
            .sql(statements)
            .with_context(|| format!("{}: {statements}", self.name))
    }

    /// Limits it to `percent` of one processor, also after a restart. Needs root.
    pub fn cpu_share(&self, percent: u32) -> Result<()> {
        let group = cgroup::create(&self.work_dir, &self.name, percent)?;
        self.process.join_group(group)
    }

    /// Limits its memory, also after a restart. Needs root.
    pub fn memory_limit(&self, limit_mb: u32) -> Result<()> {
        let group = cgroup::create_memory(&self.work_dir, &self.name, limit_mb)?;
        self.process.join_group(group)
    }

    /// Returns its configuration: the command line and the files that the lab has written, each
    /// with its name.
    pub(crate) fn configuration(&self) -> Vec<(String, String)> {
        let files = self.kind.config_files().into_iter().filter_map(|path| {
            let name = path.file_name()?.to_string_lossy().into_owned();
            Some((name, std::fs::read_to_string(&path).ok()?))
        });
        let command = ("command line".to_owned(), self.process.command_line());
        std::iter::once(command).chain(files).collect()
    }

    /// Returns a command line that connects a person to it.
    pub fn connect_command(&self) -> String {
        self.kind.connect_command()
    }

    fn link(&self) -> Result<&Link> {
        self.link.as_ref().with_context(|| {
            format!(
                "{} has no network link of its own: its lab was not made with Lab::in_namespaces",
                self.name
            )
        })
    }

    pub(crate) fn wait_ready(&self) -> Result<()> {
        let what = format!("an answer of {} on {}", self.name, self.address);
        eventually(READY_LIMIT, &what, || {
            if !self.is_running() {
                bail!(
                    "{} exited during startup; output:\n{}",
                    self.name,
                    self.process.log_tail()
                );
            }
            Ok(self.kind.answers().then_some(()))
        })
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {})", self.name, self.role(), self.address)
    }
}
