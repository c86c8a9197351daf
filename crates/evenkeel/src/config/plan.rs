//! Defines the checked plan: the content of the config file as plain data, with all defaults.

mod auth;
mod database;
mod http;
mod peers;
mod pool;
mod protocol;
mod role;
mod route;
mod rule;
mod split;
mod tls;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

pub use evenkeel_monitor::probe::Probe;
use evenkeel_monitor::probe::{AccountSource, MonitorAccount, TcpProbe, TlsUse};
use evenkeel_policy::balance::Algorithm;
use ipnet::IpNet;

pub use super::address::{Address, Listen};
pub use auth::{AccountPlan, AuthPlan, AuthSource, Credential, UserPlan};
pub use database::{DatabasePlan, TimesPlan};
pub use http::{
    AccessLog, AccessLogPlan, ErrorPagePlan, HashKeyPlan, HttpClientsPlan, HttpLimitsPlan,
    HttpPlan, HttpPoolPlan, HttpTimesPlan, Https, RetryPlan, SameSite, StickyPlan,
};
pub use peers::PeersPlan;
pub use pool::{PoolMode, PoolPlan};
pub use protocol::{PROTOCOL_NAMES, Protocol, ProtocolInfo, ServerConnections, SqlProtocol};
pub use role::{Fallback, OnPrimaryChange, Role};
pub use route::{
    BasicAuthPlan, ContentPlan, RespondPlan, RouteLimitsPlan, RoutePlan, RouteTarget,
    TlsRoutesPlan, default_name, route_table,
};
pub use rule::{RulePlan, RuleTo};
pub use split::{Consistency, FailoverPlan, SplitPlan};
pub use tls::{NamedCertificate, OwnCertificate, PemFile, ServerTls, TlsMode, TlsPlan};

/// Complete configuration of one process. Immutable: a reload creates a new one.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// File from which it was read. `None`: the command line.
    pub path: Option<PathBuf>,
    /// Threads and driver of the data plane.
    pub engine: Engine,
    /// Status page, API and control socket.
    pub admin: Admin,
    /// Settings of the log.
    pub log: Log,
    /// Other Evenkeel instances that serve the same clients.
    pub peers: PeersPlan,
    /// Services, at least one.
    pub services: Vec<ServicePlan>,
}

/// `[engine]`: read at start; a change requires a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engine {
    /// Default: io_uring if the kernel permits it, else epoll.
    pub io: Io,
    /// Worker threads, 1 to 1024. `None`: one per core.
    pub workers: Option<usize>,
    /// Limit for sessions to finish after SIGTERM. Default 30 000 ms, up to a day.
    pub shutdown_limit_ms: u64,
}

/// Driver of the data plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Io {
    /// io_uring if it works on this machine, else epoll.
    Auto,
    /// io_uring, or an error at start.
    IoUring,
    /// Always epoll.
    Epoll,
}

/// `[admin]`: monitoring and control of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// Address of status page, JSON API and `/metrics`. Default 127.0.0.1:9000. `None`: off.
    pub listen: Option<SocketAddr>,
    /// Address of the console for PostgreSQL clients. Default none.
    pub postgres: Option<SocketAddr>,
    /// Address of the console for MySQL clients. Default none.
    pub mysql: Option<SocketAddr>,
    /// Path of the control socket (mode 0600).
    pub socket: PathBuf,
    /// Token for changes over TCP, and for reading from other machines. `None`: neither.
    pub token: Option<Secret>,
    /// Names that a browser may use for this process, besides IP addresses and localhost.
    pub allowed_hosts: Vec<String>,
}

/// `[log]`: log lines on standard error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// Format of the lines. Default text.
    pub format: LogFormat,
    /// Lowest level that is written. Default info.
    pub level: LogLevel,
    /// True if each finished connection writes a line. Default false.
    pub connections: bool,
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// `key=value`, for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Lowest level that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Problems that need an operator.
    Error,
    /// Also conditions that may soon need one.
    Warn,
    /// Also changes.
    Info,
    /// Also the reasons for decisions.
    Debug,
    /// Also everything else.
    Trace,
}

impl LogLevel {
    /// Returns the word in the file, which is also `tracing`'s.
    pub fn name(self) -> &'static str {
        match self {
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
            LogLevel::Trace => "trace",
        }
    }
}

