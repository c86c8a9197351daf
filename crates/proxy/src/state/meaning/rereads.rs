//! What a statement may change about how its session's next texts are read.

use std::borrow::Cow;

use evenkeel_policy::pins::{Pin, Pins};
use evenkeel_wire::sql::facts::{Discard, Kind, Statement, Traits};
use evenkeel_wire::sql::postgres;

use super::super::settings::{is_of_literals, is_of_names, is_of_texts};
use super::effects::{Effects, setting_name};
use super::{Does, Effect, Reader, pins};

/// From when it is sent until its transaction has ended, what is known of the session's settings
/// may be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Rereads {
    /// It sets none that matters.
    #[default]
    Nothing,
    /// Literals or names in them may mean something else.
    Values,
    /// It sets what its text does not tell, and is bound for it.
    Anything,
    /// It sets by what texts are taken apart.
    Texts,
}

/// A bond for what may be any setting.
const ANY_SETTING: Pins = Pins::of(&[Pin::Settings, Pin::Library, Pin::Unknown]);

/// What a session that is bound so has set may be anything.
#[must_use]
pub fn sets_anything(pins: Pins) -> bool {
    pins.iter().any(|pin| ANY_SETTING.has(pin))
}

/// `effects`: what it leaves behind.
pub(super) fn of(reader: &Reader<'_>, statement: &Statement, effects: &Effects<'_>) -> Rereads {
    let binds = |effect: &Effect| match effect.does {
        Does::Pin(pin) | Does::PinOnSuccess(pin) => ANY_SETTING.has(pin),
        _ => false,
    };
    let by_bond = match effects.own().iter().any(binds) {
        true => Rereads::Anything,
        false if effects.rereads => Rereads::Values,
        false => Rereads::Nothing,
    };
    by_bond.max(of_statement(reader, statement))
}

fn of_statement(reader: &Reader<'_>, statement: &Statement) -> Rereads {
    let sets = Traits::SETS_LITERALS.and(Traits::SETS_UNKNOWN);
    match statement.kind {
        Kind::Set(setting) => of_name(setting_name(reader, setting.name).as_deref()),
        Kind::Reset(name) => of_name(setting_name(reader, name).as_deref()),
        Kind::ResetAll | Kind::Discard(Discard::All) => Rereads::Texts,
        // What it runs was prepared by a text that is not remembered.
        Kind::Execute(_) => Rereads::Anything,
        _ if !statement.traits.any(sets) => Rereads::Nothing,
        _ if pins::by_view(reader, statement) => Rereads::Anything,
        _ => {
            let names = postgres::names_set(reader.text, statement, reader.backslashes);
            let each =
                names.map(|name| of_name(name.map(|name| name.to_ascii_lowercase()).as_deref()));
            each.max().unwrap_or_default()
        }
    }
}

/// Whether it may set the search path by a function, which a parameter may have told.
pub(super) fn sets_path(reader: &Reader<'_>, statement: &Statement, effects: &Effects<'_>) -> bool {
    let sets = Traits::SETS_LITERALS.and(Traits::SETS_UNKNOWN);
    let is_path = |name: Option<Cow<'_, [u8]>>| {
        name.is_none_or(|name| name.eq_ignore_ascii_case(b"search_path"))
    };
    let mut names = postgres::names_set(reader.text, statement, reader.backslashes);
    // Functions set what their bodies say, which is not looked at here.
    effects.rereads || statement.traits.any(sets) && names.any(is_path)
}

/// Of one that is set, in lower case.
pub(super) fn of_name(name: Option<&[u8]>) -> Rereads {
    match name {
        None => Rereads::Anything,
        Some(name) if is_of_texts(name) => Rereads::Texts,
        Some(name) if is_of_literals(name) || is_of_names(name) => Rereads::Values,
        Some(_) => Rereads::Nothing,
    }
}
