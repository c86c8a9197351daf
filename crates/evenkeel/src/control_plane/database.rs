//! Runs the tasks that query the servers of database services, and notifies them of roles.

mod auth_lookup;
mod catalogs;
pub(super) mod digests;
mod membership;
mod positions;
pub(super) mod report;
mod routines;
pub(super) mod snapshot;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_policy::causality::{Lsn, Position};
use evenkeel_policy::cluster::report::{Group, Replication, ReplicationState};
use evenkeel_policy::cluster::{Role, RoleReport};
use evenkeel_policy::health::HealthState;
use evenkeel_proxy::monitor::{
    Database, MysqlAuthQuery, PositionQuery, PostgresAuthQuery, RoutineReader,
};
use evenkeel_proxy::probe::{MonitorAccount, ProbeSetupError, Tls};
use evenkeel_proxy::record::CutReason;
use evenkeel_proxy::server_info::ServerInfo;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::ControlPlane;
use super::probing;
use super::server::{ManagedServer, MonitorConfig};
use crate::config::Address;
use crate::config::plan::{
    AccountPlan, Consistency, DatabasePlan, Monitor, PoolMode, Protocol, ServerTls, ServicePlan,
};
use membership::{EpochCounter, Membership, MonitoredServer};
use positions::{MonitoredPosition, PositionFollower};

/// Monitor tasks of one service and their last inputs. Dropping this ends the tasks.
pub(super) struct MonitorTasks {
    knowledge: Arc<ServerInfo>,
    sources: MonitorSources,
    roster: watch::Sender<Membership>,
    era: EpochCounter,
    tasks: Vec<JoinHandle<()>>,
}

/// Configuration of the tasks. A change restarts them.
#[derive(Debug, Clone, PartialEq)]
struct MonitorSources {
    protocol: Protocol,
    servers: Vec<(Address, u64)>,
    monitor: Option<Monitor>,
    auth: Option<AccountPlan>,
    query: Option<String>,
    server_tls: ServerTls,
    /// Longest time that a login waits for a server that can be queried.
    wait: Duration,
}

impl Drop for MonitorTasks {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl MonitorSources {
    fn of(
        plan: &ServicePlan,
        servers: &BTreeMap<Address, ManagedServer>,
    ) -> Option<MonitorSources> {
        let database = plan.database.as_ref()?;
        let auth = &database.auth;
        let listed = plan.servers.iter().filter_map(|one| {
            let state = servers.get(&one.address)?;
            Some((one.address.clone(), state.server.id))
        });
        Some(MonitorSources {
            protocol: plan.protocol,
            servers: listed.collect(),
            monitor: plan.monitor.clone(),
            auth: auth.account.clone(),
            query: auth.query.clone(),
            server_tls: plan.server_tls.clone(),
            wait: Duration::from_millis(database.failover.wait_ms),
        })
    }

    fn database(&self) -> Database {
        match self.protocol {
            Protocol::Mysql => Database::Mysql,
            Protocol::Postgres | Protocol::Tcp => Database::Postgres,
        }
    }

    fn reader(&self) -> Option<MonitorAccount> {
        let monitor = self.monitor.as_ref().map(|monitor| MonitorAccount {
            user: monitor.user.clone(),
            password: monitor.password.expose().to_owned(),
            database: monitor.database.clone(),
        });
        monitor.or_else(|| self.authenticator())
    }

    fn authenticator(&self) -> Option<MonitorAccount> {
        self.auth.as_ref().map(|account| MonitorAccount {
            user: account.user.clone(),
            password: account.password.expose().to_owned(),
            database: account.database.clone(),
        })
    }
}

fn shares_connections(plan: &DatabasePlan) -> bool {
    plan.pool.mode == PoolMode::Transaction
}

impl MonitorTasks {
    /// Starts the tasks. `before` holds the previous tasks of the same service.
    fn start(
        before: Option<MonitorTasks>,
        knowledge: Arc<ServerInfo>,
        (plan, sources, servers): (&ServicePlan, MonitorSources, Vec<MonitoredServer>),
        reports: &mpsc::Sender<probing::MonitorEvent>,
    ) -> Result<MonitorTasks, String> {
        let era = before.map(|mut before| std::mem::take(&mut before.era));
        let mut learning = MonitorTasks {
            knowledge,
            sources,
            roster: watch::Sender::default(),
            era: era.unwrap_or_default(),
            tasks: Vec::new(),
        };
        learning.start_doubts(reports.clone());
        if let Some(account) = learning.sources.reader() {
            learning.start_positions(&account, &servers)?;
            match plan.protocol {
                Protocol::Mysql => learning.start_routines(&account, plan, &servers)?,
                _ => learning.start_catalogs(account, plan, &servers),
            }
        } else if plan.database.as_deref().is_some_and(shares_connections) {
            learning.tell_unread(&plan.name);
        }
        learning.start_logins(servers)?;
        Ok(learning)
    }

