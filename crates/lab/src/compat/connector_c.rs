//! Runs the tests of MariaDB Connector/C, the library of most MariaDB clients: cursors, bulk
//! executions, COM_CHANGE_USER after each test, and a replica's binary log stream.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};

use super::source::Source;
use super::step::Step;
use super::verdict::{Case, Cases, Verdict};
use crate::Server;
use crate::program::Program;

/// Programs that do not wait.
const SHORT: [&str; 9] = [
    "async",
    "bulk1",
    "cursor",
    "errors",
    "features-10_2",
    "fetch",
    "ps_new",
    "result",
    "view",
];

/// Limit for a program: the longest takes a minute and a half, waiting for timeouts.
const LIMIT: Duration = Duration::from_secs(240);

/// Objects and settings that the suite expects; it reads rows in the binary log.
const PREPARED: &str = "\
    GRANT ALL ON *.* TO sbtest@'127.0.0.1' WITH GRANT OPTION;\
    SET GLOBAL binlog_format = ROW, GLOBAL local_infile = ON;";

/// Returns the directory with the programs and their plugins.
pub(super) fn programs() -> Result<PathBuf> {
    let source = Source {
        name: "connector-c",
        title: "the tests of MariaDB Connector/C",
        script: include_str!("fetch-connector-c.sh"),
        arguments: &[],
    };
    source.fetched()
}

/// Runs all programs, or those that do not wait, as a user with all privileges.
pub(super) fn run(
    server: &Server,
    address: SocketAddr,
    work_dir: &Path,
    is_short: bool,
) -> Result<Cases> {
    let programs = programs()?;
    server.sql(PREPARED)?;
    let mut cases = Cases::new();
    for name in names(&programs)? {
        if is_short && !SHORT.contains(&name.as_str()) {
            continue;
        }
        let ended = Step {
            program: &Program::here(programs.join(&name)),
            arguments: Vec::new(),
            environment: environment(address, &programs, work_dir),
            user: None,
            directory: work_dir,
            output: work_dir.join(format!("{name}.log")),
            limit: LIMIT,
            child_limit: LIMIT,
        }
        .run()?;
        cases.extend(cases_of(&name, &ended.printed));
    }
    if cases.values().all(|case| case.verdict == Verdict::Missing) {
        bail!("no Connector/C test completed");
    }
    Ok(cases)
}

/// Returns the programs, each with many tests.
fn names(programs: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(programs)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            names.extend(entry.file_name().into_string());
        }
    }
    names.sort();
    Ok(names)
}

fn environment(address: SocketAddr, programs: &Path, work_dir: &Path) -> Vec<(String, String)> {
    let plugins = programs.join("plugins");
    [
        // Without this variable the suite skips all tests, which are meant for a server's own test
        // run.
        ("MARIADB_CC_TEST", "1".to_owned()),
        ("MYSQL_TEST_HOST", address.ip().to_string()),
        ("MYSQL_TEST_PORT", address.port().to_string()),
        ("MYSQL_TEST_USER", "sbtest".to_owned()),
        ("MYSQL_TEST_PASSWD", "sbtest".to_owned()),
        ("MYSQL_TEST_DB", "sbtest".to_owned()),
        ("MYSQL_TEST_PLUGINDIR", plugins.display().to_string()),
        ("HOME", work_dir.display().to_string()),
        ("MYSQL_TMP_DIR", work_dir.display().to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// Returns the verdict of each test of a program, from its TAP output. The program's own name has
/// the verdict on its completion; lines before a verdict are its reason.
fn cases_of(program: &str, printed: &str) -> Cases {
    let mut cases = Cases::new();
    let (mut planned, mut counted) = (None, 0);
    let mut words = String::new();
    for line in printed.lines() {
        if let Some(plan) = line.strip_prefix("1..") {
            planned = plan
                .split_whitespace()
                .next()
                .and_then(|word| word.parse().ok());
        } else if let Some((name, verdict)) = verdict(line) {
            counted += 1;
            let output = match verdict {
                Verdict::Failed => std::mem::take(&mut words),
                _ => String::new(),
            };
            words.clear();
            cases.insert(format!("{program} {name}"), Case { verdict, output });
        } else {
            words.push_str(line);
            words.push('\n');
        }
    }
    let verdict = match planned == Some(counted) {
        true => Verdict::Passed,
        false => Verdict::Missing,
    };
    let output = words;
    cases.insert(program.to_owned(), Case { verdict, output });
    cases
}

/// Parses `ok 1 - test_a`, `not ok 2 - test_b`, `ok 3 # skip test_c`.
fn verdict(line: &str) -> Option<(String, Verdict)> {
    let (is_ok, rest) = match line.strip_prefix("not ok ") {
        Some(rest) => (false, rest),
        None => (true, line.strip_prefix("ok ")?),
    };
    let (_, rest) = rest.split_once(' ')?;
    Some(match rest.strip_prefix("# skip ") {
        Some(name) => (name.to_owned(), Verdict::Skipped),
        None => {
            let name = rest.trim_start_matches("- ").to_owned();
            let verdict = if is_ok {
                Verdict::Passed
            } else {
                Verdict::Failed
            };
            (name, verdict)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_has_its_verdict_and_a_program_that_stops_none() {
        let printed = "1..4\n# words\nok 1 - test_a\n# Error: because\nnot ok 2 - test_b\n\
            ok 3 # skip test_c\n# going on\n";
        let cases = cases_of("ps", printed);
        assert_eq!(cases["ps test_a"].verdict, Verdict::Passed);
        assert_eq!(cases["ps test_b"].verdict, Verdict::Failed);
        assert_eq!(cases["ps test_b"].output, "# Error: because\n");
        assert_eq!(cases["ps test_c"].verdict, Verdict::Skipped);
        assert_eq!(cases["ps"].verdict, Verdict::Missing);
        let whole = cases_of("sp", "1..1\nok 1 - test_a\n");
        assert_eq!(whole["sp"].verdict, Verdict::Passed);
    }
}
