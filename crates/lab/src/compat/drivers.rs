//! Runs a program of our own with each of the drivers that applications use most: it checks what
//! the driver does, and whether an idle connection of it leaves its server connection to others.

mod language;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use self::language::Language;
use super::hikari;
use super::verdict::{Case, Cases};
use crate::{Driver, PoolerOptions};

/// Drivers of the short run, of which little starves: a check that starves takes two seconds.
const SHORT: [&str; 2] = ["postgres.js", "mysql2"];

/// A driver with its program.
struct DriverProgram {
    name: &'static str,
    protocol: Driver,
    language: Language,
    /// Words for the fetching script of the language.
    packages: &'static [&'static str],
    /// Name of the program's file.
    file: &'static str,
    text: &'static str,
    /// Arguments of the program after host, port and port of the pool of two.
    arguments: &'static [&'static str],
}

const DRIVERS: [DriverProgram; 11] = [
    DriverProgram {
        name: "psycopg3",
        protocol: Driver::Pgsql,
        language: Language::Python,
        packages: &["psycopg[binary,pool]==3.3.9"],
        file: "program.py",
        text: include_str!("drivers/psycopg3.py"),
        arguments: &[],
    },
    DriverProgram {
        name: "asyncpg",
        protocol: Driver::Pgsql,
        language: Language::Python,
        packages: &["asyncpg==0.32.0"],
        file: "program.py",
        text: include_str!("drivers/asyncpg.py"),
        arguments: &[],
    },
    DriverProgram {
        name: "psycopg2",
        protocol: Driver::Pgsql,
        language: Language::Python,
        packages: &["psycopg2-binary==2.9.13"],
        file: "program.py",
        text: include_str!("drivers/psycopg2.py"),
        arguments: &[],
    },
    DriverProgram {
        name: "pg",
        protocol: Driver::Pgsql,
        language: Language::Node,
        packages: &["pg@8.23.1", "pg-cursor@2.22.0", "pg-copy-streams@7.0.0"],
        file: "program.js",
        text: include_str!("drivers/pg.js"),
        arguments: &[],
    },
    DriverProgram {
        name: "postgres.js",
        protocol: Driver::Pgsql,
        language: Language::Node,
        packages: &["postgres@3.4.9"],
        file: "program.js",
        text: include_str!("drivers/postgres.js"),
        arguments: &[],
    },
    DriverProgram {
        name: "pgjdbc",
        protocol: Driver::Pgsql,
        language: Language::Java,
        packages: &["org.postgresql", "postgresql", "42.7.14"],
        file: "Pgjdbc.java",
        text: include_str!("drivers/Pgjdbc.java"),
        arguments: &[],
    },
    DriverProgram {
        name: "pgx",
        protocol: Driver::Pgsql,
        language: Language::Go,
        packages: &[
            "github.com/jackc/pgx/v5/pgxpool@v5.12.0",
            "github.com/jackc/pgx/v5/stdlib@v5.12.0",
        ],
        file: "program.go",
        text: include_str!("drivers/pgx.go"),
        arguments: &[],
    },
    DriverProgram {
        name: "mysql2",
        protocol: Driver::Mysql,
        language: Language::Node,
        packages: &["mysql2@3.24.5"],
        file: "program.js",
        text: include_str!("drivers/mysql2.js"),
        arguments: &[],
    },
    DriverProgram {
        name: "mariadb-java",
        protocol: Driver::Mysql,
        language: Language::Java,
        packages: &["org.mariadb.jdbc", "mariadb-java-client", "3.5.11"],
        file: "JdbcMysql.java",
        text: include_str!("drivers/JdbcMysql.java"),
        arguments: &["jdbc:mariadb", "sslMode=disable"],
    },
    DriverProgram {
        name: "mysql-java",
        protocol: Driver::Mysql,
        language: Language::Java,
        packages: &["com.mysql", "mysql-connector-j", "9.7.0"],
        file: "JdbcMysql.java",
        text: include_str!("drivers/JdbcMysql.java"),
        arguments: &[
            "jdbc:mysql",
            "sslMode=DISABLED&allowPublicKeyRetrieval=true",
        ],
    },
    DriverProgram {
        name: "go-mysql",
        protocol: Driver::Mysql,
        language: Language::Go,
        packages: &["github.com/go-sql-driver/mysql@v1.10.1"],
        file: "program.go",
        text: include_str!("drivers/mysql.go"),
        arguments: &[],
    },
];

/// Drivers to run.
#[derive(Clone, Copy)]
pub(super) struct Choice<'a> {
    pub(super) protocol: Driver,
    /// Names; all drivers of the protocol if there are none.
    pub(super) names: &'a [String],
    pub(super) is_short: bool,
}

