//! Runs other projects' tests directly and through a pooler, and compares the results.
//!
//! A suite is not expected to pass, but to end identically, test by test. Every difference must be
//! in the committed list of known differences, with its reason.

mod connector_c;
mod django;
mod hikari;
mod known;
mod pgbench;
mod pq;
mod pymysql;
mod regress;
mod servers;
mod step;
mod suite;
mod sysbench;
mod verdict;

use std::fmt::{self, Write};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use crate::{Lab, PoolMode, Pooler, PoolerKind, PoolerOptions, Server, rootfs};
pub use known::Known;
use verdict::Words;
pub use verdict::{Case, Cases, Difference, Verdict};

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
}

/// Suites to run, and the servers to compare.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Only these suites.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub suite: Vec<Suite>,
    /// Through these poolers; directly is always run.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "io-uring,epoll"
    )]
    pub pooler: Vec<PoolerKind>,
    /// Pool modes; all suites but the regression tests use the first one.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "transaction,session"
    )]
    pub mode: Vec<PoolMode>,
    /// PostgreSQL's version; the newest of this machine if none is given.
    #[arg(long)]
    pub version: Option<u32>,
    /// MariaDB's version, 11 of `cargo xtask rivals`; this machine's own if none is given.
    #[arg(long)]
    pub mariadb: Option<u32>,
    /// Only these files of the regression suite, after `test_setup`.
    #[arg(long, value_delimiter = ',')]
    pub test: Vec<String>,
    /// A dozen files of the regression suite, and of the others what takes little time.
    #[arg(long)]
    pub short: bool,
    /// A replica beside the primary, and reads on both.
    #[arg(long)]
    pub reads: bool,
    /// A directory for everything that the suites wrote.
    #[arg(long)]
    pub keep: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            suite: Vec::new(),
            pooler: vec![PoolerKind::IoUring, PoolerKind::Epoll],
            mode: vec![PoolMode::Transaction, PoolMode::Session],
            version: None,
            mariadb: None,
            test: Vec::new(),
            short: false,
            reads: false,
            keep: None,
        }
    }
}

/// Comparison of one suite through one pooler.
#[derive(Debug)]
pub struct Comparison {
    /// Suite, pooler and mode.
    pub name: String,
    /// Number of tests with the same result.
    pub same: usize,
    /// Number of those that passed.
    pub passed: usize,
    /// Tests with a different result.
    pub differences: Vec<Difference>,
    /// Known differences that did not occur.
    pub unseen: Vec<Known>,
}

impl Suite {
    fn name(self) -> &'static str {
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
        }
    }

    /// Returns the number of server connections. A group of the regression suite runs twenty tests
    /// concurrently, and thirty connections of HikariCP must share twenty.
    fn pool_size(self) -> u32 {
        match self {
            Suite::Hikari | Suite::Django => 20,
            _ => 40,
        }
    }

    /// Returns the tests whose output is compared too.
    fn words(self) -> Words {
        match self {
            Suite::Regress => Words::OfFailed,
            Suite::Hikari => Words::OfPassed,
            _ => Words::None,
        }
    }

    /// Returns why the suite cannot run on this machine; `None` if it can.
    pub fn missing(self, options: &Options) -> Option<String> {
        let is_of_mariadb = matches!(
            self,
            Suite::Pymysql | Suite::ConnectorC | Suite::Sysbench | Suite::Hikari
        );
        let version = options.mariadb.filter(|_| is_of_mariadb);
        if let Some(why) = version.and_then(rootfs::missing_mariadb) {
            return Some(why);
        }
        let fetched = match self {
            Suite::Regress => {
                let version = crate::postgres::programs::Programs(options.version).version();
                version.and_then(suite::postgres)
            }
            Suite::Pq => return pq::missing(),
            Suite::PymysqlOnMysql if rootfs::missing_program("mysqld").is_some() => {
                return rootfs::missing_program("mysqld");
            }
            Suite::Pymysql | Suite::PymysqlOnMysql => pymysql::source(),
            Suite::ConnectorC => connector_c::programs(),
            Suite::Hikari => return hikari::missing(),
            Suite::Django => django::source(),
            Suite::Pgbench | Suite::Sysbench => return None,
        };
        fetched.err().map(|error| format!("{error:#}"))
    }

    fn run(self, options: &Options, target: &TestTarget) -> Result<Cases> {
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
        }
    }
}

/// Environment of a suite.
struct TestTarget<'a> {
    server: &'a Server,
    address: SocketAddr,
    work_dir: &'a Path,
}

