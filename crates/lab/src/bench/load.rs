//! Runs the established load generators and parses their output.

mod ab;
mod command;
mod httperf;
mod open_http;
mod pgbench;
mod sysbench;
mod wrk;

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::experiment::{Load, Tool};
use crate::stop::Stop;
use crate::sysbench::Driver;
use crate::{eventually, process, procfs};

pub(crate) use command::missing;

/// Time after its planned end at which a generator is killed.
const GRACE: Duration = Duration::from_secs(20);

/// One run to perform.
pub(crate) struct Task<'a> {
    pub(crate) load: &'a Load,
    pub(crate) driver: Driver,
    /// Target addresses; several only if the generator does the round robin itself.
    pub(crate) addresses: &'a [SocketAddr],
    /// Threads, connections or requests per second, as the sweep defines.
    pub(crate) point: u32,
    pub(crate) seconds: u32,
    /// Maximum number of requests; `None` means as many as fit into the time.
    pub(crate) requests: Option<u64>,
    /// Requests started per second, independent of the answers; `None` waits for each answer.
    pub(crate) rate: Option<f64>,
    pub(crate) tables: u32,
    pub(crate) rows: u32,
    pub(crate) seed: u64,
    /// Directory for this run's scripts and logs.
    pub(crate) work_dir: &'a Path,
}

/// Numbers that a generator reported.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Report {
    /// Answered transactions or requests.
    pub(crate) requests: u64,
    pub(crate) requests_per_s: f64,
    /// SQL statements, if counted separately from transactions.
    pub(crate) queries: Option<u64>,
    pub(crate) errors: u64,
    pub(crate) latency: Latency,
    /// Distribution of the work over the threads: mean and standard deviation of events per thread.
    pub(crate) fairness: Option<(f64, f64)>,
    /// Highest rate of starts per second, if the tool had a rate and reports it.
    pub(crate) offered_per_s: Option<f64>,
    /// Requests in each second, if the tool reports them.
    pub(crate) each_second: Vec<f64>,
}

/// Latency in milliseconds; values that the tool does not report are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Latency {
    pub(crate) mean: Option<f64>,
    pub(crate) p50: Option<f64>,
    pub(crate) p95: Option<f64>,
    pub(crate) p99: Option<f64>,
    pub(crate) max: Option<f64>,
}

/// A completed run, with the generator's output.
pub(crate) struct Run {
    /// The reported numbers, or the reason why there are none.
    pub(crate) report: Result<Report, String>,
    /// Command line and output.
    pub(crate) raw: String,
    /// Duration from start to end.
    pub(crate) took: Duration,
}

impl Task<'_> {
    pub(crate) fn command(&self) -> Result<Command> {
        match &self.load.tool {
            Tool::Sysbench => sysbench::command(self),
            Tool::Pgbench => pgbench::command(self),
            Tool::Ab => ab::command(self),
            Tool::Wrk => wrk::command(self),
            Tool::Httperf => httperf::command(self),
            Tool::Command => command::command(self),
        }
    }

    fn read(&self, text: &str) -> Result<Report, String> {
        match &self.load.tool {
            Tool::Sysbench => sysbench::read(text),
            Tool::Pgbench => pgbench::read(text, self.work_dir),
            Tool::Ab => ab::read(text, self.work_dir),
            Tool::Wrk => wrk::read(text),
            Tool::Httperf => httperf::read(text),
            Tool::Command => command::read(text),
        }
    }

    /// Runs the generator to its end, or until the user stops the run.
    pub(crate) fn run(&self, stop: &Stop) -> Result<Run> {
        if let (Tool::Ab, Some(rate)) = (self.load.tool, self.rate) {
            return open_http::run(self, rate, stop);
        }
        let mut command = self.command()?;
        let line = words(&command);
        let log = self.work_dir.join("output");
        let file = std::fs::File::create(&log).context("cannot keep the generator's output")?;
        command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file);
        let started = Instant::now();
        let mut child =
            process::spawn_tied(command).with_context(|| format!("cannot run {line}"))?;
        let ended = self.wait(&mut child, stop);
        let took = started.elapsed();
        let text = String::from_utf8_lossy(&std::fs::read(&log)?).into_owned();
        let raw = format!("$ {line}\n{text}");
        let report = match ended? {
            End::Killed => Err(format!(
                "had not ended {} s after its time was over, and was killed",
                GRACE.as_secs()
            )),
            End::Interrupted => bail!("interrupted"),
            End::Itself(status) => self.read(&text).map_err(|why| match status.code() {
                Some(_) => why,
                None => format!("{why} ({status})"),
            }),
        };
        Ok(Run { report, raw, took })
    }

    fn wait(&self, child: &mut Child, stop: &Stop) -> Result<End> {
        let mut interrupted = false;
        let mut status = None;
        // A tool that counts requests instead of seconds may take much longer, within reason.
        let limit = if self.requests.is_some() {
            Duration::from_secs(3600)
        } else {
            Duration::from_secs(self.seconds.into()) + GRACE
        };
        let waited = eventually(limit, "the end of the load generator", || {
            interrupted = stop.is_asked_for();
            status = child.try_wait()?;
            Ok((status.is_some() || interrupted).then_some(()))
        });
        if interrupted || waited.is_err() {
            for pid in procfs::tree(child.id()) {
                process::send(pid, libc::SIGKILL);
            }
            child.wait()?;
        }
        Ok(match status {
            Some(status) => End::Itself(status),
            None if interrupted => End::Interrupted,
            None => End::Killed,
        })
    }
}

enum End {
    Itself(ExitStatus),
    Killed,
    Interrupted,
}

/// Returns the command line without shell quoting.
pub(crate) fn words(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(
        command
            .get_args()
            .map(|word| word.to_string_lossy().into_owned()),
    );
    words.join(" ")
}

/// Returns the first number after a label.
fn number_after(text: &str, label: &str) -> Option<f64> {
    let (_, rest) = text.split_once(label)?;
    let rest = rest.trim_start_matches([' ', '\t', '(', ':']);
    let end = rest
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// Returns the lines that explain why the output contains no numbers.
fn unreadable_output(text: &str) -> String {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let fatal = lines
        .clone()
        .find(|line| line.contains("FATAL") || line.to_lowercase().contains("error"));
    let line = fatal.or_else(|| lines.next_back());
    line.unwrap_or("it said nothing").to_owned()
}
