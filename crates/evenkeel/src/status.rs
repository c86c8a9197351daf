//! Defines the status that the running process reports (`GET /api/v1/status`), and the requests
//! that are sent to the control plane.

mod acme;
mod cluster;
mod control;
mod database;
mod explain;
mod http;
mod selection;
mod timeline;
mod upgrade;

use evenkeel_config::ReportedProblem;
use evenkeel_proxy::counters;
use evenkeel_wire::SqlProtocol;
use serde::{Deserialize, Serialize};

pub use acme::{AcmeStatus, CertificateStatus};
pub use cluster::{ClusterStatus, RoleName, RoleStatus};
pub use control::{Command, ControlHandle, KillWhich, Reply, Request, RevocationReason, Stopped};
pub use database::{
    ClientStatus, Connections, CountStatus, DatabaseStatus, DigestStatus, IdleStatus,
    PinCauseStatus, PoolStatus, RuleStatus, UsageStatus, WorkStatus,
};
pub use explain::{Explanation, Question, RuleFit, StatementStatus};
pub use http::{HttpPoolStatus, HttpRouteStatus, HttpStatus};
pub use selection::{
    SERVERS_LISTED_MAX, SERVERS_SHOWN_MAX, ServerCounts, ServerSelection, StatusSelection,
};
pub use timeline::{EventKind, Severity, TimelineEvent};
pub use upgrade::{UpgradeStatus, age};

/// Status of the process at one moment. Never contains secrets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The program's version.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// Time at which the process started.
    pub started_at_unix_ms: u64,
    /// Time of this response.
    pub now_unix_ms: u64,
    /// The data plane.
    pub engine: EngineStatus,
    /// State of the old process while it drains after an upgrade; at most one.
    pub upgrade: Vec<UpgradeStatus>,
    /// The config in force.
    pub config: ConfigStatus,
    /// The services, in the order of the file.
    pub services: Vec<ServiceStatus>,
    /// Clusters of the services with a role.
    pub clusters: Vec<ClusterStatus>,
    /// Certificates that come by ACME. `None`: none do.
    pub acme: Option<AcmeStatus>,
    /// Latest events, oldest first; `/api/v1/events` returns more.
    pub events: Vec<TimelineEvent>,
}

/// The data plane: which I/O driver it runs on, and its workers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EngineStatus {
    /// `io_uring` or `epoll`.
    pub io: String,
    /// Reason for that driver: set in the file, or the result of the kernel check.
    pub io_reason: String,
    /// One entry per worker thread.
    pub workers: Vec<WorkerStatus>,
    /// Requests that are missing in the access log because its writer was too slow.
    pub requests_not_logged_total: u64,
}

/// One worker thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerStatus {
    /// Client sessions on this worker now.
    pub sessions: u64,
}

/// The config in force, and what was wrong with the last one offered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConfigStatus {
    /// The file; none when the process was started with `--listen/--to`.
    pub path: Option<String>,
    /// Time at which the config in force was read.
    pub loaded_at_unix_ms: u64,
    /// Warnings of the config in force, and the errors of a later file that was rejected.
    pub problems: Vec<ReportedProblem>,
}

/// One service: an address to listen on, and its servers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceStatus {
    /// Name in the file.
    pub name: String,
    /// Cluster that it names. `None`: it lists its servers itself.
    pub cluster: Option<String>,
    /// `tcp`.
    pub protocol: String,
    /// The addresses it listens on.
    pub listen: Vec<String>,
    /// The balancing algorithm.
    pub balance: String,
    /// The part of the cluster that serves: `any`, `primary` or `replica`.
    pub role: String,
    /// State of the service.
    pub state: ServiceState,
    /// Reason for this state. Empty if there is nothing to report.
    pub reason: String,
    /// Time at which it entered this state.
    pub since_unix_ms: u64,
    /// Client sessions.
    pub sessions: ServiceSessions,
    /// Clients waiting for a server.
    pub queue: QueueStatus,
    /// Bytes relayed since the start.
    pub bytes: Bytes,
    /// Errors since the start, by kind.
    pub errors: ServiceErrors,
    /// Rates in the last full second.
    pub rates: Rates,
    /// Connects retried on another server, since the start.
    pub retries_total: u64,
    /// Time to connect to a server, in microseconds.
    pub connect_us: Histogram,
    /// Length of finished sessions, in milliseconds.
    pub session_ms: Histogram,
    /// The last minute, oldest first, at most 60 points of one second.
    pub history: Vec<HistoryPoint>,
    /// The servers, in the order of the file; removed ones that still have sessions come last. Not
    /// all of them if there are many, see [`StatusSelection`].
    pub servers: Vec<ServerStatus>,
    /// Number of servers in all and in each state, listed or not.
    pub server_counts: ServerCounts,
    /// Status of a service with a database protocol. `None` for others.
    pub database: Option<DatabaseStatus>,
    /// Status of a service with `protocol = "http"`. `None` for others.
    pub http: Option<HttpStatus>,
}

