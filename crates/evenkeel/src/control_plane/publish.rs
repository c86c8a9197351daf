//! Builds and publishes the snapshots that the data plane uses, whenever a service changes.

use std::sync::Arc;
use std::time::Duration;

use evenkeel_config::plan::{
    self, Address, AllDown, Probe, Protocol, ServerConnections, ServerPlan, ServicePlan,
};
use evenkeel_engine::clock::now_ms;
use evenkeel_engine::socket::Keepalive;
use evenkeel_policy::cluster::Role;
use evenkeel_policy::ramp::effective_weight;
use evenkeel_policy::server_set::{Member, ServerSet};
use evenkeel_proxy::settings::{Assignment, ServiceSettings};
use evenkeel_proxy::{Protocol as ServiceProtocol, ProtocolSnapshot, Server, ServiceSnapshot};

use super::ControlPlane;
use super::database::snapshot::set_primary_status;
use super::eligibility::Eligibility;
use super::http;
use super::proxy_header::proxy_version;
use super::server::ManagedServer;
use super::service::ManagedService;
use super::timeline::NewEvent;
use crate::status::{EventKind, ServiceState as State, Severity};

impl ControlPlane {
    /// Publishes every service that lists the address.
    pub(super) fn publish_all_with(&mut self, address: &Address) {
        self.publish_soon_all_with(address);
        for index in self.servers.listed_by(address).to_vec() {
            self.publish_changes(index);
        }
    }

    /// Publishes every service that lists the address at the end of this turn: servers that come up
    /// or go down together are one change.
    pub(super) fn publish_soon_all_with(&mut self, address: &Address) {
        for index in self.servers.listed_by(address) {
            self.services[*index].mark_changed(address);
        }
    }

    /// Publishes the services with a change in this turn.
    pub(super) fn publish_due(&mut self) {
        for index in 0..self.services.len() {
            if !self.services[index].unpublished.is_empty() {
                self.publish_changes(index);
            }
        }
        self.finish_deaths();
    }

    /// Publishes the changes of one service, in time for what has changed if that is possible.
    fn publish_changes(&mut self, index: usize) {
        let changed = std::mem::take(&mut self.services[index].unpublished);
        let now_ms = now_ms();
        match self.changed_snapshot(&self.services[index], &changed, now_ms) {
            Some((snapshot, next_ramp_ms)) => {
                self.services[index].next_ramp_ms = next_ramp_ms;
                self.publish_snapshot(index, snapshot, now_ms);
            }
            None => self.publish(index),
        }
    }

    /// Publishes the services whose slow start has reached its next step.
    pub(super) fn climb_ramps(&mut self, now_ms: u64) {
        for index in 0..self.services.len() {
            if self.services[index]
                .next_ramp_ms
                .is_some_and(|at_ms| at_ms <= now_ms)
            {
                self.publish(index);
            }
        }
    }

    /// Publishes a new snapshot of one service to the data plane.
    pub(super) fn publish(&mut self, index: usize) {
        let now_ms = now_ms();
        let eligibilities = self.role_view().eligibilities(&self.services[index]);
        self.report_eligibility(index, &eligibilities);
        let (snapshot, next_ramp_ms) = self.snapshot(&self.services[index], &eligibilities, now_ms);
        let service = &mut self.services[index];
        service.eligibilities = eligibilities;
        service.next_ramp_ms = next_ramp_ms;
        service.unpublished.clear();
        self.publish_snapshot(index, snapshot, now_ms);
    }

    fn publish_snapshot(&mut self, index: usize, snapshot: ServiceSnapshot, now_ms: u64) {
        let service = &self.services[index];
        self.data_plane.publish(&service.service, snapshot);
        // The primary may have been drained or removed.
        set_primary_status(&self.services[index].service);
        let state = self.state_of(index);
        if self.services[index].state != state {
            self.report_state(index, state);
            let service = &mut self.services[index];
            service.state = state;
            service.state_since_ms = now_ms;
        }
    }

    fn report_state(&mut self, index: usize, state: State) {
        let managed = &self.services[index];
        let severity = match state {
            State::Up | State::Stopping => Severity::Info,
            State::Degraded => Severity::Warning,
            State::Down => Severity::Error,
        };
        let cause = match state {
            State::Up => "all eligible servers accept new clients".to_owned(),
            _ => self.reason(managed, state),
        };
        let what = format!("service is {}", state.name());
        let event = NewEvent::new(EventKind::State, severity, what).cause(cause);
        let queued = managed.service.queued() as u64;
        let event = event.service(&managed.plan.name).cut(Vec::new(), queued);
        self.record_after(event);
    }

