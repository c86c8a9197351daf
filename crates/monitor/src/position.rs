//! Queries a database server's position: the transactions written on it, and those visible to its
//! readers.

use std::time::Duration;

use evenkeel_policy::causality::{Position, WaitSupport};
use evenkeel_wire::SqlProtocol;

use super::{Clock, WatchError, mysql, postgres};
use crate::kept_line::{KeptLine, within};
use crate::probe::{MonitorAccount, ProbeSetupError, Progress, Target, Tls};

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
    Mysql(Box<Asker<mysql::Monitor>>),
    Postgres(Box<Asker<postgres::position::Positions>>),
}

/// Connections to the servers of one kind of database, and their question.
pub(crate) trait PositionSource {
    /// Name of the query in errors.
    const STEP: &'static str;

    /// A connection, and what is known of its server.
    type Link;

    /// Connects and logs in.
    async fn connect(&self, target: &Target, progress: &Progress)
    -> Result<Self::Link, WatchError>;

    /// Returns whether the connection still works, as far as it is known.
    fn is_usable(link: &Self::Link) -> bool;

    /// Queries the position. A connection without a reply is not returned.
    async fn query(
        &self,
        link: Self::Link,
        now_us: Clock,
        target: &Target,
        progress: &Progress,
    ) -> Result<(ServerPosition, Self::Link), WatchError>;
}

/// Queries one server over a connection that is kept.
struct Asker<S: PositionSource> {
    source: S,
    kept: KeptLine<S::Link>,
    now_us: Clock,
}

impl<S: PositionSource> Asker<S> {
    fn new(source: S, now_us: Clock) -> Box<Self> {
        Box::new(Self {
            source,
            kept: KeptLine::default(),
            now_us,
        })
    }

    async fn ask(
        &mut self,
        target: &Target,
        timeout: Duration,
    ) -> Result<ServerPosition, WatchError> {
        let link = self.kept.take(target).filter(S::is_usable);
        let progress = Progress::new(timeout);
        let asking = async {
            let link = match link {
                Some(link) => link,
                None => self.source.connect(target, &progress).await?,
            };
            progress.logged_in(S::STEP);
            let query = self.source.query(link, self.now_us, target, &progress);
            query.await
        };
        let answer = within(timeout, &progress, asking).await?;
        Ok(self.kept.keep(target, answer))
    }
}

impl PositionQuery {
    /// Checks everything that can be checked without the server. Results carry times of `now_us`.
    pub fn new(
        protocol: SqlProtocol,
        account: MonitorAccount,
        tls: &Tls,
        now_us: Clock,
    ) -> Result<Self, ProbeSetupError> {
        const PROGRAM: &str = "evenkeel-position";
        Ok(Self(match protocol {
            SqlProtocol::Mysql => {
                let source = mysql::Monitor::named(account, tls, PROGRAM)?;
                Kind::Mysql(Asker::new(source, now_us))
            }
            SqlProtocol::Postgres => {
                let source = postgres::position::Positions::new(account, tls, PROGRAM)?;
                Kind::Postgres(Asker::new(source, now_us))
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
            Kind::Mysql(asker) => asker.source.catch_up(target, timeout).await,
            Kind::Postgres(_) => Ok(()),
        }
    }

    /// Closes the connection until the next query.
    pub fn hang_up(&mut self) {
        match &mut self.0 {
            Kind::Mysql(asker) => asker.kept.hang_up(),
            Kind::Postgres(asker) => asker.kept.hang_up(),
        }
    }
}
