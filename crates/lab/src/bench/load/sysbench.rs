//! Runs sysbench: its own mixes, or the experiment's queries in a generated script.

use std::fmt::Write;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use super::{Latency, Report, Task, number_after, unreadable_output};
use crate::sysbench::Driver;
use crate::{process, tool};

pub(super) fn command(task: &Task) -> Result<Command> {
    let mut command = Command::new(tool::find("sysbench")?);
    process::plain_environment(&mut command);
    command.args(database(task)?);
    command
        .arg(format!("--tables={}", task.tables))
        .arg(format!("--table-size={}", task.rows))
        .arg(format!("--threads={}", task.point))
        .arg(format!("--rand-seed={}", task.seed.max(1)))
        .args(["--histogram", "--percentile=99", "--report-interval=1"]);
    match task.requests {
        Some(requests) => command.args([format!("--events={requests}"), "--time=0".to_owned()]),
        None => command.arg(format!("--time={}", task.seconds)),
    };
    if let Some(rate) = task.rate {
        command.arg(format!("--rate={:.0}", rate.max(1.0)));
    }
    command.args(&task.load.options);
    command.arg(script(task)?).arg("run");
    Ok(command)
}

/// Returns the connection options. Given several addresses, sysbench does the round robin itself.
fn database(task: &Task) -> Result<Vec<String>> {
    let first = *task.addresses.first().context("no address to load")?;
    let mut arguments = task.driver.arguments(first);
    if task.driver == Driver::Mysql && task.addresses.len() > 1 {
        let ports: Vec<String> = task
            .addresses
            .iter()
            .map(|address| address.port().to_string())
            .collect();
        arguments.retain(|argument| !argument.starts_with("--mysql-port="));
        arguments.push(format!("--mysql-port={}", ports.join(",")));
    }
    Ok(arguments)
}

/// Returns the name of a mix, the path of a script, or a script that sends the load's queries.
fn script(task: &Task) -> Result<String> {
    if task.load.sql.is_empty() {
        return Ok(task.load.script.clone());
    }
    let path = task.work_dir.join("queries.lua");
    fs::write(&path, lua(&task.load.sql))?;
    Ok(path.display().to_string())
}

/// Builds the script; `{A..B}` in a query stands for a random number, drawn for each execution.
fn lua(queries: &[String]) -> String {
    let mut text = String::from(
        "function thread_init()\n  drv = sysbench.sql.driver()\n  con = drv:connect()\nend\n\
         function thread_done()\n  con:disconnect()\nend\nfunction event()\n",
    );
    for query in queries {
        let mut parts = Vec::new();
        let mut rest = query.as_str();
        while let Some((before, least, most, after)) = drawn(rest) {
            parts.push(format!("[==[{before}]==]"));
            parts.push(format!("sysbench.rand.uniform({least}, {most})"));
            rest = after;
        }
        parts.push(format!("[==[{rest}]==]"));
        let _ = writeln!(text, "  con:query({})", parts.join(" .. "));
    }
    text.push_str("end\n");
    text
}

fn drawn(text: &str) -> Option<(&str, u64, u64, &str)> {
    let (before, rest) = text.split_once('{')?;
    let (range, after) = rest.split_once('}')?;
    let (least, most) = range.split_once("..")?;
    Some((before, least.parse().ok()?, most.parse().ok()?, after))
}

pub(super) fn read(text: &str) -> Result<Report, String> {
    let seconds = number_after(text, "total time:").ok_or_else(|| unreadable_output(text))?;
    let events =
        number_after(text, "total number of events:").ok_or_else(|| unreadable_output(text))?;
    let counted = |label: &str| {
        let line = text.lines().find(|line| line.trim().starts_with(label));
        line.and_then(|line| number_after(line, ":"))
    };
    let histogram = histogram(text);
    let fair = text
        .lines()
        .find(|line| line.contains("events (avg/stddev)"));
    let fairness = fair.and_then(|line| {
        let (mean, deviation) = line.rsplit_once(':')?.1.trim().split_once('/')?;
        Some((mean.parse().ok()?, deviation.parse().ok()?))
    });
    Ok(Report {
        requests: events as u64,
        requests_per_s: if seconds > 0.0 { events / seconds } else { 0.0 },
        queries: counted("queries:").map(|count| count as u64),
        errors: (counted("ignored errors:").unwrap_or(0.0) + counted("reconnects:").unwrap_or(0.0))
            as u64,
        latency: Latency {
            mean: counted("avg:"),
            p50: percentile(&histogram, 0.50),
            p95: percentile(&histogram, 0.95),
            p99: percentile(&histogram, 0.99),
            max: counted("max:"),
        },
        fairness,
        offered_per_s: None,
        each_second: text
            .lines()
            .filter(|line| line.starts_with('['))
            .filter_map(|line| number_after(line, "tps:"))
            .collect(),
    })
}

