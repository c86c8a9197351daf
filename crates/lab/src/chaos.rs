//! Runs the chaos test: everything that can happen to clients and servers, concurrently and for
//! long, without a wrong result.
//!
//! Writers write rows with unique ids and check immediately that they see them; readers only read.
//! Abrupt clients disconnect at any time, while servers are killed, frozen and promoted. Every
//! session tags its queries, rows and settings: a different tag belongs to another session.

mod abrupt_clients;
mod client;
mod failure;
mod fault_schedule;
mod mysql;
mod observations;
mod postgres;
mod quorum;
mod reader;
mod report;
mod seed;
mod socket;
mod stage;
mod writer;

use std::error::Error;
use std::fmt;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use clap::Args;

use self::client::Client;
use self::failure::Failure;
use self::fault_schedule::FaultInjector;
use self::seed::ChaosRng;
use self::stage::TestBed;
use crate::{
    ClusterKind, Driver, Lab, PoolMode, Pooler, PoolerKind, PoolerOptions, PostgresOptions,
    Scenario, eventually,
};
pub use observations::Violation;
pub use report::{Outage, Report};

/// Number of server connections in the pool.
const POOL_SIZE: u32 = 20;
const LOG_LINES: usize = 60;
/// Limit for the pooler to learn about tables, whose reads then go to replicas. If the lookup takes
/// long, it is repeated less often.
const LEARN_LIMIT: Duration = Duration::from_secs(120);

/// Faults to inject, and for how long.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Duration in seconds.
    #[arg(long, default_value_t = 600)]
    pub seconds: u64,
    /// Kind of cluster (three servers).
    #[arg(long, value_enum, default_value = "postgres")]
    pub cluster: ClusterKind,
    /// Pooler under test.
    #[arg(long, value_enum, default_value = "io-uring")]
    pub pooler: PoolerKind,
    /// Pool mode.
    #[arg(long, value_enum, default_value = "transaction")]
    pub mode: PoolMode,
    /// Number of writing sessions.
    #[arg(long, default_value_t = 24)]
    pub writers: u64,
    /// Number of read-only sessions.
    #[arg(long, default_value_t = 8)]
    pub readers: u64,
    /// Number of misbehaving clients, which disconnect in the middle of an operation.
    #[arg(long, default_value_t = 6)]
    pub cruel: u64,
    /// Average time between two server faults in milliseconds (plus or minus 50 %).
    #[arg(long, default_value_t = 4000)]
    pub calm_ms: u64,
    /// Only these client faults, by their names in the report.
    #[arg(long, value_delimiter = ',')]
    pub cruelty: Vec<String>,
    /// Only these server faults, by name: FailOver, FreezeReplica…
    #[arg(long, value_delimiter = ',')]
    pub event: Vec<String>,
    /// Maximum time for an answer in milliseconds.
    #[arg(long, default_value_t = 25_000)]
    pub limit_ms: u64,
    /// Random seed; the same seed repeats the same faults.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// PostgreSQL version [default: newest installed].
    #[arg(long)]
    pub version: Option<u32>,
    /// Send all reads to the primary.
    #[arg(long)]
    pub no_split: bool,
    /// Additional line for Evenkeel's `[service.split]`, for example `galera_wait = true`.
    #[arg(long)]
    pub split: Vec<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            seconds: 600,
            cluster: ClusterKind::Postgres,
            pooler: PoolerKind::IoUring,
            mode: PoolMode::Transaction,
            writers: 24,
            readers: 8,
            cruel: 6,
            calm_ms: 4000,
            cruelty: Vec::new(),
            event: Vec::new(),
            limit_ms: 25_000,
            seed: 1,
            version: None,
            no_split: false,
            split: Vec::new(),
        }
    }
}

/// Runs `evenkeel-lab chaos`: fails if a result was wrong, or writes or reads waited too long.
pub fn command(options: &Options) -> Result<ExitCode> {
    let Some(report) = run(options)? else {
        eprintln!("{}: not installed", options.pooler.name());
        return Ok(ExitCode::FAILURE);
    };
    println!("{report}");
    Ok(if report.is_faultless() && report.is_in_time() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The program under test has ended. Any other error of [`run`] comes from the servers or the
/// machine.
#[derive(Clone, Copy, Debug)]
pub struct Ended;

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Evenkeel has exited")
    }
}

impl Error for Ended {}

/// Runs from the start of the servers to the verdict; `None` if the pooler is not installed.
pub fn run(options: &Options) -> Result<Option<Report>> {
    let scenario = start_scenario(options)?;
    fault_schedule::prepare(&scenario)?;
    let pooling = PoolerOptions {
        driver: options.cluster.driver(),
        mode: options.mode,
        size: POOL_SIZE,
        reads: !options.no_split,
        split: options.split.join("\n"),
        ..PoolerOptions::default()
    };
    let Some(pooler) = Pooler::start(options.pooler, &scenario.servers, &pooling)? else {
        return Ok(None);
    };
    let report = match pooling.driver {
        Driver::Pgsql => play::<postgres::Client>(options, &scenario, &pooler),
        Driver::Mysql => play::<mysql::Client>(options, &scenario, &pooler),
    };
    let balancer = pooler.balancer();
    if balancer.is_some_and(|balancer| !balancer.is_running()) {
        return Err(anyhow::Error::from(Ended).context(pooler_log(&pooler)));
    }
    report.with_context(|| pooler_log(&pooler)).map(Some)
}

