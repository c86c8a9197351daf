//! Resolves host names of servers periodically. A server in a cluster uses one address at a time.

use evenkeel_config::plan::{Address, OnPrimaryChange, Role};
use evenkeel_engine::clock::now_ms;
use evenkeel_policy::health::HealthState;
use evenkeel_proxy::Endpoint;
use evenkeel_proxy::data_plane::CutCount;
use evenkeel_proxy::record::CutReason;

use super::ControlPlane;
use super::cluster::News;
use super::server::ManagedServer;
use super::timeline::NewEvent;
use crate::status::{EventKind, Severity};

/// Interval between two resolutions of a name. The system's resolver does not report a time to
/// live.
const RESOLVE_INTERVAL_MS: u64 = 10_000;

impl ManagedServer {
    pub(super) fn due_resolve(&mut self, now_ms: u64) -> Option<(String, u16)> {
        if self.resolving || now_ms < self.next_resolve_ms {
            return None;
        }
        let Address::Tcp { host, port } = &self.address else {
            return None;
        };
        self.resolving = true;
        Some((host.clone(), *port))
    }

    /// Processes a resolver's response. Returns whether the name of a cluster member no longer
    /// resolves to the address in use.
    pub(super) fn record_resolution(&mut self, answer: Result<Vec<Endpoint>, String>) -> bool {
        self.resolving = false;
        self.next_resolve_ms = now_ms() + RESOLVE_INTERVAL_MS;
        match answer {
            Ok(endpoints) => {
                self.resolve_error = None;
                if self.addresses != endpoints {
                    let to: Vec<_> = endpoints.iter().map(ToString::to_string).collect();
                    tracing::info!(server = %self.address, "resolves to {}", to.join(", "));
                    self.addresses = endpoints;
                    self.next_probe_ms = now_ms();
                }
                self.use_addresses()
            }
            // The previous addresses stay in use: a broken resolver must not make servers
            // unavailable.
            Err(error) if self.resolve_error.as_ref() != Some(&error) => {
                tracing::warn!(server = %self.address, "{error}");
                self.resolve_error = Some(error);
                false
            }
            Err(_) => false,
        }
    }

    /// Sets the addresses in use: all, but only one for a member of a cluster, since a reported
    /// role belongs to one machine. Returns whether a member's address has changed.
    pub(super) fn use_addresses(&mut self) -> bool {
        let current = self.server.endpoints().first().cloned();
        let mut wanted = self.addresses.clone();
        if self.role_task.is_some() {
            let stays = |one: &Endpoint| Some(one) == current.as_ref();
            let index = wanted.iter().position(stays).unwrap_or(0);
            wanted = wanted.into_iter().skip(index).take(1).collect();
        }
        let has_moved = current.is_some_and(|current| !wanted.contains(&current));
        if *self.server.endpoints() != wanted {
            self.server.set_endpoints(wanted);
        }
        has_moved && self.role_task.is_some()
    }

    /// Selects the next address of the host name, since the machine in use is down.
    fn use_next_address(&mut self) {
        let current = self.server.endpoints().first().cloned();
        let position = |current| self.addresses.iter().position(|one| *one == current);
        let next = current.and_then(position).map_or(0, |index| index + 1);
        if self.role_task.is_some() && self.addresses.len() > 1 {
            let endpoint = self.addresses[next % self.addresses.len()].clone();
            tracing::info!(server = %self.address, "trying next address {endpoint}");
            self.server.set_endpoints(vec![endpoint]);
        }
    }
}

impl ControlPlane {
    pub(super) fn apply_resolution(
        &mut self,
        address: &Address,
        answer: Result<Vec<Endpoint>, String>,
    ) {
        if self.apply_endpoints(address, |state| state.record_resolution(answer)) {
            self.report_move(address);
        }
    }

    /// Runs `act`, which may move a server to another machine, and returns its result. After a
    /// move, idle pool connections close and are not acquired again: they lead to the previous
    /// machine.
    fn apply_endpoints(
        &mut self,
        address: &Address,
        act: impl FnOnce(&mut ManagedServer) -> bool,
    ) -> bool {
        let Some(state) = self.servers.get_mut(address) else {
            return false;
        };
        let before = state.server.endpoints();
        let result = act(state);
        let now = state.server.endpoints();
        // Each of several addresses may be used, and a resolver may return a different part of them
        // each time.
        let is_other = !before.is_empty() && !before.iter().any(|one| now.contains(one));
        if is_other {
            self.part_from(address);
        }
        result
    }

    /// Closes every pool connection to a server as soon as it is free.
    pub(super) fn part_from(&self, address: &Address) {
        let Some(state) = self.servers.get(address) else {
            return;
        };
        for index in self.servers.listed_by(address) {
            let service = &self.services[*index];
            self.data_plane
                .disconnect_server(&service.service, state.server.id);
        }
    }

    /// Tries the next address of a cluster member that is down.
    pub(super) fn try_next_address(&mut self, address: &Address, health: HealthState) {
        if health == HealthState::Down {
            self.apply_endpoints(address, |state| {
                state.use_next_address();
                true
            });
        }
    }

    /// Handles a server's move to another machine: discards the previous machine's role, and
    /// terminates sessions that could still write to it.
    fn report_move(&mut self, address: &Address) {
        if let Some(state) = self.servers.get(address) {
            state.verify_role();
        }
        self.apply_news(address, News::Down);
        let cuts = self.cut_writers_of(address);
        let what = format!("{} moved to another address", self.name_of(address));
        let event = NewEvent::new(EventKind::State, Severity::Warning, what);
        let event = event.cause("its host name resolves to another address now");
        self.record_event(event.server(address).cut(cuts, 0));
    }

    /// Terminates the sessions on a server of services that write, if configured
    /// (`on_primary_change = "cut"`).
    fn cut_writers_of(&self, address: &Address) -> Vec<CutCount> {
        let cut = Role::Primary {
            on_change: OnPrimaryChange::Cut,
        };
        let Some(state) = self.servers.get(address) else {
            return Vec::new();
        };
        let services = self.services.iter();
        let writing = services.filter(|one| one.plan.role == cut && one.lists(address));
        writing
            .map(|one| {
                let ids = (Some(one.service.id), Some(state.server.id));
                self.data_plane.cut(ids.0, ids.1, CutReason::PrimaryChanged)
            })
            .collect()
    }
}
