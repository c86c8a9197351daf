//! Manages prepared statements: the client's ids, the statements shared by all sessions, and those
//! that a server connection has.

use std::sync::Arc;

use evenkeel_wire::mysql::StatementId;
use rustc_hash::FxHashMap;

use super::execution_history::ExecutionHistory;
use crate::service::rules::AppliedRules;
use crate::session::statement_interner::{
    self, MemorySize, OF_CLIENT_MAX, StatementBudget, new_id,
};
use evenkeel_sql::session_state::mysql::{Effect, TextAnalysis};

/// Statement as prepared by clients.
pub(crate) type Statement = statement_interner::SharedStatement<PrepareContext, TextAnalysis>;

/// All statements of a service.
pub(crate) type Interned = statement_interner::StatementInterner<PrepareContext, TextAnalysis>;

impl Statement {
    /// Returns a copy that is a separate statement for the servers.
    pub(super) fn copy(&self) -> Statement {
        Statement {
            id: new_id(),
            ..self.clone()
        }
    }
}

impl MemorySize for PrepareContext {
    fn weight(&self) -> usize {
        self.schema.as_ref().map_or(0, |schema| schema.len()) + READING_WEIGHT
    }
}

/// Typical size in bytes of the modes, character sets and collations.
const READING_WEIGHT: usize = 200;

impl MemorySize for TextAnalysis {
    fn weight(&self) -> usize {
        size_of_val(&*self.statements) + self.effects.len() * (size_of::<Effect>() + EFFECT)
    }
}

/// Typical size in bytes of the names and values of an effect.
const EFFECT: usize = 64;

/// Context in which a text is prepared; determines the meaning of names and strings in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct PrepareContext {
    pub(crate) schema: Option<Box<[u8]>>,
    /// Values of the variables in [`READING`].
    pub(crate) reading: [Option<Box<[u8]>>; READING.len()],
}

/// Variables that affect parsing, and those that servers evaluate when preparing a statement but
/// not when executing it (MySQL since 8.0.22).
pub(crate) const READING: [&[u8]; 14] = [
    b"sql_mode",
    b"character_set_client",
    b"collation_connection",
    b"default_week_format",
    b"div_precision_increment",
    b"group_concat_max_len",
    b"lc_time_names",
    // MariaDB 11: collation of `_utf8mb4'…'`.
    b"character_set_collations",
    // MySQL: instant that `TIMESTAMP'… 00:00:00+00:00'` denotes.
    b"time_zone",
    // MariaDB: whether DROP and ALTER imply IF EXISTS.
    b"sql_if_exists",
    // MariaDB: meaning of `utf8`.
    b"old_mode",
    // MySQL: columns of EXPLAIN and their contents.
    b"explain_format",
    b"explain_json_format_version",
    // MySQL: collation of a bare `utf8mb4`.
    b"default_collation_for_utf8mb4",
];

impl PrepareContext {
    /// Returns the SET statements that switch from `now` to this context and back; empty if there
    /// is no difference. An unknown value, such as the collation right after SET NAMES, is not
    /// changed. Returns `None` if a value cannot be written.
    pub(crate) fn settings(&self, now: &PrepareContext) -> Option<(Vec<u8>, Vec<u8>)> {
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
    // A number in quotes is rejected, and '' is NULL in one of MariaDB's modes.
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let (open, close): (&[u8], &[u8]) = match (value, is_number) {
        ([], _) => (b"x'", b"'"),
        (_, true) => (b"", b""),
        (_, false) => (b"'", b"'"),
    };
    for part in [before, name, b"=", open, value, close] {
        text.extend_from_slice(part);
    }
    Some(())
}

/// Returns whether a value has only characters of modes, character sets, collations and time zones.
fn is_plain(value: &[u8]) -> bool {
    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"_,:+-/".contains(byte);
    value.iter().all(is_of_name)
}

/// Statements of one client, by the ids assigned to them.
#[derive(Debug, Default)]
pub(crate) struct ClientStatements {
    known: FxHashMap<u32, ClientStatement>,
    given: u32,
    /// Statement that [`StatementId::LAST`] refers to.
    last: Option<u32>,
    share: StatementBudget,
    /// True if one of the statements may hold a cursor or long data.
    may_hold: bool,
}

/// Prepared statement of a client.
#[derive(Debug)]
pub(crate) struct ClientStatement {
    pub(crate) statement: Arc<Statement>,
    pub(crate) parameters: u16,
    /// Parameter types that the client sent last; an execution may omit them.
    pub(crate) types: Box<[u8]>,
    /// True if long data of the client reached no server.
    pub(crate) lacks_data: bool,
    /// Result of the rules; `None` if there were none when it was determined.
    pub(crate) rules: Option<AppliedRules>,
    /// True if the statement may have an open cursor or long data.
    pub(crate) holds: bool,
    /// True if no other id refers to the same statement at a server.
    is_own: bool,
}

impl ClientStatement {
    /// Returns the size in bytes charged to the client's budget.
    fn weight(&self) -> usize {
        self.statement.weight() + self.types.len()
    }
}

impl ClientStatements {
    /// Returns the id that the next statement receives if the server accepts it.
    pub(crate) fn next(&self) -> StatementId {
        // MariaDB's LAST must not be assigned.
        StatementId(match self.given {
            number if number >= u32::MAX - 1 => 1,
            number => number + 1,
        })
    }

