//! Runs a generator of the user's own: any program that prints its numbers in an agreed format.

use std::process::Command;

use anyhow::{Context, Result};

use super::super::experiment::Tool;
use super::{Latency, Report, Task, number_after, unreadable_output};
use crate::{process, tool};

/// Returns the command with `{host}`, `{port}`, `{point}`, `{seconds}` and `{seed}` replaced.
pub(super) fn command(task: &Task) -> Result<Command> {
    let address = task.addresses.first().context("no address to load")?;
    let fill = |word: &String| {
        word.replace("{host}", &address.ip().to_string())
            .replace("{port}", &address.port().to_string())
            .replace("{point}", &task.point.to_string())
            .replace("{seconds}", &task.seconds.to_string())
            .replace("{seed}", &task.seed.to_string())
    };
    let mut words = task.load.options.iter().map(fill);
    let program = words
        .next()
        .context("a load of tool = \"command\" needs options: its words")?;
    let mut command = Command::new(tool::find(&program).unwrap_or_else(|_| program.into()));
    process::plain_environment(&mut command);
    command.args(words);
    Ok(command)
}

/// Parses lines such as `requests: 100`; `requests` and `seconds` are required.
pub(super) fn read(text: &str) -> Result<Report, String> {
    let value = |label: &str| {
        let line = text.lines().find(|line| line.starts_with(label));
        line.and_then(|line| number_after(line, label))
    };
    let requests = value("requests:").ok_or_else(|| unreadable_output(text))?;
    let seconds = value("seconds:").ok_or_else(|| unreadable_output(text))?;
    Ok(Report {
        requests: requests as u64,
        requests_per_s: if seconds > 0.0 {
            requests / seconds
        } else {
            0.0
        },
        errors: value("errors:").unwrap_or(0.0) as u64,
        latency: Latency {
            mean: value("mean_ms:"),
            p50: value("p50_ms:"),
            p95: value("p95_ms:"),
            p99: value("p99_ms:"),
            max: value("max_ms:"),
        },
        ..Report::default()
    })
}

/// Returns why this generator is unavailable; `None` if it is available.
pub(crate) fn missing(tool: &Tool) -> Option<String> {
    let found = match tool {
        Tool::Sysbench => tool::find("sysbench"),
        Tool::Pgbench => tool::find_postgres("pgbench"),
        Tool::Ab => tool::find("ab"),
        Tool::Wrk => tool::find("wrk"),
        Tool::Httperf => tool::find("httperf"),
        Tool::Command => return None,
    };
    found.err().map(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agreed_words_are_read() {
        let report = read("requests: 50\nseconds: 2.5\np99_ms: 7.25\n").expect("a report");
        assert_eq!((report.requests, report.requests_per_s), (50, 20.0));
        assert_eq!(report.latency.p99, Some(7.25));
        assert_eq!(read("nothing of use\n"), Err("nothing of use".to_owned()));
    }
}
