//! Lists the suites, and runs one of them at an address.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::Result;
use clap::ValueEnum;

use super::verdict::{Cases, Words};
use super::{
    Options, connector_c, django, drivers, hikari, pgbench, pq, pymysql, python_tests, regress,
    source, sysbench,
};
use crate::{Server, rootfs};

/// A suite of another project's tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Suite {
    /// PostgreSQL's regression tests, of Debian's source package.
    Regress,
    /// The tests of lib/pq, a Go module.
    Pq,
    /// pgbench in all of its modes.
    Pgbench,
    /// PyMySQL's tests, on MariaDB.
    Pymysql,
    /// PyMySQL's tests, on MySQL of the rivals' root file system.
    PymysqlOnMysql,
    /// The tests of MariaDB Connector/C.
    ConnectorC,
    /// sysbench with a seed, on MariaDB with a replica that is read from.
    Sysbench,
    /// HikariCP with thirty connections, on drivers of Java for MariaDB and MySQL.
    Hikari,
    /// Django's own tests, on PostgreSQL.
    Django,
    /// psycopg2's own tests.
    Psycopg2Tests,
    /// Checks of common drivers for PostgreSQL, in their languages.
    DriversPostgres,
    /// Checks of common drivers for MySQL and MariaDB, on MariaDB.
    DriversMysql,
}

/// Environment of a suite.
pub(super) struct TestTarget<'a> {
    pub(super) server: &'a Server,
    pub(super) address: SocketAddr,
    /// Another front with two server connections; `address` if the suite does not need one.
    pub(super) small: SocketAddr,
    pub(super) work_dir: &'a Path,
}

impl Suite {
    /// Returns the name in tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Suite::Regress => "regress",
            Suite::Pq => "pq",
            Suite::Pgbench => "pgbench",
            Suite::Pymysql => "pymysql",
            Suite::PymysqlOnMysql => "pymysql-on-mysql",
            Suite::ConnectorC => "connector-c",
            Suite::Sysbench => "sysbench",
            Suite::Hikari => "hikari",
            Suite::Django => "django",
            Suite::Psycopg2Tests => "psycopg2-tests",
            Suite::DriversPostgres => "drivers-postgres",
            Suite::DriversMysql => "drivers-mysql",
        }
    }

    /// Returns the number of server connections. A group of the regression suite runs twenty tests
    /// concurrently, and thirty connections of HikariCP must share twenty.
    pub(super) fn pool_size(self) -> u32 {
        match self {
            Suite::Regress
            | Suite::Pq
            | Suite::Pgbench
            | Suite::Pymysql
            | Suite::PymysqlOnMysql
            | Suite::ConnectorC
            | Suite::Sysbench => 40,
            _ => 20,
        }
    }

    /// Returns the tests whose output is compared too.
    pub(super) fn words(self) -> Words {
        match self {
            Suite::Regress => Words::OfFailed,
            Suite::Hikari | Suite::DriversPostgres | Suite::DriversMysql => Words::OfPassed,
            _ => Words::None,
        }
    }

    /// Returns why the suite cannot run on this machine; `None` if it can.
    pub fn missing(self, options: &Options) -> Option<String> {
        let is_of_mariadb = matches!(
            self,
            Suite::Pymysql
                | Suite::ConnectorC
                | Suite::Sysbench
                | Suite::Hikari
                | Suite::DriversMysql
        );
        let version = options.mariadb.filter(|_| is_of_mariadb);
        if let Some(why) = version.and_then(rootfs::missing_mariadb) {
            return Some(why);
        }
        let fetched = match self {
            Suite::Regress => {
                let version = crate::postgres::programs::Programs(options.version).version();
                version.and_then(source::postgres)
            }
            Suite::Pq => return pq::missing(),
            Suite::PymysqlOnMysql if rootfs::missing_program("mysqld").is_some() => {
                return rootfs::missing_program("mysqld");
            }
            Suite::Pymysql | Suite::PymysqlOnMysql => pymysql::source(),
            Suite::ConnectorC => connector_c::programs(),
            Suite::Hikari => return hikari::missing(),
            Suite::DriversPostgres | Suite::DriversMysql => return self.choice(options).missing(),
            Suite::Django => django::source(),
            Suite::Psycopg2Tests => python_tests::PSYCOPG2.source(),
            Suite::Pgbench | Suite::Sysbench => return None,
        };
        fetched.err().map(|error| format!("{error:#}"))
    }

    /// Runs the suite and returns its results.
    pub(super) fn run(self, options: &Options, target: &TestTarget) -> Result<Cases> {
        let (server, address, work_dir) = (target.server, target.address, target.work_dir);
        match self {
            Suite::Regress => {
                let tests = match (options.test.is_empty(), options.short) {
                    (true, true) => regress::SHORT.map(str::to_owned).into(),
                    _ => options.test.clone(),
                };
                let version = options.version;
                regress::Regress { version, tests }.run(server, address, work_dir)
            }
            Suite::Pq => pq::run(server, address, work_dir),
            Suite::Pgbench => {
                let transactions = if options.short { 20 } else { 500 };
                let version = options.version;
                let pgbench = pgbench::Pgbench {
                    version,
                    transactions,
                };
                pgbench.run(server, address, work_dir)
            }
            Suite::Pymysql | Suite::PymysqlOnMysql => {
                pymysql::run(server, address, work_dir, options.short)
            }
            Suite::ConnectorC => connector_c::run(server, address, work_dir, options.short),
            Suite::Sysbench => {
                let (events, seconds) = if options.short { (100, 0) } else { (1_000, 5) };
                sysbench::run(server, address, sysbench::Amount { events, seconds })
            }
            Suite::Hikari => hikari::run(server, address, work_dir, options.short),
            Suite::Django => django::run(server, address, work_dir, options.short),
            Suite::Psycopg2Tests => python_tests::PSYCOPG2.run(server, address, work_dir),
            Suite::DriversPostgres | Suite::DriversMysql => {
                let addresses = drivers::Addresses {
                    usual: address,
                    small: target.small,
                };
                self.choice(options).run(addresses, work_dir)
            }
        }
    }

    /// Returns whether its tests are programs of our own with drivers.
    pub(super) fn is_of_drivers(self) -> bool {
        matches!(self, Suite::DriversPostgres | Suite::DriversMysql)
    }

    fn choice(self, options: &Options) -> drivers::Choice<'_> {
        drivers::Choice {
            protocol: self.driver(),
            names: &options.driver,
            is_short: options.short,
        }
    }
}
