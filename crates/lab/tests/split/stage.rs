//! A primary with two replicas, a service in front of it that splits reads, and clients.

use std::net::SocketAddr;
use std::time::Duration;

use evenkeel_lab::{ClusterKind, Scenario};
use tokio::runtime::Runtime;
use tokio_postgres::types::{FromSqlOwned, ToSql};
use tokio_postgres::{Config, NoTls, SimpleQueryMessage};

use crate::harness::{engine, loopback};

pub(crate) use crate::harness::cluster::TestBed;

/// Query for the port of the server that executes it.
pub(crate) const WHERE: &str = "SELECT inet_server_port()";

impl TestBed {
    /// Starts with reads on replicas only, unless the further lines of `[service.split]` change
    /// that.
    pub(crate) fn set_up(io: &str, further: &str) -> TestBed {
        TestBed::set_with(io, &format!("[service.split]\nreads = true\n{further}"))
    }

    /// Starts with these lines after those of `[[service]]`.
    pub(crate) fn set_with(io: &str, further: &str) -> TestBed {
        TestBed::start(&engine(io), further)
    }

    /// Starts with these lines before them as well.
    pub(crate) fn start(head: &str, further: &str) -> TestBed {
        TestBed::start_at(loopback(), head, further)
    }

    pub(crate) fn start_at(listen: SocketAddr, head: &str, further: &str) -> TestBed {
        let scenario = Scenario::start(ClusterKind::Postgres).unwrap();
        TestBed::before(scenario, listen, head, further)
    }

    pub(crate) fn port_of_primary(&self) -> i32 {
        self.primary().address.port().into()
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.listen)
    }

    /// Runs SQL at the primary directly, as a superuser of the servers, who has no password.
    pub(crate) fn sql(&self, text: &str) -> String {
        self.primary().sql(text).unwrap()
    }

    /// Connects to the sbtest database at the primary directly, as its owner.
    pub(crate) fn direct(&self) -> Client {
        Client::connect(self.primary().address)
    }

    /// Waits until a plain read of this client runs on a replica, which needs the catalog.
    pub(crate) fn wait_split(&self, client: &Client) {
        let primary = self.port_of_primary();
        self.wait("a read at a replica", || client.port(WHERE) != primary);
    }
}

/// Returns the database of each test: no two share a server.
pub(crate) fn own_database() -> &'static str {
    "sbtest"
}

/// A client that waits for its replies.
pub(crate) struct Client {
    runtime: Runtime,
    pub(crate) client: tokio_postgres::Client,
}

/// An error: its SQLSTATE and its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) state: String,
    pub(crate) text: String,
}

impl From<tokio_postgres::Error> for Failed {
    fn from(error: tokio_postgres::Error) -> Failed {
        let state = error
            .code()
            .map(|code| code.code().to_owned())
            .unwrap_or_default();
        let said = error.as_db_error().map(|said| said.message().to_owned());
        let text = said.unwrap_or_else(|| error.to_string());
        Failed { state, text }
    }
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Client {
        Client::try_connect(address).unwrap()
    }

    pub(crate) fn try_connect(address: SocketAddr) -> Result<Client, Failed> {
        Client::try_connect_as(address, "sbtest")
    }

    /// Connects as a user whose password is its name.
    pub(crate) fn try_connect_as(address: SocketAddr, user: &str) -> Result<Client, Failed> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let mut config = Config::new();
        config.host("127.0.0.1").port(address.port());
        config.user(user).password(user).dbname("sbtest");
        config.application_name("split");
        config.connect_timeout(Duration::from_secs(10));
        let (client, connection) = runtime.block_on(config.connect(NoTls))?;
        runtime.spawn(connection);
        Ok(Client { runtime, client })
    }

    /// Waits for a future of the client, for at most 30 s.
    pub(crate) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(async {
            let limit = Duration::from_secs(30);
            let waited = tokio::time::timeout(limit, future).await;
            waited.expect("an answer within 30 s")
        })
    }

    pub(crate) fn is_closed(&self) -> bool {
        {
            // The connection is driven only while the client waits for something.
            self.wait(async { tokio::time::sleep(Duration::from_millis(20)).await });
            self.client.is_closed()
        }
    }

    /// Runs a text in PostgreSQL's simple protocol, and returns the first column of each row.
    pub(crate) fn text(&self, sql: &str) -> Result<Vec<String>, Failed> {
        let messages = self.wait(self.client.simple_query(sql))?;
        let rows = messages.into_iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or_default().to_owned()),
            _ => None,
        });
        Ok(rows.collect())
    }

    pub(crate) fn run(&self, sql: &str) {
        let run = self.text(sql);
        run.unwrap_or_else(|failed| panic!("{sql}: {failed:?}"));
    }

    /// Runs a prepared statement, and returns the first value of the first row.
    pub(crate) fn value<T: FromSqlOwned>(
        &self,
        sql: &str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<T, Failed> {
        let rows = self.wait(self.client.query(sql, parameters))?;
        let row = rows.first().expect("a row");
        Ok(row.try_get(0)?)
    }

    /// Returns the port of the server that ran the text, whose first column is
    /// `inet_server_port()`.
    pub(crate) fn port(&self, sql: &str) -> i32 {
        let rows = self.text(sql).unwrap();
        rows.last().unwrap().parse().unwrap()
    }

    pub(crate) fn port_prepared(&self, sql: &str) -> i32 {
        self.value(sql, &[]).unwrap()
    }
}
