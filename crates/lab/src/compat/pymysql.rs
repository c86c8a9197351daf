//! Runs PyMySQL's own tests; PyMySQL is a client in Python with its own protocol implementation.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::json;

use super::step::Step;
use super::suite::{self, Source};
use super::verdict::{Case, Cases, Verdict};
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
    suite::copy(&source.join("pymysql"), &work_dir.join("pymysql"))?;
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
    let cases = cases(&ended.printed);
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

/// Returns the verdict of each test, and the reason of each failure.
fn cases(printed: &str) -> Cases {
    let mut cases = Cases::new();
    for line in printed.lines() {
        if let Some((name, why)) = reason(line) {
            cases.entry(name).and_modify(|case| case.output = why);
        } else if let Some((name, verdict)) = verdict(line) {
            let output = String::new();
            cases.insert(name, Case { verdict, output });
        }
    }
    cases
}

/// Parses `pymysql/tests/test_basic.py::TestConversion::test_json SKIPPED (…) [ 3%]`; a running
/// test has no verdict yet.
fn verdict(line: &str) -> Option<(String, Verdict)> {
    let (name, rest) = line.split_once(' ')?;
    let name = name.strip_prefix("pymysql/tests/")?;
    if !name.contains("::") {
        return None;
    }
    let verdict = match rest.split_whitespace().next() {
        Some("PASSED" | "XPASS") => Verdict::Passed,
        Some("FAILED" | "ERROR" | "XFAIL") => Verdict::Failed,
        Some("SKIPPED") => Verdict::Skipped,
        _ => Verdict::Missing,
    };
    Some((name.to_owned(), verdict))
}

/// Parses `FAILED pymysql/tests/test_basic.py::TestConversion::test_json - AssertionError: …`.
fn reason(line: &str) -> Option<(String, String)> {
    let rest = line
        .strip_prefix("FAILED ")
        .or_else(|| line.strip_prefix("ERROR "))?;
    let (name, why) = rest.split_once(" - ")?;
    let name = name.strip_prefix("pymysql/tests/")?;
    Some((name.to_owned(), why.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_has_its_verdict_and_a_failed_one_its_reason() {
        let printed = "collected 4 items\n\
            pymysql/tests/test_a.py::Test::test_one PASSED      [ 25%]\n\
            pymysql/tests/test_a.py::Test::test_two FAILED      [ 50%]\n\
            pymysql/tests/test_a.py::Test::test_not SKIPPED (…) [ 75%]\n\
            pymysql/tests/test_a.py::Test::test_stuck \n\
            === short test summary info ===\n\
            FAILED pymysql/tests/test_a.py::Test::test_two - Error: (1, 'x - y')\n";
        let cases = cases(printed);
        let verdict = |name: &str| &cases[&format!("test_a.py::Test::{name}")].verdict;
        assert_eq!(*verdict("test_one"), Verdict::Passed);
        assert_eq!(*verdict("test_two"), Verdict::Failed);
        assert_eq!(*verdict("test_not"), Verdict::Skipped);
        assert_eq!(*verdict("test_stuck"), Verdict::Missing);
        assert_eq!(
            cases["test_a.py::Test::test_two"].output,
            "Error: (1, 'x - y')"
        );
        assert_eq!(cases.len(), 4);
    }
}
