//! Manages one service in the control plane: its plan, its listeners and its changes by command.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use evenkeel_config::plan::{Address, Protocol, Role, ServerPlan, ServicePlan};
use evenkeel_engine::clock::now_us;
use evenkeel_policy::server_set::RotationCursor;
use evenkeel_proxy::Service;
use evenkeel_proxy::data_plane::DataPlane;
use evenkeel_proxy::rules::RuleSet;
use evenkeel_proxy::server_info::ServerInfo;
use evenkeel_proxy::tls_routes::TlsRoutes;
use evenkeel_tls::{Acceptor, HttpAcceptor, TicketKeys};

use super::acme::Certificates;
use super::database::{MonitorTasks, snapshot, tracks};
use super::eligibility::Eligibility;
use super::history::History;
use super::http::{self, HttpParts};
use super::listening::Listening;
use super::rejection_log::RejectionLog;
use super::servers::Servers;
use crate::rules;
use crate::status;

/// Time after which all workers use a new plan.
const ADOPTION_US: u64 = 500_000;

/// TLS of a service towards its clients, by its protocol.
pub(super) type TlsAcceptor =
    evenkeel_wire::Protocol<Option<Arc<Acceptor>>, Option<Arc<HttpAcceptor>>>;

/// A service and the state that belongs to it alone.
pub(super) struct ManagedService {
    /// Changed by [`Self::set_plan`] only.
    pub(super) plan: ServicePlan,
    /// Index of each server in the plan.
    pub(super) members: HashMap<Address, usize>,
    pub(super) service: Arc<Service>,
    pub(super) cursor: Arc<RotationCursor>,
    pub(super) listening: Vec<Listening>,
    /// Weights set by command, which survive reloads.
    pub(super) weights: BTreeMap<Address, u32>,
    /// Eligibility as published to the data plane, in the order of the plan's servers.
    pub(super) eligibilities: Vec<Eligibility>,
    pub(super) next_ramp_ms: Option<u64>,
    /// Indices in the plan of servers with changes that are not published yet.
    pub(super) unpublished: Vec<usize>,
    pub(super) history: History,
    pub(super) rejections: RejectionLog,
    pub(super) state: status::ServiceState,
    pub(super) state_since_ms: u64,
    /// Server information for sessions. `None` for a service without a database protocol.
    pub(super) server_info: Option<Arc<ServerInfo>>,
    /// Time since which sessions record their writes, so that their reads see them; 0: from their
    /// beginning.
    pub(super) writes_recorded_since_us: u64,
    /// TLS settings towards clients. `None`: off.
    pub(super) acceptor: TlsAcceptor,
    /// Compiled routes of an HTTP service. `None`: another protocol, or not compiled yet.
    pub(super) http_parts: Option<HttpParts>,
    /// Compiled routes of a TCP service. `None`: there are none, or they are not compiled yet.
    pub(super) tls_routes: Option<Arc<TlsRoutes>>,
    /// Statement rules of the plan. `None`: there are none.
    pub(super) rules: Option<Arc<RuleSet>>,
    /// Tasks that query the servers for `server_info`.
    pub(super) monitor_tasks: Option<MonitorTasks>,
    /// Primary of the last published roles, drained or not.
    pub(super) primary: Option<u64>,
}

impl ManagedService {
    pub(super) fn lists(&self, address: &Address) -> bool {
        self.members.contains_key(address)
    }

    /// Returns the entry of a server in the plan.
    pub(super) fn listed(&self, address: &Address) -> Option<&ServerPlan> {
        let index = self.members.get(address)?;
        self.plan.servers.get(*index)
    }

    /// Records that a server has changed.
    pub(super) fn mark_changed(&mut self, address: &Address) {
        if let Some(index) = self.members.get(address) {
            self.unpublished.push(*index);
        }
    }

    /// Returns whether the servers that take clients depend on nothing but themselves: neither on
    /// roles nor on pools of a database.
    pub(super) fn ignores_roles(&self) -> bool {
        self.plan.role == Role::Any && self.plan.database().is_none()
    }

    /// Replaces the plan.
    pub(super) fn set_plan(&mut self, plan: ServicePlan) {
        self.members = members(&plan);
        self.plan = plan;
        self.unpublished.clear();
    }

    /// Prepares for a new plan in which reads must see earlier writes: until then, sessions did not
    /// record their writes. Call before the plan is replaced.
    pub(super) fn prepare_tracking(&mut self, plan: &ServicePlan) {
        let starts_tracking = tracks(plan) && !tracks(&self.plan);
        if let (true, Some(server_info)) = (starts_tracking, &self.server_info) {
            self.writes_recorded_since_us = now_us() + ADOPTION_US;
            server_info.record_write(0, self.writes_recorded_since_us);
        }
    }

    /// Loads the TLS settings of the plan, with the certificates that have come by ACME. A renewed
    /// certificate is used for new clients.
    pub(super) fn adopt_tls(&mut self, ordered: &Certificates, keys: &Arc<TicketKeys>) {
        let acceptor = match &self.plan.protocol {
            Protocol::Tcp => Ok(TlsAcceptor::Tcp),
            Protocol::Http(http) => {
                http::acceptor(&self.plan.name, http, ordered, keys).map(TlsAcceptor::Http)
            }
            Protocol::Sql(database) => {
                snapshot::acceptor(database.tls.as_ref()).map(TlsAcceptor::Sql)
            }
        };
        match acceptor {
            Ok(acceptor) => self.acceptor = acceptor,
            Err(why) => {
                tracing::error!(
                    service = self.plan.name,
                    "cannot load the new TLS settings, \
                     keeping the old ones: {why}"
                );
            }
        }
    }

    /// Loads the rules of the plan. Remaining rules keep their hit counts.
    pub(super) fn adopt_rules(&mut self) {
        let plan = self.plan.database();
        let plan = plan.filter(|plan| !plan.rules.is_empty());
        let inputs = plan.zip(self.service.database());
        self.rules = inputs.map(|(plan, shared)| Arc::new(rules::rule_set(&plan.rules, shared)));
    }

    pub(super) fn weight(&self, server: &ServerPlan) -> u32 {
        self.weights
            .get(&server.address)
            .copied()
            .unwrap_or(server.weight)
    }

    pub(super) fn stop_listening(&mut self, data_plane: &DataPlane) {
        if let Some(http) = self.service.http() {
            http.set_draining(true);
        }
        for listening in self.listening.drain(..) {
            listening.stop(data_plane);
        }
    }
}

/// Returns a server's name in the first service that lists it.
pub(super) fn name_of<'s>(
    services: &'s [ManagedService],
    servers: &Servers,
    address: &Address,
) -> &'s str {
    let first = servers.listed_by(address).first();
    let found = first.and_then(|index| services[*index].listed(address));
    found.map_or("a server", |server| &server.name)
}

/// Returns the index of each server in a plan.
pub(super) fn members(plan: &ServicePlan) -> HashMap<Address, usize> {
    let servers = plan.servers.iter().enumerate();
    let entries = servers.map(|(index, server)| (server.address.clone(), index));
    entries.collect()
}
