//! Determines how a statement may change the parsing of later texts of its session.

use std::borrow::Cow;

use crate::facts::StatementTraits;
use crate::postgres;
use crate::postgres::{Discard, StatementFacts, StatementKind};
use evenkeel_policy::pins::{Pin, Pins};

use super::super::settings::{is_of_literals, is_of_names, is_of_texts};
use super::effects::{EffectCollector, setting_name};
use super::{AnalysisContext, Effect, EffectKind, pins};

/// Change to the parsing of later texts. From when the statement is sent until its transaction has
/// ended, the tracked settings of the session may be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum ParsingChange {
    /// No relevant setting changes.
    #[default]
    Nothing,
    /// Literals, or names in them, may have another meaning.
    Values,
    /// Settings that the text does not name may change; the statement pins for this reason.
    Anything,
    /// Settings that determine how texts are split into tokens may change.
    Texts,
}

/// Pins that stand for a change of unknown settings.
const ANY_SETTING: Pins = Pins::of(&[
    Pin::UnlistedSettings,
    Pin::Settings,
    Pin::Code,
    Pin::Unknown,
]);

/// Returns whether a session with these pins may have changed settings that no text names.
#[must_use]
pub fn sets_anything(pins: Pins) -> bool {
    pins.iter().any(|pin| ANY_SETTING.has(pin))
}

/// Returns the parsing change of a statement; `effects` contains its effects.
pub(super) fn of(
    context: &AnalysisContext<'_>,
    statement: &StatementFacts,
    effects: &EffectCollector<'_>,
) -> ParsingChange {
    let is_pin = |effect: &Effect| match effect.kind {
        EffectKind::Pin(pin) | EffectKind::PinOnSuccess(pin) => ANY_SETTING.has(pin),
        _ => false,
    };
    let by_pin = match effects.of_statement().iter().any(is_pin) {
        true => ParsingChange::Anything,
        false if effects.own.changes_parsing => ParsingChange::Values,
        false => ParsingChange::Nothing,
    };
    by_pin.max(of_statement(context, statement))
}

fn of_statement(context: &AnalysisContext<'_>, statement: &StatementFacts) -> ParsingChange {
    let sets = StatementTraits::SETS_LITERALS.and(StatementTraits::SETS_UNKNOWN);
    match statement.kind {
        StatementKind::Set(setting) => of_name(setting_name(context, setting.name).as_deref()),
        StatementKind::Reset(name) => of_name(setting_name(context, name).as_deref()),
        StatementKind::ResetAll | StatementKind::Discard(Discard::All) => ParsingChange::Texts,
        // The prepared statement came from a text that is not stored.
        StatementKind::Execute(_) => ParsingChange::Anything,
        _ if !statement.traits.any(sets) => ParsingChange::Nothing,
        _ if pins::names_pg_settings(context, statement) => ParsingChange::Anything,
        _ => {
            let names = postgres::set_config_names(context.text, statement, context.backslashes);
            let each =
                names.map(|name| of_name(name.map(|name| name.to_ascii_lowercase()).as_deref()));
            each.max().unwrap_or_default()
        }
    }
}

/// Returns whether the statement may set the search path through a function, whose arguments may be
/// parameters.
pub(super) fn sets_path(
    context: &AnalysisContext<'_>,
    statement: &StatementFacts,
    effects: &EffectCollector<'_>,
) -> bool {
    let sets = StatementTraits::SETS_LITERALS.and(StatementTraits::SETS_UNKNOWN);
    let is_path = |name: Option<Cow<'_, [u8]>>| {
        name.is_none_or(|name| name.eq_ignore_ascii_case(b"search_path"))
    };
    let mut names = postgres::set_config_names(context.text, statement, context.backslashes);
    // Functions may set anything in their bodies, which are not checked here.
    effects.own.changes_parsing || statement.traits.any(sets) && names.any(is_path)
}

/// Returns the parsing change of a setting. `name` is in lower case; `None`: unknown.
pub(super) fn of_name(name: Option<&[u8]>) -> ParsingChange {
    match name {
        None => ParsingChange::Anything,
        Some(name) if is_of_texts(name) => ParsingChange::Texts,
        Some(name) if is_of_literals(name) || is_of_names(name) => ParsingChange::Values,
        Some(_) => ParsingChange::Nothing,
    }
}
