//! Represents sets of transactions of MariaDB and MySQL, and compares them.

use std::collections::BTreeMap;
use std::fmt;

mod mariadb;
mod mysql;

#[cfg(test)]
mod tests;

use mariadb::Vector;
use mysql::Intervals;

/// Set of the transactions that a server has executed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gtids {
    set: Set,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
enum Set {
    /// No transaction executed, or the server keeps no GTIDs; part of every set.
    #[default]
    Empty,
    Mariadb(Vector),
    Mysql(Intervals),
}

/// Result of comparing two sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// Both have the same transactions.
    Equal,
    /// The set has all of the other, and more.
    Ahead,
    /// The other set has all of this one, and more.
    Behind,
    /// Each has transactions that the other lacks.
    Diverged,
}

/// Transactions that another set lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// Number of transactions. For MariaDB an estimate: its positions do not show gaps.
    pub count: u64,
    /// Some of them, in the database's notation.
    pub sample: String,
}

impl Gtids {
    /// The empty set.
    pub const EMPTY: Gtids = Gtids { set: Set::Empty };

    /// Creates a MariaDB set from (domain, server, sequence): `gtid_binlog_state`, in any order.
    pub fn mariadb(positions: impl IntoIterator<Item = (u32, u32, u64)>) -> Gtids {
        let mut vector = Vector::default();
        for (domain, server, sequence) in positions {
            vector.add(domain, server, sequence);
        }
        Gtids::of_mariadb(vector)
    }

    /// Adds `gtid_slave_pos`. Transactions that a replica with `log_slave_updates=OFF` applied are
    /// listed only there, and only the last of each domain.
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

    /// Creates a MySQL set from (source UUID, tag or "", first, last): `gtid_executed`.
    pub fn mysql<'a>(intervals: impl IntoIterator<Item = (&'a str, &'a str, u64, u64)>) -> Gtids {
        let mut set = Intervals::default();
        for (uuid, tag, first, last) in intervals {
            set.add(uuid, tag, first, last);
        }
        Gtids::of_mysql(set)
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.set == Set::Empty
    }

    /// Returns whether the set contains all of `other`. Sets of different databases contain nothing
    /// of each other.
    #[must_use]
    pub fn contains(&self, other: &Gtids) -> bool {
        match (&self.set, &other.set) {
            (_, Set::Empty) => true,
            (Set::Mariadb(own), Set::Mariadb(theirs)) => own.contains(theirs),
            (Set::Mysql(own), Set::Mysql(theirs)) => own.contains(theirs),
            _ => false,
        }
    }

    /// Returns whether a MariaDB replica that applied these positions last (domain, server,
    /// sequence; `gtid_slave_pos`) has reached the whole set. In each domain it must be at the
    /// newest transaction, or at a later one of the same server. A higher number of another server
    /// may belong to transactions that no other server has.
    #[must_use]
    pub fn is_reached_by(&self, applied: &[(u32, u32, u64)]) -> bool {
        match &self.set {
            Set::Empty => true,
            Set::Mariadb(own) => own.is_reached_by(applied),
            Set::Mysql(_) => false,
        }
    }

    /// Compares the set with `other`.
    #[must_use]
    pub fn compare(&self, other: &Gtids) -> Comparison {
        match (self.contains(other), other.contains(self)) {
            (true, true) => Comparison::Equal,
            (true, false) => Comparison::Ahead,
            (false, true) => Comparison::Behind,
            (false, false) => Comparison::Diverged,
        }
    }

    /// Returns the transactions that `other` lacks; `None` if `other` contains the set.
    #[must_use]
    pub fn count_not_in(&self, other: &Gtids) -> Option<Missing> {
        if other.contains(self) {
            return None;
        }
        match (&self.set, &other.set) {
            (Set::Empty, _) => None,
            (Set::Mariadb(own), Set::Mariadb(theirs)) => own.count_not_in(theirs),
            (Set::Mysql(own), Set::Mysql(theirs)) => own.count_not_in(theirs),
            (Set::Mariadb(own), _) => own.count_not_in(&Vector::default()),
            (Set::Mysql(own), _) => own.count_not_in(&Intervals::default()),
        }
    }

    /// Adds all of `other`. Sets of different databases do not merge: this one remains unchanged.
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

/// Formats the set in the database's notation; "nothing" if it is empty.
impl fmt::Display for Gtids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.set {
            Set::Empty => f.write_str("nothing"),
            Set::Mariadb(vector) => vector.fmt(f),
            Set::Mysql(intervals) => intervals.fmt(f),
        }
    }
}

/// Formats as "17 transactions: 0-1-101…", to be followed by the server that lacks them.
impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.count == 1 { "" } else { "s" };
        write!(f, "{} transaction{plural} ({})", self.count, self.sample)
    }
}

/// Writes the parts of a set, separated by commas.
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

/// Sorted map, so that messages are the same each time.
type Map<K, V> = BTreeMap<K, V>;
