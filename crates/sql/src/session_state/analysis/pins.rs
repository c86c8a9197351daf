//! Determines which functions, triggers and objects of a statement pin its session.

use crate::facts::StatementTraits;
use crate::name::{Name, identifier};
use crate::postgres::{self, StatementFacts, StatementKind, Tokens};
use crate::token::{TokenKind, Word};
use evenkeel_policy::pins::{Pin, Pins, UnpinEvent};
use evenkeel_policy::route::Volatility;

use super::super::settings::values;
use super::effects::EffectCollector;
use super::{
    AnalysisContext, CatalogLookup, EffectKind, SequenceReads, do_block, functional_notation,
};

/// Name prefixes of functions that leave state which only closing the connection removes.
const PERMANENT: [&[u8]; 8] = [
    b"dblink_connect",
    b"pg_backup_start",
    b"pg_start_backup",
    b"pg_copy_logical_replication_slot",
    b"pg_copy_physical_replication_slot",
    b"pg_create_logical_replication_slot",
    b"pg_create_physical_replication_slot",
    b"pg_replication_origin_session_setup",
];

/// Name prefixes of functions that run SQL passed to them as text.
const RUN_TEXT: [&[u8]; 9] = [
    b"connectby",
    b"crosstab",
    b"cursor_to_xml",
    b"database_to_xml",
    b"query_to_xml",
    b"schema_to_xml",
    b"table_to_xml",
    b"ts_rewrite",
    b"ts_stat",
];

/// Traits that may pin.
const PINNING: StatementTraits = StatementTraits::TEMPORARY
    .and(StatementTraits::NAMED_LOCK)
    .and(StatementTraits::NEXT_VALUE)
    .and(StatementTraits::CURRENT_VALUE)
    .and(StatementTraits::SETS_UNKNOWN)
    .and(StatementTraits::SEED);

/// Pins that do not pin a session by themselves.
pub(super) const NOT_PINNING: Pins = Pins::of(&[
    Pin::Sequence,
    Pin::SequenceRead,
    Pin::TableShadowing,
    Pin::ParseSettings,
]);

/// Returns whether the statement may pin, so that [`collect`] must be called.
pub(super) fn may_be(context: &AnalysisContext<'_>, statement: &StatementFacts) -> bool {
    let names = statement.functions.as_slice();
    let has_tables = changes(statement) || !statement.tables.as_slice().is_empty();
    let has_row_functions = context
        .catalog
        .is_some_and(|catalog| catalog.has_row_functions());
    if statement.kind == StatementKind::Call
        || has_row_functions
        || has_tables && context.catalog.is_some()
    {
        return true;
    }
    if statement.traits == StatementTraits::NONE && names.is_empty() {
        return false;
    }
    let traits = statement.traits;
    let analyzed = statement.kind == (StatementKind::Explain { analyze: true });
    traits.any(PINNING)
        || analyzed && traits.any(StatementTraits::WRITES)
        || traits.any(StatementTraits::OBSCURE)
        || names.iter().any(|name| {
            let written = name.name.of(context.text);
            let written = written.strip_prefix(b"\"").unwrap_or(written);
            matches!(
                written.first(),
                Some(b'c' | b'C' | b'd' | b'D' | b'p'..=b't' | b'P'..=b'T')
            ) || context.catalog.is_some()
        })
}

pub(super) fn collect(
    context: &AnalysisContext<'_>,
    statement: &StatementFacts,
    effects: &mut EffectCollector<'_>,
) {
    let (text, backslashes) = (context.text, context.backslashes);
    let traits = statement.traits;
    let mut calls = true;
    match statement.kind {
        StatementKind::Explain { analyze: false } => return planned(context, statement, effects),
        StatementKind::Explain { analyze: true } if traits.any(StatementTraits::WRITES) => {
            explained(context, statement, effects)
        }
        StatementKind::Ddl => {
            let creation = postgres::creation(text, statement, backslashes);
            // A schema name that is written with escapes may be pg_temp.
            let is_temporary = traits.any(StatementTraits::TEMPORARY) && !creation.drops_on_commit;
            if is_temporary || traits.any(StatementTraits::OBSCURE) {
                effects.pin_on_success(Pin::TemporaryTable);
            }
            triggers(context, statement, effects);
            // A definition does not call the functions that it names.
            calls = creation.runs_query;
        }
        _ if traits.any(StatementTraits::TEMPORARY) => effects.pin_on_success(Pin::TemporaryTable),
        _ => {}
    }
    if calls {
        called(context, statement, effects);
    }
}

