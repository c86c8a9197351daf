//! Runs wrk: as many requests as fit into the time, over a number of connections.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use super::{Latency, Report, Task, number_after, unreadable_output};
use crate::{process, tool};

/// Script for the 95th percentile, which wrk does not print by itself.
const PERCENTILES: &str = "done = function(summary, latency, requests)\n\
    \x20 for _, p in pairs({50, 95, 99}) do\n\
    \x20   io.write(string.format(\"percentile %d: %.3f ms\\n\", p, latency:percentile(p) / 1000))\n\
    \x20 end\n\
    \x20 io.write(string.format(\"mean: %.3f ms\\nlongest: %.3f ms\\n\", latency.mean / 1000, latency.max / 1000))\n\
    end\n";

pub(super) fn command(task: &Task) -> Result<Command> {
    let script = task.work_dir.join("percentiles.lua");
    let clients = task.load.client_addresses;
    let clients = clients.map_or_else(String::new, |count| addresses(count, task.seed));
    fs::write(&script, format!("{clients}{PERCENTILES}"))?;
    let mut command = Command::new(tool::find("wrk")?);
    process::plain_environment(&mut command);
    let address = task.addresses.first().context("no address to load")?;
    command
        .arg("--threads=1")
        .arg(format!("--connections={}", task.point.max(1)))
        .arg(format!("--duration={}s", task.seconds))
        .arg(format!("--script={}", script.display()))
        .args(&task.load.options)
        .arg(format!("http://{address}{}", task.load.path()));
    Ok(command)
}

/// Returns a script that writes one of `count` client addresses into each request, as a proxy in
/// front does.
fn addresses(count: u32, seed: u64) -> String {
    format!(
        "math.randomseed({seed})\n\
         request = function()\n\
         \x20 local client = math.random({count}) - 1\n\
         \x20 wrk.headers[\"X-Forwarded-For\"] = string.format(\n\
         \x20   \"10.%d.%d.%d\", client / 62500, client / 250 % 250, client % 250 + 1)\n\
         \x20 return wrk.format()\n\
         end\n"
    )
}

pub(super) fn read(text: &str) -> Result<Report, String> {
    let Some(report) = crate::wrk::parse_report(text) else {
        return Err(unreadable_output(text));
    };
    Ok(Report {
        requests: report.requests,
        requests_per_s: report.requests_per_s,
        errors: report.errors,
        latency: Latency {
            mean: number_after(text, "\nmean:"),
            p50: number_after(text, "percentile 50:"),
            p95: number_after(text, "percentile 95:"),
            p99: number_after(text, "percentile 99:"),
            max: number_after(text, "longest:"),
        },
        ..Report::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_read_from_what_our_script_adds() {
        let text = "  100 requests in 1.00s, 58.1MB read\nRequests/sec:   100.5\n\
            percentile 50: 0.027 ms\npercentile 95: 0.050 ms\npercentile 99: 1.500 ms\n\
            mean: 0.030 ms\nlongest: 3.610 ms\n";
        let report = read(text).expect("it is a report");
        assert_eq!((report.requests, report.requests_per_s), (100, 100.5));
        let expected = Latency {
            mean: Some(0.03),
            p50: Some(0.027),
            p95: Some(0.05),
            p99: Some(1.5),
            max: Some(3.61),
        };
        assert_eq!(report.latency, expected);
    }
}
