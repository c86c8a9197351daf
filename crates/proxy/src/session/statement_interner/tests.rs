//! Tests which statements are kept, and for how long.

use std::cell::Cell;
use std::time::Duration;

use super::*;

/// Analysis of a given size.
#[derive(Debug, Clone)]
struct Heavy(usize);

impl MemorySize for Heavy {
    fn weight(&self) -> usize {
        self.0
    }
}

impl MemorySize for u8 {
    fn weight(&self) -> usize {
        0
    }
}

type All = StatementInterner<u8, Heavy>;

fn prepare(all: &All, number: usize, weight: usize) -> Arc<SharedStatement<u8, Heavy>> {
    let text = number.to_string();
    all.statement(text.as_bytes(), &0, 0, || Heavy(weight))
}

#[test]
fn one_text_is_one_statement_until_it_is_prepared_in_something_else() {
    let all = All::default();
    let id = |within| all.statement(b"select 1", &within, 0, || Heavy(0)).id;
    assert_eq!(id(1), id(1));
    assert_ne!(id(1), id(2));
}

#[test]
fn a_statement_keeps_its_number_when_the_catalog_has_changed() {
    let all = All::default();
    let then = all.statement(b"select 1", &0, 1, || Heavy(1));
    let now = all.renewed(&then, 2, || Heavy(2));
    assert_eq!((then.id, then.catalog), (now.id, 1));
    assert_eq!((now.meaning.0, now.catalog), (2, 2));
    let again = all.renewed(&then, 2, || unreachable!());
    assert!(Arc::ptr_eq(&now, &again));
}

#[test]
fn statements_that_nobody_has_are_kept_by_their_number_and_by_their_weight() {
    let all = All::default();
    for number in 0..3 * UNUSED_MAX {
        prepare(&all, number, 0);
        assert!(all.lock().count <= UNUSED_MAX);
    }
    let mebibyte = 1024 * 1024;
    for number in 0..200 {
        prepare(&all, number, mebibyte);
        assert!(all.lock().weight <= UNUSED_WEIGHT_MAX + 2 * mebibyte);
    }
}

#[test]
fn while_more_are_in_use_each_look_at_all_of_them_pays_for_as_many_new_ones() {
    let all = All::default();
    let used: Vec<_> = (0..=2 * UNUSED_MAX)
        .map(|number| prepare(&all, number, 0))
        .collect();
    let looks = Cell::new(0);
    let mut last = all.lock().count_max;
    assert!(last >= 2 * UNUSED_MAX);
    for number in used.len()..used.len() + 2 * UNUSED_MAX {
        prepare(&all, number, 0);
        let known = all.lock();
        looks.set(looks.get() + usize::from(known.count_max != last));
        last = known.count_max;
    }
    assert!(looks.get() <= 1, "{} looks", looks.get());
    assert!(all.lock().count >= used.len());
}

#[test]
fn nobody_waits_for_a_text_that_another_session_reads() {
    let all = Arc::new(All::default());
    let (sender, receiver) = std::sync::mpsc::channel();
    all.statement(b"a long one", &0, 0, || {
        let other = Arc::clone(&all);
        std::thread::spawn(move || {
            let short = other.statement(b"another", &0, 0, || Heavy(0));
            // Also the long one: both sessions get the same statement in the end.
            let long = other.statement(b"a long one", &0, 0, || Heavy(1));
            sender.send((short.id, long.id))
        });
        let ids = receiver.recv_timeout(Duration::from_secs(10));
        assert!(ids.is_ok(), "the other session waits");
        Heavy(2)
    });
    assert_eq!(all.lock().count, 2);
    assert_eq!(
        all.statement(b"a long one", &0, 0, || Heavy(3)).meaning.0,
        1
    );
}

#[test]
fn a_client_s_share_is_weighed_anew_before_it_is_too_much() {
    let mut share = StatementBudget::default();
    assert!(share.takes(OF_CLIENT_WEIGHT_MAX, || unreachable!()));
    assert!(share.takes(1, || OF_CLIENT_WEIGHT_MAX - 1));
    assert!(!share.takes(1, || OF_CLIENT_WEIGHT_MAX));
    assert!(share.takes(1, || 0));
}
