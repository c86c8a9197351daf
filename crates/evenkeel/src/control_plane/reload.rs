//! Applies a new plan in place: unchanged parts are not touched, and an invalid plan changes
//! nothing.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use evenkeel_config::ReportedProblem;
use evenkeel_config::plan::{Address, Listen, Plan, ServerConnections, ServicePlan};
use evenkeel_engine::clock::{now_ms, now_us};
use evenkeel_engine::listen::ListenError;
use evenkeel_policy::server_set::ServerSet;
use evenkeel_proxy::server_info::ServerInfo;
use evenkeel_proxy::{ProtocolSnapshot, Server, ServiceSnapshot};

use super::cluster::needs_roles;
use super::database::snapshot;
use super::http;
use super::listening::{Bound, Listening};
use super::publish::{keepalive, settings};
use super::removal::Removal;
use super::server::{ManagedServer, MonitorConfig};
use super::service::{ManagedService, members};
use super::timeline::NewEvent;
use super::{ControlPlane, ControlPlaneError};
use crate::notify;
use crate::status::{self, EventKind, Reply, Severity};
use crate::upgrade::predecessor::InheritedSockets;

/// Parts of a new plan whose preparation can fail. Prepared before anything is changed.
pub(super) struct Prepared {
    pub(super) servers: BTreeMap<Address, ManagedServer>,
    pub(super) bound: Vec<Bound>,
}

impl ControlPlane {
    /// Loads the configuration file and applies it. An invalid file changes nothing.
    pub(super) async fn reload(&mut self) -> Reply {
        notify::reloading();
        let reply = self.try_reload();
        notify::ready();
        for problem in &reply.problems {
            let line = one_line(problem);
            match problem.severity.as_str() {
                "error" => tracing::error!("{line}"),
                _ => tracing::warn!("{line}"),
            }
        }
        let severity = if reply.ok {
            Severity::Info
        } else {
            Severity::Error
        };
        self.record_event(NewEvent::new(
            EventKind::Config,
            severity,
            reply.message.clone(),
        ));
        reply
    }

    fn try_reload(&mut self) -> Reply {
        if self.stop_by_ms.is_some() {
            return Reply::failed("not reloaded: the process is shutting down");
        }
        if self.upgrades.is_upgrading() {
            return Reply::failed(
                "not reloaded: an upgrade is in progress, and the new process has already read the \
                 file",
            );
        }
        let Some(path) = self.plan.path.clone() else {
            return Reply::failed("not reloaded: the process was started without a config file");
        };
        let loaded = evenkeel_config::load(&path);
        let problems = loaded.problems.reported();
        let Some(plan) = loaded.plan else {
            self.problems = loaded.problems;
            let message = format!("{}: not reloaded, configuration unchanged", path.display());
            return Reply {
                message,
                problems,
                ..Reply::default()
            };
        };
        let restart = self.needs_restart(&plan);
        if let Err(error) = self.adopt(plan) {
            let message = format!(
                "{}: not reloaded, configuration unchanged: {error}",
                path.display()
            );
            return Reply {
                message,
                problems,
                ..Reply::default()
            };
        }
        self.problems = loaded.problems;
        self.loaded_ms = now_ms();
        let message = format!("{}: reloaded{restart}", path.display());
        Reply {
            ok: true,
            message,
            problems,
            ..Reply::default()
        }
    }

    /// Returns a note about changes that need a restart, so that they are not silently ignored.
    fn needs_restart(&self, plan: &Plan) -> String {
        let mut tables = Vec::new();
        if plan.engine.io != self.plan.engine.io || plan.engine.workers != self.plan.engine.workers
        {
            tables.push("[engine]");
        }
        if plan.admin != self.plan.admin {
            tables.push("[admin]");
        }
        if plan.log.format != self.plan.log.format || plan.log.level != self.plan.log.level {
            tables.push("[log]");
        }
        match tables.as_slice() {
            [] => String::new(),
            changed => format!("; changes to {} require a restart", changed.join(" and ")),
        }
    }

    /// Applies a checked plan, or changes nothing.
    pub(super) fn adopt(&mut self, plan: Plan) -> Result<(), ControlPlaneError> {
        let prepared = self.prepare(&plan, &mut InheritedSockets::default())?;
        self.adopt_prepared(plan, prepared);
        Ok(())
    }

    /// Applies a prepared plan, which cannot fail.
    pub(super) fn adopt_prepared(&mut self, plan: Plan, prepared: Prepared) {
        self.data_plane.set_records_enabled(plan.log.connections);
        self.peers.adopt(&plan.peers.addresses, &self.data_plane);
        // Before the services, which use its certificates.
        self.acme.adopt(&plan);
        self.adopt_servers(&plan, prepared.servers);
        self.adopt_services(&plan.services, prepared.bound);
        self.plan = plan;
        self.servers.adopt(&self.plan);
        self.adopt_clusters();
        self.update_monitor_tasks();
        self.update_remote_permits();
        for index in 0..self.services.len() {
            self.publish(index);
        }
        self.part_from_removals();
    }

