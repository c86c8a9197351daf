//! What is left when all is over: rows against acknowledgements, outages, what stayed on servers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, SystemTime};

use anyhow::{Result, anyhow};

use super::client::Client;
use super::director::{Event, Happened};
use super::notes::{Attempt, Content, Outcome, Wrong, between};
use crate::{Server, eventually};

/// How long what clients left behind may take to be cleaned up.
const CLEAN_LIMIT: Duration = Duration::from_secs(10);
/// From a writable primary to writes through what stands in front.
const REACTION_BAR: Duration = Duration::from_secs(1);
/// How long all readers together may be without an answer while the primary changes.
const READ_PAUSE_BAR: Duration = Duration::from_millis(500);
const SHOWN_MAX: usize = 20;

/// The outcome of a run.
#[derive(Debug)]
pub struct Report {
    /// Writes that were acknowledged, refused, and of unknown outcome.
    pub writes: [usize; 3],
    /// Reads of sessions that only read, and how many of them failed.
    pub reads: [usize; 2],
    /// Answers that were compared with what was asked for.
    pub checks: u64,
    /// What was done to connections, and how often.
    pub cruelties: BTreeMap<&'static str, u64>,
    /// What happened to servers, and what clients saw of it.
    pub outages: Vec<Outage>,
    /// What must not happen.
    pub wrongs: Vec<(Wrong, String)>,
    /// Why reads failed, and how often.
    pub read_failures: BTreeMap<String, usize>,
}

/// What clients saw of one event.
#[derive(Clone, Debug)]
pub struct Outage {
    /// What happened.
    pub event: String,
    /// From a writable primary to the first acknowledged write; `None` where it always was one.
    pub reaction: Option<Duration>,
    /// The longest time from a writer's first error to its next success.
    pub errors: Duration,
    /// The longest time that a writer was without an acknowledged write.
    pub pause: Duration,
    /// Writes that failed.
    pub failed_writes: usize,
    /// Reads that failed.
    pub failed_reads: usize,
    /// The longest read.
    pub read: Duration,
    /// The longest time in which no reader at all was answered.
    pub read_pause: Duration,
    /// Whether another server took the writes afterwards.
    pub is_change: bool,
}

impl Report {
    /// Compares what was noted with what this server has.
    pub(super) fn of(
        content: &mut Content,
        happened: &[Happened],
        server: &Server,
    ) -> Result<Report> {
        let mut client = Client::connect(server.address, "report", CLEAN_LIMIT)
            .map_err(|failure| anyhow!("{}: {failure}", server.name))?;
        let rows = rows(&mut client)?;
        compare(content, &rows);
        let ghosts = ask(&mut client, "SELECT tag FROM chaos_ghost")?;
        let ghosts = ghosts.into_iter().map(|row| (Wrong::Ghost, row.join(" ")));
        content.wrongs.extend(ghosts);
        let is = |wanted: fn(&Outcome) -> bool| {
            let attempts = content.attempts.iter();
            attempts.filter(|one| wanted(&one.outcome)).count()
        };
        let writes = [
            is(|outcome| *outcome == Outcome::Acknowledged),
            is(|outcome| matches!(outcome, Outcome::Refused(_))),
            is(|outcome| matches!(outcome, Outcome::Unknown(_))),
        ];
        let mut read_failures = BTreeMap::new();
        for failure in content
            .readings
            .iter()
            .filter_map(|one| one.failure.clone())
        {
            *read_failures.entry(failure).or_default() += 1;
        }
        Ok(Report {
            writes,
            reads: [content.readings.len(), read_failures.values().sum()],
            checks: content.checks,
            cruelties: content.cruelties.clone(),
            outages: outages(content, happened),
            wrongs: content.wrongs.clone(),
            read_failures,
        })
    }

    /// Whether nothing happened that must not.
    pub fn is_faultless(&self) -> bool {
        self.wrongs.is_empty()
    }

    /// Whether writes went on in time after every change of primary, and reads all the time.
    pub fn is_in_time(&self) -> bool {
        let changes = || self.outages.iter().filter(|outage| outage.is_change);
        let in_time = |outage: &Outage| outage.reaction.is_some_and(|took| took <= REACTION_BAR);
        changes().all(|outage| in_time(outage) && outage.read_pause <= READ_PAUSE_BAR)
    }
}

