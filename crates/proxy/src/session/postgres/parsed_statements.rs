//! Records which statements servers have parsed.

use std::sync::{Mutex, MutexGuard};

use evenkeel_engine::panics::lock;
use rustc_hash::FxHashSet;

/// Number of statements after which the record begins from empty: it only saves connections.
const KNOWN_MAX: usize = 10_000;

/// Statements that a server has parsed for a user in a database, by id. An id stands for a text,
/// its parameter types, the settings by which it is parsed, and the version of the plans.
#[derive(Debug, Default)]
pub(super) struct ParsedStatements(Mutex<FxHashSet<u64>>);

impl ParsedStatements {
    pub(super) fn add(&self, id: u64) {
        let mut known = self.ids();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(id);
    }

    pub(super) fn contains(&self, id: u64) -> bool {
        self.ids().contains(&id)
    }

    fn ids(&self) -> MutexGuard<'_, FxHashSet<u64>> {
        lock(&self.0)
    }
}
