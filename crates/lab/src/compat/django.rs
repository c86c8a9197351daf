//! Runs Django's own tests on PostgreSQL, twice in succession and in two concurrent processes. Each
//! run creates its databases, clones them if parallel, and drops them at the end.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::Value;

use super::source::Source;
use super::step::{Ended, Step};
use super::verdict::{Case, Cases, Verdict};
use crate::program::Program;
use crate::{Server, process};

const VERSION: &str = "5.2.19";

/// Applications whose tests demand most of a server; about two minutes for the three runs.
const SHORT: [&str; 14] = [
    "aggregation",
    "async",
    "backends",
    "basic",
    "bulk_create",
    "constraints",
    "get_or_create",
    "inspectdb",
    "introspection",
    "multiple_database",
    "postgres_tests",
    "select_for_update",
    "transaction_hooks",
    "transactions",
];

/// Limit for all of them, on a machine with other load.
const LIMIT: Duration = Duration::from_secs(7200);

/// Creates a superuser, since migrations of the suite create extensions.
const ACCOUNT: &str = "CREATE ROLE django SUPERUSER LOGIN PASSWORD 'django'";

/// Query for databases that runs have created and not dropped.
const LEFT_OVER: &str = "SELECT datname FROM pg_database WHERE datname LIKE 'test%' ORDER BY 1";

/// Returns the directory with Django, its tests and a Python that can run them.
pub(super) fn source() -> Result<PathBuf> {
    let source = Source {
        name: &format!("django-{VERSION}"),
        title: "Django with its tests",
        script: include_str!("fetch-django.sh"),
        arguments: &[VERSION.to_owned()],
    };
    source.fetched()
}

/// Runs all tests, or those of [`SHORT`]; then again, and again in two processes.
pub(super) fn run(
    server: &Server,
    address: SocketAddr,
    work_dir: &Path,
    is_short: bool,
) -> Result<Cases> {
    let source = source()?;
    server.sql(ACCOUNT)?;
    let files = [
        ("evenkeel_settings.py", include_str!("django/settings.py")),
        ("evenkeel_runner.py", include_str!("django/runner.py")),
    ];
    for (name, text) in files {
        fs::write(work_dir.join(name), text)?;
    }
    let run = DjangoRun {
        source: &source,
        server,
        address,
        work_dir,
    };
    let labels: &[&str] = if is_short { &SHORT } else { &[] };
    let (first, mut cases) = run.run("first", labels, 1)?;
    if first.is_empty() {
        bail!(
            "Django's tests did not run; the runner said:\n{}",
            process::tail(&work_dir.join("first.log"))
        );
    }
    for (name, processes) in [("again", 1), ("parallel", 2)] {
        let (verdicts, of_run) = run.run(name, &SHORT, processes)?;
        cases.extend(of_run);
        let name = format!("{name}: each test as in the first run");
        cases.insert(name, judged(otherwise(&first, &verdicts)));
    }
    cases.extend(first);
    Ok(cases)
}

/// Environment of the tests.
struct DjangoRun<'a> {
    source: &'a Path,
    server: &'a Server,
    address: SocketAddr,
    work_dir: &'a Path,
}

impl DjangoRun<'_> {
    /// Returns the verdict of each test of this run, and of the run as a whole.
    fn run(&self, name: &str, labels: &[&str], processes: u32) -> Result<(Cases, Cases)> {
        let verdicts = self.work_dir.join(format!("{name}.json"));
        let ended = self.step(name, labels, processes, &verdicts)?;
        let left_over = self.server.sql(LEFT_OVER)?;
        let left_over = left_over.trim();
        let of_run = [
            ("ends with exit 0", exit(&ended)),
            (
                "its databases are dropped",
                (!left_over.is_empty()).then(|| left_over.to_owned()),
            ),
        ];
        let of_run = of_run.map(|(what, fault)| (format!("{name}: {what}"), judged(fault)));
        let printed = fs::read_to_string(&verdicts).unwrap_or_default();
        Ok((cases(&printed), of_run.into()))
    }

    fn step(&self, name: &str, labels: &[&str], processes: u32, verdicts: &Path) -> Result<Ended> {
        let tests = self.source.join("tests");
        let mut arguments = vec![
            tests.join("runtests.py").display().to_string(),
            "--noinput".to_owned(),
            "--settings=evenkeel_settings".to_owned(),
            format!("--parallel={processes}"),
        ];
        arguments.extend(labels.iter().map(|label| (*label).to_owned()));
        let paths = [self.source, self.work_dir].map(|path| path.display().to_string());
        let environment = [
            ("PATH", "/usr/bin:/bin".to_owned()),
            ("HOME", self.work_dir.display().to_string()),
            ("PYTHONPATH", paths.join(":")),
            ("PYTHONDONTWRITEBYTECODE", "1".to_owned()),
            ("SERVER_HOST", self.address.ip().to_string()),
            ("SERVER_PORT", self.address.port().to_string()),
            ("VERDICTS", verdicts.display().to_string()),
        ];
        Step {
            program: &Program::here(self.source.join("python/bin/python3")),
            arguments,
            environment: environment
                .map(|(name, value)| (name.to_owned(), value))
                .into(),
            user: None,
            directory: &tests,
            output: self.work_dir.join(format!("{name}.log")),
            limit: LIMIT,
            child_limit: LIMIT,
        }
        .run()
    }
}

