//! Builds and publishes the snapshots that the data plane uses, whenever a service changes.

use std::sync::Arc;
use std::time::Duration;

use evenkeel_engine::clock::now_ms;
use evenkeel_engine::socket::Keepalive;
use evenkeel_policy::cluster::Role;
use evenkeel_policy::ramp::effective_weight;
use evenkeel_policy::server_set::{Member, ServerSet};
use evenkeel_proxy::settings::ServiceSettings;
use evenkeel_proxy::{Protocol as ServiceProtocol, ProtocolSnapshot, Server, ServiceSnapshot};
use evenkeel_wire::proxy_header::ProxyVersion;

use super::ControlPlane;
use super::database::snapshot::set_primary_status;
use super::eligibility::Eligibility;
use super::http;
use super::server::ManagedServer;
use super::service::ManagedService;
use super::timeline::NewEvent;
use crate::config::Address;
use crate::config::plan::{self, AllDown, Probe, Protocol, SendProxy, ServicePlan};
use crate::status::{EventKind, ServiceState as State, Severity};

impl ControlPlane {
    /// Publishes every service that lists the address.
    pub(super) fn publish_all_with(&mut self, address: &Address) {
        for index in 0..self.services.len() {
            if self.services[index].lists(address) {
                self.publish(index);
            }
        }
    }

    /// Publishes every service that lists the address at the end of this turn: servers that come up
    /// together are one change.
    pub(super) fn publish_soon_all_with(&mut self, address: &Address) {
        for service in &mut self.services {
            service.is_publish_due |= service.lists(address);
        }
    }

    /// Publishes the services with a change in this turn.
    pub(super) fn publish_due(&mut self) {
        for index in 0..self.services.len() {
            if self.services[index].is_publish_due {
                self.publish(index);
            }
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
        let eligibilities = self.eligibilities(&self.services[index]);
        self.report_eligibility(index, &eligibilities);
        let (snapshot, next_ramp_ms) = self.snapshot(&self.services[index], &eligibilities, now_ms);
        let service = &mut self.services[index];
        service.eligibilities = eligibilities;
        service.next_ramp_ms = next_ramp_ms;
        service.is_publish_due = false;
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
        let listed = managed
            .plan
            .servers
            .iter()
            .zip(managed.eligibilities.iter().zip(eligibilities));
        let mut events = Vec::new();
        for (server, (before, now)) in listed {
            let cluster = self.cluster_of(&server.address);
            let state = self.servers.get(&server.address);
            let is_replica = cluster.zip(state).is_some_and(|(cluster, state)| {
                matches!(cluster.role(state.server.id), Role::Replica(_))
            });
            let remains_used = [before, now]
                .iter()
                .all(|eligibility| !matches!(eligibility, Eligibility::Unused(_)));
            let wanted = matches!(managed.plan.role, plan::Role::Replica { .. });
            if remains_used || before == now || !is_replica || !wanted {
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
            &self.eligibilities(removed_service),
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
        let (snapshot, _) = self.snapshot(service, &self.eligibilities(service), now_ms());
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
            let up_for_ms = up_for_ms(state, now_ms);
            let ramped = effective_weight(
                service.weight(listed),
                up_for_ms,
                service.plan.slow_start_ms,
            );
            if let Some(in_ms) = ramped.next_step_in_ms.filter(|_| state.takes_clients()) {
                let at_ms = now_ms + in_ms;
                next_ramp_ms = Some(next_ramp_ms.map_or(at_ms, |known| known.min(at_ms)));
            }
            members.push(Member {
                id: state.identity,
                weight: ramped.weight,
                backup: listed.backup || *eligibility == Eligibility::Reserve,
                accepting: state.takes_clients() && !matches!(eligibility, Eligibility::Unused(_)),
                load: Arc::clone(&state.server.load),
            });
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
        let listed = self.listed(service);
        let (mut all, mut serving, mut reserve) = (0, 0, false);
        for (server, eligibility) in listed.filter(|(server, _)| service.weight(server) > 0) {
            let should = self.should_serve(service, &server.address);
            all += usize::from(should);
            let serves = self.serves((server, &eligibility));
            serving += usize::from(serves && should);
            reserve |= serves && !should;
        }
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
        assignment: plan.protocol_info().assignment,
    }
}

pub(super) fn proxy_version(send: SendProxy) -> Option<ProxyVersion> {
    match send {
        SendProxy::Off => None,
        SendProxy::V1 => Some(ProxyVersion::V1),
        SendProxy::V2 => Some(ProxyVersion::V2),
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
