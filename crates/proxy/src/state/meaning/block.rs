//! DO: a block of code given as a string, read for what it may leave behind.

use evenkeel_policy::pins::{Pin, Pins};
use evenkeel_wire::sql::facts::Statement;
use evenkeel_wire::sql::name::identifier;
use evenkeel_wire::sql::postgres::{self, Tokens};
use evenkeel_wire::sql::token::{Kind, Span, Token, Word};

use smallvec::SmallVec;

use super::effects::Effects;
use super::{Does, Reader, pins};

/// What SQL that is not in the text, or code in another language, may leave behind.
const ANYTHING: [Pin; 6] = [
    Pin::Settings,
    Pin::NamedLock,
    Pin::TemporaryTable,
    Pin::Listen,
    Pin::Prepared,
    Pin::HeldCursor,
];

pub(super) fn collect(reader: &Reader<'_>, statement: &Statement, effects: &mut Effects<'_>) {
    let own = statement.span.of(reader.text);
    let mut tokens = Tokens::new(own, reader.backslashes);
    let mut code = Span::default();
    let mut speaks = true;
    loop {
        let token = tokens.next_token();
        match token.kind {
            Kind::End => break,
            Kind::Word if token.is(Word::of("language")) => {
                let language = tokens.next_token().span.of(own);
                speaks = language.trim_ascii().eq_ignore_ascii_case(b"plpgsql");
            }
            Kind::String => code = token.span,
            _ => {}
        }
    }
    match postgres::string_value(code.of(own), reader.backslashes) {
        Some(code) if speaks => read(reader, &code, true, effects),
        _ => anything(effects),
    }
}

/// What calling a function with this body, in SQL or PL/pgSQL, may leave behind: for
/// [`super::Lookup::binds`].
///
/// SQL that the body makes at run time is not counted, nor are sequences, which nearly every
/// function that inserts draws from.
#[must_use]
pub fn binds(body: &[u8]) -> Pins {
    let reader = Reader {
        text: body,
        backslashes: false,
        catalog: None,
    };
    let mut list = SmallVec::new();
    let mut effects = Effects {
        statement: 0,
        list: &mut list,
    };
    read(&reader, body, false, &mut effects);
    let mut pins = Pins::NONE;
    for effect in &list {
        match effect.does {
            Does::Pin(Pin::Sequence) => {}
            Does::Pin(pin) | Does::PinOnSuccess(pin) => pins.add(pin),
            _ => {}
        }
    }
    pins
}

fn anything(effects: &mut Effects<'_>) {
    for pin in ANYTHING {
        effects.pin(pin);
    }
}

/// Goes through code in PL/pgSQL word by word: it says too much rather than too little.
///
/// `dynamic`: what it makes at run time may be anything.
fn read(reader: &Reader<'_>, code: &[u8], dynamic: bool, effects: &mut Effects<'_>) {
    let whole = Statement {
        span: Span {
            start: 0,
            end: u32::try_from(code.len()).unwrap_or(u32::MAX),
        },
        ..Statement::default()
    };
    let locally = postgres::sets_locally(code, &whole, false);
    let mut tokens = Tokens::new(code, false);
    let mut last = Token::default();
    let mut token = tokens.next_token();
    while token.kind != Kind::End {
        let next = tokens.next_token();
        match token.kind {
            Kind::Broken | Kind::EscapedName if dynamic => anything(effects),
            Kind::Word | Kind::QuotedName if next.kind == Kind::Open => {
                call(reader, &identifier(token.span.of(code)), locally, effects);
            }
            Kind::Word if token.word == EXECUTE => {
                // GRANT EXECUTE ON …, CREATE TRIGGER … EXECUTE FUNCTION …
                let names = next.is(ON) || next.is(FUNCTION) || next.is(PROCEDURE);
                if dynamic && !names {
                    anything(effects);
                }
            }
            Kind::Word => word(token, last, next, effects),
            _ => {}
        }
        last = token;
        token = next;
    }
}

fn call(reader: &Reader<'_>, name: &[u8], locally: bool, effects: &mut Effects<'_>) {
    match name {
        b"set_config" if !locally => effects.pin_on_success(Pin::Settings),
        b"nextval" | b"setval" => effects.pin(Pin::Sequence),
        b"setseed" => effects.pin(Pin::Seed),
        // Within a block, other calls may follow it.
        b"pg_advisory_unlock_all" => {}
        _ => pins::function(reader, name, effects),
    }
}

fn word(token: Token, last: Token, next: Token, effects: &mut Effects<'_>) {
    match token.word {
        SET if next.is(LOCAL) || next.is(TRANSACTION) => {}
        SET | RESET if begins_statement(last) => effects.pin_on_success(Pin::Settings),
        TEMP | TEMPORARY | PG_TEMP => effects.pin_on_success(Pin::TemporaryTable),
        LISTEN if begins_statement(last) => effects.pin_on_success(Pin::Listen),
        LOAD if begins_statement(last) => effects.pin(Pin::Library),
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
        Kind::Semicolon | Kind::End => true,
        // `<<label>>`
        Kind::Operator => last.word == Word::of(">>"),
        Kind::Word => BEFORE.contains(&last.word),
        _ => false,
    }
}

const EXECUTE: Word = Word::of("execute");
const FUNCTION: Word = Word::of("function");
const LISTEN: Word = Word::of("listen");
const LOAD: Word = Word::of("load");
const LOCAL: Word = Word::of("local");
const ON: Word = Word::of("on");
const PG_TEMP: Word = Word::of("pg_temp");
const PROCEDURE: Word = Word::of("procedure");
const RESET: Word = Word::of("reset");
const SET: Word = Word::of("set");
const TEMP: Word = Word::of("temp");
const TEMPORARY: Word = Word::of("temporary");
const TRANSACTION: Word = Word::of("transaction");
