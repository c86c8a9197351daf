//! A MariaDB set: for each domain and server the highest sequence number, which is a version vector.

use std::fmt;

use super::{Map, Missing, list};

/// (domain, server) to the highest sequence number of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Vector {
    positions: Map<(u32, u32), u64>,
}

impl Vector {
    pub(super) fn add(&mut self, domain: u32, server: u32, sequence: u64) {
        let highest = self.positions.entry((domain, server)).or_default();
        *highest = sequence.max(*highest);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    pub(super) fn merge(&mut self, other: &Vector) {
        for (&(domain, server), &sequence) in &other.positions {
            self.add(domain, server, sequence);
        }
    }

    pub(super) fn contains(&self, other: &Vector) -> bool {
        other.missing(self).next().is_none()
    }

    /// Counted domain by domain, from the last position that both have: the servers of a domain
    /// share its sequence numbers.
    pub(super) fn missing_from(&self, other: &Vector) -> Option<Missing> {
        let mut last_of_domain: Map<u32, (u32, u64)> = Map::new();
        for ((domain, server), sequence) in self.missing(other) {
            let last = last_of_domain.entry(domain).or_default();
            if sequence > last.1 {
                *last = (server, sequence);
            }
        }
        let (&domain, &(server, sequence)) = last_of_domain.first_key_value()?;
        let counts = last_of_domain.iter().map(|(&domain, &(_, sequence))| {
            sequence.saturating_sub(self.last_common(other, domain))
        });
        Some(Missing {
            count: counts.fold(0, u64::saturating_add),
            sample: format!("up to {domain}-{server}-{sequence}"),
        })
    }

    fn missing<'a>(&'a self, from: &'a Vector) -> impl Iterator<Item = ((u32, u32), u64)> + 'a {
        let positions = self
            .positions
            .iter()
            .map(|(&key, &sequence)| (key, sequence));
        positions.filter(move |&(key, sequence)| !from.has(key, sequence, self))
    }

    /// Whether a position that `other` has is here too.
    ///
    /// Where nothing at all is known of a server, a later position that both have stands for what
    /// came before it in its domain: `gtid_slave_pos` names only the last one, so a replica with
    /// `log_slave_updates=OFF`, or one that was made from a backup, never lists the servers that
    /// wrote earlier.
    fn has(&self, (domain, server): (u32, u32), sequence: u64, other: &Vector) -> bool {
        match self.positions.get(&(domain, server)) {
            Some(&highest) => highest >= sequence,
            None => self.last_common(other, domain) > sequence,
        }
    }

    /// The highest sequence number in a domain of a transaction that both have; 0 if there is none.
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
