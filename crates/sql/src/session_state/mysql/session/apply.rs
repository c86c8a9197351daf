//! Applies the effects of each statement to its session, after the server has reported the outcome.

use std::rc::Rc;

use evenkeel_policy::pins::{Pin, Pins, UnpinEvent};
use evenkeel_policy::route::{RoutedStatement, StatementClass, Volatility};
use evenkeel_wire::mysql::flags::Status;

use super::super::analysis::{
    ANYTHING, Effect, EffectKind, IN_SCHEMA, SessionObject, TextAnalysis, Value,
};
use super::super::connection::{self, ResultOwners, ServerSessionState};
use super::super::previous_results::{FoundRows, InsertId, ResultReads};
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

impl SessionState {
    /// Applies an OK or the end of a result, after its trackers were applied. `index`: number of
    /// statements of the text that completed before it.
    pub fn succeeded(
        &mut self,
        analysis: &TextAnalysis,
        index: usize,
        reply: &StatementReply,
        server: &mut ServerSessionState,
        interner: &Interner,
    ) {
        self.apply_collation(server, interner);
        let statement = analysis.statements.get(index);
        match reply.is_result && statement.is_some_and(|one| one.kind == StatementClass::Write) {
            true => self.hide_insert_id(analysis, server),
            false => self.record_insert_id(analysis, reply, server),
        }
        if analysis.is_counted && statement.is_none() {
            // The server executed a statement that the analysis did not find.
            self.pin(Pin::Unknown);
        }
        self.record_results(analysis, statement, reply.warnings, server);
        let is_last = !reply.status.has(Status::MORE_RESULTS);
        let effects = match analysis.is_counted {
            true => analysis.effects_of(index),
            false if is_last => &analysis.effects,
            false => &[],
        };
        for effect in effects {
            self.apply(&effect.kind, reply, server, interner);
        }
        if analysis.may_begin_at(index) && !self.autocommit() {
            self.pins.add(Pin::AutocommitOff);
        }
        self.explain(analysis);
        self.record_position(analysis);
        self.received = TrackerUpdate::default();
        self.completed = index.saturating_add(1);
    }

    /// Applies an ERR with this code: the rest of the text was not executed.
    pub fn failed(&mut self, analysis: &TextAnalysis, code: u16, server: &mut ServerSessionState) {
        self.record_failed_results(server);
        if analysis.writes() {
            // Manual: "If the previous statement returned an error, the value … is undefined".
            self.insert_id = self.insert_id.in_doubt();
            self.disown_insert_id(server);
        }
        if !analysis.is_counted && analysis.statements.len() > 1 {
            return self.doubt(analysis);
        }
        let done = self.completed;
        let is_unread = analysis.is_counted && done >= analysis.statements.len();
        if is_unread && !matches!(code, EMPTY_QUERY | PARSE_ERROR) {
            self.pin(Pin::Unknown);
        }
        let is_this = |effect: &&Effect| {
            !analysis.is_counted || usize::try_from(effect.statement) == Ok(done)
        };
        let is_whole = analysis.is_counted || analysis.statements.len() <= 1;
        if code == PARSE_ERROR && is_whole && !runs_other_text(analysis) {
            return;
        }
        let sets = analysis.effects.iter().filter(is_this);
        let several = sets.clone().any(|one| one.kind == EffectKind::SetSeveral);
        for effect in sets {
            self.apply_failed(&effect.kind, several);
            self.may_have_set(&effect.kind, code);
        }
        let hidden = match analysis.statements.as_slice() {
            [one] => hides(analysis, one) && !is_one_assignment(analysis, one),
            several => !several.is_empty(),
        };
        if hidden {
            // Only the next OK reports whether a transaction is open and what was set.
            self.pins.add(Pin::Transaction);
        }
    }

