//! Connection ids of clients: those of our greeting, of CONNECTION_ID() and of KILL.
//!
//! Many drivers keep them in a signed int, so they are below 2^31. They are above all ids that a
//! server has given to its connections unless it has had 2^30 of them: clients hear of those in
//! SHOW PROCESSLIST, and KILL takes none of them for ours. Two bits are of the process, so that
//! one which has taken over knows its own; in the rest another Evenkeel behind the same address
//! begins elsewhere, but for a rare chance.

use std::sync::Arc;

use crate::numbers::{Number, Numbers};

const MARK_BIT: u32 = 30;
const NUMBER_BITS: u32 = 28;

/// What the ids of a process are made of.
pub(crate) fn numbers() -> Arc<Numbers> {
    Numbers::below(1 << NUMBER_BITS)
}

/// The id is the lower half; with the upper one, nobody else in this process ever has it again.
pub(super) fn of(number: &Number, generation: u32) -> u64 {
    u64::from(number.round()) << 32 | u64::from(first(generation) | number.value())
}

/// Whether a process of that generation has given the id out.
pub(in crate::session) fn is_of(id: u32, generation: u32) -> bool {
    id >> NUMBER_BITS == first(generation) >> NUMBER_BITS
}

/// The lowest id of a process.
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
        let id = |generation| of(&drawn.draw(PLACE).unwrap(), generation) as u32;
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
