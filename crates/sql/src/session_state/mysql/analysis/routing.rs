//! Converts the facts of a statement to the router's types.

use crate::mysql;
use crate::name::Names;
use crate::token::Word;
use evenkeel_policy::pins::Pin;
use evenkeel_policy::route::{self, RoutedStatement, RoutingTraits, StatementClass, Volatility};

use super::super::previous_results::ResultReads;
use super::{AnalysisContext, DataChange, TextForm, TransactionPart, calls, rules, set};
use crate::session_state::effects::{has_writing_words, is_writing_class};

/// Returns the statement in the form that the router uses.
pub(super) fn statement(
    context: &AnalysisContext<'_>,
    facts: &mysql::StatementFacts,
) -> RoutedStatement {
    let kind = kind(context, facts);
    RoutedStatement {
        kind,
        traits: traits(facts, kind),
        calls: calls(context, facts, kind),
    }
}

/// Returns the form that the statement gives to its text.
pub(super) fn form(facts: &mysql::StatementFacts) -> TextForm {
    match facts.traits.any(mysql::StatementTraits::STORED_PROGRAM) {
        true => TextForm::StoredProgram,
        false => TextForm::Plain,
    }
}

/// Returns the changes by the statement that other sessions may see after it commits.
pub(super) fn change(facts: &mysql::StatementFacts, statement: &RoutedStatement) -> DataChange {
    if changes_catalog(facts, statement) {
        return DataChange::Catalog;
    }
    match may_write(statement) {
        true => DataChange::Data,
        false => DataChange::None,
    }
}

/// Returns whether other sessions may see new data after the statement commits.
pub(super) fn may_write(statement: &RoutedStatement) -> bool {
    match statement.kind {
        class if is_writing_class(class) => true,
        StatementClass::Read
        | StatementClass::Asks
        | StatementClass::Server
        | StatementClass::Session
        | StatementClass::Setting => has_writing_words(statement),
        _ => false,
    }
}

/// Returns whether the statement may begin a transaction if autocommit is off. SAVEPOINT is an
/// effect of its own.
pub(super) fn may_begin(statement: &RoutedStatement) -> bool {
    !matches!(
        statement.kind,
        StatementClass::Empty | StatementClass::Setting | StatementClass::EndTransaction
    )
}

/// Returns whether the statement uses no table, and nothing that may use one.
pub(super) fn is_tableless(facts: &mysql::StatementFacts) -> bool {
    use mysql::{StatementKind as Kind, StatementTraits as Traits};
    const OTHERS: Traits = Traits::NEXT_VALUE
        .and(Traits::CURRENT_VALUE)
        .and(Traits::SPECIAL_FUNCTION)
        .and(Traits::INTO_FILE)
        .and(Traits::BROKEN)
        .and(Traits::TOO_DEEP);
    let is_bare = |names: &Names| names.as_slice().is_empty() && !names.is_cut();
    match facts.kind {
        Kind::Select => {
            is_bare(&facts.tables) && is_bare(&facts.functions) && !facts.traits.any(OTHERS)
        }
        // SHOW WARNINGS, SHOW ERRORS.
        Kind::Show => facts.traits.any(Traits::DIAGNOSTICS),
        _ => false,
    }
}

/// Returns whether the statement, if it is a read, sets FOUND_ROWS(). SHOW and EXPLAIN may leave it
/// as it is, and MariaDB's VALUES does.
pub(super) fn counts_rows(context: &AnalysisContext<'_>, facts: &mysql::StatementFacts) -> bool {
    match facts.kind {
        mysql::StatementKind::Show | mysql::StatementKind::Explain { .. } => false,
        mysql::StatementKind::Select if facts.tables.as_slice().is_empty() => {
            let first = context.tokens(facts).next_token();
            first.is(Word::of("select")) || first.is(Word::of("with"))
        }
        _ => true,
    }
}

/// Returns whether the catalog's routines and tables may differ after the statement. Temporary
/// tables do not count: other sessions do not see them, and their session is pinned.
fn changes_catalog(facts: &mysql::StatementFacts, statement: &RoutedStatement) -> bool {
    match statement.kind {
        StatementClass::Ddl => !statement.traits.any(RoutingTraits::TEMPORARY),
        StatementClass::Unknown => facts.kind == mysql::StatementKind::Unknown,
        _ => false,
    }
}

