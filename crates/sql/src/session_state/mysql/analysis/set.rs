//! Handles SET: which variables are tracked by server reports, which by the text, and which pin.

use crate::mysql::{self, Assignment, Target, TokenKind, Value as Assigned, VariableScope};
use crate::token::{Span, Word};
use evenkeel_policy::pins::Pin;
use evenkeel_policy::route::{Isolation, StatementClass, TransactionModes};

use super::effects::EffectCollector;
use super::{AnalysisContext, DataChange, EffectKind, ResultReads, TextAnalysis, Value};
use crate::session_state::mysql::client_trackers;
use crate::session_state::mysql::values;
use crate::session_state::mysql::variables::{self, VariableHandling};

pub(super) fn collect(
    context: &AnalysisContext<'_>,
    statement: &mysql::StatementFacts,
    effects: &mut EffectCollector<'_>,
) {
    let assignments = mysql::assignments(context.text, statement, context.modes);
    let Some(assignments) = assignments else {
        // The server rejects the statement, or it is not an assignment.
        return effects.pin(Pin::Unknown);
    };
    let computed = assignments.iter().any(|one| one.value == Assigned::Unknown);
    let mut computes = computed && assigns_within(context, statement);
    for assignment in &assignments {
        computes |= !one(context, assignment, effects);
    }
    if assignments.len() > 1 {
        effects.push(EffectKind::SetSeveral);
    }
    if computes {
        effects.compute_users(context, statement);
    }
}

/// Returns the class of SET for the router. Settings that are tracked for the client may be set on
/// any server.
pub(super) fn kind(
    context: &AnalysisContext<'_>,
    statement: &mysql::StatementFacts,
) -> StatementClass {
    use mysql::StatementTraits as Has;
    if statement.traits.any(Has::SETS_GLOBAL) {
        return StatementClass::Server;
    }
    let assignments = mysql::assignments(context.text, statement, context.modes);
    let follows = |one: &Assignment| match one.target {
        Target::User(_) => one.value != Assigned::Unknown,
        Target::Names | Target::CharacterSet => true,
        Target::System(scope, name) => {
            let name = name_of(context, name);
            let next = is_next(context, scope, &name, one.target);
            !next
                && matches!(
                    handling(context, &name),
                    VariableHandling::Tracked | VariableHandling::Tracker
                )
        }
    };
    let is_computed = !statement.functions.as_slice().is_empty()
        || !statement.tables.as_slice().is_empty()
        || statement.traits.any(Has::BROKEN);
    match assignments {
        Some(all) if !is_computed && all.iter().all(follows) => StatementClass::Setting,
        _ => StatementClass::Session,
    }
}

/// Returns whether a statement other than the last may change the parsing of the rest of the text.
pub(super) fn changes_parsing(context: &AnalysisContext<'_>, facts: &mysql::TextFacts<'_>) -> bool {
    let count = facts.count();
    let mut before_last = facts.statements().take(count.saturating_sub(1));
    before_last.any(|statement| match statement.kind {
        mysql::StatementKind::Set => {
            let all = mysql::assignments(context.text, statement, context.modes);
            all.is_none_or(|all| all.iter().any(|one| changes_one(context, one)))
        }
        _ => false,
    })
}

/// Returns whether a routine run by any but the last statement may change the parsing of the rest.
pub(super) fn may_change_parsing_within(text: &[u8], analysis: &TextAnalysis) -> bool {
    let is_doubtful = |byte: &u8| matches!(byte, b'\'' | b'"' | b'\\' | 0x80..);
    if !text.iter().any(is_doubtful) {
        return false;
    }
    let last = analysis.statements.len().saturating_sub(1);
    let mut effects = analysis.effects.iter();
    effects.any(|effect| {
        let runs = matches!(
            effect.kind,
            EffectKind::SetByRoutine | EffectKind::Execute(_)
        );
        runs && usize::try_from(effect.statement).is_ok_and(|statement| statement < last)
    })
}