    /// Reports replicas that a service stops or resumes using because of their lag. Their role
    /// stays the same, so no role change reports that.
    fn report_eligibility(&mut self, index: usize, eligibilities: &[Eligibility]) {
        let managed = &self.services[index];
        if !matches!(managed.plan.role, plan::Role::Replica { .. }) {
            return;
        }
        let listed = managed
            .plan
            .servers
            .iter()
            .zip(managed.eligibilities.iter().zip(eligibilities));
        let mut events = Vec::new();
        for (server, (before, now)) in listed {
            let cluster = self.clusters.of(&server.address);
            let state = self.servers.get(&server.address);
            let is_replica = cluster.zip(state).is_some_and(|(cluster, state)| {
                matches!(cluster.role(state.server.id), Role::Replica(_))
            });
            let remains_used = [before, now]
                .iter()
                .all(|eligibility| !matches!(eligibility, Eligibility::Unused(_)));
            if remains_used || before == now || !is_replica {
                continue;
            }
            let event = match now {
                Eligibility::Unused(why) => NewEvent::new(
                    EventKind::Role,
                    Severity::Warning,
                    format!("{} no longer receives clients", server.name),
                )
                .cause(why.clone()),
                Eligibility::Serves | Eligibility::Reserve => NewEvent::new(
                    EventKind::Role,
                    Severity::Info,
                    format!("{} receives clients again", server.name),
                ),
            };
            events.push(event.service(&managed.plan.name).server(&server.address));
        }
        for event in events {
            self.record_after(event);
        }
    }

    /// Publishes a removed service without a primary: its last sessions can no longer write.
    pub(super) fn publish_without_primary(&self, removed_service: &ManagedService) {
        let (mut snapshot, _) = self.snapshot(
            removed_service,
            &self.role_view().eligibilities(removed_service),
            now_ms(),
        );
        if let Some(database) = snapshot.protocol.database_mut() {
            database.primary = None;
        }
        self.data_plane.publish(&removed_service.service, snapshot);
        set_primary_status(&removed_service.service);
    }

    /// Publishes a service that is not in the list yet.
    pub(super) fn publish_before_listening(&self, service: &ManagedService) {
        let (snapshot, _) =
            self.snapshot(service, &self.role_view().eligibilities(service), now_ms());
        self.data_plane.publish(&service.service, snapshot);
    }

    /// Builds the snapshot of a service. Also returns when its next slow-start step is due.
    fn snapshot(
        &self,
        service: &ManagedService,
        eligibilities: &[Eligibility],
        now_ms: u64,
    ) -> (ServiceSnapshot, Option<u64>) {
        let (mut members, mut servers) = (Vec::new(), Vec::new());
        let mut next_ramp_ms: Option<u64> = None;
        for (listed, eligibility) in service.plan.servers.iter().zip(eligibilities) {
            let Some(state) = self.servers.get(&listed.address) else {
                continue;
            };
            let (member, ramp_ms) = member(service, (listed, eligibility), state, now_ms);
            next_ramp_ms = earlier(next_ramp_ms, ramp_ms);
            members.push(member);
            servers.push(Arc::clone(&state.server));
        }
        let protocol = self.protocol_snapshot(service, &mut members, &servers);
        let pool = ServerSet::new(service.plan.balance, members, Arc::clone(&service.cursor));
        (
            ServiceSnapshot {
                settings: settings(&service.plan),
                pool,
                servers,
                tls_routes: service.tls_routes.clone(),
                protocol,
            },
            next_ramp_ms,
        )
    }

    /// Builds the snapshot of a service from its current one, of which only these servers have
    /// changed. `None`: more may have changed with them.
    fn changed_snapshot(
        &self,
        service: &ManagedService,
        changed: &[usize],
        now_ms: u64,
    ) -> Option<(ServiceSnapshot, Option<u64>)> {
        if !service.ignores_roles() {
            return None;
        }
        let current = service.service.snapshot();
        let (mut members, servers) = (current.pool.members().to_vec(), current.servers.clone());
        if members.len() != service.plan.servers.len() {
            return None;
        }
        let mut next_ramp_ms = service.next_ramp_ms;
        for index in changed {
            let listed = service.plan.servers.get(*index)?;
            let state = self.servers.get(&listed.address)?;
            let eligibility = &Eligibility::Serves;
            let (mut member, ramp_ms) = member(service, (listed, eligibility), state, now_ms);
            next_ramp_ms = earlier(next_ramp_ms, ramp_ms);
            // Requests count instead of connections for HTTP.
            member.load = Arc::clone(&members[*index].load);
            members[*index] = member;
        }
        let protocol = match (&service.plan.protocol, &service.service.protocol) {
            (Protocol::Http(plan), ServiceProtocol::Http(shared)) => ProtocolSnapshot::Http(
                self.http_snapshot(service, (plan, shared), &members, &servers),
            ),
            _ => ProtocolSnapshot::Tcp,
        };
        let pool = ServerSet::new(service.plan.balance, members, Arc::clone(&service.cursor));
        let snapshot = ServiceSnapshot {
            settings: settings(&service.plan),
            pool,
            servers,
            tls_routes: service.tls_routes.clone(),
            protocol,
        };
        Some((snapshot, next_ramp_ms))
    }

