//! Changes the primary as an operator's script would: planned, or after its death.

use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};

use crate::server::{Role, Server};
use crate::{Lab, eventually};

/// Limit for a candidate to apply the old primary's writes.
const CATCH_UP_LIMIT: Duration = Duration::from_secs(60);
/// Limit for a candidate to receive writes that another replica already has.
const RECEIVE_LIMIT: Duration = Duration::from_secs(2);

/// A change of primary, with its times.
#[derive(Clone, Debug)]
pub struct Promotion {
    /// Name of the new primary.
    pub primary: String,
    /// Time from which the old primary accepted no write; `None` if it was unreachable.
    pub demoted_at: Option<SystemTime>,
    /// Time at which the new primary was chosen.
    pub decided_at: SystemTime,
    /// Time at which the new primary accepted writes.
    pub writable_at: SystemTime,
    /// Names of the new primary's replicas.
    pub followers: Vec<String>,
}

impl Lab {
    /// Returns the last primary that the lab chose in this server's cluster.
    pub fn primary_of(&self, server: &Server) -> Option<Server> {
        let cluster = server.cluster().ok()?;
        let name = cluster
            .primary
            .lock()
            .expect("no holder of the lock panics")
            .clone()?;
        self.server(&name)
    }

    /// Makes a replica the primary.
    ///
    /// A reachable old primary is demoted first: nothing is lost, and it becomes a replica. A dead,
    /// frozen or isolated one is left unchanged: after a restart it claims to be a primary, until
    /// [`Lab::rejoin`]. The other replicas follow the new primary.
    pub fn promote(&self, candidate: &Server) -> Result<Promotion> {
        candidate.cluster()?;
        let decided_at = SystemTime::now();
        let replication = candidate.replication()?;
        if !candidate.is_reachable() {
            bail!("{} cannot be promoted: it is unreachable", candidate.name);
        }
        let old = self.primary_of(candidate).filter(Server::is_reachable);
        if old.as_ref().is_some_and(|old| old.name == candidate.name) {
            bail!("{} is the primary already", candidate.name);
        }
        let demoted_at = match &old {
            Some(old) => Some(self.hand_over(old, candidate)?),
            None => {
                self.wait_for_all_others(candidate)?;
                None
            }
        };
        wait_applied(candidate, replication.received()?)?;
        let writable_at = replication.promote()?;
        self.appoint(candidate)?;
        let followers = self.repoint(candidate, old.as_ref())?;
        Ok(Promotion {
            primary: candidate.name.clone(),
            demoted_at,
            decided_at,
            writable_at,
            followers,
        })
    }

    /// Promotes the reachable replica of this server's cluster that has received most.
    pub fn fail_over(&self, member: &Server) -> Result<Promotion> {
        let mut best: Option<(u64, Server)> = None;
        for replica in self.reachable_replicas(member)? {
            let received = replica.replication()?.received()?;
            if best.as_ref().is_none_or(|(most, _)| received > *most) {
                best = Some((received, replica));
            }
        }
        let (_, candidate) = best.with_context(|| {
            format!("no replica in the cluster of {} is reachable", member.name)
        })?;
        self.promote(&candidate)
    }

    /// Makes the primary refuse writes and disconnects its writers; the cluster has no primary
    /// until [`Lab::promote`]. Returns the time from which it accepted no write.
    pub fn demote(&self, primary: &Server) -> Result<SystemTime> {
        let replication = primary.replication()?;
        if primary.role() != Role::Primary || !primary.is_reachable() {
            bail!("{} is not a reachable primary", primary.name);
        }
        let retired = replication.retire(primary)?;
        primary.set_role(Role::Replica);
        let cluster = primary.cluster()?;
        let mut current = cluster
            .primary
            .lock()
            .expect("no holder of the lock panics");
        if current.as_ref() == Some(&primary.name) {
            *current = None;
        }
        drop(current);
        if !primary.is_running() {
            primary.start()?;
        }
        Ok(retired.at)
    }

    /// Makes a server a replica of its cluster's primary, whatever its previous role and end;
    /// transactions that only it has are discarded. The server runs afterwards.
    pub fn rejoin(&self, server: &Server) -> Result<()> {
        let replication = server.replication()?;
        let primary = self.primary_of(server);
        let primary = primary.filter(|primary| primary.name != server.name);
        let primary = primary
            .with_context(|| format!("{} has no primary to follow: promote one", server.name))?;
        server.set_role(Role::Replica);
        replication.rejoin(server, &primary)
    }

    /// Demotes the old primary and returns the time.
    fn hand_over(&self, old: &Server, candidate: &Server) -> Result<SystemTime> {
        let retired = old.replication()?.retire(old)?;
        old.set_role(Role::Replica);
        wait_applied(candidate, retired.position)?;
        Ok(retired.at)
    }

    /// Waits until the candidate has all that can still arrive: from a dead primary nothing more,
    /// from a demoted one possibly something.
    fn wait_for_all_others(&self, candidate: &Server) -> Result<()> {
        let replication = candidate.replication()?;
        for other in self.reachable_replicas(candidate)? {
            let most = other.replication()?.received()?;
            let what = format!("all that {} has on {}", other.name, candidate.name);
            eventually(RECEIVE_LIMIT, &what, || {
                Ok((replication.received()? >= most).then_some(()))
            })
            .with_context(|| format!("{} has more transactions: promote that one", other.name))?;
        }
        Ok(())
    }

    fn appoint(&self, primary: &Server) -> Result<()> {
        primary.set_role(Role::Primary);
        let cluster = primary.cluster()?;
        let mut current = cluster
            .primary
            .lock()
            .expect("no holder of the lock panics");
        *current = Some(primary.name.clone());
        Ok(())
    }

    /// Makes all reachable replicas, and the demoted primary, follow the new one.
    fn repoint(&self, primary: &Server, retired: Option<&Server>) -> Result<Vec<String>> {
        let mut servers = self.reachable_replicas(primary)?;
        servers.extend(retired.filter(|retired| !retired.is_running()).cloned());
        for server in &servers {
            server.replication()?.follow(server, primary)?;
        }
        Ok(servers.into_iter().map(|server| server.name).collect())
    }

    fn reachable_replicas(&self, member: &Server) -> Result<Vec<Server>> {
        let mut replicas = self.members(member)?;
        replicas.retain(|server| server.role() == Role::Replica && server.is_reachable());
        Ok(replicas)
    }

    fn members(&self, member: &Server) -> Result<Vec<Server>> {
        let cluster = member.cluster()?;
        let is_member = |server: &Server| {
            server
                .cluster()
                .is_ok_and(|own| std::sync::Arc::ptr_eq(&own, &cluster))
        };
        Ok(self.servers().into_iter().filter(is_member).collect())
    }
}

fn wait_applied(candidate: &Server, position: u64) -> Result<()> {
    let replication = candidate.replication()?;
    let what = format!("{} at position {position}", candidate.name);
    let reached = eventually(CATCH_UP_LIMIT, &what, || {
        Ok((replication.applied()? >= position).then_some(()))
    });
    reached.with_context(|| replication.replication_error())
}
