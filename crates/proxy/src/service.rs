//! Holds a service for the data plane: an immutable snapshot, replaced as a whole, and counters.

pub(crate) mod activity;
pub mod database;
pub mod digests;
pub(crate) mod failover_queue;
mod fair_semaphore;
pub mod http;
mod login_limiter;
pub(crate) mod pin_causes;
pub mod rules;
pub mod stats;
pub mod tls_routes;

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use evenkeel_engine::{clock, fast_random};
use evenkeel_policy::permits::Permits;
use evenkeel_policy::server_set::{MemberSet, Pick, PickRequest, ServerSet};

use crate::counters::ServiceCounters;
use crate::server::Server;
use crate::settings::ServiceSettings;
use crate::upstream::pool_registry::{ConnectionLimits, PoolRegistry};
use crate::upstream::queue::Queue;
use database::{DatabaseService, DatabaseSnapshot};
use http::{HttpService, HttpSnapshot};
use rules::RuleSet;
use tls_routes::TlsRoutes;

/// Immutable description of how a service is served from now on.
#[derive(Debug)]
pub struct ServiceSnapshot {
    /// Limits and timeouts.
    pub settings: ServiceSettings,
    /// Members that may be picked, and the algorithm.
    pub pool: ServerSet,
    /// The servers, in the order of the pool's members.
    pub servers: Vec<Arc<Server>>,
    /// Routes of a TCP service; `None`: there are none.
    pub tls_routes: Option<Arc<TlsRoutes>>,
    /// Settings that only its protocol has.
    pub protocol: ProtocolSnapshot,
}

/// The part of a snapshot that depends on the protocol.
pub type ProtocolSnapshot = evenkeel_wire::Protocol<DatabaseSnapshot, HttpSnapshot>;

impl ServiceSnapshot {
    /// Returns the settings of a database service. `None` for other protocols.
    pub fn database(&self) -> Option<&DatabaseSnapshot> {
        self.protocol.database()
    }

    /// Returns the settings of an HTTP service. `None` for other protocols.
    pub fn http(&self) -> Option<&HttpSnapshot> {
        self.protocol.http()
    }

    /// Returns whether no server is up and clients must not wait for one.
    pub(crate) fn refuses(&self) -> bool {
        !self.settings.wait_when_down && self.pool.eligible_count() == 0
    }

    /// Returns the members with these server ids.
    pub(crate) fn members_of(&self, ids: &[u64]) -> MemberSet {
        let mut members = MemberSet::none();
        for (index, server) in self.servers.iter().enumerate() {
            if ids.contains(&server.id) {
                members.insert(index);
            }
        }
        members
    }

    /// Picks a server for a client and reserves a permit on it.
    pub(crate) fn pick(&self, key: u64, tried_ids: &[u64]) -> Pick {
        let tried = self.members_of(tried_ids);
        let now_us = clock::now_us();
        self.pool.pick(&PickRequest {
            key,
            tried: &tried,
            random: fast_random(),
            now_us,
        })
    }

    /// Returns whether the server accepts clients of the service.
    pub(crate) fn offers(&self, server_id: u64) -> bool {
        let mut members = self.pool.members().iter().zip(&self.servers);
        members.any(|(member, server)| member.accepting && server.id == server_id)
    }

    /// Returns the limits of the service's server connections. `None`: it has no pools.
    pub(crate) fn connection_limits(&self) -> Option<&ConnectionLimits> {
        match &self.protocol {
            ProtocolSnapshot::Tcp => None,
            ProtocolSnapshot::Http(http) => Some(&http.connection_limits),
            ProtocolSnapshot::Sql(database) => Some(&database.connection_limits),
        }
    }

    /// Returns whether the server belongs to the service.
    pub(crate) fn lists(&self, server_id: u64) -> bool {
        self.servers.iter().any(|server| server.id == server_id)
    }

    /// Returns whether a server that accepts clients has not failed this client yet.
    pub(crate) fn has_untried(&self, tried_ids: &[u64]) -> bool {
        let mut members = self.pool.members().iter().zip(&self.servers);
        members.any(|(member, server)| {
            member.accepting && member.weight > 0 && !tried_ids.contains(&server.id)
        })
    }
}

/// Protocol of a service, with the state that its workers share.
pub type Protocol = evenkeel_wire::Protocol<Arc<DatabaseService>, Arc<HttpService>>;

