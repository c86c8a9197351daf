//! Runs httperf: new connections at a fixed rate, independent of earlier answers.

use std::process::Command;

use anyhow::{Context, Result};

use super::{Latency, Report, Task, number_after, unreadable_output};
use crate::{process, tool};

/// Timeout of a connection, as in the studies.
const TIMEOUT_S: u32 = 5;

/// Option with the number of sessions and their length.
const SESSIONS: &str = "--wsess=";

pub(super) fn command(task: &Task) -> Result<Command> {
    let address = task.addresses.first().context("no address to load")?;
    let rate = task.rate.unwrap_or(f64::from(task.point)).max(1.0);
    let requests = task
        .requests
        .unwrap_or((rate * f64::from(task.seconds)).ceil() as u64);
    let mut command = Command::new(tool::find("httperf")?);
    process::plain_environment(&mut command);
    command
        .arg("--hog")
        .arg(format!("--server={}", address.ip()))
        .arg(format!("--port={}", address.port()))
        .arg(format!("--uri={}", task.load.path()))
        .args(work(rate, requests, task.load.session_requests))
        .arg(format!("--timeout={TIMEOUT_S}"))
        .args(&task.load.options);
    Ok(command)
}

/// Returns the options for connections, or for sessions of this many requests, which start at a
/// rate.
fn work(rate: f64, requests: u64, session_requests: Option<u32>) -> Vec<String> {
    let Some(length) = session_requests else {
        return vec![
            format!("--rate={rate:.0}"),
            format!("--num-conns={requests}"),
        ];
    };
    let sessions = requests.div_ceil(u64::from(length));
    vec![
        format!("--rate={:.3}", rate / f64::from(length)),
        // A session sends its next request once it has the answer, without a pause.
        format!("{SESSIONS}{sessions},{length},0"),
        "--session-cookies".to_owned(),
    ]
}

pub(super) fn read(text: &str) -> Result<Report, String> {
    let line = |label: &str| text.lines().find(|line| line.starts_with(label));
    let totals = line("Total:").ok_or_else(|| unreadable_output(text))?;
    let replies = number_after(totals, "replies ").ok_or_else(|| unreadable_output(text))?;
    let seconds = number_after(totals, "test-duration ").ok_or_else(|| unreadable_output(text))?;
    let errors = line("Errors: total").and_then(|line| number_after(line, "total "));
    let bad = line("Reply status:").map_or(0.0, |line| {
        number_after(line, "4xx=").unwrap_or(0.0) + number_after(line, "5xx=").unwrap_or(0.0)
    });
    let latency = match session_requests(text) {
        Some(_) => latency_of_replies(line("Reply time [ms]:").unwrap_or_default()),
        None => latency_of_connections(line("Connection time [ms]: min").unwrap_or_default()),
    };
    Ok(Report {
        requests: replies as u64,
        requests_per_s: if seconds > 0.0 {
            replies / seconds
        } else {
            0.0
        },
        errors: (errors.unwrap_or(0.0) + bad) as u64,
        latency,
        offered_per_s: offered_per_s(text),
        ..Report::default()
    })
}

fn latency_of_connections(times: &str) -> Latency {
    Latency {
        mean: number_after(times, "avg "),
        p50: number_after(times, "median "),
        max: number_after(times, "max "),
        ..Latency::default()
    }
}

/// Returns the mean time of a request: until its answer begins, and until it ends.
fn latency_of_replies(times: &str) -> Latency {
    let begin = number_after(times, "response ");
    let end = number_after(times, "transfer ");
    Latency {
        mean: begin.zip(end).map(|(begin, end)| begin + end),
        ..Latency::default()
    }
}

/// Returns the requests of a session, from the command that httperf repeats.
fn session_requests(text: &str) -> Option<f64> {
    let (_, rest) = text.split_once(SESSIONS)?;
    rest.split(',').nth(1)?.parse().ok()
}

/// Returns the offered rate of requests, the higher value in doubt: the duration ends with the last
/// answer. That may be as late as the longest connection, or as the timeout if any expired.
fn offered_per_s(text: &str) -> Option<f64> {
    let line = |label: &str| text.lines().find(|line| line.starts_with(label));
    let totals = line("Total:")?;
    let connections = number_after(totals, "connections ")?;
    let seconds = number_after(totals, "test-duration ")?;
    let timed_out = line("Errors: total").and_then(|line| number_after(line, "client-timo "));
    let longest_s = number_after(line("Connection time [ms]: min")?, "max ")? / 1_000.0;
    let tail_s = match timed_out {
        Some(timed_out) if timed_out > 0.0 => timeout_s(text).max(longest_s),
        _ => longest_s,
    };
    // A run hardly longer than its last answer says nothing about the rate.
    (seconds > 2.0 * tail_s)
        .then(|| connections * session_requests(text).unwrap_or(1.0) / (seconds - tail_s))
}

/// Returns the timeout in the command that httperf repeats in its first line: the last option
/// applies.
fn timeout_s(text: &str) -> f64 {
    let given = text
        .lines()
        .find(|line| line.contains("--timeout="))
        .and_then(|line| line.rsplit_once("--timeout="))
        .and_then(|(_, rest)| rest.split_whitespace().next()?.parse().ok());
    given.unwrap_or(f64::from(TIMEOUT_S))
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

    /// Computes the rate from made-up output of httperf.
    fn offered(connections: u32, seconds: f64, timed_out: u32, max_ms: f64) -> Option<f64> {
        let text = format!(
            "httperf --hog --timeout=1 --client=0/1 --server=127.0.0.1 --rate=240\n\
             Total: connections {connections} requests 720 replies 9 test-duration {seconds} s\n\
             Connection time [ms]: min 0.1 avg 0.4 max {max_ms} median 0.5 stddev 0.1\n\
             Errors: total {timed_out} client-timo {timed_out} socket-timo 0\n"
        );
        read(&text).expect("it is a report").offered_per_s
    }

    #[test]
    fn the_wait_for_the_last_answer_is_not_held_against_the_rate() {
        let near = |found: Option<f64>, rate: f64| (found.unwrap() / rate - 1.0).abs() < 0.01;
        assert!(near(offered(720, 3.998, 648, 974.6), 240.0));
        assert!(near(offered(720, 3.2, 0, 200.0), 240.0));
        assert!(near(offered(720, 4.0, 0, 2.4), 180.0), "it was slow itself");
        assert!(near(offered(720, 5.0, 10, 974.6), 180.0));
        assert_eq!(offered(720, 1.5, 700, 3.0), None);
    }
}
