//! Parses SET in all its forms, and `SELECT set_config(…)` (manual: SET, SET ROLE, SET
//! TRANSACTION…).

use super::facts::{SetConfig, Setting, SettingName, SettingValue, StatementKind};
use super::head::{self, TokenCursor};
use super::lexer::Tokens;
use crate::token::words as w;
use crate::token::{TokenKind, Word};

pub(super) fn set(mut cursor: TokenCursor<'_>) -> Option<StatementKind> {
    if cursor.take(w::TRANSACTION) {
        return transaction(cursor, false);
    }
    if cursor.take(w::CONSTRAINTS) {
        return Some(StatementKind::SetConstraints);
    }
    let local = cursor.take(w::LOCAL);
    let session = !local && cursor.take(w::SESSION);
    if session && cursor.take(w::CHARACTERISTICS) {
        let whole = cursor.take(w::AS) && cursor.take(w::TRANSACTION);
        return if whole {
            transaction(cursor, true)
        } else {
            None
        };
    }
    if (local || session) && cursor.take(w::TRANSACTION) {
        return transaction(cursor, false);
    }
    let authorization = session && cursor.take(w::AUTHORIZATION);
    let (name, value) = if authorization {
        known("session_authorization", &mut cursor)
    } else {
        setting(&mut cursor)?
    };
    Some(StatementKind::Set(Setting { name, value, local }))
}

fn transaction(mut cursor: TokenCursor<'_>, session: bool) -> Option<StatementKind> {
    let snapshot = cursor.take(w::SNAPSHOT);
    let modes = match snapshot {
        true => Default::default(),
        false => head::modes(&mut cursor)?,
    };
    Some(StatementKind::SetTransaction {
        modes,
        session,
        snapshot,
    })
}

fn setting(cursor: &mut TokenCursor<'_>) -> Option<(SettingName, SettingValue)> {
    if let Some(name) = special(cursor) {
        return Some(known(name, cursor));
    }
    let name = setting_name(cursor)?;
    let equals = cursor.token.kind == TokenKind::Operator && cursor.token.word == w::EQUALS;
    if equals || cursor.token.is(w::TO) {
        cursor.advance();
        return Some((name, value(cursor)));
    }
    // `SET name FROM CURRENT`, and any unrecognized form.
    Some((name, SettingValue::Unknown))
}

/// Returns the name of a setting with a syntax of its own.
fn special(cursor: &mut TokenCursor<'_>) -> Option<&'static str> {
    let first = cursor.token;
    let mut ahead = cursor.clone();
    ahead.advance();
    let name = match first.word {
        _ if first.kind != TokenKind::Word => return None,
        w::TIME if ahead.take(w::ZONE) => "timezone",
        w::XML if ahead.take(w::OPTION) => "xmloption",
        // `role = x` is an ordinary setting, as are the others if an operator follows.
        _ if ahead.token.kind == TokenKind::Operator || ahead.token.is(w::TO) => return None,
        w::SCHEMA => "search_path",
        w::NAMES => "client_encoding",
        w::ROLE => "role",
        _ => return None,
    };
    *cursor = ahead;
    Some(name)
}

fn known(name: &'static str, cursor: &mut TokenCursor<'_>) -> (SettingName, SettingValue) {
    let value = match name {
        // Without a value the setting returns to its default; for TIME ZONE, LOCAL means the
        // default.
        "client_encoding" if cursor.at_end() => SettingValue::Default,
        "timezone" if cursor.token.is(w::LOCAL) => SettingValue::Default,
        _ => value(cursor),
    };
    (SettingName::Known(name), value)
}

/// Parses a setting's name, possibly with dots.
pub(super) fn setting_name(cursor: &mut TokenCursor<'_>) -> Option<SettingName> {
    let first = cursor.token;
    let mut ahead = cursor.clone();
    ahead.advance();
    match first.word {
        w::TIME if first.kind == TokenKind::Word && ahead.take(w::ZONE) => {
            *cursor = ahead;
            return Some(SettingName::Known("timezone"));
        }
        w::SESSION if first.kind == TokenKind::Word && ahead.take(w::AUTHORIZATION) => {
            *cursor = ahead;
            return Some(SettingName::Known("session_authorization"));
        }
        w::TRANSACTION if first.kind == TokenKind::Word && ahead.take(w::ISOLATION) => {
            ahead.take(w::LEVEL);
            *cursor = ahead;
            return Some(SettingName::Known("transaction_isolation"));
        }
        _ => {}
    }
    cursor.dotted_name().map(SettingName::Written)
}

/// Parses the value up to the end: DEFAULT, or a list of literals, words and signed numbers.
fn value(cursor: &mut TokenCursor<'_>) -> SettingValue {
    if cursor.token.is(w::DEFAULT) {
        cursor.advance();
        return match cursor.at_end() {
            true => SettingValue::Default,
            false => SettingValue::Unknown,
        };
    }
    let is_value = |kind| {
        matches!(
            kind,
            TokenKind::String | TokenKind::Word | TokenKind::QuotedName
        )
    };
    let mut span = cursor.token.span;
    loop {
        let Some(literal) = cursor.literal(is_value) else {
            return SettingValue::Unknown;
        };
        span = span.to(literal);
        match cursor.token.kind {
            TokenKind::End | TokenKind::Semicolon => return SettingValue::Literals(span),
            TokenKind::Comma => cursor.advance(),
            _ => return SettingValue::Unknown,
        }
    }
}

/// Returns the calls in `SELECT [pg_catalog.]set_config(literal, literal, bool) [[AS] name], …`.
/// Returns `None` if the statement has any other part, since the function then may or may not be
/// called.
pub(super) fn set_configs(tokens: &Tokens<'_>) -> Option<Vec<SetConfig>> {
    let mut cursor = TokenCursor::new(tokens);
    let mut calls = Vec::new();
    loop {
        calls.push(set_config(&mut cursor)?);
        // A single word is an alias. A clause has more words, so that the next token is then
        // rejected.
        cursor.take(w::AS);
        if matches!(cursor.token.kind, TokenKind::Word | TokenKind::QuotedName) {
            cursor.advance();
        }
        match cursor.token.kind {
            TokenKind::End | TokenKind::Semicolon => return Some(calls),
            TokenKind::Comma => cursor.advance(),
            _ => return None,
        }
    }
}

fn set_config(cursor: &mut TokenCursor<'_>) -> Option<SetConfig> {
    if cursor.token.is(Word::of("pg_catalog")) {
        cursor.advance();
        punctuation(cursor, TokenKind::Dot)?;
    }
    let called = cursor.take(Word::of("set_config"));
    called.then_some(())?;
    punctuation(cursor, TokenKind::Open)?;
    let name = cursor.take_kind(TokenKind::String)?;
    punctuation(cursor, TokenKind::Comma)?;
    let value = match cursor.token.is(w::NULL) {
        true => cursor.take_kind(TokenKind::Word)?,
        false => cursor.take_kind(TokenKind::String)?,
    };
    punctuation(cursor, TokenKind::Comma)?;
    let local = cursor.take(w::TRUE);
    if !local && !cursor.take(w::FALSE) {
        return None;
    }
    punctuation(cursor, TokenKind::Close)?;
    Some(SetConfig { name, value, local })
}

fn punctuation(cursor: &mut TokenCursor<'_>, kind: TokenKind) -> Option<()> {
    cursor.take_kind(kind).map(drop)
}
