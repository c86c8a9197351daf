//! Runs ab, Apache's generator: a number of requests, with the point's concurrency.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::{Latency, Report, Task, number_after, unreadable_output};
use crate::{process, tool};

/// Maximum number of requests when only the time is set.
const REQUESTS_MAX: u64 = 50_000_000;

/// File of the percentiles, which has decimals.
const PERCENTILES: &str = "percentiles.csv";

pub(super) fn command(task: &Task) -> Result<Command> {
    let mut command = Command::new(tool::find("ab")?);
    process::plain_environment(&mut command);
    // The order matters: -t sets the number of requests, and a later -n overrides it.
    if task.requests.is_none() {
        command.args(["-t", &task.seconds.to_string()]);
    }
    let requests = task.requests.unwrap_or(REQUESTS_MAX);
    let at_once = u64::from(task.point).clamp(1, requests);
    command
        .args(["-n", &requests.to_string(), "-c", &at_once.to_string()])
        // Continue after an error; the length of a page may differ between servers.
        .args(["-q", "-r", "-l", "-e"])
        .arg(task.work_dir.join(PERCENTILES))
        .args(&task.load.options);
    let address = task.addresses.first().context("no address to load")?;
    command.arg(format!("http://{address}{}", task.load.path()));
    Ok(command)
}

pub(super) fn read(text: &str, work_dir: &Path) -> Result<Report, String> {
    let number = |label: &str| number_after(text, label);
    let complete = number("Complete requests:").ok_or_else(|| unreadable_output(text))?;
    let per_s = number("Requests per second:").ok_or_else(|| unreadable_output(text))?;
    let errors =
        number("Failed requests:").unwrap_or(0.0) + number("Non-2xx responses:").unwrap_or(0.0);
    let table = fs::read_to_string(work_dir.join(PERCENTILES)).unwrap_or_default();
    let at = |percent: &str| {
        let mut lines = table.lines().filter_map(|line| line.split_once(','));
        let found = lines.find(|(name, _)| *name == percent);
        found.and_then(|(_, ms)| ms.parse().ok())
    };
    // "100% … (longest request)" is in whole milliseconds, and the file ends at 99.
    let longest = text.lines().find(|line| line.contains("longest request"));
    let max = longest.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    // In ab's output, "complete" includes failed requests, which may have failed in several ways.
    let answered = (complete - errors).max(0.0);
    Ok(Report {
        requests: answered as u64,
        requests_per_s: per_s * answered / complete.max(1.0),
        errors: errors as u64,
        latency: Latency {
            mean: number("Time per request:"),
            p50: at("50"),
            p95: at("95"),
            p99: at("99"),
            max: at("100").or(max),
        },
        ..Report::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
Concurrency Level:      5
Time taken for tests:   0.026 seconds
Complete requests:      500
Failed requests:        2
   (Connect: 0, Receive: 0, Length: 2, Exceptions: 0)
Non-2xx responses:      1
Requests per second:    19273.76 [#/sec] (mean)
Time per request:       0.259 [ms] (mean)
Time per request:       0.052 [ms] (mean, across all concurrent requests)
  50%      0
 100%      1 (longest request)
";

    #[test]
    fn a_report_is_read_with_the_finer_percentiles_of_the_file() {
        let work_dir = tempfile::tempdir().expect("a directory");
        let table = "Percentage served,Time in ms\n50,0.238\n95,0.4\n99,0.9\n";
        fs::write(work_dir.path().join(PERCENTILES), table).expect("it can be written");
        let report = read(OUTPUT, work_dir.path()).expect("it is a report");
        assert_eq!((report.requests, report.errors), (497, 3));
        assert_eq!(report.requests_per_s, 19273.76 * 497.0 / 500.0);
        let expected = Latency {
            mean: Some(0.259),
            p50: Some(0.238),
            p95: Some(0.4),
            p99: Some(0.9),
            max: Some(1.0),
        };
        assert_eq!(report.latency, expected);
    }

    #[test]
    fn ab_that_cannot_connect_says_so() {
        let text = "apr_socket_connect(): Connection refused (111)\n";
        let work_dir = Path::new("/nonexistent");
        assert_eq!(
            read(text, work_dir),
            Err("apr_socket_connect(): Connection refused (111)".to_owned())
        );
    }
}
