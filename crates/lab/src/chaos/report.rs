//! Evaluates the run: rows against acknowledgements, outages, leftovers on servers.

mod outage;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, SystemTime};

use anyhow::{Result, anyhow};

use super::client::{Client, GHOSTS, Rows};
use super::fault_schedule::FaultRecord;
use super::observations::{Attempt, Content, MissedWrite, Outcome, Violation};
use super::quorum::Span;
use crate::{Server, eventually};
pub use outage::Outage;
use outage::outages;

/// Limit for the cleanup of leftovers: a Galera node waits half a minute for its cluster, even
/// after its client has disconnected.
const CLEAN_LIMIT: Duration = Duration::from_secs(40);
const SHOWN_MAX: usize = 20;

/// The outcome of a run.
#[derive(Debug, Default)]
pub struct Report {
    /// Numbers of acknowledged, refused and unknown writes.
    pub writes: [usize; 3],
    /// Number of reads by read-only sessions, and how many failed.
    pub reads: [usize; 2],
    /// Acknowledged writes that the cluster itself has not kept.
    pub not_kept: usize,
    /// Number of answers compared with the expected ones.
    pub checks: u64,
    /// Number of abrupt actions, by name.
    pub abrupt_actions: BTreeMap<&'static str, u64>,
    /// Server events, and their effect on clients.
    pub outages: Vec<Outage>,
    /// Violations.
    pub violations: Vec<(Violation, String)>,
    /// Causes of failed reads, with counts.
    pub read_failures: BTreeMap<String, usize>,
    /// Causes of failed writes, with counts; the rows decide the outcome of the writes.
    pub write_failures: BTreeMap<String, usize>,
    /// Log of the balancer during each event that took too long or after which reads were stale.
    pub late: Vec<String>,
    /// Times of the stale reads.
    stale_at: Vec<SystemTime>,
}

impl Report {
    /// Compares the observations with this server's rows. `lossy` holds the intervals in which the
    /// cluster itself may have lost acknowledged writes.
    pub(super) fn of<C: Client>(
        content: &mut Content,
        (faults, lossy): (&[FaultRecord], &[Span]),
        server: &Server,
    ) -> Result<Report> {
        let mut client = C::connect(server.address, "report", CLEAN_LIMIT)
            .map_err(|failure| anyhow!("{}: {failure}", server.name))?;
        let kept = kept(&mut client)?;
        let not_kept = compare(content, &kept, (faults, lossy));
        let stale = content.missed_writes.iter();
        let stale = stale.filter(|missed| is_stale(missed, content, &kept));
        let stale_at = stale.map(|missed| missed.ended).collect();
        let ghosts = query(&mut client, GHOSTS)?;
        let ghosts = (ghosts.into_iter()).map(|row| (Violation::Ghost, row.join(" ")));
        content.violations.extend(ghosts);
        let is = |wanted: fn(&Outcome) -> bool| {
            let attempts = content.attempts.iter();
            attempts.filter(|one| wanted(&one.outcome)).count()
        };
        let writes = [
            is(|outcome| *outcome == Outcome::Acknowledged),
            is(|outcome| matches!(outcome, Outcome::Refused(_))),
            is(|outcome| matches!(outcome, Outcome::Unknown(_))),
        ];
        let read = content
            .readings
            .iter()
            .filter_map(|one| one.failure.as_deref());
        let read_failures = counted(read);
        let written = content.attempts.iter();
        let write_failures = counted(written.filter_map(|one| one.outcome.failure()));
        Ok(Report {
            writes,
            reads: [content.readings.len(), read_failures.values().sum()],
            not_kept,
            checks: content.checks,
            abrupt_actions: content.abrupt_actions.clone(),
            outages: outages(content, faults),
            violations: content.violations.clone(),
            read_failures,
            write_failures,
            late: Vec::new(),
            stale_at,
        })
    }

