//! Makes the views that the data plane serves by, whenever something about a service has changed.

use std::sync::Arc;
use std::time::Duration;

use evenkeel_policy::balance::key_of;
use evenkeel_policy::pool::{Member, Pool};
use evenkeel_policy::ramp::effective_weight;
use evenkeel_proxy::settings::{Keepalive, ProxyVersion, Settings};
use evenkeel_proxy::{View, now_ms};

use super::World;
use super::server::ServerState;
use super::service::ServiceState;
use crate::config::Address;
use crate::config::plan::{self, AllDown, SendProxy, ServicePlan};
use crate::status::ServiceState as State;

impl World {
    /// Publishes every service that lists the address.
    pub(super) fn publish_all_with(&mut self, address: &Address) {
        for index in 0..self.services.len() {
            if self.services[index].lists(address) {
                self.publish(index);
            }
        }
    }

    /// Publishes the services whose slow start has come to its next step.
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

    /// Replaces what the data plane sees of one service.
    pub(super) fn publish(&mut self, index: usize) {
        let now_ms = now_ms();
        let (view, next_ramp_ms) = self.view(&self.services[index], now_ms);
        let service = &mut self.services[index];
        service.next_ramp_ms = next_ramp_ms;
        self.engine.publish(&service.service, view);
        let state = self.state_of(index);
        if self.services[index].state != state {
            self.tell_state(&self.services[index], state);
            let service = &mut self.services[index];
            service.state = state;
            service.state_since_ms = now_ms;
        }
    }

    fn tell_state(&self, offer: &ServiceState, state: State) {
        let (service, reason) = (&offer.plan.name, self.reason(offer, state));
        match state {
            State::Up => tracing::info!(service, "up: every server takes new clients"),
            State::Degraded => tracing::warn!(service, "degraded: {reason}"),
            State::Down => tracing::error!(service, "down: {reason}"),
            State::Stopping => tracing::info!(service, "{reason}"),
        }
    }

    /// Publishes a service that is not in the list yet.
    pub(super) fn publish_before_listening(&self, service: &ServiceState) {
        let (view, _) = self.view(service, now_ms());
        self.engine.publish(&service.service, view);
    }

    /// The view of a service, and when its next ramp step is due.
    fn view(&self, service: &ServiceState, now_ms: u64) -> (View, Option<u64>) {
        let (mut members, mut servers) = (Vec::new(), Vec::new());
        let mut next_ramp_ms: Option<u64> = None;
        for listed in &service.plan.servers {
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
                id: identity(&listed.address),
                weight: ramped.weight,
                backup: listed.backup,
                accepting: state.takes_clients(),
                load: Arc::clone(&state.server.load),
            });
            servers.push(Arc::clone(&state.server));
        }
        let pool = Pool::new(service.plan.balance, members, Arc::clone(&service.cursor));
        (
            View {
                settings: settings(&service.plan),
                pool,
                servers,
            },
            next_ramp_ms,
        )
    }

    /// How a service fares: up while all its servers take clients, down when none does.
    fn state_of(&self, index: usize) -> State {
        let service = &self.services[index];
        let listed = service
            .plan
            .servers
            .iter()
            .filter(|server| service.weight(server) > 0);
        let (mut all, mut taking) = (0, 0);
        for server in listed {
            all += 1;
            taking += usize::from(self.takes_clients(&server.address));
        }
        match taking {
            0 => State::Down,
            _ if taking < all => State::Degraded,
            _ => State::Up,
        }
    }
}

/// How long a server has been back; one that was never away needs no slow start.
fn up_for_ms(state: &ServerState, now_ms: u64) -> u64 {
    state
        .back_since_ms
        .map_or(u64::MAX, |since_ms| now_ms.saturating_sub(since_ms))
}

/// The same for the same address in every process, so that `source` agrees between balancers.
fn identity(address: &Address) -> u64 {
    key_of(address.to_string().as_bytes())
}

/// A plan's settings as the data plane wants them.
pub(super) fn settings(plan: &ServicePlan) -> Settings {
    Settings {
        max_connections: plan.max_connections,
        connect_timeout: Duration::from_millis(plan.connect_timeout_ms),
        retries: plan.retries,
        idle_timeout: Duration::from_millis(plan.idle_timeout_ms),
        half_close_timeout: Duration::from_millis(plan.half_close_timeout_ms),
        queue_length: usize::try_from(plan.queue.length).unwrap_or(usize::MAX),
        queue_wait: Duration::from_millis(plan.queue.wait_ms),
        wait_when_down: plan.all_down == AllDown::Wait,
        accept_proxy_from: plan.accept_proxy_from.clone(),
        send_proxy: match plan.send_proxy {
            SendProxy::Off => None,
            SendProxy::V1 => Some(ProxyVersion::V1),
            SendProxy::V2 => Some(ProxyVersion::V2),
        },
        server_speaks_first: matches!(plan.health.probe, plan::Probe::Mysql { .. }),
        keepalive: keepalive(&plan.keepalive),
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
