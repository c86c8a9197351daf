//! PostgreSQL dialect: [`facts()`] of a text.

mod backend_call;
mod channel_call;
mod database_change;
mod datetime_literals;
mod details;
mod facts;
mod head;
mod lexer;
mod scan;
mod session_results;
mod set;
mod words;

#[cfg(test)]
mod tests;

pub use backend_call::{BackendCall, BackendFunction, ProcessArgument, backend_call};
pub use channel_call::{Channel, ChannelAction, ChannelCall, channel_call};
pub use database_change::{DatabaseChange, database_change};
pub use datetime_literals::may_mean_now;
pub use details::executed;
pub(crate) use details::{
    creation, defines_query, may_set_role, set_config_names, set_values, sets_locally,
    string_value, trigger_function,
};
pub use facts::{
    Discard, SetConfig, Setting, SettingName, SettingValue, StatementFacts, StatementKind,
    TextFacts, TransactionModes,
};
pub use lexer::Tokens;
pub use session_results::is_described_by_session;

use crate::token::words as w;
use scan::scan;

use super::facts::{StatementLexer, StatementTraits};
use super::token::{Token, TokenKind, Word};

/// Returns the facts about a text. `backslashes` must be true if the session's
/// `standard_conforming_strings` is off.
///
/// Words are those of the server's grammar. A text in an encoding whose characters may contain
/// ASCII bytes therefore cannot be analyzed ([`encoding_is_safe`]).
#[must_use]
pub fn facts(text: &[u8], backslashes: bool) -> TextFacts<'_> {
    let mut statements = statements(text, backslashes);
    let mut facts = TextFacts::of(&mut statements);
    facts.set_hint(statements.tokens.hint());
    facts
}

/// Returns an iterator over all statements of a text, without the limit of [`facts()`].
pub(crate) fn statements(text: &[u8], backslashes: bool) -> Statements<'_> {
    super::facts::Statements::new(text, Tokens::new(text, backslashes))
}

/// Iterator over the statements of a text; see [`statements`].
pub(crate) type Statements<'a> = super::facts::Statements<'a, Tokens<'a>>;

impl StatementLexer for Tokens<'_> {
    type Kind = StatementKind;

    #[inline]
    fn kind_of_word(&self, word: Word) -> StatementKind {
        head::kind(word, self)
    }

    #[inline]
    fn statement(&mut self, text: &[u8], first: Token) -> (StatementFacts, Token) {
        statement(self, text, first)
    }
}

/// Returns the settings that a `SELECT set_config(…)` with literals changes. Such a statement has
/// the property [`StatementTraits::SETS_LITERALS`].
#[must_use]
pub fn set_configs(text: &[u8], statement: &StatementFacts, backslashes: bool) -> Vec<SetConfig> {
    let start = statement.span.start;
    let mut tokens = Tokens::new(statement.span.of(text), backslashes);
    tokens.next_token();
    let mut calls = set::set_configs(&tokens).unwrap_or_default();
    for call in &mut calls {
        for span in [&mut call.name, &mut call.value] {
            span.start = span.start.saturating_add(start);
            span.end = span.end.saturating_add(start);
        }
    }
    calls
}

/// Returns whether texts in this `client_encoding` can be tokenized by their ASCII bytes (§24.3:
/// the other encodings are client-side only).
///
/// Names are compared as by the server: ignoring case, letters and digits only.
#[must_use]
pub fn encoding_is_safe(client_encoding: &[u8]) -> bool {
    let counts = |byte: &&u8| byte.is_ascii_alphanumeric();
    let clean = || client_encoding.iter().filter(counts);
    let is = |name: &&[u8]| clean().map(u8::to_ascii_lowercase).eq(name.iter().copied());
    !UNSAFE_ENCODINGS.iter().any(is)
}

const UNSAFE_ENCODINGS: [&[u8]; 17] = [
    b"big5",
    b"gb18030",
    b"gbk",
    b"johab",
    b"mskanji",
    b"shiftjis",
    b"shiftjis2004",
    b"sjis",
    b"uhc",
    b"win932",
    b"win936",
    b"win949",
    b"win950",
    b"windows932",
    b"windows936",
    b"windows949",
    b"windows950",
];

#[inline]
fn statement(tokens: &mut Tokens<'_>, text: &[u8], first: Token) -> (StatementFacts, Token) {
    let kind = tokens.kind(first);
    let behind_first = (first.word == w::SELECT).then(|| tokens.clone());
    let (mut statement, end) = scan(tokens, text, first, kind);
    let literals = |behind: Tokens<'_>| set::set_configs(&behind).is_some();
    if statement.traits.any(StatementTraits::SETS_UNKNOWN) && behind_first.is_some_and(literals) {
        statement.traits = StatementTraits::SETS_LITERALS;
    }
    refine(&mut statement, text);
    (statement, end)
}

/// Adds the properties that only the whole statement determines.
fn refine(statement: &mut StatementFacts, text: &[u8]) {
    match statement.kind {
        StatementKind::Explain { analyze: true } if !explains_query(statement, text) => {
            statement.traits.add(StatementTraits::WRITES);
        }
        StatementKind::Set(setting) => {
            if matches!(setting.name, SettingName::Written(name) if is_seed(name.of(text))) {
                statement.traits.add(StatementTraits::SEED);
            }
            match setting.value {
                SettingValue::Unknown => statement.traits.add(StatementTraits::SETS_UNKNOWN),
                SettingValue::Literals(value) => note_pg_temp(statement, value.of(text)),
                SettingValue::Default => {}
            }
        }
        _ if statement.traits.any(StatementTraits::SETS_LITERALS) => {
            note_pg_temp(statement, statement.span.of(text));
        }
        _ => {}
    }
}

fn is_seed(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"seed")
}

/// Marks a value that names `pg_temp`: if first in the search path, a plain CREATE TABLE creates a
/// temporary table.
fn note_pg_temp(statement: &mut StatementFacts, value: &[u8]) {
    let named = b"pg_temp";
    let mut places = value.windows(named.len());
    if places.any(|place| place.eq_ignore_ascii_case(named)) {
        statement.traits.add(StatementTraits::TEMPORARY);
    }
}

/// Returns whether EXPLAIN explains a query, by the first word that begins a command.
fn explains_query(statement: &StatementFacts, text: &[u8]) -> bool {
    let mut tokens = Tokens::new(statement.span.of(text), true);
    tokens.next_token();
    let mut depth = 0_u32;
    loop {
        let token = tokens.next_token();
        match token.kind {
            TokenKind::End => return false,
            TokenKind::Open => depth = depth.saturating_add(1),
            TokenKind::Close => depth = depth.saturating_sub(1),
            TokenKind::Word => match token.word {
                w::SELECT | w::VALUES | w::TABLE | w::WITH => return true,
                w::ANALYZE | w::ANALYSE | w::VERBOSE => {}
                _ if depth > 0 => {}
                _ => return false,
            },
            _ => {}
        }
    }
}
