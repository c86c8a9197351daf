//! Tests of the content and the comparison of sets of transactions.

use super::*;

const A: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
const B: &str = "4e11fa47-71ca-11e1-9e33-c80aa9429563";

fn mariadb(positions: &[(u32, u32, u64)]) -> Gtids {
    Gtids::mariadb(positions.iter().copied())
}

fn mysql(intervals: &[(&str, &str, u64, u64)]) -> Gtids {
    Gtids::mysql(intervals.iter().copied())
}

#[track_caller]
fn compare(one: &Gtids, other: &Gtids, expect: Comparison) {
    let reverse = match expect {
        Comparison::Ahead => Comparison::Behind,
        Comparison::Behind => Comparison::Ahead,
        same => same,
    };
    assert_eq!(one.compare(other), expect, "{one} to {other}");
    assert_eq!(other.compare(one), reverse, "{other} to {one}");
}

#[track_caller]
fn missing(one: &Gtids, other: &Gtids, expect: Option<&str>) {
    let found = one.count_not_in(other).map(|missing| missing.to_string());
    assert_eq!(found.as_deref(), expect);
}

#[test]
fn a_mariadb_set_is_a_version_vector() {
    let old = mariadb(&[(0, 1, 100)]);
    compare(&old, &old, Comparison::Equal);
    compare(&mariadb(&[(0, 1, 101)]), &old, Comparison::Ahead);
    compare(
        &mariadb(&[(0, 1, 100), (0, 2, 105)]),
        &old,
        Comparison::Ahead,
    );
    compare(
        &mariadb(&[(0, 1, 99), (0, 2, 105)]),
        &old,
        Comparison::Diverged,
    );
    compare(&mariadb(&[(1, 1, 100)]), &old, Comparison::Diverged);
    compare(&old, &Gtids::default(), Comparison::Ahead);
}

#[test]
fn a_replica_has_come_to_a_set_once_it_has_the_newest_of_each_domain() {
    let set = mariadb(&[(0, 1, 80), (0, 2, 90), (5, 1, 7)]);
    assert!(set.is_reached_by(&[(0, 2, 90), (5, 1, 7)]));
    assert!(set.is_reached_by(&[(0, 2, 95), (5, 1, 8)]));
    assert!(!set.is_reached_by(&[(0, 2, 89), (5, 1, 7)]));
    assert!(
        !set.is_reached_by(&[(0, 1, 95), (5, 1, 7)]),
        "of a former primary"
    );
    assert!(
        !set.is_reached_by(&[(0, 2, 95)]),
        "nothing of the other domain"
    );
    assert!(Gtids::EMPTY.is_reached_by(&[]));
    assert!(!mysql(&[(A, "", 1, 5)]).is_reached_by(&[(0, 1, 80)]));
}

#[test]
fn binlog_state_and_slave_pos_are_united() {
    let both = mariadb(&[(0, 1, 80), (0, 2, 90)]).with_applied([(0, 1, 100)]);
    compare(
        &both,
        &mariadb(&[(0, 1, 100), (0, 2, 90)]),
        Comparison::Equal,
    );
    assert_eq!(both.to_string(), "0-1-100,0-2-90");
    let older = mariadb(&[(0, 1, 120)]).with_applied([(0, 1, 100)]);
    assert_eq!(older.to_string(), "0-1-120");
}

#[test]
fn an_applied_position_stands_for_what_came_before_it_where_nothing_is_known_of_a_server() {
    let primary = mariadb(&[(0, 1, 100), (0, 2, 105)]);
    let without_binlog = Gtids::default().with_applied([(0, 2, 105)]);
    compare(&without_binlog, &primary, Comparison::Equal);
    let promoted = mariadb(&[(0, 3, 106)]).with_applied([(0, 2, 105)]);
    compare(&promoted, &primary, Comparison::Ahead);
    // The other set does not have that position, or wrote later than it, or in another domain.
    compare(&promoted, &mariadb(&[(0, 1, 100)]), Comparison::Diverged);
    compare(
        &promoted,
        &mariadb(&[(0, 1, 110), (0, 2, 105)]),
        Comparison::Diverged,
    );
    compare(
        &promoted,
        &mariadb(&[(1, 1, 100), (0, 2, 105)]),
        Comparison::Diverged,
    );
}

#[test]
fn a_written_position_stands_for_nothing_before_it() {
    let primary = mariadb(&[(0, 1, 200)]);
    let errant = mariadb(&[(0, 2, 103)]).with_applied([(0, 1, 200)]);
    compare(&errant, &primary, Comparison::Ahead);
}