/// Returns the value in ms and the count of each bucket.
fn histogram(text: &str) -> Vec<(f64, u64)> {
    let lines = text
        .lines()
        .skip_while(|line| !line.contains("- distribution -"))
        .skip(1);
    lines
        .map_while(|line| {
            let (value, rest) = line.split_once('|')?;
            let count = rest.split_whitespace().last()?;
            Some((value.trim().parse().ok()?, count.parse().ok()?))
        })
        .collect()
}

/// Returns the smallest bucket with at least this share of all values at or below it.
fn percentile(histogram: &[(f64, u64)], part: f64) -> Option<f64> {
    let all: u64 = histogram.iter().map(|(_, count)| count).sum();
    let wanted = (all as f64 * part).ceil() as u64;
    let mut seen = 0;
    let mut values = histogram.iter();
    let found = values.find(|(_, count)| {
        seen += count;
        seen >= wanted
    });
    found.map(|(value, _)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
[ 1s ] thds: 4 tps: 48.50 qps: 820.11 (r/w/o: 1/2/3) lat (ms,99%): 0.65 err/s: 2.00 reconn/s: 1.00
Latency histogram (values are in milliseconds)
       value  ------------- distribution ------------- count
       0.100 |****************************************  40
       0.200 |****************************************  55
       0.900 |***                                       4
       4.101 |                                          1
 
SQL statistics:
    queries performed:
        read:                            1400
    transactions:                        100    (50.00 per sec.)
    queries:                             1600   (800.00 per sec.)
    ignored errors:                      4      (2.00 per sec.)
    reconnects:                          3      (1.50 per sec.)

General statistics:
    total time:                          2.0000s
    total number of events:              100

Latency (ms):
         min:                                    0.09
         avg:                                    0.25
         max:                                    4.22
         99th percentile:                        0.90
         sum:                                  25.00

Threads fairness:
    events (avg/stddev):           25.0000/1.50
    execution time (avg/stddev):   1.9979/0.00
";

    #[test]
    fn every_number_is_read_and_percentiles_come_from_the_histogram() {
        let expected = Report {
            requests: 100,
            requests_per_s: 50.0,
            queries: Some(1600),
            errors: 7,
            latency: Latency {
                mean: Some(0.25),
                p50: Some(0.2),
                p95: Some(0.2),
                p99: Some(0.9),
                max: Some(4.22),
            },
            fairness: Some((25.0, 1.5)),
            offered_per_s: None,
            each_second: vec![48.5],
        };
        assert_eq!(read(OUTPUT), Ok(expected));
    }

    #[test]
    fn a_run_that_was_given_up_says_why() {
        let text =
            "Threads started!\nFATAL: mysql_drv_query() returned error 2013\n(last message)\n";
        assert_eq!(
            read(text),
            Err("FATAL: mysql_drv_query() returned error 2013".to_owned())
        );
    }

    #[test]
    fn a_query_of_the_experiment_draws_its_numbers_anew_each_time() {
        let text = lua(&["SELECT * FROM f WHERE id = {1..50} AND d < {2..3}".to_owned()]);
        assert!(text.contains(
            "con:query([==[SELECT * FROM f WHERE id = ]==] .. sysbench.rand.uniform(1, 50) .. \
             [==[ AND d < ]==] .. sysbench.rand.uniform(2, 3) .. [==[]==])"
        ));
    }
}
