//! Runs sysbench and reads what it reports, each second and at the end.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, bail};

use crate::{process, tool};

mod histogram;

pub use histogram::Histogram;

/// Which database sysbench speaks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// MariaDB and MySQL.
    Mysql,
    /// PostgreSQL.
    Pgsql,
}

impl Driver {
    /// Its protocol, as configurations call it, and the probe that speaks it.
    pub(crate) fn protocol(self) -> &'static str {
        match self {
            Driver::Mysql => "mysql",
            Driver::Pgsql => "postgres",
        }
    }

    /// The options that reach the database `sbtest` at this address.
    pub(crate) fn arguments(self, address: SocketAddr) -> Vec<String> {
        let (name, host, port) = match self {
            Driver::Mysql => ("mysql", address.ip(), address.port()),
            Driver::Pgsql => ("pgsql", address.ip(), address.port()),
        };
        vec![
            format!("--db-driver={name}"),
            format!("--{name}-host={host}"),
            format!("--{name}-port={port}"),
            format!("--{name}-user=sbtest"),
            format!("--{name}-password=sbtest"),
            format!("--{name}-db=sbtest"),
        ]
    }
}

/// A sysbench run to be done.
#[derive(Clone, Debug)]
pub struct Sysbench {
    /// Which database.
    pub driver: Driver,
    /// Where, usually a balancer's port.
    pub address: SocketAddr,
    /// The script, for example `oltp_point_select`.
    pub script: String,
    /// Connections.
    pub threads: u32,
    /// How long.
    pub seconds: u32,
    /// Tables, as loaded.
    pub tables: u32,
    /// Rows per table, as loaded.
    pub rows: u32,
    /// Further options. `--mysql-ignore-errors=all` makes it connect again when a connection is
    /// lost, but add `--db-ps-mode=disable`: with prepared statements sysbench 1.0.20 crashes then.
    pub extra: Vec<String>,
}

impl Sysbench {
    /// Point selects of 8 connections for 5 seconds on 4 tables of 20,000 rows.
    pub fn new(driver: Driver, address: SocketAddr) -> Sysbench {
        Sysbench {
            driver,
            address,
            script: "oltp_point_select".to_owned(),
            threads: 8,
            seconds: 5,
            tables: 4,
            rows: 20_000,
            extra: Vec::new(),
        }
    }

    /// Runs to the end; a run that sysbench gave up is an error.
    pub fn run(&self) -> Result<SysbenchReport> {
        let report = self.start()?.finish()?;
        match &report.failure {
            Some(why) => bail!("sysbench on {} gave up: {why}", self.address),
            None => Ok(report),
        }
    }

    /// Starts and returns at once.
    pub fn start(&self) -> Result<RunningSysbench> {
        let mut command = Command::new(tool::find("sysbench")?);
        command.args(self.driver.arguments(self.address));
        command
            .arg(format!("--tables={}", self.tables))
            .arg(format!("--table-size={}", self.rows));
        command
            .arg(format!("--threads={}", self.threads))
            .arg(format!("--time={}", self.seconds));
        command
            .arg("--report-interval=1")
            .args(&self.extra)
            .arg(&self.script)
            .arg("run");
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = process::spawn_tied(command).context("cannot start sysbench")?;
        let output = child.stdout.take().context("sysbench's output is piped")?;
        let errors = child.stderr.take().context("sysbench's errors are piped")?;
        let report = Arc::new(Mutex::new(SysbenchReport::default()));
        let readers = vec![
            follow(BufReader::new(output), report.clone()),
            follow(BufReader::new(errors), report.clone()),
        ];
        Ok(RunningSysbench {
            child,
            readers,
            report,
        })
    }
}

fn follow(
    lines: impl BufRead + Send + 'static,
    report: Arc<Mutex<SysbenchReport>>,
) -> JoinHandle<()> {
    thread::spawn(move || {
        for line in lines.lines().map_while(Result::ok) {
            report
                .lock()
                .expect("no holder of the lock panics")
                .read_line(&line);
        }
    })
}

/// A sysbench process at work; killed when dropped.
pub struct RunningSysbench {
    child: Child,
    readers: Vec<JoinHandle<()>>,
    report: Arc<Mutex<SysbenchReport>>,
}

impl RunningSysbench {
    /// What it has reported so far.
    pub fn so_far(&self) -> SysbenchReport {
        self.report
            .lock()
            .expect("no holder of the lock panics")
            .clone()
    }