/// `[[service]]`: addresses to listen on, servers, and the choice between them.
#[derive(Clone, Debug, PartialEq)]
pub struct ServicePlan {
    /// Unique in the file; letters, digits, `.`, `_` and `-`, up to 64.
    pub name: String,
    /// `[[cluster]]` that lists its servers. `None`: the service lists them itself.
    pub cluster: Option<String>,
    /// Protocol of the clients and servers.
    pub protocol: Protocol,
    /// Addresses to listen on. Empty only if routes of other services lead to it.
    pub listen: Vec<Listen>,
    /// Balancing algorithm. Default round-robin; least-connections for postgres and mysql.
    pub balance: Algorithm,
    /// Role that a server must have. Default any; always any for postgres and mysql.
    pub role: Role,
    /// Servers. Empty only for a service with routes.
    pub servers: Vec<ServerPlan>,
    /// Concurrent clients, 1 to 1 000 000. Default 10 000. Others are closed immediately.
    pub max_connections: u32,
    /// Limit for one attempt at one server, 1 ms to 10 minutes. Default 2 000.
    pub connect_timeout_ms: u64,
    /// Further attempts after a failed connect, on another server if there is one. 0 to 100,
    /// default 3.
    pub retries: u32,
    /// Limit for silence of both sides. Default 28 800 000 (8 hours), for postgres and mysql 0; 0 =
    /// no limit.
    pub idle_timeout_ms: u64,
    /// Limit for silence after one side has ended. Default 300 000; 0 = no limit.
    pub half_close_timeout_ms: u64,
    /// Queue of clients while every server is full.
    pub queue: Queue,
    /// Time until a recovered server has its full weight. Default 0 = immediately.
    pub slow_start_ms: u64,
    /// Limit for sessions of a drained or removed server to finish. Default 30 000; 0 = they are
    /// terminated immediately.
    pub drain_limit_ms: u64,
    /// Treatment of sessions on a server that goes down. Default leave.
    pub on_server_down: OnServerDown,
    /// Treatment of new clients while no server is up. Default refuse.
    pub all_down: AllDown,
    /// Peers that must begin with a PROXY header. Default none.
    pub accept_proxy_from: Vec<IpNet>,
    /// PROXY header sent to servers. Default none.
    pub send_proxy: SendProxy,
    /// Keepalive settings, for clients and servers.
    pub keepalive: Keepalive,
    /// Active health checks.
    pub health: Health,
    /// Account with which database probes log in.
    pub monitor: Option<Monitor>,
    /// TLS to servers, for probes, monitors and sessions of database protocols.
    pub server_tls: ServerTls,
    /// Routes of a tcp service. Empty for others.
    pub tls_routes: TlsRoutesPlan,
}

impl ServicePlan {
    /// Returns the place of the monitor account in a file.
    pub fn account_source(&self) -> AccountSource {
        match self.cluster {
            Some(_) => AccountSource::Cluster,
            None => AccountSource::Service,
        }
    }

    /// Returns a service with all defaults of its protocol.
    pub fn with_defaults(name: String, protocol: Protocol) -> ServicePlan {
        let info = ProtocolInfo::of(&protocol);
        ServicePlan {
            name,
            cluster: None,
            listen: Vec::new(),
            balance: info.balance,
            role: Role::Any,
            servers: Vec::new(),
            max_connections: 10_000,
            connect_timeout_ms: 2_000,
            retries: 3,
            idle_timeout_ms: info.idle_timeout_ms,
            half_close_timeout_ms: 300_000,
            queue: Queue::default(),
            slow_start_ms: 0,
            drain_limit_ms: 30_000,
            on_server_down: OnServerDown::Leave,
            all_down: AllDown::Refuse,
            accept_proxy_from: Vec::new(),
            send_proxy: SendProxy::Off,
            keepalive: Keepalive::default(),
            health: Health {
                probe: Some(info.default_probe(false)),
                ..Health::default()
            },
            monitor: None,
            server_tls: ServerTls::default(),
            tls_routes: TlsRoutesPlan::default(),
            protocol,
        }
    }

    /// Returns the properties of the protocol.
    pub fn protocol_info(&self) -> &'static ProtocolInfo {
        ProtocolInfo::of(&self.protocol)
    }

    /// Returns the settings of a service with a database protocol. `None` for other protocols.
    pub fn database(&self) -> Option<&DatabasePlan> {
        self.protocol.database().map(|database| &**database)
    }

    /// Returns the settings of an HTTP service. `None` for other protocols.
    pub fn http(&self) -> Option<&HttpPlan> {
        self.protocol.http().map(|http| &**http)
    }

    /// Returns the routes, in the order of the file.
    pub fn routes(&self) -> &[RoutePlan] {
        self.http()
            .map_or(&self.tls_routes.routes, |http| &http.routes)
    }

    /// Returns `[service.tls]`: TLS towards clients. `None`: there is none.
    pub fn tls(&self) -> Option<&TlsPlan> {
        match &self.protocol {
            Protocol::Tcp => None,
            Protocol::Http(http) => http.tls.as_ref(),
            Protocol::Sql(database) => database.tls.as_ref(),
        }
    }
}

/// One server of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerPlan {
    /// Unique in its service. Default: the address.
    pub name: String,
    /// Address. Services that list the same address share the state of the server.
    pub address: Address,
    /// Weight for balancing, 0 to 256. Default 1; 0 takes no new clients.
    pub weight: u32,
    /// True if it is used only while no other server of the service is up. Default false.
    pub backup: bool,
    /// Concurrent sessions over all services, from 1. `None`: no limit.
    pub max_connections: Option<u32>,
}

impl ServerPlan {
    /// Returns a server with all defaults.
    pub fn at(address: Address) -> ServerPlan {
        ServerPlan {
            name: address.to_string(),
            address,
            weight: 1,
            backup: false,
            max_connections: None,
        }
    }
}

