//! Tracks prepared statements: the client's names, the statements that sessions share, and those
//! present on a server connection.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use evenkeel_sql::Dialect;
use rustc_hash::FxHashMap;

use crate::session::statement_interner::{self, MemorySize, OF_CLIENT_MAX, StatementBudget};
use evenkeel_sql::session_state::analysis::{Effect, TextAnalysis};
use evenkeel_sql::session_state::settings::ParseSettings;

pub(crate) use crate::session::statement_interner::new_id;

/// Length of each statement name that Evenkeel assigns.
pub(crate) const NAME_LENGTH: usize = 16;

/// Prefix of each statement name that Evenkeel assigns.
pub(crate) const NAME_PREFIX: &[u8] = b"evenkeel";

/// Statement as clients prepare it.
pub(crate) type Statement = statement_interner::SharedStatement<PrepareContext, Arc<TextAnalysis>>;

/// All statements of a service.
pub(crate) type Interned = statement_interner::StatementInterner<PrepareContext, Arc<TextAnalysis>>;

/// Context that distinguishes statements of the same text.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PrepareContext {
    /// OIDs of the parameter types that the client specified.
    pub(crate) types: Box<[u8]>,
    pub(crate) database: u64,
    /// Version of the plans that were valid when the client prepared it.
    pub(crate) plans: u64,
    /// Settings by which it is parsed.
    pub(crate) by: ParseSettings,
    /// True if backslashes escape in its plain strings; `None`: it cannot be analyzed.
    pub(crate) backslashes: Option<bool>,
    /// Unique number if the statement belongs to one client only; otherwise zero.
    pub(crate) exclusive_id: u64,
}

impl PrepareContext {
    /// Returns how its text is parsed; `None`: it cannot be analyzed.
    pub(crate) fn dialect(&self) -> Option<Dialect> {
        let backslashes = self.backslashes?;
        Some(Dialect::Postgres { backslashes })
    }
}

impl MemorySize for PrepareContext {
    fn weight(&self) -> usize {
        self.types.len()
    }
}

impl MemorySize for Arc<TextAnalysis> {
    fn weight(&self) -> usize {
        size_of_val(&*self.statements) + self.effects.len() * (size_of::<Effect>() + EFFECT)
    }
}

/// Typical size in bytes of an effect's names and values.
const EFFECT: usize = 64;

impl Statement {
    /// Returns its name on servers.
    pub(crate) fn name(&self) -> [u8; NAME_LENGTH] {
        name_of(self.id)
    }
}

/// Returns a statement's name on servers.
pub(crate) fn name_of(id: u64) -> [u8; NAME_LENGTH] {
    let mut name = *b"evenkeel00000000";
    let mut id = id;
    for place in name[NAME_PREFIX.len()..].iter_mut().rev() {
        *place = b"0123456789abcdefghijklmnopqrstuvwxyz"[(id % 36) as usize];
        id /= 36;
    }
    name
}

/// Returns whether Evenkeel assigns such names: in a client's SQL it would refer to another
/// session's statement.
pub(crate) fn is_ours(name: &[u8]) -> bool {
    name.len() == NAME_LENGTH && name.starts_with(NAME_PREFIX)
}

/// Prepared statements of one client, by name.
#[derive(Debug, Default)]
pub(crate) struct ClientStatements {
    known: HashMap<Box<[u8]>, Arc<Statement>>,
    /// Changes to undo if the server skips a Parse or Close, oldest first.
    undo: Vec<Undo>,
    /// Names assigned after a DEALLOCATE ALL in the same batch; all others are free. `None`: there
    /// was none.
    given_since: Option<HashSet<Box<[u8]>>>,
    share: StatementBudget,
}

#[derive(Debug)]
struct Undo {
    token: u64,
    segment: u64,
    name: Box<[u8]>,
    before: Option<Arc<Statement>>,
    /// True if the client has received the reply.
    is_answered: bool,
}

impl ClientStatements {
    pub(crate) fn has_any(&self) -> bool {
        !self.known.is_empty()
    }

    pub(crate) fn get(&self, name: &[u8]) -> Option<&Arc<Statement>> {
        self.known.get(name)
    }

    /// Like [`Self::get`], unless a DEALLOCATE ALL in flight removes the name.
    pub(crate) fn taken(&self, name: &[u8]) -> Option<&Arc<Statement>> {
        let since = self.given_since.as_ref();
        let is_kept = since.is_none_or(|since| since.contains(name));
        self.known.get(name).filter(|_| is_kept)
    }

    /// Records that a DEALLOCATE ALL is in flight.
    pub(crate) fn all_go(&mut self) {
        self.given_since = Some(HashSet::new());
    }

