//! Runs the tasks that query the servers of database services, and notifies them of roles.

mod auth_lookup;
mod catalogs;
pub(super) mod digests;
mod faults;
mod membership;
mod positions;
pub(super) mod report;
mod routines;
pub(super) mod snapshot;

use std::sync::Arc;
use std::time::Duration;

use evenkeel_config::plan::{
    AccountPlan, Address, Consistency, DatabasePlan, Monitor, PoolMode, ServerTls, ServicePlan,
    SqlProtocol,
};
use evenkeel_engine::clock::now_us;
use evenkeel_monitor::probe::{AccountSource, MonitorAccount, ProbeSetupError, Tls};
use evenkeel_monitor::{MysqlAuthQuery, PositionQuery, PostgresAuthQuery, RoutineReader};
use evenkeel_policy::causality::{Lsn, Position};
use evenkeel_policy::cluster::report::{Group, Replication, ReplicationState};
use evenkeel_policy::cluster::{Role, RoleReport};
use evenkeel_policy::health::HealthState;
use evenkeel_proxy::record::CutReason;
use evenkeel_proxy::server_info::ServerInfo;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::ControlPlane;
use super::eligibility::RoleView;
use super::monitor_event::MonitorEvent;
use super::server::MonitorConfig;
use super::servers::Servers;
use membership::{EpochCounter, Membership, MonitoredServer};
use positions::{MonitoredPosition, PositionFollower};

/// Monitor tasks of one service and their last inputs. Dropping this ends the tasks.
pub(super) struct MonitorTasks {
    server_info: Arc<ServerInfo>,
    sources: MonitorSources,
    membership: watch::Sender<Membership>,
    epochs: EpochCounter,
    tasks: Vec<JoinHandle<()>>,
}

/// Configuration of the tasks. A change restarts them.
#[derive(Debug, Clone, PartialEq)]
struct MonitorSources {
    protocol: SqlProtocol,
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
    fn of(plan: &ServicePlan, servers: &Servers) -> Option<MonitorSources> {
        let database = plan.database()?;
        let auth = &database.auth;
        let listed = plan.servers.iter().filter_map(|one| {
            let state = servers.get(&one.address)?;
            Some((one.address.clone(), state.server.id))
        });
        Some(MonitorSources {
            protocol: database.protocol,
            servers: listed.collect(),
            monitor: plan.monitor.clone(),
            auth: auth.account.clone(),
            query: auth.query.clone(),
            server_tls: plan.server_tls.clone(),
            wait: Duration::from_millis(database.failover.wait_ms),
        })
    }

    fn reader_account(&self) -> Option<MonitorAccount> {
        let monitor = self.monitor.as_ref().map(Monitor::account);
        monitor.or_else(|| self.lookup_account())
    }

    /// Returns the place of the account for lookups: without one of its own, `[service.auth]` takes
    /// the monitor's.
    fn lookup_source(&self, user: &str) -> AccountSource {
        let of_monitor = self.monitor.as_ref().filter(|monitor| monitor.user == user);
        of_monitor.map_or(AccountSource::Auth, |monitor| monitor.source)
    }

