//! A statement's facts in the router's words.

use evenkeel_policy::pins::Pins;
use evenkeel_policy::route::{
    Isolation, RoutedStatement, RoutingTraits, StatementClass, TransactionModes, Volatility,
};
use evenkeel_wire::sql::facts::{self, SettingValue};
use evenkeel_wire::sql::name::Name;
use evenkeel_wire::sql::postgres::{self, Tokens};
use evenkeel_wire::sql::token::{Span, Token, Word};

use super::effects::setting_name;
use super::{AnalysisContext, functional_notation};

/// The router's view of a statement.
pub(super) fn statement(
    reader: &AnalysisContext<'_>,
    facts: &facts::StatementFacts,
) -> RoutedStatement {
    let kind = kind(reader, facts);
    RoutedStatement {
        kind,
        traits: traits(facts),
        calls: calls(reader, facts, kind),
    }
}

/// Whether others may find something new once it is committed.
pub(super) fn may_write(facts: facts::StatementKind, statement: &RoutedStatement) -> bool {
    const WRITING: RoutingTraits = RoutingTraits::WRITES
        .and(RoutingTraits::MAKES_TABLE)
        .and(RoutingTraits::SEQUENCE)
        .and(RoutingTraits::LARGE_OBJECT)
        .and(RoutingTraits::RUNS_TEXT)
        .and(RoutingTraits::OBSCURE);
    match statement.kind {
        StatementClass::Write
        | StatementClass::Ddl
        | StatementClass::Routine
        | StatementClass::Unknown => true,
        StatementClass::Read => {
            statement.traits.any(WRITING) || statement.calls >= Volatility::Volatile
        }
        // What their queries call is not looked at: they are the primary's anyway.
        _ => matches!(
            facts,
            facts::StatementKind::Declare { hold: true, .. }
                | facts::StatementKind::CopyOut { to_client: false }
        ),
    }
}

/// Whether what it calls may do what no rollback takes back: run programs, or write through a
/// connection of its own, as dblink does.
pub(super) fn acts_outside(
    reader: &AnalysisContext<'_>,
    statement: &facts::StatementFacts,
) -> bool {
    if matches!(
        statement.kind,
        facts::StatementKind::CopyOut { to_client: false }
    ) || statement.traits.any(facts::StatementTraits::RUNS_TEXT)
        || statement.functions.is_cut()
    {
        return true;
    }
    statement.functions.as_slice().iter().any(|name| {
        let name = name.name_in(reader.text);
        reader.catalog.is_some_and(|catalog| {
            catalog.is_of_users(&name) && catalog.function(&name) >= Volatility::Volatile
        })
    })
}

/// Whether what is known of functions and relations may be another behind it. Temporary ones are
/// nobody else's, and their session is bound.
pub(super) fn changes_catalog(facts: facts::StatementKind, statement: &RoutedStatement) -> bool {
    match statement.kind {
        StatementClass::Ddl => !statement.traits.any(RoutingTraits::TEMPORARY),
        StatementClass::Read => {
            statement.traits.any(RoutingTraits::MAKES_TABLE)
                && !statement.traits.any(RoutingTraits::TEMPORARY)
        }
        // Migrations are often blocks of code; procedures are mostly called for other things.
        StatementClass::Routine => facts == facts::StatementKind::Do,
        StatementClass::Unknown => true,
        _ => false,
    }
}

/// Whether a statement that changes the catalog may do so to functions: the first words of it, or
/// any in a block of code, say so.
pub(super) fn names_routine(reader: &AnalysisContext<'_>, facts: &facts::StatementFacts) -> bool {
    let own = facts.span.of(reader.text);
    let is_routine = |token: Token| ROUTINES.iter().any(|word| token.is(Word::of(word)));
    match facts.kind {
        facts::StatementKind::Ddl => {
            let mut tokens = Tokens::new(own, reader.backslashes);
            // `CREATE OR REPLACE FUNCTION`
            (0..4).any(|_| is_routine(tokens.next_token()))
        }
        facts::StatementKind::Do => {
            let code = own.to_ascii_lowercase();
            let names = |word: &&str| code.windows(word.len()).any(|part| part == word.as_bytes());
            ROUTINES.iter().any(names)
        }
        facts::StatementKind::Unknown => true,
        _ => false,
    }
}

/// What is called, and what brings such.
const ROUTINES: [&str; 4] = ["function", "procedure", "routine", "extension"];