    /// Replaces a name's statement by another of the same text.
    pub(crate) fn renew(&mut self, name: &[u8], statement: &Arc<Statement>) {
        if let Some(known) = self.known.get_mut(name) {
            known.clone_from(statement);
        }
    }

    /// Returns whether the client may prepare another statement.
    pub(crate) fn has_room(&mut self, name: &[u8], statement: &Statement) -> bool {
        let (known, undo) = (&self.known, &self.undo);
        let weight = |name: &[u8], one: &Statement| 2 * name.len() + one.weight();
        let has = || {
            let known = known.iter().map(|(name, one)| weight(name, one));
            let before = undo.iter().filter_map(|undo| undo.before.as_deref());
            known.chain(before.map(|one| weight(b"", one))).sum()
        };
        known.len() < OF_CLIENT_MAX && self.share.takes(weight(name, statement), has)
    }

    /// Records a Parse, which remains in effect once [`Self::settled`] and not [`Self::discarded`].
    ///
    /// `by` holds the Parse's token and the number of its batch.
    pub(crate) fn set(&mut self, by: (u64, u64), name: &[u8], statement: Arc<Statement>) {
        let before = self.known.insert(name.into(), statement);
        if let Some(since) = &mut self.given_since {
            since.insert(name.into());
        }
        let (token, segment) = by;
        let name = name.into();
        self.undo.push(Undo {
            token,
            segment,
            name,
            before,
            is_answered: false,
        });
    }

    /// Records a Close of a name.
    pub(crate) fn remove(&mut self, by: (u64, u64), name: &[u8]) {
        if let Some((name, before)) = self.known.remove_entry(name) {
            let before = Some(before);
            let (token, segment) = by;
            self.undo.push(Undo {
                token,
                segment,
                name,
                before,
                is_answered: false,
            });
        }
    }

    /// Marks the oldest change in flight of that token as answered; zero is no token.
    pub(crate) fn answered(&mut self, token: u64) {
        let is_it = |undo: &&mut Undo| undo.token == token && token != 0 && !undo.is_answered;
        if let Some(undo) = self.undo.iter_mut().find(is_it) {
            undo.is_answered = true;
        }
    }

    /// Undoes all unanswered changes after the server was lost; answered ones remain.
    pub(crate) fn undo_unanswered(&mut self) {
        self.undo.retain(|undo| !undo.is_answered);
        self.undone();
    }

    /// Undoes the oldest change in flight of that token, which the server skipped after an error.
    pub(crate) fn discarded(&mut self, token: u64) {
        let is_it = |undo: &Undo| undo.token == token && !undo.is_answered;
        if let Some(index) = self.undo.iter().position(is_it) {
            self.take_back(index);
        }
    }

    fn take_back(&mut self, index: usize) {
        let undo = self.undo.remove(index);
        // A later change of the same name then starts from the state before this one.
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

    /// Undoes all changes that are not settled: they are repeated, or were without effect.
    pub(crate) fn undone(&mut self) {
        self.given_since = None;
        while let Some(last) = self.undo.len().checked_sub(1) {
            self.take_back(last);
        }
    }

    /// Records that all requests have been answered.
    pub(crate) fn settled(&mut self) {
        self.undo.clear();
        self.given_since = None;
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.undo.is_empty()
    }

    /// Returns whether an earlier batch may yet undo the name's change.
    pub(crate) fn is_open(&self, name: &[u8], segment: u64) -> bool {
        let is_it = |undo: &Undo| undo.segment != segment && *undo.name == *name;
        self.undo.iter().any(is_it)
    }

    /// Applies a DEALLOCATE of a name. Later Parses of it are held until its end.
    pub(crate) fn deallocated(&mut self, name: &[u8]) {
        self.undo.retain(|undo| *undo.name != *name);
        self.known.remove(name);
    }

    /// Applies a DEALLOCATE ALL or DISCARD ALL: unanswered changes were sent after it and are still
    /// to come.
    pub(crate) fn clear(&mut self) {
        self.undo.retain(|undo| !undo.is_answered);
        let mut behind: HashSet<&[u8]> = HashSet::new();
        for undo in &mut self.undo {
            if behind.insert(&undo.name) {
                undo.before = None;
            }
        }
        self.known.retain(|name, _| behind.contains(&**name));
        self.given_since = None;
        self.share = StatementBudget::default();
    }
}

/// Statements on a server connection; the least recently used is closed first.
#[derive(Debug, Default)]
pub(crate) struct ServerStatements {
    used: FxHashMap<u64, ServerStatement>,
    clock: u64,
    /// Parses and Closes in flight, in order.
    open: Vec<Open>,
}

#[derive(Debug, Clone, Copy)]
struct Open {
    id: u64,
    /// Batch of the client.
    segment: u64,
    /// Statement before the change.
    before: Option<ServerStatement>,
}

#[derive(Debug, Clone, Copy)]
struct ServerStatement {
    at: u64,
    /// True if its plan may depend on changed tables, so that it must be prepared again.
    is_outdated: bool,
}

impl ServerStatements {
    /// Returns whether the statement is present and current, which counts as a use.
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