impl ServiceStatus {
    /// Returns whether each pool belongs to a database.
    pub fn has_database_pools(&self) -> bool {
        SqlProtocol::named(&self.protocol).is_some_and(SqlProtocol::fixes_database)
    }
}

/// State of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServiceState {
    /// Every server that should serve does.
    Up,
    /// Some servers that should serve do not.
    Degraded,
    /// No server takes new clients.
    #[default]
    Down,
    /// New clients are not accepted: the process is stopping, or the service was removed from the
    /// file.
    Stopping,
}

impl ServiceState {
    /// All states, for lists.
    pub const ALL: [Self; 4] = [Self::Up, Self::Degraded, Self::Down, Self::Stopping];

    /// The word used in JSON, metrics and on the page.
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Degraded => "degraded",
            Self::Down => "down",
            Self::Stopping => "stopping",
        }
    }
}

/// Client sessions of a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceSessions {
    /// Number of open sessions.
    pub current: u64,
    /// `max_connections`.
    pub limit: u64,
    /// Accepted since the start.
    pub total: u64,
    /// Number of clients refused since the start, for any reason.
    pub refused: u64,
}

/// The queue of a service: clients that wait because all servers are full.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueStatus {
    /// Number of clients waiting.
    pub current: u64,
    /// Maximum number of waiting clients.
    pub limit: u64,
    /// Longest permitted wait, in milliseconds.
    pub wait_ms_limit: u64,
    /// Number of clients whose wait timed out, since the start.
    pub timed_out_total: u64,
}

/// Bytes relayed since the start, from the view of the clients.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bytes {
    /// Bytes from clients to servers.
    pub from_clients: u64,
    /// Bytes from servers to clients.
    pub to_clients: u64,
}

/// Errors of a service since the start. Every kind except `connect` counts sessions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceErrors {
    /// Failed connects to servers: each attempt counts, even if a retry succeeded.
    pub connect: u64,
    /// No server could take the client.
    pub no_server: u64,
    /// The queue was full.
    pub queue_full: u64,
    /// The wait in the queue timed out.
    pub queue_timeout: u64,
    /// The service's `max_connections` was reached.
    pub limit: u64,
    /// A PROXY header was missing, broken, or from a peer that is not listed.
    pub proxy_header: u64,
    /// No route matched, and the service has no servers, or the ClientHello did not arrive in time.
    pub unrouted: u64,
    /// Too many floods of HTTP/2 frames came from the client's address.
    pub flooding: u64,
    /// The client reset the connection.
    pub reset_by_client: u64,
    /// The server reset the connection.
    pub reset_by_server: u64,
    /// No bytes were relayed for `idle_timeout_ms`.
    pub idle_timeout: u64,
    /// Terminated by the balancer: drain limit, server down, end of the process.
    pub terminated: u64,
}

/// The last full second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rates {
    /// New sessions per second.
    pub sessions: u64,
    /// Bytes per second from clients.
    pub bytes_in: u64,
    /// Bytes per second to clients.
    pub bytes_out: u64,
    /// HTTP requests answered per second.
    pub requests: u64,
}

