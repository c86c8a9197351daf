//! Measures the effect of server events on clients.

use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, SystemTime};

use crate::chaos::fault_schedule::{Event, FaultRecord};
use crate::chaos::observations::{Attempt, Content, Outcome, Step, between};

/// Limit from a writable primary to the first write through the pooler.
const REACTION_BAR: Duration = Duration::from_secs(1);
/// Limit for all readers together to be without an answer during a change of primary.
const READ_PAUSE_BAR: Duration = Duration::from_millis(500);
/// Number of slow steps that are listed for each event.
const SLOW_SHOWN: usize = 3;

/// Effect of one event on clients.
#[derive(Clone, Debug)]
pub struct Outage {
    /// The event.
    pub event: String,
    /// Time from a writable primary to the first acknowledged write; `None` if the primary always
    /// was writable.
    pub reaction: Option<Duration>,
    /// Longest time from a writer's first error to its next success.
    pub errors: Duration,
    /// Longest time of a writer without an acknowledged write.
    pub pause: Duration,
    /// Writes that failed.
    pub failed_writes: usize,
    /// Reads that failed.
    pub failed_reads: usize,
    /// The longest read.
    pub read: Duration,
    /// Longest time in which no reader at all received an answer.
    pub read_pause: Duration,
    /// The writers' slowest steps, if slow.
    pub slow: Vec<String>,
    /// True if another server accepted the writes afterwards.
    pub is_change: bool,
}

impl Outage {
    /// Returns whether the event was a change of primary that took too long.
    pub(super) fn is_late(&self) -> bool {
        let in_time = self.reaction.is_some_and(|took| took <= REACTION_BAR);
        self.is_change && !(in_time && self.read_pause <= READ_PAUSE_BAR)
    }
}

/// Computes the outages. An event lasts until the next one begins, or until the last attempted
/// write.
pub(super) fn outages(content: &Content, faults: &[FaultRecord]) -> Vec<Outage> {
    let next = faults.iter().skip(1).map(|next| next.started);
    let attempts = content.attempts.iter().map(|attempt| attempt.ended);
    let end = attempts.max().unwrap_or_else(SystemTime::now);
    let pairs = faults.iter().zip(next.chain([end]));
    pairs
        .map(|(one, until)| outage(content, one, until))
        .collect()
}

fn outage(content: &Content, one: &FaultRecord, until: SystemTime) -> Outage {
    let within = |at: SystemTime| (one.started..until).contains(&at);
    let writes: Vec<&Attempt> = content
        .attempts
        .iter()
        .filter(|attempt| within(attempt.ended))
        .collect();
    let reads = || content.readings.iter().filter(|read| within(read.ended));
    let took = reads().map(|read| between(read.started, read.ended));
    let answered = reads().filter(|read| read.failure.is_none());
    let answered = answered.map(|read| read.ended);
    let good = |attempt: &&&Attempt| attempt.outcome == Outcome::Acknowledged;
    let attempts = content.attempts.iter();
    let sessions: BTreeSet<u64> = attempts.map(|attempt| attempt.session).collect();
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
                longest_pause(one.started, written.chain([until]))
            })
            .max()
            .unwrap_or_default(),
        slow: slowest(content.slow.iter().filter(|step| within(step.ended)), one),
        failed_writes: writes.iter().filter(|attempt| !good(attempt)).count(),
        failed_reads: reads().filter(|read| read.failure.is_some()).count(),
        read: took.max().unwrap_or_default(),
        read_pause: longest_pause(one.started, answered),
        is_change: one.event.is_change(),
    }
}

/// Formats the slowest steps, the longest first.
fn slowest<'a>(steps: impl Iterator<Item = &'a Step>, one: &FaultRecord) -> Vec<String> {
    let took = |step: &Step| between(step.started, step.ended).as_millis();
    let mut steps: Vec<&Step> = steps.collect();
    steps.sort_by_key(|step| std::cmp::Reverse(took(step)));
    let reported = steps.into_iter().take(SLOW_SHOWN).map(|step| {
        let at_ms = between(one.started, step.ended).as_millis();
        let (name, what) = (&step.name, step.what);
        format!("{name}, {what}: {} ms, ended at {at_ms} ms", took(step))
    });
    reported.collect()
}

/// Returns the longest time from a first error to the next success.
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

/// Returns the longest time between two successive instants, starting with `started`.
fn longest_pause(started: SystemTime, instants: impl Iterator<Item = SystemTime>) -> Duration {
    let (mut longest, mut last) = (Duration::ZERO, started);
    for instant in instants {
        longest = longest.max(between(last, instant));
        last = instant;
    }
    longest
}

impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reaction = match self.reaction {
            Some(took) => format!(
                "resumed {} ms after a primary was writable",
                took.as_millis()
            ),
            None => "not affected".to_owned(),
        };
        write!(
            f,
            "{:<18} writes {reaction}; errors for {} ms ({} writes), longest stall {} ms; longest \
             read {} ms, {} failed, no read answered for {} ms",
            self.event,
            self.errors.as_millis(),
            self.failed_writes,
            self.pause.as_millis(),
            self.read.as_millis(),
            self.failed_reads,
            self.read_pause.as_millis()
        )?;
        let mut slow = self.slow.iter();
        slow.try_for_each(|step| write!(f, "\n    {step}"))
    }
}
