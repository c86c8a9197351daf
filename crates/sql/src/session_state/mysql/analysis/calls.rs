//! What binds a session to its connection by the functions and triggers that its statements run.

use crate::mysql::{self, StatementKind, StatementTraits, Token, TokenKind, Tokens};
use crate::token::words::{GET_LOCK, RELEASE_LOCK};
use crate::token::{Span, Word};
use evenkeel_policy::pins::{Pin, Pins, UnpinEvent};

use super::effects::EffectCollector;
use super::{AnalysisContext, CatalogLookup, EffectKind, SessionObject, tables as temporary};
use crate::session_state::mysql::values;

/// Of components: they take locks that only the end of the connection gives back for certain.
const FOR_EVER: [&[u8]; 2] = [b"service_get_", b"version_tokens_lock_"];

pub(super) fn collect(
    reader: &AnalysisContext<'_>,
    statement: &mysql::StatementFacts,
    effects: &mut EffectCollector<'_>,
) {
    let (traits, functions) = (statement.traits, &statement.functions);
    // MariaDB runs what EXPLAIN finds in FROM.
    let defined = statement.kind == StatementKind::Ddl && !temporary::runs_query(reader, statement);
    if defined {
        return;
    }
    if traits.any(StatementTraits::NAMED_LOCK) {
        locks(reader, statement, effects);
    }
    if traits.any(StatementTraits::SPECIAL_FUNCTION) {
        special(reader, statement, effects);
    }
    if functions.is_cut() {
        effects.anything();
    }
    for name in functions.as_slice() {
        routine(reader, name.name, effects);
    }
    let (own, of_views) = bonds(reader, statement);
    effects.add_pins(own.and(of_views));
}

/// CALL: what the procedure does, and what it is given by variables.
pub(super) fn procedure(
    reader: &AnalysisContext<'_>,
    statement: &mysql::StatementFacts,
    effects: &mut EffectCollector<'_>,
) {
    // They may be OUT parameters.
    if is_given_variables(reader, statement) {
        effects.pin(Pin::Variables);
    } else if statement.traits.any(StatementTraits::READS_VARIABLES) {
        effects.compute_users(reader, statement);
    }
    let own = statement.span.of(reader.text);
    let mut tokens = reader.tokens(statement);
    tokens.next_token();
    let mut name = tokens.next_token();
    let mut next = tokens.next_token();
    while next.kind == TokenKind::Dot {
        name = tokens.next_token();
        next = tokens.next_token();
    }
    let offset = statement.span.start;
    let span = Span {
        start: name.span.start.saturating_add(offset),
        end: name.span.end.saturating_add(offset),
    };
    match name.is_name() && !own.is_empty() {
        true => routine(reader, span, effects),
        false => effects.anything(),
    }
}

/// Whether USING puts variables where its parameters are: that of EXECUTE, for what a client of the
/// protocol gives is answered as a result.
fn is_given_variables(reader: &AnalysisContext<'_>, statement: &mysql::StatementFacts) -> bool {
    let mut tokens = reader.tokens(statement);
    let mut all = std::iter::from_fn(|| next_of(&mut tokens));
    reader.depth > 0 && all.any(|token| token.kind == TokenKind::Parameter)
}

fn routine(reader: &AnalysisContext<'_>, name: Span, effects: &mut EffectCollector<'_>) {
    let name = mysql::identifier(name.of(reader.text));
    match reader.lookup.and_then(|lookup| lookup.call_pins(&name)) {
        Some(pins) => effects.add_pins(of_routine(pins)),
        None => effects.anything(),
    }
}

/// The server puts its LAST_INSERT_ID() back.
fn of_routine(pins: Pins) -> Pins {
    pins.without(Pin::InsertId)
}

/// What the functions and triggers of a statement leave behind or ask, and what its views do: where
/// in it the name of one stands does not matter.
pub(super) fn bonds(
    reader: &AnalysisContext<'_>,
    statement: &mysql::StatementFacts,
) -> (Pins, Pins) {
    let (mut own, mut of_views) = (Pins::NONE, Pins::NONE);
    let Some(lookup) = reader.lookup.filter(|lookup| lookup.has_pins()) else {
        return (own, of_views);
    };
    let writes = matches!(
        statement.kind,
        StatementKind::Write | StatementKind::LoadData { .. }
    );
    let writes = writes || statement.traits.any(StatementTraits::WRITES);
    let text = statement.span.of(reader.text);
    let mut tokens = reader.tokens(statement);
    while let Some(token) = next_of(&mut tokens) {
        if !(token.is_name() || token.kind == TokenKind::Number) {
            continue;
        }
        let name = mysql::identifier(token.span.of(text));
        of_views = of_views.and(lookup.views(&name));
        if writes {
            own = own.and(of_routine(lookup.triggers(&name)));
        }
        if tokens.clone().next_token().kind == TokenKind::Open {
            own = own.and(called(lookup, &name));
        }
    }
    (own, of_views)
}

