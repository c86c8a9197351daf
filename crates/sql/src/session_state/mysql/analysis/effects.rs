//! Collects the effects of each kind of statement on the session.

use crate::mysql::{self, StatementKind, StatementTraits, TokenKind, VariableScope};
use crate::token::{Span, Word};
use evenkeel_policy::pins::{Pin, Pins, UnpinEvent};
use evenkeel_policy::route::TransactionModes;

use super::{
    ANYTHING, AnalysisContext, EffectKind, SessionObject, calls, routing, rules, set, split, tables,
};
use crate::session_state::effects;
use crate::session_state::mysql::values;

/// Collector of the effects of one statement.
pub(super) type EffectCollector<'a> = effects::EffectCollector<'a, EffectKind, OwnEffects>;

/// Notes of the collector besides the list of effects.
#[derive(Default)]
pub(super) struct OwnEffects {
    /// True if [`EffectKind::SetByRoutine`] is in the list.
    sets_within: bool,
    /// True if the list contains effects of routines and triggers.
    pub(super) runs_routines: bool,
}

impl EffectCollector<'_> {
    /// Adds that the statement may have set each user variable in it. Pins if it names none, or one
    /// whose name cannot be read.
    pub(super) fn compute_users(
        &mut self,
        context: &AnalysisContext<'_>,
        statement: &mysql::StatementFacts,
    ) {
        let sql = statement.span.of(context.text);
        let mut tokens = context.tokens(statement);
        let mut names = Vec::new();
        loop {
            let token = tokens.next_token();
            let is_variable = match token.kind {
                TokenKind::End => break,
                kind => kind == TokenKind::UserVariable,
            };
            if !is_variable {
                continue;
            }
            let written = token.span.of(sql).strip_prefix(b"@").unwrap_or_default();
            match values::user_name(written) {
                Some(name) if names.contains(&name) => {}
                Some(name) => names.push(name),
                None => return self.pin(Pin::Variables),
            }
        }
        match names.is_empty() {
            true => self.pin(Pin::Variables),
            false => self.push(EffectKind::ComputeUser(names.into())),
        }
    }

    /// Adds the pins of a routine, a trigger or a view ([`super::bound_by_body`]).
    pub(super) fn add_pins(&mut self, pins: Pins) {
        self.own.runs_routines |= !pins.is_empty();
        for pin in pins.iter() {
            match pin {
                // Reading it concerns the connection before the statement: [`calls::bonds`].
                Pin::FoundRows => {}
                Pin::InsertId => self.push(EffectKind::InsertIdUnknown),
                Pin::Settings if self.own.sets_within => {}
                Pin::Settings => {
                    self.own.sets_within = true;
                    self.push(EffectKind::SetByRoutine);
                }
                pin => self.pin(pin),
            }
        }
    }

    /// Adds all effects that unreadable SQL may have.
    pub(super) fn anything(&mut self) {
        self.own.runs_routines = true;
        ANYTHING.into_iter().for_each(|pin| self.pin(pin));
    }
}

pub(super) fn collect(
    context: &AnalysisContext<'_>,
    statement: &mysql::StatementFacts,
    effects: &mut EffectCollector<'_>,
) {
    if statement.traits.any(StatementTraits::BROKEN) {
        // The server rejects the text, which then has no effect, or parses it differently.
        effects.pin(Pin::Unknown);
        if context.is_single {
            return;
        }
    }
    of_kind(context, statement, effects);
    of_traits(context, statement, effects);
    calls::collect(context, statement, effects);
}

