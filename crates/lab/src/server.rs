//! One real server: its name and address, and what can be done to it.

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
/// One that waits for a busy disk stands still only when it has been served.
const FREEZE_LIMIT: Duration = Duration::from_secs(20);

/// What a server is in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Takes writes.
    Primary,
    /// Follows a primary, read only.
    Replica,
    /// Of a cluster that settles by itself who takes writes: all of Galera's, one of a group.
    Member,
    /// Knows no other server.
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

/// What differs between kinds of servers.
pub(crate) trait Kind: Send + Sync {
    /// Whether it answers a query.
    fn answers(&self) -> bool;
    /// Runs statements as the superuser; columns separated by tabs, rows by newlines.
    fn sql(&self, statements: &str) -> Result<String>;
    /// A command line with which a person can talk to it.
    fn how_to_connect(&self) -> String;
    /// Files that the lab has written to configure it; what is not there is on the command line.
    fn config_files(&self) -> Vec<PathBuf> {
        Vec::new()
    }
    /// Further arguments of a start, which depend on what the server is by then.
    fn arguments_now(&self, _own: &Server) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
    /// What a server that answers still needs to be one of its cluster.
    fn after_start(&self) -> Result<()> {
        Ok(())
    }
    /// How it follows another server, if its kind has a primary and replicas.
    fn replication(&self) -> Option<&dyn Replication> {
        None
    }
}

/// What changes while the server lives; shared by all handles.
pub(crate) struct Standing {
    pub(crate) role: Role,
    pub(crate) cluster: Option<Arc<Cluster>>,
}

/// A handle to a running or stopped server; copies speak of the same one.
#[derive(Clone)]
pub struct Server {
    /// Unique in its lab, for example `mariadb-replica-1`.
    pub name: String,
    /// Where it listens; stays the same over restarts.
    pub address: SocketAddr,
    pub(crate) process: Arc<Process>,
    pub(crate) kind: Arc<dyn Kind>,
    pub(crate) room: PathBuf,
    pub(crate) standing: Arc<Mutex<Standing>>,
    pub(crate) link: Option<Link>,
}

impl Server {
    /// As what it is configured: a killed primary stays one until it is made a replica.
    pub fn role(&self) -> Role {
        self.standing
            .lock()
            .expect("no holder of the lock panics")
            .role
    }

    /// Kills it and all its processes, as `kill -9` does.
    pub fn kill(&self) -> Result<()> {
        self.process.kill()
    }

    /// Ends it cleanly.
    pub fn stop(&self) -> Result<()> {
        self.process.stop(STOP_LIMIT)
    }

    /// Ends it as a service manager does: asked first, and killed when it has not ended by then.
    pub fn stop_or_kill(&self, limit: Duration) -> Result<()> {
        self.process.stop(limit).or_else(|_| self.process.kill())
    }

    /// Starts it again on the same port with the same data, and waits until it answers.
    ///
    /// A node of Galera or of a group joins its cluster, or founds it anew when no node runs.
    pub fn start(&self) -> Result<()> {
        if let Some(link) = &self.link {
            link.make()?;
        }
        self.process.start_with(self.kind.arguments_now(self)?)?;
        self.wait_ready()?;
        let name = &self.name;
        self.kind
            .after_start()
            .with_context(|| format!("{name} answers, but is not part of its cluster"))
    }

    /// Stops all its processes where they stand (SIGSTOP): it accepts and never answers.
    pub fn freeze(&self) -> Result<()> {
        let what = format!("freezing {}", self.name);
        eventually(FREEZE_LIMIT, &what, || {
            // Again each time: one that is being forked meanwhile is seen too late for the first.
            self.process.signal(libc::SIGSTOP);
            // One that has just ended is collected by its parent, and that is frozen.
            let stands = |pid| procfs::is_stopped(pid) || !procfs::is_alive(pid);
            Ok(self.pids().into_iter().all(stands).then_some(()))
        })
    }

    /// Lets it go on after [`Server::freeze`].
    pub fn thaw(&self) -> Result<()> {
        self.process.signal(libc::SIGCONT);
        Ok(())
    }

    /// Whether [`Server::freeze`] holds it.
    pub fn is_frozen(&self) -> bool {
        self.pid().is_some_and(procfs::is_stopped)
    }

    /// Cuts its network link, silently, as when a cable is pulled: established connections hang.
    /// Only in a lab of [`Lab::in_namespaces`](crate::Lab::in_namespaces).
    pub fn cut_off(&self) -> Result<()> {
        self.link()?.cut_off()
    }

    /// Mends what [`Server::cut_off`] did.
    pub fn join_again(&self) -> Result<()> {
        self.link()?.join_again()
    }

    /// Whether [`Server::cut_off`] holds.
    pub fn is_cut_off(&self) -> bool {
        self.link.as_ref().is_some_and(Link::is_cut_off)
    }

    /// Whether it has a network link of its own.
    pub fn has_link(&self) -> bool {
        self.link.is_some()
    }

    /// The last that it said.
    pub fn log_tail(&self) -> String {
        self.process.log_tail()
    }

    /// All that it said.
    pub(crate) fn log(&self) -> String {
        self.process.log()
    }

    /// Delays each packet that it sends; zero ends that. Needs the kernel's netem.
    pub fn delay_packets(&self, delay: Duration) -> Result<()> {
        self.link()?.delay(delay)
    }

    /// Process id of the server, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.process.pid()
    }

    /// All its processes, the server itself first; empty when it does not run.
    pub fn pids(&self) -> Vec<u32> {
        self.process.pids()
    }

    /// Whether it runs (a frozen one does).
    pub fn is_running(&self) -> bool {
        self.process.is_running()
    }

    /// Runs statements as the superuser over the server's private Unix socket.
    pub fn sql(&self, statements: &str) -> Result<String> {
        self.kind
            .sql(statements)
            .with_context(|| format!("{}: {statements}", self.name))
    }

    /// Gives it this many percent of one processor at most, also after a restart. Needs root.
    pub fn cpu_share(&self, percent: u32) -> Result<()> {
        let group = cgroup::create(&self.room, &self.name, percent)?;
        self.process.join_group(group)
    }

    /// Gives it this much memory at most, also after a restart. Needs root.
    pub fn memory_limit(&self, limit_mb: u32) -> Result<()> {
        let group = cgroup::create_memory(&self.room, &self.name, limit_mb)?;
        self.process.join_group(group)
    }

    /// How it is configured: its command line and the files that the lab has written, each with its
    /// name.
    pub(crate) fn configuration(&self) -> Vec<(String, String)> {
        let files = self.kind.config_files().into_iter().filter_map(|path| {
            let name = path.file_name()?.to_string_lossy().into_owned();
            Some((name, std::fs::read_to_string(&path).ok()?))
        });
        let command = ("command line".to_owned(), self.process.command_line());
        std::iter::once(command).chain(files).collect()
    }

    /// A command line with which a person can talk to it.
    pub fn how_to_connect(&self) -> String {
        self.kind.how_to_connect()
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
