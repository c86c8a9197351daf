//! Several servers take writes beside each other (the nodes of a Galera cluster): which of them is
//! a session's home. All that a session writes goes there, so that it meets its own writes.

use std::sync::Arc;

use crate::balance::Algorithm;
use crate::pool::{Cursor, Member, Pick, Pool, Request};

/// The servers that take writes, at one moment. The load of a member counts the sessions that have
/// it for their home, whether they do something or not.
#[derive(Debug)]
pub struct Homes {
    pool: Pool,
    /// Another number, other servers or other weights: who has a home looks whether it is crowded.
    pub number: u64,
}

impl Homes {
    /// `members` are all servers of the service; those that take no writes accept nobody.
    pub fn new(members: Vec<Member>, number: u64) -> Homes {
        let cursor = Arc::new(Cursor::default());
        Homes {
            pool: Pool::new(Algorithm::LeastConnections, members, cursor),
            number,
        }
    }

    /// Those that follow `before`: with its number if they are the same, else with the next.
    pub fn following(before: Option<&Homes>, members: Vec<Member>) -> Homes {
        let number = match before {
            None => 0,
            Some(before) if are_alike(before.pool.members(), &members) => before.number,
            Some(before) => before.number + 1,
        };
        Homes::new(members, number)
    }

    /// Whether a server is one of them: a backup is while no other server is.
    #[must_use]
    pub fn has(&self, index: usize) -> bool {
        self.pool.serves(index)
    }

    /// Where they are in the service's list.
    pub fn places(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.pool.members().len()).filter(|index| self.has(*index))
    }

    /// The one with the fewest sessions for its weight. One more is counted there: the caller
    /// releases its load.
    #[must_use]
    pub fn pick(&self, request: &Request<'_>) -> Option<usize> {
        match self.pool.pick(request) {
            Pick::Server(index) => Some(index),
            Pick::AllFull | Pick::NoneUp => None,
        }
    }

    /// Its members, in the order of the service.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        self.pool.members()
    }

    /// Whether one of them is the home of more sessions than its share by weight, rounded up: one
    /// that has come (back) is to get its own, and not wait for new clients.
    #[must_use]
    pub fn is_crowded(&self, index: usize) -> bool {
        let members = self.pool.members();
        let (mut sessions, mut weights) = (0, 0);
        for member in self.places().filter_map(|place| members.get(place)) {
            sessions += u64::from(member.load.active());
            weights += u64::from(member.weight);
        }
        let Some(own) = members.get(index).filter(|_| weights > 0) else {
            return false;
        };
        let share = (sessions * u64::from(own.weight)).div_ceil(weights);
        u64::from(own.load.active()) > share
    }
}

fn are_alike(before: &[Member], now: &[Member]) -> bool {
    let key = |one: &Member| (one.id, one.weight, one.backup, one.accepting);
    before.iter().map(key).eq(now.iter().map(key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Load;
    use crate::pool::Tried;

    fn members(weights: &[u32]) -> Vec<Member> {
        let of = |(index, weight): (usize, &u32)| Member {
            id: index as u64,
            weight: *weight,
            backup: false,
            accepting: true,
            load: Arc::new(Load::new(None)),
        };
        weights.iter().enumerate().map(of).collect()
    }

    fn pick(homes: &Homes, tried: &[usize]) -> Option<usize> {
        let mut set = Tried::none();
        tried.iter().for_each(|index| set.insert(*index));
        homes.pick(&Request {
            key: 0,
            tried: &set,
            random: 7,
            now_us: 1,
        })
    }

    fn counts(homes: &Homes) -> Vec<u32> {
        let members = homes.members().iter();
        members.map(|one| one.load.active()).collect()
    }

    /// Each of them goes elsewhere if its home is crowded, once.
    fn settle_anew(homes: &Homes) {
        for (index, count) in counts(homes).into_iter().enumerate() {
            for _ in 0..count {
                if !homes.has(index) || homes.is_crowded(index) {
                    homes.members()[index].load.release();
                    pick(homes, &[]).expect("a home");
                }
            }
        }
    }

    #[test]
    fn sessions_have_homes_by_weight() {
        let homes = Homes::new(members(&[100, 200, 100]), 0);
        for _ in 0..40 {
            pick(&homes, &[]).expect("a home");
        }
        assert_eq!(counts(&homes), [10, 20, 10]);
        assert!((0..3).all(|index| !homes.is_crowded(index)));
    }

    #[test]
    fn a_server_that_comes_back_gets_its_share_and_nobody_else_moves() {
        let mut all = members(&[100, 100, 100]);
        all[2].accepting = false;
        let two = Homes::following(None, all.clone());
        for _ in 0..30 {
            pick(&two, &[]).expect("a home");
        }
        assert_eq!(counts(&two), [15, 15, 0]);
        all[2].accepting = true;
        let three = Homes::following(Some(&two), all.clone());
        assert_ne!(three.number, two.number);
        settle_anew(&three);
        assert_eq!(counts(&three), [10, 10, 10]);
        settle_anew(&three);
        assert_eq!(counts(&three), [10, 10, 10], "who has a good one stays");
        all[0].accepting = false;
        let left = Homes::following(Some(&three), all);
        settle_anew(&left);
        assert_eq!(counts(&left), [0, 15, 15]);
    }

    #[test]
    fn a_server_that_failed_is_not_picked_and_a_backup_only_for_want_of_others() {
        let mut all = members(&[100, 100]);
        all[1].backup = true;
        let homes = Homes::new(all.clone(), 0);
        assert!(homes.has(0) && !homes.has(1));
        assert_eq!(pick(&homes, &[0]), None);
        all[0].accepting = false;
        let homes = Homes::following(Some(&homes), all);
        assert_eq!((pick(&homes, &[]), homes.has(1)), (Some(1), true));
    }

    #[test]
    fn the_number_stays_while_nothing_that_matters_has_changed() {
        let all = members(&[100, 100]);
        let first = Homes::following(None, all.clone());
        let same = Homes::following(Some(&first), all.clone());
        assert_eq!(first.number, same.number);
        let heavier = members(&[100, 300]);
        assert_ne!(Homes::following(Some(&same), heavier).number, same.number);
    }
}