fn of_kind(
    context: &AnalysisContext<'_>,
    statement: &mysql::StatementFacts,
    effects: &mut EffectCollector<'_>,
) {
    let prepared = |span: Span| values::name_in_lower_case(span.of(context.text));
    match statement.kind {
        StatementKind::Begin { .. } => effects.push(EffectKind::Begin),
        StatementKind::Commit(ending) | StatementKind::Rollback(ending) => {
            effects.push(EffectKind::End);
            if ending.release {
                // The server closes the connection, which another client must not get meanwhile.
                effects.pin_on_success(Pin::Unknown);
            }
        }
        StatementKind::Set => set::collect(context, statement, effects),
        StatementKind::SetTransaction {
            scope,
            read_only,
            isolation,
        } => set_transaction(scope, read_only, isolation, effects),
        StatementKind::Savepoint(_) => effects.push(EffectKind::Savepoint),
        StatementKind::Xa => xa(context, statement, effects),
        StatementKind::LockInstance => effects.push(EffectKind::Create(
            SessionObject::BackupLock,
            backup(context, statement),
        )),
        StatementKind::UnlockInstance => {
            effects.push(EffectKind::Drop(
                SessionObject::BackupLock,
                backup(context, statement),
            ));
        }
        StatementKind::Flush { lock: false } => flush(context, statement, effects),
        StatementKind::Handler => handler(context, statement, effects),
        StatementKind::Prepare(name) => prepare(context, statement, prepared(name), effects),
        StatementKind::Execute(name) => match prepared(name) {
            Some(name) => effects.push(EffectKind::Execute(name)),
            None => effects.anything(),
        },
        StatementKind::Deallocate(name) => {
            if let Some(name) = prepared(name) {
                effects.push(EffectKind::Drop(SessionObject::Prepared, name));
            }
        }
        StatementKind::Ddl => tables::collect(context, statement, effects),
        StatementKind::Call => calls::procedure(context, statement, effects),
        StatementKind::GetDiagnostics => effects.compute_users(context, statement),
        StatementKind::LoadData { .. } => {
            // The OK contains no insert id.
            effects.push(EffectKind::InsertIdUnknown);
            if statement.traits.any(StatementTraits::READS_VARIABLES) {
                effects.compute_users(context, statement);
            }
        }
        _ => {}
    }
    effects.add(rules::of(statement.kind).leaves);
    if statement.kind == StatementKind::Unknown && is_compound(context, statement) {
        // An error in one of its statements is not an error of the whole.
        effects.push(EffectKind::Execute(Box::default()));
    }
}

fn set_transaction(
    scope: VariableScope,
    read_only: Option<bool>,
    isolation: Option<mysql::Isolation>,
    effects: &mut EffectCollector<'_>,
) {
    match scope {
        VariableScope::Global => {}
        VariableScope::Session => {
            if isolation.is_some() {
                effects.push(EffectKind::SetVariable((*b"transaction_isolation").into()));
            }
            if read_only.is_some() {
                effects.push(EffectKind::SetVariable((*b"transaction_read_only").into()));
            }
        }
        VariableScope::Implicit => effects.push(EffectKind::NextTransaction(TransactionModes {
            read_only,
            isolation: isolation.map(routing::isolation),
        })),
    }
}

/// Returns whether the statement is one of MariaDB's blocks outside of routines, such as `BEGIN NOT
/// ATOMIC …` and `a: LOOP …`.
fn is_compound(context: &AnalysisContext<'_>, statement: &mysql::StatementFacts) -> bool {
    const BEGINNINGS: [&str; 9] = [
        "begin", "case", "declare", "execute", "for", "if", "loop", "repeat", "while",
    ];
    let mut tokens = context.tokens(statement);
    let (first, second) = (tokens.next_token(), tokens.next_token());
    let labelled = second.kind == TokenKind::Operator && second.word == Word::of(":");
    let in_brackets = first.kind == TokenKind::Operator && first.word == Word::of("<");
    labelled || in_brackets || BEGINNINGS.iter().any(|word| first.is(Word::of(word)))
}

fn of_traits(
    context: &AnalysisContext<'_>,
    statement: &mysql::StatementFacts,
    effects: &mut EffectCollector<'_>,
) {
    const LEAVING: StatementTraits = StatementTraits::SETS_VARIABLES
        .and(StatementTraits::SETS_INSERT_ID)
        .and(StatementTraits::NEXT_VALUE)
        .and(StatementTraits::CALCULATES_FOUND_ROWS)
        .and(StatementTraits::SPECIAL_FUNCTION)
        .and(StatementTraits::TOO_DEEP);
    let traits = statement.traits;
    if !traits.any(LEAVING) {
        return;
    }
    let is_definition =
        statement.kind == StatementKind::Ddl && !tables::runs_query(context, statement);
    if traits.any(StatementTraits::SETS_VARIABLES)
        && statement.kind != StatementKind::Set
        && !is_definition
    {
        effects.compute_users(context, statement);
    }
    if traits.any(StatementTraits::SETS_INSERT_ID) && !is_definition {
        let is_reported = statement.kind == StatementKind::Write;
        effects.push(match is_reported {
            true => EffectKind::InsertId,
            false => EffectKind::InsertIdUnknown,
        });
    }
    if traits.any(StatementTraits::NEXT_VALUE) && !is_definition {
        effects.pin(Pin::Sequence);
    }
    if traits.any(StatementTraits::CALCULATES_FOUND_ROWS) {
        effects.push(EffectKind::FoundRows);
    }
    if traits.any(StatementTraits::TOO_DEEP) {
        effects.pin(Pin::Unknown);
    }
}