fn start_scenario(options: &Options) -> Result<Scenario> {
    if options.cluster != ClusterKind::Postgres {
        return Scenario::start(options.cluster);
    }
    let lab = Lab::new("chaos")?;
    let cluster = lab.postgres(PostgresOptions {
        replicas: 2,
        version: options.version,
        ..PostgresOptions::default()
    })?;
    Ok(Scenario::of(options.cluster, lab, cluster.servers(), None))
}

/// Runs all participants concurrently and returns the report.
fn play<C: Client>(options: &Options, scenario: &Scenario, pooler: &Pooler) -> Result<Report> {
    let mut injector = FaultInjector {
        scenario,
        front: pooler,
        interval: Duration::from_millis(options.calm_ms),
        rng: ChaosRng::new(options.seed, 0),
        only: &options.event,
    };
    let answer_timeout = Duration::from_millis(options.limit_ms);
    let bed = TestBed::new(pooler.address, answer_timeout, options.seed);
    make_tables::<C>(&bed)?;
    scenario.wait_caught_up()?;
    let may_split = matches!(options.pooler, PoolerKind::IoUring | PoolerKind::Epoll);
    if may_split && !options.no_split {
        wait_known::<C>(pooler)?;
    }
    let until = Instant::now() + Duration::from_secs(options.seconds);
    let faults = thread::scope(|scope| {
        for number in 1..=options.writers {
            let mut writer = writer::Writer::new(&bed, number);
            scope.spawn(move || writer.run::<C>());
        }
        for number in 1..=options.readers {
            let bed = &bed;
            scope.spawn(move || reader::read::<C>(bed, number));
        }
        for number in 1..=options.cruel {
            let bed = &bed;
            scope.spawn(move || {
                abrupt_clients::run_abrupt_clients::<C>(bed, number, &options.cruelty)
            });
        }
        let faults = injector.run(until);
        bed.end();
        faults
    })?;
    let connections_max = match options.pooler {
        PoolerKind::Direct | PoolerKind::Tcp => 0,
        _ => POOL_SIZE,
    };
    let left = report::left_behind::<C>(&scenario.servers, connections_max);
    let primary = injector.primary()?;
    let mut content = bed.observations.content();
    content.violations.extend(left);
    let mut lossy: Vec<_> = faults.iter().filter_map(|one| one.may_lose).collect();
    if scenario.kind == ClusterKind::Galera {
        lossy.extend(quorum::losses(&scenario.servers)?);
    }
    let mut report = Report::of::<C>(&mut content, (&faults, &lossy), &primary)?;
    drop(content);
    report.keep_logs(&faults, &pooler.log());
    if let Some((_, what)) = report.missed() {
        what.push_str("; rows: ");
        what.push_str(&report::rows_everywhere::<C>(&scenario.servers)?);
    }
    report.violations.extend(all_places_free::<C>(&bed));
    Ok(report)
}

/// Waits until Evenkeel routes reads of the tables to replicas.
fn wait_known<C: Client>(pooler: &Pooler) -> Result<()> {
    let Some(balancer) = pooler.balancer() else {
        return Ok(());
    };
    let read = format!("SELECT concat({}), {}", C::PORT, client::READ);
    eventually(LEARN_LIMIT, "reads on replicas", || {
        let said = balancer.command(&["explain", &read])?.stdout;
        let is_spread = [&b"to a replica"[..], b"to any node"];
        let is_spread = is_spread.iter().any(|one| said.starts_with(one));
        Ok(is_spread.then_some(()))
    })
}

/// Returns the last log lines of the balancer, if any.
fn pooler_log(pooler: &Pooler) -> String {
    let log = pooler.log();
    let lines: Vec<&str> = log.lines().collect();
    let last = &lines[lines.len().saturating_sub(LOG_LINES)..];
    format!("Last output:\n{}", last.join("\n"))
}

fn make_tables<C: Client>(bed: &TestBed) -> Result<()> {
    let connected: Result<C, Failure> = bed.connect("tables");
    let made = connected.and_then(|mut client| {
        let mut tables = C::tables().into_iter();
        tables.try_for_each(|text| client.run_query(&text).map(drop))
    });
    made.map_err(|failure| anyhow!("the tables of chaos, on {}: {failure}", bed.address))
}

/// Opens as many concurrent transactions as the pool has connections, to check that none was
/// leaked.
fn all_places_free<C: Client>(bed: &TestBed) -> Vec<(Violation, String)> {
    let mut clients: Vec<C> = Vec::new();
    for number in 1..=POOL_SIZE {
        match open_transaction(bed) {
            Ok(client) => clients.push(client),
            Err(failure) => {
                let what =
                    format!("transaction {number} of {POOL_SIZE} concurrent ones: {failure}");
                return vec![(Violation::Stuck, what)];
            }
        }
    }
    clients.into_iter().for_each(Client::leave);
    Vec::new()
}

fn open_transaction<C: Client>(bed: &TestBed) -> Result<C, Failure> {
    let mut client: C = bed.connect("places")?;
    client.run_query("BEGIN")?;
    client.run_query("SELECT 1")?;
    Ok(client)
}