/// Marks the rest of the text as unreadable: the server parses it differently from Evenkeel.
pub(super) fn mark_unreadable(analysis: &mut TextAnalysis) {
    let unreadable = TextAnalysis::unreadable();
    analysis.statements.extend(unreadable.statements);
    analysis.effects.extend(unreadable.effects);
    analysis.change = DataChange::Catalog;
    analysis.is_counted = false;
    analysis.needs = analysis.needs.and(ResultReads::ALL.as_possible());
}

fn changes_one(context: &AnalysisContext<'_>, one: &Assignment) -> bool {
    let literal = || match one.value {
        Assigned::Literal(span) => mysql::literal(span.of(context.text), context.modes),
        _ => None,
    };
    let safe = |name: &[u8]| {
        let name = name.split(u8::is_ascii_whitespace).next();
        mysql::charset_is_safe(values::bare(name.unwrap_or_default()))
    };
    match one.target {
        Target::User(_) | Target::System(VariableScope::Global, _) => false,
        Target::Names | Target::CharacterSet => match one.value {
            Assigned::Literal(span) => !safe(span.of(context.text)),
            _ => true,
        },
        Target::System(_, name) => match &*name_of(context, name) {
            b"sql_mode" => literal().is_none_or(|value| {
                let mut after = context.modes;
                values::read_sql_mode(&value, &mut after);
                after != context.modes
            }),
            b"character_set_client" => literal().is_none_or(|value| !safe(&value)),
            _ => false,
        },
    }
}

/// Adds the effect of one assignment. Returns false if it sets a user variable to a value that only
/// the server knows.
fn one(
    context: &AnalysisContext<'_>,
    assignment: &Assignment,
    effects: &mut EffectCollector<'_>,
) -> bool {
    match assignment.target {
        Target::User(name) => return user(context, name, assignment.value, effects),
        Target::System(VariableScope::Global, _) => {}
        Target::System(scope, name) => {
            let name = name_of(context, name);
            match is_next(context, scope, &name, assignment.target) {
                true => next_transaction(context, &name, assignment.value, effects),
                false => system(context, name, assignment.value, effects),
            }
        }
        Target::Names | Target::CharacterSet => {
            effects.push(EffectKind::SetCharset);
            effects.push(EffectKind::SetVariable((*b"character_set_client").into()));
        }
    }
    true
}

fn system(
    context: &AnalysisContext<'_>,
    name: Box<[u8]>,
    value: Assigned,
    effects: &mut EffectCollector<'_>,
) {
    let literal = match value {
        Assigned::Literal(span) => mysql::literal(span.of(context.text), context.modes),
        _ => None,
    };
    match handling(context, &name) {
        VariableHandling::Tracked
            if value == Assigned::Default && variables::is_restricted(&name) =>
        {
            effects.push(EffectKind::SetDefault(name));
        }
        VariableHandling::Tracked => {
            if variables::is_of_connection(&name) {
                effects.push(EffectKind::SetCharset);
            }
            let is_merged =
                client_trackers::has_merged_reports(context.modes.mariadb, context.modes.version);
            let switch = literal.filter(|_| is_merged && variables::is_switch(&name));
            effects.push(match switch.and_then(|value| values::boolean(&value)) {
                Some(is_on) => EffectKind::SetSwitch(name, is_on),
                None => EffectKind::SetVariable(name),
            });
        }
        VariableHandling::InsertId => effects.push(EffectKind::InsertIdUnknown),
        VariableHandling::Timestamp => match value {
            Assigned::Default => effects.push(EffectKind::SetTimestamp(None)),
            _ => match literal.filter(|literal| values::is_number(literal)) {
                Some(literal) if values::is_zero(&literal) => {
                    effects.push(EffectKind::SetTimestamp(None));
                }
                Some(literal) => effects.push(EffectKind::SetTimestamp(Some((*literal).into()))),
                None => effects.pin_on_success(Pin::Settings),
            },
        },
        // The server reports it, too; only such a report removes the pin.
        VariableHandling::Pins(pin, harmless) => {
            let is_harmless = literal.is_some_and(|value| variables::is_one_of(&value, harmless));
            match is_harmless {
                true => {}
                false if variables::is_undone(&name) => {
                    effects.push(EffectKind::SetPinning(name, pin));
                }
                false => effects.pin_on_success(pin),
            }
        }
        VariableHandling::Unfollowed => effects.pin_on_success(Pin::Settings),
        VariableHandling::Tracker => effects.push(EffectKind::SetTracker),
    }
}