/// Handles EXPLAIN: the planner evaluates functions declared immutable or stable, also in views.
fn planned(
    context: &AnalysisContext<'_>,
    statement: &StatementFacts,
    effects: &mut EffectCollector<'_>,
) {
    let Some(catalog) = context.catalog else {
        return;
    };
    for name in statement.functions.as_slice() {
        let name = name.name_in(context.text);
        effects.of_object("function", &name, |effects| {
            user_function(context, catalog, &name, effects);
        });
    }
    for table in statement.tables.as_slice() {
        let name = table.name_in(context.text);
        effects.of_object("view", &name, |effects| {
            add_pins(context, catalog.views(&name), effects)
        });
    }
}

fn called(
    context: &AnalysisContext<'_>,
    statement: &StatementFacts,
    effects: &mut EffectCollector<'_>,
) {
    let traits = statement.traits;
    if traits.any(StatementTraits::NEXT_VALUE) {
        effects.draws_sequence();
    }
    if traits.any(StatementTraits::CURRENT_VALUE.and(StatementTraits::OBSCURE)) {
        effects.reads_sequence(SequenceReads::Some);
    }
    if traits.any(StatementTraits::SEED) {
        effects.pin(Pin::RandomSeed);
    }
    if traits.any(StatementTraits::SETS_UNKNOWN) && !sets_locally(context, statement) {
        let name = set_by_function(context, statement);
        effects.of_object("setting", &name, |effects| {
            sets_unknown_values(context, statement, effects);
        });
    }
    if traits.any(StatementTraits::NAMED_LOCK) && statement.functions.is_cut() {
        effects.pin(Pin::NamedLock);
    }
    if traits.any(StatementTraits::OBSCURE) {
        // A name written with escapes may be any name.
        effects.pin_on_success(Pin::Unknown);
    }
    let names = statement.functions.as_slice();
    for name in names {
        function(context, &name.name_in(context.text), effects);
    }
    for name in functional_notation::called(context, statement) {
        function(context, &name, effects);
    }
    if calls_unknown(context, statement) {
        do_block::anything(context, effects);
    }
    relations(context, statement, effects);
    if statement.kind == StatementKind::Select && only_unlocks(context, statement) {
        effects.push(EffectKind::Release(UnpinEvent::UnlockNamed));
    }
}

/// Returns whether the statement is only `SELECT [pg_catalog.]pg_advisory_unlock_all()`. With more
/// in it, the call may not run, or may be followed by calls that acquire such locks.
fn only_unlocks(context: &AnalysisContext<'_>, statement: &StatementFacts) -> bool {
    let sql = statement.span.of(context.text);
    let mut tokens = Tokens::new(sql, context.backslashes);
    tokens.next_token();
    let mut name = tokens.next_token();
    if name.is(Word::of("pg_catalog")) && tokens.next_token().kind == TokenKind::Dot {
        name = tokens.next_token();
    }
    let rest = [TokenKind::Open, TokenKind::Close, TokenKind::End];
    identifier(name.span.of(sql)).as_ref() == b"pg_advisory_unlock_all"
        && rest.iter().all(|kind| tokens.next_token().kind == *kind)
}

/// Adds the pins of a call of the named function.
pub(super) fn function(
    context: &AnalysisContext<'_>,
    name: &[u8],
    effects: &mut EffectCollector<'_>,
) {
    effects.of_object("function", name, |effects| call(context, name, effects));
}

fn call(context: &AnalysisContext<'_>, name: &[u8], effects: &mut EffectCollector<'_>) {
    if is_permanent(name) {
        effects.pin(Pin::Unlisted);
    } else if runs_text(name) {
        do_block::anything(context, effects);
    } else if takes_lock(name) {
        effects.pin(Pin::NamedLock);
    } else if name == b"set_limit" {
        // Function of pg_trgm that changes a setting, which `pg_settings` lists.
        effects.pin_on_success(Pin::Settings);
    } else if let Some(catalog) = context.catalog {
        user_function(context, catalog, name, effects);
    }
}