/// Handles XA. XA COMMIT and XA ROLLBACK succeed only if the session is in no XA transaction after
/// them; XA RECOVER changes nothing. Others may begin one or leave a prepared one.
fn xa(
    context: &AnalysisContext<'_>,
    statement: &mysql::StatementFacts,
    effects: &mut EffectCollector<'_>,
) {
    let mut tokens = context.tokens(statement);
    tokens.next_token();
    let verb = tokens.next_token();
    if verb.is(Word::of("commit")) || verb.is(Word::of("rollback")) {
        effects.push(EffectKind::Release(UnpinEvent::XaEnded));
    } else if !verb.is(Word::of("recover")) {
        effects.pin(Pin::Xa);
    }
}

/// Returns the name of one of MariaDB's two backup locks: that of all stages, or BACKUP LOCK.
fn backup(context: &AnalysisContext<'_>, statement: &mysql::StatementFacts) -> Box<[u8]> {
    let mut tokens = context.tokens(statement);
    tokens.next_token();
    match tokens.next_token().is(Word::of("stage")) {
        true => (*b"stage").into(),
        false => (*b"lock").into(),
    }
}

/// Handles FLUSH: MariaDB's FLUSH USER_VARIABLES clears the user variables.
fn flush(
    context: &AnalysisContext<'_>,
    statement: &mysql::StatementFacts,
    effects: &mut EffectCollector<'_>,
) {
    let mut tokens = context.tokens(statement);
    loop {
        let token = tokens.next_token();
        if token.kind == TokenKind::End {
            return;
        }
        if token.is(Word::of("user_variables")) {
            effects.pin(Pin::Variables);
        }
    }
}

/// Handles `HANDLER t OPEN [[AS] a]`, `HANDLER a CLOSE`, `HANDLER a READ …`.
fn handler(
    context: &AnalysisContext<'_>,
    statement: &mysql::StatementFacts,
    effects: &mut EffectCollector<'_>,
) {
    let mut tokens = context.tokens(statement);
    let sql = statement.span.of(context.text);
    tokens.next_token();
    let mut name = tokens.next_token();
    let mut verb = tokens.next_token();
    while verb.kind == TokenKind::Dot {
        name = tokens.next_token();
        verb = tokens.next_token();
    }
    if verb.is(Word::of("close")) {
        let name = mysql::identifier(name.span.of(sql));
        return effects.push(EffectKind::Drop(SessionObject::Handler, (*name).into()));
    }
    if !verb.is(Word::of("open")) {
        return;
    }
    let mut alias = tokens.next_token();
    if alias.is(Word::of("as")) {
        alias = tokens.next_token();
    }
    let name = if alias.is_name() { alias } else { name };
    let name = mysql::identifier(name.span.of(sql));
    effects.push(EffectKind::Create(SessionObject::Handler, (*name).into()));
}

/// Handles PREPARE. The effects of the prepared statement are known only if it is a literal.
fn prepare(
    context: &AnalysisContext<'_>,
    statement: &mysql::StatementFacts,
    name: Option<Box<[u8]>>,
    effects: &mut EffectCollector<'_>,
) {
    let Some(name) = name else {
        return effects.push(EffectKind::CreateUnknown(SessionObject::Prepared));
    };
    let text = split::prepared(statement.span.of(context.text), context.modes);
    let depth = context.depth.saturating_add(1);
    let pins = match text {
        Some(text) if depth <= super::DEPTH_MAX => {
            super::read_at(&text, context.modes, context.lookup, depth).binds()
        }
        _ => {
            let mut all = evenkeel_policy::pins::Pins::NONE;
            ANYTHING.into_iter().for_each(|pin| all.add(pin));
            all
        }
    };
    effects.push(EffectKind::Prepare(name, pins));
}
