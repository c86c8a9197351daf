//! Runs other projects' tests directly and through a pooler, and compares the results.
//!
//! A suite is not expected to pass, but to end identically, test by test. Every difference must be
//! in the committed list of known differences, with its reason.

mod connector_c;
mod django;
mod drivers;
mod hikari;
mod known;
mod pgbench;
mod pq;
mod pymysql;
mod pytest;
mod python_tests;
mod regress;
mod servers;
mod source;
mod step;
mod suite;
mod sysbench;
mod verdict;

use std::fmt::{self, Write};
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use crate::{Lab, PoolMode, Pooler, PoolerKind, PoolerOptions};
pub use known::Known;
pub use source::pebble;
pub use suite::Suite;
use suite::TestTarget;
pub use verdict::{Case, Cases, Difference, Verdict};

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
    /// Only these drivers, of the suites `drivers-postgres` and `drivers-mysql`.
    #[arg(long, value_delimiter = ',')]
    pub driver: Vec<String>,
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
            driver: Vec::new(),
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
            if !suite.is_of_drivers() {
                comparisons.push(compared(suite, (*kind, *mode), name, (&direct, &through)));
                continue;
            }
            let through = drivers::by_driver(&through);
            for (driver, direct) in drivers::by_driver(&direct) {
                let through = through.get(&driver).cloned().unwrap_or_default();
                let name = format!("{name} {driver}");
                comparisons.push(compared(suite, (*kind, *mode), name, (&direct, &through)));
            }
        }
    }
    Ok(comparisons)
}

/// Compares the results directly and through a pooler.
fn compared(
    suite: Suite,
    (kind, mode): (PoolerKind, PoolMode),
    name: String,
    (direct, through): (&Cases, &Cases),
) -> Comparison {
    let mut differences = verdict::differences(direct, through, suite.words());
    let known = if kind.is_evenkeel() {
        known::all()
    } else {
        Vec::new()
    };
    let mut unseen = known::explain(&known, suite.name(), mode.name(), &mut differences);
    unseen.retain(|one| direct.contains_key(&one.name));
    Comparison {
        name,
        same: direct.len() - differences.len(),
        passed: count(through, &Verdict::Passed),
        differences,
        unseen,
    }
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
    let small = match suite.is_of_drivers() {
        true => Pooler::start(kind, &servers, &drivers::small_pool(pooling))?,
        false => None,
    };
    let work_dir = lab.path().join("suite");
    fs::create_dir(&work_dir)?;
    let target = TestTarget {
        server: &servers[0],
        address: pooler.address,
        small: small.as_ref().map_or(pooler.address, |small| small.address),
        work_dir: &work_dir,
    };
    let cases = suite.run(options, &target);
    if let Some(keep) = &options.keep {
        let name = format!("{}-{}-{}", suite.name(), kind.name(), mode.name());
        let keep = keep.join(name.replace(' ', "-"));
        source::copy(&work_dir, &keep)?;
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
