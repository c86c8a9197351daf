//! Evaluates the probe's writes: outages, and the rows on the servers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use crate::sysbench::Driver;

/// Outcome of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server reported success: the row must never be lost.
    Acknowledged,
    /// The server returned an error: the row must not exist.
    Refused(String),
    /// The write was sent and not answered: the row may or may not exist.
    Unknown(String),
    /// There was no connection for the write: the row must not exist.
    NotSent(String),
}

/// One write.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Id, unique in its run.
    pub id: u64,
    /// Time at which the write was sent, or its connection begun.
    pub started: SystemTime,
    /// Time of the acknowledgement or failure.
    pub ended: SystemTime,
    /// Outcome of the write.
    pub outcome: Outcome,
}

impl Attempt {
    /// Returns whether the row must exist.
    pub fn is_acknowledged(&self) -> bool {
        self.outcome == Outcome::Acknowledged
    }
}

/// Failed writes between two acknowledged ones.
#[derive(Clone, Debug)]
pub struct Outage {
    /// Time of the last acknowledgement before.
    pub last_success: Option<SystemTime>,
    /// Time of the first failure.
    pub first_error: SystemTime,
    /// Time of the next acknowledgement; `None` while the outage continues.
    pub first_success: Option<SystemTime>,
    /// Distinct errors, in the order of their first occurrence.
    pub errors: Vec<String>,
}

impl Outage {
    /// Returns the time from the last success (or the first error) to the next success.
    pub fn length(&self) -> Option<Duration> {
        let started = self.last_success.unwrap_or(self.first_error);
        self.first_success?.duration_since(started).ok()
    }
}

/// All writes of a run.
#[derive(Clone, Debug)]
pub struct WriteLog {
    pub(super) driver: Driver,
    pub(super) run: u64,
    /// Writes in the order in which they were begun.
    pub attempts: Vec<Attempt>,
}

impl WriteLog {
    /// Keeps only the writes that were begun at this time or later.
    pub fn since(mut self, instant: SystemTime) -> WriteLog {
        self.attempts.retain(|attempt| attempt.started >= instant);
        self
    }

    /// Returns the ids of the rows that must exist.
    pub fn acknowledged(&self) -> Vec<u64> {
        ids(&self.attempts, |outcome| *outcome == Outcome::Acknowledged).collect()
    }

    /// Returns when the first write begun at this time or later was acknowledged.
    pub fn first_success_since(&self, instant: SystemTime) -> Option<SystemTime> {
        let mut later = self.attempts.iter().filter(|attempt| {
            attempt.started >= instant && attempt.outcome == Outcome::Acknowledged
        });
        later.next().map(|attempt| attempt.ended)
    }

    /// Returns the longest time between two successive acknowledgements in this interval. A write
    /// that was held, or hung before it failed, is silence too.
    pub fn longest_silence(&self, from: SystemTime, until: SystemTime) -> Option<Duration> {
        let acknowledged = self.attempts.iter().filter(|one| one.is_acknowledged());
        let ends: Vec<SystemTime> = acknowledged.map(|one| one.ended).collect();
        let pairs = ends
            .windows(2)
            .filter(|pair| pair[1] >= from && pair[0] <= until);
        pairs
            .filter_map(|pair| pair[1].duration_since(pair[0]).ok())
            .max()
    }

    /// Returns each outage.
    pub fn outages(&self) -> Vec<Outage> {
        let mut outages: Vec<Outage> = Vec::new();
        let mut last_success = None;
        let mut goes_on = false;
        for attempt in &self.attempts {
            let error = match &attempt.outcome {
                Outcome::Acknowledged => {
                    if let Some(outage) = outages.last_mut().filter(|_| goes_on) {
                        outage.first_success = Some(attempt.ended);
                    }
                    (last_success, goes_on) = (Some(attempt.ended), false);
                    continue;
                }
                Outcome::Refused(error) | Outcome::Unknown(error) | Outcome::NotSent(error) => {
                    error
                }
            };
            if !goes_on {
                goes_on = true;
                outages.push(Outage {
                    last_success,
                    first_error: attempt.ended,
                    first_success: None,
                    errors: Vec::new(),
                });
            }
            if let Some(outage) = outages.last_mut().filter(|o| !o.errors.contains(error)) {
                outage.errors.push(error.clone());
            }
        }
        outages
    }
}