fn user(
    context: &AnalysisContext<'_>,
    name: Span,
    value: Assigned,
    effects: &mut EffectCollector<'_>,
) -> bool {
    let Assigned::Literal(span) = value else {
        return false;
    };
    let name = values::user_name(name.of(context.text));
    let value = value_of(context, span.of(context.text));
    let (Some(name), Some(value)) = (name, value) else {
        return false;
    };
    effects.push(EffectKind::SetUser { name, value });
    true
}

/// Returns a literal in a form that is valid in another session.
fn value_of(context: &AnalysisContext<'_>, written: &[u8]) -> Option<Value> {
    match written.first()? {
        b'\'' | b'"' => {
            let string = values::string(written, context.modes.no_backslash_escapes)?;
            Some(Value::String(string.into()))
        }
        // National character strings are converted by separate rules.
        b'n' | b'N' if written.contains(&b'\'') => None,
        _ => Some(Value::Same(written.into())),
    }
}

/// Returns the name in lower case, without quotes.
fn name_of(context: &AnalysisContext<'_>, span: Span) -> Box<[u8]> {
    values::bare(span.of(context.text))
        .to_ascii_lowercase()
        .into()
}

/// Returns how the variable is handled. MariaDB has no GTID tracker, and rejects such a SET itself.
fn handling(context: &AnalysisContext<'_>, name: &[u8]) -> VariableHandling {
    match context.modes.mariadb && name == b"session_track_gtids" {
        true => VariableHandling::Tracked,
        false => variables::handling(name),
    }
}

/// Returns whether the assignment is for the next transaction only. That is so for `SET
/// @@transaction_isolation = …` without SESSION, but `SET transaction_isolation = …` is for the
/// session (manual: "SET TRANSACTION Statement").
fn is_next(
    context: &AnalysisContext<'_>,
    scope: VariableScope,
    name: &[u8],
    target: Target,
) -> bool {
    let Target::System(_, span) = target else {
        return false;
    };
    let before = (span.start as usize).checked_sub(1);
    let at = before.and_then(|at| context.text.get(at)) == Some(&b'@');
    at && scope == VariableScope::Implicit && variables::is_of_transaction(name)
}

fn next_transaction(
    context: &AnalysisContext<'_>,
    name: &[u8],
    value: Assigned,
    effects: &mut EffectCollector<'_>,
) {
    let mut modes = TransactionModes::default();
    if let Assigned::Literal(span) = value {
        let value = mysql::literal(span.of(context.text), context.modes);
        let is_isolation = name.ends_with(b"isolation");
        match value {
            Some(value) if is_isolation => {
                modes.isolation = Some(match value.eq_ignore_ascii_case(b"serializable") {
                    true => Isolation::Serializable,
                    false => Isolation::Weaker,
                });
            }
            Some(value) => modes.read_only = values::boolean(&value),
            None => {}
        }
    }
    effects.push(EffectKind::NextTransaction(modes));
}

/// Returns whether an expression also assigns to a user variable: `SET sql_mode = @a := 'x'`.
fn assigns_within(context: &AnalysisContext<'_>, statement: &mysql::StatementFacts) -> bool {
    let mut tokens = context.tokens(statement);
    let mut is_variable = false;
    loop {
        let token = tokens.next_token();
        match token.kind {
            TokenKind::End => return false,
            TokenKind::Operator if is_variable && token.word == Word::of(":=") => return true,
            _ => is_variable = token.kind == TokenKind::UserVariable,
        }
    }
}
