//! Prepared statements: the client's names, the statements that all sessions share, and which of
//! them a server connection has.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use evenkeel_wire::sql::Dialect;
use rustc_hash::FxHashMap;

use crate::session::statement_interner::{self, MemorySize, OF_CLIENT_MAX, StatementBudget};
use crate::session_state::analysis::{Effect, TextAnalysis};
use crate::session_state::settings::ParseSettings;

pub(crate) use crate::session::statement_interner::new_id;

/// The length of every name that we give.
pub(crate) const NAME_LENGTH: usize = 16;

/// What every name that we give begins with.
pub(crate) const NAME_PREFIX: &[u8] = b"evenkeel";

/// A statement as clients prepare it.
pub(crate) type Statement = statement_interner::SharedStatement<PrepareContext, Arc<TextAnalysis>>;

/// All statements of a service.
pub(crate) type Interned = statement_interner::StatementInterner<PrepareContext, Arc<TextAnalysis>>;

/// What makes statements of one text different.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PrepareContext {
    /// The OIDs of the parameters' types that the client gave.
    pub(crate) types: Box<[u8]>,
    pub(crate) database: u64,
    /// Which plans were good when its client prepared it.
    pub(crate) plans: u64,
    /// The settings that it is read by.
    pub(crate) by: ParseSettings,
    /// Whether backslashes escape in its plain strings; `None`: it cannot be read.
    pub(crate) backslashes: Option<bool>,
    /// A number if it is one client's own, which means what it says to nobody else; else zero.
    pub(crate) own: u64,
}

impl PrepareContext {
    /// How its text is read, if it can be.
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

/// What names and values of an effect take, as a rule.
const EFFECT: usize = 64;

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

/// Whether a name is one that we give: in a client's SQL it would be somebody else's statement.
pub(crate) fn is_ours(name: &[u8]) -> bool {
    name.len() == NAME_LENGTH && name.starts_with(NAME_PREFIX)
}

/// One client's names.
#[derive(Debug, Default)]
pub(crate) struct ClientStatements {
    known: HashMap<Box<[u8]>, Arc<Statement>>,
    /// What to undo if the server passes over a Parse or Close, oldest first.
    undo: Vec<Undo>,
    /// Behind a DEALLOCATE ALL in the same batch: the names that were given since. The others are
    /// free.
    given_since: Option<HashSet<Box<[u8]>>>,
    share: StatementBudget,
}

#[derive(Debug)]
struct Undo {
    token: u64,
    segment: u64,
    name: Box<[u8]>,
    before: Option<Arc<Statement>>,
    /// The client knows that it was done.
    is_answered: bool,
}

impl ClientStatements {
    pub(crate) fn has_any(&self) -> bool {
        !self.known.is_empty()
    }

    pub(crate) fn get(&self, name: &[u8]) -> Option<&Arc<Statement>> {
        self.known.get(name)
    }

    /// As [`Names::get`], unless a DEALLOCATE ALL is on its way to take the name away.
    pub(crate) fn taken(&self, name: &[u8]) -> Option<&Arc<Statement>> {
        let since = self.given_since.as_ref();
        let is_kept = since.is_none_or(|since| since.contains(name));
        self.known.get(name).filter(|_| is_kept)
    }

    /// DEALLOCATE ALL is on its way.
    pub(crate) fn all_go(&mut self) {
        self.given_since = Some(HashSet::new());
    }

    /// What the name stands for is another statement of the same text from now on.
    pub(crate) fn renew(&mut self, name: &[u8], statement: &Arc<Statement>) {
        if let Some(known) = self.known.get_mut(name) {
            known.clone_from(statement);
        }
    }

    /// Whether the client may have one more.
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

    /// A Parse names a statement; it holds once [`Names::settled`] and not [`Names::discarded`].
    ///
    /// `by` is the token of the Parse, and which of the client's batches it is in.
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
                is_answered: false,
            });
        }
    }

    /// The oldest of that token which is under way was answered; zero is nobody's.
    pub(crate) fn answered(&mut self, token: u64) {
        let is_it = |undo: &&mut Undo| undo.token == token && token != 0 && !undo.is_answered;
        if let Some(undo) = self.undo.iter_mut().find(is_it) {
            undo.is_answered = true;
        }
    }

    /// The server is gone: what it has answered was done, and all else never was.
    pub(crate) fn lost(&mut self) {
        self.undo.retain(|undo| !undo.is_answered);
        self.undone();
    }

    /// An error made the server pass over the oldest of that token which is under way: which name
    /// is what it was before.
    pub(crate) fn discarded(&mut self, token: u64) -> Option<Box<[u8]>> {
        let is_it = |undo: &Undo| undo.token == token && !undo.is_answered;
        let index = self.undo.iter().position(is_it)?;
        let name = self.undo.get(index).map(|undo| undo.name.clone());
        self.take_back(index);
        name
    }

    fn take_back(&mut self, index: usize) {
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
        self.given_since = None;
        while let Some(last) = self.undo.len().checked_sub(1) {
            self.take_back(last);
        }
    }

    /// Everything that was sent has been answered.
    pub(crate) fn settled(&mut self) {
        self.undo.clear();
        self.given_since = None;
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.undo.is_empty()
    }

    /// Whether a batch before this one may yet undo what the name means.
    pub(crate) fn is_open(&self, name: &[u8], segment: u64) -> bool {
        let is_it = |undo: &Undo| undo.segment != segment && *undo.name == *name;
        self.undo.iter().any(is_it)
    }

    /// DEALLOCATE ALL, DISCARD ALL: what is not answered yet was sent behind it, and is to come.
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

/// Which statements a server connection has, the longest unused first to go.
#[derive(Debug, Default)]
pub(crate) struct ServerStatements {
    used: FxHashMap<u64, ServerStatement>,
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
    before: Option<ServerStatement>,
}

#[derive(Debug, Clone, Copy)]
struct ServerStatement {
    at: u64,
    /// Its plan may be of tables that have changed: it is to be prepared anew.
    is_outdated: bool,
}

impl ServerStatements {
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

    fn put(&mut self, id: u64, used: Option<ServerStatement>) {
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

    /// DEALLOCATE ALL, DISCARD ALL: what is under way was sent behind it, and is still to be.
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
            own: 0,
        };
        let read = || Arc::new(crate::session_state::analysis::read(text, false, None));
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
        // Its Close and its Parse are passed over: what was there before is gone.
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
        names.lost();
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
