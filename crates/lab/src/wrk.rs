//! Runs wrk, the HTTP load generator, and parses its report.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::{process, tool};

/// A run of wrk on one thread.
#[derive(Clone, Debug)]
pub struct Wrk {
    /// Address of the server.
    pub address: SocketAddr,
    /// Path of the page, for example `/1k`.
    pub path: String,
    /// Number of concurrent connections.
    pub connections: u32,
    /// Duration in seconds.
    pub seconds: u32,
    /// True if a connection serves many requests, false if only one.
    pub keep_alive: bool,
    /// Further fields of each request, such as `Accept: text/html`.
    pub fields: &'static [&'static str],
}

/// Report of wrk.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WrkReport {
    /// Number of answered requests.
    pub requests: u64,
    /// Requests per second.
    pub requests_per_s: f64,
    /// Latency that 99 of 100 requests did not exceed, in microseconds.
    pub latency_p99_us: f64,
    /// Failed connects, reads, writes, timeouts, and answers with an error status.
    pub errors: u64,
}

impl Wrk {
    /// Runs wrk to the end.
    pub fn run(&self) -> Result<WrkReport> {
        let mut command = Command::new(tool::find("wrk")?);
        command.args([
            "--threads=1",
            "--latency",
            &format!("--connections={}", self.connections),
        ]);
        command.arg(format!("--duration={}s", self.seconds));
        if !self.keep_alive {
            command.args(["--header", "Connection: close"]);
        }
        let fields = self.fields.iter();
        command.args(fields.flat_map(|field| ["--header", field]));
        command.arg(format!("http://{}{}", self.address, self.path));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let output = process::spawn_tied(command)?.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            bail!("wrk: {text}{}", String::from_utf8_lossy(&output.stderr));
        }
        parse_report(&text).with_context(|| format!("cannot parse the report of wrk:\n{text}"))
    }
}

pub(crate) fn parse_report(text: &str) -> Option<WrkReport> {
    let mut report = WrkReport::default();
    for line in text.lines().map(str::trim) {
        if let Some((requests, _)) = line.split_once(" requests in ") {
            report.requests = requests.parse().ok()?;
        } else if let Some(rate) = line.strip_prefix("Requests/sec:") {
            report.requests_per_s = rate.trim().parse().ok()?;
        } else if let Some(latency) = line.strip_prefix("99%") {
            report.latency_p99_us = microseconds(latency.trim())?;
        } else if line.starts_with("Socket errors:") || line.starts_with("Non-2xx") {
            let words = line
                .split(|c: char| !c.is_ascii_digit())
                .filter(|word| word.len() < 12);
            let counts = words.filter_map(|word| word.parse::<u64>().ok());
            // "Non-2xx or 3xx responses: N" contains two digits (2xx, 3xx) that are not counts.
            let skip = if line.starts_with("Non-2xx") { 2 } else { 0 };
            report.errors += counts.skip(skip).sum::<u64>();
        }
    }
    (report.requests_per_s > 0.0).then_some(report)
}

/// Reads a time with its unit.
fn microseconds(text: &str) -> Option<f64> {
    let units = [("us", 1.0), ("ms", 1e3), ("s", 1e6), ("m", 6e7)];
    units.iter().find_map(|(unit, factor)| {
        let number: f64 = text.strip_suffix(unit)?.parse().ok()?;
        Some(number * factor)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_with_all_its_errors() {
        let text = "    90%    1.20ms\n    99%    2.53ms\n  48321 requests in 5.00s, 58.1MB read\n\
            \x20 Socket errors: connect 1, read 2, write 0, timeout 3\n\
            \x20 Non-2xx or 3xx responses: 40\nRequests/sec:   9664.2\nTransfer/sec:     11.6MB\n";
        let expected = WrkReport {
            requests: 48_321,
            requests_per_s: 9664.2,
            latency_p99_us: 2_530.0,
            errors: 46,
        };
        assert_eq!(parse_report(text), Some(expected));
    }
}
