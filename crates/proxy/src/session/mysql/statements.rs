//! Prepared statements: the client's numbers, the statements that all sessions share, and which of
//! them a server connection has.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use evenkeel_wire::mysql::StatementId;

use crate::state::mysql::Meaning;

/// Statements that nobody has a number for are kept up to this many, so that the next client that
/// prepares the same finds it on the servers.
const UNUSED_MAX: usize = 10_000;

/// A statement as clients prepare it: the same for all who give the same text and whose sessions
/// read it alike.
#[derive(Debug)]
pub(crate) struct Statement {
    /// Unique in this process.
    pub(crate) id: u64,
    pub(crate) text: Box<[u8]>,
    pub(crate) meaning: Meaning,
    /// Which state of the catalog the meaning was found with.
    pub(crate) catalog: u64,
    /// What else makes statements of one text different.
    pub(crate) within: Within,
}

/// What a text is prepared in: names and strings in it mean what they mean there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Within {
    pub(crate) schema: Option<Box<[u8]>>,
    /// The values of [`READING`].
    pub(crate) reading: [Option<Box<[u8]>>; 3],
}

/// The variables by which a text is read.
pub(crate) const READING: [&[u8]; 3] = [
    b"sql_mode",
    b"character_set_client",
    b"collation_connection",
];

impl Within {
    /// The SETs that have a text read so, and as it is `now` again; empty: there is no difference.
    /// What is not known, as the collation just behind SET NAMES, is left as it is. `None`: it
    /// cannot be written.
    pub(crate) fn settings(&self, now: &Within) -> Option<(Vec<u8>, Vec<u8>)> {
        let (mut there, mut back) = (Vec::new(), Vec::new());
        let values = self.reading.iter().zip(&now.reading);
        for (name, values) in READING.iter().zip(values) {
            let (Some(then), Some(now)) = values else {
                continue;
            };
            if then == now {
                continue;
            }
            put_setting(&mut there, name, then)?;
            put_setting(&mut back, name, now)?;
        }
        Some((there, back))
    }
}

fn put_setting(text: &mut Vec<u8>, name: &[u8], value: &[u8]) -> Option<()> {
    if !is_plain(value) {
        return None;
    }
    let before: &[u8] = match text.is_empty() {
        true => b"SET @@session.",
        false => b", @@session.",
    };
    for part in [before, name, b"='", value, b"'"] {
        text.extend_from_slice(part);
    }
    Some(())
}

/// Names of modes, character sets and collations are.
fn is_plain(value: &[u8]) -> bool {
    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"_,".contains(byte);
    value.iter().all(is_of_name)
}

/// All statements of a service.
#[derive(Debug, Default)]
pub(crate) struct Interned {
    known: Mutex<HashMap<u64, Vec<Arc<Statement>>>>,
    hasher: RandomState,
}

fn new_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Relaxed)
}

impl Interned {
    /// The statement of that text; `read` tells what it means if it is new, or if the catalog has
    /// changed since.
    pub(crate) fn statement(
        &self,
        text: &[u8],
        within: &Within,
        catalog: u64,
        read: impl FnOnce() -> Meaning,
    ) -> Arc<Statement> {
        let key = self.hasher.hash_one((text, within));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() > UNUSED_MAX {
            known.retain(|_, alike| {
                alike.retain(|one| Arc::strong_count(one) > 1);
                !alike.is_empty()
            });
        }
        let alike = known.entry(key).or_default();
        let is_same = |one: &&Arc<Statement>| *one.text == *text && one.within == *within;
        let id = match alike.iter().find(is_same) {
            Some(one) if one.catalog == catalog => return Arc::clone(one),
            Some(one) => one.id,
            None => new_id(),
        };
        let statement = Arc::new(Statement {
            id,
            text: text.into(),
            meaning: read(),
            catalog,
            within: within.clone(),
        });
        alike.retain(|one| one.id != id);
        alike.push(Arc::clone(&statement));
        statement
    }

    /// The same statement, with what is known of the catalog now.
    pub(crate) fn renewed(
        &self,
        statement: &Statement,
        catalog: u64,
        read: impl FnOnce() -> Meaning,
    ) -> Arc<Statement> {
        self.statement(&statement.text, &statement.within, catalog, read)
    }
}

/// One client's statements, by the numbers that we gave it.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    known: HashMap<u32, Named>,
    given: u32,
    /// What [`StatementId::LAST`] means.
    last: Option<u32>,
}

/// A client's statement.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) statement: Arc<Statement>,
    pub(crate) parameters: u16,
    /// The types of its parameters as its client gave them last; an execution may leave them out.
    pub(crate) types: Box<[u8]>,
    /// Values that its client sent in advance have reached no server.
    pub(crate) lacks_data: bool,
}

impl Numbers {
    /// The number that the next statement gets if its server takes it.
    pub(crate) fn next(&self) -> StatementId {
        // MariaDB's LAST is no number.
        StatementId(match self.given {
            number if number >= u32::MAX - 1 => 1,
            number => number + 1,
        })
    }

    /// A server has prepared it.
    pub(crate) fn prepared(&mut self, statement: &Arc<Statement>, parameters: u16) {
        let number = self.next().0;
        self.given = number;
        self.last = Some(number);
        let named = Named {
            statement: Arc::clone(statement),
            parameters,
            types: Box::default(),
            lacks_data: false,
        };
        self.known.insert(number, named);
    }