/// Every server must be as if those who left had never been there; says what is not.
pub(super) fn left_behind(servers: &[Server], connections_max: u32) -> Vec<(Wrong, String)> {
    let busy = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'sbtest' \
                AND state <> 'idle'";
    let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
    let connections = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'sbtest'";
    let questions = [
        ("sessions that are not idle", busy, 0),
        ("advisory locks", locks, 0),
        ("connections", connections, connections_max),
    ];
    let mut wrongs = Vec::new();
    for server in servers {
        for (what, query, most) in questions {
            let mut last = String::new();
            let clean = eventually(CLEAN_LIMIT, what, || {
                last = server.sql(query)?;
                Ok((last.parse::<u32>()? <= most).then_some(()))
            });
            if clean.is_err() {
                let what = format!("{last} {what} on {}, at most {most} expected", server.name);
                wrongs.push((Wrong::Stuck, what));
            }
        }
    }
    wrongs
}

/// Session, id and tag of every row, and how often it is there.
type Rows = BTreeMap<(u64, u64), Vec<String>>;

fn rows(client: &mut Client) -> Result<Rows> {
    let mut rows = Rows::new();
    for row in ask(client, "SELECT session, id, tag FROM chaos")? {
        let [session, id, tag] = &row[..] else {
            return Err(anyhow!("a row of {} columns", row.len()));
        };
        let key = (session.parse()?, id.parse()?);
        rows.entry(key).or_default().push(tag.clone());
    }
    Ok(rows)
}

fn ask(client: &mut Client, text: &str) -> Result<Vec<Vec<String>>> {
    let reply = client
        .query(text)
        .map_err(|failure| anyhow!("{text}: {failure}"))?;
    let full = |row: Vec<Option<String>>| row.into_iter().map(Option::unwrap_or_default).collect();
    Ok(reply.rows.into_iter().map(full).collect())
}

fn compare(content: &mut Content, rows: &Rows) {
    let mut wrongs = Vec::new();
    let mut known = BTreeSet::new();
    for attempt in &content.attempts {
        let there = |id: &u64| rows.contains_key(&(attempt.session, *id));
        let count = attempt.ids.iter().filter(|id| there(id)).count();
        let all = attempt.ids.len();
        known.extend(attempt.ids.iter().map(|id| (attempt.session, *id)));
        let wrong = match &attempt.outcome {
            Outcome::Acknowledged if count < all => Wrong::Lost,
            Outcome::Refused(_) if count > 0 => Wrong::Refused,
            _ if count != 0 && count != all => Wrong::Ghost,
            _ => continue,
        };
        wrongs.push((wrong, describe(attempt, count)));
    }
    for ((session, id), tags) in rows {
        if !known.contains(&(*session, *id)) {
            wrongs.push((
                Wrong::Ghost,
                format!("{session}/{id} was never written: {tags:?}"),
            ));
        }
        let is_own = |tag: &String| {
            tag.starts_with(&format!("w{session}.")) && tag.ends_with(&format!(".{id}"))
        };
        if tags.len() > 1 {
            wrongs.push((Wrong::Doubled, format!("{session}/{id}: {tags:?}")));
        }
        if !tags.iter().all(is_own) {
            wrongs.push((Wrong::Foreign, format!("{session}/{id} has {tags:?}")));
        }
    }
    content.wrongs.extend(wrongs);
}

fn describe(attempt: &Attempt, there: usize) -> String {
    let Attempt {
        session,
        ids,
        outcome,
        ..
    } = attempt;
    format!("session {session}, {ids:?}: {outcome:?}, and {there} are there")
}

/// An event's time goes on until the next one begins.
fn outages(content: &Content, happened: &[Happened]) -> Vec<Outage> {
    let next = happened.iter().skip(1).map(|next| Some(next.begun));
    let pairs = happened.iter().zip(next.chain([None]));
    pairs
        .map(|(one, until)| outage(content, one, until.unwrap_or_else(SystemTime::now)))
        .collect()
}

