//! Shared PostgreSQL server of the tests; for each test a separate database in it, and a separate
//! pool in front of it.

use std::net::SocketAddr;
use std::sync::OnceLock;

use evenkeel_lab::{Lab, PostgresCluster, PostgresOptions, Server};

use super::client::{Client, Login};
use crate::harness::{own, pool};

pub(crate) use crate::harness::pool::{Setup, TestBed};

/// User and password of the monitor: the superuser of the server.
pub(crate) const KIND: (&str, &str) = ("postgres", "postgres");

/// A pool with one server connection: the next client finds any leftover state.
pub(crate) const ONE: Setup<'static> = Setup {
    pool: "size = 1",
    service: "",
    tables: "",
    workers: 2,
};

impl TestBed {
    pub(crate) fn set_up(io: &str, setup: Setup<'_>) -> TestBed {
        TestBed::before(shared(), io, setup)
    }

    /// Starts a pool in front of a server that belongs to this test.
    pub(crate) fn before(server: &Server, io: &str, setup: Setup<'_>) -> TestBed {
        let config = |address| pool::config(KIND, server, address, io, setup);
        let login = superuser("postgres");
        TestBed::start(config, |bed| bed.lets_in(&login))
    }

    /// Like [`TestBed::set`], with another login that the server accepts.
    pub(crate) fn set_as(io: &str, setup: Setup<'_>, login: &Login<'_>) -> TestBed {
        TestBed::ready_when(io, setup, |bed| bed.lets_in(login))
    }

    pub(crate) fn ready_when(
        io: &str,
        setup: Setup<'_>,
        try_in: impl FnMut(&TestBed) -> Result<(), String>,
    ) -> TestBed {
        let config = |address| pool::config(KIND, shared(), address, io, setup);
        TestBed::start(config, try_in)
    }

    fn lets_in(&self, login: &Login<'_>) -> Result<(), String> {
        Client::log_in(self.address, login).map(|_| ())
    }

    /// Returns the login of `sbtest` to the database of its test, also in another thread.
    pub(crate) fn login(&self) -> Login<'static> {
        Login::to(self.own.unwrap_or_else(own_database))
    }

    pub(crate) fn client(&self) -> Client {
        let entered = Client::log_in(self.address, &self.login());
        entered.unwrap_or_else(|answer| panic!("the login is refused: {answer}"))
    }

    /// Makes the client's next statement run on another server connection. Returns the client that
    /// holds the current one until it is dropped.
    pub(crate) fn elsewhere(&self, client: &mut Client) -> Client {
        let here = client.backend();
        let mut others = Vec::new();
        loop {
            let mut other = self.client();
            other.run("begin");
            if other.backend() == here {
                others
                    .iter_mut()
                    .for_each(|other: &mut Client| other.run("commit"));
                return other;
            }
            others.push(other);
        }
    }
}

fn superuser(database: &str) -> Login<'_> {
    Login {
        user: "postgres",
        password: "postgres",
        database,
        ..Login::default()
    }
}

/// Returns the shared server of all tests that do not harm it; it ends with the tests.
pub(crate) fn shared() -> &'static Server {
    static SHARED: OnceLock<(Lab, PostgresCluster)> = OnceLock::new();
    let (_, cluster) = SHARED.get_or_init(|| {
        launch(PostgresOptions {
            // It would visit hundreds of databases.
            settings: vec!["autovacuum=off".to_owned()],
            ..PostgresOptions::default()
        })
    });
    &cluster.primary
}

/// Returns the database of the calling test.
pub(crate) fn own_database() -> &'static str {
    own::name(|name| {
        let made = shared().sql(&format!("create database {name} owner sbtest"));
        made.unwrap_or_else(|error| panic!("{error:#}"));
    })
}

/// Counts the advisory locks of the server connection. One that was closed may still have some
/// until its process has ended.
pub(crate) const LOCKS: &str =
    "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()";

/// Connects to the test's database in that server as the superuser.
pub(crate) fn admin() -> Client {
    admin_of(shared())
}

/// Connects to the test's database in a server as its superuser.
pub(crate) fn admin_of(server: &Server) -> Client {
    let login = superuser(own_database());
    Client::log_in(server.address, &login).unwrap_or_else(|reply| panic!("{reply}"))
}

/// Starts a server for one test.
pub(crate) fn start_own() -> (Lab, Server) {
    start_postgres(PostgresOptions::default())
}

pub(crate) fn start_postgres(options: PostgresOptions) -> (Lab, Server) {
    let (lab, cluster) = start_cluster(options);
    (lab, cluster.primary)
}

/// Starts servers for one test.
pub(crate) fn start_cluster(options: PostgresOptions) -> (Lab, PostgresCluster) {
    own::is_the_labs();
    launch(options)
}

fn launch(options: PostgresOptions) -> (Lab, PostgresCluster) {
    let lab = Lab::new("postgres").unwrap();
    let cluster = lab.postgres(options).unwrap();
    (lab, cluster)
}

/// Runs a conversation at the server, and checks that it is the same through each driver.
pub(crate) fn same_as_direct(setup: Setup<'_>, talk: impl Fn(SocketAddr) -> Vec<String>) {
    same_as_at(shared(), setup, talk);
}

/// Does the same with a server that belongs to this test.
pub(crate) fn same_as_at(
    server: &Server,
    setup: Setup<'_>,
    talk: impl Fn(SocketAddr) -> Vec<String>,
) {
    let direct = talk(server.address);
    pool::same_as(&direct, |io| TestBed::before(server, io, setup), talk);
}
