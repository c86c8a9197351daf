//! The checked plan: what the file means, as plain data with every default filled in.

mod auth;
mod database;
mod peers;
mod pool;
mod role;
mod rule;
mod split;
mod tls;

use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use evenkeel_policy::balance::Algorithm;
use ipnet::IpNet;

pub use super::address::{Address, Listen};
pub use auth::{AccountPlan, AuthPlan, AuthSource, Credential, UserPlan};
pub use database::{DatabasePlan, TimesPlan};
pub use peers::PeersPlan;
pub use pool::{PoolMode, PoolPlan};
pub use role::{Fallback, OnPrimaryChange, Role};
pub use rule::{RulePlan, RuleTo};
pub use split::{Consistency, FailoverPlan, SplitPlan};
pub use tls::{OwnCertificate, PemFile, ServerTls, TlsMode, TlsPlan};

/// Everything one process is asked to do. Immutable: a reload makes a new one.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The file it was read from; `None` when it came from the command line.
    pub path: Option<PathBuf>,
    /// The data plane's threads and driver.
    pub engine: Engine,
    /// The status page, the API and the control socket.
    pub admin: Admin,
    /// What is logged and how.
    pub log: Log,
    /// Other Evenkeels before the same clients.
    pub peers: PeersPlan,
    /// At least one.
    pub services: Vec<ServicePlan>,
}

/// `[engine]`: read at start; a change needs a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engine {
    /// Default: io_uring where the kernel lets it, epoll elsewhere.
    pub io: Io,
    /// Worker threads, 1 to 1024. `None`: one for each core.
    pub workers: Option<usize>,
    /// How long sessions may finish after SIGTERM. Default 30 000 ms, up to a day.
    pub shutdown_limit_ms: u64,
}

/// The driver of the data plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Io {
    /// io_uring if it works here, else epoll.
    Auto,
    /// io_uring or an error at start.
    IoUring,
    /// epoll always.
    Epoll,
}

/// `[admin]`: how the process is watched and changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// Status page, JSON API, `/metrics`. Default 127.0.0.1:9000; `None` when turned off.
    pub listen: Option<SocketAddr>,
    /// The console for PostgreSQL's clients. Default none.
    pub postgres: Option<SocketAddr>,
    /// The console for MySQL's clients. Default none.
    pub mysql: Option<SocketAddr>,
    /// The control socket (mode 0600).
    pub socket: PathBuf,
    /// Allows changes over TCP, and reading from other machines. `None`: neither.
    pub token: Option<Secret>,
    /// Names a browser may use for this process, besides IP addresses and localhost.
    pub allowed_hosts: Vec<String>,
}

/// `[log]`: lines on standard error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// Default text.
    pub format: LogFormat,
    /// The least important level that is written. Default info.
    pub level: LogLevel,
    /// One line for each finished connection. Default false.
    pub connections: bool,
}

/// How a log line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// `key=value` for people.
    Text,
    /// One JSON object a line.
    Json,
}

/// The least important level that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Only what needs somebody.
    Error,
    /// And what may soon.
    Warn,
    /// And what changed.
    Info,
    /// And why.
    Debug,
    /// And everything else.
    Trace,
}

