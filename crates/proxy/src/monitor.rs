//! Watchers: each asks one database server what it is, over a connection that it keeps.
//!
//! What the answers mean is decided by `policy::cluster`. A connection that failed once is never
//! used again, and its failure is reported: whether to ask anew is for the caller to decide.

mod mysql;
mod persistent;
mod position;
mod postgres;
mod row;

use std::{fmt, time::Duration};

use evenkeel_policy::cluster::RoleReport;

pub use self::mysql::logins::MysqlAuthQuery;
pub use self::mysql::routines::RoutineReader;
use self::persistent::PersistentConnection;
pub use self::position::{PositionQuery, ServerPosition};
pub use self::postgres::{catalog::CatalogReader, logins::PostgresAuthQuery};
use crate::probe::{MonitorAccount, ProbeFailure, ProbeSetupError, Target, Tls};

/// Which protocol the server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Database {
    /// MySQL and MariaDB, in whatever kind of cluster.
    Mysql,
    /// PostgreSQL from 12 on.
    Postgres,
}

/// Why a server did not say what it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    /// It could not be reached, broke the connection, or took too long.
    #[error("{0}")]
    Away(String),
    /// It lives, but does not let the monitor account in.
    #[error("{0}")]
    LoginRefused(String),
    /// It lives, and has no database of that name.
    #[error("{0}")]
    NoDatabase(String),
    /// It lives, but a privilege is missing, it is full, or its answer makes no sense.
    #[error("{0}")]
    CannotTell(String),
}

impl From<ProbeFailure> for WatchError {
    fn from(failure: ProbeFailure) -> Self {
        match failure {
            ProbeFailure::Failed(why) => Self::Away(why),
            ProbeFailure::LoginRefused(why) => Self::LoginRefused(why),
            ProbeFailure::NoDatabase(why) => Self::NoDatabase(why),
            ProbeFailure::Full(why) => Self::CannotTell(why),
        }
    }
}

/// Asks one server for its role, as often as it is told to. Build one per server.
pub struct RoleMonitor(Kind);

enum Kind {
    Mysql(Box<PersistentConnection<mysql::Monitor>>),
    Postgres(Box<PersistentConnection<postgres::Monitor>>),
}

impl RoleMonitor {
    /// Checks everything that can be checked without the server. `lag_query` has one row and one
    /// column: how many milliseconds a replica is behind, or NULL; it is run on replicas only.
    pub fn new(
        database: Database,
        account: MonitorAccount,
        tls: Tls,
        lag_query: Option<String>,
    ) -> Result<Self, ProbeSetupError> {
        Ok(Self(match database {
            Database::Mysql => {
                let monitor = mysql::Monitor::new(account, tls, lag_query)?;
                Kind::Mysql(Box::new(PersistentConnection::new(monitor)))
            }
            Database::Postgres => {
                let monitor = postgres::Monitor::new(account, &tls, lag_query)?;
                Kind::Postgres(Box::new(PersistentConnection::new(monitor)))
            }
        }))
    }

    /// Asks once, within `timeout`: over the kept connection, or over a new one if `fresh` is
    /// wanted, the target is another, or the last question was not answered.
    pub async fn ask(
        &mut self,
        target: &Target,
        fresh: bool,
        timeout: Duration,
    ) -> Result<RoleReport, WatchError> {
        match &mut self.0 {
            Kind::Mysql(keeper) => keeper.ask(target, fresh, timeout).await,
            Kind::Postgres(keeper) => keeper.ask(target, fresh, timeout).await,
        }
    }

    /// Whether there is a kept connection, for all that is known.
    pub fn is_connected(&self) -> bool {
        match &self.0 {
            Kind::Mysql(keeper) => keeper.is_connected(),
            Kind::Postgres(keeper) => keeper.is_connected(),
        }
    }

    /// Waits until the kept connection is found to be closed by the server; for ever if there is
    /// none. May be cancelled and called again.
    ///
    /// For MySQL and MariaDB it waits for ever: the library that holds the connection does not
    /// tell. There the next question finds out.
    pub async fn closed(&mut self) {
        match &mut self.0 {
            Kind::Mysql(keeper) => keeper.closed().await,
            Kind::Postgres(keeper) => keeper.closed().await,
        }
    }

    /// Takes leave of the server as its protocol wants it. A watcher that is dropped does so too,
    /// if its runtime lives long enough.
    pub async fn goodbye(self) {
        match self.0 {
            Kind::Mysql(keeper) => keeper.goodbye().await,
            Kind::Postgres(keeper) => keeper.goodbye().await,
        }
    }
}

impl fmt::Debug for RoleMonitor {
    // The libraries' own options would print the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let database = match &self.0 {
            Kind::Mysql(_) => Database::Mysql,
            Kind::Postgres(_) => Database::Postgres,
        };
        f.debug_tuple("Watcher").field(&database).finish()
    }
}

#[cfg(test)]
mod tests;