    fn lookup_account(&self) -> Option<MonitorAccount> {
        self.auth.as_ref().map(|account| MonitorAccount {
            user: account.user.clone(),
            password: account.password.expose().to_owned(),
            database: account.database.clone(),
            source: self.lookup_source(&account.user),
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
        server_info: Arc<ServerInfo>,
        (plan, sources, servers): (&ServicePlan, MonitorSources, Vec<MonitoredServer>),
        reports: &mpsc::Sender<MonitorEvent>,
    ) -> Result<MonitorTasks, String> {
        let epochs = before.map(|mut before| std::mem::take(&mut before.epochs));
        let mut monitor_tasks = MonitorTasks {
            server_info,
            sources,
            membership: watch::Sender::default(),
            epochs: epochs.unwrap_or_default(),
            tasks: Vec::new(),
        };
        monitor_tasks.start_role_checks(reports.clone());
        if let Some(account) = monitor_tasks.sources.reader_account() {
            monitor_tasks.start_positions(&account, &servers)?;
            match monitor_tasks.sources.protocol {
                SqlProtocol::Mysql => monitor_tasks.start_routines(&account, plan, &servers)?,
                SqlProtocol::Postgres => monitor_tasks.start_catalogs(account, plan, &servers),
            }
        } else if plan.database().is_some_and(shares_connections) {
            monitor_tasks.report_missing_account(plan);
        }
        monitor_tasks.start_auth(servers)?;
        Ok(monitor_tasks)
    }

    /// Reports that clients are served although the effects of their functions are unknown.
    fn report_missing_account(&self, plan: &ServicePlan) {
        let problem = format!(
            "no monitor account is configured: session state left by functions, triggers and views \
             is not detected and may leak to other clients; set user in {} or [service.auth]",
            plan.account_source().name()
        );
        self.server_info.set_problems(vec![problem.clone()]);
        tracing::warn!(service = plan.name, "{problem}");
    }

    fn start_role_checks(&mut self, reports: mpsc::Sender<MonitorEvent>) {
        let server_info = Arc::clone(&self.server_info);
        self.run(async move {
            loop {
                let server_ids = server_info.next_role_checks().await;
                let report = MonitorEvent::RoleDoubted(server_ids);
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
        let protocol = self.sources.protocol;
        for listed in servers {
            let query = PositionQuery::new(protocol, account.clone(), &listed.tls, now_us);
            let follower = PositionFollower {
                server_id: listed.id(),
                source: MonitoredPosition {
                    listed: listed.clone(),
                    query: query.map_err(|error| error.to_string())?,
                },
                server_info: Arc::clone(&self.server_info),
                membership: self.membership.subscribe(),
                samples: samples.clone(),
            };
            self.run(follower.run());
        }
        Ok(())
    }

    fn start_catalogs(
        &mut self,
        account: MonitorAccount,
        plan: &ServicePlan,
        servers: &[MonitoredServer],
    ) {
        let task = catalogs::CatalogTask {
            service: plan.name.clone(),
            servers: servers.to_vec(),
            account,
            server_info: Arc::clone(&self.server_info),
            membership: self.membership.subscribe(),
        };
        self.server_info.databases().expect();
        self.run(task.run());
    }

    fn start_routines(
        &mut self,
        account: &MonitorAccount,
        plan: &ServicePlan,
        servers: &[MonitoredServer],
    ) -> Result<(), String> {
        let mut readers = Vec::new();
        for listed in servers {
            let reader = RoutineReader::new(account.clone(), &listed.tls);
            let reader = reader.map_err(|error| error.to_string())?;
            readers.push((listed.clone(), reader));
        }
        self.server_info.expect_routines();
        let task = routines::RoutineTask {
            service: plan.name.clone(),
            readers,
            server_info: Arc::clone(&self.server_info),
            membership: self.membership.subscribe(),
            account_source: account.source,
            is_split: plan.database().is_some_and(|one| one.split.reads),
            problems: Vec::new(),
        };
        self.run(task.run());
        Ok(())
    }

    fn start_auth(&mut self, servers: Vec<MonitoredServer>) -> Result<(), String> {
        let query = self.sources.query.clone();
        match self.sources.protocol {
            SqlProtocol::Mysql => self.start_lookups(servers, MysqlAuthQuery::new),
            SqlProtocol::Postgres => self.start_lookups(servers, |account, tls| {
                PostgresAuthQuery::new(account, tls, query.as_deref())
            }),
        }
    }

    fn start_lookups<A: auth_lookup::AuthBackend>(
        &mut self,
        servers: Vec<MonitoredServer>,
        make: impl Fn(MonitorAccount, &Tls) -> Result<A, ProbeSetupError>,
    ) -> Result<(), String> {
        let mut backends = Vec::new();
        // Without an account no server is queried: every lookup fails with that reason.
        if let Some(account) = self.sources.lookup_account() {
            for listed in servers {
                let backend = make(account.clone(), &listed.tls);
                backends.push((listed, backend.map_err(|error| error.to_string())?));
            }
        }
        let directory = auth_lookup::Servers {
            backends,
            membership: self.membership.subscribe(),
            wait: self.sources.wait,
        };
        self.run(auth_lookup::serve_lookups(
            Arc::clone(&self.server_info),
            Arc::new(directory),
        ));
        Ok(())
    }

    fn run(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.push(tokio::spawn(task));
    }

    /// Processes a server's state. A replica's state includes its position.
    fn record_state(&mut self, server_id: u64, state: &ReplicationState, queried_ms: u64) {
        if let ReplicationState::Postgres(state) = state {
            self.epochs.record_timeline(server_id, state.timeline);
        }
        let track = self.server_info.track();
        track.set_causal(
            server_id,
            matches!(state, ReplicationState::Galera(state) if state.causal),
        );
        let tracks = self.membership.borrow().tracks;
        if let Some(position) = applied(state).filter(|_| tracks) {
            let queried_us = queried_ms.saturating_mul(1_000);
            track.applied(server_id, position, queried_us, None);
        }
    }

    /// Publishes the current roles, and notifies the tasks of relevant changes.
    fn publish_roles(&mut self, roles: ServerRoles) {
        let track = self.server_info.track();
        track.list(&roles.replicas);
        let is_new_epoch = self.epochs.starts_epoch(roles.primary);
        if is_new_epoch || track.positions().primary != roles.primary {
            track.set_primary(roles.primary, is_new_epoch);
        }
        let membership = Membership {
            epoch: track.positions().epoch,
            primary: roles.primary,
            replicas: roles.replicas.iter().map(|(id, _)| *id).collect(),
            up: roles.up,
            tracks: roles.tracks,
            fault: self.membership.borrow().fault.clone(),
        };
        self.membership.send_if_modified(|current| {
            let is_news = *current != membership;
            *current = membership;
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
    /// Returns the roles of a service's servers.
    fn of(plan: &ServicePlan, view: RoleView<'_>) -> ServerRoles {
        let mut roles = ServerRoles {
            tracks: tracks(plan),
            ..ServerRoles::default()
        };
        for one in &plan.servers {
            let state = view.servers.get(&one.address);
            let up = state.filter(|state| state.health.state() != HealthState::Down);
            let Some(state) = up else { continue };
            let id = state.server.id;
            let cluster = view.clusters.of(&one.address);
            roles.add(
                id,
                cluster.map_or(&Role::Unknown, |cluster| cluster.effective_role(id)),
            );
        }
        roles
    }

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
            let server_info = service.server_info.clone();
            let Some((sources, server_info)) = sources.zip(server_info) else {
                self.services[index].monitor_tasks = None;
                continue;
            };
            let known = service.monitor_tasks.as_ref();
            if known.is_none_or(|known| known.sources != sources) {
                self.start_monitor_tasks(index, sources, server_info);
            }
        }
        self.publish_roles();
    }

    fn start_monitor_tasks(
        &mut self,
        index: usize,
        sources: MonitorSources,
        server_info: Arc<ServerInfo>,
    ) {
        let service = &mut self.services[index];
        let before = service.monitor_tasks.take();
        let servers = listed(&service.plan, &self.servers);
        let inputs = servers.map(|servers| (&service.plan, sources, servers));
        let reports = &self.reports.0;
        match inputs.and_then(|inputs| MonitorTasks::start(before, server_info, inputs, reports)) {
            Ok(monitor_tasks) => service.monitor_tasks = Some(monitor_tasks),
            Err(why) => tracing::error!(
                service = service.plan.name,
                "cannot query the servers of this service; users cannot be verified and logins \
                 will fail: {why}"
            ),
        }
    }

    /// Records a server's role report. Call before the cluster decides on it.
    pub(super) fn record_role(&mut self, address: &Address, report: &RoleReport) {
        let Some(server_id) = self.servers.get(address).map(|state| state.server.id) else {
            return;
        };
        for index in self.servers.listed_by(address) {
            let Some(monitor_tasks) = self.services[*index].monitor_tasks.as_mut() else {
                continue;
            };
            monitor_tasks.record_state(server_id, &report.status, report.queried_ms);
        }
    }

    /// Notifies all monitor tasks of the current roles.
    pub(super) fn publish_roles(&mut self) {
        for index in 0..self.services.len() {
            if self.services[index].monitor_tasks.is_none() {
                continue;
            }
            let roles = ServerRoles::of(&self.services[index].plan, self.role_view());
            let primary = roles.primary;
            if let Some(monitor_tasks) = &mut self.services[index].monitor_tasks {
                monitor_tasks.publish_roles(roles);
            }
            self.publish_assignment(index, primary);
        }
    }

    /// Publishes changed server roles, and resumes sessions that wait for a primary.
    fn publish_assignment(&mut self, index: usize, primary: Option<u64>) {
        if self.has_new_assignment(index) {
            self.publish(index);
        }
        let before = self.services[index].primary;
        if !before.is_some_and(|former| self.clusters.is_switching_over(former)) {
            self.services[index].primary = primary;
            self.cut_former_primary(index, before.filter(|_| before != primary));
        }
        snapshot::set_primary_status(&self.services[index].service);
    }

    fn cut_former_primary(&self, index: usize, former: Option<u64>) {
        if former.is_some() {
            let service_id = self.services[index].service.id;
            self.data_plane
                .cut(Some(service_id), former, CutReason::PrimaryChanged);
        }
    }
}

/// Returns whether replicas serve only reads for which they have the session's writes.
pub(super) fn tracks(plan: &ServicePlan) -> bool {
    plan.database().is_some_and(|database| {
        let split = &database.split;
        split.reads && split.consistency != Consistency::Eventual
    })
}

/// Returns the position that reads on a server see, from its role report. A Galera node reports it
/// to position queries only.
fn applied(state: &ReplicationState) -> Option<Position> {
    match state {
        ReplicationState::Postgres(state) => state.in_recovery.then_some(Position::Lsn(Lsn {
            timeline: state.timeline,
            at: state.lsn,
        })),
        ReplicationState::Replication(Replication { visible, .. })
        | ReplicationState::Group(Group { visible, .. }) => {
            // A server that keeps no GTIDs reports no position.
            (!visible.is_empty()).then(|| Position::Gtids(visible.clone()))
        }
        ReplicationState::Galera(_) => None,
    }
}

fn listed(plan: &ServicePlan, servers: &Servers) -> Result<Vec<MonitoredServer>, String> {
    let config = MonitorConfig::of(plan);
    let states = plan
        .servers
        .iter()
        .filter_map(|one| servers.get(&one.address));
    let listed = states.map(|state| {
        Ok(MonitoredServer {
            server: Arc::clone(&state.server),
            tls: config.tls(&state.address)?,
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
        let mut roles = ServerRoles::default();
        roles.add(1, &Role::Unfit("a former primary".to_owned()));
        roles.add(2, &Role::Unknown);
        roles.add(3, &Role::Primary);
        roles.add(4, &Role::Replica(Lag::UNKNOWN));
        roles.add(5, &Role::Spare("it donates".to_owned()));
        assert_eq!((roles.primary, roles.up), (Some(3), vec![2, 3, 4, 5]));
    }
}