impl LogLevel {
    /// The word used in the file and by `tracing`.
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

/// `[[service]]`: addresses to listen on, the servers behind them, how to choose.
#[derive(Clone, Debug, PartialEq)]
pub struct ServicePlan {
    /// Unique in the file; letters, digits, `.`, `_` and `-`, up to 64.
    pub name: String,
    /// What the bytes mean.
    pub protocol: Protocol,
    /// At least one.
    pub listen: Vec<Listen>,
    /// Default round-robin; least-connections for postgres and mysql.
    pub balance: Algorithm,
    /// The part of the cluster that serves. Default any; always any for postgres and mysql.
    pub role: Role,
    /// At least one.
    pub servers: Vec<ServerPlan>,
    /// Clients at once, 1 to 1 000 000. Default 10 000. More are closed at once.
    pub max_connections: u32,
    /// For one attempt at one server, 1 ms to 10 minutes. Default 2 000.
    pub connect_timeout_ms: u64,
    /// Further attempts after a failed connect, on another server while there is one. 0 to 100,
    /// default 3.
    pub retries: u32,
    /// Neither side sent anything for so long. Default 28 800 000 (8 hours), for postgres and mysql
    /// 0; 0 = never.
    pub idle_timeout_ms: u64,
    /// One side has ended, the other is silent for so long. Default 300 000; 0 = never.
    pub half_close_timeout_ms: u64,
    /// Where clients wait while every server is full.
    pub queue: Queue,
    /// A server that came back gets its whole share after so long. Default 0 = at once.
    pub slow_start_ms: u64,
    /// Sessions of a drained or removed server may finish for so long. Default 30 000; 0 = cut at
    /// once.
    pub drain_limit_ms: u64,
    /// The sessions of a server that goes down. Default leave.
    pub on_server_down: OnServerDown,
    /// New clients while no server is up. Default refuse.
    pub all_down: AllDown,
    /// Peers that must begin with a PROXY header. Default none.
    pub accept_proxy_from: Vec<IpNet>,
    /// The PROXY header sent to servers. Default none.
    pub send_proxy: SendProxy,
    /// Notices half-dead peers, on both sides.
    pub keepalive: Keepalive,
    /// Active probes.
    pub health: Health,
    /// The account that database probes log in with.
    pub monitor: Option<Monitor>,
    /// TLS towards servers: of probes and monitors, and of sessions that speak the protocol.
    pub server_tls: ServerTls,
    /// What only a service has that speaks a database's protocol. `None` for tcp, there for
    /// postgres and mysql.
    pub database: Option<Box<DatabasePlan>>,
}

impl ServicePlan {
    /// A service with every default of its protocol and nothing of its own yet.
    pub fn with_defaults(name: String, protocol: Protocol) -> ServicePlan {
        let tcp = ServicePlan {
            name,
            protocol,
            listen: Vec::new(),
            balance: Algorithm::RoundRobin,
            role: Role::Any,
            servers: Vec::new(),
            max_connections: 10_000,
            connect_timeout_ms: 2_000,
            retries: 3,
            idle_timeout_ms: 28_800_000,
            half_close_timeout_ms: 300_000,
            queue: Queue::default(),
            slow_start_ms: 0,
            drain_limit_ms: 30_000,
            on_server_down: OnServerDown::Leave,
            all_down: AllDown::Refuse,
            accept_proxy_from: Vec::new(),
            send_proxy: SendProxy::Off,
            keepalive: Keepalive::default(),
            health: Health::default(),
            monitor: None,
            server_tls: ServerTls::default(),
            database: None,
        };
        match protocol {
            Protocol::Tcp => tcp,
            Protocol::Postgres | Protocol::Mysql => ServicePlan {
                balance: Algorithm::LeastConnections,
                // Pools of applications sleep for days, and idle costs little.
                idle_timeout_ms: 0,
                database: Some(Box::default()),
                ..tcp
            },
        }
    }
}

/// What the bytes of a service mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Nothing to us: they are carried as they are.
    Tcp,
    /// PostgreSQL's protocol 3.
    Postgres,
    /// The protocol of MySQL and MariaDB.
    Mysql,
}

impl Protocol {
    /// The word used in the file.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Postgres => "postgres",
            Protocol::Mysql => "mysql",
        }
    }

    /// What it is called in a sentence.
    pub fn in_words(self) -> &'static str {
        match self {
            Protocol::Tcp => "TCP",
            Protocol::Postgres => "PostgreSQL",
            Protocol::Mysql => "MySQL",
        }
    }

    /// Sessions are understood, and servers know their roles.
    pub fn is_database(self) -> bool {
        self != Protocol::Tcp
    }
}

/// One server of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerPlan {
    /// Unique in its service. Default: the address.
    pub name: String,
    /// Where it is; services that list the same address share its state.
    pub address: Address,
    /// Its share, 0 to 256. Default 1; 0 takes no new clients.
    pub weight: u32,
    /// Used only while no other server of the service is up. Default false.
    pub backup: bool,
    /// Sessions at once over all services, from 1. `None`: no limit.
    pub max_connections: Option<u32>,
}

impl ServerPlan {
    /// A server with every default.
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

/// `[service.queue]`: where clients wait while every server is full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Clients that may wait. Default 1 000; 0 = nobody waits.
    pub length: u32,
    /// How long each may wait, 1 ms to 10 minutes. Default 5 000.
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

/// The sessions of a server that goes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnServerDown {
    /// They go on until one side ends them.
    Leave,
    /// They are reset.
    Cut,
}