    /// A server would not: MariaDB forgets what LAST means.
    pub(crate) fn not_prepared(&mut self) {
        self.last = None;
    }

    /// The number that was given last.
    pub(crate) fn last(&self) -> StatementId {
        StatementId(self.given)
    }

    /// Whose number it is.
    pub(crate) fn number(&self, number: StatementId) -> u32 {
        match number {
            StatementId::LAST => self.last.unwrap_or(u32::MAX),
            StatementId(number) => number,
        }
    }

    pub(crate) fn get(&self, number: u32) -> Option<&Named> {
        self.known.get(&number)
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut Named> {
        self.known.get_mut(&number)
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<Named> {
        if self.last == Some(number) {
            self.last = None;
        }
        let removed = self.known.remove(&number);
        if self.known.is_empty() {
            self.known.shrink_to_fit();
        }
        removed
    }

    /// COM_RESET_CONNECTION.
    pub(crate) fn clear(&mut self) {
        *self = Self {
            given: self.given,
            ..Self::default()
        };
    }
}

/// Which statements a server connection has, the longest unused first to go.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    known: HashMap<u64, There>,
    clock: u64,
}

/// A statement on a server connection.
#[derive(Debug)]
pub(crate) struct There {
    pub(crate) number: StatementId,
    used: u64,
    /// The types that the last execution on this connection bound.
    pub(crate) types: Box<[u8]>,
}

impl Prepared {
    /// The statement, if it has it, which counts as a use of it.
    pub(crate) fn get(&mut self, id: u64) -> Option<&mut There> {
        self.clock += 1;
        let there = self.known.get_mut(&id)?;
        there.used = self.clock;
        Some(there)
    }

    /// What the statement is called there, without using it.
    pub(crate) fn number(&self, id: u64) -> Option<StatementId> {
        self.known.get(&id).map(|there| there.number)
    }

    /// The server has prepared it under this number. The one that it has to close for that: the
    /// same statement's old number.
    pub(crate) fn add(&mut self, id: u64, number: StatementId) -> Option<StatementId> {
        self.clock += 1;
        let there = There {
            number,
            used: self.clock,
            types: Box::default(),
        };
        let old = self.known.insert(id, there)?;
        Some(old.number)
    }

    /// One that is too many and has not been used for longest, as if it were closed now.
    pub(crate) fn evict(&mut self, max: usize) -> Option<StatementId> {
        if self.known.len() <= max.max(1) {
            return None;
        }
        let oldest = self.known.iter().min_by_key(|(_, there)| there.used);
        let id = oldest.map(|(id, _)| *id)?;
        self.known.remove(&id).map(|there| there.number)
    }

    /// The server has forgotten all of them.
    pub(crate) fn clear(&mut self) {
        self.known.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_unused_is_closed_when_there_are_too_many() {
        let mut prepared = Prepared::default();
        for id in 1..=2 {
            assert_eq!(prepared.add(id, StatementId(id as u32 + 10)), None);
        }
        assert!(prepared.get(1).is_some());
        assert_eq!(prepared.evict(2), None);
        prepared.add(3, StatementId(13));
        assert_eq!(prepared.evict(2), Some(StatementId(12)));
        assert_eq!(prepared.evict(2), None);
        assert_eq!(prepared.number(2), None);
        assert_eq!(prepared.number(1), Some(StatementId(11)));
    }

    #[test]
    fn a_statement_that_is_prepared_again_gives_its_old_number_up() {
        let mut prepared = Prepared::default();
        prepared.add(1, StatementId(5));
        assert_eq!(prepared.add(1, StatementId(6)), Some(StatementId(5)));
        assert_eq!(prepared.number(1), Some(StatementId(6)));
    }

    #[test]
    fn a_text_is_read_as_it_was_where_that_is_known() {
        let within = |mode: &[u8], collation: Option<&[u8]>| Within {
            schema: None,
            reading: [
                Some(mode.into()),
                Some(b"utf8mb4"[..].into()),
                collation.map(Box::from),
            ],
        };
        let then = within(b"ANSI,NO_ZERO_DATE", Some(b"utf8mb4_bin"));
        let (there, back) = then.settings(&within(b"", None)).unwrap();
        assert_eq!(there, b"SET @@session.sql_mode='ANSI,NO_ZERO_DATE'");
        assert_eq!(back, b"SET @@session.sql_mode=''");
        let same = then.settings(&then.clone()).unwrap();
        assert!(same.0.is_empty() && same.1.is_empty());
        let odd = within(b"it's", None);
        assert_eq!(odd.settings(&then), None);
        let now = within(b"ANSI", Some(b"latin1_bin"));
        let (there, _) = then.settings(&now).unwrap();
        let both: &[u8] = b"SET @@session.sql_mode='ANSI,NO_ZERO_DATE', \
            @@session.collation_connection='utf8mb4_bin'";
        assert_eq!(there, both);
    }

    #[test]
    fn a_client_s_numbers_are_never_the_last_one_s_and_not_used_twice_in_a_row() {
        let mut numbers = Numbers {
            given: u32::MAX - 2,
            ..Numbers::default()
        };
        assert_eq!(numbers.next(), StatementId(u32::MAX - 1));
        numbers.given = u32::MAX - 1;
        assert_eq!(numbers.next(), StatementId(1));
    }
}
