//! Queries a PostgreSQL server's role, timeline and position.

mod answer;
pub(super) mod catalog;
pub(super) mod inspect;
mod line;
pub(super) mod logins;
pub(super) mod position;

use tokio::task::JoinHandle;
use tokio_postgres::{
    Client, Error, SimpleQueryMessage, SimpleQueryRow,
    error::{DbError, Severity, SqlState},
};

use evenkeel_policy::cluster::report::ReplicationState;

use super::{
    WatchError, persistent,
    row::{Row, UnexpectedValue, only},
};
use crate::probe::{
    AccountSource, DatabaseLogin as _, MonitorAccount, ProbeSetupError, Progress, Target, Tls,
    messages,
    postgres::{Login, ReceivedPrefix},
};

use answer::Timelines;

/// Login and settings of the queries, and state kept between them.
pub(super) struct Monitor {
    login: Login,
    user: String,
    lag_query: Option<String>,
    timelines: Timelines,
}

/// A connection, driven by a task of its own.
pub(super) struct Link {
    client: Client,
    driver: Driver,
    received: ReceivedPrefix,
    /// True if `default_transaction_read_only` is set for the monitor account alone, so that it
    /// does not apply to other accounts.
    is_account_default: bool,
}

/// The task that drives the connection.
struct Driver {
    task: JoinHandle<Result<(), Error>>,
    /// True while a query is pending: without its client the task would keep waiting.
    busy: bool,
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Otherwise the task terminates the connection as soon as its client is gone.
        if self.busy {
            self.task.abort();
        }
    }
}

/// Reason why there is no result.
enum QueryError {
    Library(Error),
    UnexpectedValue(UnexpectedValue),
    LagQuery(Box<Error>),
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
        Ok(Self {
            user: account.user.clone(),
            login: Login::new(account, tls, "evenkeel-monitor")?,
            lag_query,
            timelines: Timelines::default(),
        })
    }

    async fn ask(&mut self, link: &mut Link) -> Result<ReplicationState, QueryError> {
        let row = only(link.rows(answer::QUESTION).await?)?;
        let mut read = answer::read(&row, link.is_account_default, &mut self.timelines)?;
        if let Some(query) = &self.lag_query
            && read.in_recovery
        {
            let failed = |error| QueryError::LagQuery(Box::new(error));
            let rows = link.rows(query).await.map_err(failed)?;
            read.replay_age_ms = only(rows)?.lag_ms()?;
        }
        Ok(ReplicationState::Postgres(read))
    }

    async fn classify(
        &self,
        error: QueryError,
        link: &mut Link,
        progress: &Progress,
    ) -> WatchError {
        let (error, lag_query) = match error {
            QueryError::UnexpectedValue(unexpected) => {
                return WatchError::CannotTell(unexpected.to_string());
            }
            QueryError::Library(error) => (error, false),
            QueryError::LagQuery(error) => (*error, true),
        };
        let error = link.cause(error).await;
        let refused = error.as_db_error().filter(|db| is_query_error(db));
        match refused {
            Some(db) if lag_query => lag_query_failed(db, self.login.source()),
            Some(db) => self.refused(db),
            None => self.login.classify(&error, &link.received, progress).into(),
        }
    }

    fn refused(&self, error: &DbError) -> WatchError {
        let text = messages::truncated(error.message());
        let code = error.code().code();
        WatchError::CannotTell(match error.code() {
            &SqlState::INSUFFICIENT_PRIVILEGE => format!(
                "monitor account '{user}' lacks the privilege to query the role: {text} (SQLSTATE \
                 {code}); GRANT pg_monitor TO {user}, and GRANT EXECUTE on the functions \
                 pg_control_system, pg_control_checkpoint and pg_control_recovery",
                user = self.user
            ),
            &SqlState::UNDEFINED_FUNCTION
            | &SqlState::UNDEFINED_COLUMN
            | &SqlState::UNDEFINED_TABLE => {
                format!(
                    "role query failed: {text} (SQLSTATE {code}); roles require PostgreSQL 12 or \
                     newer"
                )
            }
            _ => format!("role query failed: {text} (SQLSTATE {code})"),
        })
    }
}

impl persistent::RoleQuery for Monitor {
    type Link = Link;

    async fn connect(&self, target: &Target, progress: &Progress) -> Result<Link, WatchError> {
        let connection = self.login.connect(target, progress).await?;
        let mut link = Link {
            client: connection.client,
            driver: Driver {
                task: tokio::spawn(connection.driver),
                busy: true,
            },
            received: connection.received,
            is_account_default: false,
        };
        progress.logged_in("querying its settings");
        match link.learn().await {
            Ok(()) => Ok(link),
            Err(error) => Err(self.classify(error, &mut link, progress).await),
        }
    }

    async fn query_role(
        &mut self,
        mut link: Link,
        _: &Target,
        progress: &Progress,
    ) -> Result<(ReplicationState, Link), WatchError> {
        link.driver.busy = true;
        match self.ask(&mut link).await {
            Ok(state) => {
                link.driver.busy = false;
                Ok((state, link))
            }
            Err(error) => Err(self.classify(error, &mut link, progress).await),
        }
    }

    async fn closed(link: &mut Link) {
        let _ = (&mut link.driver.task).await;
    }

    async fn goodbye(link: Link) {
        let Link {
            client, mut driver, ..
        } = link;
        // Without its client the task sends Terminate.
        drop(client);
        let _ = (&mut driver.task).await;
    }
}

impl Link {
    async fn learn(&mut self) -> Result<(), QueryError> {
        let row = only(self.rows(answer::SETTING).await?)?;
        self.is_account_default = answer::is_account_setting(&row)?;
        Ok(())
    }

    async fn rows(&self, query: &str) -> Result<Vec<Row>, Error> {
        self.received.next_answer();
        let messages = self.client.simple_query(query).await?;
        Ok(messages.iter().filter_map(row).collect())
    }

    /// Returns the cause of the connection's end, if this error reports only the end.
    async fn cause(&mut self, error: Error) -> Error {
        if !error.is_closed() {
            return error;
        }
        match (&mut self.driver.task).await {
            Ok(Err(cause)) => cause,
            _ => error,
        }
    }
}

fn row(message: &SimpleQueryMessage) -> Option<Row> {
    let cells = |row: &SimpleQueryRow| {
        let names = row.columns().iter().map(|column| column.name().to_owned());
        let values = (0..row.len()).map(|at| row.get(at).map(str::to_owned));
        Row::new(names.zip(values))
    };
    match message {
        SimpleQueryMessage::Row(row) => Some(cells(row)),
        _ => None,
    }
}

/// Returns whether an error concerns the query. A fatal one concerns the connection: a server that
/// stops, a session that was ended.
fn is_query_error(error: &DbError) -> bool {
    !matches!(
        error.parsed_severity(),
        Some(Severity::Fatal | Severity::Panic)
    )
}

fn lag_query_failed(error: &DbError, source: AccountSource) -> WatchError {
    WatchError::CannotTell(format!(
        "lag_query failed: {} (SQLSTATE {}); check lag_query in {} and the \
         privileges of the account",
        messages::truncated(error.message()),
        error.code().code(),
        source.name()
    ))
}

#[cfg(test)]
mod tests;
