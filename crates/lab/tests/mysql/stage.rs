//! A MariaDB server that all tests share, and a pool of their own in front of it.

use std::net::SocketAddr;
use std::sync::OnceLock;

use evenkeel_lab::{Lab, MariadbOptions, MysqlOptions, Server};

use super::client::{Client, Login};
use crate::harness::pool;

pub(crate) use crate::harness::pool::{Setup, TestBed};

/// One connection to the server: what is left on it meets the next client.
pub(crate) const ONE: Setup<'_> = Setup {
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
        TestBed::before_as(server, io, setup, &Login::default())
    }

    /// Where that is who may log in.
    pub(crate) fn before_as(
        server: &Server,
        io: &str,
        setup: Setup<'_>,
        login: &Login<'_>,
    ) -> TestBed {
        TestBed::start(
            |address| config(server, address, io, setup),
            |stage| Client::enter(stage.address, login).map(|_| ()),
        )
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address)
    }
}

pub(crate) fn config(server: &Server, listen: SocketAddr, io: &str, setup: Setup<'_>) -> String {
    pool::config(("mysql", "evenkeel"), server, listen, io, setup)
}

/// The server of all tests that do it no harm; it ends with the tests.
pub(crate) fn shared() -> &'static Server {
    static SHARED: OnceLock<(Lab, Server)> = OnceLock::new();
    let (_, server) = SHARED.get_or_init(own);
    server
}

/// As its superuser.
pub(crate) fn sql(text: &str) -> String {
    shared().sql(text).unwrap()
}

/// A server for one test.
pub(crate) fn own() -> (Lab, Server) {
    own_of(MariadbOptions::default())
}

pub(crate) fn own_of(options: MariadbOptions) -> (Lab, Server) {
    let lab = Lab::new("mysql").unwrap();
    let cluster = lab.mariadb(options).unwrap();
    let server = cluster.primary;
    server.sql(ACCOUNTS).unwrap();
    (lab, server)
}

/// A MySQL server for one test; see [`evenkeel_lab::rootfs::missing_program`].
pub(crate) fn own_mysql(name: &str) -> (Lab, Server) {
    let lab = Lab::new(name).unwrap();
    let cluster = lab.mysql(MysqlOptions::default()).unwrap();
    let server = cluster.primary;
    server.sql(MYSQL_ACCOUNTS).unwrap();
    (lab, server)
}

/// The same of MySQL.
pub(crate) const MYSQL_ACCOUNTS: &str = "\
    CREATE USER evenkeel@'127.0.0.1' IDENTIFIED BY 'evenkeel';\
    GRANT REPLICATION CLIENT, SHOW VIEW, TRIGGER, SHOW_ROUTINE ON *.* TO evenkeel@'127.0.0.1';\
    GRANT SELECT ON mysql.user TO evenkeel@'127.0.0.1';\
    GRANT SELECT ON performance_schema.* TO evenkeel@'127.0.0.1';\
    CREATE DATABASE other; GRANT ALL ON other.* TO sbtest@'127.0.0.1';";

/// Who asks for roles and accounts, and a second schema.
pub(crate) const ACCOUNTS: &str = "\
    CREATE USER evenkeel@'127.0.0.1' IDENTIFIED BY 'evenkeel';\
    GRANT REPLICATION CLIENT, SLAVE MONITOR, SHOW VIEW, TRIGGER ON *.* TO evenkeel@'127.0.0.1';\
    GRANT SELECT ON mysql.* TO evenkeel@'127.0.0.1';\
    CREATE DATABASE other; GRANT ALL ON other.* TO sbtest@'127.0.0.1';\
    SET GLOBAL max_allowed_packet = 67108864;";

/// What a conversation is like at the server, and that it is the same through each driver.
pub(crate) fn same_as_direct(setup: Setup<'_>, talk: impl Fn(SocketAddr) -> Vec<String>) {
    same_as_at(shared(), setup, talk);
}

/// The same of a server of the test's own.
pub(crate) fn same_as_at(
    server: &Server,
    setup: Setup<'_>,
    talk: impl Fn(SocketAddr) -> Vec<String>,
) {
    // Once to leave behind what the next ones find too.
    talk(server.address);
    let direct = talk(server.address);
    pool::same_as(&direct, |io| TestBed::before(server, io, setup), talk);
}