/// Returns what the statement reads about the preceding one. An unreadable statement may read
/// anything.
pub(super) fn needs(context: &AnalysisContext<'_>, facts: &mysql::StatementFacts) -> ResultReads {
    use mysql::{StatementKind as Kind, StatementTraits as Traits};
    let of = |traits: Traits, needs: ResultReads| match facts.traits.any(traits) {
        true => needs,
        false => ResultReads::NONE,
    };
    let calls = !facts.functions.as_slice().is_empty();
    let hidden = match facts.kind {
        Kind::Call | Kind::Execute(_) | Kind::Unknown => ResultReads::ALL.as_possible(),
        Kind::GetDiagnostics => ResultReads::DIAGNOSTICS,
        _ if reads_results_within(context, facts) => ResultReads::ALL.as_possible(),
        _ if calls => ResultReads::INSERT_ID.as_possible(),
        _ => ResultReads::NONE,
    };
    // These statements may leave the insert id unchanged.
    let sets = match facts.kind {
        Kind::LoadData { .. } => true,
        Kind::Write => returns(context, facts),
        _ => false,
    };
    let sets = sets || facts.traits.any(Traits::SETS_INSERT_ID);
    let hidden = match sets {
        true => hidden.and(ResultReads::INSERT_ID.as_possible()),
        false => hidden,
    };
    hidden
        .and(of(Traits::READS_INSERT_ID, ResultReads::INSERT_ID))
        .and(match facts.traits.any(Traits::READS_FOUND_ROWS) {
            true => counts(context, facts),
            false => ResultReads::NONE,
        })
        .and(of(Traits::DIAGNOSTICS, ResultReads::DIAGNOSTICS))
}

/// Returns whether a function or view that it names reads results of the preceding statement.
fn reads_results_within(context: &AnalysisContext<'_>, facts: &mysql::StatementFacts) -> bool {
    let (calls, views) = calls::bonds(context, facts);
    calls.has(Pin::FoundRows) || views.has(Pin::FoundRows) || views.has(Pin::InsertId)
}

/// Returns whether the reply to an insert may be a result, which has no insert id. The position of
/// the word is not checked.
fn returns(context: &AnalysisContext<'_>, facts: &mysql::StatementFacts) -> bool {
    const WORD: &[u8] = b"returning";
    let text = facts.span.of(context.text);
    let is_it = |part: &[u8]| part.eq_ignore_ascii_case(WORD);
    context.modes.mariadb && text.windows(WORD.len()).any(is_it)
}

/// Returns which results this statement sets for the next one of the same text.
/// An insert may leave the insert id unchanged.
pub(super) fn answers(kind: mysql::StatementKind) -> ResultReads {
    use mysql::StatementKind as Kind;
    match kind {
        Kind::Select => ResultReads::FOUND_ROWS.and(ResultReads::ROW_COUNT),
        Kind::Write => ResultReads::ROW_COUNT.and(ResultReads::DIAGNOSTICS),
        _ => ResultReads::NONE,
    }
}

/// Returns which of FOUND_ROWS() and ROW_COUNT() the statement calls.
fn counts(context: &AnalysisContext<'_>, facts: &mysql::StatementFacts) -> ResultReads {
    let mut needs = ResultReads::NONE;
    let sql = facts.span.of(context.text);
    let mut tokens = context.tokens(facts);
    loop {
        let token = tokens.next_token();
        if token.kind == mysql::TokenKind::End {
            return needs;
        }
        if calls::is_named(token, sql, b"found_rows") {
            needs = needs.and(ResultReads::FOUND_ROWS);
        } else if calls::is_named(token, sql, b"row_count") {
            needs = needs.and(ResultReads::ROW_COUNT);
        }
    }
}

/// Returns whether the statement has exactly one reply: code that a routine runs may have more.
pub(super) fn has_one_reply(kind: mysql::StatementKind) -> bool {
    use mysql::StatementKind as Kind;
    !matches!(
        kind,
        Kind::Call | Kind::Execute(_) | Kind::Unknown | Kind::Explain { analyze: true }
    )
}

