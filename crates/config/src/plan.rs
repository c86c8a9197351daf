//! Defines the checked plan: the content of the config file as plain data, with all defaults.

mod acme;
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

pub use crate::address::{Address, Listen};
use crate::setting::{DAY_MS, HOUR_MS, TEN_MINUTES_MS, WEEK_MS, number, settings, words};
pub use acme::{AcmeChallenge, AcmePlan, ExternalAccount};
pub use auth::{AccountPlan, AuthPlan, AuthSource, Credential, UserPlan};
pub use database::{DatabasePlan, TimesPlan};
pub use http::{
    AccessLog, AccessLogPlan, CompressPlan, ErrorPagePlan, HashKeyPlan, Http2, HttpClientsPlan,
    HttpLimitsPlan, HttpPlan, HttpPoolPlan, HttpTimesPlan, Https, RetryPlan, SameSite, ServerHttp2,
    StickyPlan,
};
pub(crate) use peers::INSTANCE_MAX;
pub use peers::PeersPlan;
pub use pool::{PoolMode, PoolPlan};
pub(crate) use protocol::PROTOCOL_NAMES;
pub(crate) use protocol::SQL;
pub use protocol::{Protocol, ProtocolInfo, ServerConnections, SqlProtocol};
pub use role::{Fallback, OnPrimaryChange, Role};
pub(crate) use route::default_name;
pub use route::{
    BasicAuthPlan, ContentPlan, MirrorPlan, RespondPlan, RouteLimitsPlan, RoutePlan, RouteTarget,
    SplitPart, TlsRoutesPlan, route_table,
};
pub use rule::{RulePlan, RuleTo};
pub use split::{Consistency, FailoverPlan, SplitPlan};
pub use tls::{
    HttpTlsPlan, NamedCertificate, OwnCertificate, PemFile, ServerTls, TlsMode, TlsPlan,
};

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
    /// `[acme]`: authority from which certificates come. `None`: they come from files only.
    pub acme: Option<AcmePlan>,
    /// Services, at least one.
    pub services: Vec<ServicePlan>,
}

settings! {
    /// `[engine]`: read at start; a change requires a restart.
    pub struct Engine {
        /// I/O driver; `auto` uses io_uring where the kernel allows it, else epoll.
        io: Io = Io::Auto;
        /// Worker threads; one per core when absent.
        workers: Option<usize> = None, number(1, 1_024);
        /// Limit for sessions to go on after SIGTERM, or in a process that drains after an upgrade.
        shutdown_limit_ms: u64 = 30_000, number(0, DAY_MS);
    }
}

