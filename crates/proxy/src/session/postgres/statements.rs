//! Prepared statements: the client's names, the statements that all sessions share, and which of
//! them a server connection has.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use crate::state::meaning::Meaning;

/// Statements that nobody has a name for are kept up to this many, so that the next client that
/// prepares the same finds it on the servers.
const UNUSED_MAX: usize = 10_000;

/// The length of every name that we give.
pub(crate) const NAME_LENGTH: usize = 16;

/// What every name that we give begins with.
pub(crate) const NAME_PREFIX: &[u8] = b"evenkeel";

/// A statement as clients prepare it: the same for all who give the same text.
#[derive(Debug)]
pub(crate) struct Statement {
    /// Unique in this process.
    pub(crate) id: u64,
    pub(crate) text: Box<[u8]>,
    /// The OIDs of the parameters' types that the client gave.
    pub(crate) types: Box<[u8]>,
    pub(crate) meaning: Meaning,
    /// Which state of the catalog the meaning was found with.
    pub(crate) catalog: u64,
    /// What else makes statements of one text different: the settings that names are looked up by.
    digest: u64,
}

impl Statement {
    /// What servers call it.
    pub(crate) fn name(&self) -> [u8; NAME_LENGTH] {
        name_of(self.id)
    }
}

/// What servers call a statement.
pub(crate) fn name_of(id: u64) -> [u8; NAME_LENGTH] {
    let mut name = *b"evenkeel00000000";
    let mut id = id;
    for place in name[NAME_PREFIX.len()..].iter_mut().rev() {
        *place = b"0123456789abcdefghijklmnopqrstuvwxyz"[(id % 36) as usize];
        id /= 36;
    }
    name
}

/// All statements of a service.
#[derive(Debug, Default)]
pub(crate) struct Interned {
    known: Mutex<HashMap<u64, Vec<Arc<Statement>>>>,
    hasher: RandomState,
}

/// A number for a statement; never zero.
pub(crate) fn new_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Relaxed)
}

impl Interned {
    /// The statement of that text and those types; `read` tells what it means if it is new, or if
    /// the catalog has changed since.
    pub(crate) fn statement(
        &self,
        text: &[u8],
        types: &[u8],
        digest: u64,
        catalog: u64,
        read: impl FnOnce() -> Meaning,
    ) -> Arc<Statement> {
        let key = self.hasher.hash_one((text, types, digest));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() > UNUSED_MAX {
            known.retain(|_, alike| {
                alike.retain(|one| Arc::strong_count(one) > 1);
                !alike.is_empty()
            });
        }
        let alike = known.entry(key).or_default();
        let is_same = |one: &&mut Arc<Statement>| {
            *one.text == *text && *one.types == *types && one.digest == digest
        };
        let found = alike.iter_mut().find(is_same);
        let id = match found {
            Some(one) if one.catalog == catalog => return Arc::clone(one),
            Some(ref one) => one.id,
            None => new_id(),
        };
        let statement = Arc::new(Statement {
            id,
            text: text.into(),
            types: types.into(),
            meaning: read(),
            catalog,
            digest,
        });
        alike.retain(|one| one.id != id);
        alike.push(Arc::clone(&statement));
        statement
    }
}

impl Interned {
    /// The same statement, with what is known of the catalog now.
    pub(crate) fn renewed(
        &self,
        statement: &Statement,
        catalog: u64,
        read: impl FnOnce() -> Meaning,
    ) -> Arc<Statement> {
        let Statement {
            text,
            types,
            digest,
            ..
        } = statement;
        self.statement(text, types, *digest, catalog, read)
    }
}

/// One client's names.
#[derive(Debug, Default)]
pub(crate) struct Names {
    known: HashMap<Box<[u8]>, Arc<Statement>>,
    /// What to undo if the server passes over a Parse or Close, oldest first.
    undo: Vec<Undo>,
}

#[derive(Debug)]
struct Undo {
    token: u64,
    segment: u64,
    name: Box<[u8]>,
    before: Option<Arc<Statement>>,
}

impl Names {
    pub(crate) fn get(&self, name: &[u8]) -> Option<&Arc<Statement>> {
        self.known.get(name)
    }

    /// A Parse names a statement; it holds once [`Names::settled`] and not [`Names::discarded`].
    ///
    /// `by` is the token of the Parse, and which of the client's batches it is in.
    pub(crate) fn set(&mut self, by: (u64, u64), name: &[u8], statement: Arc<Statement>) {
        let before = self.known.insert(name.into(), statement);
        let (token, segment) = by;
        let name = name.into();
        self.undo.push(Undo {
            token,
            segment,
            name,
            before,
        });
    }

