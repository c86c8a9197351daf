//! What all participants have seen, in one place.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use super::failure::{Failure, Means};

/// What became of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The server said that it is done: it must be there, whatever happens.
    Acknowledged,
    /// The server said that it is not: it must not be there.
    Refused(String),
    /// Nobody said.
    Unknown(String),
}

impl Outcome {
    /// Why it is not known to be done.
    pub(super) fn failure(&self) -> Option<&str> {
        match self {
            Outcome::Acknowledged => None,
            Outcome::Refused(why) | Outcome::Unknown(why) => Some(why),
        }
    }
}

/// One write of a session; its rows come together or not at all.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub(super) session: u64,
    /// None: it did not come to a write, there was no connection.
    pub(super) ids: Vec<u64>,
    /// The number that the server said it has given to the first row.
    pub(super) key: Option<u64>,
    pub(super) ended: SystemTime,
    pub(super) outcome: Outcome,
}

/// A session has not seen a row that it wrote: stale, unless the cluster itself has lost the row.
#[derive(Clone, Debug)]
pub(super) struct Sight {
    pub(super) session: u64,
    /// What it asked by.
    pub(super) asked: String,
    pub(super) ended: SystemTime,
    /// The highest id that was acknowledged to it.
    pub(super) wrote: u64,
    /// The highest one that it saw.
    pub(super) seen: Option<u64>,
    /// The port of the server that it saw it at.
    pub(super) port: Option<String>,
}

impl fmt::Display for Sight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sight {
            asked, wrote, seen, ..
        } = self;
        let port = self.port.as_deref().unwrap_or("unknown");
        write!(f, "{asked}: wrote {wrote}, read {seen:?} on port {port}")
    }
}

/// One read of a session that only reads.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    pub(super) begun: SystemTime,
    pub(super) ended: SystemTime,
    pub(super) failure: Option<String>,
}

/// Something of a writer's that took long.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) name: String,
    pub(super) what: &'static str,
    pub(super) begun: SystemTime,
    pub(super) ended: SystemTime,
}

/// What must not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wrong {
    /// A session saw what belongs to another: rows, settings, notifications, cancels.
    Foreign,
    /// An acknowledged row is not there.
    Lost,
    /// A session did not see its own write.
    Stale,
    /// A row is there twice.
    Doubled,
    /// A row is there that its session never committed, or half of a transaction.
    Ghost,
    /// A row is there though its session was told that it is not.
    Refused,
    /// Messages that the protocol does not allow.
    Protocol,
    /// An answer that never came, or something left behind on a server by who has gone.
    Stuck,
}

impl Wrong {
    /// All of them, the worst first.
    pub const ALL: [Wrong; 8] = [
        Wrong::Foreign,
        Wrong::Lost,
        Wrong::Stale,
        Wrong::Doubled,
        Wrong::Ghost,
        Wrong::Refused,
        Wrong::Protocol,
        Wrong::Stuck,
    ];

    /// In one word.
    pub fn name(self) -> &'static str {
        match self {
            Wrong::Foreign => "foreign",
            Wrong::Lost => "lost",
            Wrong::Stale => "stale",
            Wrong::Doubled => "doubled",
            Wrong::Ghost => "ghosts",
            Wrong::Refused => "refused-but-there",
            Wrong::Protocol => "protocol",
            Wrong::Stuck => "stuck",
        }
    }
}

/// Steps of writers that take longer are noted.
const SLOW: Duration = Duration::from_secs(1);

/// Filled in while they run.
#[derive(Default)]
pub(super) struct Notes(Mutex<Content>);

#[derive(Default)]
pub(super) struct Content {
    pub(super) attempts: Vec<Attempt>,
    pub(super) readings: Vec<Reading>,
    pub(super) slow: Vec<Step>,
    pub(super) sights: Vec<Sight>,
    pub(super) wrongs: Vec<(Wrong, String)>,
    /// What was done to connections, and how often.
    pub(super) cruelties: BTreeMap<&'static str, u64>,
    pub(super) checks: u64,
}

impl Notes {
    pub(super) fn content(&self) -> MutexGuard<'_, Content> {
        self.0.lock().expect("no holder of the lock panics")
    }

    pub(super) fn wrong(&self, what: Wrong, detail: String) {
        eprintln!("WRONG: {what:?}: {detail}");
        self.content().wrongs.push((what, detail));
    }

    /// A session has not seen what it wrote.
    pub(super) fn unseen(&self, sight: Sight) {
        eprintln!("UNSEEN: {sight}");
        self.content().sights.push(sight);
    }

    /// A step of a writer's has come to its end, well or not.
    pub(super) fn took(&self, name: &str, what: &'static str, begun: SystemTime) {
        let ended = SystemTime::now();
        if between(begun, ended) >= SLOW {
            eprintln!(
                "SLOW: {name}, {what}: {} ms",
                between(begun, ended).as_millis()
            );
            let step = Step {
                name: name.to_owned(),
                what,
                begun,
                ended,
            };
            self.content().slow.push(step);
        }
    }

    /// What a failure proves by itself, whoever met it.
    pub(super) fn judge(&self, who: &str, failure: &Failure) {
        match failure {
            Failure::Broken(what) => self.wrong(Wrong::Protocol, format!("{who}: {what}")),
            Failure::Late(what) => self.wrong(Wrong::Stuck, format!("{who}: {what}")),
            Failure::Refused(error) | Failure::Ended(error) if error.means == Means::Cancelled => {
                let what = format!(
                    "{who}: received a cancel it did not request: {}",
                    error.text
                );
                self.wrong(Wrong::Foreign, what);
            }
            _ => {}
        }
    }

    /// Whether what was asked for came back; another's is the worst that can happen.
    pub(super) fn compare(&self, who: &str, wanted: &str, came: Option<&str>) -> bool {
        self.content().checks += 1;
        if came == Some(wanted) {
            return true;
        }
        let what = format!("{who}: expected {wanted:?}, received {came:?}");
        self.wrong(Wrong::Foreign, what);
        false
    }
}

/// How a write's outcome follows from its failure.
pub(super) fn outcome(failure: &Failure) -> Outcome {
    let text = failure.to_string();
    match failure {
        Failure::Refused(error) if error.means != Means::Doubtful => Outcome::Refused(text),
        _ => Outcome::Unknown(text),
    }
}

/// From one instant to a later one.
pub(super) fn between(begun: SystemTime, ended: SystemTime) -> Duration {
    ended.duration_since(begun).unwrap_or_default()
}