/// Histogram with the unit of the field that contains it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Histogram {
    /// Upper bounds (inclusive), ascending.
    pub bounds: Vec<u64>,
    /// Number of values in each bucket, not cumulative: one per bound, then one for the rest.
    pub counts: Vec<u64>,
    /// Sum of all values.
    pub sum: u64,
    /// Number of values.
    pub count: u64,
}

impl From<&counters::Histogram> for Histogram {
    fn from(histogram: &counters::Histogram) -> Self {
        let counts = histogram.counts();
        Self {
            bounds: histogram.bounds().to_vec(),
            count: counts.iter().sum(),
            counts,
            sum: histogram.sum(),
        }
    }
}

/// One second of the past.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HistoryPoint {
    /// New sessions in that second.
    pub sessions_per_s: u64,
    /// Bytes in that second, both directions.
    pub bytes_per_s: u64,
    /// Sessions open at the end of that second.
    pub current: u64,
    /// HTTP requests answered in that second.
    pub requests_per_s: u64,
}

/// One server of a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerStatus {
    /// Name in the file, or the address if it has none.
    pub name: String,
    /// Address as written: `host:port` or `unix:/path`.
    pub address: String,
    /// Addresses to which the name currently resolves.
    pub resolved: Vec<String>,
    /// The weight in force, 0..=256.
    pub weight: u32,
    /// The weight now, lower than `weight` during slow start.
    pub weight_effective: f64,
    /// The weight in the file.
    pub file_weight: u32,
    /// True if it takes clients only when no other server can.
    pub backup: bool,
    /// State of the server.
    pub state: ServerState,
    /// Reason for this state.
    pub reason: String,
    /// Time at which it entered this state.
    pub since_unix_ms: u64,
    /// Reason why the monitor cannot work (wrong password, …), although the server may be healthy.
    pub monitor_problem: Option<String>,
    /// The last probe, when there was one.
    pub last_probe: Option<LastProbe>,
    /// Role in its cluster, if a service requires a role.
    pub role: Option<RoleStatus>,
    /// Reason why this service does not use the server although it is up: its role does not fit.
    pub unused_reason: Option<String>,
    /// Sessions of this service on the server.
    pub sessions: ServerSessions,
    /// Bytes relayed since the start.
    pub bytes: Bytes,
    /// Errors since the start.
    pub errors: ServerErrors,
    /// Statements executed for services with a database protocol. `None` if there is no such
    /// service.
    pub work: Option<WorkStatus>,
    /// Smoothed time to the server's first byte. `None` before the first measurement.
    pub latency_us: Option<u64>,
    /// The last minute, oldest first, at most 60 points of one second.
    pub history: Vec<HistoryPoint>,
    /// Difference from the file that a command caused, e.g. `drained by command`.
    pub config_override: Option<String>,
}

/// State of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerState {
    /// The server takes new clients.
    Up,
    /// The server takes no clients: probes or traffic indicate a failure.
    Down,
    /// No result is available yet.
    #[default]
    Starting,
    /// The server takes no new clients; existing sessions may finish.
    Draining,
    /// The server is no longer in the file; its last sessions may finish.
    Removed,
}

impl ServerState {
    /// Every state, for those who list them.
    pub const ALL: [Self; 5] = [
        Self::Up,
        Self::Down,
        Self::Starting,
        Self::Draining,
        Self::Removed,
    ];

    /// The word used in JSON, metrics and on the page.
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::Starting => "starting",
            Self::Draining => "draining",
            Self::Removed => "removed",
        }
    }
}

/// The outcome of a server's last probe.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LastProbe {
    /// True if the probe succeeded.
    pub ok: bool,
    /// Duration of the probe.
    pub took_us: u64,
    /// Time at which the probe ended.
    pub at_unix_ms: u64,
    /// Response of the server, or the error.
    pub message: String,
}

/// Sessions on a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerSessions {
    /// Number of open sessions.
    pub current: u64,
    /// `max_connections`, when set.
    pub limit: Option<u64>,
    /// Number of sessions since the start.
    pub total: u64,
}

/// Errors of a server since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerErrors {
    /// Failed connects.
    pub connect: u64,
    /// Connections that the server closed before it sent any byte.
    pub early_close: u64,
    /// Connections that the server reset.
    pub reset: u64,
}
