//! Starts a MariaDB server that all tests share; a separate schema in it, and a separate pool, for
//! each test.

use std::net::SocketAddr;
use std::sync::OnceLock;

use evenkeel_lab::{Lab, MariadbOptions, MysqlOptions, Server};

use super::client::{Client, Login};
use crate::harness::{own, pool};

pub(crate) use crate::harness::pool::{Setup, TestBed};

/// One connection to the server: state that remains on it affects the next client.
pub(crate) const ONE: Setup<'_> = Setup {
    pool: "size = 1",
    service: "",
    tables: "",
    workers: 2,
};

impl TestBed {
    pub(crate) fn set_up(io: &str, setup: Setup<'_>) -> TestBed {
        TestBed::before(shared(), io, setup)
    }

    /// Starts a pool in front of a separate server.
    pub(crate) fn before(server: &Server, io: &str, setup: Setup<'_>) -> TestBed {
        TestBed::before_as(server, io, setup, &Login::default())
    }

    /// Starts a pool in front of a separate server with this login.
    pub(crate) fn before_as(
        server: &Server,
        io: &str,
        setup: Setup<'_>,
        login: &Login<'_>,
    ) -> TestBed {
        TestBed::start(
            |address| config(server, address, io, setup),
            |bed| Client::log_in(bed.address, login).map(|_| ()),
        )
    }

    /// Returns the login of `sbtest` to the schema of its test, also in another thread.
    pub(crate) fn login(&self) -> Login<'static> {
        Login::to(self.own.unwrap_or_else(own_schema))
    }

    pub(crate) fn client(&self) -> Client {
        Client::with(self.address, &self.login())
    }
}

pub(crate) fn config(server: &Server, listen: SocketAddr, io: &str, setup: Setup<'_>) -> String {
    pool::config(("mysql", "evenkeel"), server, listen, io, setup)
}

/// Returns the server of all tests that do not damage it; it ends with the tests.
pub(crate) fn shared() -> &'static Server {
    static SHARED: OnceLock<(Lab, Server)> = OnceLock::new();
    let (_, server) = SHARED.get_or_init(|| launch(MariadbOptions::default()));
    server
}

/// Returns the schema of the calling test.
pub(crate) fn own_schema() -> &'static str {
    own::name(|name| {
        let make = format!("create schema {name}; grant all on {name}.* to sbtest@'127.0.0.1'");
        shared().sql(&make).unwrap();
    })
}

/// Runs statements as its superuser, in the test's schema.
pub(crate) fn sql(text: &str) -> String {
    shared()
        .sql(&format!("use {}; {text}", own_schema()))
        .unwrap()
}

/// Creates a lab for servers of one test.
pub(crate) fn own_lab(name: &str) -> Lab {
    own::is_the_labs();
    Lab::new(name).unwrap()
}

/// Starts a server for one test.
pub(crate) fn start_own() -> (Lab, Server) {
    start_mariadb(MariadbOptions::default())
}

pub(crate) fn start_mariadb(options: MariadbOptions) -> (Lab, Server) {
    own::is_the_labs();
    launch(options)
}

fn launch(options: MariadbOptions) -> (Lab, Server) {
    let lab = Lab::new("mysql").unwrap();
    let cluster = lab.mariadb(options).unwrap();
    let server = cluster.primary;
    server.sql(ACCOUNTS).unwrap();
    (lab, server)
}

/// Starts a MySQL server for one test; see [`evenkeel_lab::rootfs::missing_program`].
pub(crate) fn start_mysql(name: &str) -> (Lab, Server) {
    let lab = own_lab(name);
    let cluster = lab.mysql(MysqlOptions::default()).unwrap();
    let server = cluster.primary;
    server.sql(MYSQL_ACCOUNTS).unwrap();
    (lab, server)
}

/// Creates MySQL's account that queries roles and accounts.
pub(crate) const MYSQL_ACCOUNTS: &str = "\
    CREATE USER evenkeel@'127.0.0.1' IDENTIFIED BY 'evenkeel';\
    GRANT REPLICATION CLIENT, SHOW VIEW, TRIGGER, SHOW_ROUTINE ON *.* TO evenkeel@'127.0.0.1';\
    GRANT SELECT ON mysql.user TO evenkeel@'127.0.0.1';\
    GRANT SELECT ON performance_schema.* TO evenkeel@'127.0.0.1';\
    CREATE DATABASE other; GRANT ALL ON other.* TO sbtest@'127.0.0.1';";

/// Creates the account that queries roles and accounts, and a second schema.
pub(crate) const ACCOUNTS: &str = "\
    CREATE USER evenkeel@'127.0.0.1' IDENTIFIED BY 'evenkeel';\
    GRANT REPLICATION CLIENT, SLAVE MONITOR, SHOW VIEW, TRIGGER ON *.* TO evenkeel@'127.0.0.1';\
    GRANT SELECT ON mysql.* TO evenkeel@'127.0.0.1';\
    CREATE DATABASE other; GRANT ALL ON other.* TO sbtest@'127.0.0.1';\
    SET GLOBAL max_allowed_packet = 67108864;";

/// Checks that a conversation through each driver equals the direct one.
pub(crate) fn same_as_direct(setup: Setup<'_>, talk: impl Fn(SocketAddr) -> Vec<String>) {
    same_as_at(shared(), setup, talk);
}

/// Checks that a conversation through each driver equals the direct one, with a separate server.
pub(crate) fn same_as_at(
    server: &Server,
    setup: Setup<'_>,
    talk: impl Fn(SocketAddr) -> Vec<String>,
) {
    // A first run leaves the same state that later runs find.
    talk(server.address);
    let direct = talk(server.address);
    pool::same_as(&direct, |io| TestBed::before(server, io, setup), talk);
}