fn user_function(
    context: &AnalysisContext<'_>,
    catalog: &dyn CatalogLookup,
    name: &[u8],
    effects: &mut EffectCollector<'_>,
) {
    match context.doubts_functions && catalog.is_user_function(name) {
        true => do_block::anything(context, effects),
        false => {
            let pins = catalog.call_pins(name).unwrap_or(Pins::NONE);
            add_pins(context, pins, effects);
        }
    }
}

/// Returns whether the statement calls a function that the catalog does not contain.
pub(super) fn calls_unknown(context: &AnalysisContext<'_>, statement: &StatementFacts) -> bool {
    let names = statement.functions.as_slice();
    let Some(catalog) = context.catalog else {
        return statement.kind == StatementKind::Call;
    };
    let is_unknown = |name: &Name| {
        let name = name.name_in(context.text);
        // `COPY table (columns)` and similar are not calls.
        let is_nothing = || catalog.relation(&name) == Volatility::Unknown;
        catalog.call_pins(&name).is_none() && is_nothing()
    };
    match statement.kind {
        StatementKind::Call => names.first().is_none_or(is_unknown),
        StatementKind::Select
        | StatementKind::Write
        | StatementKind::Ddl
        | StatementKind::Declare { .. }
        | StatementKind::Explain { .. }
        | StatementKind::Prepare(_)
        | StatementKind::Execute(_) => names.iter().any(is_unknown),
        _ => false,
    }
}

/// Returns the pins of a call of the named function, if it is built in or from an extension.
#[must_use]
pub(crate) fn builtin_pins(name: &[u8]) -> Pins {
    match name {
        b"set_config" => Pins::of(&[Pin::UnlistedSettings, Pin::Settings, Pin::Role]),
        b"set_limit" => Pins::of(&[Pin::Settings]),
        b"nextval" | b"setval" => Pins::of(&[Pin::Sequence]),
        b"currval" | b"lastval" => Pins::of(&[Pin::SequenceRead]),
        b"setseed" => Pins::of(&[Pin::RandomSeed]),
        name if takes_lock(name) => Pins::of(&[Pin::NamedLock]),
        name if is_permanent(name) => Pins::of(&[Pin::Unlisted]),
        name if runs_text(name) => Pins::of(&do_block::ANYTHING),
        _ => Pins::NONE,
    }
}

fn is_permanent(name: &[u8]) -> bool {
    PERMANENT.iter().any(|prefix| name.starts_with(prefix))
}

fn runs_text(name: &[u8]) -> bool {
    RUN_TEXT.iter().any(|prefix| name.starts_with(prefix))
}

/// Returns whether the statement changes data, which may run triggers, rules and defaults.
fn changes(statement: &StatementFacts) -> bool {
    matches!(
        statement.kind,
        StatementKind::Write | StatementKind::CopyIn { .. }
    ) || statement.traits.any(StatementTraits::WRITES)
}

/// Adds the pins of triggers of tables, and of functions that views call.
fn relations(
    context: &AnalysisContext<'_>,
    statement: &StatementFacts,
    effects: &mut EffectCollector<'_>,
) {
    let tables = statement.tables.as_slice();
    for table in tables {
        relation(context, statement, &table.name_in(context.text), effects);
    }
    if statement.tables.is_cut() || statement.functions.is_cut() {
        all_names(context, statement, effects);
    }
    if statement.kind == StatementKind::Write && truncates(context, statement) {
        all_changed(context, statement, effects);
    } else if tables.is_empty() && changes(statement) {
        first_table(context, statement, effects);
    }
}

fn relation(
    context: &AnalysisContext<'_>,
    statement: &StatementFacts,
    name: &[u8],
    effects: &mut EffectCollector<'_>,
) {
    effects.of_object("table or view", name, |effects| {
        any_relation(context, statement, name, effects);
    });
}

fn any_relation(
    context: &AnalysisContext<'_>,
    statement: &StatementFacts,
    name: &[u8],
    effects: &mut EffectCollector<'_>,
) {
    let is_own = || postgres::defines_query(context.text, statement, name, context.backslashes);
    let is_unknown = |catalog: &dyn CatalogLookup| catalog.relation(name) == Volatility::Unknown;
    // Views and triggers may be new, or may call functions that were replaced.
    if context.doubts_functions && context.catalog.is_some_and(is_unknown) && !is_own() {
        return do_block::anything(context, effects);
    }
    known_relation(context, statement, name, effects);
}

