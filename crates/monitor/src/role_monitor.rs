//! Queries a database server's role over a connection that is kept.
//!
//! `policy::cluster` interprets the results. A connection that failed once is never used again, and
//! its failure is reported: the caller decides whether to query again.

use std::{fmt, time::Duration};

use evenkeel_policy::cluster::RoleReport;
use evenkeel_wire::SqlProtocol;

use crate::persistent::PersistentConnection;
use crate::probe::{MonitorAccount, ProbeSetupError, Target, Tls};
use crate::{Clock, WatchError, mysql, postgres};

/// Queries one server's role on request. Build one per server.
pub struct RoleMonitor(Kind);

enum Kind {
    Mysql(Box<PersistentConnection<mysql::Monitor>>),
    Postgres(Box<PersistentConnection<postgres::Monitor>>),
}

impl RoleMonitor {
    /// Checks everything that can be checked without the server. `lag_query` returns one row and
    /// one column: a replica's lag in milliseconds, or NULL; it is executed on replicas only.
    /// Reports carry times of `now_us`.
    pub fn new(
        protocol: SqlProtocol,
        account: MonitorAccount,
        tls: Tls,
        lag_query: Option<String>,
        now_us: Clock,
    ) -> Result<Self, ProbeSetupError> {
        Ok(Self(match protocol {
            SqlProtocol::Mysql => {
                let monitor = mysql::Monitor::new(account, &tls, lag_query)?;
                Kind::Mysql(Box::new(PersistentConnection::new(monitor, now_us)))
            }
            SqlProtocol::Postgres => {
                let monitor = postgres::Monitor::new(account, &tls, lag_query)?;
                Kind::Postgres(Box::new(PersistentConnection::new(monitor, now_us)))
            }
        }))
    }

    /// Queries the role, within `timeout`: over the kept connection, or over a new one if `fresh`
    /// is set, the target has changed, or the last query got no reply.
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

    /// Returns whether there is a kept connection that has not failed, as far as is known yet.
    pub fn is_connected(&self) -> bool {
        match &self.0 {
            Kind::Mysql(keeper) => keeper.is_connected(),
            Kind::Postgres(keeper) => keeper.is_connected(),
        }
    }

    /// Waits until the server closes the kept connection; forever if there is none. May be canceled
    /// and called again.
    ///
    /// The call never returns for MySQL and MariaDB: the library that owns the connection does not
    /// report the end, so the next query detects it.
    pub async fn closed(&mut self) {
        match &mut self.0 {
            Kind::Mysql(keeper) => keeper.closed().await,
            Kind::Postgres(keeper) => keeper.closed().await,
        }
    }

    /// Closes the connection as the protocol requires. A dropped monitor does so, too, if its
    /// runtime lives long enough.
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
        let protocol = match &self.0 {
            Kind::Mysql(_) => SqlProtocol::Mysql,
            Kind::Postgres(_) => SqlProtocol::Postgres,
        };
        f.debug_tuple("Watcher").field(&protocol).finish()
    }
}

#[cfg(test)]
mod tests;
