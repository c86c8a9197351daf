//! Tracks temporary tables that a statement creates, drops or renames.

use crate::mysql::{self, StatementTraits, Token, TokenKind, Tokens};
use crate::token::Word;
use crate::token::words::TABLE;
use evenkeel_policy::pins::Pin;

use super::effects::EffectCollector;
use super::{AnalysisContext, EffectKind, IN_SCHEMA, SessionObject};

pub(super) fn collect(
    context: &AnalysisContext<'_>,
    statement: &mysql::StatementFacts,
    effects: &mut EffectCollector<'_>,
) {
    if statement.traits.any(StatementTraits::STORED_PROGRAM) {
        return;
    }
    let sql = statement.span.of(context.text);
    let mut tokens = context.tokens(statement);
    let verb = tokens.next_token();
    let is_temporary = statement.traits.any(StatementTraits::TEMPORARY);
    if verb.is(Word::of("create")) && is_temporary {
        let name = table_name(&mut tokens).and_then(|first| name(&mut tokens, first, sql));
        effects.push(match name {
            Some((name, _)) if context.is_single => {
                EffectKind::Create(SessionObject::TemporaryTable, name)
            }
            _ => EffectKind::CreateUnknown(SessionObject::TemporaryTable),
        });
    } else if verb.is(Word::of("drop")) {
        if context.is_single {
            drop(&mut tokens, sql, effects);
        }
    } else if verb.is(Word::of("alter")) || verb.is(Word::of("rename")) {
        effects.push(EffectKind::RenameTables);
    } else if is_temporary {
        effects.pin_on_success(Pin::TemporaryTable);
    }
}

/// Returns whether the statement runs a query that it contains, as CREATE TABLE … SELECT does. A
/// view, a routine or a default only defines it.
pub(super) fn runs_query(context: &AnalysisContext<'_>, statement: &mysql::StatementFacts) -> bool {
    if statement.traits.any(StatementTraits::STORED_PROGRAM) {
        return false;
    }
    let mut tokens = context.tokens(statement);
    if !tokens.next_token().is(Word::of("create")) {
        // ALTER TABLE computes the values of new columns.
        return true;
    }
    loop {
        let token = tokens.next_token();
        match token.kind {
            TokenKind::End => return false,
            TokenKind::Word if token.word == TABLE => return true,
            TokenKind::Word if token.word == Word::of("view") => return false,
            _ => {}
        }
    }
}

/// Handles `DROP [TEMPORARY] TABLE [IF EXISTS] a, b.c`: a temporary table shadows others of its
/// name.
fn drop(tokens: &mut Tokens<'_>, sql: &[u8], effects: &mut EffectCollector<'_>) {
    let mut first = tokens.next_token();
    if first.is(Word::of("temporary")) {
        first = tokens.next_token();
    }
    if !(first.is(TABLE) || first.is(Word::of("tables"))) {
        return;
    }
    let mut begin = skip_if_exists(tokens);
    while let Some((name, next)) = name(tokens, begin, sql) {
        effects.push(EffectKind::Drop(SessionObject::TemporaryTable, name));
        if next.kind != TokenKind::Comma {
            return;
        }
        begin = tokens.next_token();
    }
}

/// Returns the first token of the name in CREATE [OR REPLACE] TEMPORARY TABLE [IF NOT EXISTS] name.
fn table_name(tokens: &mut Tokens<'_>) -> Option<Token> {
    for _ in 0..4 {
        if tokens.next_token().is(TABLE) {
            return Some(skip_if_exists(tokens));
        }
    }
    None
}

fn skip_if_exists(tokens: &mut Tokens<'_>) -> Token {
    const SKIPPED: [Word; 3] = [Word::of("if"), Word::of("not"), Word::of("exists")];
    loop {
        let token = tokens.next_token();
        if token.kind != TokenKind::Word || !SKIPPED.contains(&token.word) {
            return token;
        }
    }
}

/// Returns a name, with its schema if one is written, and the token after it.
fn name(tokens: &mut Tokens<'_>, first: Token, sql: &[u8]) -> Option<(Box<[u8]>, Token)> {
    if !first.is_name() {
        return None;
    }
    let mut name = mysql::identifier(first.span.of(sql)).into_owned();
    let mut next = tokens.next_token();
    if next.kind == TokenKind::Dot {
        let last = tokens.next_token();
        if !last.is_name() {
            return None;
        }
        name.push(IN_SCHEMA);
        name.extend_from_slice(&mysql::identifier(last.span.of(sql)));
        next = tokens.next_token();
    }
    Some((name.into(), next))
}