words! {
    /// Driver of the data plane.
    pub enum Io {
        /// io_uring if it works on this machine, else epoll.
        Auto = "auto",
        /// io_uring, or an error at start.
        IoUring = "io_uring",
        /// Always epoll.
        Epoll = "epoll",
    }
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

settings! {
    /// `[log]`: log lines on standard error.
    pub struct Log {
        /// Format of a line.
        format: LogFormat = LogFormat::Text;
        /// Least severe level that is written.
        level: LogLevel = LogLevel::Info;
        /// Write one line for each finished client connection.
        connections: bool = false;
    }
}

words! {
    /// Format of log lines.
    pub enum LogFormat {
        /// `key=value`, for people.
        Text = "text",
        /// One JSON object per line.
        Json = "json",
    }
}

words! {
    /// Lowest level that is written. The words are also `tracing`'s.
    pub enum LogLevel {
        /// Problems that need an operator.
        Error = "error",
        /// Also conditions that may soon need one.
        Warn = "warn",
        /// Also changes.
        Info = "info",
        /// Also the reasons for decisions.
        Debug = "debug",
        /// Also everything else.
        Trace = "trace",
    }
}

settings! {
    /// `[[service]]`: addresses to listen on, servers, and the choice between them.
    pub struct ServicePlan {
        /// Maximum concurrent clients; further ones are closed immediately.
        max_connections: u32 = 10_000, number(1, 1_000_000);
        /// Limit for one connection attempt to one server.
        connect_timeout_ms: u64 = 2_000, number(1, TEN_MINUTES_MS);
        /// Further attempts after a failed connect, on other servers first.
        retries: u32 = 3, number(0, 100) => &["tcp", "http"];
        /// Ends a session without traffic for this long; 0 = never, the default for http, postgres
        /// and mysql.
        idle_timeout_ms: u64 = 28_800_000, number(0, WEEK_MS);
        /// Ends a session without traffic for this long once one side has closed its direction; 0 =
        /// never.
        half_close_timeout_ms: u64 = 300_000, number(0, WEEK_MS) => &["tcp"];
        /// Time in which a recovered server grows to its full share; 0 = immediately.
        slow_start_ms: u64 = 0, number(0, HOUR_MS);
        /// Limit for sessions of a drained or removed server to go on; 0 = terminate them
        /// immediately.
        drain_limit_ms: u64 = 30_000, number(0, DAY_MS);
        /// Leave the sessions of a server that went down, or terminate them.
        on_server_down: OnServerDown = OnServerDown::Leave => &["tcp"];
        /// While no server is up, close new clients or queue them.
        all_down: AllDown = AllDown::Refuse => &["tcp"];
    } also {
        /// Unique in the file; letters, digits, `.`, `_` and `-`, up to 64.
        name: String = String::new();
        /// `[[cluster]]` that lists its servers. `None`: the service lists them itself.
        cluster: Option<String> = None;
        /// Protocol of the clients and servers.
        protocol: Protocol = Protocol::Tcp;
        /// Addresses to listen on. Empty only if routes of other services lead to it.
        listen: Vec<Listen> = Vec::new();
        /// Balancing algorithm. Default round-robin; least-connections for postgres and mysql.
        balance: Algorithm = Algorithm::RoundRobin;
        /// Role that a server must have. Default any; always any for postgres and mysql.
        role: Role = Role::Any;
        /// Servers. Empty only for a service with routes.
        servers: Vec<ServerPlan> = Vec::new();
        /// Queue of clients while every server is full.
        queue: Queue = Queue::default();
        /// Peers that must begin with a PROXY header. Default none.
        accept_proxy_from: Vec<IpNet> = Vec::new();
        /// PROXY header sent to servers. Default none.
        send_proxy: SendProxy = SendProxy::Off;
        /// Keepalive settings, for clients and servers.
        keepalive: Keepalive = Keepalive::default();
        /// Active health checks.
        health: Health = Health::default();
        /// Account with which database probes log in.
        monitor: Option<Monitor> = None;
        /// TLS to servers, for probes, monitors and sessions of database protocols.
        server_tls: ServerTls = ServerTls::default();
        /// Routes of a tcp service. Empty for others.
        tls_routes: TlsRoutesPlan = TlsRoutesPlan::default();
    }
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
    pub(crate) fn with_defaults(name: String, protocol: Protocol) -> ServicePlan {
        let info = ProtocolInfo::of(&protocol);
        ServicePlan {
            name,
            balance: info.balance,
            idle_timeout_ms: info.idle_timeout_ms,
            health: Health {
                probe: Some(info.default_probe(false)),
                ..Health::default()
            },
            protocol,
            ..ServicePlan::default()
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

    /// Returns the names whose certificates come by ACME.
    pub fn acme_names(&self) -> &[String] {
        let tls = self.http().and_then(|http| http.tls.as_ref());
        tls.map_or(&[], |tls| &tls.acme)
    }
}

settings! {
    /// One server of a service.
    pub struct ServerPlan {
        /// Share of the clients or reads; 0 = no new clients.
        weight: u32 = 1, number(0, 256);
        /// Receives clients only while no other server of the service is up.
        backup: bool = false;
        /// Maximum concurrent connections to this server, over all services; no limit when absent.
        max_connections: Option<u32> = None, number(1, 1_000_000);
    } also {
        /// Unique in its service. Default: the address.
        name: String = String::new();
        /// Address. Services that list the same address share the state of the server.
        address: Address = Address::Unix(PathBuf::new());
    }
}

impl ServerPlan {
    /// Returns a server with all defaults.
    pub fn at(address: Address) -> ServerPlan {
        ServerPlan {
            name: address.to_string(),
            address,
            ..ServerPlan::default()
        }
    }
}

settings! {
    /// `[service.queue]`: queue of clients while every server is full.
    pub struct Queue {
        /// Maximum clients that wait; 0 = clients are refused.
        length: u32 = 1_000, number(0, 1_000_000);
        /// Limit for the wait of each client.
        wait_ms: u64 = 5_000, number(1, TEN_MINUTES_MS);
    }
}

words! {
    /// Treatment of sessions on a server that goes down.
    pub enum OnServerDown {
        /// Sessions continue until one side ends them.
        Leave = "leave",
        /// Sessions are reset.
        Cut = "cut",
    }
}

words! {
    /// Treatment of new clients while no server is up.
    pub enum AllDown {
        /// Clients are disconnected immediately.
        Refuse = "refuse",
        /// Clients wait in the queue.
        Wait = "wait",
    }
}

words! {
    /// PROXY header sent to servers.
    #[derive(Default)]
    pub enum SendProxy {
        /// None.
        #[default]
        Off = "off",
        /// Text format.
        V1 = "v1",
        /// Binary format.
        V2 = "v2",
    }
}

settings! {
    /// `[service.keepalive]`: detection of peers that have failed without closing the connection.
    /// The kernel accepts 1 to 32767 seconds and 1 to 127 probes.
    pub struct Keepalive {
        /// Silence before the first keepalive packet, in whole seconds; 0 = send none.
        idle_ms: u64 = 30_000, number(0, 32_767_000);
        /// Time between keepalive packets, in whole seconds.
        interval_ms: u64 = 10_000, number(1_000, 32_767_000);
        /// Unanswered packets after which the connection ends.
        probes: u32 = 3, number(1, 127);
        /// Ends a connection whose sent data is not acknowledged for this long (TCP_USER_TIMEOUT);
        /// 0 = the kernel's default.
        user_timeout_ms: u64 = 30_000, number(0, DAY_MS);
    }
}

settings! {
    /// `[service.health]`: conditions under which a server counts as up.
    pub struct Health {
        /// Port that probes connect to, for example that of an agent; the port of the server when
        /// absent. Role queries use the port of the server.
        port: Option<u16> = None, number(1, 65_535);
        /// TLS of probes, with the settings of `server_tls`. `auto`: database probes as `mode`
        /// says, http probes if `mode` or another key of `server_tls` is set, tcp probes without
        /// TLS. `on`: every probe; a tcp probe then also completes the TLS handshake. `mode` is
        /// `verify` when absent.
        tls: ProbeTls = ProbeTls::Auto;
        /// Time between probes of a server that is up.
        interval_ms: u64 = 1_000, number(50, HOUR_MS);
        /// Limit for a whole probe; `interval_ms` if that is less.
        timeout_ms: u64 = 1_000, number(1, TEN_MINUTES_MS);
        /// Passed probes in a row until a server is up.
        rise: u32 = 2, number(1, 100);
        /// Failed probes in a row until a server is down. A timeout does not count while the server
        /// answers clients: it is busy.
        fall: u32 = 3, number(1, 100);
        /// Longest interval between probes of a server that stays down; `interval_ms` if that is
        /// more.
        dead_interval_ms_max: u64 = 10_000, number(50, HOUR_MS);
    } also {
        /// Kind of probe. Default tcp. `None`: only failed connects indicate a failure.
        probe: Option<Probe> = Some(Probe::Tcp(TcpProbe));
    }
}

impl Health {
    /// Word in the file for no probe.
    pub(crate) const NO_PROBE: &str = "off";

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

words! {
    /// TLS of probes.
    pub enum ProbeTls {
        /// As `[service.server_tls]` requires: database probes with its mode, HTTP probes if a mode
        /// is set, TCP probes never.
        Auto = "auto",
        /// Always, with the mode of `[service.server_tls]`. Default of that mode: verify.
        On = "on",
        /// Never.
        Off = "off",
    }
}

settings! {
    /// `[service.monitor]`: account with which probes log in.
    pub struct Monitor {
        /// Database of the login; the server decides when absent.
        database: Option<String> = None;
        /// Time between two queries for the role of a server.
        role_interval_ms: u64 = Monitor::ROLE_INTERVAL_MS, number(20, TEN_MINUTES_MS);
        /// Query for the lag of a replica in milliseconds or NULL, for example from a heartbeat
        /// table; when absent, the replica's own figure counts.
        lag_query: Option<String> = None;
    } also {
        /// Name of the account.
        user: String = String::new();
        /// Password from `password` or `password_file`; empty if neither is set.
        password: Secret = Secret::default();
        /// Place where the account is configured.
        source: AccountSource = AccountSource::Service;
    }
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