    /// Reports that clients are served although the effects of their functions are unknown.
    fn tell_unread(&self, service: &str) {
        let problem = "no monitor account is configured: session state left by functions, triggers \
                       and views is not detected and may leak to other clients; set user in \
                       [service.monitor] or [service.auth]";
        self.knowledge.set_problems(vec![problem.to_owned()]);
        tracing::warn!(service, "{problem}");
    }

    fn start_doubts(&mut self, reports: mpsc::Sender<probing::MonitorEvent>) {
        let knowledge = Arc::clone(&self.knowledge);
        self.run(async move {
            loop {
                let doubts = knowledge.next_role_checks().await;
                let report = probing::MonitorEvent::Doubted(doubts);
                if reports.send(report).await.is_err() {
                    return;
                }
            }
        });
    }

    fn start_positions(
        &mut self,
        account: &MonitorAccount,
        servers: &[MonitoredServer],
    ) -> Result<(), String> {
        let samples = watch::Sender::new(0);
        let database = self.sources.database();
        for listed in servers {
            let asker = PositionQuery::new(database, account.clone(), &listed.tls);
            let follower = PositionFollower {
                server_id: listed.id(),
                tells: MonitoredPosition {
                    listed: listed.clone(),
                    asker: asker.map_err(|error| error.to_string())?,
                },
                knowledge: Arc::clone(&self.knowledge),
                roster: self.roster.subscribe(),
                samples: samples.clone(),
            };
            self.run(follower.go_on());
        }
        Ok(())
    }

    fn start_catalogs(
        &mut self,
        account: MonitorAccount,
        plan: &ServicePlan,
        servers: &[MonitoredServer],
    ) {
        let reader = catalogs::CatalogTask {
            service: plan.name.clone(),
            servers: servers.to_vec(),
            account,
            knowledge: Arc::clone(&self.knowledge),
            roster: self.roster.subscribe(),
        };
        self.knowledge.databases().expect();
        self.run(reader.go_on());
    }

    fn start_routines(
        &mut self,
        account: &MonitorAccount,
        plan: &ServicePlan,
        servers: &[MonitoredServer],
    ) -> Result<(), String> {
        let mut askers = Vec::new();
        for listed in servers {
            let asker = RoutineReader::new(account.clone(), &listed.tls);
            let asker = asker.map_err(|error| error.to_string())?;
            askers.push((listed.clone(), asker));
        }
        self.knowledge.expect_routines();
        let reader = routines::RoutineTask {
            service: plan.name.clone(),
            askers,
            knowledge: Arc::clone(&self.knowledge),
            roster: self.roster.subscribe(),
            matters: plan.database.as_ref().is_some_and(|one| one.split.reads),
            problems: Vec::new(),
        };
        self.run(reader.go_on());
        Ok(())
    }

    fn start_logins(&mut self, servers: Vec<MonitoredServer>) -> Result<(), String> {
        let query = self.sources.query.clone();
        match self.sources.protocol {
            Protocol::Mysql => self.start_askers(servers, MysqlAuthQuery::new),
            Protocol::Postgres | Protocol::Tcp => self.start_askers(servers, |account, tls| {
                PostgresAuthQuery::new(account, tls, query.as_deref())
            }),
        }
    }

    fn start_askers<A: auth_lookup::AuthBackend>(
        &mut self,
        servers: Vec<MonitoredServer>,
        make: impl Fn(MonitorAccount, &Tls) -> Result<A, ProbeSetupError>,
    ) -> Result<(), String> {
        let mut askers = Vec::new();
        // Without an account no server is queried: every lookup fails with that reason.
        if let Some(account) = self.sources.authenticator() {
            for listed in servers {
                let asker = make(account.clone(), &listed.tls);
                askers.push((listed, asker.map_err(|error| error.to_string())?));
            }
        }
        let knows = auth_lookup::Servers {
            askers,
            roster: self.roster.subscribe(),
            wait: self.sources.wait,
        };
        self.run(auth_lookup::answer(
            Arc::clone(&self.knowledge),
            Arc::new(knows),
        ));
        Ok(())
    }

