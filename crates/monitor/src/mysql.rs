//! Queries the role of a MySQL or MariaDB server: alone, replicating, in Galera, in a group.

mod dialect;
mod galera;
mod group;
pub(super) mod inspect;
pub(super) mod logins;
pub(super) mod position;
mod replication;
pub(super) mod routines;

use evenkeel_policy::cluster::report::ReplicationState;
use mysql_async::{Conn, DriverError, Error, IoError, ServerError, Value, prelude::Queryable};

use super::{
    WatchError, persistent,
    row::{Row, UnexpectedValue, only},
};
use crate::probe::{
    AccountSource, DatabaseLogin as _, MonitorAccount, ProbeSetupError, Progress, Target, Tls,
    messages,
    mysql::{Login, catch_panic, malformed},
};

use dialect::Dialect;

/// Login and settings of the queries.
pub(super) struct Monitor {
    login: Login,
    user: String,
    lag_query: Option<String>,
}

/// A connection, and the dialect of its server.
pub(super) struct Link {
    connection: Conn,
    dialect: Dialect,
}

/// Reason why there is no result.
enum QueryError {
    Library(Error),
    UnexpectedValue(UnexpectedValue),
    LagQuery(ServerError),
}

impl From<Error> for QueryError {
    fn from(error: Error) -> Self {
        Self::Library(error)
    }
}

impl From<UnexpectedValue> for QueryError {
    fn from(unexpected: UnexpectedValue) -> Self {
        Self::UnexpectedValue(unexpected)
    }
}

impl Monitor {
    pub(super) fn new(
        account: MonitorAccount,
        tls: &Tls,
        lag_query: Option<String>,
    ) -> Result<Self, ProbeSetupError> {
        let monitor = Self::named(account, tls, "evenkeel-monitor")?;
        Ok(Self {
            lag_query,
            ..monitor
        })
    }

    /// Creates a monitor; `program` is the name under which the server sees the connection.
    pub(super) fn named(
        account: MonitorAccount,
        tls: &Tls,
        program: &'static str,
    ) -> Result<Self, ProbeSetupError> {
        Ok(Self {
            user: account.user.clone(),
            login: Login::new(account, tls, program)?,
            lag_query: None,
        })
    }

    async fn ask(&self, link: &mut Link) -> Result<ReplicationState, QueryError> {
        let Link {
            connection,
            dialect,
        } = link;
        let facts = only(rows(connection, dialect.facts()).await?)?;
        if dialect.may_be_galera(&facts)? {
            let status = Row::of_pairs(&rows(connection, galera::STATUS).await?);
            if galera::is_node(&facts, &status)? {
                return Ok(ReplicationState::Galera(galera::read(&facts, &status)?));
            }
        }
        if group::is_member(&facts)? {
            let view = only(rows(connection, group::VIEW).await?)?;
            let mut group = group::read(&facts, &view)?;
            if !group.is_primary {
                self.measure_lag(connection, &mut group.lag_ms).await?;
            }
            return Ok(ReplicationState::Group(group));
        }
        let channels = rows(connection, dialect.channels()).await?;
        let mut read = replication::read(&facts, &channels)?;
        if let Some(replica) = &mut read.replica {
            self.measure_lag(connection, &mut replica.lag_ms).await?;
        }
        Ok(ReplicationState::Replication(read))
    }

    /// Measures the lag by the configured query, if there is one.
    async fn measure_lag(
        &self,
        connection: &mut Conn,
        lag_ms: &mut Option<u64>,
    ) -> Result<(), QueryError> {
        if let Some(query) = &self.lag_query {
            let answer = rows(connection, query).await.map_err(|error| match error {
                Error::Server(error) => QueryError::LagQuery(error),
                other => QueryError::Library(other),
            })?;
            *lag_ms = only(answer)?.lag_ms()?;
        }
        Ok(())
    }

    async fn classify(
        &self,
        error: QueryError,
        dialect: Option<&Dialect>,
        target: &Target,
        progress: &Progress,
    ) -> WatchError {
        let error = match error {
            QueryError::Library(error) => error,
            QueryError::UnexpectedValue(unexpected) => {
                return WatchError::CannotTell(unexpected.to_string());
            }
            QueryError::LagQuery(error) => return lag_query_failed(&error, self.login.source()),
        };
        match &error {
            Error::Server(server) => match server.code {
                // Denied: a table, a column, a global privilege, a function.
                1142 | 1143 | 1227 | 1370 => self.denied(server, dialect),
                // Shutting down; interrupted; killed; idle for too long.
                1053 | 1317 | 1927 | 4031 => WatchError::Away(messages::truncated(&server.message)),
                // Password expired; locked; full: as at a login.
                1820 | 1862 | 3118 | 4151 | 1040 | 1203 | 1226 => {
                    self.login.classify(error, target, progress).await.into()
                }
                code => WatchError::CannotTell(format!(
                    "role query failed: {} (error {code})",
                    messages::truncated(&server.message)
                )),
            },
            // The server spoke the protocol a moment ago: no need to examine what it is.
            Error::Io(IoError::Io(cause)) if dialect.is_some() => {
                WatchError::Away(messages::io(cause))
            }
            Error::Driver(DriverError::ConnectionClosed) if dialect.is_some() => {
                WatchError::Away("the server closed the connection".to_owned())
            }
            _ => self.login.classify(error, target, progress).await.into(),
        }
    }