/// Addresses of the same server.
#[derive(Clone, Copy)]
pub(super) struct Addresses {
    /// A pool of the usual size.
    pub(super) usual: SocketAddr,
    /// A pool of two server connections.
    pub(super) small: SocketAddr,
}

/// Returns the options of the pool of two. A client waits for a connection as long as a check waits
/// for an answer; with the default, the checks that starve would take longer.
pub(super) fn small_pool(usual: PoolerOptions) -> PoolerOptions {
    PoolerOptions {
        size: 2,
        pool: "wait_ms = 2000".to_owned(),
        ..usual
    }
}

impl Choice<'_> {
    fn drivers(self) -> impl Iterator<Item = &'static DriverProgram> {
        DRIVERS.iter().filter(move |driver| {
            let is_named = self.names.iter().any(|name| name == driver.name);
            let is_chosen = match self.names.is_empty() {
                true => !self.is_short || SHORT.contains(&driver.name),
                false => is_named,
            };
            driver.protocol == self.protocol && is_chosen
        })
    }

    /// Returns why none of the drivers can run on this machine; `None` if one can.
    pub(super) fn missing(self) -> Option<String> {
        let mut why = "no driver of that name".to_owned();
        for driver in self.drivers() {
            match driver.place() {
                Ok(_) => return None,
                Err(error) => why = format!("{error:#}"),
            }
        }
        Some(why)
    }

    /// Runs the program of each driver. Drivers that cannot run on this machine are reported and
    /// skipped.
    pub(super) fn run(self, addresses: Addresses, work_dir: &Path) -> Result<Cases> {
        let mut cases = Cases::new();
        for driver in self.drivers() {
            match driver.place() {
                Ok(place) => cases.extend(driver.run(&place, addresses, work_dir)?),
                Err(error) => eprintln!("{}: skipped: {error:#}", driver.name),
            }
        }
        Ok(cases)
    }
}

impl DriverProgram {
    /// Returns the directory of the driver's packages, and fetches them if necessary.
    fn place(&self) -> Result<PathBuf> {
        self.language.place(self.name, self.packages)
    }

    fn run(&self, place: &Path, addresses: Addresses, work_dir: &Path) -> Result<Cases> {
        let directory = work_dir.join(self.name);
        fs::create_dir(&directory)?;
        fs::write(directory.join(self.file), self.text)?;
        let ports = [addresses.usual.port(), addresses.small.port()].map(|port| port.to_string());
        let mut arguments = vec![addresses.usual.ip().to_string()];
        arguments.extend(ports);
        arguments.extend(self.arguments.iter().map(|word| (*word).to_owned()));
        let run = language::Run {
            place,
            directory: &directory,
            file: self.file,
            arguments,
        };
        let printed = self
            .language
            .run(&run)
            .with_context(|| self.name.to_owned())?;
        Ok(cases_of(self.name, &printed))
    }
}

/// Returns the verdict of each check, named by driver and check.
fn cases_of(driver: &str, printed: &str) -> Cases {
    let named = |(name, case): (String, Case)| (name.replacen(": ", " ", 1), case);
    hikari::cases_of(driver, printed)
        .into_iter()
        .map(named)
        .collect()
}

/// Returns the cases of each driver.
pub(super) fn by_driver(cases: &Cases) -> BTreeMap<String, Cases> {
    let mut parts: BTreeMap<String, Cases> = BTreeMap::new();
    for (name, case) in cases {
        let driver = name.split(' ').next().unwrap_or_default().to_owned();
        let part = parts.entry(driver).or_default();
        part.insert(name.clone(), case.clone());
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compat::verdict::Verdict;

    #[test]
    fn the_checks_of_each_driver_are_a_part_of_their_own() {
        let printed = "verdict\tpassed\ta query: 1\t[1]\nverdict\tfailed\tcancel\tlate\nend\n";
        let mut cases = cases_of("pg", printed);
        cases.extend(cases_of("pgx", "verdict\tpassed\tcancel\t\n"));
        let parts = by_driver(&cases);
        let of_pg: Vec<&str> = parts["pg"].keys().map(String::as_str).collect();
        assert_eq!(of_pg, ["pg", "pg a query: 1", "pg cancel"]);
        assert_eq!(parts["pg"]["pg cancel"].verdict, Verdict::Failed);
        assert_eq!(parts["pgx"]["pgx"].verdict, Verdict::Missing);
    }

    #[test]
    fn the_names_of_drivers_are_words_and_the_short_ones_exist() {
        let names: Vec<&str> = DRIVERS.iter().map(|driver| driver.name).collect();
        assert!(names.iter().all(|name| !name.contains(' ')));
        assert!(SHORT.iter().all(|name| names.contains(name)));
    }
}