fn known_relation(
    context: &AnalysisContext<'_>,
    statement: &StatementFacts,
    name: &[u8],
    effects: &mut EffectCollector<'_>,
) {
    match context.catalog {
        Some(_) if changes(statement) => changed(context, name, effects),
        Some(catalog) if context.doubts_functions && catalog.runs_code(name, false) => {
            do_block::anything(context, effects);
        }
        Some(catalog) => add_pins(context, catalog.views(name), effects),
        None => {}
    }
}

/// Adds the pins of a change to the named table.
pub(super) fn changed(
    context: &AnalysisContext<'_>,
    name: &[u8],
    effects: &mut EffectCollector<'_>,
) {
    let Some(catalog) = context.catalog else {
        return;
    };
    match context.doubts_functions && catalog.runs_code(name, true) {
        true => do_block::anything(context, effects),
        false => add_pins(context, catalog.triggers(name), effects),
    }
}

/// Handles CREATE TRIGGER … EXECUTE FUNCTION. Until the catalog is read again, only this statement
/// shows that writing to the table runs the function.
fn triggers(
    context: &AnalysisContext<'_>,
    statement: &StatementFacts,
    effects: &mut EffectCollector<'_>,
) {
    let name = postgres::trigger_function(context.text, statement, context.backslashes);
    let (Some(name), Some(catalog)) = (name, context.catalog) else {
        return;
    };
    effects.of_object("function", &name, |effects| {
        match catalog.call_pins(&name) {
            Some(pins) if !(context.doubts_functions && catalog.is_user_function(&name)) => {
                note_custom_settings(context, pins, effects);
                pins.iter().for_each(|pin| match pin {
                    // The trigger has not run yet.
                    pin if NOT_PINNING.has(pin) => {}
                    pin => effects.pin_on_success(pin),
                });
            }
            _ => do_block::anything(context, effects),
        }
    });
}

/// Handles a statement with more names than are listed: any word may name a function or a table.
/// Named queries of the statement are not excluded: each check would read all of it.
fn all_names(
    context: &AnalysisContext<'_>,
    statement: &StatementFacts,
    effects: &mut EffectCollector<'_>,
) {
    if context.doubts_functions && context.catalog.is_some() {
        do_block::anything(context, effects);
    }
    for_each_name(context, statement, |name| {
        function(context, name, effects);
        known_relation(context, statement, name, effects);
    });
}

/// Handles `TRUNCATE [TABLE] name, …`; each word is treated as a name.
fn all_changed(
    context: &AnalysisContext<'_>,
    statement: &StatementFacts,
    effects: &mut EffectCollector<'_>,
) {
    for_each_name(context, statement, |name| changed(context, name, effects));
}

fn truncates(context: &AnalysisContext<'_>, statement: &StatementFacts) -> bool {
    let first = statement.span.of(context.text).get(..b"truncate".len());
    first.is_some_and(|first| first.eq_ignore_ascii_case(b"truncate"))
}

fn for_each_name(
    context: &AnalysisContext<'_>,
    statement: &StatementFacts,
    mut visit: impl FnMut(&[u8]),
) {
    let sql = statement.span.of(context.text);
    let mut tokens = Tokens::new(sql, context.backslashes);
    loop {
        let token = tokens.next_token();
        match token.kind {
            TokenKind::End => return,
            TokenKind::Word | TokenKind::QuotedName => visit(&identifier(token.span.of(sql))),
            _ => {}
        }
    }
}

/// Handles `COPY [BINARY] [schema.]name` and `REFRESH MATERIALIZED VIEW [CONCURRENTLY]
/// [schema.]name`, which are not among the tables of the statement.
fn first_table(
    context: &AnalysisContext<'_>,
    statement: &StatementFacts,
    effects: &mut EffectCollector<'_>,
) {
    let sql = statement.span.of(context.text);
    let mut tokens = Tokens::new(sql, context.backslashes);
    let words = match tokens.next_token().is(Word::of("refresh")) {
        true => ["materialized", "view", "concurrently"].as_slice(),
        false => &["binary"],
    };
    let mut name = tokens.next_token();
    while words.iter().any(|word| name.is(Word::of(word))) {
        name = tokens.next_token();
    }
    while tokens.clone().next_token().kind == TokenKind::Dot {
        tokens.next_token();
        name = tokens.next_token();
    }
    changed(context, &identifier(name.span.of(sql)), effects);
}

