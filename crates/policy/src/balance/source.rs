//! Algorithm `source`: maps each key to a fixed server by a Maglev table; few keys move when a
//! server is added or removed.

use super::{Balance, CandidateSet, Tier};
use crate::mixer::mixed;
use crate::server_set::{Member, PickRequest};

/// Numbers of cells in the table, each with the number of listed servers up to which it is used.
///
/// Maglev needs 100 cells per server for shares within 1 %. The first size has them for 80 servers,
/// and 12 for 650, whose shares then differ by 8 %; the second one has 6 for 10,000 servers, and is
/// filled in 2 ms. Another size moves every key, so it depends on the servers of the configuration,
/// up or not, and has few steps. Primes, so that every step width visits every cell.
const SIZES: [(usize, u64); 3] = [(650, 8_191), (10_000, 65_537), (usize::MAX, 131_071)];

const EMPTY: u16 = u16::MAX;

/// Maximum number of cells tried for a key. If none of their servers is open, the key's hash
/// selects one of the open servers.
const HOPS_MAX: u64 = 64;

pub(super) struct Source {
    cells: Vec<u16>,
}

impl Source {
    pub(super) fn new(tier: &Tier<'_>) -> Source {
        let size = SIZES.iter().find(|(servers, _)| tier.listed <= *servers);
        let cells = size.map_or(0, |(_, cells)| *cells);
        Source {
            cells: fill(tier.slots, cells),
        }
    }
}

/// Returns the hash of the identity of a client or a server: 64-bit FNV-1a. The function never
/// changes, so that balancers of different builds choose the same server for the same client.
pub fn key_of(bytes: &[u8]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    bytes.iter().fold(OFFSET, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(PRIME)
    })
}

impl Balance for Source {
    fn pick(&self, candidates: &CandidateSet<'_>, request: &PickRequest<'_>) -> Option<usize> {
        if self.cells.is_empty() {
            return None;
        }
        // The keys of a closed server are scattered over the others: each key walks with its own
        // step width.
        let mut walk = Walk::new(mixed(request.key), self.cells.len() as u64);
        for _ in 0..HOPS_MAX {
            let slot = usize::from(self.cells[walk.step()]);
            if candidates.is_open(slot, request) {
                return Some(slot);
            }
        }
        let open: Vec<usize> = candidates.open(request).collect();
        let choice = mixed(request.key).checked_rem(open.len() as u64)?;
        Some(open[choice as usize])
    }
}

/// Walk over every cell once, in an order that depends on the hash alone.
struct Walk {
    cell: u64,
    width: u64,
    cells: u64,
}

impl Walk {
    fn new(hash: u64, cells: u64) -> Walk {
        Walk {
            cell: (hash >> 32) % cells,
            width: (hash & 0xffff_ffff) % (cells - 1) + 1,
            cells,
        }
    }

    fn step(&mut self) -> usize {
        let cell = self.cell;
        self.cell = cell + self.width;
        if self.cell >= self.cells {
            self.cell -= self.cells;
        }
        cell as usize
    }
}

/// Fills the table: servers in turn claim the next free cell of their own order, more often with
/// more weight.
fn fill(slots: &[&Member], count: u64) -> Vec<u16> {
    if slots.is_empty() {
        return Vec::new();
    }
    let mut cells = vec![EMPTY; count as usize];
    let mut claimants = claimants(slots, count);
    let weight_max = slots
        .iter()
        .map(|slot| u64::from(slot.weight))
        .max()
        .unwrap_or(1);
    let mut free = count;
    loop {
        for claimant in &mut claimants {
            claimant.credit += claimant.weight;
            if claimant.credit < weight_max {
                continue;
            }
            claimant.credit -= weight_max;
            claimant.claim(&mut cells);
            free -= 1;
            if free == 0 {
                return cells;
            }
        }
    }
}

/// Returns the claimants, ordered by identity so that the order in the configuration does not
/// matter.
fn claimants(slots: &[&Member], cells: u64) -> Vec<Claimant> {
    let mut order: Vec<usize> = (0..slots.len().min(usize::from(EMPTY))).collect();
    order.sort_by_key(|&slot| (slots[slot].id, slot));
    let mut duplicates = 0;
    let mut previous = None;
    let mut claimant = |slot: usize| {
        // Entries with the same identity (a server listed twice) still need separate orders.
        duplicates = if previous == Some(slots[slot].id) {
            duplicates + 1
        } else {
            0
        };
        previous = Some(slots[slot].id);
        Claimant {
            slot: slot as u16,
            walk: Walk::new(mixed(slots[slot].id.wrapping_add(mixed(duplicates))), cells),
            weight: u64::from(slots[slot].weight),
            credit: 0,
        }
    };
    order.into_iter().map(&mut claimant).collect()
}

struct Claimant {
    slot: u16,
    walk: Walk,
    weight: u64,
    credit: u64,
}

