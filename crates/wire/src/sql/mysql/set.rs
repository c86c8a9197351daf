//! SET of variables in all its forms (manual: "SET Syntax for Variable Assignment").

use super::facts::{Assignment, StatementTraits, Target, Value, VariableScope};
use super::head::Head;
use super::lexer::{TokenKind, Tokens};
use super::words as w;
use crate::sql::token::{Span, Word};

const EQUALS: Word = Word::of("=");
const ASSIGN: Word = Word::of(":=");
const MINUS: Word = Word::of("-");
const PLUS: Word = Word::of("+");

/// Returns the assignments after SET; `None` if the syntax is not as documented.
pub(super) fn assignments(tokens: &Tokens<'_>) -> Option<Vec<Assignment>> {
    let mut head = Head::new(tokens);
    let mut all = Vec::new();
    loop {
        all.push(assignment(&mut head)?);
        if head.at_end() {
            return Some(all);
        }
        head.take_kind(TokenKind::Comma)?;
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
pub(super) fn scope(head: &mut Head<'_>) -> VariableScope {
    if head.take_any(&[w::SESSION, w::LOCAL]) {
        return VariableScope::Session;
    }
    match head.take_any(&[w::GLOBAL, w::PERSIST, w::PERSIST_ONLY]) {
        true => VariableScope::Global,
        false => VariableScope::Unwritten,
    }
}

fn assignment(head: &mut Head<'_>) -> Option<Assignment> {
    if head.take(w::NAMES) {
        return Some(Assignment {
            target: Target::Names,
            value: character_set(head),
        });
    }
    let mut ahead = head.clone();
    let two_words = ahead.take(w::CHARACTER) && ahead.take(w::SET);
    if two_words || head.token.is(w::CHARSET) {
        match two_words {
            true => *head = ahead,
            false => head.advance(),
        }
        return Some(Assignment {
            target: Target::CharacterSet,
            value: character_set(head),
        });
    }
    let target = target(head)?;
    let equals = head.token.kind == TokenKind::Operator && is_equals(head.token.word);
    equals.then(|| head.advance())?;
    let (word, written) = (head.token, head.written());
    let mut value = value(head);
    let is_word = word.kind == TokenKind::Word && word.word != w::DEFAULT;
    if is_word && !is_literal_word(word.word, written, matches!(target, Target::User(_))) {
        value = Value::Unknown;
    }
    Some(Assignment { target, value })
}

/// Returns whether a word is a literal value. TRUE, FALSE and NULL always are. For a system
/// variable other words are, too (ON, utf8mb4), except functions without parentheses.
fn is_literal_word(word: Word, written: &[u8], user: bool) -> bool {
    let constant = matches!(word, w::TRUE | w::FALSE | w::NULL);
    let now = written.eq_ignore_ascii_case(b"current_timestamp");
    constant || !user && !now && !w::is_function_word(word)
}

fn is_equals(word: Word) -> bool {
    word == EQUALS || word == ASSIGN
}

fn target(head: &mut Head<'_>) -> Option<Target> {
    let (span, written) = (head.token.span, head.written());
    if head.take_kind(TokenKind::UserVariable).is_some() {
        let start = span.start.saturating_add(1);
        return Some(Target::User(Span { start, ..span }));
    }
    if head.take_kind(TokenKind::SystemVariable).is_some() {
        return Some(system_variable(span, written));
    }
    let scope = scope(head);
    let mut span = head.token.span;
    loop {
        if !head.token.is_name() {
            return None;
        }
        span = span.to(head.token.span);
        head.advance();
        if head.token.kind != TokenKind::Dot {
            return Some(Target::System(scope, span));
        }
        head.advance();
    }
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
        .map_or((2, VariableScope::Unwritten), |(prefix, scope)| {
            (prefix.len(), *scope)
        });
    let start = span.start.saturating_add(length as u32);
    Target::System(scope, Span { start, ..span })
}

/// Parses `utf8mb4 [COLLATE x]` or DEFAULT.
fn character_set(head: &mut Head<'_>) -> Value {
    let mut span = head.token.span;
    if head.take(w::DEFAULT) {
        return Value::Default;
    }
    if !one_word(head) {
        return unknown(head);
    }
    if head.take(w::COLLATE) {
        span = span.to(head.token.span);
        if !one_word(head) {
            return unknown(head);
        }
    }
    match head.at_end() || head.token.kind == TokenKind::Comma {
        true => Value::Literal(span),
        false => unknown(head),
    }
}

fn one_word(head: &mut Head<'_>) -> bool {
    let found = head.token.is_name() || head.token.kind == TokenKind::String;
    if found {
        head.advance();
    }
    found
}

/// Parses a value up to the next comma: a literal, a word such as ON, a signed number, DEFAULT.
fn value(head: &mut Head<'_>) -> Value {
    let mut span = head.token.span;
    if head.take(w::DEFAULT) {
        return ended(head, Value::Default);
    }
    let sign = head.token.kind == TokenKind::Operator;
    if sign && matches!(head.token.word, MINUS | PLUS) {
        head.advance();
    }
    let readable = match head.token.kind {
        TokenKind::Number => true,
        TokenKind::String => !sign,
        // Another token after the word (`_utf8'x'`, `f(`) makes the value unknown, at the end of
        // this function.
        TokenKind::Word => !sign,
        _ => false,
    };
    if !readable {
        return unknown(head);
    }
    span = span.to(head.token.span);
    head.advance();
    ended(head, Value::Literal(span))
}

fn ended(head: &mut Head<'_>, value: Value) -> Value {
    match head.at_end() || head.token.kind == TokenKind::Comma {
        true => value,
        false => unknown(head),
    }
}

/// Skips an expression up to the next comma outside parentheses.
fn unknown(head: &mut Head<'_>) -> Value {
    let mut depth = 0_u32;
    while !head.at_end() {
        match head.token.kind {
            TokenKind::Open => depth = depth.saturating_add(1),
            TokenKind::Close => depth = depth.saturating_sub(1),
            TokenKind::Comma if depth == 0 => break,
            _ => {}
        }
        head.advance();
    }
    Value::Unknown
}
