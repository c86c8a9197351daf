//! Applies the effects of each statement to its session, after the server has reported the outcome.

use std::rc::Rc;

use evenkeel_policy::pins::{Pin, Pins, UnpinEvent};
use evenkeel_policy::route::{RoutedStatement, StatementClass, Volatility};
use evenkeel_wire::mysql::flags::Status;

use super::super::analysis::{
    ANYTHING, Effect, EffectKind, IN_SCHEMA, SessionObject, TextAnalysis, Value,
};
use super::super::connection::{self, InfoOwners, ServerSessionState};
use super::super::information::{InfoNeeds, InsertId, StatementInfo};
use super::super::{values, variables};
use super::{SessionState, StatementReply, TrackerUpdate};
use crate::session_state::settings::Interner;

/// The server cannot parse the text and executed none of it.
const PARSE_ERROR: u16 = 1064;

/// The text was empty.
const EMPTY_QUERY: u16 = 1065;

/// Maximum bytes of user variables that are moved between connections.
const VARIABLES_LENGTH_MAX: usize = 16_384;

/// Bytes counted for each variable besides its name and value, as the cost of moving it.
const VARIABLE_LENGTH: usize = 32;

/// Returns whether a statement may begin a transaction if autocommit is off.
/// [`EffectKind::Savepoint`] is handled separately.
pub(super) fn may_begin(statement: &RoutedStatement) -> bool {
    !matches!(
        statement.kind,
        StatementClass::Empty | StatementClass::Setting | StatementClass::EndTransaction
    )
}

impl SessionState {
    /// Applies an OK or the end of a result, after its trackers were applied. `index`: number of
    /// statements of the text that completed before it.
    pub fn succeeded(
        &mut self,
        meaning: &TextAnalysis,
        index: usize,
        reply: &StatementReply,
        on: &mut ServerSessionState,
        interner: &Interner,
    ) {
        self.take_collation(on, interner);
        let statement = meaning.statements.get(index);
        match reply.is_result && statement.is_some_and(|one| one.kind == StatementClass::Write) {
            true => self.hide_insert_id(meaning, on),
            false => self.note_insert_id(meaning, reply, on),
        }
        if meaning.is_counted && statement.is_none() {
            // The server executed a statement that the analysis did not find.
            self.bind(Pin::Unknown);
        }
        let rows = statement.is_some_and(counts);
        // A command without a text, such as COM_STMT_PREPARE, leaves warnings unchanged.
        let kept = self.left.diagnostics && meaning.statements.is_empty();
        self.left = StatementInfo {
            diagnostics: reply.warnings > 0 || kept,
            found_rows: false,
            rows,
            ran: true,
        };
        match rows {
            true => self.has_counted(on),
            // The text may have run a SELECT.
            false if !meaning.is_counted => on.leftovers.counts_of = InfoOwners::NOBODYS,
            false => {}
        }
        let is_clean = reply.warnings == 0 && statement.is_some_and(clears);
        on.leftovers.warned = !is_clean && (on.leftovers.warned || reply.warnings > 0);
        let is_last = !reply.status.has(Status::MORE_RESULTS);
        let effects = match meaning.is_counted {
            true => meaning.effects_of(index),
            false if is_last => &meaning.effects,
            false => &[],
        };
        for effect in effects {
            self.apply(&effect.does, reply, on, interner);
        }
        let begins = meaning.statements.get(index).is_some_and(may_begin);
        if begins && !self.autocommit() {
            self.pins.add(Pin::AutocommitOff);
        }
        self.explain(meaning);
        self.note_position(meaning);
        self.received = TrackerUpdate::default();
        self.done = index.saturating_add(1);
    }