    /// Builds the part of a snapshot that depends on the protocol.
    fn protocol_snapshot(
        &self,
        service: &ManagedService,
        members: &mut [Member],
        servers: &[Arc<Server>],
    ) -> ProtocolSnapshot {
        match (&service.plan.protocol, &service.service.protocol) {
            (Protocol::Http(plan), ServiceProtocol::Http(shared)) => {
                http::balance_by_requests(shared, members, servers);
                let http = self.http_snapshot(service, (plan, shared), members, servers);
                ProtocolSnapshot::Http(http)
            }
            _ => match self.database_snapshot(service, members, servers) {
                Some(database) => ProtocolSnapshot::Sql(database),
                None => ProtocolSnapshot::Tcp,
            },
        }
    }

    /// Returns the state of a service: up while all eligible servers take clients, down when none
    /// does.
    fn state_of(&self, index: usize) -> State {
        let service = &self.services[index];
        let (mut all, mut serving, mut reserve) = (0, 0, false);
        if service.ignores_roles() {
            let snapshot = service.service.snapshot();
            let weighing = snapshot.pool.members().iter();
            for member in weighing.filter(|member| member.weight > 0) {
                all += 1;
                serving += usize::from(member.accepting);
            }
            return state_from((all, serving, false), service);
        }
        let roles = self.role_view();
        let listed = roles.listed(service);
        for (server, eligibility) in listed.filter(|(server, _)| service.weight(server) > 0) {
            let should = roles.should_serve(service, &server.address);
            all += usize::from(should);
            let serves = roles.serves((server, &eligibility));
            serving += usize::from(serves && should);
            reserve |= serves && !should;
        }
        state_from((all, serving, reserve), service)
    }
}

/// Returns the state of a service by the number of servers that it depends on, the number of those
/// that serve, and whether another one serves for them.
fn state_from((all, serving, reserve): (usize, usize, bool), service: &ManagedService) -> State {
    match serving {
        // The primary replaces the replicas: the service works, but is degraded.
        0 if reserve => State::Degraded,
        // Its routes lead to other services.
        0 if service.plan.servers.is_empty() => State::Up,
        0 => State::Down,
        _ if serving < all => State::Degraded,
        _ => State::Up,
    }
}

/// Builds the member of a server. Also returns when its next slow-start step is due.
fn member(
    service: &ManagedService,
    (listed, eligibility): (&ServerPlan, &Eligibility),
    state: &ManagedServer,
    now_ms: u64,
) -> (Member, Option<u64>) {
    let up_for_ms = up_for_ms(state, now_ms);
    let weight = service.weight(listed);
    let ramped = effective_weight(weight, up_for_ms, service.plan.slow_start_ms);
    let next_step_in_ms = ramped.next_step_in_ms.filter(|_| state.takes_clients());
    let member = Member {
        id: state.identity,
        weight: ramped.weight,
        backup: listed.backup || *eligibility == Eligibility::Reserve,
        accepting: state.takes_clients() && !matches!(eligibility, Eligibility::Unused(_)),
        load: Arc::clone(&state.server.load),
    };
    (member, next_step_in_ms.map(|in_ms| now_ms + in_ms))
}

fn earlier(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}

/// Returns the time since the server recovered. A server that was never down needs no slow start.
fn up_for_ms(state: &ManagedServer, now_ms: u64) -> u64 {
    state
        .back_since_ms
        .map_or(u64::MAX, |since_ms| now_ms.saturating_sub(since_ms))
}

/// Converts a plan to the data plane's settings.
pub(super) fn settings(plan: &ServicePlan) -> ServiceSettings {
    let probe = plan.health.probe.as_ref();
    ServiceSettings {
        max_connections: plan.max_connections,
        connect_timeout: Duration::from_millis(plan.connect_timeout_ms),
        retries: plan.retries,
        idle_timeout: Duration::from_millis(plan.idle_timeout_ms),
        half_close_timeout: Duration::from_millis(plan.half_close_timeout_ms),
        queue_length: usize::try_from(plan.queue.length).unwrap_or(usize::MAX),
        queue_wait: Duration::from_millis(plan.queue.wait_ms),
        wait_when_down: plan.all_down == AllDown::Wait,
        accept_proxy_from: plan.accept_proxy_from.clone(),
        send_proxy: proxy_version(plan.send_proxy),
        server_speaks_first: probe.is_some_and(Probe::server_speaks_first),
        keepalive: keepalive(&plan.keepalive),
        assignment: match plan.protocol_info().connections {
            // Sessions may be short.
            ServerConnections::PerClient | ServerConnections::PerRequest => Assignment::Keep,
            ServerConnections::Pooled => Assignment::Gather,
        },
    }
}

pub(super) fn keepalive(plan: &plan::Keepalive) -> Keepalive {
    Keepalive {
        idle: Duration::from_millis(plan.idle_ms),
        interval: Duration::from_millis(plan.interval_ms),
        probes: plan.probes,
        user_timeout: Duration::from_millis(plan.user_timeout_ms),
    }
}