    /// Adds a statement. Returns those to close before: its outdated version, and one over the
    /// limit.
    pub(crate) fn add(&mut self, id: u64, max: usize, segment: u64) -> [Option<u64>; 2] {
        self.clock += 1;
        let previous = self.used.remove(&id);
        if previous.is_some() {
            self.opens(id, segment, previous);
        }
        self.used.insert(id, self.new_use());
        self.opens(id, segment, None);
        let previous = previous.map(|_| id);
        if self.used.len() <= max.max(1) {
            return [previous, None];
        }
        let oldest = self.used.iter().min_by_key(|(_, used)| used.at);
        let oldest = oldest.map(|(id, used)| (*id, *used));
        if let Some((oldest, used)) = oldest {
            self.used.remove(&oldest);
            self.opens(oldest, segment, Some(used));
        }
        [previous, oldest.map(|(oldest, _)| oldest)]
    }

    fn opens(&mut self, id: u64, segment: u64, before: Option<ServerStatement>) {
        self.open.push(Open {
            id,
            segment,
            before,
        });
    }

    fn new_use(&self) -> ServerStatement {
        ServerStatement {
            at: self.clock,
            is_outdated: false,
        }
    }

    /// Marks all statements as outdated, because their plans may depend on what has changed.
    pub(crate) fn outdate(&mut self) {
        for used in self.used.values_mut() {
            used.is_outdated = true;
        }
    }

    /// Undoes the oldest Parse or Close in flight of the statement, which failed or was skipped.
    pub(crate) fn undo(&mut self, id: u64) {
        let oldest = self.open.iter().position(|open| open.id == id);
        let Some(undone) = oldest.map(|index| self.open.remove(index)) else {
            return;
        };
        // The next change then starts from the state before this one.
        let mut behind = self.open.iter_mut().skip(oldest.unwrap_or_default());
        match behind.find(|open| open.id == id) {
            Some(next) => next.before = undone.before,
            None => self.put(id, undone.before),
        }
    }

    /// Undoes the last Parse or Close of the statement, which was not sent.
    pub(crate) fn not_sent(&mut self, id: u64) {
        let newest = self.open.iter().rposition(|open| open.id == id);
        if let Some(undone) = newest.map(|index| self.open.remove(index)) {
            self.put(id, undone.before);
        }
    }

    fn put(&mut self, id: u64, used: Option<ServerStatement>) {
        match used {
            Some(used) => self.used.insert(id, used),
            None => self.used.remove(&id),
        };
    }

    /// Confirms the oldest Parse or Close in flight of the statement.
    pub(crate) fn confirm(&mut self, id: u64) {
        if let Some(index) = self.open.iter().position(|open| open.id == id) {
            self.open.remove(index);
        }
    }

    /// Records that all requests have been answered.
    pub(crate) fn settled(&mut self) {
        self.open.clear();
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.open.is_empty()
    }

    /// Returns whether an earlier batch may yet fail to prepare or close the statement.
    pub(crate) fn is_open(&self, id: u64, segment: u64) -> bool {
        let is_it = |open: &Open| open.id == id && open.segment != segment;
        self.open.iter().any(is_it)
    }

