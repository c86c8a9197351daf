//! The PostgreSQL probe: a complete login with the monitor account, one query, a Terminate message.

mod login;

use std::pin::pin;

use futures_util::{
    TryStreamExt,
    future::{Either, select},
};
use tokio_postgres::{Client, Error};

use super::{MonitorAccount, ProbeFailure, ProbeSetupError, Progress, QUERY, Target, Tls};

pub(crate) use self::login::{Connection, Driver, Login};
pub(crate) use super::stream::ReceivedPrefix;

/// Login and query of the probe.
pub(super) struct MysqlProbe {
    login: Login,
    query: String,
}

impl MysqlProbe {
    pub(super) fn new(
        account: MonitorAccount,
        query: String,
        tls: &Tls,
    ) -> Result<Self, ProbeSetupError> {
        let login = Login::new(account, tls, "evenkeel-probe")?;
        Ok(Self { login, query })
    }

    pub(super) async fn ask(
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

/// Runs the query and discards its rows as they arrive.
async fn run(client: &Client, query: &str) -> Result<(), Error> {
    let mut rows = pin!(client.simple_query_raw(query).await?);
    while rows.try_next().await?.is_some() {}
    Ok(())
}