    pub(super) fn prepare(
        &self,
        plan: &Plan,
        inherited: &mut InheritedSockets,
    ) -> Result<Prepared, ControlPlaneError> {
        let mut servers = BTreeMap::new();
        let removed = self.removed_servers();
        for service in &plan.services {
            for listed in &service.servers {
                let fail = |cause| ControlPlaneError::Probe {
                    service: service.name.clone(),
                    server: listed.name.clone(),
                    cause,
                };
                let config = MonitorConfig::of(service).with_proxy_header(plan, &listed.address);
                // Built also for known servers, only to check it: the later update must not fail.
                config.prober(&listed.address).map_err(fail)?;
                if service.protocol_info().connections != ServerConnections::PerClient {
                    snapshot::connector(service, &listed.address).map_err(fail)?;
                }
                if needs_roles(service) {
                    config.role_monitor(&listed.address).map_err(fail)?;
                }
                if self.servers.contains(&listed.address) || servers.contains_key(&listed.address) {
                    continue;
                }
                let max = listed.max_connections;
                let mut state = ManagedServer::new(&self.data_plane, &listed.address, config, max)
                    .map_err(fail)?;
                if let Some(known) = removed.get(&*listed.address.to_string()) {
                    state.server = Arc::clone(known);
                }
                servers.insert(listed.address.clone(), state);
            }
        }
        Ok(Prepared {
            servers,
            bound: self.bind_new(plan, inherited)?,
        })
    }

    /// Returns the removed servers that still have sessions, by name: one that is listed again is
    /// the same server.
    fn removed_servers(&self) -> HashMap<&str, &Arc<Server>> {
        let servers = self.removals.iter().flat_map(|removal| &removal.servers);
        let mut by_name = HashMap::new();
        for server in servers {
            by_name.entry(&*server.name).or_insert(server);
        }
        by_name
    }

    fn bind_new(
        &self,
        plan: &Plan,
        inherited: &mut InheritedSockets,
    ) -> Result<Vec<Bound>, ControlPlaneError> {
        let open: Vec<&Listen> = self
            .services
            .iter()
            .flat_map(|service| service.listening.iter().map(|listening| &listening.listen))
            .collect();
        let mut bound = Vec::new();
        for service in &plan.services {
            for listen in service
                .listen
                .iter()
                .filter(|listen| !open.contains(listen))
            {
                let opened = Bound::bind(listen, &keepalive(&service.keepalive), inherited);
                let held = open.iter().find(|held| held.overlaps(listen));
                let fail = |cause| match (cause, held) {
                    (ListenError::InUse(_), Some(held)) => ControlPlaneError::OwnPort {
                        service: service.name.clone(),
                        listen: listen.to_string(),
                        held: held.to_string(),
                    },
                    (cause, _) => ControlPlaneError::Listen {
                        service: service.name.clone(),
                        cause,
                    },
                };
                bound.push(opened.map_err(fail)?);
            }
        }
        Ok(bound)
    }

    fn adopt_servers(&mut self, plan: &Plan, new: BTreeMap<Address, ManagedServer>) {
        for service in &plan.services {
            for listed in &service.servers {
                let max = listed.max_connections;
                if let Some(back) = new.get(&listed.address) {
                    back.server.load.set_max_connections(max);
                }
                let config = MonitorConfig::of(service).with_proxy_header(plan, &listed.address);
                if let Some(known) = self.servers.get_mut(&listed.address)
                    && let Err(error) = known.update(config, max)
                {
                    tracing::error!(server = %listed.address, "cannot apply new probe settings, \
                                                               keeping the old ones: {error}");
                }
            }
        }
        self.servers.extend(new.into_values());
    }

    fn adopt_services(&mut self, plans: &[ServicePlan], mut bound: Vec<Bound>) {
        let mut old = std::mem::take(&mut self.services);
        // Sockets that a service no longer uses are passed to another service, or closed.
        for service in &mut old {
            let next_plan = plans.iter().find(|plan| is_same(&service.plan, plan));
            let is_kept =
                |listen: &Listen| next_plan.is_some_and(|plan| plan.listen.contains(listen));
            let all = std::mem::take(&mut service.listening);
            for listening in all {
                if is_kept(&listening.listen) {
                    service.listening.push(listening);
                } else {
                    bound.push(listening.release());
                }
            }
        }
        for plan in plans {
            let index = old.iter().position(|service| is_same(&service.plan, plan));
            let service = match index {
                Some(index) => self.keep_service(old.remove(index), plan),
                None => self.new_service(plan),
            };
            self.services.push(service);
        }
        self.adopt_routes();
        let mut services = std::mem::take(&mut self.services);
        for service in &mut services {
            self.start_listening(service, &mut bound);
        }
        self.services = services;
        for unused in bound {
            unused.close(&self.data_plane);
        }
        for gone in old {
            snapshot::shrink_pools(&gone);
            tracing::info!(
                service = gone.plan.name,
                sessions = gone.service.active_and_routed(),
                "service removed from the configuration"
            );
            let listed = gone.plan.servers.iter();
            let states = listed.filter_map(|server| self.servers.get(&server.address));
            let servers = states.map(|state| Arc::clone(&state.server)).collect();
            self.removals.push(Removal::service(gone, servers));
        }
    }