    /// Returns whether the client's budget permits another statement.
    pub(crate) fn has_room(&mut self, statement: &Statement) -> bool {
        let known = &self.known;
        let has = || known.values().map(ClientStatement::weight).sum();
        known.len() < OF_CLIENT_MAX && self.share.takes(statement.weight(), has)
    }

    /// Records the parameter types. Returns false if the client's budget is exhausted.
    pub(crate) fn bind(&mut self, number: u32, types: &[u8]) -> bool {
        let is_same = |named: &ClientStatement| *named.types == *types;
        if self.known.get(&number).is_some_and(is_same) {
            return true;
        }
        let known = &self.known;
        let has = || known.values().map(ClientStatement::weight).sum();
        let has_room = self.share.takes(types.len(), has);
        if let Some(named) = self.known.get_mut(&number).filter(|_| has_room) {
            named.types = types.into();
        }
        has_room
    }

    /// Adds a statement that a server has prepared.
    pub(crate) fn prepared(
        &mut self,
        statement: &Arc<Statement>,
        parameters: u16,
        rules: Option<AppliedRules>,
    ) {
        let number = self.next().0;
        self.given = number;
        self.last = Some(number);
        let named = ClientStatement {
            statement: Arc::clone(statement),
            parameters,
            types: Box::default(),
            lacks_data: false,
            rules,
            holds: false,
            is_own: false,
        };
        self.known.insert(number, named);
    }

    /// Makes the statement a separate one if another id with the same statement holds a cursor or
    /// long data. A server has only one statement for the same text and context, so its use would
    /// discard that state.
    pub(crate) fn separate(&mut self, number: u32) {
        let Some(named) = self.known.get(&number) else {
            return;
        };
        let id = named.statement.id;
        let mut others = self.known.iter().filter(|(other, _)| **other != number);
        let is_held = others.any(|(_, other)| other.holds && other.statement.id == id);
        if is_held {
            self.make_own(number, false);
        }
    }

    /// Makes the statement exclusive to this client before long data is sent. A server takes such
    /// data as a continuation of the value in the last execution, possibly another client's.
    ///
    /// `is_held`: the client's server holds a cursor or long data for one of its statements.
    pub(crate) fn make_own(&mut self, number: u32, is_held: bool) {
        let named = self.known.get_mut(&number);
        let is_shared = |named: &&mut ClientStatement| !(named.is_own || named.holds && is_held);
        if let Some(named) = named.filter(is_shared) {
            named.statement = Arc::new(named.statement.copy());
            named.is_own = true;
        }
    }

    /// Records the current analysis of the statement, so that it need not be determined again. The
    /// statement's identity at servers stays the same, even if it is exclusive to the client.
    pub(crate) fn renew(&mut self, number: u32, current: Arc<Statement>) -> Arc<Statement> {
        let Some(named) = self.known.get_mut(&number) else {
            return current;
        };
        let id = named.statement.id;
        named.statement = match current.id == id {
            true => current,
            false => Arc::new(Statement {
                id,
                ..Statement::clone(&current)
            }),
        };
        Arc::clone(&named.statement)
    }