    /// Applies an ERR with this code: the rest of the text was not executed.
    pub fn failed(&mut self, meaning: &TextAnalysis, code: u16, on: &mut ServerSessionState) {
        on.leftovers.warned = true;
        on.leftovers.counts_of = InfoOwners::NOBODYS;
        if meaning.writes {
            // Manual: "If the previous statement returned an error, the value … is undefined".
            self.insert_id = self.insert_id.in_doubt();
            self.has_insert_id_or_nobody(on);
        }
        self.left = StatementInfo {
            diagnostics: true,
            found_rows: false,
            rows: true,
            ran: true,
        };
        if !meaning.is_counted && meaning.statements.len() > 1 {
            return self.doubt(meaning);
        }
        let done = self.done;
        let is_unread = meaning.is_counted && done >= meaning.statements.len();
        if is_unread && !matches!(code, EMPTY_QUERY | PARSE_ERROR) {
            self.bind(Pin::Unknown);
        }
        let is_this =
            |effect: &&Effect| !meaning.is_counted || usize::try_from(effect.statement) == Ok(done);
        let is_whole = meaning.is_counted || meaning.statements.len() <= 1;
        if code == PARSE_ERROR && is_whole && !runs_other(meaning) {
            return;
        }
        let sets = meaning.effects.iter().filter(is_this);
        let several = sets.clone().any(|one| one.does == EffectKind::SetsSeveral);
        for effect in sets {
            self.fail(&effect.does, several);
            self.may_have_set(&effect.does, code);
        }
        let hidden = match meaning.statements.as_slice() {
            [one] => hides(meaning, one) && !is_one_assignment(meaning, one),
            several => !several.is_empty(),
        };
        if hidden {
            // Only the next OK reports whether a transaction is open and what was set.
            self.pins.add(Pin::Transaction);
        }
    }

    /// Stores `last_gtid`. Names reported by place, as is `autocommit`, also stand for other
    /// variables: the value may be another client's, and the text may not name what was set.
    fn note_position(&mut self, meaning: &TextAnalysis) {
        let by_place = self.is_by_place;
        let switches = self.has_heard(variables::AUTOCOMMIT);
        let others = self.received.state && self.received.position.is_some();
        if by_place && (switches && !names_switches(meaning) || others && !names_others(meaning)) {
            self.bind(Pin::Settings);
        }
        if let Some(position) = self.received.position.take()
            && (meaning.writes || !by_place)
        {
            self.last_gtid = position;
        }
    }

    /// Stores the LAST_INSERT_ID() of a reply. If the client supplied the value, the id is
    /// unchanged, and may be another client's.
    fn note_insert_id(
        &mut self,
        meaning: &TextAnalysis,
        reply: &StatementReply,
        on: &mut ServerSessionState,
    ) {
        let was_own = self.is_insert_id_on(on);
        if reply.insert_id != 0 {
            self.insert_id = InsertId::Likely(reply.insert_id);
        } else if meaning.needs.any(InfoNeeds::INSERT_ID) && !meaning.is_counted {
            self.insert_id = self.insert_id.in_doubt();
        } else {
            return;
        }
        match was_own {
            true => self.has_insert_id(on),
            false => self.has_insert_id_or_nobody(on),
        }
    }

    /// Handles MariaDB's RETURNING, and a result for each row of a bulk: only the connection knows
    /// the id. Without evidence the id is in doubt, since perhaps no row was inserted.
    fn hide_insert_id(&mut self, meaning: &TextAnalysis, on: &mut ServerSessionState) {
        if meaning.needs.any(InfoNeeds::INSERT_ID) || self.is_insert_id_on(on) {
            self.insert_id = InsertId::Unknown;
            return self.has_insert_id(on);
        }
        self.insert_id = self.insert_id.in_doubt();
        self.has_insert_id_or_nobody(on);
    }

    fn has_insert_id_or_nobody(&mut self, on: &mut ServerSessionState) {
        if self.insert_on != on.number || on.leftovers.insert_id_of != self.number {
            on.leftovers.insert_id_of = InfoOwners::NOBODYS;
            self.insert_on = 0;
        }
    }

