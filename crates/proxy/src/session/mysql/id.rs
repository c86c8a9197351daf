//! Assigns connection ids to clients, for the greeting, CONNECTION_ID() and KILL.
//!
//! Many drivers keep ids in a signed int, so they are below 2^31. They exceed all ids that a server
//! assigns until it has had 2^30 connections. Clients see those in SHOW PROCESSLIST; KILL must not
//! take them for ids of Evenkeel.
//!
//! Two bits belong to the process, so that a successor recognizes its own ids. The other bits of
//! another Evenkeel at the same address most likely have another first value.

use std::sync::Arc;

use crate::numbers::{Number, Numbers};

const MARK_BIT: u32 = 30;
const NUMBER_BITS: u32 = 28;

/// Returns the pool of numbers for the ids of a process.
pub(crate) fn numbers() -> Arc<Numbers> {
    Numbers::below(1 << NUMBER_BITS)
}

/// Returns an id in the lower half. Together with the upper half, it is unique within this process.
pub(super) fn of(number: &Number, generation: u32) -> u64 {
    u64::from(number.round()) << 32 | u64::from(first(generation) | number.value())
}

/// Returns whether a process of that generation assigned the id.
pub(in crate::session) fn is_of(id: u32, generation: u32) -> bool {
    id >> NUMBER_BITS == first(generation) >> NUMBER_BITS
}

/// Returns the lowest id of a process.
fn first(generation: u32) -> u32 {
    1 << MARK_BIT | (generation & 3) << NUMBER_BITS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::Place;

    const PLACE: Place = Place { worker: 0, slot: 0 };

    #[test]
    fn ids_of_processes_that_follow_each_other_differ_and_fit_a_signed_int() {
        let drawn = numbers();
        let id = |generation| of(&drawn.assign(PLACE).unwrap(), generation) as u32;
        let all: Vec<u32> = (5..9).map(id).collect();
        for (generation, own) in (5..).zip(&all) {
            let of = all.iter().filter(|one| is_of(**one, generation));
            assert_eq!(of.collect::<Vec<_>>(), [own]);
            assert!(own.cast_signed() > 0, "{own}");
            assert!(!is_of(own & !(1 << MARK_BIT), generation), "a server's");
            assert!(!is_of(own | 1 << 31, generation), "nobody's");
        }
    }

    #[test]
    fn the_first_and_the_last_number_are_in_range() {
        for generation in 0..4 {
            let last = first(generation) | ((1 << NUMBER_BITS) - 1);
            assert!(last.cast_signed() > 0 && is_of(last, generation));
            assert!(is_of(first(generation), generation) && first(generation) >= 1 << 30);
        }
    }
}
