//! Allocates the numbers by which clients know their connections. Numbers are assigned in ascending
//! order; one is reused only after all others, and never while its client is connected.

use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard};

use rustc_hash::FxHashMap;

use evenkeel_engine::fast_random;
use evenkeel_engine::panics::lock;

/// Location of a session within its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index of the worker.
    pub worker: u16,
    /// The session's number on the worker; a later session may have the same.
    pub slot: u32,
}

impl Place {
    pub(crate) fn new(worker: usize, slot: usize) -> Self {
        Self {
            worker: u16::try_from(worker).unwrap_or(u16::MAX),
            slot: u32::try_from(slot).unwrap_or(u32::MAX),
        }
    }
}

/// Allocator of numbers below a limit, shared by all workers.
#[derive(Debug)]
pub(crate) struct Numbers {
    limit: u32,
    assigned: Mutex<AssignedNumbers>,
}

#[derive(Debug)]
struct AssignedNumbers {
    /// The number of values passed so far, including those skipped because they were in use.
    counted: u64,
    /// Locations of the present connections, by number.
    locations: FxHashMap<u32, Place>,
}

/// Number that is reserved for one connection until it is dropped.
#[derive(Debug)]
pub(crate) struct Number {
    numbers: Arc<Numbers>,
    value: u32,
    round: u32,
}

impl Numbers {
    /// Creates an allocator with a random first number, so that a restarted process does not repeat
    /// the numbers of its predecessor.
    pub(crate) fn below(limit: u32) -> Arc<Self> {
        Self::starting_at(fast_random() % u64::from(limit), limit)
    }

    fn starting_at(counted: u64, limit: u32) -> Arc<Self> {
        let locations = FxHashMap::default();
        Arc::new(Self {
            limit,
            assigned: Mutex::new(AssignedNumbers { counted, locations }),
        })
    }

    /// Reserves the next free number for the connection at `place`. Returns `None` if all are in
    /// use.
    pub(crate) fn assign(self: &Arc<Self>, place: Place) -> Option<Number> {
        let mut assigned = self.assigned();
        if assigned.locations.len() >= self.limit as usize {
            return None;
        }
        loop {
            let limit = u64::from(self.limit);
            let (value, round) = (assigned.counted % limit, assigned.counted / limit);
            assigned.counted += 1;
            let (value, round) = (value as u32, round as u32);
            if let Entry::Vacant(free) = assigned.locations.entry(value) {
                free.insert(place);
                let numbers = Arc::clone(self);
                return Some(Number {
                    numbers,
                    value,
                    round,
                });
            }
        }
    }

    /// Returns the location of the connection that has the number.
    pub(crate) fn place(&self, value: u32) -> Option<Place> {
        self.assigned().locations.get(&value).copied()
    }

    fn assigned(&self) -> MutexGuard<'_, AssignedNumbers> {
        lock(&self.assigned)
    }
}

impl Number {
    pub(crate) fn value(&self) -> u32 {
        self.value
    }

    /// Returns how many times all numbers were passed before this one was assigned.
    pub(crate) fn round(&self) -> u32 {
        self.round
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        self.numbers.assigned().locations.remove(&self.value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place { worker: 1, slot: 7 };

    #[test]
    fn a_number_comes_again_after_all_others_and_not_while_it_is_in_use() {
        let numbers = Numbers::starting_at(2, 5);
        let draw = || numbers.assign(PLACE).unwrap();
        let kept = draw();
        let drawn: Vec<u32> = (0..10).map(|_| draw().value()).collect();
        assert_eq!(kept.value(), 2);
        assert_eq!(drawn, [3, 4, 0, 1, 3, 4, 0, 1, 3, 4]);
        drop(kept);
        assert_eq!([draw().value(), draw().value()], [0, 1]);
        let again = draw();
        assert_eq!((again.value(), again.round()), (2, 3));
    }

    #[test]
    fn a_number_leads_to_its_place_until_it_is_dropped() {
        let numbers = Numbers::below(1 << 28);
        let number = numbers.assign(PLACE).unwrap();
        let value = number.value();
        assert_eq!(numbers.place(value), Some(PLACE));
        drop(number);
        assert_eq!(numbers.place(value), None);
    }

    #[test]
    fn nothing_is_given_when_all_are_in_use() {
        let numbers = Numbers::below(3);
        let all: Vec<_> = (0..3).filter_map(|_| numbers.assign(PLACE)).collect();
        assert!(all.len() == 3 && numbers.assign(PLACE).is_none());
        drop(all);
        assert!(numbers.assign(PLACE).is_some());
    }
}