/// Runs `evenkeel-lab compat`: fails if a difference has no known reason.
pub fn command(options: &Options) -> Result<ExitCode> {
    let comparisons = run(options)?;
    for comparison in &comparisons {
        println!("{comparison}");
    }
    let explained = comparisons.iter().all(Comparison::is_explained);
    Ok(if explained && !comparisons.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Runs the suites that the options name and prints progress. Suites that cannot run on this
/// machine are reported and skipped.
pub fn run(options: &Options) -> Result<Vec<Comparison>> {
    let mut comparisons = Vec::new();
    for suite in Suite::value_variants() {
        if !options.suite.is_empty() && !options.suite.contains(suite) {
            continue;
        }
        if let Some(why) = suite.missing(options) {
            eprintln!("{}: skipped: {why}", suite.name());
            continue;
        }
        comparisons.extend(compare(*suite, options)?);
    }
    Ok(comparisons)
}

/// Runs the suite directly, then through each pooler in each mode, each time with new servers.
fn compare(suite: Suite, options: &Options) -> Result<Vec<Comparison>> {
    let run = |kind: PoolerKind, mode: PoolMode| {
        let name = format!("{} {} {}", suite.name(), kind.name(), mode_name(kind, mode));
        let name = name.trim().to_owned();
        let started = Instant::now();
        let cases = once(suite, kind, mode, options).with_context(|| name.clone())?;
        if let Some(cases) = &cases {
            let passed = count(cases, &Verdict::Passed);
            let took_s = started.elapsed().as_secs();
            eprintln!("{name}: {passed} of {} passed, {took_s} s", cases.len());
        }
        Ok::<_, anyhow::Error>((name, cases))
    };
    let (_, direct) = run(PoolerKind::Direct, PoolMode::Session)?;
    let direct = direct.unwrap_or_default();
    let modes = match suite {
        Suite::Regress => &options.mode[..],
        _ => &options.mode[..1.min(options.mode.len())],
    };
    let mut comparisons = Vec::new();
    for mode in modes {
        for kind in &options.pooler {
            let (name, Some(through)) = run(*kind, *mode)? else {
                eprintln!("{}: not installed, skipped", kind.name());
                continue;
            };
            let mut differences = verdict::differences(&direct, &through, suite.words());
            let known = if kind.is_evenkeel() {
                known::all()
            } else {
                Vec::new()
            };
            let mut unseen = known::explain(&known, suite.name(), mode.name(), &mut differences);
            unseen.retain(|one| direct.contains_key(&one.name));
            comparisons.push(Comparison {
                name,
                same: direct.len() - differences.len(),
                passed: count(&through, &Verdict::Passed),
                differences,
                unseen,
            });
        }
    }
    Ok(comparisons)
}

/// Runs the suite once; `None` if the pooler is not installed.
fn once(
    suite: Suite,
    kind: PoolerKind,
    mode: PoolMode,
    options: &Options,
) -> Result<Option<Cases>> {
    let lab = Lab::new("compat")?;
    let servers = suite.servers(&lab, options)?;
    let pooling = PoolerOptions {
        driver: suite.driver(),
        mode,
        size: suite.pool_size(),
        reads: servers.len() > 1,
        ..PoolerOptions::default()
    };
    let Some(pooler) = Pooler::start(kind, &servers, &pooling)? else {
        return Ok(None);
    };
    let work_dir = lab.path().join("suite");
    fs::create_dir(&work_dir)?;
    let target = TestTarget {
        server: &servers[0],
        address: pooler.address,
        work_dir: &work_dir,
    };
    let cases = suite.run(options, &target);
    if let Some(keep) = &options.keep {
        let name = format!("{}-{}-{}", suite.name(), kind.name(), mode.name());
        let keep = keep.join(name.replace(' ', "-"));
        suite::copy(&work_dir, &keep)?;
        if let Some(balancer) = pooler.balancer() {
            fs::write(keep.join("evenkeel.log"), balancer.log())?;
        }
    }
    cases.map(Some)
}

/// Returns the name of the mode; a direct connection has none.
fn mode_name(kind: PoolerKind, mode: PoolMode) -> &'static str {
    match kind {
        PoolerKind::Direct => "",
        _ => mode.name(),
    }
}

fn count(cases: &Cases, verdict: &Verdict) -> usize {
    cases
        .values()
        .filter(|case| case.verdict == *verdict)
        .count()
}

impl Comparison {
    /// Returns whether every difference has a known reason.
    pub fn is_explained(&self) -> bool {
        self.differences.iter().all(|one| one.reason.is_some())
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let explained = self.differences.iter().filter(|one| one.reason.is_some());
        let explained = explained.count();
        write!(
            f,
            "{}: {} same as direct ({} passed), {} different: {explained} known, {} NEW",
            self.name,
            self.same,
            self.passed,
            self.differences.len(),
            self.differences.len() - explained
        )?;
        for one in &self.differences {
            write!(f, "\n  {one}")?;
        }
        for one in &self.unseen {
            write!(
                f,
                "\n  {} is listed as a known difference but did not occur: remove it from \
                 known.txt",
                one.name
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: direct {}, through {}",
            self.name, self.direct, self.through
        )?;
        if let Some(reason) = &self.reason {
            return write!(f, ": {reason}");
        }
        for line in &self.detail {
            f.write_str("\n      | ")?;
            line.chars().take(160).try_for_each(|c| f.write_char(c))?;
        }
        Ok(())
    }
}