/// What is unknown is a column, a word, or a function that the server brings itself.
fn called(lookup: &dyn CatalogLookup, name: &[u8]) -> Pins {
    of_routine(lookup.call_pins(name).unwrap_or_default())
}

fn special(
    reader: &AnalysisContext<'_>,
    statement: &mysql::StatementFacts,
    effects: &mut EffectCollector<'_>,
) {
    let own = statement.span.of(reader.text);
    let mut tokens = reader.tokens(statement);
    while let Some(token) = next_of(&mut tokens) {
        if token.is_name() && binds_for_ever(token.span.of(own)) {
            effects.pin(Pin::Unknown);
        }
    }
}

/// Whether a function takes a lock that is not given back for certain.
pub(super) fn binds_for_ever(written: &[u8]) -> bool {
    let name = mysql::identifier(written).to_ascii_lowercase();
    FOR_EVER.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether a token is this name, with quotes or without.
pub(super) fn is_named(token: Token, text: &[u8], name: &[u8]) -> bool {
    let written = || mysql::identifier(token.span.of(text));
    token.is_name() && written().eq_ignore_ascii_case(name)
}

fn next_of(tokens: &mut Tokens<'_>) -> Option<Token> {
    let token = tokens.next_token();
    (token.kind != TokenKind::End).then_some(token)
}

/// What a statement does to named locks, call by call.
fn locks(
    reader: &AnalysisContext<'_>,
    statement: &mysql::StatementFacts,
    effects: &mut EffectCollector<'_>,
) {
    if let Some(does) = answered_lock(reader, statement) {
        return effects.push(does);
    }
    if let Some(does) = lone_lock(reader, statement) {
        return does.into_iter().for_each(|does| effects.push(does));
    }
    // In which order a statement takes and gives back, how often, and whether at all, is not said.
    let own = statement.span.of(reader.text);
    let mut tokens = reader.tokens(statement);
    while let Some(token) = next_of(&mut tokens) {
        if is_named(token, own, b"get_lock") {
            effects.pin(Pin::NamedLock);
        }
    }
}

/// `SELECT GET_LOCK(…)`, `SELECT RELEASE_LOCK(…) AS x` with any arguments, as the only statement:
/// the call is run once, and the reply has its value and nothing else.
fn answered_lock(
    reader: &AnalysisContext<'_>,
    statement: &mysql::StatementFacts,
) -> Option<EffectKind> {
    let own = statement.span.of(reader.text);
    let mut tokens = reader.tokens(statement);
    if !reader.is_single || !tokens.next_token().is(Word::of("select")) {
        return None;
    }
    let mut call = tokens.clone();
    let function = tokens.next_token();
    let takes = function.is(GET_LOCK);
    let is_lock = takes || function.is(RELEASE_LOCK);
    let opens = is_lock && tokens.next_token().kind == TokenKind::Open;
    if !(opens && closes_without_lock(&mut tokens, own) && is_alias(&mut tokens)) {
        return None;
    }
    let name = match lock_call(reader, statement, &mut call) {
        Some(Some(EffectKind::Create(_, name) | EffectKind::Drop(_, name))) => Some(name),
        _ => None,
    };
    Some(match takes {
        true => EffectKind::TakeLock(name),
        false => EffectKind::GiveLock(name),
    })
}

/// Reads up to the closing parenthesis of a call. Returns false if there are other calls for locks
/// in it.
fn closes_without_lock(tokens: &mut Tokens<'_>, own: &[u8]) -> bool {
    const LOCKS: [&[u8]; 3] = [b"get_lock", b"release_lock", b"release_all_locks"];
    let mut depth = 1_u32;
    while let Some(token) = next_of(tokens) {
        match token.kind {
            TokenKind::Open => depth = depth.saturating_add(1),
            TokenKind::Close => depth = depth.saturating_sub(1),
            TokenKind::Broken => return false,
            _ if LOCKS.iter().any(|lock| is_named(token, own, lock)) => return false,
            _ => {}
        }
        if depth == 0 {
            return true;
        }
    }
    false
}

/// Longer than a word that is compared at once.
fn is_release_all(
    reader: &AnalysisContext<'_>,
    statement: &mysql::StatementFacts,
    token: Token,
) -> bool {
    let written = token.span.of(statement.span.of(reader.text));
    token.kind == TokenKind::Word && written.eq_ignore_ascii_case(b"release_all_locks")
}

/// `SELECT GET_LOCK('a', 10)`, `DO RELEASE_LOCK('a')`, `SELECT RELEASE_ALL_LOCKS() AS x`, `SELECT
/// COALESCE(GET_LOCK('a', 0), 0)`: one call and nothing else, which is run just once. `None`: it is
/// built otherwise.
fn lone_lock(
    reader: &AnalysisContext<'_>,
    statement: &mysql::StatementFacts,
) -> Option<Option<EffectKind>> {
    let mut tokens = reader.tokens(statement);
    let verb = tokens.next_token();
    if !(verb.is(Word::of("select")) || verb.is(Word::of("do"))) {
        return None;
    }
    let is_wrapped = enters(&mut tokens);
    let does = lock_call(reader, statement, &mut tokens)?;
    let is_left = !is_wrapped || leaves(&mut tokens);
    (is_left && is_alias(&mut tokens)).then_some(does)
}

/// Goes into a function that computes its first argument once, if there is one around the call.
fn enters(tokens: &mut Tokens<'_>) -> bool {
    const STRICT: [Word; 4] = [
        Word::of("concat"),
        Word::of("coalesce"),
        Word::of("ifnull"),
        Word::of("if"),
    ];
    let mut ahead = tokens.clone();
    let function = ahead.next_token();
    let is_strict = STRICT.iter().any(|strict| function.is(*strict));
    let enters = is_strict && ahead.next_token().kind == TokenKind::Open;
    if enters {
        *tokens = ahead;
    }
    enters
}

/// Leaves that function behind literals only: what computes with the call's value could fail when
/// the lock is taken already, and an error does not bind.
fn leaves(tokens: &mut Tokens<'_>) -> bool {
    loop {
        match tokens.next_token().kind {
            TokenKind::Close => return true,
            TokenKind::Comma | TokenKind::Number | TokenKind::String => {}
            _ => return false,
        }
    }
}

/// The call that comes next: what it does to locks, if anything. `None`: that cannot be told.
fn lock_call(
    reader: &AnalysisContext<'_>,
    statement: &mysql::StatementFacts,
    tokens: &mut Tokens<'_>,
) -> Option<Option<EffectKind>> {
    let own = statement.span.of(reader.text);
    let function = tokens.next_token();
    let open = tokens.next_token();
    let argument = tokens.next_token();
    if open.kind != TokenKind::Open {
        return None;
    }
    if is_release_all(reader, statement, function) {
        let ends = argument.kind == TokenKind::Close;
        return ends.then_some(Some(EffectKind::Release(UnpinEvent::UnlockNamed)));
    }
    let takes = function.is(GET_LOCK);
    if !takes && !function.is(RELEASE_LOCK) {
        let asks = function.is(Word::of("is_free_lock")) || function.is(Word::of("is_used_lock"));
        return (asks && closes(tokens)).then_some(None);
    }
    // Two strings side by side are one, of another name.
    let ends = match tokens.next_token().kind {
        TokenKind::Close => true,
        TokenKind::Comma => closes(tokens),
        _ => false,
    };
    if argument.kind != TokenKind::String || !ends {
        return None;
    }
    let name = values::string(argument.span.of(own), reader.modes.no_backslash_escapes)?;
    let lower = values::in_lower_case(&name)?;
    // MariaDB tells `A` from `a`.
    let name = match reader.modes.mariadb {
        true => name.into(),
        false => lower,
    };
    Some(Some(match takes {
        true => EffectKind::Create(SessionObject::NamedLock, name),
        false => EffectKind::Drop(SessionObject::NamedLock, name),
    }))
}

/// Goes behind the closing parenthesis, over literals only.
fn closes(tokens: &mut Tokens<'_>) -> bool {
    loop {
        match tokens.next_token().kind {
            TokenKind::Close => return true,
            TokenKind::Comma | TokenKind::Number | TokenKind::String | TokenKind::Parameter => {}
            TokenKind::Operator => {}
            _ => return false,
        }
    }
}

/// Whether nothing follows but `AS name`.
fn is_alias(tokens: &mut Tokens<'_>) -> bool {
    let mut token = tokens.next_token();
    if token.is(Word::of("as")) {
        token = tokens.next_token();
        if !(token.is_name() || token.kind == TokenKind::String) {
            return false;
        }
        token = tokens.next_token();
    }
    super::is_end(token.kind)
}
