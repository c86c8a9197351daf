//! Defines replication between servers, and clusters of servers.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use crate::eventually;
use crate::server::{Membership, Role, Server};

/// Operations of servers with one primary and replicas. A position is a number that grows with each
/// write; it is comparable only within one cluster.
pub(crate) trait Replication {
    /// Returns the position received: written by the server itself or received from its primary,
    /// applied or not.
    fn received(&self) -> Result<u64>;
    /// Returns the position that a client of this server can see.
    fn applied(&self) -> Result<u64>;
    /// Returns why a replica has stopped applying, as the server reports it; empty if it does not
    /// report it.
    fn replication_error(&self) -> String;
    /// Makes a primary refuse writes and disconnects its writers. It may be stopped afterwards.
    fn retire(&self, server: &Server) -> Result<Retired>;
    /// Makes a replica accept writes immediately; returns the time.
    fn promote(&self) -> Result<SystemTime>;
    /// Points a replica, or a demoted primary, to this primary; starts it if necessary.
    fn follow(&self, server: &Server, primary: &Server) -> Result<()>;
    /// Makes a replica of a server that may have transactions which its new primary lacks; these
    /// are discarded.
    fn rejoin(&self, server: &Server, primary: &Server) -> Result<()>;
    /// Delays the replica's applying by this time.
    fn lag(&self, by: Duration) -> Result<()>;
    /// Stops applying on a replica, which continues to receive.
    fn stop_applying(&self) -> Result<()>;
    /// Reverts [`Replication::stop_applying`].
    fn start_applying(&self) -> Result<()>;
}

/// A primary that was demoted.
pub(crate) struct Retired {
    /// Time from which it accepted no write.
    pub(crate) at: SystemTime,
    /// Position of its last write.
    pub(crate) position: u64,
}

/// Servers that hold the same data, and share one value of this type.
#[derive(Default)]
pub(crate) struct Cluster {
    /// Last primary that the lab chose. Others may claim to be one too.
    pub(crate) primary: Mutex<Option<String>>,
}

impl Server {
    /// Delays its replication by this time (MariaDB: rounded up to whole seconds); zero ends the
    /// delay.
    pub fn lag(&self, by: Duration) -> Result<()> {
        self.replication()?.lag(by)
    }

    /// Stops applying on a replica, which continues to receive.
    pub fn stop_replication(&self) -> Result<()> {
        self.replication()?.stop_applying()
    }

    /// Resumes applying on a replica, after [`Server::stop_replication`].
    pub fn start_replication(&self) -> Result<()> {
        self.replication()?.start_applying()
    }

    /// Waits until this server has applied everything that `other` has.
    pub fn wait_for(&self, other: &Server, limit: Duration) -> Result<()> {
        let position = other.replication()?.received()?;
        let what = format!("{} at the position {position} of {}", self.name, other.name);
        let replication = self.replication()?;
        let reached = eventually(limit, &what, || {
            Ok((replication.applied()? >= position).then_some(()))
        });
        reached.with_context(|| replication.replication_error())
    }

    pub(crate) fn replication(&self) -> Result<&dyn Replication> {
        let (name, role) = (&self.name, self.role());
        self.kind
            .replication()
            .with_context(|| format!("{name} ({role}) follows no other server"))
    }

    /// Returns whether an operator could reach the server: it runs, is not frozen and not isolated.
    pub(crate) fn is_reachable(&self) -> bool {
        self.is_running() && !self.is_frozen() && !self.is_cut_off()
    }

    pub(crate) fn cluster(&self) -> Result<Arc<Cluster>> {
        let cluster = self.membership().cluster.clone();
        cluster.with_context(|| format!("{} is in no cluster with one primary", self.name))
    }

    pub(crate) fn set_role(&self, role: Role) {
        self.membership().role = role;
    }

    pub(crate) fn membership(&self) -> MutexGuard<'_, Membership> {
        self.membership
            .lock()
            .expect("no holder of the lock panics")
    }
}

/// Makes these servers one cluster; the first primary among them is its primary.
pub(crate) fn form_cluster(servers: &[Server]) {
    let primary = servers
        .iter()
        .find(|server| server.role() == Role::Primary)
        .map(|server| server.name.clone());
    let cluster = Arc::new(Cluster {
        primary: Mutex::new(primary),
    });
    for server in servers {
        server.membership().cluster = Some(cluster.clone());
    }
}

/// Parses seconds since 1970 with a fraction, as servers print them.
pub(crate) fn parse_instant(seconds: &str) -> Result<SystemTime> {
    let Ok(seconds) = seconds.trim().parse::<f64>() else {
        bail!("not an instant: {seconds:?}")
    };
    Ok(UNIX_EPOCH + Duration::from_secs_f64(seconds))
}
