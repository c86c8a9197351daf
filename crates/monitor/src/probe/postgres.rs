//! The PostgreSQL probe: a complete login with the monitor account, one query, a Terminate message.

mod login;

use std::pin::pin;

use evenkeel_wire::SqlProtocol;
use futures_util::{
    TryStreamExt,
    future::{Either, select},
};
use tokio_postgres::{Client, Error};

use super::Progress;
use super::database::{Database, DatabaseProbe};

pub(crate) use self::login::{Driver, Login};
pub(crate) use super::stream::ReceivedPrefix;

/// Settings of the PostgreSQL probe.
pub type PostgresProbe = DatabaseProbe<Postgres>;

/// PostgreSQL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Postgres;

impl Database for Postgres {
    const PROTOCOL: SqlProtocol = SqlProtocol::Postgres;
    const SPEAKS_FIRST: bool = false;
    type Login = Login;
}

/// Runs the probe's query, and ends the connection.
async fn talk(
    client: Client,
    mut driver: Driver,
    query: &str,
    progress: &Progress,
) -> Result<(), Error> {
    let answer = {
        let query = pin!(run(&client, query));
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

/// Runs the query and discards its rows as they arrive.
async fn run(client: &Client, query: &str) -> Result<(), Error> {
    let mut rows = pin!(client.simple_query_raw(query).await?);
    while rows.try_next().await?.is_some() {}
    Ok(())
}