    /// Invalidates LAST while a statement is being prepared, as MariaDB does.
    pub(crate) fn not_prepared(&mut self) {
        self.last = None;
    }

    /// Returns the id that was assigned last.
    pub(crate) fn last(&self) -> StatementId {
        StatementId(self.given)
    }

    /// Returns the numeric id, with LAST resolved.
    pub(crate) fn number(&self, number: StatementId) -> u32 {
        match number {
            StatementId::LAST => self.last.unwrap_or(u32::MAX),
            StatementId(number) => number,
        }
    }

    /// Records whether the statement will hold a cursor or long data on the server.
    pub(crate) fn will_hold(&mut self, number: u32, holds: bool) {
        self.may_hold |= holds;
        if let Some(named) = self.known.get_mut(&number) {
            named.holds = holds;
        }
    }

    /// Records that the server holds nothing for any statement. A requested cursor was not opened,
    /// was read to its end, or was closed by a reset.
    pub(crate) fn hold_nothing(&mut self) {
        if std::mem::take(&mut self.may_hold) {
            self.known
                .values_mut()
                .for_each(|named| named.holds = false);
        }
    }

    /// Returns whether any statement may hold a cursor or long data on a server.
    pub(crate) fn hold(&self) -> bool {
        self.known.values().any(|named| named.holds)
    }

    /// Returns the statements that may hold a cursor or long data.
    pub(crate) fn holding(&self) -> impl Iterator<Item = u64> {
        let holding = self.known.values().filter(|named| named.holds);
        holding.map(|named| named.statement.id)
    }