/// Whether some of what it does may come behind its end.
pub(super) fn may_run_later(statement: &facts::StatementFacts) -> bool {
    use facts::StatementKind as Found;
    let ends = matches!(
        statement.kind,
        Found::Empty
            | Found::Select
            | Found::Begin(_)
            | Found::Commit { .. }
            | Found::Rollback { .. }
            | Found::Set(_)
            | Found::Reset(_)
            | Found::ResetAll
            | Found::Discard(_)
    );
    !ends
}

fn kind(reader: &AnalysisContext<'_>, facts: &facts::StatementFacts) -> StatementClass {
    use facts::StatementKind as Found;
    match facts.kind {
        Found::Empty => StatementClass::Empty,
        Found::Select if facts.traits.any(facts::StatementTraits::SETS_LITERALS) => {
            of_set_config(reader, facts)
        }
        // What was prepared is not followed, and is where it was prepared.
        Found::Explain { .. } if executes(reader, facts) => StatementClass::Unknown,
        Found::Select
        | Found::Explain { .. }
        | Found::CopyOut { to_client: true }
        | Found::Declare { hold: false, .. } => StatementClass::Read,
        Found::Write | Found::CopyIn { .. } | Found::FinishPrepared => StatementClass::Write,
        Found::Ddl | Found::Maintenance => StatementClass::Ddl,
        Found::Begin(given) => StatementClass::Begin(modes(given)),
        Found::Commit { .. }
        | Found::Rollback { .. }
        | Found::Savepoint(_)
        | Found::Release(_)
        | Found::RollbackTo(_)
        | Found::PrepareTransaction
        | Found::SetConstraints => StatementClass::EndTransaction,
        Found::SetTransaction { snapshot: true, .. } => StatementClass::Session,
        Found::SetTransaction { session: true, .. } => StatementClass::Setting,
        Found::SetTransaction { modes, .. } if is_of_primary(modes) => StatementClass::Session,
        Found::SetTransaction { .. } => StatementClass::EndTransaction,
        Found::Set(setting) => of_set(reader, setting),
        Found::Reset(_) | Found::ResetAll => StatementClass::Setting,
        Found::Show(_) => StatementClass::Asks,
        Found::Notify | Found::CopyOut { to_client: false } => StatementClass::Server,
        Found::Listen(_)
        | Found::Unlisten(_)
        | Found::Declare { hold: true, .. }
        | Found::Fetch
        | Found::CloseCursor(_)
        | Found::Deallocate(_)
        | Found::Discard(_)
        | Found::Prepare(_)
        | Found::Load => StatementClass::Session,
        Found::Lock => StatementClass::Lock,
        Found::Call | Found::Do => StatementClass::Routine,
        // What was prepared is not followed: it may be a write.
        Found::Execute(_) | Found::Unknown => StatementClass::Unknown,
    }
}

fn executes(reader: &AnalysisContext<'_>, facts: &facts::StatementFacts) -> bool {
    postgres::executed(reader.text, facts, reader.backslashes).is_some()
}

/// One that follows the client may be asked of any server.
fn of_set(reader: &AnalysisContext<'_>, setting: facts::Setting) -> StatementClass {
    let name = setting_name(reader, setting.name);
    let is_own = |name: &[u8]| name == b"seed" || is_of_transaction(name);
    match setting.value {
        SettingValue::Unknown => StatementClass::Session,
        _ if name.as_deref().is_some_and(is_own) => StatementClass::Session,
        SettingValue::Default | SettingValue::Literals(_) => StatementClass::Setting,
    }
}

/// `SELECT set_config(…)` of literals.
fn of_set_config(reader: &AnalysisContext<'_>, facts: &facts::StatementFacts) -> StatementClass {
    let calls = postgres::set_configs(reader.text, facts, reader.backslashes);
    let text = |name: Span| postgres::string_value(name.of(reader.text), reader.backslashes);
    let mut names = calls.iter().filter_map(|call| text(call.name));
    match names.any(|name| is_of_transaction(&name.to_ascii_lowercase())) {
        true => StatementClass::Session,
        false => StatementClass::Setting,
    }
}

/// `transaction_isolation` and the like, which replicas may refuse.
fn is_of_transaction(name: &[u8]) -> bool {
    name.starts_with(b"transaction_")
}

/// Modes that replicas refuse.
fn is_of_primary(modes: facts::TransactionModes) -> bool {
    modes.isolation == Some(facts::Isolation::Serializable) || modes.read_only == Some(false)
}

/// The modes of a transaction in the router's words.
pub(super) fn modes(given: facts::TransactionModes) -> TransactionModes {
    let isolation = given.isolation.map(|isolation| match isolation {
        facts::Isolation::Serializable => Isolation::Serializable,
        _ => Isolation::Weaker,
    });
    TransactionModes {
        read_only: given.read_only,
        isolation,
    }
}