    fn run(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.push(tokio::spawn(task));
    }

    /// Processes a server's state. A replica's state includes its position.
    fn hear(&mut self, server_id: u64, said: &ReplicationState, asked_ms: u64) {
        if let ReplicationState::Postgres(said) = said {
            self.era.heard(server_id, said.timeline);
        }
        let track = self.knowledge.track();
        track.set_causal(
            server_id,
            matches!(said, ReplicationState::Galera(said) if said.causal),
        );
        let tracks = self.roster.borrow().tracks;
        if let Some(position) = applied(said).filter(|_| tracks) {
            let asked_us = asked_ms.saturating_mul(1_000);
            track.applied(server_id, position, asked_us, None);
        }
    }

    /// Publishes the current roles, and notifies the tasks of relevant changes.
    fn publish_roles(&mut self, seen: ServerRoles) {
        let track = self.knowledge.track();
        track.list(&seen.replicas);
        let begins = self.era.begins_with(seen.primary);
        if begins || track.positions().primary != seen.primary {
            track.set_primary(seen.primary, begins);
        }
        let roster = Membership {
            epoch: track.positions().epoch,
            primary: seen.primary,
            replicas: seen.replicas.iter().map(|(id, _)| *id).collect(),
            up: seen.up,
            tracks: seen.tracks,
        };
        self.roster.send_if_modified(|told| {
            let is_news = *told != roster;
            *told = roster;
            is_news
        });
    }
}

/// Roles of a service's servers as the control plane sees them.
#[derive(Default)]
struct ServerRoles {
    primary: Option<u64>,
    /// Live replicas with their lag.
    replicas: Vec<(u64, Option<u64>)>,
    /// Live servers that the cluster has not rejected.
    up: Vec<u64>,
    tracks: bool,
}

impl ServerRoles {
    fn add(&mut self, id: u64, role: &Role) {
        match role {
            Role::Primary => self.primary = Some(id),
            Role::Replica(lag) => self.replicas.push((id, lag.ms)),
            // The server's data is outdated or belongs to another cluster.
            Role::Unfit(_) => return,
            Role::Unknown | Role::Spare(_) => {}
        }
        self.up.push(id);
    }
}

impl ControlPlane {
    /// Starts, changes and ends monitor tasks after a change of the configuration.
    pub(super) fn update_monitor_tasks(&mut self) {
        for index in 0..self.services.len() {
            let service = &self.services[index];
            let sources = MonitorSources::of(&service.plan, &self.servers);
            let knowledge = service.knowledge.clone();
            let Some((sources, knowledge)) = sources.zip(knowledge) else {
                self.services[index].learning = None;
                continue;
            };
            let known = service.learning.as_ref();
            if known.is_none_or(|known| known.sources != sources) {
                self.start_learning(index, sources, knowledge);
            }
        }
        self.brief();
    }

    fn start_learning(
        &mut self,
        index: usize,
        sources: MonitorSources,
        knowledge: Arc<ServerInfo>,
    ) {
        let service = &mut self.services[index];
        let before = service.learning.take();
        let servers = listed(&service.plan, &self.servers);
        let of = servers.map(|servers| (&service.plan, sources, servers));
        let reports = &self.reports.0;
        match of.and_then(|of| MonitorTasks::start(before, knowledge, of, reports)) {
            Ok(learning) => service.learning = Some(learning),
            Err(why) => tracing::error!(
                service = service.plan.name,
                "cannot query the servers of this service; users cannot be verified and logins \
                 will fail: {why}"
            ),
        }
    }

    /// Records a server's role report. Call before the cluster decides on it.
    pub(super) fn learn_from(&mut self, address: &Address, report: &RoleReport) {
        let Some(server_id) = self.servers.get(address).map(|state| state.server.id) else {
            return;
        };
        let concerned = self.services.iter_mut().filter(|one| one.lists(address));
        for learning in concerned.filter_map(|one| one.learning.as_mut()) {
            learning.hear(server_id, &report.said, report.asked_ms);
        }
    }