/// New clients while no server is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllDown {
    /// Closed at once.
    Refuse,
    /// They wait in the queue.
    Wait,
}

/// The PROXY header sent to servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendProxy {
    /// None.
    Off,
    /// The text form.
    V1,
    /// The binary form.
    V2,
}

/// `[service.keepalive]`: notices peers that are gone without a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Silence before the first probe, whole seconds. Default 30 000; 0 = no keepalive.
    pub idle_ms: u64,
    /// Between probes, whole seconds. Default 10 000.
    pub interval_ms: u64,
    /// Unanswered probes that end the connection, 1 to 127. Default 3.
    pub probes: u32,
    /// What was sent stays unanswered for so long. Default 30 000; 0 = the kernel's.
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

/// `[service.health]`: when a server counts as up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// What is asked. Default tcp.
    pub probe: Probe,
    /// Between probes of a server that is up, 50 ms to 1 hour. Default 1 000.
    pub interval_ms: u64,
    /// For one whole probe. Default 1 000, or `interval_ms` if that is less.
    pub timeout_ms: u64,
    /// Passed probes in a row until a server is up, 1 to 100. Default 2.
    pub rise: u32,
    /// Failed probes in a row until a server is down, 1 to 100. Default 3.
    pub fall: u32,
    /// The longest interval between probes of a server that stays down. Default 10 000, or
    /// `interval_ms` if that is more.
    pub dead_interval_ms_max: u64,
}

impl Default for Health {
    fn default() -> Health {
        Health {
            probe: Probe::Tcp,
            interval_ms: 1_000,
            timeout_ms: 1_000,
            rise: 2,
            fall: 3,
            dead_interval_ms_max: 10_000,
        }
    }
}

/// What a probe asks of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// Nothing is asked; only failed connects tell.
    Off,
    /// Does it accept a connection?
    Tcp,
    /// Does it answer a request well?
    Http {
        /// Default `/`.
        path: String,
        /// The Host header. Default: the server's address.
        host: Option<String>,
        /// Good answers. Default 200 to 399.
        status: Vec<RangeInclusive<u16>>,
        /// Text that the body must contain.
        body: Option<String>,
    },
    /// Does it log the monitor account in and run the query?
    Mysql {
        /// Default `SELECT 1`.
        query: String,
    },
    /// Does it log the monitor account in and run the query?
    Postgres {
        /// Default `SELECT 1`.
        query: String,
    },
}

impl Probe {
    /// What database probes run when nothing else is set.
    pub const QUERY: &str = "SELECT 1";

    /// The one that speaks a service's own protocol; none for tcp.
    pub fn of(protocol: Protocol) -> Option<Probe> {
        let query = Probe::QUERY.to_owned();
        match protocol {
            Protocol::Tcp => None,
            Protocol::Postgres => Some(Probe::Postgres { query }),
            Protocol::Mysql => Some(Probe::Mysql { query }),
        }
    }

    /// Whether it speaks that protocol.
    pub fn speaks(&self, protocol: Protocol) -> bool {
        Probe::of(protocol).is_some_and(|own| own.name() == self.name())
    }

    /// The word used in the file.
    pub fn name(&self) -> &'static str {
        match self {
            Probe::Off => "off",
            Probe::Tcp => "tcp",
            Probe::Http { .. } => "http",
            Probe::Mysql { .. } => "mysql",
            Probe::Postgres { .. } => "postgres",
        }
    }
}

/// `[service.monitor]`: the account that probes log in with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Monitor {
    /// Its name.
    pub user: String,
    /// From `password` or `password_file`; empty when neither is given.
    pub password: Secret,
    /// Default: the server's own choice.
    pub database: Option<String>,
    /// Between two questions for the role, 20 ms to 10 minutes. Default 250.
    pub role_interval_ms: u64,
    /// Answers with the lag in milliseconds (or NULL), instead of the replica's own figure.
    pub lag_query: Option<String>,
}

impl Monitor {
    /// See `role_interval_ms`.
    pub const ROLE_INTERVAL_MS: u64 = 250;
}

/// A password or token: never printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes it out of sight.
    pub fn new(text: String) -> Secret {
        Secret(text)
    }

    /// The text itself, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
