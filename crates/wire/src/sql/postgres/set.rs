//! Parses SET in all its forms, and `SELECT set_config(…)` (manual: SET, SET ROLE, SET
//! TRANSACTION…).

use super::head::{self, Head};
use super::lexer::Tokens;
use super::words as w;
use crate::sql::facts::{SetConfig, Setting, SettingName, SettingValue, StatementKind};
use crate::sql::token::{Span, TokenKind, Word};

pub(super) fn set(mut head: Head<'_>) -> Option<StatementKind> {
    if head.take(w::TRANSACTION) {
        return transaction(head, false);
    }
    if head.take(w::CONSTRAINTS) {
        return Some(StatementKind::SetConstraints);
    }
    let local = head.take(w::LOCAL);
    let session = !local && head.take(w::SESSION);
    if session && head.take(w::CHARACTERISTICS) {
        let whole = head.take(w::AS) && head.take(w::TRANSACTION);
        return if whole { transaction(head, true) } else { None };
    }
    if (local || session) && head.take(w::TRANSACTION) {
        return transaction(head, false);
    }
    let authorization = session && head.take(w::AUTHORIZATION);
    let (name, value) = if authorization {
        known("session_authorization", &mut head)
    } else {
        setting(&mut head)?
    };
    Some(StatementKind::Set(Setting { name, value, local }))
}

fn transaction(mut head: Head<'_>, session: bool) -> Option<StatementKind> {
    let snapshot = head.take(w::SNAPSHOT);
    let modes = match snapshot {
        true => Default::default(),
        false => head::modes(&mut head)?,
    };
    Some(StatementKind::SetTransaction {
        modes,
        session,
        snapshot,
    })
}

fn setting(head: &mut Head<'_>) -> Option<(SettingName, SettingValue)> {
    if let Some(name) = special(head) {
        return Some(known(name, head));
    }
    let name = setting_name(head)?;
    let equals = head.token.kind == TokenKind::Operator && head.token.word == Word::of("=");
    if equals || head.token.is(w::TO) {
        head.advance();
        return Some((name, value(head)));
    }
    // `SET name FROM CURRENT`, and any unrecognized form.
    Some((name, SettingValue::Unknown))
}

/// Returns the name of a setting with a syntax of its own.
fn special(head: &mut Head<'_>) -> Option<&'static str> {
    let first = head.token;
    let mut ahead = head.fork();
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
    *head = ahead;
    Some(name)
}

fn known(name: &'static str, head: &mut Head<'_>) -> (SettingName, SettingValue) {
    let value = match name {
        // Without a value the setting returns to its default; for TIME ZONE, LOCAL means the
        // default.
        "client_encoding" if head.at_end() => SettingValue::Default,
        "timezone" if head.token.is(w::LOCAL) => SettingValue::Default,
        _ => value(head),
    };
    (SettingName::Known(name), value)
}

/// Parses a setting's name, possibly with dots.
pub(super) fn setting_name(head: &mut Head<'_>) -> Option<SettingName> {
    let first = head.token;
    let mut ahead = head.fork();
    ahead.advance();
    match first.word {
        w::TIME if first.kind == TokenKind::Word && ahead.take(w::ZONE) => {
            *head = ahead;
            return Some(SettingName::Known("timezone"));
        }
        w::SESSION if first.kind == TokenKind::Word && ahead.take(w::AUTHORIZATION) => {
            *head = ahead;
            return Some(SettingName::Known("session_authorization"));
        }
        w::TRANSACTION if first.kind == TokenKind::Word && ahead.take(w::ISOLATION) => {
            ahead.take(w::LEVEL);
            *head = ahead;
            return Some(SettingName::Known("transaction_isolation"));
        }
        _ => {}
    }
    let mut span = first.span;
    loop {
        if !matches!(head.token.kind, TokenKind::Word | TokenKind::QuotedName) {
            return None;
        }
        span = span.to(head.token.span);
        head.advance();
        if head.token.kind != TokenKind::Dot {
            return Some(SettingName::Written(span));
        }
        head.advance();
    }
}

/// Parses the value up to the end: DEFAULT, or a list of literals, words and signed numbers.
fn value(head: &mut Head<'_>) -> SettingValue {
    if head.token.is(w::DEFAULT) {
        head.advance();
        return match head.at_end() {
            true => SettingValue::Default,
            false => SettingValue::Unknown,
        };
    }
    let mut span = head.token.span;
    loop {
        let sign = head.token.kind == TokenKind::Operator;
        let signed = sign && matches!(head.token.word, SIGN_MINUS | SIGN_PLUS);
        if signed {
            head.advance();
        }
        let readable = match head.token.kind {
            TokenKind::Number => true,
            TokenKind::String | TokenKind::Word | TokenKind::QuotedName => !sign,
            _ => false,
        };
        if !readable {
            return SettingValue::Unknown;
        }
        span = span.to(head.token.span);
        head.advance();
        match head.token.kind {
            TokenKind::End | TokenKind::Semicolon => return SettingValue::Literals(span),
            TokenKind::Comma => head.advance(),
            _ => return SettingValue::Unknown,
        }
    }
}

const SIGN_MINUS: Word = Word::of("-");
const SIGN_PLUS: Word = Word::of("+");

/// Returns the calls in `SELECT [pg_catalog.]set_config(literal, literal, bool) [[AS] name], …`.
/// Returns `None` if the statement has any other part, since the function then may or may not be
/// called.
pub(super) fn set_configs(tokens: &Tokens<'_>) -> Option<Vec<SetConfig>> {
    let mut head = Head::new(tokens);
    let mut calls = Vec::new();
    loop {
        calls.push(set_config(&mut head)?);
        // A single word is an alias. A clause has more words, so that the next token is then
        // rejected.
        head.take(w::AS);
        if matches!(head.token.kind, TokenKind::Word | TokenKind::QuotedName) {
            head.advance();
        }
        match head.token.kind {
            TokenKind::End | TokenKind::Semicolon => return Some(calls),
            TokenKind::Comma => head.advance(),
            _ => return None,
        }
    }
}

fn set_config(head: &mut Head<'_>) -> Option<SetConfig> {
    if head.token.is(Word::of("pg_catalog")) {
        head.advance();
        punctuation(head, TokenKind::Dot)?;
    }
    let called = head.take(Word::of("set_config"));
    called.then_some(())?;
    punctuation(head, TokenKind::Open)?;
    let name = one(head, TokenKind::String)?;
    punctuation(head, TokenKind::Comma)?;
    let value = match head.token.is(w::NULL) {
        true => one(head, TokenKind::Word)?,
        false => one(head, TokenKind::String)?,
    };
    punctuation(head, TokenKind::Comma)?;
    let local = head.take(w::TRUE);
    if !local && !head.take(w::FALSE) {
        return None;
    }
    punctuation(head, TokenKind::Close)?;
    Some(SetConfig { name, value, local })
}

fn punctuation(head: &mut Head<'_>, kind: TokenKind) -> Option<()> {
    one(head, kind).map(|_| ())
}

fn one(head: &mut Head<'_>, kind: TokenKind) -> Option<Span> {
    let span = head.token.span;
    (head.token.kind == kind).then(|| {
        head.advance();
        span
    })
}