    /// Keeps the logs that explain slow events and stale reads.
    pub(super) fn keep_logs(&mut self, faults: &[FaultRecord], log: &str) {
        let begins = faults.iter().map(|one| one.log_at);
        let spans = begins.clone().zip(begins.skip(1).chain([log.len()]));
        let is_odd = |(number, outage): (usize, &Outage)| {
            outage.is_late()
                || self
                    .stale_at
                    .iter()
                    .any(|at| nth_at(*at, faults) == Some(number))
        };
        let all = self.outages.iter().enumerate().zip(spans);
        let odd = all.filter(|(one, _)| is_odd(*one));
        let reported = odd.map(|((_, outage), (from, to))| {
            let log = log.get(from..to).unwrap_or_default();
            format!("{}, log of the balancer:\n{log}", outage.event)
        });
        self.late = reported.collect();
    }

    /// Returns the first acknowledged row that was missing, permanently or when it was read.
    pub(super) fn missed(&mut self) -> Option<&mut (Violation, String)> {
        let mut violations = self.violations.iter_mut();
        violations.find(|(violation, _)| matches!(violation, Violation::Lost | Violation::Stale))
    }

    /// Returns whether there was no violation.
    pub fn is_faultless(&self) -> bool {
        self.violations.is_empty()
    }

    /// Returns whether writes resumed in time after every change of primary, and reads never paused
    /// too long.
    pub fn is_in_time(&self) -> bool {
        !self.outages.iter().any(Outage::is_late)
    }
}

fn counted<'a>(texts: impl Iterator<Item = &'a str>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for text in texts {
        *counts.entry(text.to_owned()).or_default() += 1;
    }
    counts
}

/// Checks that no server has leftovers of disconnected clients; returns those found.
pub(super) fn left_behind<C: Client>(
    servers: &[Server],
    connections_max: u32,
) -> Vec<(Violation, String)> {
    let mut violations = Vec::new();
    for server in servers {
        for leftover in C::leftovers() {
            let (what, most) = (leftover.what, leftover.most.unwrap_or(connections_max));
            let mut last = String::new();
            let clean = eventually(CLEAN_LIMIT, what, || {
                last = server.sql(&leftover.query)?;
                Ok((last.parse::<u32>()? <= most).then_some(()))
            });
            if clean.is_err() {
                let sessions = server.sql(C::SESSIONS).unwrap_or_default();
                let name = &server.name;
                let what = format!("{last} {what} on {name}, at most {most} expected; {sessions}");
                violations.push((Violation::Stuck, what));
            }
        }
    }
    violations
}

/// Describes how many rows each server has, and which rows it lacks that another has. A difference
/// after all have caught up is the servers' own fault.
pub(super) fn rows_everywhere<C: Client>(servers: &[Server]) -> Result<String> {
    let each = servers.iter().map(|server| {
        let client = C::connect(server.address, "report", CLEAN_LIMIT);
        let mut client = client.map_err(|failure| anyhow!("{}: {failure}", server.name))?;
        Ok((server.name.as_str(), kept(&mut client)?))
    });
    let each = each.collect::<Result<Vec<_>>>()?;
    let all: BTreeSet<_> = each.iter().flat_map(|(_, kept)| kept.keys()).collect();
    let reported = each.iter().map(|(name, kept)| {
        let lacking: Vec<_> = all.iter().filter(|key| !kept.contains_key(key)).collect();
        let sample = &lacking[..lacking.len().min(SHOWN_MAX)];
        format!("{name} {}, lacks {} {sample:?}", kept.len(), lacking.len())
    });
    Ok(reported.collect::<Vec<_>>().join("; "))
}

/// Every row by session and id, as often as it exists.
type Kept = BTreeMap<(u64, u64), Vec<Row>>;

struct Row {
    tag: String,
    /// Number that the server assigned to the row.
    key: Option<u64>,
}

fn kept<C: Client>(client: &mut C) -> Result<Kept> {
    let mut kept = Kept::new();
    for row in query(client, C::ROWS)? {
        let [session, id, tag, more @ ..] = &row[..] else {
            return Err(anyhow!("a row of {} columns", row.len()));
        };
        let own = Row {
            tag: tag.clone(),
            key: more.first().map(|key| key.parse()).transpose()?,
        };
        let place = (session.parse()?, id.parse()?);
        kept.entry(place).or_default().push(own);
    }
    Ok(kept)
}