    /// Whether it is still at work.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for its end. A run that was given up has [`SysbenchReport::failure`] set.
    pub fn finish(mut self) -> Result<SysbenchReport> {
        let status = self.child.wait()?;
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
        let mut report = self.so_far();
        if !status.success() && report.failure.is_none() {
            report.failure = Some(format!("{status}"));
        }
        Ok(report)
    }
}

impl Drop for RunningSysbench {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One second of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Second {
    /// Queries in this second.
    pub qps: f64,
    /// 95th percentile of the latency.
    pub p95_ms: f64,
    /// Errors that were ignored as told.
    pub errors: f64,
    /// Connections made anew.
    pub reconnects: f64,
}

/// What sysbench reported.
#[derive(Clone, Debug, Default)]
pub struct SysbenchReport {
    /// Each second.
    pub seconds: Vec<Second>,
    /// Queries in all.
    pub queries: u64,
    /// Queries per second over the whole run.
    pub qps: f64,
    /// 95th percentile of the latency over the whole run.
    pub p95_ms: f64,
    /// Of all queries; only with `--histogram`.
    pub latencies: Histogram,
    /// Errors that were ignored as told (`--mysql-ignore-errors`).
    pub ignored_errors: u64,
    /// Connections made anew after an error.
    pub reconnects: u64,
    /// Why sysbench gave up, if it did; the totals are missing then.
    pub failure: Option<String>,
}

impl SysbenchReport {
    fn read_line(&mut self, line: &str) {
        let line = line.trim();
        if line.starts_with("FATAL") && self.failure.is_none() {
            self.failure = Some(line.to_owned());
        } else if line.starts_with('[') && line.contains("qps:") {
            self.seconds.push(Second {
                qps: number_after(line, "qps:"),
                p95_ms: number_after(line, "(ms,95%):"),
                errors: number_after(line, "err/s:"),
                reconnects: number_after(line, "reconn/s:"),
            });
        } else if !self.latencies.read_line(line) {
            self.read_total(line);
        }
    }

    fn read_total(&mut self, line: &str) {
        let Some((name, value)) = line.split_once(':') else {
            return;
        };
        let count = value.split_whitespace().next().unwrap_or_default();
        match name {
            "queries" => {
                self.queries = count.parse().unwrap_or(0);
                self.qps = number_after(line, "(");
            }
            "ignored errors" => self.ignored_errors = count.parse().unwrap_or(0),
            "reconnects" => self.reconnects = count.parse().unwrap_or(0),
            "95th percentile" => self.p95_ms = count.parse().unwrap_or(0.0),
            _ => {}
        }
    }
}

fn number_after(line: &str, label: &str) -> f64 {
    let rest = line
        .split_once(label)
        .map_or("", |(_, rest)| rest.trim_start());
    let end = rest
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(rest.len());
    rest[..end].parse().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
[ 1s ] thds: 8 tps: 20504.44 qps: 20504.44 (r/w/o: 20504.44/0.00/0.00) lat (ms,95%): 0.65 err/s: 2.00 reconn/s: 1.00
SQL statistics:
    queries performed:
        read:                            102911
        total:                           102911
    transactions:                        102911 (20580.21 per sec.)
    queries:                             102911 (20580.21 per sec.)
    ignored errors:                      4      (0.80 per sec.)
    reconnects:                          3      (0.60 per sec.)
Latency (ms):
         95th percentile:                        0.64
";

    #[test]
    fn every_number_of_a_report_is_read() {
        let mut report = SysbenchReport::default();
        OUTPUT.lines().for_each(|line| report.read_line(line));
        assert_eq!(
            report.seconds,
            [Second {
                qps: 20504.44,
                p95_ms: 0.65,
                errors: 2.0,
                reconnects: 1.0
            }]
        );
        assert_eq!(
            (report.queries, report.qps, report.p95_ms),
            (102_911, 20580.21, 0.64)
        );
        assert_eq!((report.ignored_errors, report.reconnects), (4, 3));
        assert_eq!(report.failure, None);
    }

    #[test]
    fn the_first_fatal_line_says_why_the_run_was_given_up() {
        let mut report = SysbenchReport::default();
        report.read_line("FATAL: mysql_drv_query() returned error 2013");
        report.read_line("FATAL: something later");
        assert_eq!(
            report.failure.as_deref(),
            Some("FATAL: mysql_drv_query() returned error 2013")
        );
    }
}
