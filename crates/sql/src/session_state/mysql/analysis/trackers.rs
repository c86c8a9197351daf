//! Finds statements that name session trackers, which run with the client's trackers instead of
//! ours.

use crate::mysql::{self, StatementKind, TokenKind};
use crate::token::Word;
use evenkeel_policy::pins::Pin;

use super::{AnalysisContext, EffectKind, TextAnalysis, TextForm};
use crate::session_state::mysql::values;

/// Name prefix of tracker variables, and the tables that show variables.
const NAMES: [&[u8]; 4] = [
    b"session_track_",
    b"session_variables",
    b"system_variables",
    b"variables_by_thread",
];

/// Sets [`TextForm::Trackers`] if the text names trackers and may run with the client's. Only
/// settings of a SET are read from such a text or queried afterwards, so it must have no other
/// effects. In any other text, setting a tracker pins.
pub(super) fn check(
    context: &AnalysisContext<'_>,
    facts: &mysql::TextFacts<'_>,
    analysis: &mut TextAnalysis,
) {
    let is_quiet = |one: &mysql::StatementFacts| {
        matches!(
            one.kind,
            StatementKind::Set
                | StatementKind::Select
                | StatementKind::Show
                | StatementKind::SetTransaction { .. }
                | StatementKind::Empty
        )
    };
    let names_trackers = !analysis.writes()
        && facts.statements().all(is_quiet)
        && (is_named(context.text) || facts.statements().any(|one| shows_variables(context, one)));
    if names_trackers {
        analysis.form = TextForm::Trackers;
    } else {
        for effect in &mut analysis.effects {
            if effect.kind == EffectKind::SetTracker {
                effect.kind = EffectKind::Pin(Pin::Unknown);
            }
        }
    }
}

/// Returns whether the text names trackers. Names in strings and comments also count, which is
/// harmless.
fn is_named(text: &[u8]) -> bool {
    let begins = |at: usize| {
        let rest = text.get(at..).unwrap_or_default();
        NAMES.iter().any(|name| {
            let first = rest.get(..name.len());
            first.is_some_and(|first| first.eq_ignore_ascii_case(name))
        })
    };
    let firsts = text.iter().enumerate();
    let mut firsts = firsts.filter(|(_, byte)| matches!(byte, b's' | b'S' | b'v' | b'V'));
    firsts.any(|(at, _)| begins(at))
}

/// Returns whether the statement is `SHOW [SESSION | LOCAL] VARIABLES [LIKE '…' | WHERE …]`, unless
/// its pattern matches no tracker.
fn shows_variables(context: &AnalysisContext<'_>, statement: &mysql::StatementFacts) -> bool {
    const SCOPES: [Word; 2] = [Word::of("session"), Word::of("local")];
    if statement.kind != StatementKind::Show {
        return false;
    }
    let mut tokens = context.tokens(statement);
    tokens.next_token();
    let mut token = tokens.next_token();
    if SCOPES.iter().any(|scope| token.is(*scope)) {
        token = tokens.next_token();
    }
    if !token.is(Word::of("variables")) {
        return false;
    }
    let is_like = tokens.next_token().is(Word::of("like"));
    let pattern = tokens.next_token();
    if !is_like || pattern.kind != TokenKind::String {
        return true;
    }
    let sql = statement.span.of(context.text);
    let pattern = pattern.span.of(sql);
    values::string(pattern, context.modes.no_backslash_escapes).is_none_or(|pattern| fits(&pattern))
}

/// Returns whether a LIKE pattern may match a tracker's name, checked up to its first wildcard.
fn fits(pattern: &[u8]) -> bool {
    let is_plain = |byte: &u8| !matches!(byte, b'%' | b'_' | b'\\');
    let plain = pattern.split(|byte| !is_plain(byte)).next();
    let plain = plain.unwrap_or_default();
    let name = b"session_track_".get(..plain.len());
    name.is_some_and(|name| name.eq_ignore_ascii_case(plain))
}
