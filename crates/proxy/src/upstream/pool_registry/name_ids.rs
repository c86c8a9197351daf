//! Assigns numbers to names of users and databases. Any user that may log in can invent database
//! names, so a name is forgotten when its number is no longer held.

use std::collections::HashMap;
use std::sync::Arc;

/// Number of names from which unused ones are removed.
const SWEEP_SIZE_MIN: usize = 1_000;

/// A name's number, which no other name ever gets.
#[derive(Debug, Clone)]
pub(crate) struct NameId(Arc<u64>);

impl NameId {
    pub(crate) fn get(&self) -> u64 {
        *self.0
    }
}

/// Names with a holder, and some without.
#[derive(Debug)]
pub(super) struct NameIds {
    known: HashMap<Box<[u8]>, NameId>,
    next: u64,
    /// Number of names at which unused ones are removed: twice the number left after the last
    /// removal.
    sweep_size: usize,
}

impl Default for NameIds {
    fn default() -> Self {
        Self {
            known: HashMap::new(),
            next: 0,
            sweep_size: SWEEP_SIZE_MIN,
        }
    }
}

impl NameIds {
    pub(super) fn of(&mut self, name: &[u8]) -> NameId {
        if let Some(known) = self.known.get(name) {
            return known.clone();
        }
        if self.known.len() >= self.sweep_size {
            self.known
                .retain(|_, number| Arc::strong_count(&number.0) > 1);
            self.sweep_size = SWEEP_SIZE_MIN.max(2 * self.known.len());
        }
        let number = NameId(Arc::new(self.next));
        self.next += 1;
        self.known.insert(name.into(), number.clone());
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_number_as_long_as_anybody_has_it_and_no_other_gets_it() {
        let mut numbers = NameIds::default();
        let kept = numbers.of(b"shop");
        let gone = numbers.of(b"gone").get();
        for number in 0..10 * SWEEP_SIZE_MIN {
            let other = numbers.of(format!("made up {number}").as_bytes());
            assert!(other.get() > gone);
            assert!(numbers.known.len() <= SWEEP_SIZE_MIN);
        }
        assert_eq!(numbers.of(b"shop").get(), kept.get());
        assert!(numbers.of(b"gone").get() > gone);
    }
}
