//! A PostgreSQL server that all tests share, and a pool of their own in front of it.

use std::net::SocketAddr;
use std::sync::OnceLock;

use evenkeel_lab::{Lab, PostgresOptions, Server};

use super::client::{Client, Login};
use crate::harness::pool;

pub(crate) use crate::harness::pool::{Setup, TestBed};

/// Who asks the server is its superuser.
pub(crate) const KIND: (&str, &str) = ("postgres", "postgres");

/// With one server connection: what one client leaves behind, the next one meets.
pub(crate) const ONE: Setup<'static> = Setup {
    pool: "size = 1",
    service: "",
    tables: "",
    workers: 2,
};

impl TestBed {
    pub(crate) fn set(io: &str, setup: Setup<'_>) -> TestBed {
        TestBed::before(shared(), io, setup)
    }

    /// In front of a server of the test's own.
    pub(crate) fn before(server: &Server, io: &str, setup: Setup<'_>) -> TestBed {
        let config = |address| pool::config(KIND, server, address, io, setup);
        let login = superuser("postgres");
        TestBed::start(config, |stage| stage.lets_in(&login))
    }

    /// As [`TestBed::set`], where that is who may log in.
    pub(crate) fn set_as(io: &str, setup: Setup<'_>, login: &Login<'_>) -> TestBed {
        TestBed::ready_when(io, setup, |stage| stage.lets_in(login))
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
        Client::enter(self.address, login).map(|_| ())
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// Sees to it that the client's next statement runs on another server connection.
    pub(crate) fn elsewhere(&self, client: &mut Client) -> Vec<Client> {
        let here = client.backend();
        let mut others = Vec::new();
        loop {
            let mut other = self.client();
            other.run("begin");
            let there = other.backend();
            others.push(other);
            if there == here {
                return others;
            }
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

/// The server of all tests that do it no harm; it ends with the tests.
pub(crate) fn shared() -> &'static Server {
    static SHARED: OnceLock<(Lab, Server)> = OnceLock::new();
    let (_, server) = SHARED.get_or_init(own);
    server
}

/// The superuser at that server.
pub(crate) fn admin() -> Client {
    let login = superuser(Login::default().database);
    Client::enter(shared().address, &login).unwrap_or_else(|told| panic!("{told}"))
}

/// A server for one test.
pub(crate) fn own() -> (Lab, Server) {
    own_with(PostgresOptions::default())
}

pub(crate) fn own_with(options: PostgresOptions) -> (Lab, Server) {
    let lab = Lab::new("postgres").unwrap();
    let cluster = lab.postgres(options).unwrap();
    (lab, cluster.primary)
}

/// What a conversation is like at the server, and that it is the same through each driver.
pub(crate) fn same_as_direct(setup: Setup<'_>, talk: impl Fn(SocketAddr) -> Vec<String>) {
    let direct = talk(shared().address);
    pool::same_as(&direct, |io| TestBed::set(io, setup), talk);
}