fn query<C: Client>(client: &mut C, text: &str) -> Result<Vec<Vec<String>>> {
    let Rows(rows) = client
        .run_query(text)
        .map_err(|failure| anyhow!("{text}: {failure}"))?;
    let full = |row: Vec<Option<String>>| row.into_iter().map(Option::unwrap_or_default).collect();
    Ok(rows.into_iter().map(full).collect())
}

/// Returns the violations, and how many acknowledged writes the cluster itself has not kept.
fn compare(
    content: &mut Content,
    kept: &Kept,
    (faults, lossy): (&[FaultRecord], &[Span]),
) -> usize {
    let mut violations = Vec::new();
    let mut known = BTreeSet::new();
    let mut not_kept = 0;
    for attempt in &content.attempts {
        let ids = attempt.ids.iter().map(|id| (attempt.session, *id));
        known.extend(ids);
        match check_attempt(attempt, kept) {
            Some(Violation::Lost) if may_be_lost(attempt, lossy) => not_kept += 1,
            Some(violation) => {
                let when = when(attempt.ended, faults);
                violations.push((violation, format!("{}, {when}", describe(attempt, kept))));
            }
            None => {}
        }
    }
    for ((session, id), rows) in kept {
        let tags: Vec<&str> = rows.iter().map(|row| row.tag.as_str()).collect();
        let mut violation =
            |what, why| violations.push((what, format!("{session}/{id} {why}: {tags:?}")));
        if !known.contains(&(*session, *id)) {
            violation(Violation::Ghost, "was never written");
        }
        if tags.len() > 1 {
            violation(Violation::Doubled, "is duplicated");
        }
        let (begin, end) = (format!("w{session}."), format!(".{id}"));
        if !tags
            .iter()
            .all(|tag| tag.starts_with(&begin) && tag.ends_with(&end))
        {
            violation(Violation::Foreign, "belongs to another session");
        }
    }
    let missed_writes = content.missed_writes.iter();
    let stale = missed_writes.filter(|missed| is_stale(missed, content, kept));
    violations.extend(stale.map(|missed| {
        let when = when(missed.ended, faults);
        (Violation::Stale, format!("{missed}, {when}"))
    }));
    content.violations.extend(violations);
    not_kept
}

/// Returns the violation of a write, given the rows.
fn check_attempt(attempt: &Attempt, kept: &Kept) -> Option<Violation> {
    let (count, all) = (there(attempt, kept), attempt.ids.len());
    match &attempt.outcome {
        Outcome::Acknowledged if count < all => Some(Violation::Lost),
        Outcome::Refused(_) if count > 0 => Some(Violation::Refused),
        _ if count != 0 && count != all => Some(Violation::Ghost),
        _ if has_another_key(attempt, kept) => Some(Violation::Foreign),
        _ => None,
    }
}

/// Returns how many of the write's rows exist.
fn there(attempt: &Attempt, kept: &Kept) -> usize {
    let is_there = |id: &&u64| kept.contains_key(&(attempt.session, **id));
    attempt.ids.iter().filter(is_there).count()
}

/// Returns whether the session received the number of another session's row.
fn has_another_key(attempt: &Attempt, kept: &Kept) -> bool {
    let first = attempt.ids.first().map(|id| (attempt.session, *id));
    let rows = first.and_then(|place| kept.get(&place));
    let keys = rows.into_iter().flatten().map(|row| row.key);
    attempt.key.is_some() && keys.into_iter().any(|key| key != attempt.key)
}

/// Returns whether the write was acknowledged while the cluster itself could lose it.
fn may_be_lost(attempt: &Attempt, lossy: &[Span]) -> bool {
    let mut spans = lossy.iter();
    spans.any(|(from, to)| (from..=to).contains(&&attempt.ended))
}

