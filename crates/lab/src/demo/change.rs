//! Runs the last act: the primary is killed, a script promotes a replica, and writes continue
//! through the same port.

use std::thread::sleep;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use evenkeel_lab::write_probe::Verification;
use evenkeel_lab::{Balancer, Lab, WriteLog, WriteProbe, WriteProbeOptions};

use super::progress::Progress;
use super::stage::Act;

/// Duration of the writes before the kill.
const BEFORE: Duration = Duration::from_secs(2);
const AFTER: Duration = Duration::from_secs(2);

/// Delay that a person or tool needs to detect that the primary is dead.
const DECISION: Duration = Duration::from_millis(500);

/// Result of the act.
pub(crate) struct FailoverResult {
    old: String,
    new: String,
    log: WriteLog,
    killed_at: SystemTime,
    writable_at: SystemTime,
    rows: Verification,
    timeline: Vec<String>,
}

pub(crate) fn play(
    lab: &Lab,
    act: &Act,
    balancer: &Balancer,
    progress: &Progress,
) -> Result<FailoverResult> {
    let old = act.servers.first().context("a cluster has servers")?;
    progress.event(&format!(
        "{}: a write every 10 ms through Evenkeel",
        act.title
    ));
    let first_event = last_event(balancer)?;
    let probe = WriteProbe::start(WriteProbeOptions::new(act.driver, act.writes.listen))?;
    sleep(BEFORE);
    let killed_at = SystemTime::now();
    old.kill()?;
    progress.event(&format!("kill -9 {} (the primary)", old.name));
    sleep(DECISION);
    let promotion = lab.fail_over(old)?;
    progress.event(&format!("{} promoted (pg_promote)", promotion.primary));
    sleep(AFTER);
    let log = probe.finish();
    let new = lab.server(&promotion.primary).context("it was promoted")?;
    Ok(FailoverResult {
        old: old.name.clone(),
        new: promotion.primary,
        killed_at,
        writable_at: promotion.writable_at,
        rows: log.verify(&new)?,
        log,
        timeline: timeline(balancer, first_event)?,
    })
}

impl FailoverResult {
    /// Returns whether the result is correct: the new primary has exactly the writes acknowledged
    /// since.
    pub(crate) fn is_sound(&self) -> bool {
        let since: Vec<u64> = self.log.clone().since(self.writable_at).acknowledged();
        let lost_since = self.rows.lost.iter().any(|id| since.contains(id));
        self.rows.doubled.is_empty() && self.follows_in().is_some() && !lost_since
    }

    fn follows_in(&self) -> Option<Duration> {
        let first = self.log.first_success_since(self.killed_at)?;
        Some(first.duration_since(self.writable_at).unwrap_or_default())
    }
}

pub(crate) fn print(changed: &FailoverResult) {
    let FailoverResult {
        old,
        new,
        log,
        rows,
        ..
    } = changed;
    println!("\nPrimary failover: {old} was killed during writes, {new} was promoted by a script.");
    match changed.follows_in() {
        Some(took) => println!(
            "Writes on the same port resumed {} ms after {new} became writable",
            took.as_millis()
        ),
        None => println!("No write succeeded after the failover"),
    }
    let outage = log.outages().iter().filter_map(|one| one.length()).max();
    println!(
        "{} writes acknowledged, {} lost with {old} (asynchronous replication), {} duplicated; \
         longest gap {} ms, of which the promotion script took {} ms",
        log.acknowledged().len(),
        rows.lost.len(),
        rows.doubled.len(),
        outage.unwrap_or_default().as_millis(),
        changed
            .writable_at
            .duration_since(changed.killed_at)
            .unwrap_or_default()
            .as_millis()
    );
    println!("Event timeline (evenkeel events):");
    for line in &changed.timeline {
        println!("  {line}");
    }
}

fn last_event(balancer: &Balancer) -> Result<u64> {
    let status = balancer.status()?;
    let events = status["events"].as_array();
    let last = events.and_then(|events| events.last());
    Ok(last.and_then(|event| event["id"].as_u64()).unwrap_or(0))
}

fn timeline(balancer: &Balancer, after: u64) -> Result<Vec<String>> {
    let all = balancer.command(&["events"])?.stdout;
    let json = balancer.command(&["events", "--json"])?.stdout;
    let is_new = |line: &str| {
        let event: Option<serde_json::Value> = serde_json::from_str(line).ok();
        event.is_some_and(|event| event["id"].as_u64() > Some(after))
    };
    let json = String::from_utf8_lossy(&json);
    let news = json.lines().filter(|line| is_new(line)).count();
    let all = String::from_utf8_lossy(&all);
    let lines: Vec<String> = all.lines().map(str::to_owned).collect();
    Ok(lines[lines.len().saturating_sub(news)..].to_vec())
}
