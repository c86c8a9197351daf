//! httperf: new connections at a given rate, whether or not the ones before were answered.

use std::process::Command;

use anyhow::{Context, Result};

use super::{Latency, Report, Task, complaint, number_after};
use crate::{process, tool};

/// A connection that is not answered for so long has failed, as in the studies.
const TIMEOUT_S: u32 = 5;

pub(super) fn command(task: &Task) -> Result<Command> {
    let address = task.addresses.first().context("no address to load")?;
    let rate = task.rate.unwrap_or(f64::from(task.point)).max(1.0);
    let connections = task
        .requests
        .unwrap_or((rate * f64::from(task.seconds)).ceil() as u64);
    let mut command = Command::new(tool::find("httperf")?);
    process::plain_environment(&mut command);
    command
        .arg("--hog")
        .arg(format!("--server={}", address.ip()))
        .arg(format!("--port={}", address.port()))
        .arg(format!("--uri={}", task.load.path()))
        .arg(format!("--rate={rate:.0}"))
        .arg(format!("--num-conns={connections}"))
        .arg(format!("--timeout={TIMEOUT_S}"))
        .args(&task.load.options);
    Ok(command)
}

pub(super) fn read(text: &str) -> Result<Report, String> {
    let line = |label: &str| text.lines().find(|line| line.starts_with(label));
    let totals = line("Total:").ok_or_else(|| complaint(text))?;
    let replies = number_after(totals, "replies ").ok_or_else(|| complaint(text))?;
    let seconds = number_after(totals, "test-duration ").ok_or_else(|| complaint(text))?;
    let errors = line("Errors: total").and_then(|line| number_after(line, "total "));
    let bad = line("Reply status:").map_or(0.0, |line| {
        number_after(line, "4xx=").unwrap_or(0.0) + number_after(line, "5xx=").unwrap_or(0.0)
    });
    let times = line("Connection time [ms]: min").unwrap_or_default();
    Ok(Report {
        requests: replies as u64,
        requests_per_s: if seconds > 0.0 {
            replies / seconds
        } else {
            0.0
        },
        errors: (errors.unwrap_or(0.0) + bad) as u64,
        latency: Latency {
            mean: number_after(times, "avg "),
            p50: number_after(times, "median "),
            p95: None,
            p99: None,
            max: number_after(times, "max "),
        },
        ..Report::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_with_failed_connections() {
        let text = "\
Total: connections 500 requests 500 replies 490 test-duration 1.000 s

Connection rate: 500.6 conn/s (2.0 ms/conn, <=2 concurrent connections)
Connection time [ms]: min 0.1 avg 0.4 max 2.4 median 0.5 stddev 0.1
Connection time [ms]: connect 0.0
Reply status: 1xx=0 2xx=480 3xx=0 4xx=0 5xx=10
Errors: total 10 client-timo 4 socket-timo 0 connrefused 6 connreset 0
Errors: fd-unavail 0 addrunavail 0 ftab-full 0 other 0
";
        let report = read(text).expect("it is a report");
        assert_eq!((report.requests, report.errors), (490, 20));
        assert_eq!(report.requests_per_s, 490.0);
        let latency = report.latency;
        assert_eq!((latency.mean, latency.p50), (Some(0.4), Some(0.5)));
        assert_eq!(latency.max, Some(2.4));
    }
}
