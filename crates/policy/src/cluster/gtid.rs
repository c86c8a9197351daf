//! Sets of transactions as MariaDB and MySQL name them: what a server has, and another lacks.

use std::collections::BTreeMap;
use std::fmt;

mod mariadb;
mod mysql;

#[cfg(test)]
mod tests;

use mariadb::Vector;
use mysql::Intervals;

/// Every transaction that a server has executed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gtids {
    set: Set,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
enum Set {
    /// Nothing executed, or the server keeps no GTIDs; part of every set.
    #[default]
    Empty,
    Mariadb(Vector),
    Mysql(Intervals),
}

/// How one set stands to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// Both have the same.
    Equal,
    /// Has all of the other, and more.
    Ahead,
    /// The other has all of it, and more.
    Behind,
    /// Each has something that the other lacks.
    Diverged,
}

/// What another set lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// Transactions. For MariaDB an estimate: its positions do not tell gaps.
    pub count: u64,
    /// Some of them, as the database writes them.
    pub sample: String,
}

impl Gtids {
    /// Nothing.
    pub const EMPTY: Gtids = Gtids { set: Set::Empty };

    /// A MariaDB set from (domain, server, sequence): `gtid_binlog_state`, in any order.
    pub fn mariadb(positions: impl IntoIterator<Item = (u32, u32, u64)>) -> Gtids {
        let mut vector = Vector::default();
        for (domain, server, sequence) in positions {
            vector.add(domain, server, sequence);
        }
        Gtids::of_mariadb(vector)
    }

    /// The same with `gtid_slave_pos`: what a replica with `log_slave_updates=OFF` applied is
    /// listed there alone, and only the last of each domain.
    #[must_use]
    pub fn with_applied(self, positions: impl IntoIterator<Item = (u32, u32, u64)>) -> Gtids {
        let mut vector = match self.set {
            Set::Mariadb(vector) => vector,
            Set::Empty | Set::Mysql(_) => Vector::default(),
        };
        for (domain, server, sequence) in positions {
            vector.add_applied(domain, server, sequence);
        }
        Gtids::of_mariadb(vector)
    }

    /// A MySQL set from (source UUID, tag or "", first, last): `gtid_executed`.
    pub fn mysql<'a>(intervals: impl IntoIterator<Item = (&'a str, &'a str, u64, u64)>) -> Gtids {
        let mut set = Intervals::default();
        for (uuid, tag, first, last) in intervals {
            set.add(uuid, tag, first, last);
        }
        Gtids::of_mysql(set)
    }

    /// Whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.set == Set::Empty
    }

    /// Whether all of `other` is in it. Sets of different databases contain nothing of each other.
    #[must_use]
    pub fn contains(&self, other: &Gtids) -> bool {
        match (&self.set, &other.set) {
            (_, Set::Empty) => true,
            (Set::Mariadb(own), Set::Mariadb(theirs)) => own.contains(theirs),
            (Set::Mysql(own), Set::Mysql(theirs)) => own.contains(theirs),
            _ => false,
        }
    }

    /// Whether a MariaDB replica that has applied these (domain, server, sequence) last,
    /// `gtid_slave_pos`, has come to all of it: in each domain to its newest, or to what the same
    /// server wrote later. One that has come to a higher number of another server's may be ahead
    /// with what nobody else has.
    #[must_use]
    pub fn is_within(&self, applied: &[(u32, u32, u64)]) -> bool {
        match &self.set {
            Set::Empty => true,
            Set::Mariadb(own) => own.is_within(applied),
            Set::Mysql(_) => false,
        }
    }

    /// How it stands to `other`.
    #[must_use]
    pub fn compare(&self, other: &Gtids) -> Comparison {
        match (self.contains(other), other.contains(self)) {
            (true, true) => Comparison::Equal,
            (true, false) => Comparison::Ahead,
            (false, true) => Comparison::Behind,
            (false, false) => Comparison::Diverged,
        }
    }

    /// What is in it and not in `other`; `None` if `other` contains it.
    #[must_use]
    pub fn missing_from(&self, other: &Gtids) -> Option<Missing> {
        if other.contains(self) {
            return None;
        }
        match (&self.set, &other.set) {
            (Set::Empty, _) => None,
            (Set::Mariadb(own), Set::Mariadb(theirs)) => own.missing_from(theirs),
            (Set::Mysql(own), Set::Mysql(theirs)) => own.missing_from(theirs),
            (Set::Mariadb(own), _) => own.missing_from(&Vector::default()),
            (Set::Mysql(own), _) => own.missing_from(&Intervals::default()),
        }
    }

    /// Adds all of `other`. Sets of different databases do not merge: the own one stays.
    pub fn merge(&mut self, other: &Gtids) {
        match (&mut self.set, &other.set) {
            (Set::Empty, _) => self.set = other.set.clone(),
            (Set::Mariadb(own), Set::Mariadb(theirs)) => own.merge(theirs),
            (Set::Mysql(own), Set::Mysql(theirs)) => own.merge(theirs),
            _ => {}
        }
    }

    fn of_mariadb(vector: Vector) -> Gtids {
        let set = match vector.is_empty() {
            true => Set::Empty,
            false => Set::Mariadb(vector),
        };
        Gtids { set }
    }

    fn of_mysql(intervals: Intervals) -> Gtids {
        let set = match intervals.is_empty() {
            true => Set::Empty,
            false => Set::Mysql(intervals),
        };
        Gtids { set }
    }
}

/// As the database writes it; "nothing" if it is empty.
impl fmt::Display for Gtids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.set {
            Set::Empty => f.write_str("nothing"),
            Set::Mariadb(vector) => vector.fmt(f),
            Set::Mysql(intervals) => intervals.fmt(f),
        }
    }
}

/// "17 transactions: 0-1-101…", to be followed by who lacks them.
impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.count == 1 { "" } else { "s" };
        write!(f, "{} transaction{plural} ({})", self.count, self.sample)
    }
}

/// Writes the parts of a set with commas between them.
fn list<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    parts: impl Iterator<Item = T>,
) -> fmt::Result {
    for (index, part) in parts.enumerate() {
        let comma = if index == 0 { "" } else { "," };
        write!(f, "{comma}{part}")?;
    }
    Ok(())
}

/// Sorted, so that messages are the same each time.
type Map<K, V> = BTreeMap<K, V>;
