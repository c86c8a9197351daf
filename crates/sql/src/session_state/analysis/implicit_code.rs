//! What runs without being named: operators, casts, types, event triggers, and what a statement
//! has just defined.

use crate::facts::StatementTraits;
use crate::name::identifier;
use crate::postgres::{self, StatementFacts, StatementKind, Tokens};
use crate::token::words::{CREATE, TABLE, VIEW};
use crate::token::{Token, TokenKind, Word};
use evenkeel_policy::pins::Pins;

use super::effects::EffectCollector;
use super::{AnalysisContext, do_block, pins, routing};

pub(super) fn collect(
    reader: &AnalysisContext<'_>,
    statement: &StatementFacts,
    effects: &mut EffectCollector<'_>,
) {
    let Some(catalog) = reader.catalog else {
        return;
    };
    if let Some(pins) = catalog.implicit_pins()
        && evaluates(reader, statement)
    {
        run(reader, pins, effects);
    }
    if defines(reader, statement) {
        defined(reader, effects);
        definition(reader, statement, effects);
    }
}

/// Something is defined, altered or dropped: event triggers run.
pub(super) fn defined(reader: &AnalysisContext<'_>, effects: &mut EffectCollector<'_>) {
    if let Some(pins) = reader.catalog.and_then(|catalog| catalog.event_pins()) {
        run(reader, pins, effects);
    }
}

/// Code that was known to leave this behind, when the catalog was read.
fn run(reader: &AnalysisContext<'_>, pins: Pins, effects: &mut EffectCollector<'_>) {
    match reader.doubts_functions {
        true => do_block::anything(reader, effects),
        false => pins::add_pins(reader, pins, effects),
    }
}

/// Whether it may use any operator, cast or type: a list of literals does not. What EXPLAIN only
/// plans has its constants evaluated.
fn evaluates(reader: &AnalysisContext<'_>, statement: &StatementFacts) -> bool {
    match statement.kind {
        StatementKind::Select => !selects_literals(reader, statement),
        StatementKind::Write
        | StatementKind::Ddl
        | StatementKind::CopyIn { .. }
        | StatementKind::CopyOut { .. }
        | StatementKind::Declare { .. }
        | StatementKind::Fetch
        | StatementKind::Prepare(_)
        | StatementKind::Execute(_)
        | StatementKind::Explain { .. }
        | StatementKind::Call
        | StatementKind::Do
        | StatementKind::Maintenance => true,
        _ => false,
    }
}

fn selects_literals(reader: &AnalysisContext<'_>, statement: &StatementFacts) -> bool {
    let mut tokens = Tokens::new(statement.span.of(reader.text), reader.backslashes);
    let is_select = tokens.next_token().is(Word::of("select"));
    let mut rest = std::iter::from_fn(|| {
        let token = tokens.next_token();
        (token.kind != TokenKind::End).then_some(token.kind)
    });
    let is_literal = |kind| {
        matches!(
            kind,
            TokenKind::String | TokenKind::Number | TokenKind::Comma
        )
    };
    is_select && rest.all(is_literal)
}

/// Whether event triggers may run.
fn defines(reader: &AnalysisContext<'_>, statement: &StatementFacts) -> bool {
    let traits = statement.traits;
    match statement.kind {
        StatementKind::Ddl | StatementKind::Maintenance => true,
        StatementKind::Select => traits.any(StatementTraits::SELECT_INTO),
        StatementKind::Explain { analyze: true } => {
            traits.any(StatementTraits::SELECT_INTO.and(StatementTraits::WRITES))
        }
        StatementKind::Write => head(reader, statement)[0].is(Word::of("refresh")),
        _ => false,
    }
}

/// What a statement names that defines or alters something, or looks after it: it may run now, and
/// until the catalog is read again nothing else tells what runs it from then on.
fn definition(
    reader: &AnalysisContext<'_>,
    statement: &StatementFacts,
    effects: &mut EffectCollector<'_>,
) {
    let head = head(reader, statement);
    let changes = head[0].is(CREATE) || head[0].is(Word::of("alter"));
    let is_maintenance = statement.kind == StatementKind::Maintenance;
    if !(changes || is_maintenance) || routing::names_routine(reader, statement) {
        return;
    }
    let own = statement.span.of(reader.text);
    let mut tokens = Tokens::new(own, reader.backslashes);
    let is_local = postgres::sets_locally(reader.text, statement, reader.backslashes);
    loop {
        let token = tokens.next_token();
        match token.kind {
            TokenKind::End => break,
            _ if token.is_name() => {
                named(reader, &identifier(token.span.of(own)), is_local, effects)
            }
            _ => {}
        }
    }
    let is_unnamed = head
        .iter()
        .any(|word| UNNAMED.iter().any(|one| word.is(*one)));
    let makes_relation =
        head[0].is(CREATE) && head.iter().any(|word| word.is(TABLE) || word.is(VIEW));
    let calls_unknown = || !makes_relation && pins::calls_unknown(reader, statement);
    if reader.doubts_functions && (is_unnamed || calls_unknown()) {
        do_block::anything(reader, effects);
    }
}

/// `is_local`: all that it sets ends with the transaction.
fn named(
    reader: &AnalysisContext<'_>,
    name: &[u8],
    is_local: bool,
    effects: &mut EffectCollector<'_>,
) {
    let Some(catalog) = reader.catalog else {
        return;
    };
    if reader.doubts_functions && catalog.is_user_function(name) {
        return do_block::anything(reader, effects);
    }
    let own = match name {
        b"set_config" if is_local => Pins::NONE,
        name => pins::builtin_pins(name),
    };
    let called = catalog.call_pins(name).unwrap_or(Pins::NONE);
    let pins = own.and(called).and(catalog.triggers(name));
    pins::note_custom_settings(reader, pins, effects);
    for pin in pins.iter() {
        match pin {
            // Nothing of it is so yet.
            pin if pins::NOT_PINNING.has(pin) => {}
            pin => effects.pin_on_success(pin),
        }
    }
}

/// The first words.
fn head(reader: &AnalysisContext<'_>, statement: &StatementFacts) -> [Token; 4] {
    let mut tokens = Tokens::new(statement.span.of(reader.text), reader.backslashes);
    std::array::from_fn(|_| tokens.next_token())
}

/// What names functions without calling them, and calls them without being named.
const UNNAMED: [Word; 4] = [
    Word::of("aggregate"),
    Word::of("cast"),
    Word::of("event"),
    Word::of("operator"),
];