impl Claimant {
    fn claim(&mut self, cells: &mut [u16]) {
        loop {
            let cell = self.walk.step();
            if cells[cell] == EMPTY {
                cells[cell] = self.slot;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::{Algorithm, Load, Member, MemberSet, Pick, PickRequest, ServerSet};

    const KEYS: u64 = 20_000;

    fn members(weights: &[u32]) -> Vec<Member> {
        let member = |(index, &weight): (usize, &u32)| Member {
            id: super::mixed(index as u64),
            weight,
            backup: false,
            accepting: true,
            load: Arc::new(Load::new(None)),
        };
        weights.iter().enumerate().map(member).collect()
    }

    /// Returns the identity of each key's server.
    fn places(members: &[Member]) -> Vec<u64> {
        let pool = ServerSet::new(Algorithm::Source, members.to_vec(), Arc::default());
        let place = |key| {
            let tried = &MemberSet::none();
            match pool.pick(&PickRequest {
                key,
                tried,
                random: key ^ 77,
                now_us: key,
            }) {
                Pick::Server(index) => {
                    members[index].load.release();
                    members[index].id
                }
                none => panic!("{none:?}"),
            }
        };
        (0..KEYS).map(place).collect()
    }

    /// Returns the share of keys that moved although their server is still present.
    fn moved_needlessly(before: &[u64], after: &[u64], gone: u64) -> f64 {
        let pairs = before.iter().zip(after);
        let moved = pairs.filter(|&(before, after)| before != after && *before != gone);
        moved.count() as f64 / KEYS as f64
    }

    #[test]
    fn a_key_keeps_its_server_whatever_the_order_in_the_list() {
        let mut members = members(&[10, 10, 30, 20]);
        let before = places(&members);
        assert_eq!(before, places(&members));
        members.reverse();
        assert_eq!(before, places(&members));
    }

    #[test]
    fn hardly_a_key_moves_that_need_not_when_a_server_goes_down_or_is_removed() {
        for count in [2, 3, 5, 10, 40] {
            let mut members = members(&vec![10; count]);
            let before = places(&members);
            let gone = members[1].id;
            members[1].accepting = false;
            let down = places(&members);
            assert!(down.iter().all(|&id| id != gone));
            let needless = moved_needlessly(&before, &down, gone);
            assert!(needless < 0.04, "{count} servers: {needless}");
            members.remove(1);
            assert_eq!(places(&members), down, "removed is as good as down");
        }
    }

    #[test]
    fn no_key_moves_but_the_full_servers_own_and_those_are_scattered() {
        let members = members(&[10; 5]);
        let before = places(&members);
        members[2].load.set_max_connections(Some(0));
        let after = places(&members);
        assert_eq!(moved_needlessly(&before, &after, members[2].id), 0.0);
        for heir in members.iter().filter(|member| !member.load.is_full()) {
            let inherits = |&(&before, &after): &(&u64, &u64)| before != after && after == heir.id;
            let share = before.iter().zip(&after).filter(inherits).count() as f64 / KEYS as f64;
            assert!(
                (0.03..0.07).contains(&share),
                "a fourth of a fifth is due: {share}"
            );
        }
    }

    #[test]
    fn a_slow_start_takes_keys_back_for_the_one_server_only() {
        let full = members(&[10, 10, 10, 10]);
        let mut ramping = members(&[10, 10, 10, 10]);
        ramping[3].weight = 5;
        let needless = moved_needlessly(&places(&full), &places(&ramping), full[3].id);
        assert!(needless < 0.04, "{needless}");
    }

    #[test]
    fn a_server_listed_twice_gets_two_shares() {
        let mut duplicates = members(&[10, 10, 10]);
        duplicates[1].id = duplicates[0].id;
        let places = places(&duplicates);
        let share =
            places.iter().filter(|&&id| id == duplicates[0].id).count() as f64 / KEYS as f64;
        assert!((0.62..0.71).contains(&share), "{share}");
    }

    #[test]
    fn each_of_ten_thousand_servers_has_nearly_the_same_number_of_keys() {
        let members = members(&vec![10; 10_000]);
        let slots: Vec<&Member> = members.iter().collect();
        let source = super::Source::new(&super::Tier {
            slots: &slots,
            listed: slots.len(),
        });
        let mut cells = vec![0_u32; slots.len()];
        for slot in &source.cells {
            cells[usize::from(*slot)] += 1;
        }
        let (least, most) = (cells.iter().min(), cells.iter().max());
        assert_eq!((least, most), (Some(&6), Some(&7)));
    }

    #[test]
    fn the_number_of_servers_that_are_up_never_changes_the_size_of_the_table() {
        let mut members = members(&vec![10; 700]);
        let before = places(&members);
        let gone: Vec<u64> = members.iter().take(60).map(|one| one.id).collect();
        for member in members.iter_mut().take(60) {
            member.accepting = false;
        }
        let after = places(&members);
        let pairs = before.iter().zip(&after);
        let moved = pairs.filter(|(before, after)| before != after && !gone.contains(before));
        let moved = moved.count() as f64 / KEYS as f64;
        assert!(moved < 0.1, "{moved}");
    }
}
