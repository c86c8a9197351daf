//! SET of variables in all its forms (manual: "SET Syntax for Variable Assignment").

use super::facts::{Assignment, Target, Value, VariableScope};
use super::head::TokenCursor;
use super::lexer::Tokens;
use super::words;
use crate::facts::StatementTraits;
use crate::token::words as w;
use crate::token::{Span, TokenKind, Word};

/// Returns the assignments after SET; `None` if the syntax is not as documented.
pub(super) fn assignments(tokens: &Tokens<'_>) -> Option<Vec<Assignment>> {
    let mut cursor = TokenCursor::new(tokens);
    let mut all = Vec::new();
    loop {
        all.push(assignment(&mut cursor)?);
        if cursor.at_end() {
            return Some(all);
        }
        cursor.take_kind(TokenKind::Comma)?;
    }
}

/// Returns the properties of a SET that follow from its assignments.
pub(super) fn traits(assignments: Option<&[Assignment]>) -> StatementTraits {
    let Some(assignments) = assignments else {
        return StatementTraits::SETS_UNKNOWN;
    };
    let mut traits = StatementTraits::NONE;
    for assignment in assignments {
        if assignment.value == Value::Unknown {
            traits.add(StatementTraits::SETS_UNKNOWN);
        }
        match assignment.target {
            Target::User(_) => traits.add(StatementTraits::SETS_VARIABLES),
            Target::System(VariableScope::Global, _) => traits.add(StatementTraits::SETS_GLOBAL),
            _ => {}
        }
    }
    traits
}

/// Consumes SESSION, LOCAL, GLOBAL, PERSIST or PERSIST_ONLY.
pub(super) fn scope(cursor: &mut TokenCursor<'_>) -> VariableScope {
    if cursor.take_any(&[w::SESSION, w::LOCAL]) {
        return VariableScope::Session;
    }
    match cursor.take_any(&[w::GLOBAL, w::PERSIST, w::PERSIST_ONLY]) {
        true => VariableScope::Global,
        false => VariableScope::Implicit,
    }
}

fn assignment(cursor: &mut TokenCursor<'_>) -> Option<Assignment> {
    if cursor.take(w::NAMES) {
        return Some(Assignment {
            target: Target::Names,
            value: character_set(cursor),
        });
    }
    let mut ahead = cursor.clone();
    let two_words = ahead.take(w::CHARACTER) && ahead.take(w::SET);
    if two_words || cursor.token.is(w::CHARSET) {
        match two_words {
            true => *cursor = ahead,
            false => cursor.advance(),
        }
        return Some(Assignment {
            target: Target::CharacterSet,
            value: character_set(cursor),
        });
    }
    let target = target(cursor)?;
    let equals = cursor.token.kind == TokenKind::Operator && is_equals(cursor.token.word);
    equals.then(|| cursor.advance())?;
    let (word, written) = (cursor.token, cursor.written());
    let mut value = value(cursor);
    let is_word = word.kind == TokenKind::Word && word.word != w::DEFAULT;
    if is_word && !is_literal_word(word.word, written, matches!(target, Target::User(_))) {
        value = Value::Unknown;
    }
    Some(Assignment { target, value })
}

/// Returns whether a word is a literal value. TRUE, FALSE and NULL always are. For a system
/// variable other words are, too (ON, utf8mb4), except functions without parentheses.
fn is_literal_word(word: Word, written: &[u8], is_user_variable: bool) -> bool {
    let constant = matches!(word, w::TRUE | w::FALSE | w::NULL);
    let is_current_timestamp = written.eq_ignore_ascii_case(b"current_timestamp");
    constant || !is_user_variable && !is_current_timestamp && !words::is_function_word(word)
}

fn is_equals(word: Word) -> bool {
    matches!(word, w::EQUALS | w::ASSIGN)
}

fn target(cursor: &mut TokenCursor<'_>) -> Option<Target> {
    let (span, written) = (cursor.token.span, cursor.written());
    if cursor.take_kind(TokenKind::UserVariable).is_some() {
        let start = span.start.saturating_add(1);
        return Some(Target::User(Span { start, ..span }));
    }
    if cursor.take_kind(TokenKind::SystemVariable).is_some() {
        return Some(system_variable(span, written));
    }
    let scope = scope(cursor);
    let name = cursor.dotted_name()?;
    Some(Target::System(scope, name))
}

/// Parses `@@name` or `@@scope.name`.
fn system_variable(span: Span, written: &[u8]) -> Target {
    let scopes: [(&[u8], VariableScope); 5] = [
        (b"@@session.", VariableScope::Session),
        (b"@@local.", VariableScope::Session),
        (b"@@global.", VariableScope::Global),
        (b"@@persist.", VariableScope::Global),
        (b"@@persist_only.", VariableScope::Global),
    ];
    let (length, scope) = scopes
        .iter()
        .find(|(prefix, _)| {
            let start = written.get(..prefix.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(prefix))
        })
        .map_or((2, VariableScope::Implicit), |(prefix, scope)| {
            (prefix.len(), *scope)
        });
    let start = span.start.saturating_add(length as u32);
    Target::System(scope, Span { start, ..span })
}

/// Parses `utf8mb4 [COLLATE x]` or DEFAULT.
fn character_set(cursor: &mut TokenCursor<'_>) -> Value {
    let mut span = cursor.token.span;
    if cursor.take(w::DEFAULT) {
        return Value::Default;
    }
    if !one_word(cursor) {
        return skip_unknown_value(cursor);
    }
    if cursor.take(w::COLLATE) {
        span = span.to(cursor.token.span);
        if !one_word(cursor) {
            return skip_unknown_value(cursor);
        }
    }
    match cursor.at_end() || cursor.token.kind == TokenKind::Comma {
        true => Value::Literal(span),
        false => skip_unknown_value(cursor),
    }
}

fn one_word(cursor: &mut TokenCursor<'_>) -> bool {
    let found = cursor.token.is_name() || cursor.token.kind == TokenKind::String;
    if found {
        cursor.advance();
    }
    found
}

/// Parses a value up to the next comma: a literal, a word such as ON, a signed number, DEFAULT.
fn value(cursor: &mut TokenCursor<'_>) -> Value {
    if cursor.take(w::DEFAULT) {
        return require_end_of_value(cursor, Value::Default);
    }
    // Another token after the word (`_utf8'x'`, `f(`) makes the value unknown.
    match cursor.literal(|kind| matches!(kind, TokenKind::String | TokenKind::Word)) {
        Some(literal) => require_end_of_value(cursor, Value::Literal(literal)),
        None => skip_unknown_value(cursor),
    }
}

fn require_end_of_value(cursor: &mut TokenCursor<'_>, value: Value) -> Value {
    match cursor.at_end() || cursor.token.kind == TokenKind::Comma {
        true => value,
        false => skip_unknown_value(cursor),
    }
}

/// Skips an expression up to the next comma outside parentheses.
fn skip_unknown_value(cursor: &mut TokenCursor<'_>) -> Value {
    let mut depth = 0_u32;
    while !cursor.at_end() {
        match cursor.token.kind {
            TokenKind::Open => depth = depth.saturating_add(1),
            TokenKind::Close => depth = depth.saturating_sub(1),
            TokenKind::Comma if depth == 0 => break,
            _ => {}
        }
        cursor.advance();
    }
    Value::Unknown
}
