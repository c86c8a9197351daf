//! Orders servers by the time at which they are due, in a heap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Due times of servers, by their places. A changed server is marked, and entered again before the
/// next search.
#[derive(Default)]
pub(super) struct Schedule {
    /// Times and places. An entry whose time is not that in `due_ms` is outdated.
    heap: BinaryHeap<Reverse<(u64, usize)>>,
    /// Time at which each place is due; `None`: there is no server, or it is never due.
    due_ms: Vec<Option<u64>>,
    marked: Vec<usize>,
    is_marked: Vec<bool>,
}

impl Schedule {
    /// Marks a place whose server may have changed.
    pub(super) fn mark(&mut self, place: usize) {
        if self.is_marked.len() <= place {
            self.is_marked.resize(place + 1, false);
        }
        if !std::mem::replace(&mut self.is_marked[place], true) {
            self.marked.push(place);
        }
    }

    /// Marks all places.
    pub(super) fn mark_all(&mut self, places: usize) {
        (0..places).for_each(|place| self.mark(place));
    }

    /// Returns the marked places, each once, and forgets the marks.
    pub(super) fn take_marked(&mut self) -> Vec<usize> {
        let marked = std::mem::take(&mut self.marked);
        for place in &marked {
            self.is_marked[*place] = false;
        }
        marked
    }

    /// Sets the time at which a place is due. `None`, or the largest time: never.
    pub(super) fn set(&mut self, place: usize, due_ms: Option<u64>) {
        let due_ms = due_ms.filter(|due_ms| *due_ms < u64::MAX);
        if self.due_ms.len() <= place {
            self.due_ms.resize(place + 1, None);
        }
        let before = std::mem::replace(&mut self.due_ms[place], due_ms);
        if let Some(due_ms) = due_ms.filter(|_| before != due_ms) {
            self.heap.push(Reverse((due_ms, place)));
        }
    }

    /// Returns the earliest due time.
    pub(super) fn next_ms(&mut self) -> Option<u64> {
        while let Some(&Reverse((due_ms, place))) = self.heap.peek() {
            if self.due_ms[place] == Some(due_ms) {
                return Some(due_ms);
            }
            self.heap.pop();
        }
        None
    }

    /// Returns the places that are due, in the order of their times, and marks them: each is
    /// entered again with its next time.
    pub(super) fn take_due(&mut self, now_ms: u64) -> Vec<usize> {
        let mut due = Vec::new();
        while self.next_ms().is_some_and(|due_ms| due_ms <= now_ms) {
            if let Some(Reverse((_, place))) = self.heap.pop() {
                self.due_ms[place] = None;
                self.mark(place);
                due.push(place);
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(due_ms: &[Option<u64>]) -> Schedule {
        let mut schedule = Schedule::default();
        for (place, due_ms) in due_ms.iter().enumerate() {
            schedule.set(place, *due_ms);
        }
        schedule
    }

    #[test]
    fn places_are_due_in_the_order_of_their_times() {
        let mut schedule = schedule(&[Some(30), Some(10), None, Some(20), Some(u64::MAX)]);
        assert_eq!(schedule.next_ms(), Some(10));
        assert!(schedule.take_due(9).is_empty());
        assert_eq!(schedule.take_due(20), [1, 3]);
        assert_eq!(schedule.next_ms(), Some(30));
        assert_eq!(schedule.take_marked(), [1, 3], "they get a new time");
    }

    #[test]
    fn a_new_time_replaces_the_earlier_one() {
        let mut schedule = schedule(&[Some(10), Some(20)]);
        schedule.set(0, Some(40));
        schedule.set(1, Some(5));
        assert_eq!(schedule.take_due(30), [1]);
        schedule.set(0, None);
        assert_eq!((schedule.next_ms(), schedule.take_due(99)), (None, vec![]));
    }

    #[test]
    fn a_time_that_returns_is_found_once() {
        let mut schedule = schedule(&[Some(10)]);
        schedule.set(0, Some(50));
        schedule.set(0, Some(10));
        assert_eq!(schedule.take_due(60), [0]);
        assert!(schedule.take_due(60).is_empty());
    }

    /// Compares with a search of all places, over random changes.
    #[test]
    fn the_heap_finds_what_a_search_finds() {
        const PLACES: usize = 40;
        let (mut schedule, mut plain) = (Schedule::default(), [None; PLACES]);
        let mut random = 1_u64;
        let mut roll = |below: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) % below
        };
        for now_ms in 0..5_000_u64 {
            for _ in 0..roll(4) {
                let place = roll(PLACES as u64) as usize;
                let due_ms = (roll(5) > 0).then(|| now_ms + roll(30));
                schedule.set(place, due_ms);
                plain[place] = due_ms;
            }
            assert_eq!(schedule.next_ms(), plain.iter().flatten().min().copied());
            let mut due = schedule.take_due(now_ms);
            due.sort_unstable();
            let is_due = |place: &usize| plain[*place].is_some_and(|due_ms| due_ms <= now_ms);
            let expect: Vec<usize> = (0..PLACES).filter(is_due).collect();
            assert_eq!(due, expect, "{now_ms}");
            expect.into_iter().for_each(|place| plain[place] = None);
        }
    }
}
