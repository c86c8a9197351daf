//! Runs the tests of lib/pq, the common Go driver for PostgreSQL, fetched as a module.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::source;
use super::step::Step;
use super::verdict::{Case, Cases, Verdict};
use crate::Server;
use crate::program::Program;

const MODULE: &str = "github.com/lib/pq";
const VERSION: &str = "v1.12.3";
const LIMIT: Duration = Duration::from_secs(600);
/// Maximum number of runs. A test that waits 100 ms panics on a busy machine and ends its whole
/// package: tests without a verdict are run again, without the rest.
const RUNS_MAX: usize = 16;
const ARGUMENTS: [&str; 5] = ["test", "-json", "-count=1", "-parallel=1", "-timeout=8m"];
const ALL: &str = "./...";

/// Accounts that the suite expects; its own instructions assume a server with trust authentication.
const ACCOUNTS: [&str; 6] = [
    "CREATE ROLE pqgo SUPERUSER LOGIN PASSWORD 'postgres'",
    "CREATE ROLE pqgopassword LOGIN PASSWORD 'wordpass'",
    "CREATE ROLE pqgoscram LOGIN PASSWORD 'wordpass'",
    "CREATE ROLE pqgomd5 LOGIN",
    "UPDATE pg_authid SET rolpassword = 'md5' || md5('wordpasspqgomd5') WHERE rolname = 'pqgomd5'",
    "CREATE DATABASE pqgo OWNER pqgo",
];

/// Returns why the suite cannot run on this machine; `None` if it can.
pub(super) fn missing() -> Option<String> {
    match go() {
        Some(_) => None,
        None => Some("go is not in PATH: lib/pq's tests need it".to_owned()),
    }
}

/// Runs all tests as a superuser, in a new database.
pub(super) fn run(server: &Server, address: SocketAddr, work_dir: &Path) -> Result<Cases> {
    let go = Program::here(go().context("go is not in PATH")?);
    let source = fetched(&go)?;
    for statement in ACCOUNTS {
        server.sql(statement)?;
    }
    allow_md5(server)?;
    let mut step = Step {
        program: &go,
        arguments: arguments(ALL, &BTreeSet::new()),
        environment: environment(&go, address),
        user: None,
        directory: &source,
        output: work_dir.join("go-test-1.json"),
        limit: LIMIT,
        child_limit: LIMIT,
    };
    let go_log = step.run()?.printed;
    let mut judged = cases(&go_log);
    if judged.is_empty() {
        bail!("lib/pq's tests did not run; go said:\n{go_log}");
    }
    let mut broken = broken(&go_log);
    for run in 2..=RUNS_MAX {
        let Some(package) = broken.pop_first() else {
            break;
        };
        step.arguments = arguments(&package, &finished(&judged, &package));
        step.output = work_dir.join(format!("go-test-{run}.json"));
        let go_log = step.run()?.printed;
        judged.extend(cases(&go_log));
        broken.extend(self::broken(&go_log));
    }
    Ok(judged)
}

/// Returns arguments for all tests of these packages except those with a verdict.
fn arguments(packages: &str, finished: &BTreeSet<String>) -> Vec<String> {
    let mut words: Vec<String> = ARGUMENTS.map(str::to_owned).into();
    if !finished.is_empty() {
        let names: Vec<&str> = finished.iter().map(String::as_str).collect();
        words.push(format!("-skip=^({})$", names.join("|")));
    }
    words.push(packages.to_owned());
    words
}

/// Returns the packages in which a test panicked: the other tests have no result.
fn broken(go_log: &str) -> BTreeSet<String> {
    let panics = events(go_log).filter(|event| {
        let output = event["Output"].as_str().unwrap_or_default();
        output.starts_with("panic: ")
    });
    panics
        .filter_map(|event| Some(event["Package"].as_str()?.to_owned()))
        .collect()
}

/// Returns the tests of a package with a verdict; subtests belong to their test.
fn finished(cases: &Cases, package: &str) -> BTreeSet<String> {
    let prefix = match shortened(package) {
        "" => String::new(),
        short => format!("{short} "),
    };
    let judged = cases
        .iter()
        .filter(|(_, case)| case.verdict != Verdict::Missing);
    judged
        .filter_map(|(name, _)| name.strip_prefix(&prefix))
        .filter(|name| !name.contains(['/', ' ']))
        .map(str::to_owned)
        .collect()
}

fn events(go_log: &str) -> impl Iterator<Item = Value> {
    go_log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
}

fn shortened(package: &str) -> &str {
    package.trim_start_matches(MODULE).trim_start_matches('/')
}

/// Allows MD5: the lab's servers accept SCRAM only. The first matching line applies, so this one
/// goes to the top.
fn allow_md5(server: &Server) -> Result<()> {
    let rules = server.work_dir.join(&server.name).join("data/pg_hba.conf");
    let others = fs::read_to_string(&rules)?;
    fs::write(
        &rules,
        format!("host all pqgomd5 127.0.0.1/32 md5\n{others}"),
    )?;
    server.sql("SELECT pg_reload_conf()")?;
    Ok(())
}

/// Returns the `go` command.
pub(super) fn go() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .chain(["/usr/local/go/bin".into()])
        .map(|directory| directory.join("go"))
        .find(|program| program.is_file())
}

