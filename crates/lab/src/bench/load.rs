//! The load generators that people trust: how each is started, what each reports.

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

/// A generator that has not ended this long after its time is over is killed.
const GRACE: Duration = Duration::from_secs(20);

/// One run to be done.
pub(crate) struct Task<'a> {
    pub(crate) load: &'a Load,
    pub(crate) driver: Driver,
    /// Where; several only for what goes round over the servers by itself.
    pub(crate) addresses: &'a [SocketAddr],
    /// Threads, connections or requests per second, as the sweep says.
    pub(crate) point: u32,
    pub(crate) seconds: u32,
    /// How many requests at most; `None` is as many as fit into the time.
    pub(crate) requests: Option<u64>,
    /// Starts of requests per second, whatever the answers do; `None` waits for each answer.
    pub(crate) rate: Option<f64>,
    pub(crate) tables: u32,
    pub(crate) rows: u32,
    pub(crate) seed: u64,
    /// For scripts and logs of this run.
    pub(crate) room: &'a Path,
}

/// What a generator reported.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Report {
    /// Transactions or requests that were answered.
    pub(crate) requests: u64,
    pub(crate) requests_per_s: f64,
    /// SQL statements, where they are counted apart from transactions.
    pub(crate) queries: Option<u64>,
    pub(crate) errors: u64,
    pub(crate) latency: Latency,
    /// Spread of the work over the threads: mean and standard deviation of events per thread.
    pub(crate) fairness: Option<(f64, f64)>,
    /// Starts per second that the tool made at best, where it was given a rate and tells.
    pub(crate) offered_per_s: Option<f64>,
    /// Requests of each second, where the tool tells.
    pub(crate) each_second: Vec<f64>,
}

/// Milliseconds; what a tool does not tell is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Latency {
    pub(crate) mean: Option<f64>,
    pub(crate) p50: Option<f64>,
    pub(crate) p95: Option<f64>,
    pub(crate) p99: Option<f64>,
    pub(crate) max: Option<f64>,
}

/// A run that was done, with the text of the generator.
pub(crate) struct Run {
    /// Its numbers, or why there are none.
    pub(crate) report: Result<Report, String>,
    /// Command line and output.
    pub(crate) raw: String,
    /// From its start to its end.
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
            Tool::Pgbench => pgbench::read(text, self.room),
            Tool::Ab => ab::read(text, self.room),
            Tool::Wrk => wrk::read(text),
            Tool::Httperf => httperf::read(text),
            Tool::Command => command::read(text),
        }
    }

    /// Runs to the end, or until the user asks for the end.
    pub(crate) fn run(&self, stop: &Stop) -> Result<Run> {
        if let (Tool::Ab, Some(rate)) = (self.load.tool, self.rate) {
            return open_http::run(self, rate, stop);
        }
        let mut command = self.command()?;
        let line = words(&command);
        let log = self.room.join("output");
        let file = std::fs::File::create(&log).context("cannot keep the generator's output")?;
        command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file);
        let begun = Instant::now();
        let mut child =
            process::spawn_tied(command).with_context(|| format!("cannot run {line}"))?;
        let ended = self.wait(&mut child, stop);
        let took = begun.elapsed();
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
        // What counts requests instead of seconds may take as long as it likes, within reason.
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

/// The command as a person would type it, but for quotes.
pub(crate) fn words(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(
        command
            .get_args()
            .map(|word| word.to_string_lossy().into_owned()),
    );
    words.join(" ")
}

/// The first number after a label.
fn number_after(text: &str, label: &str) -> Option<f64> {
    let (_, rest) = text.split_once(label)?;
    let rest = rest.trim_start_matches([' ', '\t', '(', ':']);
    let end = rest
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// What to show of an output in which the numbers are missing.
fn complaint(text: &str) -> String {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let fatal = lines
        .clone()
        .find(|line| line.contains("FATAL") || line.to_lowercase().contains("error"));
    let line = fatal.or_else(|| lines.next_back());
    line.unwrap_or("it said nothing").to_owned()
}
