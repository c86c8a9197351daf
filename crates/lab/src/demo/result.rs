//! Formats the result of the demonstration as tables and sentences.

use std::time::Instant;

use evenkeel_lab::NewcomersReport;
use evenkeel_lab::new_connections::Failure;

use super::load::Outcome;
use crate::{row, table};

/// Result of one database's act.
pub(crate) struct DemoResult {
    pub(crate) title: &'static str,
    pub(crate) direct_reads: Outcome,
    pub(crate) reads: Outcome,
    pub(crate) direct_writes: Outcome,
    pub(crate) writes: Outcome,
    pub(crate) newcomers: NewcomersReport,
    pub(crate) killed: Instant,
    pub(crate) shares: Vec<(String, u64)>,
    pub(crate) victim: String,
}

impl DemoResult {
    pub(crate) fn no_newcomer_failed(&self) -> bool {
        self.failed().is_empty() && self.reads.refused.is_empty() && self.writes.refused.is_empty()
    }

    fn failed(&self) -> Vec<&Failure> {
        self.newcomers
            .failures
            .iter()
            .filter(|failure| failure.started > self.killed)
            .collect()
    }

    /// Returns the failures of connections begun before the kill: the server may already have
    /// accepted them.
    fn caught(&self) -> usize {
        self.newcomers.failures.len() - self.failed().len()
    }
}

pub(crate) fn print(played: &DemoResult) {
    println!("\n{}", table::columns(&rate_rows(played)));
    println!("Read connections: {}", shares_sentence(&played.shares));
    let failed = played.failed();
    println!(
        "New connections: {} opened, {} failed, longest wait {} ms",
        played.newcomers.attempts,
        failed.len(),
        played.newcomers.longest_wait.as_millis()
    );
    for failure in failed.iter().take(3) {
        println!(
            "  a connection started {} ms after the kill failed after {} ms: {}",
            failure.started.duration_since(played.killed).as_millis(),
            failure.waited.as_millis(),
            failure.why
        );
    }
    for why in played
        .reads
        .refused
        .iter()
        .chain(&played.writes.refused)
        .take(3)
    {
        println!("  a load client could not connect: {why}");
    }
    println!(
        "Lost when {} was killed: {} open load sessions, {} connections waiting for its greeting",
        played.victim,
        played.reads.broken,
        played.caught()
    );
}

fn rate_rows(played: &DemoResult) -> Vec<Vec<String>> {
    let mut rows = vec![row![played.title, "direct", "Evenkeel", "ratio"]];
    let pairs = [
        ("reads", &played.direct_reads, &played.reads),
        ("writes", &played.direct_writes, &played.writes),
    ];
    for (what, direct, through) in pairs {
        rows.push(row![
            format!("{what}, queries/s"),
            format!("{:.0}", direct.qps),
            format!("{:.0}", through.qps),
            format!("{:.2}", through.qps / direct.qps.max(1.0))
        ]);
        rows.push(row![
            format!("{what}, p95 ms"),
            format!("{:.2}", direct.p95_ms),
            format!("{:.2}", through.p95_ms),
            format!("{:.2}", through.p95_ms / direct.p95_ms.max(0.001))
        ]);
    }
    rows
}

fn shares_sentence(shares: &[(String, u64)]) -> String {
    let total = shares.iter().map(|(_, count)| count).sum::<u64>().max(1);
    let share =
        |(name, count): &(String, u64)| format!("{name} {count} ({} %)", count * 100 / total);
    shares.iter().map(share).collect::<Vec<String>>().join(", ")
}