/// Returns the part of a single statement in a transaction. It runs as a whole or not at all if it
/// contains no COMMIT.
pub(super) fn transaction_part(kind: mysql::StatementKind) -> TransactionPart {
    use mysql::StatementKind as Kind;
    match kind {
        Kind::Begin { .. } => TransactionPart::Begin,
        Kind::Select
        | Kind::Write
        | Kind::LoadData { .. }
        | Kind::Show
        | Kind::Explain { .. }
        | Kind::Set
        | Kind::Use(_) => TransactionPart::Atomic,
        _ => TransactionPart::Several,
    }
}

fn kind(context: &AnalysisContext<'_>, facts: &mysql::StatementFacts) -> StatementClass {
    use mysql::{StatementKind as Kind, StatementTraits as Has};
    let of_server = Has::SERVER_STATE.and(Has::READS_SYSTEM);
    match facts.kind {
        Kind::Select | Kind::Show if facts.traits.any(of_server) => StatementClass::Asks,
        Kind::Explain { .. } if explains_connection(context, facts) => StatementClass::Server,
        Kind::Set => set::kind(context, facts),
        kind => rules::of(kind).class,
    }
}

/// Returns whether it is `EXPLAIN [FORMAT = …] FOR CONNECTION …`: connections belong to one server.
fn explains_connection(context: &AnalysisContext<'_>, facts: &mysql::StatementFacts) -> bool {
    const TOKENS_MAX: usize = 6;
    let mut tokens = context.tokens(facts);
    let mut is_for = false;
    for _ in 0..TOKENS_MAX {
        let token = tokens.next_token();
        if is_for && token.is(Word::of("connection")) {
            return true;
        }
        is_for = token.is(Word::of("for"));
    }
    false
}

/// Converts the isolation level to the router's type.
pub(super) fn isolation(level: mysql::Isolation) -> route::Isolation {
    match level {
        mysql::Isolation::Serializable => route::Isolation::Serializable,
        _ => route::Isolation::Weaker,
    }
}

fn traits(facts: &mysql::StatementFacts, kind: StatementClass) -> RoutingTraits {
    let mut traits = RoutingTraits::NONE;
    if facts.kind == (mysql::StatementKind::Explain { analyze: false }) {
        // The statement is planned, not run.
        return traits;
    }
    if facts.functions.is_cut()
        || facts.tables.is_cut() && matches!(kind, StatementClass::Read | StatementClass::Asks)
    {
        traits = traits.and(RoutingTraits::OBSCURE);
    }
    traits = traits.and(facts.traits.routing());
    if kind != StatementClass::Setting && facts.traits.any(mysql::StatementTraits::SETS_VARIABLES) {
        traits = traits.and(RoutingTraits::ASSIGNS);
    }
    traits
}

/// Returns the worst volatility of all calls and reads. Nothing is looked up for a statement that
/// cannot be a read.
fn calls(
    context: &AnalysisContext<'_>,
    facts: &mysql::StatementFacts,
    kind: StatementClass,
) -> Volatility {
    if !matches!(
        kind,
        StatementClass::Read
            | StatementClass::Asks
            | StatementClass::Setting
            | StatementClass::Server
            | StatementClass::Session
    ) {
        return Volatility::None;
    }
    let is_run = facts.kind != (mysql::StatementKind::Explain { analyze: false });
    let called = match is_run {
        true => facts.functions.as_slice(),
        false => &[],
    };
    let tables = facts.tables.as_slice();
    let Some(lookup) = context.lookup else {
        return match called.is_empty() && tables.is_empty() {
            true => Volatility::None,
            false => Volatility::Unknown,
        };
    };
    let named = |span: crate::token::Span| mysql::identifier(span.of(context.text));
    let functions = called.iter().map(|name| lookup.function(&named(name.name)));
    let relations = tables.iter().map(|name| {
        let schema = named(name.schema);
        match is_system_schema(&schema) {
            true => Volatility::Stable,
            false => lookup.relation(&named(name.name)),
        }
    });
    Volatility::worst(functions.chain(relations))
}

/// Returns whether the schema is one of the server itself. Users create objects there at their own
/// risk.
fn is_system_schema(name: &[u8]) -> bool {
    let schemas: [&[u8]; 4] = [
        b"information_schema",
        b"performance_schema",
        b"mysql",
        b"sys",
    ];
    schemas
        .iter()
        .any(|schema| name.eq_ignore_ascii_case(schema))
}
