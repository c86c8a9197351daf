//! What the running process says of itself (`GET /api/v1/status`), and how it is asked and told.

mod cluster;
mod control;
mod database;
mod explain;
mod timeline;
mod upgrade;

use serde::{Deserialize, Serialize};

pub use cluster::{ClusterStatus, RoleName, RoleStatus};
pub use control::{Command, ControlHandle, KillWhich, Reply, Request, Stopped};
pub use database::{
    ClientStatus, Connections, CountStatus, DatabaseStatus, DigestStatus, IdleStatus,
    PinCauseStatus, PoolStatus, RuleStatus, UsageStatus, WorkStatus,
};
pub use explain::{Explanation, Question, RuleFit, StatementStatus};
pub use timeline::{EventKind, Severity, TimelineEvent};
pub use upgrade::{UpgradeStatus, age};

/// Everything the process knows of itself at one moment. Holds no secrets, ever.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The program's version.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// When the process started.
    pub started_at_unix_ms: u64,
    /// When this answer was made.
    pub now_unix_ms: u64,
    /// The data plane.
    pub engine: EngineStatus,
    /// The old process as long as it drains after an upgrade; one at most.
    pub upgrade: Vec<UpgradeStatus>,
    /// The config in force.
    pub config: ConfigStatus,
    /// The services, in the order of the file.
    pub services: Vec<ServiceStatus>,
    /// The clusters behind services with a role.
    pub clusters: Vec<ClusterStatus>,
    /// What changed last, oldest first; `/api/v1/events` has more.
    pub events: Vec<TimelineEvent>,
}

/// The data plane: which I/O driver it runs on, and its workers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EngineStatus {
    /// `io_uring` or `epoll`.
    pub io: String,
    /// Why that driver: asked for in the file, or what the kernel answered.
    pub io_reason: String,
    /// One entry per worker thread.
    pub workers: Vec<WorkerStatus>,
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
    /// When the config in force was read.
    pub loaded_at_unix_ms: u64,
    /// Warnings of the config in force, and the errors of a later file that was refused.
    pub problems: Vec<Problem>,
}

/// A fault in a config file, as `evenkeel check --json` prints it too.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Problem {
    /// The file, when there is one.
    pub file: Option<String>,
    /// Line, counted from 1.
    pub line: Option<u32>,
    /// Column, counted from 1.
    pub column: Option<u32>,
    /// `error` or `warning`.
    pub severity: String,
    /// A stable code such as `E_UNKNOWN_KEY`.
    pub code: String,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub help: Option<String>,
}

/// One service: an address to listen on and the servers behind it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceStatus {
    /// Its name in the file.
    pub name: String,
    /// `tcp`.
    pub protocol: String,
    /// The addresses it listens on.
    pub listen: Vec<String>,
    /// The balancing algorithm.
    pub balance: String,
    /// The part of the cluster that serves: `any`, `primary` or `replica`.
    pub role: String,
    /// Whether clients are served.
    pub state: ServiceState,
    /// Why it is in this state, in words; empty when there is nothing to say.
    pub reason: String,
    /// When it came into this state.
    pub since_unix_ms: u64,
    /// Client sessions.
    pub sessions: ServiceSessions,
    /// Clients waiting for a server.
    pub queue: QueueStatus,
    /// Bytes relayed since the start.
    pub bytes: Bytes,
    /// What went wrong since the start, by kind.
    pub errors: ServiceErrors,
    /// What happened in the last full second.
    pub rates: Rates,
    /// Connects tried again on another server, since the start.
    pub retries_total: u64,
    /// Time to connect to a server, in microseconds.
    pub connect_us: Histogram,
    /// Length of finished sessions, in milliseconds.
    pub session_ms: Histogram,
    /// The last minute, oldest first, at most 60 points of one second.
    pub history: Vec<HistoryPoint>,
    /// The servers, in the order of the file; removed ones that still have sessions come last.
    pub servers: Vec<ServerStatus>,
    /// What only a service has that speaks a database's protocol.
    pub database: Option<DatabaseStatus>,
}

/// Whether a service serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServiceState {
    /// Every server that should serve does.
    Up,
    /// It serves, but some servers do not.
    Degraded,
    /// No server takes new clients.
    #[default]
    Down,
    /// It accepts nobody new: the process is ending or the service left the file.
    Stopping,
}

impl ServiceState {
    /// Every state, for those who list them.
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
    /// Open now.
    pub current: u64,
    /// `max_connections`.
    pub limit: u64,
    /// Accepted since the start.
    pub total: u64,
    /// Turned away since the start, for whatever reason.
    pub refused: u64,
}