    fn denied(&self, error: &ServerError, dialect: Option<&Dialect>) -> WatchError {
        let table = matches!(error.code, 1142 | 1143);
        let grant = match dialect {
            _ if table => "SELECT ON performance_schema.*",
            Some(dialect) => dialect.privilege(),
            None => "REPLICATION CLIENT ON *.*",
        };
        WatchError::CannotTell(format!(
            "monitor account '{user}' lacks the privilege to query the role: {text} (error \
             {code}); GRANT {grant} TO '{user}'@'…' on the server",
            user = self.user,
            text = messages::truncated(&error.message),
            code = error.code,
        ))
    }
}

impl persistent::RoleQuery for Monitor {
    type Link = Link;

    async fn connect(&self, target: &Target, progress: &Progress) -> Result<Link, WatchError> {
        let mut connection = self.login.connect(target, progress).await?;
        progress.logged_in("querying its version");
        let learned = catch_panic(async move {
            let dialect = learn(&mut connection).await;
            (connection, dialect)
        });
        match learned.await {
            Some((connection, Ok(dialect))) => Ok(Link {
                connection,
                dialect,
            }),
            Some((_, Err(error))) => Err(self.classify(error, None, target, progress).await),
            None => Err(malformed(target).await.into()),
        }
    }

    async fn query_role(
        &mut self,
        mut link: Link,
        target: &Target,
        progress: &Progress,
    ) -> Result<(ReplicationState, Link), WatchError> {
        let monitor = &*self;
        let asking = catch_panic(async move {
            let answer = monitor.ask(&mut link).await;
            (link, answer)
        });
        match asking.await {
            Some((link, Ok(state))) => Ok((state, link)),
            Some((link, Err(error))) => {
                let dialect = Some(&link.dialect);
                Err(self.classify(error, dialect, target, progress).await)
            }
            None => Err(malformed(target).await.into()),
        }
    }

    async fn closed(_: &mut Link) {
        std::future::pending().await
    }

    async fn goodbye(link: Link) {
        let _ = link.connection.disconnect().await;
    }
}

async fn learn(connection: &mut Conn) -> Result<Dialect, QueryError> {
    let variables = variables(connection).await?;
    let mut dialect = Dialect::new(&variables)?;
    if let Some(query) = dialect.may_see_workers() {
        match connection.query_drop(query).await {
            Ok(()) => dialect.sees_workers(),
            // Then the lag is known in whole seconds.
            Err(Error::Server(_)) => {}
            Err(other) => return Err(other.into()),
        }
    }
    if let Some(setup) = dialect.setup() {
        connection.query_drop(setup).await?;
    }
    Ok(dialect)
}

/// Reads the server's variables; must run first on each connection. With autocommit off by the
/// server's default, the first query would begin a transaction, and all later results would come
/// from its snapshot.
async fn variables(connection: &mut Conn) -> Result<Row, Error> {
    connection.query_drop("SET autocommit = 1").await?;
    Ok(Row::of_pairs(&rows(connection, dialect::VARIABLES).await?))
}

async fn rows(connection: &mut Conn, query: &str) -> Result<Vec<Row>, Error> {
    let rows: Vec<mysql_async::Row> = connection.query(query).await?;
    Ok(rows.into_iter().map(row).collect())
}

fn row(row: mysql_async::Row) -> Row {
    let columns = row.columns();
    let names = columns.iter().map(|column| column.name_str().into_owned());
    Row::new(names.zip(row.unwrap().into_iter().map(text)))
}

/// Converts a value: results of plain queries are text.
fn text(value: Value) -> Option<String> {
    match value {
        Value::NULL => None,
        Value::Bytes(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        other => Some(other.as_sql(true)),
    }
}

fn lag_query_failed(error: &ServerError, source: AccountSource) -> WatchError {
    let text = messages::truncated(&error.message);
    WatchError::CannotTell(format!(
        "lag_query failed: {text} (error {}); check lag_query in {} and the \
         privileges of the account",
        error.code,
        source.name()
    ))
}

#[cfg(test)]
mod tests;