const TRAITS: &[(facts::StatementTraits, RoutingTraits)] = &[
    (facts::StatementTraits::WRITES, RoutingTraits::WRITES),
    (
        facts::StatementTraits::LOCKS_ROWS,
        RoutingTraits::LOCKS_ROWS,
    ),
    (
        facts::StatementTraits::SELECT_INTO,
        RoutingTraits::MAKES_TABLE,
    ),
    (facts::StatementTraits::TEMPORARY, RoutingTraits::TEMPORARY),
    (
        facts::StatementTraits::ADVISORY_LOCK,
        RoutingTraits::NAMED_LOCK,
    ),
    (facts::StatementTraits::NEXT_VALUE, RoutingTraits::SEQUENCE),
    (
        facts::StatementTraits::CURRENT_VALUE,
        RoutingTraits::REMEMBERS,
    ),
    (facts::StatementTraits::SETS_UNKNOWN, RoutingTraits::ASSIGNS),
    (facts::StatementTraits::SEED, RoutingTraits::ASSIGNS),
    (facts::StatementTraits::NOTIFIES, RoutingTraits::NOTIFIES),
    (
        facts::StatementTraits::LARGE_OBJECT,
        RoutingTraits::LARGE_OBJECT,
    ),
    (
        facts::StatementTraits::TRANSACTION_ID,
        RoutingTraits::TRANSACTION_ID,
    ),
    (facts::StatementTraits::RUNS_TEXT, RoutingTraits::RUNS_TEXT),
    (facts::StatementTraits::OBSCURE, RoutingTraits::OBSCURE),
    (facts::StatementTraits::BROKEN, RoutingTraits::OBSCURE),
    (facts::StatementTraits::TOO_DEEP, RoutingTraits::OBSCURE),
    (facts::StatementTraits::CATALOG, RoutingTraits::CATALOG),
];

fn traits(facts: &facts::StatementFacts) -> RoutingTraits {
    let mut traits = RoutingTraits::NONE;
    if facts.kind == (facts::StatementKind::Explain { analyze: false }) {
        // It is planned, not run.
        return traits;
    }
    if facts.functions.is_cut() || facts.tables.is_cut() {
        traits = traits.and(RoutingTraits::OBSCURE);
    }
    if facts.traits == facts::StatementTraits::NONE {
        return traits;
    }
    for (found, trait_of) in TRAITS {
        if facts.traits.any(*found) {
            traits = traits.and(*trait_of);
        }
    }
    traits
}

/// The worst of what it calls and reads; of what cannot be a read anyway nothing is looked up.
fn calls(
    reader: &AnalysisContext<'_>,
    facts: &facts::StatementFacts,
    kind: StatementClass,
) -> Volatility {
    if kind != StatementClass::Read {
        return Volatility::None;
    }
    let is_run = facts.kind != (facts::StatementKind::Explain { analyze: false });
    let called = if is_run {
        facts.functions.as_slice()
    } else {
        &[]
    };
    let Some(catalog) = reader.catalog else {
        let none = called.is_empty() && facts.tables.as_slice().is_empty();
        return if none {
            Volatility::None
        } else {
            Volatility::Unknown
        };
    };
    // What the planner evaluates must not bind anybody to a replica.
    let binds = |pins: Option<Pins>| pins.is_some_and(|pins| !pins.is_empty());
    let is_planned = |name: &&Name| !is_run && binds(catalog.binds(&name.name_in(reader.text)));
    let planned = facts.functions.as_slice().iter().filter(is_planned);
    let functions = called
        .iter()
        .chain(planned)
        .map(|name| catalog.function(&name.name_in(reader.text)));
    let fields = is_run
        .then(|| functional_notation::called(reader, facts))
        .into_iter();
    let fields = fields.flatten().map(|name| catalog.function(&name));
    let relations = facts.tables.as_slice().iter().map(|name| {
        let named = name.name_in(reader.text);
        match catalog.relation(&named) {
            Volatility::Unknown if name.schema.is_empty() => {
                let own = postgres::defines_query(reader.text, facts, &named, reader.backslashes);
                if own {
                    Volatility::None
                } else {
                    Volatility::Unknown
                }
            }
            known => known,
        }
    });
    let is_implied = is_run || binds(catalog.implied_code());
    let implied = is_implied.then(|| catalog.implied());
    Volatility::worst(functions.chain(fields).chain(relations).chain(implied))
}