    /// Applies a DEALLOCATE ALL or DISCARD ALL: changes in flight were sent after it and remain.
    pub(crate) fn clear(&mut self) {
        let mut behind = HashSet::new();
        for open in &mut self.open {
            if behind.insert(open.id) {
                open.before = None;
            }
        }
        self.used.retain(|id, _| behind.contains(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(text: &[u8]) -> Arc<Statement> {
        let within = PrepareContext {
            types: Box::default(),
            database: 0,
            plans: 0,
            by: ParseSettings::default(),
            backslashes: None,
            exclusive_id: 0,
        };
        let read = || {
            Arc::new(evenkeel_sql::session_state::analysis::read(
                text, false, None,
            ))
        };
        Interned::default().statement(text, &within, 0, read)
    }

    #[test]
    fn names_are_of_one_length_and_differ() {
        let (first, second) = (name_of(1), name_of(36 * 36 + 5));
        assert_eq!(&first, b"evenkeel00000001");
        assert_eq!(&second, b"evenkeel00000105");
    }

    #[test]
    fn the_longest_unused_is_closed_when_there_are_too_many() {
        let mut prepared = ServerStatements::default();
        assert_eq!(prepared.add(1, 2, 0), [None, None]);
        assert_eq!(prepared.add(2, 2, 0), [None, None]);
        assert!(prepared.has(1));
        assert_eq!(prepared.add(3, 2, 0), [None, Some(2)]);
        assert!(prepared.has(1) && prepared.has(3) && !prepared.has(2));
    }

    #[test]
    fn an_outdated_statement_is_closed_before_it_is_prepared_anew() {
        let mut prepared = ServerStatements::default();
        let _ = prepared.add(1, 2, 0);
        prepared.outdate();
        assert!(!prepared.has(1));
        assert_eq!(prepared.add(1, 2, 0), [Some(1), None]);
        assert!(prepared.has(1));
    }

    #[test]
    fn all_that_was_passed_over_leaves_what_was_there_before() {
        let mut prepared = ServerStatements::default();
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
        let mut names = ClientStatements::default();
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
    fn deallocate_all_leaves_what_was_prepared_behind_it() {
        let mut prepared = ServerStatements::default();
        for id in [1, 2] {
            let _ = prepared.add(id, 9, 0);
        }
        prepared.settled();
        prepared.outdate();
        assert_eq!(prepared.add(2, 9, 0), [Some(2), None]);
        let _ = prepared.add(3, 9, 0);
        prepared.clear();
        assert!(!prepared.has(1) && prepared.has(2) && prepared.has(3));
        // Its Close and its Parse are skipped: the previous version no longer exists.
        prepared.undo(2);
        prepared.undo(2);
        assert!(!prepared.has(2) && prepared.has(3));
        let mut names = ClientStatements::default();
        names.set((1, 0), b"before", statement(b"select 1"));
        names.set((2, 0), b"again", statement(b"select 2"));
        names.settled();
        names.remove((3, 0), b"again");
        names.set((4, 0), b"again", statement(b"select 3"));
        names.clear();
        assert!(names.get(b"before").is_none());
        assert_eq!(&*names.get(b"again").unwrap().text, b"select 3");
        names.undone();
        assert!(names.get(b"again").is_none());
    }

    #[test]
    fn of_several_parses_of_one_text_an_error_undoes_the_oldest_that_is_not_answered() {
        let mut names = ClientStatements::default();
        names.set((1, 0), b"answered", statement(b"select 1"));
        names.answered(1);
        names.set((1, 1), b"passed over", statement(b"select 1"));
        names.set((1, 2), b"to come", statement(b"select 1"));
        names.discarded(1);
        assert!(names.get(b"answered").is_some());
        assert!(names.get(b"passed over").is_none());
        assert!(names.get(b"to come").is_some());
    }

    #[test]
    fn of_a_server_that_is_gone_names_are_what_it_has_answered() {
        let mut names = ClientStatements::default();
        names.set((1, 0), b"gone", statement(b"select 1"));
        names.settled();
        names.set((2, 0), b"told", statement(b"select 2"));
        names.set((3, 0), b"untold", statement(b"select 3"));
        names.remove((4, 0), b"gone");
        names.set((5, 0), b"gone", statement(b"select 4"));
        names.answered(2);
        names.answered(4);
        names.undo_unanswered();
        assert!(names.is_settled());
        assert!(names.get(b"told").is_some());
        assert!(names.get(b"untold").is_none());
        assert!(names.get(b"gone").is_none());
    }

    #[test]
    fn a_client_has_so_many_names_and_no_more() {
        let mut names = ClientStatements::default();
        let one = statement(b"select 1");
        for number in 0..OF_CLIENT_MAX {
            let name = number.to_string();
            assert!(names.has_room(name.as_bytes(), &one));
            names.set((1, 0), name.as_bytes(), Arc::clone(&one));
        }
        assert!(!names.has_room(b"one more", &one));
        names.remove((2, 0), b"0");
        assert!(names.has_room(b"one more", &one));
    }

    #[test]
    fn what_may_still_be_undone_counts_for_a_client() {
        let mut names = ClientStatements::default();
        let long = statement(&[b' '; 1024 * 1024]);
        let mut prepares_and_closes = || {
            let has_room = names.has_room(b"a", &long);
            if has_room {
                names.set((1, 0), b"a", Arc::clone(&long));
                names.remove((2, 0), b"a");
            }
            has_room
        };
        let times = (0..100).take_while(|_| prepares_and_closes()).count();
        assert_eq!(times, 63);
        names.settled();
        assert!(names.has_room(b"a", &long));
    }
}