/// The queue of a service: clients that wait because all servers are full.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueStatus {
    /// Waiting now.
    pub current: u64,
    /// At most so many wait.
    pub limit: u64,
    /// None waits longer than this.
    pub wait_ms_limit: u64,
    /// Gave up waiting since the start.
    pub timed_out_total: u64,
}

/// Bytes relayed since the start, seen from the clients.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bytes {
    /// From clients to servers.
    pub from_clients: u64,
    /// From servers to clients.
    pub to_clients: u64,
}

/// What went wrong in a service since the start; every kind counts sessions but `connect`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceErrors {
    /// Failed connects to servers (each attempt; a retry may have saved the client).
    pub connect: u64,
    /// No server could take the client.
    pub no_server: u64,
    /// The queue was full.
    pub queue_full: u64,
    /// The wait in the queue was over.
    pub queue_timeout: u64,
    /// The service's `max_connections` was reached.
    pub limit: u64,
    /// A PROXY header was missing, broken, or from a peer that is not listed.
    pub proxy_header: u64,
    /// The client reset the connection.
    pub reset_by_client: u64,
    /// The server reset the connection.
    pub reset_by_server: u64,
    /// Nothing moved for `idle_timeout_ms`.
    pub idle_timeout: u64,
    /// Cut by the balancer: drain limit, server down, end of the process.
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
}

/// A histogram with the unit of the field that holds it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Histogram {
    /// Upper bounds (inclusive), rising.
    pub bounds: Vec<u64>,
    /// How many fell into each bucket, not cumulative: one per bound, then one for the rest.
    pub counts: Vec<u64>,
    /// Sum of all values.
    pub sum: u64,
    /// How many values.
    pub count: u64,
}

/// One second of the past.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HistoryPoint {
    /// New sessions in that second.
    pub sessions_per_s: u64,
    /// Bytes in that second, both directions.
    pub bytes_per_s: u64,
    /// Sessions open at its end.
    pub current: u64,
}

/// One server of a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerStatus {
    /// Its name in the file (the address when it has none).
    pub name: String,
    /// Its address as written: `host:port` or `unix:/path`.
    pub address: String,
    /// What the name resolves to now.
    pub resolved: Vec<String>,
    /// The weight in force, 0..=256.
    pub weight: u32,
    /// The weight now, lower than `weight` during slow start.
    pub weight_effective: f64,
    /// The weight in the file.
    pub file_weight: u32,
    /// Takes clients only when no other server can.
    pub backup: bool,
    /// Whether it takes new clients.
    pub state: ServerState,
    /// Why it is in this state, in words.
    pub reason: String,
    /// When it came into this state.
    pub since_unix_ms: u64,
    /// The monitor could not do its work (wrong password, …): the server may well be healthy.
    pub monitor_problem: Option<String>,
    /// The last probe, when there was one.
    pub last_probe: Option<LastProbe>,
    /// What it is in its cluster, where a service asks for a role.
    pub role: Option<RoleStatus>,
    /// Why this service does not use it, although it is up: its role does not fit.
    pub unused_reason: Option<String>,
    /// Sessions on it from this service.
    pub sessions: ServerSessions,
    /// Bytes relayed since the start.
    pub bytes: Bytes,
    /// What went wrong since the start.
    pub errors: ServerErrors,
    /// What it has run for services that speak a database's protocol; none: there is no such one.
    pub work: Option<WorkStatus>,
    /// Smoothed time to its first byte; none before the first measurement.
    pub latency_us: Option<u64>,
    /// The last minute, oldest first, at most 60 points of one second.
    pub history: Vec<HistoryPoint>,
    /// How it differs from the file because of a command, e.g. `drained by command`.
    pub config_override: Option<String>,
}

/// Whether a server takes new clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerState {
    /// Takes clients.
    Up,
    /// Takes none: the probes or the traffic say that it does not work.
    Down,
    /// Not judged yet.
    #[default]
    Starting,
    /// Takes no new clients; old ones may finish.
    Draining,
    /// No longer in the file; its last sessions may finish.
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
    /// Whether it succeeded.
    pub ok: bool,
    /// How long it took.
    pub took_us: u64,
    /// When it ended.
    pub at_unix_ms: u64,
    /// What the server said or what failed.
    pub message: String,
}

/// Sessions on a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerSessions {
    /// Open now.
    pub current: u64,
    /// `max_connections`, when set.
    pub limit: Option<u64>,
    /// Since the start.
    pub total: u64,
}

/// What went wrong with a server since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerErrors {
    /// Failed connects.
    pub connect: u64,
    /// Closed before any byte from it.
    pub early_close: u64,
    /// Reset by it.
    pub reset: u64,
}