    fn apply(
        &mut self,
        does: &EffectKind,
        reply: &StatementReply,
        on: &mut ServerSessionState,
        interner: &Interner,
    ) {
        match does {
            EffectKind::Pin(pin) | EffectKind::PinOnSuccess(pin) => self.bind(*pin),
            EffectKind::Release(UnpinEvent::UnlockNamed) if self.is_limited_to_nothing() => {}
            EffectKind::Unmake(SessionObject::NamedLock, _) if self.is_limited_to_nothing() => {}
            EffectKind::Release(release) => self.release(*release),
            EffectKind::SetUser { name, value } => self.set_user(name, value, on, interner),
            EffectKind::SetTimestamp(value) => {
                self.set(variables::TIMESTAMP, value.as_deref(), on, interner);
            }
            EffectKind::SetSwitch(name, is_on) => {
                let value: &[u8] = if *is_on { b"ON" } else { b"OFF" };
                self.set(name, Some(value), on, interner);
            }
            EffectKind::Track | EffectKind::SetsSeveral => {}
            EffectKind::Told(name) => self.expect(name),
            EffectKind::Defaults(name) => self.set(name, None, on, interner),
            EffectKind::Collation => {
                if !self.is_untold_of_charset() && !self.has_heard(variables::COLLATION) {
                    for now in [&mut self.now, &mut on.now] {
                        *now = connection::without(now, variables::COLLATION, interner);
                    }
                }
            }
            EffectKind::NextTransaction(modes) => {
                self.next = Some(modes.or(self.next.unwrap_or_default()));
                self.pins.add(Pin::Transaction);
            }
            EffectKind::Begin => {
                // Manual: "Beginning a transaction also causes table locks … to be released".
                self.lasting = self.lasting.without(Pin::TableLock);
                self.loosen(Pin::TableLock);
            }
            EffectKind::End => {
                self.next = None;
                self.pins.release(UnpinEvent::AutocommitOn);
            }
            EffectKind::Make(thing, name) => self.make(*thing, name, Pins::NONE),
            EffectKind::Unknown(thing) => self.bind_thing(*thing),
            EffectKind::Unmake(thing, name) => {
                let name = self.full_name(*thing, name);
                self.things.unmake(*thing, &name);
                self.loosen(thing.pin());
            }
            EffectKind::Renames => {
                if self.things.has(SessionObject::TemporaryTable) {
                    self.bind_thing(SessionObject::TemporaryTable);
                }
            }
            EffectKind::Prepare(name, binds) => self.make(SessionObject::Prepared, name, *binds),
            EffectKind::Execute(name) => self.execute(name),
            EffectKind::InsertId if reply.insert_id != 0 => {
                self.insert_id = InsertId::Exact(reply.insert_id);
                self.has_insert_id(on);
            }
            EffectKind::InsertId | EffectKind::InsertIdUnknown => {
                if !self.has_heard(b"last_insert_id") {
                    self.insert_id = InsertId::Unknown;
                }
                self.has_insert_id(on);
            }
            EffectKind::Savepoint if !self.autocommit() => self.pins.add(Pin::AutocommitOff),
            EffectKind::Savepoint => {}
            EffectKind::FoundRows => self.left.found_rows = true,
            EffectKind::SetsWithin => self.sets_within(reply.tells),
            EffectKind::Restores => self.restore(on, interner),
        }
    }

    /// Sets a variable by the text of a statement. `None`: the server's default.
    fn set(
        &mut self,
        name: &[u8],
        value: Option<&[u8]>,
        on: &mut ServerSessionState,
        interner: &Interner,
    ) {
        for now in [&mut self.now, &mut on.now] {
            *now = match value {
                Some(value) => interner.with(now, name, value),
                None => connection::without(now, name, interner),
            };
        }
    }

    /// Pins for all effects that a failed text may have. Which of its statements failed is unknown,
    /// since some have several replies.
    fn doubt(&mut self, meaning: &TextAnalysis) {
        meaning.binds().iter().for_each(|pin| self.bind(pin));
        for effect in &meaning.effects {
            match effect.does {
                EffectKind::NextTransaction(_) => self.bind(Pin::Unknown),
                EffectKind::Renames => self.things.unknown(SessionObject::TemporaryTable),
                EffectKind::InsertId | EffectKind::InsertIdUnknown => {
                    self.insert_id = InsertId::Unknown;
                    self.pins.add(Pin::InsertId);
                }
                _ => {}
            }
        }
        self.pins.add(Pin::Transaction);
    }

    /// Undoes the reported changes of variables that end with the statement.
    fn restore(&mut self, on: &mut ServerSessionState, interner: &Interner) {
        let Some(before) = self.sent_in.clone() else {
            return;
        };
        for name in &self.received.names {
            for now in [&mut self.now, &mut on.now] {
                *now = match before.get(name) {
                    Some(value) => interner.with(now, name, value),
                    None => connection::without(now, name, interner),
                };
            }
        }
        self.look();
    }