fn outage(content: &Content, one: &Happened, until: SystemTime) -> Outage {
    let within = |at: SystemTime| (one.begun..until).contains(&at);
    let writes: Vec<&Attempt> = content
        .attempts
        .iter()
        .filter(|attempt| within(attempt.ended))
        .collect();
    let reads = || content.readings.iter().filter(|read| within(read.ended));
    let took = reads().map(|read| between(read.begun, read.ended));
    let answered = reads().filter(|read| read.failure.is_none());
    let answered = answered.map(|read| read.ended);
    let good = |attempt: &&&Attempt| attempt.outcome == Outcome::Acknowledged;
    let sessions: BTreeSet<u64> = writes.iter().map(|attempt| attempt.session).collect();
    let of = |session: u64| {
        writes
            .iter()
            .filter(move |attempt| attempt.session == session)
    };
    Outage {
        event: match one.event {
            Event::FailOver => "failover, killed".to_owned(),
            Event::FailOverFrozen => "failover, frozen".to_owned(),
            event => format!("{event:?}"),
        },
        reaction: one.writable_at.and_then(|at| {
            let ended = writes.iter().filter(good).map(|attempt| attempt.ended);
            let first = ended.filter(|ended| *ended >= at).min()?;
            Some(between(at, first))
        }),
        errors: sessions
            .iter()
            .map(|session| error_span(of(*session).copied()))
            .max()
            .unwrap_or_default(),
        pause: sessions
            .iter()
            .map(|session| {
                let written = of(*session).filter(good).map(|attempt| attempt.ended);
                longest_pause(one.begun, written)
            })
            .max()
            .unwrap_or_default(),
        failed_writes: writes.iter().filter(|attempt| !good(attempt)).count(),
        failed_reads: reads().filter(|read| read.failure.is_some()).count(),
        read: took.max().unwrap_or_default(),
        read_pause: longest_pause(one.begun, answered),
        is_change: one.event.is_change(),
    }
}

/// The longest time from a first error to the next success.
fn error_span<'a>(attempts: impl Iterator<Item = &'a Attempt>) -> Duration {
    let (mut longest, mut first_error) = (Duration::ZERO, None);
    for attempt in attempts {
        match (&attempt.outcome, first_error) {
            (Outcome::Acknowledged, Some(since)) => {
                longest = longest.max(between(since, attempt.ended));
                first_error = None;
            }
            (Outcome::Acknowledged, None) => {}
            (_, since) => first_error = since.or(Some(attempt.ended)),
        }
    }
    longest
}

/// The longest time between two of these instants, the first of them being the beginning.
fn longest_pause(begun: SystemTime, instants: impl Iterator<Item = SystemTime>) -> Duration {
    let (mut longest, mut last) = (Duration::ZERO, begun);
    for instant in instants {
        longest = longest.max(between(last, instant));
        last = instant;
    }
    longest
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
        for (name, count) in &self.cruelties {
            writeln!(f, "  {count:>6} connections {name}")?;
        }
        for outage in &self.outages {
            writeln!(f, "  {outage}")?;
        }
        for (failure, count) in self.read_failures.iter().take(SHOWN_MAX) {
            writeln!(f, "  a read failed ({count} times): {failure}")?;
        }
        let mut counts: BTreeMap<Wrong, usize> = BTreeMap::new();
        for (wrong, _) in &self.wrongs {
            *counts.entry(*wrong).or_default() += 1;
        }
        for (wrong, detail) in self.wrongs.iter().take(SHOWN_MAX) {
            writeln!(f, "  {wrong:?}: {detail}")?;
        }
        for wrong in Wrong::ALL {
            let count = counts.get(&wrong).copied().unwrap_or(0);
            write!(f, "{} {count}  ", wrong.name())?;
        }
        let changes = self.outages.iter().filter(|one| one.is_change);
        let reaction = changes.filter_map(|one| one.reaction).max();
        let reaction_ms = reaction.unwrap_or_default().as_millis();
        let bar = if self.is_in_time() { "met" } else { "missed" };
        write!(
            f,
            "\nwrites went on {reaction_ms} ms at most after there was a writable primary: {bar}"
        )
    }
}

impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reaction = match self.reaction {
            Some(took) => format!("{} ms after a writable primary", took.as_millis()),
            None => "not concerned".to_owned(),
        };
        write!(
            f,
            "{:<18} writes {reaction}; errors for {} ms ({} writes), longest pause {} ms; \
             longest read {} ms, {} failed, none answered for {} ms",
            self.event,
            self.errors.as_millis(),
            self.failed_writes,
            self.pause.as_millis(),
            self.read.as_millis(),
            self.failed_reads,
            self.read_pause.as_millis()
        )
    }
}

#[cfg(test)]
mod tests;