    /// Stores `last_gtid`. Names reported by place, as is `autocommit`, also stand for other
    /// variables: the value may be another client's, and the text may not name what was set.
    fn record_position(&mut self, analysis: &TextAnalysis) {
        let is_merged = self.has_merged_reports;
        let switches = self.was_reported(variables::AUTOCOMMIT);
        let others = self.received.state && self.received.position.is_some();
        if is_merged
            && (switches && !explains_switches(analysis) || others && !explains_position(analysis))
        {
            self.pin(Pin::Settings);
        }
        if let Some(position) = self.received.position.take()
            && (analysis.writes() || !is_merged)
        {
            self.last_gtid = position;
        }
    }

    /// Stores the LAST_INSERT_ID() of a reply. If the client supplied the value, the id is
    /// unchanged, and may be another client's.
    fn record_insert_id(
        &mut self,
        analysis: &TextAnalysis,
        reply: &StatementReply,
        server: &mut ServerSessionState,
    ) {
        let was_own = self.is_insert_id_on(server);
        if reply.insert_id != 0 {
            self.insert_id = InsertId::Uncertain(reply.insert_id);
        } else if analysis.needs.intersects(ResultReads::INSERT_ID) && !analysis.is_counted {
            self.insert_id = self.insert_id.in_doubt();
        } else {
            return;
        }
        match was_own {
            true => self.claim_insert_id(server),
            false => self.disown_insert_id(server),
        }
    }

    /// Handles MariaDB's RETURNING, and a result for each row of a bulk: only the connection knows
    /// the id. Without evidence the id is in doubt, since perhaps no row was inserted.
    fn hide_insert_id(&mut self, analysis: &TextAnalysis, server: &mut ServerSessionState) {
        if analysis.needs.intersects(ResultReads::INSERT_ID) || self.is_insert_id_on(server) {
            self.insert_id = InsertId::Unknown;
            return self.claim_insert_id(server);
        }
        self.insert_id = self.insert_id.in_doubt();
        self.disown_insert_id(server);
    }

    fn disown_insert_id(&mut self, server: &mut ServerSessionState) {
        if self.insert_connection != server.number || server.owners.insert_id_owner != self.number {
            server.owners.insert_id_owner = ResultOwners::NO_CLIENT;
            self.insert_connection = 0;
        }
    }

    fn apply(
        &mut self,
        kind: &EffectKind,
        reply: &StatementReply,
        server: &mut ServerSessionState,
        interner: &Interner,
    ) {
        match kind {
            EffectKind::Pin(pin) | EffectKind::PinOnSuccess(pin) => self.pin(*pin),
            // The report has pinned or unpinned.
            EffectKind::SetPinning(name, _) if self.was_reported(name) => {}
            EffectKind::SetPinning(_, pin) => self.pin(*pin),
            EffectKind::Release(UnpinEvent::UnlockNamed) if self.is_limited_to_nothing() => {}
            EffectKind::Drop(SessionObject::NamedLock, _) if self.is_limited_to_nothing() => {}
            EffectKind::Release(release) => self.release(*release),
            EffectKind::SetUser { name, value } => self.set_user(name, value, server, interner),
            EffectKind::ComputeUser(names) => self.compute_users(names),
            EffectKind::TakeLock(name) => self.lock_answered(true, name.as_deref(), reply),
            EffectKind::GiveLock(name) => self.lock_answered(false, name.as_deref(), reply),
            EffectKind::SetTimestamp(value) => {
                self.set(variables::TIMESTAMP, value.as_deref(), server, interner);
            }
            EffectKind::SetSwitch(name, is_on) => {
                let value: &[u8] = if *is_on { b"ON" } else { b"OFF" };
                self.set(name, Some(value), server, interner);
            }
            EffectKind::SetTracker | EffectKind::SetSeveral => {}
            EffectKind::SetVariable(name) => self.require_report(name, reply.status),
            EffectKind::SetDefault(name) => self.set(name, None, server, interner),
            EffectKind::SetCharset => {
                if !self.mark_charset() && !self.was_reported(variables::COLLATION) {
                    for settings in [&mut self.settings, &mut server.settings] {
                        *settings = connection::without(settings, variables::COLLATION, interner);
                    }
                }
            }
            EffectKind::NextTransaction(modes) => {
                self.next_modes = Some(modes.or(self.next_modes.unwrap_or_default()));
                self.pins.add(Pin::Transaction);
            }
            EffectKind::Begin => {
                // Manual: "Beginning a transaction also causes table locks … to be released".
                self.reset_pins = self.reset_pins.without(Pin::TableLock);
                self.unpin(Pin::TableLock);
            }
            EffectKind::End => {
                self.next_modes = None;
                self.pins.release(UnpinEvent::AutocommitOn);
            }
            EffectKind::Create(object, name) => self.create(*object, name, Pins::NONE),
            EffectKind::CreateUnknown(object) => self.pin_object(*object),
            EffectKind::Drop(object, name) => {
                let name = self.full_name(*object, name);
                self.objects.remove(*object, &name);
                self.unpin(object.pin());
            }
            EffectKind::RenameTables => {
                if self.objects.has(SessionObject::TemporaryTable) {
                    self.pin_object(SessionObject::TemporaryTable);
                }
            }
            EffectKind::Prepare(name, pins) => self.create(SessionObject::Prepared, name, *pins),
            EffectKind::Execute(name) => self.execute(name),
            EffectKind::InsertId if reply.insert_id != 0 => {
                self.insert_id = InsertId::Exact(reply.insert_id);
                self.claim_insert_id(server);
            }
            EffectKind::InsertId | EffectKind::InsertIdUnknown => {
                if !self.was_reported(b"last_insert_id") {
                    self.insert_id = InsertId::Unknown;
                }
                self.claim_insert_id(server);
            }
            EffectKind::Savepoint if !self.autocommit() => self.pins.add(Pin::AutocommitOff),
            EffectKind::Savepoint => {}
            EffectKind::FoundRows => self.results.found_rows = FoundRows::Calculated,
            EffectKind::SetByRoutine => self.set_by_routine(reply.has_trackers),
            EffectKind::RestoreVariables => self.restore(server, interner),
        }
    }