    pub(crate) fn get(&self, number: u32) -> Option<&ClientStatement> {
        self.known.get(&number)
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut ClientStatement> {
        self.known.get_mut(&number)
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<ClientStatement> {
        if self.last == Some(number) {
            self.last = None;
        }
        let removed = self.known.remove(&number);
        if self.known.is_empty() {
            self.known.shrink_to_fit();
        }
        removed
    }

    /// Removes all statements, for COM_RESET_CONNECTION.
    pub(crate) fn clear(&mut self) {
        *self = Self {
            given: self.given,
            ..Self::default()
        };
    }
}

/// Statements that a server connection has; the least recently used is evicted first.
#[derive(Debug, Default)]
pub(crate) struct ServerStatements {
    known: FxHashMap<u64, ServerStatement>,
    clock: u64,
}

/// Statement on a server connection.
#[derive(Debug)]
pub(crate) struct ServerStatement {
    pub(crate) number: StatementId,
    used: u64,
    /// Parameter types that the last execution on this connection sent.
    pub(crate) types: Box<[u8]>,
    pub(super) executed: ExecutionHistory,
}

impl ServerStatements {
    /// Returns the statement if present, and counts as a use of it.
    pub(crate) fn get(&mut self, id: u64) -> Option<&mut ServerStatement> {
        self.clock += 1;
        let there = self.known.get_mut(&id)?;
        there.used = self.clock;
        Some(there)
    }

    /// Returns the server's id of the statement, without counting as a use.
    pub(crate) fn number(&self, id: u64) -> Option<StatementId> {
        self.known.get(&id).map(|there| there.number)
    }

    /// Returns the execution history of the statement, without counting as a use.
    pub(super) fn executed(&self, id: u64) -> Option<&ExecutionHistory> {
        self.known.get(&id).map(|there| &there.executed)
    }

    /// Returns the parameter types of its last execution, without counting as a use.
    pub(crate) fn types(&self, id: u64) -> Option<&[u8]> {
        self.known.get(&id).map(|there| &*there.types)
    }

    /// Forgets the parameter types after a failed execution, since the server may not have stored
    /// them.
    pub(crate) fn forget_types(&mut self, id: u64) {
        if let Some(there) = self.known.get_mut(&id) {
            there.types = Box::default();
        }
    }

    /// Adds a statement that the server has prepared. Returns the previous id of the same
    /// statement, which must be closed.
    pub(crate) fn add(&mut self, id: u64, number: StatementId) -> Option<StatementId> {
        self.clock += 1;
        let there = ServerStatement {
            number,
            used: self.clock,
            types: Box::default(),
            executed: ExecutionHistory::default(),
        };
        let old = self.known.insert(id, there)?;
        Some(old.number)
    }

    /// Removes the least recently used statement if there are more than `max`, and returns its id.
    /// Statements in `stay` are never removed.
    pub(crate) fn evict(&mut self, max: usize, stay: &[u64]) -> Option<StatementId> {
        if self.known.len() <= max.max(1) {
            return None;
        }
        let may_go = self.known.iter().filter(|(id, _)| !stay.contains(id));
        let oldest = may_go.min_by_key(|(_, there)| there.used);
        let id = oldest.map(|(id, _)| *id)?;
        self.known.remove(&id).map(|there| there.number)
    }

    /// Removes all statements after the server has closed them.
    pub(crate) fn clear(&mut self) {
        self.known.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_unused_is_closed_when_there_are_too_many() {
        let mut prepared = ServerStatements::default();
        for id in 1..=2 {
            assert_eq!(prepared.add(id, StatementId(id as u32 + 10)), None);
        }
        assert!(prepared.get(1).is_some());
        assert_eq!(prepared.evict(2, &[]), None);
        prepared.add(3, StatementId(13));
        assert_eq!(prepared.evict(2, &[]), Some(StatementId(12)));
        assert_eq!(prepared.evict(2, &[]), None);
        assert_eq!(prepared.number(2), None);
        assert_eq!(prepared.number(1), Some(StatementId(11)));
        prepared.add(4, StatementId(14));
        assert_eq!(prepared.evict(2, &[1]), Some(StatementId(13)));
        assert_eq!(prepared.evict(1, &[1, 4]), None, "they hold something");
    }

    #[test]
    fn a_statement_that_is_prepared_again_gives_its_old_number_up() {
        let mut prepared = ServerStatements::default();
        prepared.add(1, StatementId(5));
        assert_eq!(prepared.add(1, StatementId(6)), Some(StatementId(5)));
        assert_eq!(prepared.number(1), Some(StatementId(6)));
    }

    #[test]
    fn a_text_is_read_as_it_was_where_that_is_known() {
        let within = |mode: &[u8], collation: Option<&[u8]>| {
            let mut within = PrepareContext::default();
            within.reading[0] = Some(mode.into());
            within.reading[1] = Some(b"utf8mb4"[..].into());
            within.reading[2] = collation.map(Box::from);
            within
        };
        let then = within(b"ANSI,NO_ZERO_DATE", Some(b"utf8mb4_bin"));
        let (there, back) = then.settings(&within(b"", None)).unwrap();
        assert_eq!(there, b"SET @@session.sql_mode='ANSI,NO_ZERO_DATE'");
        assert_eq!(back, b"SET @@session.sql_mode=x''");
        let same = then.settings(&then.clone()).unwrap();
        assert!(same.0.is_empty() && same.1.is_empty());
        let odd = within(b"it's", None);
        assert_eq!(odd.settings(&then), None);
        let now = within(b"ANSI", Some(b"latin1_bin"));
        let (there, _) = then.settings(&now).unwrap();
        let both: &[u8] = b"SET @@session.sql_mode='ANSI,NO_ZERO_DATE', \
            @@session.collation_connection='utf8mb4_bin'";
        assert_eq!(there, both);
        let mut precise = then.clone();
        let mut rough = then.clone();
        precise.reading[4] = Some(b"10"[..].into());
        rough.reading[4] = Some(b"4"[..].into());
        let (there, _) = precise.settings(&rough).unwrap();
        assert_eq!(there, b"SET @@session.div_precision_increment=10");
    }

    #[test]
    fn a_statement_parts_from_one_of_its_client_s_that_holds_something() {
        let statement = Interned::default().statement(
            b"SELECT 1",
            &PrepareContext::default(),
            0,
            TextAnalysis::default,
        );
        let mut numbers = ClientStatements::default();
        numbers.prepared(&statement, 0, None);
        numbers.prepared(&statement, 0, None);
        let id = |numbers: &ClientStatements, number| numbers.get(number).unwrap().statement.id;
        numbers.separate(2);
        assert_eq!(id(&numbers, 2), statement.id);
        numbers.get_mut(1).unwrap().holds = true;
        numbers.separate(1);
        numbers.separate(2);
        assert_eq!(id(&numbers, 1), statement.id);
        assert_ne!(id(&numbers, 2), statement.id);
    }

    #[test]
    fn a_newer_meaning_is_kept_at_the_number_and_the_statement_stays_what_servers_know() {
        let all = Interned::default();
        let known_with = |catalog| {
            all.statement(
                b"SELECT ?",
                &PrepareContext::default(),
                catalog,
                TextAnalysis::default,
            )
        };
        let mut numbers = ClientStatements::default();
        numbers.prepared(&known_with(1), 1, None);
        numbers.prepared(&known_with(1), 1, None);
        numbers.make_own(2, false);
        for number in [1, 2] {
            let id = numbers.get(number).unwrap().statement.id;
            let current = numbers.renew(number, known_with(2));
            assert_eq!((current.id, current.catalog), (id, 2));
            let kept = &numbers.get(number).unwrap().statement;
            assert!(Arc::ptr_eq(kept, &current));
        }
        let shared = known_with(2);
        assert!(Arc::ptr_eq(&numbers.get(1).unwrap().statement, &shared));
        assert_ne!(numbers.get(2).unwrap().statement.id, shared.id);
    }

    /// Checks this because a server appends long data to the value of the last execution.
    #[test]
    fn long_data_goes_to_a_statement_of_the_client_s_own_unless_the_server_holds_some() {
        let statement = Interned::default().statement(
            b"SELECT ?",
            &PrepareContext::default(),
            0,
            TextAnalysis::default,
        );
        let sent_behind = |before: &dyn Fn(&mut ClientStatements), is_held: bool| {
            let mut numbers = ClientStatements::default();
            numbers.prepared(&statement, 1, None);
            before(&mut numbers);
            numbers.make_own(1, is_held);
            numbers.get(1).unwrap().statement.id == statement.id
        };
        let pending = |numbers: &mut ClientStatements| numbers.will_hold(1, true);
        assert!(sent_behind(&pending, true), "the cursor is open");
        assert!(
            !sent_behind(&pending, false),
            "it is gone with its connection"
        );
        let over = |numbers: &mut ClientStatements| {
            numbers.will_hold(1, true);
            numbers.hold_nothing();
        };
        assert!(!sent_behind(&over, true), "another one is open");
        assert!(!sent_behind(&|_| {}, true));
    }

    #[test]
    fn a_client_has_so_many_statements_and_no_more() {
        let statement = |text: &[u8]| {
            let within = PrepareContext::default();
            Interned::default().statement(text, &within, 0, TextAnalysis::default)
        };
        let (one, long) = (statement(b"SELECT 1"), statement(&[b' '; 1024 * 1024]));
        let mut numbers = ClientStatements::default();
        for _ in 0..OF_CLIENT_MAX {
            assert!(numbers.has_room(&one));
            numbers.prepared(&one, 0, None);
        }
        assert!(!numbers.has_room(&one));
        numbers.remove(1);
        assert!(numbers.has_room(&one));
        numbers.clear();
        let times = (0..100).take_while(|_| {
            let has_room = numbers.has_room(&long);
            numbers.prepared(&long, 0, None);
            has_room
        });
        assert_eq!(times.count(), 63);
    }

    #[test]
    fn the_types_of_parameters_count_as_what_their_client_has() {
        let statement = Interned::default().statement(
            b"SELECT ?",
            &PrepareContext::default(),
            0,
            TextAnalysis::default,
        );
        let mut numbers = ClientStatements::default();
        let types = [7; 128 * 1024];
        let times = (1..=1_000).take_while(|number| {
            assert!(numbers.has_room(&statement), "it is small");
            numbers.prepared(&statement, 65_535, None);
            numbers.bind(*number, &types)
        });
        // 512 would be the client's whole 64 MiB.
        let times = times.count();
        assert!((500..512).contains(&times), "{times}");
        assert!(numbers.bind(1, &types), "it has them");
        assert!(!numbers.bind(1, &[8; 128 * 1024]));
    }

    #[test]
    fn a_client_s_numbers_are_never_the_last_one_s_and_not_used_twice_in_a_row() {
        let mut numbers = ClientStatements {
            given: u32::MAX - 2,
            ..ClientStatements::default()
        };
        assert_eq!(numbers.next(), StatementId(u32::MAX - 1));
        numbers.given = u32::MAX - 1;
        assert_eq!(numbers.next(), StatementId(1));
    }
}
