//! Collects the observations of all participants.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use super::failure::{CommandOutcome, Failure};

/// Outcome of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The server reported success: the rows must exist.
    Acknowledged,
    /// The server reported failure: the rows must not exist.
    Refused(String),
    /// The outcome is unknown.
    Unknown(String),
}

impl Outcome {
    /// Returns why success is not certain.
    pub(super) fn failure(&self) -> Option<&str> {
        match self {
            Outcome::Acknowledged => None,
            Outcome::Refused(why) | Outcome::Unknown(why) => Some(why),
        }
    }
}

/// One write of a session; its rows exist all or not at all.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub(super) session: u64,
    /// Ids of the rows; empty if there was no connection for a write.
    pub(super) ids: Vec<u64>,
    /// Number that the server reported for the first row.
    pub(super) key: Option<u64>,
    pub(super) ended: SystemTime,
    pub(super) outcome: Outcome,
}

/// A session did not see a row that it wrote: stale, unless the cluster itself has lost the row.
#[derive(Clone, Debug)]
pub(super) struct MissedWrite {
    pub(super) session: u64,
    /// Kind of the query.
    pub(super) asked: String,
    pub(super) ended: SystemTime,
    /// Highest id that was acknowledged to the session.
    pub(super) wrote: u64,
    /// Highest id that it saw.
    pub(super) seen: Option<u64>,
    /// Port of the server that answered.
    pub(super) port: Option<String>,
}

impl fmt::Display for MissedWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MissedWrite {
            asked, wrote, seen, ..
        } = self;
        let port = self.port.as_deref().unwrap_or("unknown");
        write!(f, "{asked}: wrote {wrote}, read {seen:?} on port {port}")
    }
}

/// One read of a session that only reads.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    pub(super) started: SystemTime,
    pub(super) ended: SystemTime,
    pub(super) failure: Option<String>,
}

/// A slow step of a writer.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) name: String,
    pub(super) what: &'static str,
    pub(super) started: SystemTime,
    pub(super) ended: SystemTime,
}

/// A violation of the guarantees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Violation {
    /// A session saw data of another: rows, settings, notifications, cancels.
    Foreign,
    /// An acknowledged row is missing.
    Lost,
    /// A session did not see its own write.
    Stale,
    /// A row exists twice.
    Doubled,
    /// A row exists that its session never committed, or half of a transaction exists.
    Ghost,
    /// A row exists although its session received an error for it.
    Refused,
    /// Messages that the protocol does not allow.
    Protocol,
    /// No answer arrived, or a disconnected session left something on a server.
    Stuck,
}

impl Violation {
    /// All violations, the worst first.
    pub const ALL: [Violation; 8] = [
        Violation::Foreign,
        Violation::Lost,
        Violation::Stale,
        Violation::Doubled,
        Violation::Ghost,
        Violation::Refused,
        Violation::Protocol,
        Violation::Stuck,
    ];

    /// Returns the name in one word.
    pub fn name(self) -> &'static str {
        match self {
            Violation::Foreign => "foreign",
            Violation::Lost => "lost",
            Violation::Stale => "stale",
            Violation::Doubled => "doubled",
            Violation::Ghost => "ghosts",
            Violation::Refused => "refused-but-there",
            Violation::Protocol => "protocol",
            Violation::Stuck => "stuck",
        }
    }
}

/// Duration above which a writer's step is recorded.
const SLOW: Duration = Duration::from_secs(1);

/// Observations, recorded while the participants run.
#[derive(Default)]
pub(super) struct Observations(Mutex<Content>);

#[derive(Default)]
pub(super) struct Content {
    pub(super) attempts: Vec<Attempt>,
    pub(super) readings: Vec<Reading>,
    pub(super) slow: Vec<Step>,
    pub(super) missed_writes: Vec<MissedWrite>,
    pub(super) violations: Vec<(Violation, String)>,
    /// Number of abrupt actions, by name.
    pub(super) abrupt_actions: BTreeMap<&'static str, u64>,
    pub(super) checks: u64,
}

impl Observations {
    pub(super) fn content(&self) -> MutexGuard<'_, Content> {
        self.0.lock().expect("no holder of the lock panics")
    }

    pub(super) fn record_violation(&self, what: Violation, detail: String) {
        eprintln!("WRONG: {what:?}: {detail}");
        self.content().violations.push((what, detail));
    }

    /// Records that a session did not see its own write.
    pub(super) fn record_missed_write(&self, missed: MissedWrite) {
        eprintln!("UNSEEN: {missed}");
        self.content().missed_writes.push(missed);
    }

    /// Records the end of a writer's step, successful or not.
    pub(super) fn record_step(&self, name: &str, what: &'static str, started: SystemTime) {
        let ended = SystemTime::now();
        if between(started, ended) >= SLOW {
            eprintln!(
                "SLOW: {name}, {what}: {} ms",
                between(started, ended).as_millis()
            );
            let step = Step {
                name: name.to_owned(),
                what,
                started,
                ended,
            };
            self.content().slow.push(step);
        }
    }

    /// Records the violation that a failure proves by itself.
    pub(super) fn record_failure(&self, session: &str, failure: &Failure) {
        match failure {
            Failure::Broken(what) => {
                self.record_violation(Violation::Protocol, format!("{session}: {what}"))
            }
            Failure::TimedOut(what) => {
                self.record_violation(Violation::Stuck, format!("{session}: {what}"))
            }
            Failure::Refused(error) | Failure::Ended(error)
                if error.outcome == CommandOutcome::Cancelled =>
            {
                let what = format!(
                    "{session}: received a cancel it did not request: {}",
                    error.text
                );
                self.record_violation(Violation::Foreign, what);
            }
            _ => {}
        }
    }

    /// Returns whether the answer is the expected one; another session's is the worst violation.
    pub(super) fn compare(&self, session: &str, expected: &str, received: Option<&str>) -> bool {
        self.content().checks += 1;
        if received == Some(expected) {
            return true;
        }
        let what = format!("{session}: expected {expected:?}, received {received:?}");
        self.record_violation(Violation::Foreign, what);
        false
    }
}

/// Derives a write's outcome from its failure.
pub(super) fn outcome(failure: &Failure) -> Outcome {
    let text = failure.to_string();
    match failure {
        Failure::Refused(error) if error.outcome != CommandOutcome::Unknown => {
            Outcome::Refused(text)
        }
        _ => Outcome::Unknown(text),
    }
}

/// Returns the time between two instants.
pub(super) fn between(started: SystemTime, ended: SystemTime) -> Duration {
    ended.duration_since(started).unwrap_or_default()
}
