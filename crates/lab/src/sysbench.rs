//! Runs sysbench and parses its reports, each second and at the end.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, bail};

use crate::{process, tool};

mod histogram;

pub use histogram::Histogram;

/// Database of a sysbench run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// MariaDB and MySQL.
    Mysql,
    /// PostgreSQL.
    Pgsql,
}

impl Driver {
    /// Returns the protocol's name in configurations, which is also that of its probe.
    pub(crate) fn protocol(self) -> &'static str {
        match self {
            Driver::Mysql => "mysql",
            Driver::Pgsql => "postgres",
        }
    }

    /// Returns the options for the database `sbtest` at this address.
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

/// A sysbench run to perform.
#[derive(Clone, Debug)]
pub struct Sysbench {
    /// Database protocol.
    pub driver: Driver,
    /// Address, usually a balancer's port.
    pub address: SocketAddr,
    /// Script, for example `oltp_point_select`.
    pub script: String,
    /// Number of connections.
    pub threads: u32,
    /// Duration in seconds.
    pub seconds: u32,
    /// Number of tables, as loaded.
    pub tables: u32,
    /// Rows per table, as loaded.
    pub rows: u32,
    /// Further options. `--mysql-ignore-errors=all` makes it reconnect after a lost connection, but
    /// requires `--db-ps-mode=disable`: with prepared statements sysbench 1.0.20 then crashes.
    pub extra: Vec<String>,
}

impl Sysbench {
    /// Returns point selects on 8 connections for 5 seconds, with 4 tables of 20,000 rows.
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

    /// Runs to the end; returns an error if sysbench fails.
    pub fn run(&self) -> Result<SysbenchReport> {
        let report = self.start()?.finish()?;
        match &report.failure {
            Some(why) => bail!("sysbench on {} gave up: {why}", self.address),
            None => Ok(report),
        }
    }

    /// Starts sysbench without waiting.
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

/// A running sysbench process; killed on drop.
pub struct RunningSysbench {
    child: Child,
    readers: Vec<JoinHandle<()>>,
    report: Arc<Mutex<SysbenchReport>>,
}

impl RunningSysbench {
    /// Returns its reports so far.
    pub fn so_far(&self) -> SysbenchReport {
        self.report
            .lock()
            .expect("no holder of the lock panics")
            .clone()
    }

    /// Returns whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for its end. A failed run has [`SysbenchReport::failure`] set.
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

/// Report of one second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Second {
    /// Queries in this second.
    pub qps: f64,
    /// 95th percentile of the latency, in ms.
    pub p95_ms: f64,
    /// Errors that were ignored as requested.
    pub errors: f64,
    /// Number of reconnects.
    pub reconnects: f64,
}

/// Reports of sysbench.
#[derive(Clone, Debug, Default)]
pub struct SysbenchReport {
    /// Report of each second.
    pub seconds: Vec<Second>,
    /// Total number of queries.
    pub queries: u64,
    /// Queries per second over the whole run.
    pub qps: f64,
    /// 95th percentile of the latency over the whole run, in ms.
    pub p95_ms: f64,
    /// Latencies of all queries; only with `--histogram`.
    pub latencies: Histogram,
    /// Errors that were ignored as requested (`--mysql-ignore-errors`).
    pub ignored_errors: u64,
    /// Number of reconnects after an error.
    pub reconnects: u64,
    /// Reason why sysbench failed; the totals are then missing.
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