    /// A Close takes a name away.
    pub(crate) fn remove(&mut self, by: (u64, u64), name: &[u8]) {
        if let Some((name, before)) = self.known.remove_entry(name) {
            let before = Some(before);
            let (token, segment) = by;
            self.undo.push(Undo {
                token,
                segment,
                name,
                before,
            });
        }
    }

    /// An error made the server pass over it.
    pub(crate) fn discarded(&mut self, token: u64) {
        let Some(index) = self.undo.iter().rposition(|undo| undo.token == token) else {
            return;
        };
        let undo = self.undo.remove(index);
        // What came behind it with the same name begins where this one began.
        let mut behind = self.undo.iter_mut().skip(index);
        if let Some(next) = behind.find(|next| next.name == undo.name) {
            next.before = undo.before;
            return;
        }
        match undo.before {
            Some(statement) => self.known.insert(undo.name, statement),
            None => self.known.remove(&undo.name),
        };
    }

    /// All that was not answered for good is run again, or never was.
    pub(crate) fn undone(&mut self) {
        while let Some(undo) = self.undo.last() {
            self.discarded(undo.token);
        }
    }

    /// Everything that was sent has been answered.
    pub(crate) fn settled(&mut self) {
        self.undo.clear();
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.undo.is_empty()
    }

    /// Whether a batch before this one may yet undo what the name means.
    pub(crate) fn is_open(&self, name: &[u8], segment: u64) -> bool {
        let is_it = |undo: &Undo| undo.segment != segment && *undo.name == *name;
        self.undo.iter().any(is_it)
    }

    /// DEALLOCATE ALL, DISCARD ALL.
    pub(crate) fn clear(&mut self) {
        self.known = HashMap::new();
        self.undo.clear();
    }
}

/// Which statements a server connection has, the longest unused first to go.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    used: HashMap<u64, Use>,
    clock: u64,
    /// Parses and Closes that are under way, in their order.
    open: Vec<Open>,
}

#[derive(Debug, Clone, Copy)]
struct Open {
    id: u64,
    /// In which batch of the client.
    segment: u64,
    /// What was there before.
    before: Option<Use>,
}

#[derive(Debug, Clone, Copy)]
struct Use {
    at: u64,
    /// Its plan may be of tables that have changed: it is to be prepared anew.
    is_outdated: bool,
}

impl Prepared {
    /// Whether it has the statement, which counts as a use of it.
    pub(crate) fn has(&mut self, id: u64) -> bool {
        self.clock += 1;
        match self.used.get_mut(&id) {
            Some(used) if !used.is_outdated => {
                used.at = self.clock;
                true
            }
            _ => false,
        }
    }

    /// It is about to have one more. Those to close for it: its own old self, and the one that is
    /// too many.
    pub(crate) fn add(&mut self, id: u64, max: usize, segment: u64) -> [Option<u64>; 2] {
        self.clock += 1;
        let own = self.used.remove(&id);
        if own.is_some() {
            self.opens(id, segment, own);
        }
        self.used.insert(id, self.new_use());
        self.opens(id, segment, None);
        let own = own.map(|_| id);
        if self.used.len() <= max.max(1) {
            return [own, None];
        }
        let oldest = self.used.iter().min_by_key(|(_, used)| used.at);
        let oldest = oldest.map(|(id, used)| (*id, *used));
        if let Some((oldest, used)) = oldest {
            self.used.remove(&oldest);
            self.opens(oldest, segment, Some(used));
        }
        [own, oldest.map(|(oldest, _)| oldest)]
    }

    fn opens(&mut self, id: u64, segment: u64, before: Option<Use>) {
        self.open.push(Open {
            id,
            segment,
            before,
        });
    }

    fn new_use(&self) -> Use {
        Use {
            at: self.clock,
            is_outdated: false,
        }
    }

    /// Something has changed that plans depend on.
    pub(crate) fn outdate(&mut self) {
        for used in self.used.values_mut() {
            used.is_outdated = true;
        }
    }

    /// The oldest Parse or Close of it that is under way has failed or was passed over.
    pub(crate) fn undo(&mut self, id: u64) {
        let oldest = self.open.iter().position(|open| open.id == id);
        let Some(undone) = oldest.map(|index| self.open.remove(index)) else {
            return;
        };
        // The next one begins where this one began.
        let mut behind = self.open.iter_mut().skip(oldest.unwrap_or_default());
        match behind.find(|open| open.id == id) {
            Some(next) => next.before = undone.before,
            None => self.put(id, undone.before),
        }
    }