/// `[service.queue]`: queue of clients while every server is full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Maximum number of queued clients. Default 1 000; 0 = no queue.
    pub length: u32,
    /// Limit for the wait of each client, 1 ms to 10 minutes. Default 5 000.
    pub wait_ms: u64,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue {
            length: 1_000,
            wait_ms: 5_000,
        }
    }
}

/// Treatment of sessions on a server that goes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnServerDown {
    /// Sessions continue until one side ends them.
    Leave,
    /// Sessions are reset.
    Cut,
}

/// Treatment of new clients while no server is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllDown {
    /// Clients are disconnected immediately.
    Refuse,
    /// Clients wait in the queue.
    Wait,
}

/// PROXY header sent to servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SendProxy {
    /// None.
    #[default]
    Off,
    /// Text format.
    V1,
    /// Binary format.
    V2,
}

/// `[service.keepalive]`: detection of peers that have failed without closing the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Silence before the first probe, whole seconds. Default 30 000; 0 = no keepalive.
    pub idle_ms: u64,
    /// Interval between probes, whole seconds. Default 10 000.
    pub interval_ms: u64,
    /// Unanswered probes that end the connection, 1 to 127. Default 3.
    pub probes: u32,
    /// Limit for unacknowledged data. Default 30 000; 0 = the kernel's.
    pub user_timeout_ms: u64,
}

impl Default for Keepalive {
    fn default() -> Keepalive {
        Keepalive {
            idle_ms: 30_000,
            interval_ms: 10_000,
            probes: 3,
            user_timeout_ms: 30_000,
        }
    }
}

/// `[service.health]`: conditions under which a server counts as up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Kind of probe. Default tcp. `None`: only failed connects indicate a failure.
    pub probe: Option<Probe>,
    /// Port that probes connect to. `None`: the server's. A Unix socket has none.
    pub port: Option<u16>,
    /// TLS of probes. Default auto.
    pub tls: ProbeTls,
    /// Interval between probes of a server that is up, 50 ms to 1 hour. Default 1 000.
    pub interval_ms: u64,
    /// Limit for one probe. Default 1 000, or `interval_ms` if that is less.
    pub timeout_ms: u64,
    /// Successful probes in a row until a server is up, 1 to 100. Default 2.
    pub rise: u32,
    /// Failed probes in a row until a server is down, 1 to 100. Default 3.
    pub fall: u32,
    /// Maximum interval between probes of a server that stays down. Default 10 000, or
    /// `interval_ms` if that is more.
    pub dead_interval_ms_max: u64,
}

impl Default for Health {
    fn default() -> Health {
        Health {
            probe: Some(Probe::Tcp(TcpProbe)),
            port: None,
            tls: ProbeTls::Auto,
            interval_ms: 1_000,
            timeout_ms: 1_000,
            rise: 2,
            fall: 3,
            dead_interval_ms_max: 10_000,
        }
    }
}

impl Health {
    /// Word in the file for no probe.
    pub const NO_PROBE: &str = "off";

    /// Returns the kind of probe as a word in the file.
    pub fn probe_name(&self) -> &'static str {
        self.probe.as_ref().map_or(Health::NO_PROBE, Probe::name)
    }

    /// Returns when the probe uses TLS if `tls` is `auto`.
    pub fn tls_use(&self) -> TlsUse {
        self.probe.as_ref().map_or(TlsUse::Never, Probe::tls_use)
    }

    /// Returns the database protocol in which the probe logs in.
    pub fn probe_protocol(&self) -> Option<SqlProtocol> {
        self.probe.as_ref().and_then(Probe::sql_protocol)
    }
}

/// TLS of probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeTls {
    /// As `[service.server_tls]` requires: database probes with its mode, HTTP probes if a mode is
    /// set, TCP probes never.
    Auto,
    /// Always, with the mode of `[service.server_tls]`. Default of that mode: verify.
    On,
    /// Never.
    Off,
}

/// `[service.monitor]`: account with which probes log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Monitor {
    /// Name of the account.
    pub user: String,
    /// Password from `password` or `password_file`; empty if neither is set.
    pub password: Secret,
    /// Database of the login. Default: the server's choice.
    pub database: Option<String>,
    /// Interval between role queries, 20 ms to 10 minutes. Default 250.
    pub role_interval_ms: u64,
    /// Query that returns the lag in milliseconds (or NULL), instead of the replica's own value.
    pub lag_query: Option<String>,
    /// Place where the account is configured.
    pub source: AccountSource,
}

impl Monitor {
    /// Default of `role_interval_ms`.
    pub const ROLE_INTERVAL_MS: u64 = 250;

    /// Returns the account as probes and queries use it.
    pub fn account(&self) -> MonitorAccount {
        MonitorAccount {
            user: self.user.clone(),
            password: self.password.expose().to_owned(),
            database: self.database.clone(),
            source: self.source,
        }
    }
}

/// Password or token. Never printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret text.
    pub fn new(text: String) -> Secret {
        Secret(text)
    }

    /// Returns the text, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