    /// Applies the effects that a failed statement may have had.
    fn fail(&mut self, does: &EffectKind, several: bool) {
        match does {
            EffectKind::Pin(pin) => self.bind(*pin),
            EffectKind::Unknown(thing) => self.bind_thing(*thing),
            EffectKind::Execute(name) => self.execute(name),
            EffectKind::SetsWithin => self.is_untold = true,
            // All are checked before the first is set, but the checks do not find all errors.
            EffectKind::SetUser { .. } if several => self.bind(Pin::Variables),
            EffectKind::SetTimestamp(_) | EffectKind::SetSwitch(..) if several => {
                self.bind(Pin::Settings)
            }
            _ => {}
        }
    }

    fn release(&mut self, release: UnpinEvent) {
        if release == UnpinEvent::UnlockNamed {
            self.things.clear(SessionObject::NamedLock);
        }
        self.pins.release(release);
        self.lasting.release(release);
    }

    /// Returns whether SELECT computes no row, because `sql_select_limit` is 0.
    fn is_limited_to_nothing(&self) -> bool {
        self.now.get(b"sql_select_limit") == Some(b"0")
    }

    fn make(&mut self, thing: SessionObject, name: &[u8], binds: Pins) {
        let name = self.full_name(thing, name);
        self.things.make(thing, &name, binds);
        self.pins.add(thing.pin());
    }

    fn bind_thing(&mut self, thing: SessionObject) {
        self.things.unknown(thing);
        self.pins.add(thing.pin());
    }

    /// Returns the name of an object; that of a table includes its schema.
    fn full_name(&self, thing: SessionObject, name: &[u8]) -> Box<[u8]> {
        let schema = self.schema.as_deref().unwrap_or_default();
        match thing {
            SessionObject::TemporaryTable if !name.contains(&IN_SCHEMA) => {
                [schema, &[IN_SCHEMA], name].concat().into()
            }
            _ => name.into(),
        }
    }

    fn execute(&mut self, name: &[u8]) {
        match self.things.binds(name) {
            Some(pins) => pins.iter().for_each(|pin| self.bind(pin)),
            None => ANYTHING.into_iter().for_each(|pin| self.bind(pin)),
        }
    }

    /// Returns whether an empty string is NULL now, or was when the text was sent.
    fn may_read_as_null(&self) -> bool {
        let mut settings = self.sent_in.iter().chain([&self.now]);
        settings.any(|settings| {
            let mode = settings.get(variables::SQL_MODE).unwrap_or_default();
            values::has_mode(mode, b"EMPTY_STRING_IS_NULL")
        })
    }

    fn set_user(
        &mut self,
        name: &[u8],
        value: &Value,
        on: &mut ServerSessionState,
        interner: &Interner,
    ) {
        let literal: Option<Rc<[u8]>> = match value {
            Value::Same(literal) => Some(literal.as_ref().into()),
            Value::String(string) if string.is_empty() && self.may_read_as_null() => None,
            Value::String(string) => self.sent_in.as_ref().and_then(|sent_in| {
                let client = sent_in.get(variables::CLIENT)?;
                let collation = sent_in.get(variables::COLLATION)?;
                values::string_of_variable(string, client, collation).map(Into::into)
            }),
        };
        let Some(literal) = literal else {
            return self.bind(Pin::Variables);
        };
        let key = [b"@", name].concat();
        let is_own = |(name, _): &(&[u8], &[u8])| name.first() == Some(&b'@');
        let others = self.now.iter().filter(is_own);
        let length = |(name, value): (&[u8], &[u8])| VARIABLE_LENGTH + name.len() + value.len();
        let length: usize = others.map(length).sum();
        if length.saturating_add(literal.len()) > VARIABLES_LENGTH_MAX {
            return self.bind(Pin::Variables);
        }
        self.now = interner.with(&self.now, &key, &literal);
        on.now = interner.with(&on.now, &key, &literal);
    }

    pub(super) fn has_heard(&self, name: &[u8]) -> bool {
        self.received
            .names
            .iter()
            .any(|received| **received == *name)
    }

