//! Runs PostgreSQL's regression suite with `pg_regress` against any address.

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::source;
use super::step::Step;
use super::verdict::{Case, Cases, Verdict};
use crate::Server;
use crate::postgres::programs::Programs;
use crate::postgres::server_user;
use crate::program::Program;

/// Files that use features which concern a pooler: settings, prepared statements, cursors,
/// transactions, temporary tables, locks, notifications, COPY. `test_setup` creates the tables of
/// the others.
pub(super) const SHORT: [&str; 16] = [
    "boolean",
    "text",
    "timestamptz",
    "copyselect",
    "transactions",
    "portals_p2",
    "prepare",
    "plancache",
    "guc",
    "temp",
    "advisory_lock",
    "async",
    "sequence",
    "domain",
    "prepared_xacts",
    "combocid",
];

/// Limit for a test: the longest takes some seconds, one of the chosen files.
const TEST_LIMIT: Duration = Duration::from_secs(180);
const CHOSEN_TEST_LIMIT: Duration = Duration::from_secs(60);
const SUITE_LIMIT: Duration = Duration::from_secs(1800);

/// Statements that configure the database as the suite expects, for every session.
const DATABASE: [&str; 7] = [
    "CREATE DATABASE regression TEMPLATE template0",
    "ALTER DATABASE regression SET lc_messages TO 'C'",
    "ALTER DATABASE regression SET lc_monetary TO 'C'",
    "ALTER DATABASE regression SET lc_numeric TO 'C'",
    "ALTER DATABASE regression SET lc_time TO 'C'",
    "ALTER DATABASE regression SET bytea_output TO 'hex'",
    "ALTER DATABASE regression SET timezone_abbreviations TO 'Default'",
];

/// Extent of the suite.
#[derive(Clone, Debug, Default)]
pub(super) struct Regress {
    pub(super) version: Option<u32>,
    /// Files to run after `test_setup`; all if empty.
    pub(super) tests: Vec<String>,
}

impl Regress {
    /// Runs the files as the superuser at this address, in a new database; all output stays in
    /// `work_dir`.
    pub(super) fn run(
        &self,
        server: &Server,
        address: SocketAddr,
        work_dir: &Path,
    ) -> Result<Cases> {
        let version = Programs(self.version).version()?;
        let inputs = work_dir.join("suite");
        source::copy(&source::postgres(version)?, &inputs)?;
        copy_modules(version, &inputs.join("lib"))?;
        for statement in DATABASE {
            server.sql(statement)?;
        }
        let results = work_dir.join("results-of-run");
        fs::create_dir(&results)?;
        let schedule = self.schedule(&inputs)?;
        let user = server_user()?;
        for place in [work_dir, &inputs, &results] {
            open_to(place, user)?;
        }
        let runner = Programs::of_version(version, "lib/pgxs/src/test/regress", "pg_regress")?;
        let ended = Step {
            arguments: arguments(version, address, &inputs, &results, &schedule),
            program: &runner,
            environment: vec![
                ("PGPASSWORD".to_owned(), "postgres".to_owned()),
                ("PGSSLMODE".to_owned(), "disable".to_owned()),
                ("PGCONNECT_TIMEOUT".to_owned(), "30".to_owned()),
            ],
            user,
            directory: &results,
            output: work_dir.join("pg_regress.log"),
            limit: SUITE_LIMIT,
            child_limit: if self.tests.is_empty() {
                TEST_LIMIT
            } else {
                CHOSEN_TEST_LIMIT
            },
        }
        .run()?;
        let mut cases = self.expected(&inputs)?;
        for (name, verdict) in verdicts(&ended.printed) {
            let output = results.join("results").join(format!("{name}.out"));
            let output = fs::read(output).unwrap_or_default();
            let output = String::from_utf8_lossy(&output).into_owned();
            cases.insert(name, Case { verdict, output });
        }
        if cases.values().all(|case| case.verdict == Verdict::Missing) {
            bail!("pg_regress ran no test; it said:\n{}", ended.printed);
        }
        Ok(cases)
    }

    /// Returns the file that lists the groups of concurrent tests.
    fn schedule(&self, inputs: &Path) -> Result<PathBuf> {
        let whole = inputs.join("parallel_schedule");
        if self.tests.is_empty() {
            return Ok(whole);
        }
        let own = inputs.join("own_schedule");
        let text = format!("test: test_setup\ntest: {}\n", self.tests.join(" "));
        fs::write(&own, text)?;
        Ok(own)
    }