/// Adds the pins of code that the statement runs.
pub(super) fn add_pins(
    context: &AnalysisContext<'_>,
    pins: Pins,
    effects: &mut EffectCollector<'_>,
) {
    note_custom_settings(context, pins, effects);
    for pin in pins.iter() {
        match pin {
            Pin::Sequence => effects.draws_sequence(),
            Pin::SequenceRead => effects.reads_sequence(SequenceReads::Some),
            Pin::TableShadowing => effects.own.shadows_tables = true,
            Pin::ParseSettings => effects.own.changes_parsing = true,
            pin => effects.pin(pin),
        }
    }
}

/// Records the settings that code with these pins may set, and that the server does not list.
pub(super) fn note_custom_settings(
    context: &AnalysisContext<'_>,
    pins: Pins,
    effects: &mut EffectCollector<'_>,
) {
    let catalog = context.catalog.filter(|_| pins.has(Pin::Settings));
    for name in catalog.map_or(&[][..], |catalog| catalog.custom_settings()) {
        effects.sets_unknown_value(Some(name));
    }
}

/// Returns whether the function may acquire an advisory lock that outlives the transaction.
fn takes_lock(name: &[u8]) -> bool {
    let lock = name.starts_with(b"pg_advisory_lock");
    let attempt = name.starts_with(b"pg_try_advisory_lock");
    lock || attempt
}

/// Returns whether all its settings end with the transaction. SET itself is handled before.
fn sets_locally(context: &AnalysisContext<'_>, statement: &StatementFacts) -> bool {
    if matches!(statement.kind, StatementKind::Set(_)) {
        return true;
    }
    !names_pg_settings(context, statement)
        && postgres::sets_locally(context.text, statement, context.backslashes)
}

/// Adds the effects of calls of `set_config` with values that the text does not show.
fn sets_unknown_values(
    context: &AnalysisContext<'_>,
    statement: &StatementFacts,
    effects: &mut EffectCollector<'_>,
) {
    let mut names =
        postgres::set_config_names(context.text, statement, context.backslashes).peekable();
    if names_pg_settings(context, statement) || names.peek().is_none() {
        effects.pin_on_success(Pin::Settings);
    }
    for name in names {
        let name = name.and_then(|name| values::name(&name));
        effects.pin_on_success(values::pin_of_unknown(name.as_deref()));
        effects.sets_unknown_value(name.as_deref());
    }
    if may_set_role(context, statement) {
        effects.pin_on_success(Pin::Role);
    }
}

/// Returns the first setting that `set_config` sets, or a description if the text names none.
fn set_by_function(context: &AnalysisContext<'_>, statement: &StatementFacts) -> Vec<u8> {
    let mut names = postgres::set_config_names(context.text, statement, context.backslashes);
    let name = names.find_map(|name| name.map(|name| name.into_owned()));
    name.unwrap_or_else(|| b"that the text does not name".to_vec())
}

fn may_set_role(context: &AnalysisContext<'_>, statement: &StatementFacts) -> bool {
    names_pg_settings(context, statement)
        || postgres::may_set_role(context.text, statement, context.backslashes)
}

/// Returns whether the statement names `pg_settings`, whose UPDATE changes settings.
pub(super) fn names_pg_settings(context: &AnalysisContext<'_>, statement: &StatementFacts) -> bool {
    statement.names_table(context.text, b"pg_settings")
}

/// Handles EXPLAIN ANALYZE of a statement that creates an object: CREATE TEMP TABLE … AS.
fn explained(
    context: &AnalysisContext<'_>,
    statement: &StatementFacts,
    effects: &mut EffectCollector<'_>,
) {
    let mut tokens = Tokens::new(statement.span.of(context.text), context.backslashes);
    loop {
        let token = tokens.next_token();
        if token.kind == TokenKind::End {
            return;
        }
        if token.is(Word::of("temp")) || token.is(Word::of("temporary")) {
            effects.pin_on_success(Pin::TemporaryTable);
        }
    }
}
