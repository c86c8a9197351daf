//! Holds the state of an HTTP service: what its workers share for its lifetime, and the settings of
//! a snapshot.

pub mod basic_auth;
mod challenges;
pub mod error_pages;
mod logged_errors;
pub mod route_stats;
pub mod routes;
mod server;
pub mod stats;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use evenkeel_engine::panics::lock;
use evenkeel_policy::connection_pool::{PoolSettings, SharedPools};
use evenkeel_policy::http::budget::RetryBudget;
use evenkeel_policy::http::replay::ReplaySettings;
use evenkeel_tls::{HttpAcceptor, ServerEncryption};

pub use self::challenges::{ChallengeAnswers, Challenges};
pub use self::server::HttpServer;
pub(crate) use self::server::now_s;

use self::route_stats::RouteStats;
use self::routes::{ClientSettings, Routes, StickyCookie};
use self::stats::HttpStats;
use super::stats::PoolInfo;
use crate::access_log::AccessLogSettings;
use crate::counters::work::LocalCounter;
use crate::server::Server;
use crate::session::password_rate_limit::PasswordRateLimit;
use crate::upstream::pool_registry::{ConnectionLimits, PoolRegistry};

/// Settings that only services with `protocol = "http"` have.
#[derive(Debug)]
pub struct HttpSnapshot {
    /// Limits of server connections.
    pub connection_limits: ConnectionLimits,
    /// Time limits.
    pub time_limits: HttpTimeLimits,
    /// Limits of sizes.
    pub size_limits: HttpSizeLimits,
    /// Requests that are sent again.
    pub retry: RetrySettings,
    /// Routes; `None`: there are none.
    pub routes: Option<Arc<Routes>>,
    /// Treatment of clients and their addresses.
    pub clients: Arc<ClientSettings>,
    /// Cookie that keeps clients on their servers. `None`: off.
    pub sticky: Option<StickyCookie>,
    /// Servers, in the order of the snapshot.
    pub servers: Vec<Arc<HttpServer>>,
    /// Access log; `None`: off.
    pub access_log: Option<AccessLogSettings>,
    /// TLS towards clients; `None`: plaintext.
    pub tls: Option<Arc<HttpAcceptor>>,
    /// Servers that get HTTP/2.
    pub server_http2: ServerHttp2,
    /// Answers to challenges of a certificate authority. `None`: no certificate comes by ACME.
    pub challenges: Option<Arc<Challenges>>,
    /// Encryption towards the servers by server id; a server without an entry cannot be used.
    pub server_encryption: HashMap<u64, ServerEncryption>,
}

impl HttpSnapshot {
    /// Returns whether a server gets HTTP/2 without asking it.
    pub(crate) fn speaks_http2_only(&self, server: &Server) -> bool {
        let encryption = self.server_encryption.get(&server.id);
        let is_plaintext = matches!(encryption, Some(ServerEncryption::Plaintext));
        self.server_http2 == ServerHttp2::All && is_plaintext
    }
}

/// Servers that get HTTP/2.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ServerHttp2 {
    /// None.
    #[default]
    Off,
    /// Those with TLS that agree to it (ALPN, RFC 7301).
    Tls,
    /// Also all those without TLS (RFC 9113 §3.3).
    All,
}

/// Time in which the rate of a request body is not judged.
pub const BODY_RATE_GRACE: Duration = Duration::from_secs(10);

/// Time limits of requests; zero: no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpTimeLimits {
    /// Limit from the first byte of a request head to its end.
    pub header: Duration,
    /// Limit from the end of a request to the first byte of the response.
    pub first_byte: Duration,
    /// Limit of a client's silence between two requests.
    pub keepalive: Duration,
    /// Limit of silence while a body is in progress.
    pub body_idle: Duration,
    /// Limit from the head of a request to the end of its response.
    pub request: Duration,
    /// Minimum rate of a request body in bytes per second, after the first
    /// [`BODY_RATE_GRACE`]; zero: none.
    pub body_rate_min: u64,
    /// Limit of silence in a tunnel, such as a WebSocket.
    pub tunnel_idle: Duration,
}

/// Limits of sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpSizeLimits {
    /// Limit of a request head or response head, in bytes.
    pub head: usize,
    /// Limit of the number of fields in a head.
    pub fields: usize,
    /// Limit of a request body, in bytes; [`u64::MAX`]: none.
    pub body: u64,
}

/// Requests that are sent again after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetrySettings {
    /// Requests that may be sent again.
    pub replay: ReplaySettings,
    /// Part of the requests in flight that may be retries, in percent.
    pub budget_percent: u32,
    /// Length in bytes up to which a body is kept for another attempt.
    pub body_hold_bytes: usize,
}

/// State that the workers of a service share for the service's lifetime.
#[derive(Debug)]
pub struct HttpService {
    pub(crate) pool_registry: Arc<PoolRegistry>,
    /// Servers by id.
    servers: Mutex<HashMap<u64, Arc<HttpServer>>>,
    pub(crate) retry_budget: RetryBudget,
    pub(crate) password_rate_limit: PasswordRateLimit,
    /// True after the service has stopped to accept clients: each client connection ends after its
    /// request.
    is_draining: AtomicBool,
    /// Number of requests in progress that routes of other services have led here.
    routed: AtomicU32,
    /// One of each worker, and a last one for other processes, which the control plane writes.
    stats: Box<[HttpStats]>,
    /// Statistics of the routes, in the order of the file.
    route_stats: Mutex<Vec<Arc<RouteStats>>>,
}