/// Comparison of a run with a server's rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verification {
    /// Number of rows.
    pub rows: usize,
    /// Acknowledged ids that are missing.
    pub lost: Vec<u64>,
    /// Ids that exist more than once.
    pub doubled: Vec<u64>,
    /// Ids that exist although they were refused or never sent.
    pub unexpected: Vec<u64>,
    /// Ports of the servers that accepted the writes, one entry per change. A repeated port
    /// accepted writes after another had.
    pub writers: Vec<u16>,
}

impl Verification {
    /// Compares the outcomes of the writes with a server's rows.
    pub fn of(log: &WriteLog, rows: &[(u64, u16)]) -> Verification {
        Verification::new(&log.attempts, rows)
    }

    pub(super) fn new(attempts: &[Attempt], rows: &[(u64, u16)]) -> Verification {
        let mut found: BTreeMap<u64, Vec<u16>> = BTreeMap::new();
        for (id, port) in rows {
            found.entry(*id).or_default().push(*port);
        }
        let acknowledged = ids(attempts, |outcome| *outcome == Outcome::Acknowledged);
        let impossible: BTreeSet<u64> = ids(attempts, |outcome| {
            matches!(outcome, Outcome::Refused(_) | Outcome::NotSent(_))
        })
        .collect();
        let mut writers: Vec<u16> = found.values().flatten().copied().collect();
        writers.dedup();
        Verification {
            rows: rows.len(),
            lost: acknowledged.filter(|id| !found.contains_key(id)).collect(),
            doubled: found
                .iter()
                .filter(|(_, ports)| ports.len() > 1)
                .map(|(id, _)| *id)
                .collect(),
            unexpected: impossible
                .into_iter()
                .filter(|id| found.contains_key(id))
                .collect(),
            writers,
        }
    }

    /// Returns whether no row is lost, doubled or unexpected.
    pub fn is_faultless(&self) -> bool {
        self.lost.is_empty() && self.doubled.is_empty() && self.unexpected.is_empty()
    }
}

fn ids(attempts: &[Attempt], of: impl Fn(&Outcome) -> bool) -> impl Iterator<Item = u64> {
    attempts
        .iter()
        .filter(move |attempt| of(&attempt.outcome))
        .map(|attempt| attempt.id)
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn an_outage_lasts_from_the_last_success_to_the_next_one() {
        let log = log(&["", "down", "down", "", "", "gone"]);
        let outages = log.outages();
        assert_eq!(outages[0].length(), Some(Duration::from_millis(30)));
        assert_eq!(outages[0].errors, ["down"]);
        assert_eq!((outages.len(), outages[1].length()), (2, None));
        assert_eq!(log.acknowledged(), [0, 3, 4]);
        assert_eq!(log.first_success_since(at(11)), Some(at(31)));
        assert_eq!(log.first_success_since(at(50)), None);
    }

    #[test]
    fn a_write_that_was_held_is_silence_though_none_failed() {
        let mut log = log(&["", "", "", ""]);
        log.attempts[2].ended = at(420);
        log.attempts[3].ended = at(421);
        assert!(log.outages().is_empty());
        let silence = |from, until| log.longest_silence(at(from), at(until));
        assert_eq!(silence(0, 1_000), Some(Duration::from_millis(409)));
        assert_eq!(silence(0, 10), Some(Duration::from_millis(10)));
        assert_eq!(silence(421, 1_000), Some(Duration::from_millis(1)));
    }

    #[test]
    fn rows_that_are_lost_doubled_or_unexpected_are_named() {
        let log = log(&["", "", "down", ""]);
        let seen = Verification::new(&log.attempts, &[(0, 7), (2, 8), (3, 7), (3, 7)]);
        assert_eq!((seen.rows, seen.is_faultless()), (4, false));
        assert_eq!((seen.lost, seen.doubled), (vec![1], vec![3]));
        assert_eq!((seen.unexpected, seen.writers), (vec![2], vec![7, 8, 7]));
        let fine = Verification::new(&log.attempts, &[(0, 7), (1, 7), (3, 8)]);
        assert!(fine.is_faultless());
    }

    /// One write each 10 ms that takes 1 ms; an empty word is a success.
    fn log(words: &[&str]) -> WriteLog {
        let attempt = |(id, word): (u64, &&str)| Attempt {
            id,
            started: at(id * 10),
            ended: at(id * 10 + 1),
            outcome: match *word {
                "" => Outcome::Acknowledged,
                error => Outcome::NotSent(error.to_owned()),
            },
        };
        WriteLog {
            driver: Driver::Mysql,
            run: 1,
            attempts: (0..).zip(words).map(attempt).collect(),
        }
    }

    fn at(ms: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(ms)
    }
}