    fn keep_service(&mut self, mut service: ManagedService, plan: &ServicePlan) -> ManagedService {
        let members = members(plan);
        for listed in &service.plan.servers {
            let stays = members.contains_key(&listed.address);
            if let (false, Some(state)) = (stays, self.servers.get(&listed.address)) {
                self.removals
                    .push(Removal::server(&service.service, &state.server, plan));
            }
        }
        service
            .weights
            .retain(|address, _| members.contains_key(address));
        self.forget_removals(&service, plan);
        service.prepare_tracking(plan);
        service.set_plan(plan.clone());
        // The entries are in the order of the previous plan.
        service.eligibilities.clear();
        self.adopt_protocol_plan(&service);
        service.adopt_tls(self.acme.certificates(), &self.ticket_keys);
        service.adopt_rules();
        service
    }

    /// Ends the removal of servers that a service lists again.
    fn forget_removals(&mut self, service: &ManagedService, plan: &ServicePlan) {
        if self.removals.is_empty() {
            return;
        }
        let listed = plan.servers.iter().map(|one| one.address.to_string());
        let listed: HashSet<String> = listed.collect();
        self.removals.retain(|removal| {
            let server = removal.server.as_ref();
            removal.service.id != service.service.id
                || !server.is_some_and(|server| listed.contains(&*server.name))
        });
    }

    fn new_service(&self, plan: &ServicePlan) -> ManagedService {
        let cursor = Arc::default();
        let no_servers = ServerSet::new(plan.balance, Vec::new(), Arc::clone(&cursor));
        let snapshot = ServiceSnapshot {
            settings: settings(plan),
            pool: no_servers,
            servers: Vec::new(),
            tls_routes: None,
            protocol: ProtocolSnapshot::Tcp,
        };
        let workers = self.data_plane.workers();
        let mut server_info = None;
        let protocol = plan.protocol.map(
            |database| {
                let server_info = server_info.insert(ServerInfo::new(workers, now_us()));
                snapshot::new_database(database, workers, server_info)
            },
            |http| http::new_service(http, workers),
        );
        let mut service = ManagedService {
            plan: plan.clone(),
            members: members(plan),
            service: self.data_plane.add_service(&plan.name, snapshot, protocol),
            cursor,
            listening: Vec::new(),
            weights: BTreeMap::new(),
            eligibilities: Vec::new(),
            next_ramp_ms: None,
            unpublished: Vec::new(),
            history: super::history::History::default(),
            rejections: super::rejection_log::RejectionLog::default(),
            state: status::ServiceState::Down,
            state_since_ms: now_ms(),
            server_info,
            writes_recorded_since_us: 0,
            acceptor: super::service::TlsAcceptor::Tcp,
            http_parts: None,
            tls_routes: None,
            rules: None,
            monitor_tasks: None,
            primary: None,
        };
        self.adopt_protocol_plan(&service);
        service.adopt_tls(self.acme.certificates(), &self.ticket_keys);
        service.adopt_rules();
        service
    }

    /// Assigns sockets to all services, if they started without.
    pub(super) fn listen_at(&mut self, mut bound: Vec<Bound>) {
        let mut services = std::mem::take(&mut self.services);
        for service in &mut services {
            self.start_listening(service, &mut bound);
        }
        self.services = services;
    }

    /// Assigns to a service the sockets that it needs and does not have.
    fn start_listening(&mut self, service: &mut ManagedService, bound: &mut Vec<Bound>) {
        // The first clients must find servers, not the empty snapshot of a new service.
        self.publish_before_listening(service);
        for listen in &service.plan.listen {
            let Some(index) = bound.iter().position(|bound| bound.listen == *listen) else {
                continue;
            };
            match Listening::start(bound.swap_remove(index), &self.data_plane, &service.service) {
                Ok(listening) => service.listening.push(listening),
                Err(error) => tracing::error!(%listen, "cannot accept clients: {error}"),
            }
        }
        for listening in &service.listening {
            listening.keep_alive(&keepalive(&service.plan.keepalive));
        }
    }
}

/// Returns whether a service continues under a new plan. Sessions of another protocol cannot.
fn is_same(before: &ServicePlan, now: &ServicePlan) -> bool {
    before.name == now.name && before.protocol_info().name == now.protocol_info().name
}

/// Formats a problem as one log line.
fn one_line(problem: &ReportedProblem) -> String {
    let position = [
        problem.file.clone(),
        problem.line.map(|line| line.to_string()),
        problem.column.map(|column| column.to_string()),
    ];
    let position: Vec<_> = position.into_iter().flatten().collect();
    let help = problem.help.as_ref();
    let help = help.map(|help| format!(" ({help})")).unwrap_or_default();
    format!(
        "{}: [{}] {}{help}",
        position.join(":"),
        problem.code,
        problem.message
    )
}
