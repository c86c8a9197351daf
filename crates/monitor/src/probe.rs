//! Probes one server with one request, and reports the observation.
//!
//! `policy::health` interprets it. A probe makes a fresh connection, goes as deep as configured
//! (connect, request, or login and query), and closes it as the protocol requires. It ends within
//! its time limit whatever the peer does.

mod database;
mod grpc;
mod http;
pub(crate) mod messages;
pub(crate) mod mysql;
pub(crate) mod postgres;
pub(crate) mod stream;
mod tcp;
pub(crate) mod tls;

use std::{
    fmt,
    net::SocketAddr,
    path::PathBuf,
    pin::Pin,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

pub use evenkeel_tls::{Authorities, Fingerprint, Tls};
use evenkeel_tls::{SetupError, messages::SettingsPlace};
use evenkeel_wire::SqlProtocol;
use evenkeel_wire::proxy_header::ProxyVersion;

pub(crate) use self::database::DatabaseLogin;
pub use self::{
    database::DatabaseProbe, grpc::GrpcProbe, http::HttpProbe, mysql::MysqlProbe,
    postgres::PostgresProbe, tcp::TcpProbe,
};

/// A server, and the first bytes of connections to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// Address of the server.
    pub address: TargetAddress,
    /// PROXY header that each connection begins with. It has no client's address.
    pub proxy_header: Option<ProxyVersion>,
}

/// Address of the server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TargetAddress {
    /// A resolved address.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl Target {
    /// Returns a target at a resolved address, without a PROXY header.
    pub fn tcp(address: SocketAddr) -> Self {
        Self {
            address: TargetAddress::Tcp(address),
            proxy_header: None,
        }
    }

    /// Returns a target at a Unix socket, without a PROXY header.
    pub fn unix(path: PathBuf) -> Self {
        Self {
            address: TargetAddress::Unix(path),
            proxy_header: None,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            TargetAddress::Tcp(address) => address.fmt(f),
            TargetAddress::Unix(path) => path.display().fmt(f),
        }
    }
}

/// Generates the enum, and its functions by kind, from one line per kind of probe.
macro_rules! probes {
    ($($(#[$doc:meta])+ $kind:ident($settings:ty) $name:literal;)+) => {
        /// Kind of the probe, with its settings.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Probe {
            $($(#[$doc])+ $kind($settings),)+
        }

        impl Probe {
            /// Names of all kinds: the words in the configuration.
            pub const NAMES: &[&str] = &[$($name),+];

            /// Returns the probe of that name with default settings.
            pub fn named(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$kind(Default::default())),)+
                    _ => None,
                }
            }

            /// Returns the name.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$kind(_) => $name,)+
                }
            }

            fn kind(&self) -> &dyn ProbeKind {
                match self {
                    $(Self::$kind(settings) => settings,)+
                }
            }

            fn kind_mut(&mut self) -> &mut dyn ProbeKind {
                match self {
                    $(Self::$kind(settings) => settings,)+
                }
            }
        }
    };
}

probes! {
    /// Checks that a connection is accepted, and the TLS handshake if TLS is on. A MySQL server
    /// counts each one in `Aborted_connects`: use `Mysql` there.
    Tcp(TcpProbe) "tcp";
    /// Checks the response to `GET path`.
    Http(HttpProbe) "http";
    /// Asks the health service of a gRPC server.
    Grpc(GrpcProbe) "grpc";
    /// Logs the monitor account in and runs a query. MySQL and MariaDB.
    Mysql(MysqlProbe) "mysql";
    /// Logs the monitor account in and runs a query. PostgreSQL.
    Postgres(PostgresProbe) "postgres";
}

/// Settings of one kind of probe, which its own file defines.
trait ProbeKind {
    /// Returns the keys of the configuration that this kind has besides those of every probe.
    fn keys(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns the query, if the probe runs one.
    fn query_mut(&mut self) -> Option<&mut String> {
        None
    }

    /// Returns the database protocol in which the probe logs in.
    fn sql_protocol(&self) -> Option<SqlProtocol> {
        None
    }

    /// Returns whether the server sends the first bytes of a connection.
    fn server_speaks_first(&self) -> bool {
        false
    }

    /// Returns when the probe uses TLS if the configuration leaves it open.
    fn tls_use(&self) -> TlsUse;

    /// Checks everything that can be checked without the server.
    fn prepare(
        &self,
        account: Option<MonitorAccount>,
        tls: Tls,
    ) -> Result<Box<dyn Ask>, ProbeSetupError>;
}

/// Prepared probe of one server.
trait Ask: Send + Sync {
    /// Makes a connection, and checks the server's response.
    fn ask<'a>(&'a self, target: &'a Target, progress: &'a Progress) -> Asking<'a>;
}

