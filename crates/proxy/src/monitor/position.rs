//! Asks a database server how far it is: what was written on it, what whoever reads there sees.

use std::time::Duration;

use evenkeel_policy::causality::{Position, WaitSupport};

use super::{Database, WatchError, mysql, postgres};
use crate::probe::{MonitorAccount, ProbeSetupError, Target, Tls};

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerPosition {
    /// Of one that takes writes: what another must have that is to have all of them.
    pub written: Option<Position>,
    /// Of one that may be a replica: what whoever reads there sees.
    pub applied: Option<Position>,
    /// When the question was sent.
    pub asked_us: u64,
    /// What it can wait for, as a replica.
    pub wait: WaitSupport,
}

/// Asks one server, over a connection that it keeps.
pub struct PositionQuery(Kind);

enum Kind {
    Mysql(Box<mysql::position::Asker>),
    Postgres(Box<postgres::position::Asker>),
}

impl PositionQuery {
    /// Checks everything that can be checked without the server.
    pub fn new(
        database: Database,
        account: MonitorAccount,
        tls: &Tls,
    ) -> Result<Self, ProbeSetupError> {
        Ok(Self(match database {
            Database::Mysql => Kind::Mysql(Box::new(mysql::position::Asker::new(account, tls)?)),
            Database::Postgres => {
                Kind::Postgres(Box::new(postgres::position::Asker::new(account, tls)?))
            }
        }))
    }

    /// Asks once, within `timeout`, over the kept connection if there is one to that target.
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

    /// Waits, up to `timeout`, until one that has just become the primary has applied all that its
    /// predecessors acknowledged, if it may not have (Galera).
    pub async fn catch_up(&mut self, target: &Target, timeout: Duration) -> Result<(), WatchError> {
        match &mut self.0 {
            Kind::Mysql(asker) => asker.catch_up(target, timeout).await,
            Kind::Postgres(_) => Ok(()),
        }
    }

    /// Takes leave of the server, until the next question.
    pub fn hang_up(&mut self) {
        match &mut self.0 {
            Kind::Mysql(asker) => asker.hang_up(),
            Kind::Postgres(asker) => asker.hang_up(),
        }
    }
}