/// Returns whether the session missed a row that was acknowledged to it and that the cluster has
/// kept.
fn is_stale(missed: &MissedWrite, content: &Content, kept: &Kept) -> bool {
    let unseen = missed.seen.unwrap_or(0) + 1..=missed.wrote;
    let own = content.attempts.iter();
    let own = own.filter(|one| one.session == missed.session);
    let mut acknowledged = own.filter(|one| one.outcome == Outcome::Acknowledged);
    acknowledged.any(|one| {
        let mut ids = one.ids.iter();
        ids.any(|id| unseen.contains(id) && kept.contains_key(&(missed.session, *id)))
    })
}

fn describe(attempt: &Attempt, kept: &Kept) -> String {
    let rows = (attempt.ids.iter()).filter_map(|id| kept.get(&(attempt.session, *id)));
    let keys: Vec<_> = rows.flatten().map(|row| row.key).collect();
    let there = there(attempt, kept);
    format!("{attempt:?}, {there} found, numbered {keys:?}")
}

/// Returns the index of the last event that began before `at`.
fn nth_at(at: SystemTime, faults: &[FaultRecord]) -> Option<usize> {
    faults.iter().rposition(|one| one.started <= at)
}

/// Formats the last event before `at` and the time since.
fn when(at: SystemTime, faults: &[FaultRecord]) -> String {
    let last = nth_at(at, faults).map(|number| &faults[number]);
    last.map_or("before the first event".to_owned(), |one| {
        let after = at.duration_since(one.started).unwrap_or_default();
        format!(
            "{} ms after the start of {:?}",
            after.as_millis(),
            one.event
        )
    })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [acknowledged, refused, unknown] = self.writes;
        let [reads, failed] = self.reads;
        writeln!(
            f,
            "{acknowledged} writes acknowledged, {refused} refused, {unknown} of unknown outcome; \
             {reads} reads, {failed} failed; {} answers compared",
            self.checks
        )?;
        if self.not_kept > 0 {
            let count = self.not_kept;
            writeln!(
                f,
                "{count} acknowledged writes lost by the cluster itself: not yet replicated when \
                 their primary failed, or committed as Galera lost its quorum"
            )?;
        }
        for (name, count) in &self.abrupt_actions {
            writeln!(f, "  {count:>6} connections {name}")?;
        }
        for outage in &self.outages {
            writeln!(f, "  {outage}")?;
        }
        for (failure, count) in self.read_failures.iter().take(SHOWN_MAX) {
            writeln!(f, "  a read failed ({count} times): {failure}")?;
        }
        for (failure, count) in self.write_failures.iter().take(SHOWN_MAX) {
            writeln!(f, "  a write failed ({count} times): {failure}")?;
        }
        for reported in &self.late {
            writeln!(f, "  {reported}")?;
        }
        let mut counts: BTreeMap<Violation, usize> = BTreeMap::new();
        for (violation, _) in &self.violations {
            *counts.entry(*violation).or_default() += 1;
        }
        for (violation, detail) in self.violations.iter().take(SHOWN_MAX) {
            writeln!(f, "  {violation:?}: {detail}")?;
        }
        for violation in Violation::ALL {
            let count = counts.get(&violation).copied().unwrap_or(0);
            write!(f, "{} {count}  ", violation.name())?;
        }
        writeln!(f)?;
        self.bar(f)
    }
}

impl Report {
    fn bar(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changes = || self.outages.iter().filter(|one| one.is_change);
        let reaction = changes().filter_map(|one| one.reaction).max();
        let reaction_ms = reaction.unwrap_or_default().as_millis();
        let read_pause = changes().map(|one| one.read_pause).max();
        let read_pause_ms = read_pause.unwrap_or_default().as_millis();
        let others = self.outages.iter().filter(|one| !one.is_change);
        let pause = others.map(|one| one.pause).max();
        let pause_ms = pause.unwrap_or_default().as_millis();
        let bar = if self.is_in_time() { "met" } else { "missed" };
        write!(
            f,
            "after failovers, writes resumed within {reaction_ms} ms of a writable primary and \
             reads stalled for at most {read_pause_ms} ms: {bar}; without a failover, no writer \
             stalled for more than {pause_ms} ms"
        )
    }
}

#[cfg(test)]
mod tests;