type Asking<'a> = Pin<Box<dyn Future<Output = Result<(), ProbeFailure>> + Send + 'a>>;

/// Condition under which a probe uses TLS, where the configuration does not set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsUse {
    /// Never.
    Never,
    /// TLS is used if the configuration sets a mode: most web servers in a farm have none.
    IfConfigured,
    /// As connections of clients use it.
    AsSessions,
}

impl Probe {
    /// Returns the keys of the configuration that this kind has besides those of every probe.
    pub fn keys(&self) -> &'static [&'static str] {
        self.kind().keys()
    }

    /// Returns the query, if the probe runs one.
    pub fn query_mut(&mut self) -> Option<&mut String> {
        self.kind_mut().query_mut()
    }

    /// Returns the database protocol in which the probe logs in. `None`: it does not log in.
    pub fn sql_protocol(&self) -> Option<SqlProtocol> {
        self.kind().sql_protocol()
    }

    /// Returns whether the server sends the first bytes of a connection.
    pub fn server_speaks_first(&self) -> bool {
        self.kind().server_speaks_first()
    }

    /// Returns when the probe uses TLS if the configuration leaves it open.
    pub fn tls_use(&self) -> TlsUse {
        self.kind().tls_use()
    }
}

/// The account that the database probes log in with.
#[derive(Clone)]
pub struct MonitorAccount {
    /// Name of the account.
    pub user: String,
    /// Password of the account; empty if it has none.
    pub password: String,
    /// The database to enter: by default none (MySQL), `postgres` (PostgreSQL).
    pub database: Option<String>,
    /// Place where the account is configured.
    pub source: AccountSource,
}

/// Place where a monitor account is configured, which errors name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccountSource {
    /// `[service.monitor]`.
    #[default]
    Service,
    /// `[cluster.monitor]`.
    Cluster,
    /// `[service.auth]`.
    Auth,
    /// The URLs of `--to`, with the password in this environment variable or asked for.
    Flags {
        /// Name of the variable.
        password: &'static str,
    },
}

impl AccountSource {
    /// Returns the table or flag.
    pub fn name(self) -> &'static str {
        match self {
            Self::Service => "[service.monitor]",
            Self::Cluster => "[cluster.monitor]",
            Self::Auth => "[service.auth]",
            Self::Flags { .. } => "--to",
        }
    }

    /// Returns the place of the settings of TLS to the same server.
    pub(crate) fn tls_settings(self) -> SettingsPlace {
        match self {
            Self::Service | Self::Auth => SettingsPlace::Service,
            Self::Cluster => SettingsPlace::Cluster,
            Self::Flags { .. } => SettingsPlace::Flags,
        }
    }

    /// Returns the values to check after a server has refused the account.
    pub(crate) fn values(self) -> String {
        match self {
            Self::Flags { password } => format!("the user in --to, the password ({password})"),
            source => format!("user, password and database in {}", source.name()),
        }
    }
}

impl fmt::Debug for MonitorAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account")
            .field("user", &self.user)
            .field("password", &"(hidden)")
            .field("database", &self.database)
            .finish()
    }
}

/// Result of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Outcome of the probe.
    pub outcome: Outcome,
    /// Time from the start to the response, without the closing of the connection.
    pub took: Duration,
    /// A remark for the operator that does not change the outcome.
    pub note: Option<String>,
}

/// Outcome of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server responded as expected.
    Passed,
    /// The server did not respond as expected, for this reason.
    Failed(String),
    /// The server responds, and cannot be used until its configuration or ours is changed: TLS or
    /// the protocol does not fit.
    Misconfigured(String),
    /// The server is alive but rejects the monitor account: a fault of the configuration, not of
    /// the server.
    LoginRefused(String),
}

