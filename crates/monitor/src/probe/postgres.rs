//! The PostgreSQL probe: a complete login with the monitor account, one query, a Terminate message.

mod login;

use std::pin::pin;

use evenkeel_wire::SqlProtocol;
use futures_util::{
    TryStreamExt,
    future::{Either, select},
};
use tokio_postgres::{Client, Error};

use super::{
    Ask, Asking, DEFAULT_QUERY, MonitorAccount, ProbeFailure, ProbeKind, ProbeSetupError, Progress,
    QUERY, Target, Tls, TlsUse,
};

pub(crate) use self::login::{Connection, Driver, Login};
pub(crate) use super::stream::ReceivedPrefix;

/// Settings of the PostgreSQL probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresProbe {
    /// One statement; its rows are read and discarded. Default `SELECT 1`.
    pub query: String,
}

impl Default for PostgresProbe {
    fn default() -> Self {
        Self {
            query: DEFAULT_QUERY.to_owned(),
        }
    }
}

impl ProbeKind for PostgresProbe {
    fn keys(&self) -> &'static [&'static str] {
        &["query"]
    }

    fn query_mut(&mut self) -> Option<&mut String> {
        Some(&mut self.query)
    }

    fn sql_protocol(&self) -> Option<SqlProtocol> {
        Some(SqlProtocol::Postgres)
    }

    fn tls_use(&self) -> TlsUse {
        TlsUse::AsSessions
    }

    fn prepare(
        &self,
        account: Option<MonitorAccount>,
        tls: Tls,
    ) -> Result<Box<dyn Ask>, ProbeSetupError> {
        let account = account.ok_or(ProbeSetupError::MissingAccount("postgres"))?;
        Ok(Box::new(LoginAndQuery {
            login: Login::new(account, &tls, "evenkeel-probe")?,
            query: self.query.clone(),
        }))
    }
}

/// Login and query of the probe.
struct LoginAndQuery {
    login: Login,
    query: String,
}

impl LoginAndQuery {
    async fn log_in_and_query(
        &self,
        target: &Target,
        progress: &Progress,
    ) -> Result<(), ProbeFailure> {
        let Connection {
            client,
            driver,
            received,
        } = self.login.connect(target, progress).await?;
        progress.logged_in(QUERY);
        let answer = self.talk(client, driver, progress).await;
        answer.map_err(|error| self.login.classify(&error, &received, progress))
    }

    async fn talk(
        &self,
        client: Client,
        mut driver: Driver,
        progress: &Progress,
    ) -> Result<(), Error> {
        let answer = {
            let query = pin!(run(&client, &self.query));
            match select(query, &mut driver).await {
                Either::Left((answer, _)) => answer,
                Either::Right((Err(error), _)) => return Err(error),
                Either::Right((Ok(()), query)) => return query.await,
            }
        };
        if answer.is_ok() {
            progress.passed();
        }
        // Without its client the connection sends Terminate and closes.
        drop(client);
        let _ = driver.await;
        answer
    }
}

impl Ask for LoginAndQuery {
    fn ask<'a>(&'a self, target: &'a Target, progress: &'a Progress) -> Asking<'a> {
        Box::pin(self.log_in_and_query(target, progress))
    }
}

/// Runs the query and discards its rows as they arrive.
async fn run(client: &Client, query: &str) -> Result<(), Error> {
    let mut rows = pin!(client.simple_query_raw(query).await?);
    while rows.try_next().await?.is_some() {}
    Ok(())
}
