//! DO: a block of code given as a string, read for what it may leave behind.

use std::collections::BTreeSet;

use crate::name::identifier;
use crate::postgres::{self, StatementFacts, Tokens};
use crate::token::words::{
    COMMIT, CONSTRAINTS, CREATE, DROP, EXECUTE, FUNCTION, GLOBAL, HOLD, INTO, LISTEN, LOCAL, ON,
    PG_TEMP, PREPARE, PROCEDURE, REPLACE, RESET, SEQUENCE, SET, TABLE, TEMP, TEMPORARY, TO,
    TRANSACTION, VIEW, WITH,
};
use crate::token::{Span, Token, TokenKind, Word};
use evenkeel_policy::pins::{Pin, Pins};

use smallvec::SmallVec;

use super::super::settings::values;
use super::body::{Body, whole};
use super::effects::EffectCollector;
use super::{
    AnalysisContext, EffectKind, ParsingChange, SequenceReads, implicit_code, languages,
    parsing_change, pins,
};

/// What SQL that is not in the text, or code in another language, may leave behind.
pub(super) const ANYTHING: [Pin; 8] = [
    Pin::Settings,
    Pin::Role,
    Pin::NamedLock,
    Pin::TemporaryTable,
    Pin::Listen,
    Pin::Prepared,
    Pin::HeldCursor,
    Pin::Code,
];

pub(super) fn collect(
    reader: &AnalysisContext<'_>,
    statement: &StatementFacts,
    effects: &mut EffectCollector<'_>,
) {
    let own = statement.span.of(reader.text);
    let mut tokens = Tokens::new(own, reader.backslashes);
    let mut code = Span::default();
    let mut language = String::from("plpgsql");
    loop {
        let token = tokens.next_token();
        match token.kind {
            TokenKind::End => break,
            TokenKind::Word if token.is(Word::of("language")) => {
                let written = identifier(tokens.next_token().span.of(own));
                language = String::from_utf8_lossy(&written)
                    .trim_matches('\'')
                    .to_owned();
            }
            TokenKind::String => code = token.span,
            _ => {}
        }
    }
    match postgres::string_value(code.of(own), reader.backslashes) {
        Some(code) if language == "plpgsql" => {
            read(reader, &code, true, effects);
            let body = Body::read("plpgsql", &code);
            // What it makes of its strings may draw and ask, too.
            effects.own.sequences.draws |= body.pins.has(Pin::Sequence);
            if body.pins.has(Pin::SequenceRead) {
                effects.reads_sequence(SequenceReads::Some);
            }
            effects.own.shadows_tables |= body.pins.has(Pin::TableShadowing);
            effects.own.changes_parsing |= body.pins.has(Pin::ParseSettings);
            for relation in body.relations {
                pins::changed(reader, &relation, effects);
            }
            if body.defines {
                implicit_code::defined(reader, effects);
            }
            if reader.doubts_functions && !body.calls.is_empty() {
                anything(reader, effects);
            }
        }
        Some(code) => {
            anything(reader, effects);
            if languages::keeps(&language, &code) {
                effects.pin(Pin::LanguageState);
            }
        }
        None => anything(reader, effects),
    }
}

/// What running this code in SQL or PL/pgSQL may leave behind, apart from what it calls, changes
/// and makes at run time. Adds the settings with a dot in their names, which `pg_settings` does not
/// list.
pub(super) fn bound_by_code(code: &[u8], custom_settings: &mut BTreeSet<Box<[u8]>>) -> Pins {
    let reader = AnalysisContext {
        text: code,
        backslashes: false,
        catalog: None,
        doubts_functions: false,
    };
    let mut list = SmallVec::new();
    let mut effects = EffectCollector::of(0, &mut list);
    read(&reader, code, false, &mut effects);
    let passing = [
        (effects.own.sequences.draws, Pin::Sequence),
        (
            effects.own.sequences.reads == SequenceReads::Some,
            Pin::SequenceRead,
        ),
        (effects.own.shadows_tables, Pin::TableShadowing),
        (effects.own.changes_parsing, Pin::ParseSettings),
    ];
    let mut pins = Pins::NONE;
    for (_, pin) in passing.iter().filter(|(is_so, _)| *is_so) {
        pins.add(*pin);
    }
    for effect in &list {
        match &effect.kind {
            EffectKind::Pin(pin) | EffectKind::PinOnSuccess(pin) => pins.add(*pin),
            EffectKind::SetUnknown(name) if name.contains(&b'.') => {
                pins.add(Pin::Settings);
                custom_settings.insert(name.clone());
            }
            _ => {}
        }
    }
    pins
}