/// Reason why a probe cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum ProbeSetupError {
    /// Database probes log in.
    #[error(
        "a {0} probe logs in: set user and password in [service.monitor], or use probe = \"tcp\""
    )]
    MissingAccount(&'static str),
    /// A path or host that cannot be part of an HTTP request.
    #[error("the http probe cannot send {what} {value:?}: {why}")]
    BadRequest {
        /// Part of the request.
        what: &'static str,
        /// The configured value.
        value: String,
        /// Description of the fault.
        why: String,
    },
    /// A name or certificate of [service.server_tls] that cannot be used.
    #[error(transparent)]
    Tls(#[from] SetupError),
}

/// Probes one server on request. Build one per server.
pub struct Prober {
    name: &'static str,
    asker: Box<dyn Ask>,
    settings: SettingsPlace,
}

impl Prober {
    /// Checks everything that can be checked without the server.
    pub fn new(
        probe: &Probe,
        account: Option<MonitorAccount>,
        tls: Tls,
    ) -> Result<Self, ProbeSetupError> {
        let source = account.as_ref().map(|account| account.source);
        Ok(Self {
            name: probe.name(),
            settings: source.map(AccountSource::tls_settings).unwrap_or_default(),
            asker: probe.kind().prepare(account, tls)?,
        })
    }

    /// Runs one probe. It never takes longer than `timeout`, and leaves no connection open.
    pub async fn ask(&self, target: &Target, timeout: Duration) -> Observation {
        let start = Instant::now();
        let progress = Progress::new(timeout);
        let ended = tokio::time::timeout(timeout, self.asker.ask(target, &progress)).await;
        let at_end = Instant::now();
        if let Some(at) = progress.passed_at() {
            return Observation {
                outcome: Outcome::Passed,
                took: at - start,
                note: None,
            };
        }
        let named = |failure: ProbeFailure| failure.named_in(self.settings);
        let (outcome, note) = match ended.map(|ended| ended.map_err(named)) {
            Ok(Ok(())) => (Outcome::Passed, None),
            // Full is not dead: removing such a server would only move its load to the next one.
            Ok(Err(ProbeFailure::Full(note))) => (Outcome::Passed, Some(note)),
            Ok(Err(ProbeFailure::Failed(why))) => (Outcome::Failed(why), None),
            Ok(Err(ProbeFailure::Misconfigured(why))) => (Outcome::Misconfigured(why), None),
            Ok(Err(ProbeFailure::LoginRefused(why) | ProbeFailure::NoDatabase(why))) => {
                (Outcome::LoginRefused(why), None)
            }
            Err(_) => (Outcome::Failed(progress.timed_out(timeout)), None),
        };
        Observation {
            outcome,
            took: at_end - start,
            note,
        }
    }
}

impl fmt::Debug for Prober {
    // The libraries' own options would print the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Prober").field(&self.name).finish()
    }
}

/// Reason why a probe failed.
#[derive(Debug)]
pub(crate) enum ProbeFailure {
    Failed(String),
    /// Only a change of a configuration can help.
    Misconfigured(String),
    LoginRefused(String),
    /// The server is alive, and has no database of that name.
    NoDatabase(String),
    /// The server is alive, and has no free connection.
    Full(String),
}

impl ProbeFailure {
    /// Returns the failure with the names that settings of TLS have in this place.
    pub(crate) fn named_in(self, place: SettingsPlace) -> ProbeFailure {
        match self {
            Self::Misconfigured(why) => Self::Misconfigured(place.name_in(&why)),
            Self::LoginRefused(why) => Self::LoginRefused(place.name_in(&why)),
            other => other,
        }
    }
}

impl From<String> for ProbeFailure {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

/// Step of a database probe after the login and before the query's result.
const QUERY: &str = "running the query";

/// Progress of a probe: the step that a timeout interrupts, and whether the result was received.
#[derive(Debug)]
pub(crate) struct Progress {
    timeout: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    step: &'static str,
    logged_in: bool,
    passed: Option<Instant>,
}

impl Progress {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            state: Mutex::new(State {
                step: "connecting",
                logged_in: false,
                passed: None,
            }),
        }
    }

    /// Names the current step for the message of a timeout.
    fn step(&self, step: &'static str) {
        self.lock().step = step;
    }

    /// Sets the current step like `step`; later errors concern the query, not the login.
    pub(crate) fn logged_in(&self, step: &'static str) {
        let mut state = self.lock();
        state.step = step;
        state.logged_in = true;
    }

    fn is_logged_in(&self) -> bool {
        self.lock().logged_in
    }

    /// Records that the result was received; the closing of the connection cannot change it.
    fn passed(&self) {
        self.lock().passed = Some(Instant::now());
    }

    fn passed_at(&self) -> Option<Instant> {
        self.lock().passed
    }

    pub(crate) fn timed_out(&self, timeout: Duration) -> String {
        messages::timed_out(timeout, self.lock().step)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
