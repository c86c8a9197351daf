//! Statements that name session trackers: they run with the client's trackers in place of ours.

use evenkeel_wire::sql::mysql::{self, StatementKind, TokenKind};
use evenkeel_wire::sql::token::Word;

use super::{AnalysisContext, EffectKind, TextAnalysis};
use crate::session_state::mysql::values;
use evenkeel_policy::pins::Pin;

/// What a variable of a tracker is called, and the tables that show variables.
const NAMES: [&[u8]; 4] = [
    b"session_track_",
    b"session_variables",
    b"system_variables",
    b"variables_by_thread",
];

/// Whether a text that means this may run with the client's trackers, and names any. What else it
/// does must be told by its text, or be asked for afterwards: only the settings of a SET are. In
/// such a text a tracker may be set; in any other one it binds.
pub(super) fn look(
    reader: &AnalysisContext<'_>,
    facts: &mysql::TextFacts<'_>,
    meaning: &mut TextAnalysis,
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
    meaning.names_trackers = !meaning.writes
        && facts.statements().all(is_quiet)
        && (is_named(reader.text) || facts.statements().any(|one| shows_variables(reader, one)));
    if !meaning.names_trackers {
        for effect in &mut meaning.effects {
            if effect.does == EffectKind::Track {
                effect.does = EffectKind::Pin(Pin::Unknown);
            }
        }
    }
}

/// A name in a string or a comment counts too: that does no harm.
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

/// `SHOW [SESSION | LOCAL] VARIABLES [LIKE '…' | WHERE …]`, unless the pattern fits no tracker.
fn shows_variables(reader: &AnalysisContext<'_>, statement: &mysql::StatementFacts) -> bool {
    const SCOPES: [Word; 2] = [Word::of("session"), Word::of("local")];
    if statement.kind != StatementKind::Show {
        return false;
    }
    let mut tokens = reader.tokens(statement);
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
    let own = statement.span.of(reader.text);
    let pattern = pattern.span.of(own);
    values::string(pattern, reader.modes.no_backslash_escapes).is_none_or(|pattern| fits(&pattern))
}

/// Whether a pattern of LIKE may fit a tracker's name, as far as it has no wildcards.
fn fits(pattern: &[u8]) -> bool {
    let is_plain = |byte: &u8| !matches!(byte, b'%' | b'_' | b'\\');
    let plain = pattern.split(|byte| !is_plain(byte)).next();
    let plain = plain.unwrap_or_default();
    let name = b"session_track_".get(..plain.len());
    name.is_some_and(|name| name.eq_ignore_ascii_case(plain))
}