    /// Sets a variable by the text of a statement. `None`: the server's default.
    fn set(
        &mut self,
        name: &[u8],
        value: Option<&[u8]>,
        server: &mut ServerSessionState,
        interner: &Interner,
    ) {
        for settings in [&mut self.settings, &mut server.settings] {
            *settings = match value {
                Some(value) => interner.with(settings, name, value),
                None => connection::without(settings, name, interner),
            };
        }
    }

    /// Pins for all effects that a failed text may have. Which of its statements failed is unknown,
    /// since some have several replies.
    fn doubt(&mut self, analysis: &TextAnalysis) {
        analysis.binds().iter().for_each(|pin| self.pin(pin));
        for effect in &analysis.effects {
            match effect.kind {
                EffectKind::NextTransaction(_) => self.pin(Pin::Unknown),
                EffectKind::RenameTables => self.objects.add_unknown(SessionObject::TemporaryTable),
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
    fn restore(&mut self, server: &mut ServerSessionState, interner: &Interner) {
        let Some(before) = self.sent_settings.clone() else {
            return;
        };
        for name in &self.received.names {
            for settings in [&mut self.settings, &mut server.settings] {
                *settings = match before.get(name) {
                    Some(value) => interner.with(settings, name, value),
                    None => connection::without(settings, name, interner),
                };
            }
        }
        self.update_modes();
    }

    /// Applies the effects that a failed statement may have had.
    fn apply_failed(&mut self, kind: &EffectKind, several: bool) {
        match kind {
            EffectKind::Pin(pin) => self.pin(*pin),
            EffectKind::CreateUnknown(object) => self.pin_object(*object),
            EffectKind::Execute(name) => self.execute(name),
            EffectKind::ComputeUser(names) => self.compute_users(names),
            EffectKind::SetByRoutine => self.has_unreported = true,
            // All are checked before the first is set, but the checks do not find all errors.
            EffectKind::SetUser { name, .. } if several => {
                self.compute_users(std::slice::from_ref(name));
            }
            EffectKind::SetTimestamp(_) | EffectKind::SetSwitch(..) if several => {
                self.pin(Pin::Settings)
            }
            _ => {}
        }
    }

    fn release(&mut self, release: UnpinEvent) {
        if release == UnpinEvent::UnlockNamed {
            self.objects.clear(SessionObject::NamedLock);
        }
        self.pins.release(release);
        self.reset_pins.release(release);
    }

    /// Applies the value of a function for named locks; `takes`: of GET_LOCK, else of RELEASE_LOCK.
    /// Without a value, a lock may be taken, and is not released.
    fn lock_answered(&mut self, takes: bool, name: Option<&[u8]>, reply: &StatementReply) {
        if takes && reply.value != Some(false) {
            self.objects.lock_taken(name);
            self.pins.add(Pin::NamedLock);
        }
        if !takes && reply.value == Some(true) {
            self.objects.lock_released(name);
            self.unpin(Pin::NamedLock);
        }
    }

    /// Returns whether SELECT computes no row, because `sql_select_limit` is 0.
    fn is_limited_to_nothing(&self) -> bool {
        self.settings.get(b"sql_select_limit") == Some(b"0")
    }

    fn create(&mut self, object: SessionObject, name: &[u8], pins: Pins) {
        let name = self.full_name(object, name);
        self.objects.create(object, &name, pins);
        self.pins.add(object.pin());
    }

    fn pin_object(&mut self, object: SessionObject) {
        self.objects.add_unknown(object);
        self.pins.add(object.pin());
    }

    /// Returns the name of an object; that of a table includes its schema.
    fn full_name(&self, object: SessionObject, name: &[u8]) -> Box<[u8]> {
        let schema = self.schema.as_deref().unwrap_or_default();
        match object {
            SessionObject::TemporaryTable if !name.contains(&IN_SCHEMA) => {
                [schema, &[IN_SCHEMA], name].concat().into()
            }
            _ => name.into(),
        }
    }

    fn execute(&mut self, name: &[u8]) {
        match self.objects.prepared_pins(name) {
            Some(pins) => pins.iter().for_each(|pin| self.pin(pin)),
            None => ANYTHING.into_iter().for_each(|pin| self.pin(pin)),
        }
    }

    /// Returns whether an empty string is NULL now, or was when the text was sent.
    fn may_read_as_null(&self) -> bool {
        let mut settings = self.sent_settings.iter().chain([&self.settings]);
        settings.any(|settings| {
            let mode = settings.get(variables::SQL_MODE).unwrap_or_default();
            values::has_mode(mode, b"EMPTY_STRING_IS_NULL")
        })
    }

    fn set_user(
        &mut self,
        name: &[u8],
        value: &Value,
        server: &mut ServerSessionState,
        interner: &Interner,
    ) {
        let literal: Option<Rc<[u8]>> = match value {
            Value::Same(literal) => Some(literal.as_ref().into()),
            Value::String(string) if string.is_empty() && self.may_read_as_null() => None,
            Value::String(string) => self.sent_settings.as_ref().and_then(|sent_settings| {
                let client = sent_settings.get(variables::CLIENT)?;
                let collation = sent_settings.get(variables::COLLATION)?;
                values::string_of_variable(string, client, collation).map(Into::into)
            }),
        };
        let Some(literal) = literal else {
            return self.compute_users(&[name.into()]);
        };
        let key = [b"@", name].concat();
        if !self.has_room_for(&literal) {
            return self.pin(Pin::Variables);
        }
        self.settings = interner.with(&self.settings, &key, &literal);
        server.settings = interner.with(&server.settings, &key, &literal);
        self.unknown.users.retain(|unknown| **unknown != *name);
        self.unpin(Pin::Variables);
    }

    /// Returns whether another value of a user variable is within the limit.
    pub(super) fn has_room_for(&self, literal: &[u8]) -> bool {
        let is_own = |(name, _): &(&[u8], &[u8])| name.first() == Some(&b'@');
        let others = self.settings.iter().filter(is_own);
        let lengths = |(name, value): (&[u8], &[u8])| [VARIABLE_LENGTH, name.len(), value.len()];
        let length: usize = others.flat_map(lengths).sum();
        length.saturating_add(literal.len()) <= VARIABLES_LENGTH_MAX
    }

    pub(super) fn was_reported(&self, name: &[u8]) -> bool {
        self.received
            .names
            .iter()
            .any(|received| **received == *name)
    }

    /// Pins if the server reported a change that the text does not explain: a routine or a trigger
    /// has set a variable, or created a table.
    fn explain(&mut self, analysis: &TextAnalysis) {
        let is_of_clock = |effect: &Effect| {
            let is_set = matches!(
                effect.kind,
                EffectKind::SetTimestamp(_) | EffectKind::RestoreVariables
            );
            is_set || effect.kind == EffectKind::PinOnSuccess(Pin::Settings)
        };
        if self.was_reported(variables::TIMESTAMP) && !analysis.effects.iter().any(is_of_clock) {
            self.pin(Pin::Settings);
        }
        let mut names = self.received.names.iter();
        if let Some(name) = names.find(|name| is_privileged(name, analysis)) {
            self.pin_setting(name.clone());
        }
        let explained = !self.received.state
            || self.received.schema
            || !self.received.names.is_empty()
            || !analysis.effects.is_empty()
            || analysis.statements.is_empty();
        if !explained {
            for pin in [Pin::Variables, Pin::TemporaryTable, Pin::Prepared] {
                self.pin(pin);
            }
        }
    }
}

/// Returns whether a routine, which may have its owner's rights, set a variable that needs
/// privileges. The client may then be unable to set it on another connection.
fn is_privileged(name: &[u8], analysis: &TextAnalysis) -> bool {
    let sets = |effect: &Effect| match &effect.kind {
        EffectKind::SetVariable(own) | EffectKind::SetDefault(own) => **own == *name,
        EffectKind::RestoreVariables => true,
        _ => false,
    };
    variables::is_restricted(name) && !analysis.effects.iter().any(sets)
}

/// Returns whether the text itself names the switches that it sets, and no routine in it sets any.
fn explains_switches(analysis: &TextAnalysis) -> bool {
    let names = |effect: &Effect| {
        let is_set = matches!(
            effect.kind,
            EffectKind::SetVariable(_) | EffectKind::SetSwitch(..)
        );
        is_set || effect.kind == EffectKind::RestoreVariables
    };
    analysis.effects.iter().any(names) && !has_routine_sets(analysis)
}

/// Returns whether the text itself names the other variables that share the place of `last_gtid`.
fn explains_position(analysis: &TextAnalysis) -> bool {
    !analysis.effects.is_empty() && !has_routine_sets(analysis)
}

fn has_routine_sets(analysis: &TextAnalysis) -> bool {
    let mut effects = analysis.effects.iter();
    effects.any(|effect| effect.kind == EffectKind::SetByRoutine)
}

/// Returns whether an error may hide effects on the session or its transaction.
fn hides(analysis: &TextAnalysis, statement: &RoutedStatement) -> bool {
    match statement.kind {
        StatementClass::Routine
        | StatementClass::Unknown
        | StatementClass::Session
        | StatementClass::Setting => true,
        // The statement sets other variables besides a GLOBAL one.
        StatementClass::Asks | StatementClass::Server if !analysis.effects.is_empty() => true,
        _ => statement.calls >= Volatility::Volatile,
    }
}

/// Returns whether the statement is a SET of a single item, which is set completely or not at all.
fn is_one_assignment(analysis: &TextAnalysis, statement: &RoutedStatement) -> bool {
    let mut effects = analysis.effects.iter();
    statement.kind == StatementClass::Setting
        && !effects.any(|effect| effect.kind == EffectKind::SetSeveral)
}

/// Returns whether the text runs other texts, which an error may be about.
fn runs_other_text(analysis: &TextAnalysis) -> bool {
    let runs = |effect: &Effect| matches!(effect.kind, EffectKind::Execute(_));
    let routine = |statement: &RoutedStatement| statement.kind == StatementClass::Routine;
    analysis.runs_routines
        || analysis.effects.iter().any(runs)
        || analysis.statements.iter().any(routine)
}
