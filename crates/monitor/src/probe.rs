//! Probes one server with one request, and reports the observation.
//!
//! `policy::health` interprets it. A probe makes a fresh connection, goes as deep as configured
//! (connect, request, or login and query), and closes it as the protocol requires. It ends within
//! its time limit whatever the peer does.

mod http;
pub(crate) mod messages;
pub(crate) mod mysql;
pub(crate) mod postgres;
mod stream;
mod tcp;
mod tls;

use std::{
    fmt,
    net::SocketAddr,
    ops::RangeInclusive,
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use evenkeel_tls::SetupError;
pub use evenkeel_tls::{Authorities, Tls};

use evenkeel_proxy::settings::ProxyVersion;
use tls::TlsStart;

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

/// Kind of the probe.
#[derive(Clone, Debug)]
pub enum Probe {
    /// Checks that a connection is accepted, and the TLS handshake if TLS is on. A MySQL server
    /// counts each one in `Aborted_connects`: use `Mysql` there.
    Tcp,
    /// Checks the response to `GET path`.
    Http {
        /// Path and query, from the slash on.
        path: String,
        /// The Host header; the server's address if not given.
        host: Option<String>,
        /// The status codes that pass; 200 to 399 if empty.
        status: Vec<RangeInclusive<u16>>,
        /// Text that the first 64 KiB of the body must contain.
        body: Option<String>,
    },
    /// Logs the monitor account in and runs a query. MySQL and MariaDB.
    Mysql {
        /// One statement; its rows are read and discarded.
        query: String,
    },
    /// Logs the monitor account in and runs a query. PostgreSQL.
    Postgres {
        /// One statement; its rows are read and discarded.
        query: String,
    },
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
pub struct Prober(ProbeImpl);

enum ProbeImpl {
    Tcp(Option<TlsStart>),
    Http(http::HttpProbe),
    Mysql(mysql::MysqlProbe),
    Postgres(postgres::MysqlProbe),
}

impl Prober {
    /// Checks everything that can be checked without the server.
    pub fn new(
        probe: Probe,
        account: Option<MonitorAccount>,
        tls: Tls,
    ) -> Result<Self, ProbeSetupError> {
        Ok(Self(match probe {
            Probe::Tcp => ProbeImpl::Tcp(TlsStart::new(&tls)?),
            Probe::Http {
                path,
                host,
                status,
                body,
            } => ProbeImpl::Http(http::HttpProbe::new(
                http::Wanted {
                    path,
                    host,
                    status,
                    body,
                },
                &tls,
            )?),
            Probe::Mysql { query } => {
                let account = account.ok_or(ProbeSetupError::MissingAccount("mysql"))?;
                ProbeImpl::Mysql(mysql::MysqlProbe::new(account, query, tls)?)
            }
            Probe::Postgres { query } => {
                let account = account.ok_or(ProbeSetupError::MissingAccount("postgres"))?;
                ProbeImpl::Postgres(postgres::MysqlProbe::new(account, query, &tls)?)
            }
        }))
    }

    /// Runs one probe. It never takes longer than `timeout`, and leaves no connection open.
    pub async fn ask(&self, target: &Target, timeout: Duration) -> Observation {
        let start = Instant::now();
        let progress = Progress::new(timeout);
        let ended = tokio::time::timeout(timeout, self.run(target, &progress)).await;
        let at_end = Instant::now();
        if let Some(at) = progress.passed_at() {
            return Observation {
                outcome: Outcome::Passed,
                took: at - start,
                note: None,
            };
        }
        let (outcome, note) = match ended {
            Ok(Ok(())) => (Outcome::Passed, None),
            // Full is not dead: removing such a server would only move its load to the next one.
            Ok(Err(ProbeFailure::Full(note))) => (Outcome::Passed, Some(note)),
            Ok(Err(ProbeFailure::Failed(why))) => (Outcome::Failed(why), None),
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

    async fn run(&self, target: &Target, progress: &Progress) -> Result<(), ProbeFailure> {
        match &self.0 {
            ProbeImpl::Tcp(tls) => tcp::ask(tls.as_ref(), target, progress).await,
            ProbeImpl::Http(request) => request.ask(target, progress).await,
            ProbeImpl::Mysql(request) => request.ask(target, progress).await,
            ProbeImpl::Postgres(request) => request.ask(target, progress).await,
        }
    }
}

impl fmt::Debug for Prober {
    // The libraries' own options would print the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = match &self.0 {
            ProbeImpl::Tcp(_) => "tcp",
            ProbeImpl::Http(_) => "http",
            ProbeImpl::Mysql(_) => "mysql",
            ProbeImpl::Postgres(_) => "postgres",
        };
        f.debug_tuple("Asker").field(&protocol).finish()
    }
}

/// Reason why a probe failed.
#[derive(Debug)]
pub(crate) enum ProbeFailure {
    Failed(String),
    LoginRefused(String),
    /// The server is alive, and has no database of that name.
    NoDatabase(String),
    /// The server is alive, and has no free connection.
    Full(String),
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
