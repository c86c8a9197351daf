//! Runs the tests of Python drivers for PostgreSQL, which Debian's source packages contain.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};

use super::pytest;
use super::source::{self, Source};
use super::step::Step;
use super::verdict::Cases;
use crate::program::Program;
use crate::{Server, process};

/// Limit for the tests of one driver on a machine with other load.
const LIMIT: Duration = Duration::from_secs(1800);

/// Database of the tests, whose owner is a superuser, since they create extensions and roles.
const PREPARED: [&str; 2] = [
    "CREATE ROLE tester SUPERUSER LOGIN PASSWORD 'tester'",
    "CREATE DATABASE tester OWNER tester",
];

/// Tests of one driver.
pub(super) struct PythonTests {
    /// Debian's source package.
    debian: &'static str,
    /// Package for Python of the same version, without its version.
    package: &'static str,
}

/// psycopg2 with its compiled library.
pub(super) const PSYCOPG2: PythonTests = PythonTests {
    debian: "psycopg2",
    package: "psycopg2-binary",
};

impl PythonTests {
    /// Returns the directory with the tests and a Python that can run them.
    pub(super) fn source(&self) -> Result<PathBuf> {
        let source = Source {
            name: &format!("{}-tests", self.debian),
            title: &format!("{} with its tests", self.debian),
            script: include_str!("fetch-python-tests.sh"),
            arguments: &[self.debian, self.package].map(str::to_owned),
        };
        source.fetched()
    }

    /// Runs all tests.
    pub(super) fn run(
        &self,
        server: &Server,
        address: SocketAddr,
        work_dir: &Path,
    ) -> Result<Cases> {
        let source = self.source()?;
        for statement in PREPARED {
            server.sql(statement)?;
        }
        source::copy(&source.join("tests"), &work_dir.join("tests"))?;
        let options = ["-m", "pytest", "-v", "-rfE", "-p", "no:cacheprovider"];
        let mut arguments: Vec<String> = options.map(str::to_owned).into();
        arguments.push(format!("--rootdir={}", work_dir.display()));
        arguments.push("tests".to_owned());
        let output = work_dir.join("pytest.log");
        let ended = Step {
            program: &Program::here(source.join("python/bin/python3")),
            arguments,
            environment: environment(address, work_dir),
            user: None,
            directory: work_dir,
            output: output.clone(),
            limit: LIMIT,
            child_limit: LIMIT,
        }
        .run()?;
        let cases = pytest::cases(&ended.printed, "tests/");
        if cases.is_empty() {
            bail!(
                "the tests of {} did not run; pytest said:\n{}",
                self.debian,
                process::tail(&output)
            );
        }
        Ok(cases)
    }
}

fn environment(address: SocketAddr, work_dir: &Path) -> Vec<(String, String)> {
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    [
        ("PATH", "/usr/bin:/bin".to_owned()),
        ("HOME", work_dir.display().to_string()),
        // Keeps the reason of a failure on one line.
        ("COLUMNS", "1000".to_owned()),
        ("PYTHONDONTWRITEBYTECODE", "1".to_owned()),
        ("TZ", "UTC".to_owned()),
        ("PSYCOPG2_TESTDB", "tester".to_owned()),
        ("PSYCOPG2_TESTDB_HOST", host.clone()),
        ("PSYCOPG2_TESTDB_PORT", port.clone()),
        ("PSYCOPG2_TESTDB_USER", "tester".to_owned()),
        ("PSYCOPG2_TESTDB_PASSWORD", "tester".to_owned()),
        ("PGHOST", host),
        ("PGPORT", port),
        ("PGUSER", "tester".to_owned()),
        ("PGPASSWORD", "tester".to_owned()),
        ("PGDATABASE", "tester".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}