/// Returns the directory with the source, in a separate module cache.
fn fetched(go: &Program) -> Result<PathBuf> {
    let cache = source::home().join("go");
    let place = cache.join(format!("{MODULE}@{VERSION}"));
    if place.is_dir() {
        return Ok(place);
    }
    fs::create_dir_all(&cache).with_context(|| format!("cannot make {}", cache.display()))?;
    let output = Command::new(&go.path)
        .args(["mod", "download", &format!("{MODULE}@{VERSION}")])
        .current_dir(&cache)
        .env("GOMODCACHE", &cache)
        .env("GOFLAGS", "-modcacherw")
        .output()?;
    if !output.status.success() || !place.is_dir() {
        let go_log = String::from_utf8_lossy(&output.stderr);
        bail!("{MODULE} {VERSION} cannot be fetched as a Go module: {go_log}");
    }
    Ok(place)
}

fn environment(go: &Program, address: SocketAddr) -> Vec<(String, String)> {
    let home = source::home();
    let tools = go.path.parent().unwrap_or(Path::new("/")).display();
    [
        ("PATH", format!("{tools}:/usr/bin:/bin")),
        ("HOME", home.display().to_string()),
        ("GOCACHE", home.join("go-build").display().to_string()),
        ("GOMODCACHE", home.join("go").display().to_string()),
        ("GOFLAGS", "-mod=mod".to_owned()),
        ("PGHOST", address.ip().to_string()),
        ("PGPORT", address.port().to_string()),
        ("PGUSER", "pqgo".to_owned()),
        ("PGPASSWORD", "postgres".to_owned()),
        ("PGDATABASE", "pqgo".to_owned()),
        ("PGSSLMODE", "disable".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// Returns every test and subtest that `go test -json` completes, and the output of failed ones.
fn cases(go_log: &str) -> Cases {
    let mut cases = Cases::new();
    let mut printed: BTreeMap<String, String> = BTreeMap::new();
    for event in events(go_log) {
        let text = |key: &str| event[key].as_str().unwrap_or_default();
        let package = shortened(text("Package"));
        let name = match text("Test") {
            "" => continue,
            test if package.is_empty() => test.to_owned(),
            test => format!("{package} {test}"),
        };
        let verdict = match text("Action") {
            "run" => Verdict::Missing,
            "pass" => Verdict::Passed,
            "fail" => Verdict::Failed,
            "skip" => Verdict::Skipped,
            "output" => {
                printed.entry(name).or_default().push_str(text("Output"));
                continue;
            }
            _ => continue,
        };
        let output = String::new();
        cases.insert(name, Case { verdict, output });
    }
    for (name, case) in &mut cases {
        let words = printed.get(name).map(String::as_str).unwrap_or_default();
        if words.contains("panic: ") {
            case.verdict = Verdict::Missing;
        }
        if matches!(case.verdict, Verdict::Failed | Verdict::Missing) {
            case.output = printed.remove(name).unwrap_or_default();
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_has_its_verdict_and_a_failed_one_its_words() {
        let go_log = concat!(
            r#"{"Action":"start","Package":"github.com/lib/pq"}"#,
            "\n",
            r#"{"Action":"run","Package":"github.com/lib/pq","Test":"TestExec"}"#,
            "\n",
            r#"{"Action":"output","Package":"github.com/lib/pq","Test":"TestExec","Output":"x\n"}"#,
            "\n",
            r#"{"Action":"fail","Package":"github.com/lib/pq","Test":"TestExec"}"#,
            "\n",
            r#"{"Action":"pass","Package":"github.com/lib/pq/hstore","Test":"TestHstore"}"#,
            "\n",
            r#"{"Action":"run","Package":"github.com/lib/pq","Test":"TestStuck"}"#,
            "\n",
        );
        let cases = cases(go_log);
        assert_eq!(cases["TestExec"].verdict, Verdict::Failed);
        assert_eq!(cases["TestExec"].output, "x\n");
        assert_eq!(cases["hstore TestHstore"].verdict, Verdict::Passed);
        assert_eq!(cases["TestStuck"].verdict, Verdict::Missing);
    }

    #[test]
    fn behind_a_panic_only_what_has_no_verdict_is_run_again() {
        let go_log = concat!(
            r#"{"Action":"run","Package":"github.com/lib/pq","Test":"TestSlow"}"#,
            "\n",
            r#"{"Action":"output","Package":"github.com/lib/pq","Test":"TestSlow","#,
            r#""Output":"panic: timeout\n"}"#,
            "\n",
            r#"{"Action":"fail","Package":"github.com/lib/pq","Test":"TestSlow"}"#,
            "\n",
            r#"{"Action":"pass","Package":"github.com/lib/pq","Test":"TestExec"}"#,
            "\n",
            r#"{"Action":"pass","Package":"github.com/lib/pq","Test":"TestExec/one"}"#,
            "\n",
            r#"{"Action":"pass","Package":"github.com/lib/pq/hstore","Test":"TestHstore"}"#,
            "\n",
        );
        let cases = cases(go_log);
        assert_eq!(cases["TestSlow"].verdict, Verdict::Missing);
        let broken: Vec<String> = broken(go_log).into_iter().collect();
        assert_eq!(broken, [MODULE]);
        let words = arguments(MODULE, &finished(&cases, MODULE));
        assert_eq!(words[ARGUMENTS.len()..], ["-skip=^(TestExec)$", MODULE]);
    }
}
