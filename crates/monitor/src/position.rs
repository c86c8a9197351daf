//! Queries a database server's position: the transactions written on it, and those visible to its
//! readers.

use std::time::Duration;

use evenkeel_policy::causality::{Position, WaitSupport};
use evenkeel_wire::SqlProtocol;

use super::{Clock, WatchError, mysql, postgres};
use crate::probe::{MonitorAccount, ProbeSetupError, Target, Tls};

/// Position of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerPosition {
    /// Position that another server needs in order to have all writes of this one. `None` if the
    /// server does not take writes, or reports no position.
    pub written: Option<Position>,
    /// Position visible to the server's readers; `None` if the server cannot be a replica, or
    /// reports no position.
    pub applied: Option<Position>,
    /// Time when the query was sent.
    pub queried_us: u64,
    /// Positions that the server can wait for as a replica.
    pub wait: WaitSupport,
}

/// Queries one server over a connection that is kept.
pub struct PositionQuery(Kind);

enum Kind {
    Mysql(Box<mysql::position::Asker>),
    Postgres(Box<postgres::position::Asker>),
}

impl PositionQuery {
    /// Checks everything that can be checked without the server. Results carry times of `now_us`.
    pub fn new(
        protocol: SqlProtocol,
        account: MonitorAccount,
        tls: &Tls,
        now_us: Clock,
    ) -> Result<Self, ProbeSetupError> {
        Ok(Self(match protocol {
            SqlProtocol::Mysql => {
                let asker = mysql::position::Asker::new(account, tls, now_us)?;
                Kind::Mysql(Box::new(asker))
            }
            SqlProtocol::Postgres => {
                let asker = postgres::position::Asker::new(account, tls, now_us)?;
                Kind::Postgres(Box::new(asker))
            }
        }))
    }

    /// Queries the position, within `timeout`, over the kept connection if there is one to that
    /// target.
    pub async fn ask(
        &mut self,
        target: &Target,
        timeout: Duration,
    ) -> Result<ServerPosition, WatchError> {
        match &mut self.0 {
            Kind::Mysql(asker) => asker.ask(target, timeout).await,
            Kind::Postgres(asker) => asker.ask(target, timeout).await,
        }
    }

    /// Waits up to `timeout` until a new primary has applied everything that its predecessors
    /// acknowledged, if it may not have (Galera).
    pub async fn catch_up(&mut self, target: &Target, timeout: Duration) -> Result<(), WatchError> {
        match &mut self.0 {
            Kind::Mysql(asker) => asker.catch_up(target, timeout).await,
            Kind::Postgres(_) => Ok(()),
        }
    }

    /// Closes the connection until the next query.
    pub fn hang_up(&mut self) {
        match &mut self.0 {
            Kind::Mysql(asker) => asker.hang_up(),
            Kind::Postgres(asker) => asker.hang_up(),
        }
    }
}