fn judged(fault: Option<String>) -> Case {
    Case {
        verdict: match fault {
            None => Verdict::Passed,
            Some(_) => Verdict::Failed,
        },
        output: fault.unwrap_or_default(),
    }
}

/// Returns the last output of a failed run, which contains the cause.
fn exit(ended: &Ended) -> Option<String> {
    let lines: Vec<&str> = ended.printed.trim_end().lines().collect();
    let last = lines[lines.len().saturating_sub(5)..].join("\n");
    match ended.status {
        Some(status) if status.success() => None,
        Some(status) => Some(format!("{status}\n{last}")),
        None => Some(format!("ended for taking too long\n{last}")),
    }
}

/// Returns the tests with another result than in the first run, or without one: a run that could
/// not begin has none at all.
fn otherwise(first: &Cases, verdicts: &Cases) -> Option<String> {
    if verdicts.is_empty() {
        return Some("no test was run".to_owned());
    }
    let in_labels = |name: &str| {
        SHORT
            .iter()
            .any(|label| name.split('.').next() == Some(label))
    };
    let expected = first.iter().filter(|(name, _)| in_labels(name));
    let lines: Vec<String> = expected
        .filter_map(|(name, case)| {
            let verdict = verdicts
                .get(name)
                .map_or(&Verdict::Missing, |one| &one.verdict);
            let is_same = *verdict == case.verdict;
            (!is_same).then(|| format!("{name}: {} first, then {verdict}", case.verdict))
        })
        .collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// Parses each test's verdict from the lines that `runner.py` writes; a failed test stays failed.
fn cases(printed: &str) -> Cases {
    let mut cases = Cases::new();
    let lines = printed
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    for line in lines {
        let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        let verdict = match text("verdict").as_str() {
            "passed" => Verdict::Passed,
            "failed" => Verdict::Failed,
            "skipped" => Verdict::Skipped,
            _ => Verdict::Missing,
        };
        let output = text("words");
        let case = cases.entry(text("test")).or_insert(Case {
            verdict: Verdict::Missing,
            output: String::new(),
        });
        if case.verdict != Verdict::Failed {
            *case = Case { verdict, output };
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_failed_once_has_failed_and_one_that_only_began_has_no_verdict() {
        let printed = concat!(
            r#"{"test":"basic.A.one","verdict":"begun","words":""}"#,
            "\n",
            r#"{"test":"basic.A.one","verdict":"passed","words":""}"#,
            "\n",
            r#"{"test":"basic.A.two","verdict":"failed","words":"E: why"}"#,
            "\n",
            r#"{"test":"basic.A.two","verdict":"skipped","words":""}"#,
            "\n",
            r#"{"test":"basic.A.stuck","verdict":"begun","words":""}"#,
            "\n",
            r#"{"test":"basic.A.half"#,
        );
        let cases = cases(printed);
        assert_eq!(cases["basic.A.one"].verdict, Verdict::Passed);
        assert_eq!(cases["basic.A.two"].verdict, Verdict::Failed);
        assert_eq!(cases["basic.A.two"].output, "E: why");
        assert_eq!(cases["basic.A.stuck"].verdict, Verdict::Missing);
        assert_eq!(cases.len(), 3);
    }

    #[test]
    fn a_later_run_that_ends_otherwise_or_has_no_test_is_a_fault() {
        let verdict = |verdict| judged(verdict);
        let first = Cases::from([
            ("basic.A.one".to_owned(), verdict(None)),
            ("mail.A.of_no_label".to_owned(), verdict(None)),
        ]);
        assert_eq!(otherwise(&first, &first), None);
        assert!(otherwise(&first, &Cases::new()).is_some());
        let fails = Cases::from([("basic.A.one".to_owned(), verdict(Some("E".to_owned())))]);
        let printed = otherwise(&first, &fails);
        assert_eq!(
            printed.as_deref(),
            Some("basic.A.one: passed first, then failed")
        );
    }
}
