//! Runs PyMySQL's own tests; PyMySQL is a client in Python with its own protocol implementation.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::json;

use super::pytest;
use super::source::{self, Source};
use super::step::Step;
use super::verdict::Cases;
use crate::Server;
use crate::program::Program;

/// Files that do not wait.
const SHORT: [&str; 6] = [
    "test_basic.py",
    "test_cursor.py",
    "test_SSCursor.py",
    "test_issues.py",
    "test_nextset.py",
    "test_load_local.py",
];

const LIMIT: Duration = Duration::from_secs(600);

/// Objects that the suite expects; it creates users itself.
const PREPARED: &str = "\
    CREATE DATABASE test1 DEFAULT CHARACTER SET utf8mb4;\
    CREATE DATABASE test2 DEFAULT CHARACTER SET utf8mb4;\
    GRANT ALL ON *.* TO sbtest@'127.0.0.1' WITH GRANT OPTION;\
    SET GLOBAL local_infile = ON;";

/// Returns the directory with the source, its tests and a Python that can run them.
pub(super) fn source() -> Result<PathBuf> {
    let source = Source {
        name: "pymysql",
        title: "PyMySQL with its tests",
        script: include_str!("fetch-pymysql.sh"),
        arguments: &[],
    };
    source.fetched()
}

/// Runs all tests, or those that do not wait, as a user with all privileges.
pub(super) fn run(
    server: &Server,
    address: SocketAddr,
    work_dir: &Path,
    is_short: bool,
) -> Result<Cases> {
    let source = source()?;
    server.sql(PREPARED)?;
    source::copy(&source.join("pymysql"), &work_dir.join("pymysql"))?;
    let tests = work_dir.join("pymysql/tests");
    fs::write(tests.join("databases.json"), databases(address))?;
    let files: Vec<PathBuf> = match is_short {
        true => SHORT.iter().map(|file| tests.join(file)).collect(),
        false => vec![tests],
    };
    let options = ["-m", "pytest", "-v", "-rfE", "-p", "no:cacheprovider"];
    let mut arguments = options.map(str::to_owned).to_vec();
    arguments.push(format!("--rootdir={}", work_dir.display()));
    arguments.extend(files.iter().map(|file| file.display().to_string()));
    let ended = Step {
        program: &Program::here(source.join("python/bin/python3")),
        arguments,
        environment: vec![
            ("PATH".to_owned(), "/usr/bin:/bin".to_owned()),
            ("HOME".to_owned(), work_dir.display().to_string()),
            // Keeps the reason of a failure on one line.
            ("COLUMNS".to_owned(), "1000".to_owned()),
            ("PYTHONDONTWRITEBYTECODE".to_owned(), "1".to_owned()),
        ],
        user: None,
        directory: work_dir,
        output: work_dir.join("pytest.log"),
        limit: LIMIT,
        child_limit: LIMIT,
    }
    .run()?;
    let cases = pytest::cases(&ended.printed, "pymysql/tests/");
    if cases.is_empty() {
        bail!(
            "PyMySQL's tests did not run; pytest said:\n{}",
            ended.printed
        );
    }
    Ok(cases)
}

/// Returns the connections of the tests; the second differs in its schema.
fn databases(address: SocketAddr) -> String {
    let database = |name: &str| {
        json!({
            "host": address.ip().to_string(),
            "port": address.port(),
            "user": "sbtest",
            "password": "sbtest",
            "database": name,
            "local_infile": name == "test1",
        })
    };
    json!([database("test1"), database("test2")]).to_string()
}