pub(super) fn anything(reader: &AnalysisContext<'_>, effects: &mut EffectCollector<'_>) {
    effects.reads_sequence(SequenceReads::Unknown);
    for pin in ANYTHING {
        effects.pin(pin);
    }
    if reader
        .catalog
        .is_some_and(|catalog| catalog.has_languages())
    {
        effects.pin(Pin::LanguageState);
    }
}

/// Goes through code in PL/pgSQL word by word: it says too much rather than too little.
///
/// `dynamic`: what it makes at run time may be anything.
fn read(
    reader: &AnalysisContext<'_>,
    code: &[u8],
    dynamic: bool,
    effects: &mut EffectCollector<'_>,
) {
    let whole = whole(code);
    let sets = Sets {
        anything: !postgres::sets_locally(code, &whole, false),
        role: postgres::may_set_role(code, &whole, false),
        names: postgres::set_config_names(code, &whole, false)
            .map(|name| name.and_then(|name| values::name(&name)))
            .collect(),
    };
    // What may be for longer binds, which says as much.
    effects.own.changes_parsing |= !sets.anything && sets_what_is_read_by(code, &whole);
    let mut tokens = Tokens::new(code, false);
    let mut last = Token::default();
    let mut dropped = Dropped::default();
    let mut token = tokens.next_token();
    while token.kind != TokenKind::End {
        let next = tokens.next_token();
        match token.kind {
            TokenKind::Broken | TokenKind::EscapedName if dynamic => anything(reader, effects),
            TokenKind::Word | TokenKind::QuotedName if next.kind == TokenKind::Open => {
                call(reader, &identifier(token.span.of(code)), &sets, effects);
            }
            TokenKind::Word if dynamic && is_dynamic(token, next) => anything(reader, effects),
            TokenKind::Word if is_set(token, last, next) => {
                let name = (next.kind == TokenKind::Word).then(|| identifier(next.span.of(code)));
                set(name.as_deref(), effects);
                if token.is(SET) {
                    let name = whole_name(code, next, tokens.clone());
                    effects.sets_unknown_value(name.as_deref());
                }
            }
            TokenKind::Word if token.is(SET) && next.is(LOCAL) => {
                set_locally(code, &tokens, effects)
            }
            TokenKind::Word if is_temporary(token, last, next) => {
                match dropped.on_commit(token, &tokens) {
                    true => effects.own.shadows_tables = true,
                    false => effects.pin_on_success(Pin::TemporaryTable),
                }
            }
            TokenKind::Word if creates(token, last, next) => {
                // With `pg_temp` in the search path, anything that it creates is temporary.
                effects.pin_on_success(Pin::TemporaryTable);
            }
            TokenKind::Word => word(token, last, effects),
            _ => {}
        }
        last = token;
        token = next;
    }
}

/// Whether a call of `set_config` sets by what texts are read.
fn sets_what_is_read_by(code: &[u8], whole: &StatementFacts) -> bool {
    let mut names = postgres::set_config_names(code, whole, false);
    names.any(|name| {
        let name = name.map(|name| name.to_ascii_lowercase());
        parsing_change::of_name(name.as_deref()) > ParsingChange::Nothing
    })
}

/// What the calls of `set_config` may set for longer than their transaction.
struct Sets {
    anything: bool,
    role: bool,
    /// Names of the settings; `None`: the code does not show it.
    names: Vec<Option<Box<[u8]>>>,
}

fn call(reader: &AnalysisContext<'_>, name: &[u8], sets: &Sets, effects: &mut EffectCollector<'_>) {
    match name {
        b"set_config" => {
            if sets.anything {
                effects.pin_on_success(Pin::Settings);
                let names = sets.names.iter();
                names.for_each(|name| effects.sets_unknown_value(name.as_deref()));
            }
            if sets.anything && sets.role {
                effects.pin_on_success(Pin::Role);
            }
        }
        b"nextval" | b"setval" => effects.draws_sequence(),
        b"currval" | b"lastval" => effects.reads_sequence(SequenceReads::Some),
        b"setseed" => effects.pin(Pin::RandomSeed),
        // Within a block, other calls may follow it.
        b"pg_advisory_unlock_all" => {}
        _ => pins::function(reader, name, effects),
    }
}

/// SET or RESET of something that outlives the transaction.
fn is_set(token: Token, last: Token, next: Token) -> bool {
    let of_transaction = [CONSTRAINTS, LOCAL, TRANSACTION];
    let locally = token.is(SET) && of_transaction.iter().any(|word| next.is(*word));
    (token.is(SET) || token.is(RESET)) && !locally && begins_statement(last)
}

