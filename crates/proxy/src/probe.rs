//! Probes: they ask one server one question and report what they saw.
//!
//! What it means is decided by `policy::health`. A probe makes a fresh connection, goes as deep as
//! it was told to (connect, request, or login and query), says goodbye as the protocol wants it,
//! and is over within its time limit whatever the other side does.

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

use crate::tls::SetupError;
pub use crate::tls::{Authorities, Tls};

/// Where the server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// An address that was resolved already.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

/// The question.
#[derive(Clone, Debug)]
pub enum Probe {
    /// Does it accept a connection? A MySQL server counts each one in `Aborted_connects`: ask it
    /// with `Mysql`.
    Tcp,
    /// Does it answer `GET path` as it should?
    Http {
        /// Path and query, from the slash on.
        path: String,
        /// The Host header; the server's address if not given.
        host: Option<String>,
        /// The status codes that pass; 200 to 399 if empty.
        status: Vec<RangeInclusive<u16>>,
        /// What the first 64 KiB of the body must contain.
        body: Option<String>,
    },
    /// Does it log the monitor account in and run a query? MySQL and MariaDB.
    Mysql {
        /// One statement; its rows are read and thrown away.
        query: String,
    },
    /// Does it log the monitor account in and run a query? PostgreSQL.
    Postgres {
        /// One statement; its rows are read and thrown away.
        query: String,
    },
}

/// The account that the database probes log in with.
#[derive(Clone)]
pub struct MonitorAccount {
    /// Name of the account.
    pub user: String,
    /// Its password; empty if it has none.
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

/// What a probe saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// How it ended.
    pub outcome: Outcome,
    /// From the start to the answer, the goodbye not included.
    pub took: Duration,
    /// Something that does not change the outcome but that an operator wants to know.
    pub note: Option<String>,
}

/// How a probe ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server answered as it should.
    Passed,
    /// It did not, for this reason.
    Failed(String),
    /// The server lives but does not let the monitor account in: a fault of the configuration, not
    /// of the server.
    LoginRefused(String),
}

/// Why a probe cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum ProbeSetupError {
    /// Database probes log in.
    #[error(
        "a {0} probe logs in: set user and password in [service.monitor], or use probe = \"tcp\""
    )]
    MissingAccount(&'static str),
    /// A path or host that cannot stand in an HTTP request.
    #[error("the http probe cannot send {what} {value:?}: {why}")]
    BadRequest {
        /// Which part of the request.
        what: &'static str,
        /// As it was given.
        value: String,
        /// What is wrong with it.
        why: String,
    },
    /// A name or certificate of [service.server_tls] that cannot be used.
    #[error(transparent)]
    Tls(#[from] SetupError),
}

/// Asks one server, as often as it is told to. Build one per server.
pub struct Prober(ProbeImpl);

enum ProbeImpl {
    Tcp,
    Http(http::HttpProbe),
    Mysql(mysql::MysqlProbe),
    Postgres(postgres::MysqlProbe),
}

impl Prober {
    /// Checks everything that can be checked without the server. `tls` is not used by `Probe::Tcp`.
    pub fn new(
        probe: Probe,
        account: Option<MonitorAccount>,
        tls: Tls,
    ) -> Result<Self, ProbeSetupError> {
        Ok(Self(match probe {
            Probe::Tcp => ProbeImpl::Tcp,
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

    /// Asks once. It never takes longer than `timeout`, and leaves no connection behind.
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
            // Full is not dead: taking such a server out would only move its load to the next one.
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
            ProbeImpl::Tcp => tcp::ask(target, progress).await,
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
            ProbeImpl::Tcp => "tcp",
            ProbeImpl::Http(_) => "http",
            ProbeImpl::Mysql(_) => "mysql",
            ProbeImpl::Postgres(_) => "postgres",
        };
        f.debug_tuple("Asker").field(&protocol).finish()
    }
}

/// Why a server could not be asked.
#[derive(Debug)]
pub(crate) enum ProbeFailure {
    Failed(String),
    LoginRefused(String),
    /// It lives, and has no database of that name.
    NoDatabase(String),
    /// It lives, and has no connection to spare.
    Full(String),
}

impl From<String> for ProbeFailure {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

/// The step of a database probe in which the login is done and the query is not.
const QUERY: &str = "running the query";

/// How far the asking has come: what a time-out interrupts, and whether the answer is in already.
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

    /// From here on a time-out says "while" and this.
    fn step(&self, step: &'static str) {
        self.lock().step = step;
    }

    /// As `step`; and from here on errors are about the question, not about the login.
    pub(crate) fn logged_in(&self, step: &'static str) {
        let mut state = self.lock();
        state.step = step;
        state.logged_in = true;
    }

    fn is_logged_in(&self) -> bool {
        self.lock().logged_in
    }

    /// The answer is in; what comes after is goodbye and changes nothing.
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
