//! Implements the probe's connection, in the protocol of either database.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use mysql_async::prelude::Queryable;
use tokio::time::timeout;
use tokio_postgres::{NoTls, SimpleQueryMessage};

use super::log::Outcome;
use crate::sysbench::Driver;

/// Errors after which a statement may or may not have been executed, since the connection was ended
/// from outside: shutdown in progress, interrupted, killed.
const MYSQL_INTERRUPTED: [u16; 3] = [1053, 1317, 1927];

pub(crate) enum Client {
    Mysql(mysql_async::Conn),
    Postgres(tokio_postgres::Client),
}

impl Client {
    pub(crate) async fn connect(
        driver: Driver,
        address: SocketAddr,
        limit: Duration,
    ) -> Result<Client> {
        let connecting = async {
            match driver {
                Driver::Mysql => mysql(address).await,
                Driver::Pgsql => postgres(address).await,
            }
        };
        timeout(limit, connecting)
            .await
            .with_context(|| format!("not connected within {} ms", limit.as_millis()))?
    }

    pub(super) async fn create_table(&mut self) -> Result<()> {
        let serial = match self {
            Client::Mysql(_) => "BIGINT AUTO_INCREMENT",
            Client::Postgres(_) => "BIGSERIAL",
        };
        let statement = format!(
            "CREATE TABLE IF NOT EXISTS write_probe (serial {serial} PRIMARY KEY, \
             run BIGINT NOT NULL, id BIGINT NOT NULL, written_on INT NOT NULL)"
        );
        match self {
            Client::Mysql(client) => client.query_drop(statement).await?,
            Client::Postgres(client) => client.batch_execute(&statement).await?,
        }
        Ok(())
    }

    /// Returns the port of the server that answers, as the server reports it.
    pub(crate) async fn port(&mut self) -> Result<u16> {
        self.number(self.port_word()).await
    }

    /// Returns the value of this expression at the server that answers.
    pub(crate) async fn number(&mut self, expression: &str) -> Result<u16> {
        let query = format!("SELECT {expression}");
        match self {
            Client::Mysql(client) => {
                let number: Option<u16> = client.query_first(query).await?;
                number.context("no row")
            }
            Client::Postgres(client) => {
                let messages = client.simple_query(&query).await?;
                let mut rows = messages.iter().filter_map(|message| match message {
                    SimpleQueryMessage::Row(row) => row.get(0),
                    _ => None,
                });
                Ok(rows.next().context("no row")?.parse()?)
            }
        }
    }

    fn port_word(&self) -> &'static str {
        match self {
            Client::Mysql(_) => "@@port",
            Client::Postgres(_) => "current_setting('port')::int",
        }
    }

    /// Writes one row, which also contains the port of the server that accepted it.
    pub(super) async fn write(&mut self, run: u64, id: u64, limit: Duration) -> Outcome {
        let port = self.port_word();
        let statement =
            format!("INSERT INTO write_probe (run, id, written_on) VALUES ({run}, {id}, {port})");
        let writing = async {
            match self {
                Client::Mysql(client) => outcome_of_mysql(client.query_drop(statement).await),
                Client::Postgres(client) => {
                    outcome_of_postgres(client.batch_execute(&statement).await)
                }
            }
        };
        timeout(limit, writing).await.unwrap_or_else(|_| {
            Outcome::Unknown(format!("no answer within {} ms", limit.as_millis()))
        })
    }

    /// Returns id and port of all rows of a run, in the order of writing.
    pub(super) async fn rows(&mut self, run: u64) -> Result<Vec<(u64, u16)>> {
        let query =
            format!("SELECT id, written_on FROM write_probe WHERE run = {run} ORDER BY serial");
        match self {
            Client::Mysql(client) => Ok(client.query(query).await?),
            Client::Postgres(client) => {
                let messages = client.simple_query(&query).await?;
                messages.iter().filter_map(row).collect()
            }
        }
    }
}

async fn mysql(address: SocketAddr) -> Result<Client> {
    // Options set here need no query to the server after the login.
    let options = mysql_async::OptsBuilder::default()
        .ip_or_hostname(address.ip().to_string())
        .tcp_port(address.port())
        .user(Some("sbtest"))
        .pass(Some("sbtest"))
        .db_name(Some("sbtest"))
        .prefer_socket(false)
        .max_allowed_packet(Some(16 << 20))
        .wait_timeout(Some(28_800));
    Ok(Client::Mysql(mysql_async::Conn::new(options).await?))
}

async fn postgres(address: SocketAddr) -> Result<Client> {
    let mut config = tokio_postgres::Config::new();
    config
        .host(address.ip().to_string())
        .port(address.port())
        .user("sbtest")
        .password("sbtest")
        .dbname("sbtest");
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(Client::Postgres(client))
}

fn outcome_of_mysql(result: mysql_async::Result<()>) -> Outcome {
    match result {
        Ok(()) => Outcome::Acknowledged,
        Err(mysql_async::Error::Server(error))
            if !error.state.starts_with("08") && !MYSQL_INTERRUPTED.contains(&error.code) =>
        {
            Outcome::Refused(error.to_string())
        }
        Err(error) => Outcome::Unknown(error.to_string()),
    }
}

/// Interprets an error: class 08 are lost connections, 57P operator interventions.
fn outcome_of_postgres(result: Result<(), tokio_postgres::Error>) -> Outcome {
    let Err(error) = result else {
        return Outcome::Acknowledged;
    };
    match error.as_db_error() {
        Some(refusal) => {
            let (code, text) = (refusal.code().code(), refusal.to_string());
            if code.starts_with("08") || code.starts_with("57P") {
                Outcome::Unknown(format!("{text} ({code})"))
            } else {
                Outcome::Refused(format!("{text} ({code})"))
            }
        }
        None => Outcome::Unknown(error.to_string()),
    }
}

fn row(message: &SimpleQueryMessage) -> Option<Result<(u64, u16)>> {
    let SimpleQueryMessage::Row(row) = message else {
        return None;
    };
    let number = |column| row.get(column).unwrap_or_default();
    Some((|| Ok((number(0).parse()?, number(1).parse()?)))())
}
