//! Causes of pins: which statement pinned a session to its server connection, and which setting or
//! object holds it there.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};

use evenkeel_policy::pins::Pins;
use tracing::info;

use super::handle::SessionHandle;
use crate::service::Service;
use crate::session_state::PinSource;

/// Causes of one service that are counted; sessions pinned by further ones are not.
const CAUSES_MAX: usize = 200;

/// Why sessions are pinned.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct PinCause {
    /// The reasons that began with the statement.
    pub pins: Pins,
    /// The statement's text without literals; empty: the login, or a text that was not read.
    pub statement: Box<str>,
    /// The setting, function, table or other object that pins; empty: the statement itself.
    pub object: Box<str>,
}

/// A cause, and how many sessions it has pinned.
#[derive(Debug, Clone)]
pub struct PinCount {
    /// The cause.
    pub cause: Arc<PinCause>,
    /// Sessions that it pinned since the start; one that is pinned again counts again.
    pub sessions: u64,
}

/// Counts of the causes that have pinned sessions of a service since it began.
#[derive(Debug, Default)]
pub(crate) struct PinCauses {
    counts: Mutex<HashMap<Arc<PinCause>, u64>>,
}

/// As [`pin`], where the source is known. `None`: the login, or a text that was not read.
pub(super) fn pin_by(
    service: &Service,
    card: &SessionHandle,
    pins: Pins,
    source: Option<&PinSource>,
) {
    pin(service, card, pins, |_| source.cloned().unwrap_or_default());
}

/// These pins hold a session from now on. `source`: names the cause of new ones that last, which
/// the log reports the first time.
pub(super) fn pin(
    service: &Service,
    card: &SessionHandle,
    pins: Pins,
    source: impl FnOnce(Pins) -> PinSource,
) {
    let Some(cause) = card.set_pins(pins, source) else {
        return;
    };
    let database = service.database.as_ref();
    if database.is_some_and(|database| database.pinned(&cause)) {
        info!(
            service = &*service.name,
            user = &*card.user,
            database = &*card.database(),
            statement = &*cause.statement,
            "session pinned to its server connection: {}",
            cause.reason(),
        );
    }
}

impl PinCause {
    /// The reasons, and the object in brackets.
    pub fn reason(&self) -> String {
        match self.object.is_empty() {
            true => self.pins.to_string(),
            false => format!("{} ({})", self.pins, self.object),
        }
    }
}

impl PinCauses {
    /// A session was pinned. Returns whether this is the first time for this cause, and it is known
    /// from now on.
    pub(crate) fn count(&self, cause: &Arc<PinCause>) -> bool {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// All of them, the most frequent first.
    pub(crate) fn all(&self) -> Vec<PinCount> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
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
