//! Represents a MariaDB set as a version vector: the highest sequence number for each domain and
//! server.

use std::fmt;

use super::{Map, Missing, list};

/// Highest sequence number by (domain, server).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Vector {
    positions: Map<(u32, u32), u64>,
    /// Replication position by domain: the last applied transaction, with its server. Earlier ones
    /// of its domain are applied too, though they may be listed nowhere.
    applied: Map<u32, (u32, u64)>,
}

/// Missing transactions of one domain.
#[derive(Default)]
struct Gap {
    servers: u64,
    /// Server and number of the latest missing one.
    last: (u32, u64),
}

impl Vector {
    pub(super) fn add(&mut self, domain: u32, server: u32, sequence: u64) {
        let highest = self.positions.entry((domain, server)).or_default();
        *highest = sequence.max(*highest);
    }

    /// Adds an entry of `gtid_slave_pos`.
    pub(super) fn add_applied(&mut self, domain: u32, server: u32, sequence: u64) {
        self.add(domain, server, sequence);
        let last = self.applied.entry(domain).or_default();
        if sequence > last.1 {
            *last = (server, sequence);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    pub(super) fn merge(&mut self, other: &Vector) {
        for (&(domain, server), &sequence) in &other.positions {
            self.add(domain, server, sequence);
        }
        for (&domain, &(server, sequence)) in &other.applied {
            self.add_applied(domain, server, sequence);
        }
    }

    pub(super) fn contains(&self, other: &Vector) -> bool {
        other.positions_not_in(self).next().is_none()
    }

    /// Returns whether `applied` (domain, server, sequence) has reached the newest position of each
    /// domain.
    pub(super) fn is_reached_by(&self, applied: &[(u32, u32, u64)]) -> bool {
        let mut newest: Map<u32, (u64, u32)> = Map::new();
        for (&(domain, server), &sequence) in &self.positions {
            let of_domain = newest.entry(domain).or_default();
            *of_domain = (sequence, server).max(*of_domain);
        }
        newest.iter().all(|(domain, (sequence, server))| {
            let has_reached =
                |(of, by, last): &(u32, u32, u64)| (of, by) == (domain, server) && last >= sequence;
            applied.iter().any(has_reached)
        })
    }

    /// Counts the transactions of this set that `other` lacks. In each domain the count is the
    /// distance from the last position that both have, since the servers of a domain share its
    /// sequence numbers; it is at least one per server with a missing transaction.
    pub(super) fn count_not_in(&self, other: &Vector) -> Option<Missing> {
        let mut domains: Map<u32, Gap> = Map::new();
        for ((domain, server), sequence) in self.positions_not_in(other) {
            let gap = domains.entry(domain).or_default();
            gap.servers += 1;
            if sequence > gap.last.1 {
                gap.last = (server, sequence);
            }
        }
        let (&domain, first) = domains.first_key_value()?;
        let (server, sequence) = first.last;
        let counts = domains.iter().map(|(&domain, gap)| {
            let since_common = gap.last.1.saturating_sub(self.last_common(other, domain));
            since_common.max(gap.servers)
        });
        Some(Missing {
            count: counts.fold(0, u64::saturating_add),
            sample: format!("up to {domain}-{server}-{sequence}"),
        })
    }

    fn positions_not_in<'a>(
        &'a self,
        other: &'a Vector,
    ) -> impl Iterator<Item = ((u32, u32), u64)> + 'a {
        let positions = self
            .positions
            .iter()
            .map(|(&key, &sequence)| (key, sequence));
        positions.filter(move |&(key, sequence)| !other.has(key, sequence, self))
    }

    /// Returns whether a position of `other` is in this set, too.
    ///
    /// If this set does not list the server, the position in `applied` includes all earlier
    /// transactions of its domain. This holds only if `other` has that position too, so that both
    /// share this history. A replica with `log_slave_updates=OFF`, or one made
    /// from a backup, never lists the servers that wrote earlier.
    fn has(&self, (domain, server): (u32, u32), sequence: u64, other: &Vector) -> bool {
        if let Some(&highest) = self.positions.get(&(domain, server)) {
            return highest >= sequence;
        }
        self.applied.get(&domain).is_some_and(|&(writer, last)| {
            let theirs = other.positions.get(&(domain, writer));
            last > sequence && theirs.is_some_and(|&theirs| theirs >= last)
        })
    }

    /// Returns the highest sequence number in a domain of a common transaction; 0 if there is none.
    fn last_common(&self, other: &Vector, domain: u32) -> u64 {
        let both = self.positions.iter().filter_map(|(key, &own)| {
            let theirs = *other.positions.get(key)?;
            (key.0 == domain).then_some(own.min(theirs))
        });
        both.max().unwrap_or(0)
    }
}

impl fmt::Display for Vector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let positions = self.positions.iter();
        list(
            f,
            positions.map(|((domain, server), sequence)| format!("{domain}-{server}-{sequence}")),
        )
    }
}