/// Returns the name that SET sets, in which `next` is the first word. `None`: not all of it is in
/// the code, which may be a part of what is run.
fn whole_name(code: &[u8], next: Token, mut behind: Tokens<'_>) -> Option<Box<[u8]>> {
    let mut last = next;
    let mut after = behind.next_token();
    while after.kind == TokenKind::Dot {
        last = behind.next_token();
        after = behind.next_token();
    }
    let is_whole = after.is(TO) || after.span.of(code) == b"=";
    let (start, end) = (next.span.start as usize, last.span.end as usize);
    let written = code.get(start..end).filter(|_| is_whole)?;
    values::written_name(written)
}

/// `name`: the first word behind SET, perhaps that of SESSION AUTHORIZATION.
fn set(name: Option<&[u8]>, effects: &mut EffectCollector<'_>) {
    effects.pin_on_success(Pin::Settings);
    if name.is_none_or(|name| values::is_role(name) || name == b"session") {
        effects.pin_on_success(Pin::Role);
    }
}

/// SET LOCAL: up to the end of the transaction, texts may be read by it.
fn set_locally(code: &[u8], behind: &Tokens<'_>, effects: &mut EffectCollector<'_>) {
    let name = behind.clone().next_token();
    let name = (name.kind == TokenKind::Word).then(|| identifier(name.span.of(code)));
    effects.own.changes_parsing |=
        parsing_change::of_name(name.as_deref()) > ParsingChange::Nothing;
}

/// Whether it runs SQL that is made at run time; GRANT EXECUTE ON … and CREATE TRIGGER … EXECUTE
/// FUNCTION … do not.
pub(super) fn is_dynamic(token: Token, next: Token) -> bool {
    token.is(EXECUTE) && !(next.is(ON) || next.is(FUNCTION) || next.is(PROCEDURE))
}

/// CREATE of anything that is not said to be temporary.
fn creates(token: Token, last: Token, next: Token) -> bool {
    let is_plain = !next.is(TEMP) && !next.is(TEMPORARY);
    token.is(CREATE) && is_plain && begins_statement(last)
}

/// TEMP in CREATE TEMP TABLE and SELECT … INTO TEMP; variables are called so too.
fn is_temporary(token: Token, last: Token, next: Token) -> bool {
    let before = [CREATE, GLOBAL, INTO, LOCAL, REPLACE];
    let is_behind = before.iter().any(|word| last.is(*word));
    let makes = is_behind || next.is(TABLE) || next.is(VIEW) || next.is(SEQUENCE);
    (token.is(TEMP) || token.is(TEMPORARY)) && makes
}

/// Whether ON COMMIT DROP comes before the end of a statement. What was found holds for all that
/// stands before it, so that nothing is read twice.
#[derive(Default)]
struct Dropped {
    is_so: bool,
    until: u32,
}

impl Dropped {
    fn on_commit(&mut self, token: Token, behind: &Tokens<'_>) -> bool {
        if token.span.start >= self.until {
            *self = Dropped::find(behind.clone());
        }
        self.is_so
    }

    fn find(mut tokens: Tokens<'_>) -> Dropped {
        let mut last = [Token::default(); 2];
        loop {
            let token = tokens.next_token();
            let until = match token.kind {
                TokenKind::End => u32::MAX,
                _ => token.span.end,
            };
            let is_end = matches!(token.kind, TokenKind::End | TokenKind::Semicolon);
            let is_so = token.is(DROP) && last[0].is(ON) && last[1].is(COMMIT);
            if is_end || is_so {
                return Dropped { is_so, until };
            }
            last = [last[1], token];
        }
    }
}

fn word(token: Token, last: Token, effects: &mut EffectCollector<'_>) {
    match token.word {
        PG_TEMP => effects.pin_on_success(Pin::TemporaryTable),
        LISTEN if begins_statement(last) => effects.pin_on_success(Pin::Listen),
        PREPARE if begins_statement(last) => effects.pin_on_success(Pin::Prepared),
        // Cursors of the code itself are never held.
        HOLD if last.is(WITH) => effects.pin_on_success(Pin::HeldCursor),
        _ => {}
    }
}

/// Whether a statement may begin behind this token.
fn begins_statement(last: Token) -> bool {
    const BEFORE: [Word; 6] = [
        Word::of("begin"),
        Word::of("then"),
        Word::of("else"),
        Word::of("loop"),
        Word::of("transaction"),
        Word::of("declare"),
    ];
    match last.kind {
        TokenKind::Semicolon | TokenKind::End => true,
        // `<<label>>`
        TokenKind::Operator => last.word == Word::of(">>"),
        TokenKind::Word => BEFORE.contains(&last.word),
        _ => false,
    }
}
