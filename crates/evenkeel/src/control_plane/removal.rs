//! Ends the sessions of services and servers that were removed from the configuration: they may
//! finish within a limit.

use std::sync::Arc;

use evenkeel_config::plan::ServicePlan;
use evenkeel_engine::clock::now_ms;
use evenkeel_proxy::record::CutReason;
use evenkeel_proxy::{Server, Service};

use super::ControlPlane;
use super::service::ManagedService;

/// Interval between two checks for remaining sessions.
const LAST_LOOK_MS: u64 = 1_000;

/// A removed service, or a server removed from a service. New clients do not use it.
pub(super) struct Removal {
    pub(super) service: Arc<Service>,
    /// Protocol of its sessions.
    pub(super) protocol: &'static str,
    /// Removed server. `None`: the whole service is removed.
    pub(super) server: Option<Arc<Server>>,
    /// State of the removed service. `None` if only a server is removed.
    pub(super) removed_service: Option<Box<ManagedService>>,
    /// Servers that the last sessions use. A server that is listed again meanwhile is the same.
    pub(super) servers: Vec<Arc<Server>>,
    pub(super) since_ms: u64,
    /// End of the limit, then time of the next check for remaining sessions.
    next_cut_ms: u64,
    /// Time until which connects in progress at the removal have ended. No session can appear
    /// later.
    last_cut_ms: u64,
}

impl Removal {
    /// Removes one server from a service that continues.
    pub(super) fn server(service: &Arc<Service>, server: &Arc<Server>, plan: &ServicePlan) -> Self {
        Self {
            server: Some(Arc::clone(server)),
            ..Self::of(service, vec![Arc::clone(server)], plan)
        }
    }

    /// Removes a whole service.
    pub(super) fn service(state: ManagedService, servers: Vec<Arc<Server>>) -> Self {
        let removal = Self::of(&state.service, servers, &state.plan);
        Self {
            removed_service: Some(Box::new(state)),
            ..removal
        }
    }

    fn of(service: &Arc<Service>, servers: Vec<Arc<Server>>, plan: &ServicePlan) -> Self {
        let since_ms = now_ms();
        let until_ms = since_ms.saturating_add(plan.drain_limit_ms);
        Self {
            service: Arc::clone(service),
            protocol: plan.protocol_info().name,
            server: None,
            removed_service: None,
            servers,
            since_ms,
            next_cut_ms: until_ms,
            last_cut_ms: until_ms.max(since_ms + plan.connect_timeout_ms) + LAST_LOOK_MS,
        }
    }

    pub(super) fn next_due_ms(&self) -> u64 {
        self.next_cut_ms
    }

    pub(super) fn is_empty(&self) -> bool {
        let on_server = self.server.as_ref().map(|server| server.load.active());
        self.service.active_and_routed() == 0 || on_server == Some(0)
    }
}

impl ControlPlane {
    /// Closes idle connections to removed servers. Busy ones close once they are free.
    pub(super) fn part_from_removals(&self) {
        for removal in &self.removals {
            if let Some(server) = &removal.server {
                self.data_plane
                    .disconnect_server(&removal.service, server.id);
            }
        }
    }

    /// Terminates, after the limit, the remaining sessions of drained servers, removed servers and
    /// removed services.
    pub(super) fn cut_expired(&mut self, now_ms: u64) {
        for address in self.servers.draining() {
            let Some(state) = self.servers.get_mut(&address) else {
                continue;
            };
            let Some(drain) = state.drain.as_mut() else {
                continue;
            };
            if now_ms < drain.until_ms {
                continue;
            }
            let again = drain.cut_again_ms.is_none_or(|at_ms| now_ms >= at_ms);
            // Repeated for connects that were in progress when the drain began.
            if again && state.server.load.active() > 0 {
                drain.cut_again_ms = Some(now_ms + LAST_LOOK_MS);
                self.data_plane
                    .cut(None, Some(state.server.id), CutReason::DrainLimit);
            }
        }
        let data_plane = &self.data_plane;
        self.removals.retain_mut(|removal| {
            if now_ms >= removal.next_cut_ms {
                removal.next_cut_ms = now_ms + LAST_LOOK_MS;
                let server_id = removal.server.as_ref().map(|server| server.id);
                data_plane.cut(Some(removal.service.id), server_id, CutReason::Removed);
            }
            now_ms < removal.last_cut_ms && !removal.is_empty()
        });
    }
}
