//! SQL within SQL: bodies of routines and triggers, and statements that a statement only runs.

use std::borrow::Cow;

use evenkeel_policy::pins::{Pin, Pins};
use evenkeel_wire::sql::mysql::{Modes, TokenKind, Tokens};
use evenkeel_wire::sql::token::Word;

use crate::state::mysql::values;

/// What running this body of a routine or trigger may leave behind in the session, apart from
/// system variables, of which the server tells. It says too much rather than too little.
#[must_use]
pub fn bound_by_body(body: &[u8], modes: Modes) -> Pins {
    let found = look(body, modes);
    let mut pins = Pins::NONE;
    for (is_found, pin) in [
        (found.variables, Pin::Variables),
        (found.locks, Pin::NamedLock),
        (found.temporary, Pin::TemporaryTable),
        (found.prepared, Pin::Prepared),
        (found.sequence, Pin::Sequence),
    ] {
        if is_found || found.anything {
            pins.add(pin);
        }
    }
    pins
}

/// What was seen in a body; [`super::ANYTHING`] has the same five.
#[derive(Default)]
struct Found {
    anything: bool,
    variables: bool,
    locks: bool,
    temporary: bool,
    prepared: bool,
    sequence: bool,
}

fn look(body: &[u8], modes: Modes) -> Found {
    let mut found = Found::default();
    let mut tokens = Tokens::new(body, modes);
    // Behind SET and INTO a user variable may be assigned to.
    let mut assigns = false;
    loop {
        let token = tokens.next_token();
        let ahead = tokens.clone().next_token();
        match token.kind {
            TokenKind::End => return found,
            TokenKind::Broken => found.anything = true,
            TokenKind::Semicolon => assigns = false,
            TokenKind::UserVariable => {
                let assigned = ahead.kind == TokenKind::Operator && ahead.word == Word::of(":=");
                found.variables |= assigns || assigned;
            }
            TokenKind::Word => match token.word {
                SET | INTO => assigns = true,
                FROM | WHERE | VALUES => assigns = false,
                TEMPORARY => found.temporary = true,
                PREPARE => found.prepared = true,
                EXECUTE | CALL => found.anything = true,
                NEXT if ahead.is(VALUE) => found.sequence = true,
                NEXTVAL | SETVAL => found.sequence = true,
                GET_LOCK => found.locks = true,
                _ => {}
            },
            _ => {}
        }
    }
}

const CALL: Word = Word::of("call");
const EXECUTE: Word = Word::of("execute");
const FOR: Word = Word::of("for");
const FROM: Word = Word::of("from");
const GET_LOCK: Word = Word::of("get_lock");
const IMMEDIATE: Word = Word::of("immediate");
const INTO: Word = Word::of("into");
const NEXT: Word = Word::of("next");
const NEXTVAL: Word = Word::of("nextval");
const PREPARE: Word = Word::of("prepare");
const SET: Word = Word::of("set");
const SETVAL: Word = Word::of("setval");
const STATEMENT: Word = Word::of("statement");
const TEMPORARY: Word = Word::of("temporary");
const USING: Word = Word::of("using");
const VALUE: Word = Word::of("value");
const VALUES: Word = Word::of("values");
const WHERE: Word = Word::of("where");

/// The statement within `SET STATEMENT a = 1 FOR …` and `EXECUTE IMMEDIATE '…' [USING …]`, and
/// whether it is the former.
pub(super) fn within(statement: &[u8], modes: Modes) -> Option<(Cow<'_, [u8]>, bool)> {
    let mut tokens = Tokens::new(statement, modes);
    let (first, second) = (tokens.next_token(), tokens.next_token());
    if first.is(EXECUTE) && second.is(IMMEDIATE) {
        let text = tokens.next_token();
        let next = tokens.next_token();
        let is_alone = super::is_end(next.kind) || next.is(USING);
        if text.kind != TokenKind::String || !is_alone {
            return None;
        }
        let text = values::string(text.span.of(statement), modes.no_backslash_escapes)?;
        return Some((Cow::Owned(text), false));
    }
    if !(first.is(SET) && second.is(STATEMENT)) {
        return None;
    }
    loop {
        let token = tokens.next_token();
        match token.kind {
            TokenKind::End | TokenKind::Open | TokenKind::UserVariable | TokenKind::Broken => {
                return None;
            }
            TokenKind::Word if token.word == FOR => {
                let inner = statement.get(token.span.end as usize..)?;
                return Some((Cow::Borrowed(inner), true));
            }
            // What changes how the rest is read, or what is logged.
            TokenKind::Word if is_refused(token.span.of(statement)) => return None,
            _ => {}
        }
    }
}

fn is_refused(name: &[u8]) -> bool {
    let refused: [&[u8]; 5] = [
        b"sql_mode",
        b"character_set_client",
        b"autocommit",
        b"sql_log_bin",
        b"last_insert_id",
    ];
    refused.iter().any(|one| name.eq_ignore_ascii_case(one))
}
