//! Counts the causes of pins: the statement that pinned a session to its server connection, and
//! the setting or object involved.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex};

use evenkeel_engine::panics::lock;
use evenkeel_policy::pins::Pins;

/// Maximum number of causes counted per service; sessions pinned by further causes are not counted.
const CAUSES_MAX: usize = 200;

/// Cause of one or more pins.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct PinCause {
    /// Pins that the statement caused.
    pub pins: Pins,
    /// Statement text without literals; empty: the login, or a text that was not analyzed.
    pub statement: Box<str>,
    /// Setting, function, table or other object that pins; empty: the statement itself.
    pub object: Box<str>,
}

/// Number of sessions pinned by one cause.
#[derive(Debug, Clone)]
pub struct PinCount {
    /// Cause that is counted.
    pub cause: Arc<PinCause>,
    /// Sessions pinned since the start; a session that is pinned again counts again.
    pub sessions: u64,
}

/// Counters of a service's pin causes since it started.
#[derive(Debug, Default)]
pub(crate) struct PinCauses {
    counts: Mutex<HashMap<Arc<PinCause>, u64>>,
}

impl PinCause {
    /// Returns the reasons, followed by the object in parentheses.
    pub fn reason(&self) -> String {
        match self.object.is_empty() {
            true => self.pins.to_string(),
            false => format!("{} ({})", self.pins, self.object),
        }
    }
}

impl PinCauses {
    /// Counts a pinned session. Returns whether the cause is new and is counted from now on.
    pub(crate) fn count(&self, cause: &Arc<PinCause>) -> bool {
        let mut counts = lock(&self.counts);
        let is_full = counts.len() >= CAUSES_MAX;
        match counts.entry(Arc::clone(cause)) {
            Entry::Occupied(mut known) => {
                *known.get_mut() += 1;
                false
            }
            Entry::Vacant(new) if !is_full => {
                new.insert(1);
                true
            }
            Entry::Vacant(_) => false,
        }
    }

    /// Returns all causes, the most frequent first.
    pub(crate) fn all(&self) -> Vec<PinCount> {
        let counts = lock(&self.counts);
        let counts = counts.iter().map(|(cause, sessions)| PinCount {
            cause: Arc::clone(cause),
            sessions: *sessions,
        });
        let mut all: Vec<_> = counts.collect();
        all.sort_by(|one, other| {
            let by_count = other.sessions.cmp(&one.sessions);
            by_count.then_with(|| one.cause.statement.cmp(&other.cause.statement))
        });
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_policy::pins::Pin;

    fn cause(statement: &str) -> Arc<PinCause> {
        Arc::new(PinCause {
            pins: Pins::of(&[Pin::NamedLock]),
            statement: statement.into(),
            object: Box::default(),
        })
    }

    #[test]
    fn causes_are_counted_and_the_first_time_of_each_is_reported() {
        let causes = PinCauses::default();
        assert!(causes.count(&cause("one")));
        assert!(causes.count(&cause("two")));
        assert!(!causes.count(&cause("two")));
        let all = causes.all();
        let found: Vec<_> = all
            .iter()
            .map(|one| (&*one.cause.statement, one.sessions))
            .collect();
        assert_eq!(found, [("two", 2), ("one", 1)]);
    }

    #[test]
    fn more_causes_than_are_told_apart_take_no_room() {
        let causes = PinCauses::default();
        for index in 0..2 * CAUSES_MAX {
            causes.count(&cause(&index.to_string()));
        }
        assert_eq!(causes.all().len(), CAUSES_MAX);
        assert!(!causes.count(&cause("another")));
    }
}