    /// The last Parse or Close of it was not sent.
    pub(crate) fn not_sent(&mut self, id: u64) {
        let newest = self.open.iter().rposition(|open| open.id == id);
        if let Some(undone) = newest.map(|index| self.open.remove(index)) {
            self.put(id, undone.before);
        }
    }

    fn put(&mut self, id: u64, used: Option<Use>) {
        match used {
            Some(used) => self.used.insert(id, used),
            None => self.used.remove(&id),
        };
    }

    /// Its oldest Parse or Close that is under way was answered.
    pub(crate) fn confirm(&mut self, id: u64) {
        if let Some(index) = self.open.iter().position(|open| open.id == id) {
            self.open.remove(index);
        }
    }

    /// Everything that was sent has been answered.
    pub(crate) fn settled(&mut self) {
        self.open.clear();
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.open.is_empty()
    }

    /// Whether a batch before this one may yet fail to prepare or to close it.
    pub(crate) fn is_open(&self, id: u64, segment: u64) -> bool {
        let is_it = |open: &Open| open.id == id && open.segment != segment;
        self.open.iter().any(is_it)
    }

    /// DEALLOCATE ALL, DISCARD ALL.
    pub(crate) fn clear(&mut self) {
        self.used.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> Meaning {
        crate::state::meaning::read(b"select 1", false, None)
    }

    #[test]
    fn names_are_of_one_length_and_differ() {
        let (first, second) = (name_of(1), name_of(36 * 36 + 5));
        assert_eq!(&first, b"evenkeel00000001");
        assert_eq!(&second, b"evenkeel00000105");
    }

    #[test]
    fn the_longest_unused_is_closed_when_there_are_too_many() {
        let mut prepared = Prepared::default();
        assert_eq!(prepared.add(1, 2, 0), [None, None]);
        assert_eq!(prepared.add(2, 2, 0), [None, None]);
        assert!(prepared.has(1));
        assert_eq!(prepared.add(3, 2, 0), [None, Some(2)]);
        assert!(prepared.has(1) && prepared.has(3) && !prepared.has(2));
    }

    #[test]
    fn an_outdated_statement_is_closed_before_it_is_prepared_anew() {
        let mut prepared = Prepared::default();
        let _ = prepared.add(1, 2, 0);
        prepared.outdate();
        assert!(!prepared.has(1));
        assert_eq!(prepared.add(1, 2, 0), [Some(1), None]);
        assert!(prepared.has(1));
    }

    #[test]
    fn all_that_was_passed_over_leaves_what_was_there_before() {
        let mut prepared = Prepared::default();
        let _ = prepared.add(1, 1, 0);
        prepared.settled();
        assert_eq!(prepared.add(2, 1, 1), [None, Some(1)]);
        assert_eq!(prepared.add(3, 1, 1), [None, Some(2)]);
        assert_eq!(prepared.add(1, 1, 1), [None, Some(3)]);
        for id in [1, 2, 2, 3, 3, 1] {
            prepared.undo(id);
        }
        assert!(prepared.has(1) && !prepared.has(2) && !prepared.has(3));
        assert!(prepared.is_settled());
    }

    #[test]
    fn a_name_is_as_before_when_its_parse_was_passed_over() {
        let statement = |text: &[u8]| Interned::default().statement(text, b"", 0, 0, plain);
        let mut names = Names::default();
        names.set((1, 0), b"a", statement(b"select 1"));
        names.settled();
        names.set((2, 0), b"a", statement(b"select 2"));
        names.discarded(2);
        assert_eq!(&*names.get(b"a").unwrap().text, b"select 1");
        names.remove((3, 0), b"a");
        names.discarded(3);
        assert_eq!(&*names.get(b"a").unwrap().text, b"select 1");
        names.set((4, 0), b"b", statement(b"select 3"));
        names.discarded(4);
        assert!(names.get(b"b").is_none());
        names.remove((5, 0), b"a");
        names.set((6, 0), b"a", statement(b"select 4"));
        names.discarded(5);
        names.discarded(6);
        assert_eq!(&*names.get(b"a").unwrap().text, b"select 1");
    }

    #[test]
    fn one_text_is_one_statement_until_types_or_settings_differ() {
        let interned = Interned::default();
        let id = |types: &[u8], digest| {
            let read = plain;
            interned.statement(b"select $1", types, digest, 0, read).id
        };
        assert_eq!(id(b"", 1), id(b"", 1));
        assert_ne!(id(b"", 1), id(b"\0\0\0\x17", 1));
        assert_ne!(id(b"", 1), id(b"", 2));
    }
}