/// A service; lives until it is removed from the configuration and its sessions have ended.
#[derive(Debug)]
pub struct Service {
    /// Unique in this process, never reused.
    pub id: u64,
    /// Name in the configuration.
    pub name: Arc<str>,
    /// Counters of the service.
    pub counters: ServiceCounters,
    /// Permits for clients, limited by `max_connections`.
    pub permits: Permits,
    pub(crate) queue: Queue,
    /// Protocol of its clients and servers.
    pub protocol: Protocol,
    view: ArcSwap<ServiceSnapshot>,
}

impl Service {
    pub(crate) fn new(
        id: u64,
        name: Arc<str>,
        view: ServiceSnapshot,
        workers: usize,
        protocol: Protocol,
    ) -> Self {
        Self {
            id,
            name,
            counters: ServiceCounters::new(workers),
            permits: Permits::new(view.settings.max_connections),
            queue: Queue::default(),
            protocol,
            view: ArcSwap::from_pointee(view),
        }
    }

    /// Returns the shared state of a service with a database protocol. `None` for other protocols.
    pub fn database(&self) -> Option<&Arc<DatabaseService>> {
        self.protocol.database()
    }

    /// Returns the shared state of an HTTP service. `None` for other protocols.
    pub fn http(&self) -> Option<&Arc<HttpService>> {
        self.protocol.http()
    }

    /// Returns the pools of server connections. `None`: each client has its own.
    pub(crate) fn pool_registry(&self) -> Option<&Arc<PoolRegistry>> {
        match &self.protocol {
            Protocol::Tcp => None,
            Protocol::Http(http) => Some(&http.pool_registry),
            Protocol::Sql(database) => Some(&database.pool_registry),
        }
    }

    /// Returns the current snapshot.
    pub fn snapshot(&self) -> Guard<Arc<ServiceSnapshot>> {
        self.view.load()
    }

    /// Returns whether it is a database service with `mode = "session"`.
    pub(crate) fn keeps_connections(&self) -> bool {
        let snapshot = self.snapshot();
        let database = snapshot.database();
        database.is_some_and(|database| database.session_mode)
    }

    pub(crate) fn snapshot_owned(&self) -> Arc<ServiceSnapshot> {
        self.view.load_full()
    }

    /// Returns an operator's rules for statements, if any.
    pub(crate) fn rules(&self) -> Option<Arc<RuleSet>> {
        self.snapshot().database()?.rules.clone()
    }

    /// Replaces the snapshot. Returns true if the limits of connections have changed.
    pub(crate) fn replace_view(&self, view: ServiceSnapshot) -> bool {
        self.permits.set_limit(view.settings.max_connections);
        let new = Arc::new(view);
        let before = self.view.swap(Arc::clone(&new));
        before.connection_limits() != new.connection_limits()
    }

    /// Returns the number of clients that are served or wait.
    pub fn active(&self) -> u32 {
        self.permits.in_use()
    }

    /// Returns the number of clients like [`active`](Self::active), plus those of other processes
    /// that drain.
    pub fn active_everywhere(&self) -> u32 {
        self.active()
            .saturating_add(self.permits.in_use_elsewhere())
    }

    /// Returns the number of clients like [`active`](Self::active), plus the requests in progress
    /// that routes of other HTTP services have led here.
    pub fn active_and_routed(&self) -> u32 {
        let routed = self.http().map_or(0, |http| http.routed_requests());
        self.active().saturating_add(routed)
    }

    /// Returns the number of clients that wait for a server.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Counts a client in. Returns `None` if the service is full.
    pub(crate) fn admit(self: &Arc<Self>) -> Option<ClientPermit> {
        self.counters.sessions.add(1);
        if !self.permits.try_acquire() {
            self.counters.over_limit.add(1);
            return None;
        }
        Some(ClientPermit {
            service: Arc::clone(self),
        })
    }
}

/// A client's permit under `max_connections`, released on drop.
#[derive(Debug)]
pub(crate) struct ClientPermit {
    service: Arc<Service>,
}

impl ClientPermit {
    pub(crate) fn service(&self) -> &Arc<Service> {
        &self.service
    }
}

impl Drop for ClientPermit {
    fn drop(&mut self) {
        let returned = self.service.permits.release();
        debug_assert!(returned, "gave back a place that was not taken");
    }
}
