//! Runs one change of primary, from calm to calm.

use std::fmt;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use evenkeel_lab::Server;
use evenkeel_lab::read_probe::Reading;
use evenkeel_lab::scenario::{Change, How};
use evenkeel_lab::write_probe::{Attempt, Verification, WriteLog};

use super::rig::Rig;
use super::{BAR_MS, events};

/// Result of a trial.
pub(super) struct Trial {
    /// Time from a writable primary to the first write that it acknowledged through Evenkeel.
    pub(super) reaction: Duration,
    /// Time from the first failed write to the next acknowledged one.
    pub(super) outage: Duration,
    /// Writes that the old primary acknowledged just before its death and never replicated.
    pub(super) left_behind: usize,
    pub(super) lost: usize,
    pub(super) doubled: usize,
    /// Rows that exist although their writes were refused.
    pub(super) unexpected: usize,
    /// Writes that a server accepted after another had taken over.
    pub(super) interleaved: usize,
    pub(super) reads: usize,
    pub(super) failed_reads: Vec<String>,
    pub(super) missing_events: Vec<String>,
    /// Events of Evenkeel.
    story: Vec<String>,
}

/// Time before a server's death in which acknowledged writes may not be replicated yet.
const REPLICATION_DELAY: Duration = Duration::from_secs(2);

impl Rig {
    pub(super) fn trial(&self, how: How) -> Result<Trial> {
        let old = self.settle()?;
        let last_event = events::last_id(&self.balancer)?;
        let since = SystemTime::now();
        let change = self.scenario.change(old, how)?;
        self.wait_writes_since(change.writable_at)?;
        let new = self.primary()?;
        self.scenario.bring_back(old)?;
        self.settle()?;
        let (reads, failed) = self.reads_since(since);
        let reported = events::after(&self.balancer, last_event)?;
        let log = self.writer.so_far().since(since - REPLICATION_DELAY);
        let rows = log.rows(new)?;
        let (reaction, interleaved) = takeover(&log, &rows, &change, old, new)?;
        let seen = Verification::of(&log, &rows);
        let left_behind = left_behind(&log, &seen, &change, how);
        Ok(Trial {
            reaction,
            outage: outage(&log, since, change.writable_at + reaction),
            left_behind,
            lost: seen.lost.len() - left_behind,
            doubled: seen.doubled.len(),
            unexpected: seen.unexpected.len(),
            interleaved,
            reads,
            failed_reads: failed
                .into_iter()
                .map(|one| failure(one, change.writable_at))
                .collect(),
            missing_events: events::missing(&reported, old, new, how),
            story: reported
                .iter()
                .map(|event| events::line(event, change.writable_at))
                .collect(),
        })
    }
}

/// Returns when the new primary's first write was acknowledged, and how many the old one accepted
/// after it.
fn takeover(
    log: &WriteLog,
    rows: &[(u64, u16)],
    change: &Change,
    old: &Server,
    new: &Server,
) -> Result<(Duration, usize)> {
    let writer_of = |id: u64| {
        rows.iter()
            .find(|(one, _)| *one == id)
            .map(|(_, port)| *port)
    };
    let acknowledged = || log.attempts.iter().filter(|one| one.is_acknowledged());
    let by = |server: &Server| {
        let port = server.address.port();
        move |one: &&Attempt| writer_of(one.id) == Some(port)
    };
    let mut taken = acknowledged()
        .filter(by(new))
        .filter(|one| one.ended >= change.started);
    let first = taken.next().context("no write reached the new primary")?;
    let last_of_old = acknowledged().rfind(by(old));
    // While the old primary still acknowledged, no client waited for the new one.
    let from = last_of_old.map_or(change.writable_at, |last| {
        last.ended.max(change.writable_at)
    });
    let reaction = first.ended.duration_since(from).unwrap_or_default();
    let mut of_trial = log
        .attempts
        .iter()
        .filter(|one| one.started >= change.started);
    let first_id = of_trial.next().map_or(0, |attempt| attempt.id);
    let of_trial = rows.iter().filter(|(id, _)| *id >= first_id).copied();
    Ok((reaction, interleaved(of_trial.collect())))
}

/// Returns the number of writes that a server accepted after another had taken over from it.
fn interleaved(mut ports: Vec<(u64, u16)>) -> usize {
    ports.sort_unstable();
    let mut seen: Vec<u16> = Vec::new();
    let mut count = 0;
    for (id, port) in ports {
        if seen.last() == Some(&port) {
            continue;
        }
        let is_back = seen.contains(&port);
        if is_back {
            eprintln!(
                "write {id} reached port {port} after other servers had taken over: \
                       {seen:?}"
            );
        }
        count += usize::from(is_back);
        seen.retain(|one| *one != port);
        seen.push(port);
    }
    count
}

/// Returns the number of acknowledged writes lost with the primary of an asynchronous cluster.
fn left_behind(log: &WriteLog, seen: &Verification, change: &Change, how: How) -> usize {
    let at_death = |one: &&Attempt| {
        let dies =
            one.ended >= change.started - REPLICATION_DELAY && one.started <= change.writable_at;
        how == How::Killed && dies && seen.lost.contains(&one.id)
    };
    log.attempts.iter().filter(at_death).count()
}

/// Returns the longest outage before `until`; later ones belong to the old server's return.
fn outage(log: &WriteLog, since: SystemTime, until: SystemTime) -> Duration {
    let mut outages = log.outages();
    outages.retain(|outage| (since..=until).contains(&outage.first_error));
    let lasted = |outage: &evenkeel_lab::write_probe::Outage| {
        let until = outage.first_success?;
        until.duration_since(outage.first_error).ok()
    };
    outages.iter().filter_map(lasted).sum()
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ms after a primary was writable, outage {} ms, on old primary {}, lost {}, on two \
             servers {}, reads {}",
            self.reaction.as_millis(),
            self.outage.as_millis(),
            self.left_behind,
            self.lost,
            self.interleaved,
            self.reads
        )?;
        if self.is_faultless() {
            return Ok(());
        }
        for failure in &self.failed_reads {
            write!(f, "\n  a read failed {failure}")?;
        }
        for step in &self.missing_events {
            write!(f, "\n  missing event: {step}")?;
        }
        for line in &self.story {
            write!(f, "\n  | {line}")?;
        }
        Ok(())
    }
}

impl Trial {
    fn is_faultless(&self) -> bool {
        let counts = self.lost + self.doubled + self.unexpected + self.interleaved;
        counts == 0
            && self.failed_reads.is_empty()
            && self.missing_events.is_empty()
            && self.reaction.as_millis() <= BAR_MS
    }
}

/// Formats the time of a failure, relative to a writable primary, and its reason.
fn failure(reading: Reading, writable_at: SystemTime) -> String {
    let at = events::after_ms(reading.started, writable_at);
    let took = reading
        .ended
        .duration_since(reading.started)
        .unwrap_or_default();
    let why = reading.outcome.err().unwrap_or_default();
    format!("at {at} ms after {} ms: {why}", took.as_millis())
}