    /// Returns every test of the schedule, without a verdict.
    fn expected(&self, inputs: &Path) -> Result<Cases> {
        let schedule = fs::read_to_string(self.schedule(inputs)?)?;
        let lines = schedule
            .lines()
            .filter_map(|line| line.strip_prefix("test:"));
        let missing = || Case {
            verdict: Verdict::Missing,
            output: String::new(),
        };
        let names = lines.flat_map(str::split_whitespace);
        Ok(names.map(|name| (name.to_owned(), missing())).collect())
    }
}

/// Copies modules that the suite loads into the server beside its own library.
fn copy_modules(version: u32, to: &Path) -> Result<()> {
    for module in ["autoinc.so", "refint.so"] {
        let Program { path, root } = Programs::of_version(version, "lib", module)?;
        let from = match root {
            Some(root) => root.join(path.strip_prefix("/").unwrap_or(&path)),
            None => path,
        };
        fs::copy(&from, to.join(module))
            .with_context(|| format!("cannot copy {}", from.display()))?;
    }
    Ok(())
}

fn open_to(place: &Path, user: Option<(u32, u32)>) -> Result<()> {
    if let Some((uid, gid)) = user {
        chown(place, Some(uid), Some(gid))?;
    }
    fs::set_permissions(place, Permissions::from_mode(0o755))?;
    Ok(())
}

fn arguments(
    version: u32,
    address: SocketAddr,
    inputs: &Path,
    results: &Path,
    schedule: &Path,
) -> Vec<String> {
    let path = |name: &str, path: &Path| format!("--{name}={}", path.display());
    vec![
        path("inputdir", inputs),
        path("outputdir", results),
        path("dlpath", &inputs.join("lib")),
        path("schedule", schedule),
        format!("--bindir=/usr/lib/postgresql/{version}/bin"),
        format!("--host={}", address.ip()),
        format!("--port={}", address.port()),
        "--user=postgres".to_owned(),
        "--dbname=regression".to_owned(),
        "--use-existing".to_owned(),
        "--max-concurrent-tests=20".to_owned(),
    ]
}

/// Parses each test's verdict in the output of `pg_regress`, in the format up to version 15 or TAP.
fn verdicts(printed: &str) -> Vec<(String, Verdict)> {
    printed
        .lines()
        .filter_map(|line| verdict_of_tap(line).or_else(|| verdict_of_words(line)))
        .collect()
}

/// Parses `     boolean                      ... ok           36 ms`.
fn verdict_of_words(line: &str) -> Option<(String, Verdict)> {
    let (name, outcome) = line.split_once(" ... ")?;
    let name = name.trim().trim_start_matches("test ").trim();
    let verdict = if outcome.trim_start().starts_with("ok") {
        Verdict::Passed
    } else {
        Verdict::Failed
    };
    Some((name.to_owned(), verdict))
}

/// Parses `ok 5         + boolean                 36 ms` and `not ok 6 - text 5 ms`.
fn verdict_of_tap(line: &str) -> Option<(String, Verdict)> {
    let (verdict, rest) = match line.strip_prefix("not ok ") {
        Some(rest) => (Verdict::Failed, rest),
        None => (Verdict::Passed, line.strip_prefix("ok ")?),
    };
    let mut words = rest.split_whitespace();
    let name =
        words.find(|word| !word.starts_with(|c: char| c.is_ascii_digit() || "+-".contains(c)))?;
    Some((name.to_owned(), verdict))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_read_in_the_words_of_old_and_new_versions() {
        let old = "test test_setup                   ... ok          202 ms\n\
            parallel group (20 tests):  boolean char\n\
            \x20    boolean                      ... ok           36 ms\n\
            \x20    stats                        ... FAILED (test process exited with exit code 2) 1 ms\n\
            \x20    random                       ... failed (ignored)     12 ms\n";
        let named = |name: &str, verdict| (name.to_owned(), verdict);
        assert_eq!(
            verdicts(old),
            [
                named("test_setup", Verdict::Passed),
                named("boolean", Verdict::Passed),
                named("stats", Verdict::Failed),
                named("random", Verdict::Failed),
            ]
        );
        let new = "# parallel group (2 tests):  text boolean\n\
            ok 1         - test_setup                                202 ms\n\
            not ok 22    + text                                       65 ms\n\
            # (test process exited with exit code 2)\n\
            1..22\n";
        assert_eq!(
            verdicts(new),
            [
                named("test_setup", Verdict::Passed),
                named("text", Verdict::Failed),
            ]
        );
    }
}