/// Counts a request that a route of another service has led to a service, until it is dropped.
pub(crate) struct RoutedRequest(Arc<HttpService>);

impl RoutedRequest {
    pub(crate) fn begin(service: &Arc<HttpService>) -> Self {
        service.routed.fetch_add(1, Relaxed);
        Self(Arc::clone(service))
    }
}

impl Drop for RoutedRequest {
    fn drop(&mut self) {
        self.0.routed.fetch_sub(1, Relaxed);
    }
}

impl HttpService {
    /// Creates the state of a service without connections.
    pub fn new(workers: usize, pool: PoolSettings) -> Self {
        let pools = SharedPools::new(workers, u32::MAX, pool);
        Self {
            pool_registry: Arc::new(PoolRegistry::new(pools)),
            servers: Mutex::default(),
            retry_budget: RetryBudget::default(),
            password_rate_limit: PasswordRateLimit::default(),
            is_draining: AtomicBool::new(false),
            routed: AtomicU32::new(0),
            stats: (0..=workers).map(|_| HttpStats::default()).collect(),
            route_stats: Mutex::default(),
        }
    }

    /// Applies changed settings of the pools from a reload.
    pub fn set_pool_settings(&self, pool: PoolSettings) {
        self.pool_registry.pools.set_settings(pool);
    }

    /// Sets whether client connections end after their current request, idle ones soon.
    pub fn set_draining(&self, is_draining: bool) {
        self.is_draining.store(is_draining, Relaxed);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Relaxed)
    }

    /// Returns the number of requests in progress that routes of other services have led here.
    pub(crate) fn routed_requests(&self) -> u32 {
        self.routed.load(Relaxed)
    }

    /// Returns the state of a server, which all snapshots share.
    pub fn server(&self, server_id: u64) -> Arc<HttpServer> {
        Arc::clone(lock(&self.servers).entry(server_id).or_default())
    }

    /// Returns the counters of each worker, and those of other processes.
    pub fn stats(&self) -> &[HttpStats] {
        &self.stats
    }

    /// Returns the statistics of routes with these names; routes of one name share them. Those of
    /// names that are gone are dropped, others go on.
    pub fn adopt_routes<'a>(&self, names: impl Iterator<Item = &'a str>) -> Vec<Arc<RouteStats>> {
        let mut known = lock(&self.route_stats);
        let count = self.stats.len();
        let mut all: Vec<Arc<RouteStats>> = Vec::new();
        for name in names {
            let mut found = all.iter().chain(&*known);
            let found = found.find(|stats| stats.name == name).map(Arc::clone);
            all.push(found.unwrap_or_else(|| Arc::new(RouteStats::new(name, count))));
        }
        *known = all.clone();
        all
    }

    /// Returns the statistics of the routes, once for each name.
    pub fn route_stats(&self) -> Vec<Arc<RouteStats>> {
        let all = lock(&self.route_stats);
        let is_first = |(index, stats): &(usize, &Arc<RouteStats>)| {
            !all[..*index].iter().any(|one| Arc::ptr_eq(one, stats))
        };
        let firsts = all.iter().enumerate().filter(is_first);
        firsts.map(|(_, stats)| Arc::clone(stats)).collect()
    }

    /// Returns the sum of each counter with its name, for transfer to another process.
    pub fn tallies(&self) -> Vec<(&'static str, u64)> {
        let mut sums: Vec<(&'static str, u64)> = Vec::new();
        for stats in &self.stats {
            for (index, (name, tally)) in stats.tallies().into_iter().enumerate() {
                match sums.get_mut(index) {
                    Some(sum) => sum.1 += tally.get(),
                    None => sums.push((name, tally.get())),
                }
            }
        }
        sums
    }

    /// Adds what another process has counted under this name. Unknown names are ignored. Only the
    /// control plane may call it.
    pub fn add_counted(&self, name: &str, more: u64) {
        let tallies = self.stats.last().map(HttpStats::tallies);
        let mut tallies = tallies.into_iter().flatten();
        if let Some((_, tally)) = tallies.find(|(known, _)| *known == name) {
            tally.add(more);
        }
    }

    /// Adds the histogram that another process has counted under this name.
    pub fn add_histogram(&self, name: &str, counts: &[u64], sum: u64) {
        let histograms = self.stats.last().map(HttpStats::histograms);
        let mut histograms = histograms.into_iter().flatten();
        if let Some((_, histogram)) = histograms.find(|(known, _)| *known == name) {
            histogram.add_counted(counts, sum);
        }
    }

    /// Returns the number of requests that were answered.
    pub fn requests(&self) -> u64 {
        let responses = self.stats.iter().flat_map(|stats| &stats.responses);
        responses.map(LocalCounter::get).sum()
    }

    /// Returns the pools, one entry for each server.
    pub fn pools(&self) -> Vec<PoolInfo> {
        self.pool_registry.describe()
    }
}