#[test]
fn missing_mariadb_transactions_are_counted_by_domain() {
    let old = mariadb(&[(0, 1, 100)]);
    missing(
        &mariadb(&[(0, 1, 117)]),
        &old,
        Some("17 transactions (up to 0-1-117)"),
    );
    let two = mariadb(&[(0, 1, 110), (0, 2, 105)]);
    missing(&two, &old, Some("10 transactions (up to 0-1-110)"));
    let domains = mariadb(&[(0, 1, 101), (4, 1, 3)]);
    missing(&domains, &old, Some("4 transactions (up to 0-1-101)"));
    let early = mariadb(&[(0, 1, 100), (0, 2, 40)]);
    missing(&early, &old, Some("1 transaction (up to 0-2-40)"));
    missing(&old, &two, None);
    missing(
        &old,
        &Gtids::default(),
        Some("100 transactions (up to 0-1-100)"),
    );
}

#[test]
fn mysql_intervals_join_and_sort_whatever_their_order() {
    let expect = format!("{A}:1-10:12,{A}:tag:1,{B}:5");
    let parts = [
        (A, "", 8, 10),
        (B, "", 5, 5),
        (A, "", 12, 12),
        (A, "TAG", 1, 1),
        (A, "", 1, 3),
        (A, "", 4, 7),
        (A, "", 2, 5),
    ];
    for turn in 0..parts.len() {
        let mut turned = parts;
        turned.rotate_left(turn);
        assert_eq!(mysql(&turned).to_string(), expect);
    }
    let upper = A.to_ascii_uppercase();
    assert_eq!(mysql(&[(&upper, "", 1, 3)]), mysql(&[(A, "", 1, 3)]));
    assert!(mysql(&[(A, "", 3, 2)]).is_empty());
}

#[test]
fn mysql_sets_compare_by_what_they_hold() {
    let old = mysql(&[(A, "", 1, 100)]);
    compare(
        &mysql(&[(A, "", 1, 100), (B, "", 1, 1)]),
        &old,
        Comparison::Ahead,
    );
    compare(
        &mysql(&[(A, "", 1, 50), (A, "", 52, 200)]),
        &old,
        Comparison::Diverged,
    );
    compare(&mysql(&[(A, "t", 1, 100)]), &old, Comparison::Diverged);
    compare(&mysql(&[(A, "", 3, 99)]), &old, Comparison::Behind);
    let gaps = mysql(&[
        (A, "", 1, 2),
        (A, "", 6, 8),
        (A, "", 90, 104),
        (B, "t", 7, 7),
    ]);
    missing(&gaps, &old, Some(&format!("5 transactions ({A}:101-104)")));
    missing(&old, &gaps, Some(&format!("84 transactions ({A}:3-5)")));
    missing(
        &mysql(&[(B, "t", 7, 7)]),
        &old,
        Some(&format!("1 transaction ({B}:t:7)")),
    );
}

#[test]
fn sets_of_two_databases_have_nothing_in_common() {
    let (one, other) = (mariadb(&[(0, 1, 5)]), mysql(&[(A, "", 1, 5)]));
    compare(&one, &other, Comparison::Diverged);
    missing(&one, &other, Some("5 transactions (up to 0-1-5)"));
    let mut merged = one.clone();
    merged.merge(&other);
    assert_eq!(merged, one);
}

/// Compares intervals with plain sets of numbers.
#[test]
fn mysql_sets_agree_with_plain_sets_of_numbers() {
    let mut random = Random(3);
    for _ in 0..5_000 {
        let (one, one_plain) = random.set();
        let (other, other_plain) = random.set();
        assert_eq!(
            one.contains(&other),
            one_plain.is_superset(&other_plain),
            "{one} {other}"
        );
        let count = one_plain.difference(&other_plain).count() as u64;
        assert_eq!(
            one.count_not_in(&other).map_or(0, |missing| missing.count),
            count
        );
        let mut merged = one.clone();
        merged.merge(&other);
        assert!(merged.contains(&one) && merged.contains(&other));
        let union: Vec<_> = one_plain
            .union(&other_plain)
            .map(|&at| (A, "", at, at))
            .collect();
        assert_eq!(merged, mysql(&union));
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn set(&mut self) -> (Gtids, std::collections::BTreeSet<u64>) {
        let mut plain = std::collections::BTreeSet::new();
        let mut intervals = Vec::new();
        for _ in 0..self.below(5) {
            let first = 1 + self.below(24);
            let last = first + self.below(5);
            intervals.push((A, "", first, last));
            plain.extend(first..=last);
        }
        (mysql(&intervals), plain)
    }
}
