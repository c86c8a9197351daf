//! Probes a database: a complete login with the monitor account, one query, and the protocol's
//! termination message.

use evenkeel_wire::SqlProtocol;

use super::{
    AccountSource, Ask, Asking, MonitorAccount, ProbeFailure, ProbeKind, ProbeSetupError, Progress,
    QUERY, Target, Tls, TlsUse,
};

/// Default query of the probes.
const DEFAULT_QUERY: &str = "SELECT 1";

/// Kind of database.
pub(crate) trait Database {
    /// Protocol of the servers.
    const PROTOCOL: SqlProtocol;
    /// True if the server sends the first bytes of a connection.
    const SPEAKS_FIRST: bool;
    /// Login with the monitor account.
    type Login: DatabaseLogin;
}

/// Login with the monitor account at the servers of one kind of database.
pub(crate) trait DatabaseLogin: Sized + Send + Sync + 'static {
    /// A connection that is logged in.
    type Connection: Send;

    /// Creates a login; `program` is the name under which the server sees the connection.
    fn new(
        account: MonitorAccount,
        tls: &Tls,
        program: &'static str,
    ) -> Result<Self, ProbeSetupError>;

    /// Returns the place where the account is configured.
    fn source(&self) -> AccountSource;

    /// Connects and logs in. Errors do not name the place of the TLS settings.
    fn log_in(
        &self,
        target: &Target,
        progress: &Progress,
    ) -> impl Future<Output = Result<Self::Connection, ProbeFailure>> + Send;

    /// Runs a query, discards its rows, and closes the connection.
    fn run(
        &self,
        connection: Self::Connection,
        query: &str,
        target: &Target,
        progress: &Progress,
    ) -> impl Future<Output = Result<(), ProbeFailure>> + Send;

    /// Connects and logs in.
    fn connect(
        &self,
        target: &Target,
        progress: &Progress,
    ) -> impl Future<Output = Result<Self::Connection, ProbeFailure>> + Send {
        async move {
            let connected = self.log_in(target, progress).await;
            connected.map_err(|failure| failure.named_in(self.source().tls_settings()))
        }
    }
}

/// Settings of the probe of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseProbe<D> {
    /// One statement; its rows are read and discarded. Default `SELECT 1`.
    pub query: String,
    /// The kind of database.
    pub database: D,
}

impl<D: Default> Default for DatabaseProbe<D> {
    fn default() -> Self {
        Self {
            query: DEFAULT_QUERY.to_owned(),
            database: D::default(),
        }
    }
}

impl<D: Database> ProbeKind for DatabaseProbe<D> {
    fn keys(&self) -> &'static [&'static str] {
        &["query"]
    }

    fn query_mut(&mut self) -> Option<&mut String> {
        Some(&mut self.query)
    }

    fn sql_protocol(&self) -> Option<SqlProtocol> {
        Some(D::PROTOCOL)
    }

    fn server_speaks_first(&self) -> bool {
        D::SPEAKS_FIRST
    }

    fn tls_use(&self) -> TlsUse {
        TlsUse::AsSessions
    }

    fn prepare(
        &self,
        account: Option<MonitorAccount>,
        tls: Tls,
    ) -> Result<Box<dyn Ask>, ProbeSetupError> {
        let account = account.ok_or(ProbeSetupError::MissingAccount(D::PROTOCOL.name()))?;
        Ok(Box::new(LoginAndQuery {
            login: D::Login::new(account, &tls, "evenkeel-probe")?,
            query: self.query.clone(),
        }))
    }
}

/// Login and query of the probe.
struct LoginAndQuery<L> {
    login: L,
    query: String,
}

impl<L: DatabaseLogin> LoginAndQuery<L> {
    async fn log_in_and_query(
        &self,
        target: &Target,
        progress: &Progress,
    ) -> Result<(), ProbeFailure> {
        let connection = self.login.connect(target, progress).await?;
        progress.logged_in(QUERY);
        let running = self.login.run(connection, &self.query, target, progress);
        running.await
    }
}

impl<L: DatabaseLogin> Ask for LoginAndQuery<L> {
    fn ask<'a>(&'a self, target: &'a Target, progress: &'a Progress) -> Asking<'a> {
        Box::pin(self.log_in_and_query(target, progress))
    }
}
