//! Runs pgbench, PostgreSQL's generator, with its own script or the experiment's queries.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::{Latency, Report, Task, number_after, unreadable_output};
use crate::{process, tool};

/// Prefix of pgbench's per-transaction log files.
const LOG: &str = "transactions";

pub(super) fn command(task: &Task) -> Result<Command> {
    let mut command = Command::new(tool::find_postgres("pgbench")?);
    process::plain_environment(&mut command);
    let address = *task.addresses.first().context("no address to load")?;
    command
        .args(["--no-vacuum", "--jobs=2"])
        .arg(format!("--client={}", task.point.max(1)))
        .arg(format!("--random-seed={}", task.seed))
        .arg("--log")
        .arg(format!(
            "--log-prefix={}",
            task.work_dir.join(LOG).display()
        ));
    match task.requests {
        Some(requests) => {
            let each = (requests / u64::from(task.point.max(1))).max(1);
            command.arg(format!("--transactions={each}"))
        }
        None => command.arg(format!("--time={}", task.seconds)),
    };
    if let Some(rate) = task.rate {
        command.arg(format!("--rate={:.0}", rate.max(1.0)));
    }
    command.args(&task.load.options);
    if !task.load.sql.is_empty() {
        let path = task.work_dir.join("queries.sql");
        fs::write(&path, script(&task.load.sql))?;
        command.arg(format!("--file={}", path.display()));
    } else if !task.load.script.is_empty() {
        command.arg(format!("--file={}", task.load.script));
    }
    let (host, port) = (address.ip(), address.port());
    command.arg(format!(
        "host={host} port={port} dbname=sbtest user=sbtest password=sbtest"
    ));
    Ok(command)
}

/// Builds the script; `{A..B}` in a query stands for a random number, drawn for each execution.
fn script(queries: &[String]) -> String {
    let (mut draws, mut lines) = (String::new(), String::new());
    let mut count = 0;
    for query in queries {
        let mut line = query.clone();
        while let Some((from, to)) = line.find('{').zip(line.find('}')) {
            let Some((least, most)) = line[from + 1..to].split_once("..") else {
                break;
            };
            count += 1;
            let _ = writeln!(draws, "\\set n{count} random({least}, {most})");
            line.replace_range(from..=to, &format!(":n{count}"));
        }
        let _ = writeln!(lines, "{};", line.trim_end_matches(';'));
    }
    draws + &lines
}

pub(super) fn read(text: &str, work_dir: &Path) -> Result<Report, String> {
    let label = "number of transactions actually processed";
    let requests = number_after(text, label).ok_or_else(|| unreadable_output(text))?;
    let per_s = number_after(text, "tps =").ok_or_else(|| unreadable_output(text))?;
    let failed = number_after(text, "number of failed transactions").unwrap_or(0.0);
    let aborted = text.matches(" aborted").count() as f64;
    let mut times_us = logged(work_dir);
    times_us.sort_unstable();
    let at = |part: f64| {
        let index = ((times_us.len() as f64 * part).ceil() as usize).max(1) - 1;
        times_us.get(index).map(|us| *us as f64 / 1000.0)
    };
    Ok(Report {
        requests: requests as u64,
        requests_per_s: per_s,
        errors: (failed + aborted) as u64,
        latency: Latency {
            mean: number_after(text, "latency average ="),
            p50: at(0.50),
            p95: at(0.95),
            p99: at(0.99),
            max: at(1.0),
        },
        ..Report::default()
    })
}

/// Reads the logged latencies from the third column; with `--rate` they count from the scheduled
/// start.
fn logged(work_dir: &Path) -> Vec<u64> {
    let Ok(entries) = fs::read_dir(work_dir) else {
        return Vec::new();
    };
    let logs = entries.flatten().map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(LOG)
    });
    let mut times = Vec::new();
    for path in logs {
        let text = fs::read_to_string(&path).unwrap_or_default();
        times.extend(
            text.lines()
                .filter_map(|line| line.split(' ').nth(2)?.parse::<u64>().ok()),
        );
        let _ = fs::remove_file(path);
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
transaction type: <builtin: select only>
number of clients: 4
number of transactions actually processed: 4
number of failed transactions: 1 (0.001%)
latency average = 0.250 ms
initial connection time = 5.123 ms
tps = 16000.5 (without initial connection time)
";

    #[test]
    fn a_report_is_read_with_percentiles_from_the_log() {
        let work_dir = tempfile::tempdir().expect("a directory");
        let lines = "0 1 100 0 1600000000 5\n0 2 200 0 1600000000 9\n1 1 300 0 1600000000 9\n\
            1 2 4000 0 1600000000 9\n";
        fs::write(work_dir.path().join("transactions.77"), lines).expect("it can be written");
        let report = read(OUTPUT, work_dir.path()).expect("it is a report");
        assert_eq!((report.requests, report.errors), (4, 1));
        assert_eq!(report.requests_per_s, 16000.5);
        let latency = report.latency;
        assert_eq!((latency.p50, latency.p99), (Some(0.2), Some(4.0)));
        assert_eq!(latency.mean, Some(0.25));
    }

    #[test]
    fn numbers_to_be_drawn_become_variables() {
        let queries = ["SELECT {1..9} + {3..4}".to_owned(), "SELECT 1;".to_owned()];
        let expected =
            "\\set n1 random(1, 9)\n\\set n2 random(3, 4)\nSELECT :n1 + :n2;\nSELECT 1;\n";
        assert_eq!(script(&queries), expected);
    }
}