    /// Pins if the server reported a change that the text does not explain: a routine or a trigger
    /// has set a variable, or created a table.
    fn explain(&mut self, meaning: &TextAnalysis) {
        let is_of_clock = |effect: &Effect| {
            let is_set = matches!(
                effect.does,
                EffectKind::SetTimestamp(_) | EffectKind::Restores
            );
            is_set || effect.does == EffectKind::PinOnSuccess(Pin::Settings)
        };
        if self.has_heard(variables::TIMESTAMP) && !meaning.effects.iter().any(is_of_clock) {
            self.bind(Pin::Settings);
        }
        let mut names = self.received.names.iter();
        if let Some(name) = names.find(|name| is_lent(name, meaning)) {
            self.bind_setting(name.clone());
        }
        let explained = !self.received.state
            || self.received.schema
            || !self.received.names.is_empty()
            || !meaning.effects.is_empty()
            || meaning.statements.is_empty();
        if !explained {
            for pin in [Pin::Variables, Pin::TemporaryTable, Pin::Prepared] {
                self.bind(pin);
            }
        }
    }
}

/// Returns whether a routine, which may have its owner's rights, set a variable that needs
/// privileges. The client may then be unable to set it on another connection.
fn is_lent(name: &[u8], meaning: &TextAnalysis) -> bool {
    let sets = |effect: &Effect| match &effect.does {
        EffectKind::Told(own) | EffectKind::Defaults(own) => **own == *name,
        EffectKind::Restores => true,
        _ => false,
    };
    variables::is_guarded(name) && !meaning.effects.iter().any(sets)
}

/// Returns whether the text itself names the switches that it sets, and no routine in it sets any.
fn names_switches(meaning: &TextAnalysis) -> bool {
    let names = |effect: &Effect| {
        let is_set = matches!(effect.does, EffectKind::Told(_) | EffectKind::SetSwitch(..));
        is_set || effect.does == EffectKind::Restores
    };
    meaning.effects.iter().any(names) && !sets_within(meaning)
}

/// Returns whether the text itself names the other variables that share the place of `last_gtid`.
fn names_others(meaning: &TextAnalysis) -> bool {
    !meaning.effects.is_empty() && !sets_within(meaning)
}

fn sets_within(meaning: &TextAnalysis) -> bool {
    let mut effects = meaning.effects.iter();
    effects.any(|effect| effect.does == EffectKind::SetsWithin)
}

/// Returns whether FOUND_ROWS() is about this statement after it succeeded.
fn counts(statement: &RoutedStatement) -> bool {
    matches!(
        statement.kind,
        StatementClass::Read | StatementClass::Asks | StatementClass::Server
    )
}

/// Returns whether the statement uses a table, which clears earlier warnings.
fn clears(statement: &RoutedStatement) -> bool {
    match statement.kind {
        StatementClass::Write => true,
        StatementClass::Read => statement.calls > Volatility::None,
        _ => false,
    }
}

/// Returns whether an error may hide effects on the session or its transaction.
fn hides(meaning: &TextAnalysis, statement: &RoutedStatement) -> bool {
    match statement.kind {
        StatementClass::Routine
        | StatementClass::Unknown
        | StatementClass::Session
        | StatementClass::Setting => true,
        // The statement sets other variables besides a GLOBAL one.
        StatementClass::Asks | StatementClass::Server if !meaning.effects.is_empty() => true,
        _ => statement.calls >= Volatility::Volatile,
    }
}

/// Returns whether the statement is a SET of a single item, which is set completely or not at all.
fn is_one_assignment(meaning: &TextAnalysis, statement: &RoutedStatement) -> bool {
    let mut effects = meaning.effects.iter();
    statement.kind == StatementClass::Setting
        && !effects.any(|effect| effect.does == EffectKind::SetsSeveral)
}

/// Returns whether the text runs other texts, which an error may be about.
fn runs_other(meaning: &TextAnalysis) -> bool {
    let runs = |effect: &Effect| matches!(effect.does, EffectKind::Execute(_));
    let routine = |statement: &RoutedStatement| statement.kind == StatementClass::Routine;
    meaning.runs_routines
        || meaning.effects.iter().any(runs)
        || meaning.statements.iter().any(routine)
}