    /// Notifies all monitor tasks of the current roles.
    pub(super) fn brief(&mut self) {
        for index in 0..self.services.len() {
            if self.services[index].learning.is_none() {
                continue;
            }
            let seen = self.seen(index);
            let primary = seen.primary;
            if let Some(learning) = &mut self.services[index].learning {
                learning.publish_roles(seen);
            }
            self.publish_cast(index, primary);
        }
    }

    fn seen(&self, index: usize) -> ServerRoles {
        let plan = &self.services[index].plan;
        let mut seen = ServerRoles {
            tracks: tracks(plan),
            ..ServerRoles::default()
        };
        for one in &plan.servers {
            let state = self.servers.get(&one.address);
            let up = state.filter(|state| state.health.state() != HealthState::Down);
            let Some(state) = up else { continue };
            let id = state.server.id;
            let cluster = self.cluster_of(&one.address);
            seen.add(
                id,
                cluster.map_or(&Role::Unknown, |cluster| cluster.duty(id)),
            );
        }
        seen
    }

    /// Publishes changed server roles, and resumes sessions that wait for a primary.
    fn publish_cast(&mut self, index: usize, primary: Option<u64>) {
        if self.cast_has_changed(index) {
            self.publish(index);
        }
        let before = self.services[index].primary;
        if !before.is_some_and(|former| self.is_leaving(former)) {
            self.services[index].primary = primary;
            self.cut_at_former(index, before.filter(|_| before != primary));
        }
        snapshot::tell_turn(&self.services[index].service);
    }

    fn cut_at_former(&self, index: usize, former: Option<u64>) {
        if former.is_some() {
            let service_id = self.services[index].service.id;
            self.engine
                .cut(Some(service_id), former, CutReason::PrimaryChanged);
        }
    }

    /// Queries the roles of servers that sessions doubt.
    pub(super) fn ask_doubted(&self, doubts: &std::collections::BTreeSet<u64>) {
        let doubted = |state: &&ManagedServer| doubts.contains(&state.server.id);
        let watchings = self.servers.values().filter(doubted);
        for watching in watchings.filter_map(|state| state.watching.as_ref()) {
            watching.doubt();
        }
    }
}

/// Returns whether replicas serve only reads for which they have the session's writes.
pub(super) fn tracks(plan: &ServicePlan) -> bool {
    plan.database.as_ref().is_some_and(|database| {
        let split = &database.split;
        split.reads && split.consistency != Consistency::Eventual
    })
}

/// Returns the position that reads on a server see, from its role report. A Galera node reports it
/// to position queries only.
fn applied(said: &ReplicationState) -> Option<Position> {
    match said {
        ReplicationState::Postgres(said) => said.in_recovery.then_some(Position::Lsn(Lsn {
            timeline: said.timeline,
            at: said.lsn,
        })),
        ReplicationState::Replication(Replication { visible, .. })
        | ReplicationState::Group(Group { visible, .. }) => {
            // A server that keeps no GTIDs reports no position.
            (!visible.is_empty()).then(|| Position::Gtids(visible.clone()))
        }
        ReplicationState::Galera(_) => None,
    }
}

fn listed(
    plan: &ServicePlan,
    servers: &BTreeMap<Address, ManagedServer>,
) -> Result<Vec<MonitoredServer>, String> {
    let watch = MonitorConfig::of(plan);
    let states = plan
        .servers
        .iter()
        .filter_map(|one| servers.get(&one.address));
    let listed = states.map(|state| {
        Ok(MonitoredServer {
            server: Arc::clone(&state.server),
            tls: watch.tls(&state.address)?,
        })
    });
    listed.collect()
}

#[cfg(test)]
mod tests {
    use evenkeel_policy::cluster::Lag;

    use super::*;

    #[test]
    fn a_server_that_the_cluster_refuses_is_asked_nothing() {
        let mut seen = ServerRoles::default();
        seen.add(1, &Role::Unfit("a former primary".to_owned()));
        seen.add(2, &Role::Unknown);
        seen.add(3, &Role::Primary);
        seen.add(4, &Role::Replica(Lag::UNKNOWN));
        seen.add(5, &Role::Spare("it donates".to_owned()));
        assert_eq!((seen.primary, seen.up), (Some(3), vec![2, 3, 4, 5]));
    }
}
