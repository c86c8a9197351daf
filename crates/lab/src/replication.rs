//! How one server follows another, and which servers are one cluster.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use crate::eventually;
use crate::server::{Role, Server, Standing};

/// What a kind of server can do that has one primary and replicas. A position is a number that
/// grows with what was written; it compares only servers of one cluster.
pub(crate) trait Replication {
    /// How much it has: written itself or received from its primary, applied or not.
    fn received(&self) -> Result<u64>;
    /// How much of that a client of this server can see.
    fn applied(&self) -> Result<u64>;
    /// Why a replica applies nothing more, in its own words; empty: it does not say.
    fn trouble(&self) -> String;
    /// Makes a primary refuse writes and cuts its writers. It need not run afterwards.
    fn retire(&self, own: &Server) -> Result<Retired>;
    /// Makes a replica take writes at once; the answer is when it did.
    fn promote(&self) -> Result<SystemTime>;
    /// Points a replica, or a retired primary, to this primary; starts it if it does not run.
    fn follow(&self, own: &Server, primary: &Server) -> Result<()>;
    /// Makes a replica of a server that may have written what its new primary does not have: what
    /// is too much is given up.
    fn rejoin(&self, own: &Server, primary: &Server) -> Result<()>;
    /// Has a replica apply everything this much later than it could.
    fn lag(&self, by: Duration) -> Result<()>;
    /// A replica goes on receiving, and applies nothing more.
    fn stop_applying(&self) -> Result<()>;
    /// Ends [`Replication::stop_applying`].
    fn start_applying(&self) -> Result<()>;
}

/// A primary that was asked to give up.
pub(crate) struct Retired {
    /// From then on it took no write.
    pub(crate) at: SystemTime,
    /// All it has ever written.
    pub(crate) position: u64,
}

/// The servers that hold the same data; they all have the same one of these.
#[derive(Default)]
pub(crate) struct Cluster {
    /// Whom the lab made primary last. Others may claim to be one too.
    pub(crate) primary: Mutex<Option<String>>,
}

impl Server {
    /// Lags this far behind its primary from now on (MariaDB: rounded up to whole seconds); zero
    /// ends that.
    pub fn lag(&self, by: Duration) -> Result<()> {
        self.replication()?.lag(by)
    }

    /// Has a replica apply nothing more, while it goes on receiving.
    pub fn stop_replication(&self) -> Result<()> {
        self.replication()?.stop_applying()
    }

    /// Has a replica apply again, after [`Server::stop_replication`].
    pub fn start_replication(&self) -> Result<()> {
        self.replication()?.start_applying()
    }

    /// Waits until it has applied all that `other` has.
    pub fn wait_for(&self, other: &Server, limit: Duration) -> Result<()> {
        let position = other.replication()?.received()?;
        let what = format!("{} at the position {position} of {}", self.name, other.name);
        let replication = self.replication()?;
        let reached = eventually(limit, &what, || {
            Ok((replication.applied()? >= position).then_some(()))
        });
        reached.with_context(|| replication.trouble())
    }

    pub(crate) fn replication(&self) -> Result<&dyn Replication> {
        let (name, role) = (&self.name, self.role());
        self.kind
            .replication()
            .with_context(|| format!("{name} ({role}) follows no other server"))
    }

    /// Whether an operator could talk to it: it runs, is not frozen and not cut off.
    pub(crate) fn is_reachable(&self) -> bool {
        self.is_running() && !self.is_frozen() && !self.is_cut_off()
    }

    pub(crate) fn cluster(&self) -> Result<Arc<Cluster>> {
        let cluster = self.standing().cluster.clone();
        cluster.with_context(|| format!("{} is in no cluster with one primary", self.name))
    }

    pub(crate) fn set_role(&self, role: Role) {
        self.standing().role = role;
    }

    pub(crate) fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().expect("no holder of the lock panics")
    }
}

/// Declares these servers one cluster; the first primary among them is its primary.
pub(crate) fn unite(servers: &[Server]) {
    let primary = servers
        .iter()
        .find(|server| server.role() == Role::Primary)
        .map(|server| server.name.clone());
    let cluster = Arc::new(Cluster {
        primary: Mutex::new(primary),
    });
    for server in servers {
        server.standing().cluster = Some(cluster.clone());
    }
}

/// Seconds since 1970 with a fraction, as servers print them.
pub(crate) fn parse_instant(seconds: &str) -> Result<SystemTime> {
    let Ok(seconds) = seconds.trim().parse::<f64>() else {
        bail!("not an instant: {seconds:?}")
    };
    Ok(UNIX_EPOCH + Duration::from_secs_f64(seconds))
}
