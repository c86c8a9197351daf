//! Converts the facts of a statement to the router's types.

use crate::facts::{self, StatementTraits};
use crate::name::Name;
use crate::postgres::{self, SettingValue, Tokens};
use crate::token::{Span, Token, Word};
use evenkeel_policy::pins::Pins;
use evenkeel_policy::route::{
    Isolation, RoutedStatement, RoutingTraits, StatementClass, TransactionModes, Volatility,
};

use super::super::effects::{has_writing_words, is_writing_class};
use super::CatalogChange;
use super::effects::setting_name;
use super::{AnalysisContext, functional_notation, rules};

/// Returns the statement in the form that the router uses.
pub(super) fn statement(
    context: &AnalysisContext<'_>,
    facts: &postgres::StatementFacts,
) -> RoutedStatement {
    let kind = kind(context, facts);
    RoutedStatement {
        kind,
        traits: traits(facts),
        calls: calls(context, facts, kind),
    }
}

/// Returns whether other sessions may see new data after the statement commits.
pub(super) fn may_write(facts: postgres::StatementKind, statement: &RoutedStatement) -> bool {
    match statement.kind {
        class if is_writing_class(class) => true,
        StatementClass::Read => has_writing_words(statement),
        // The calls of their queries are not checked: these run on the primary anyway.
        _ => matches!(
            facts,
            postgres::StatementKind::Declare { hold: true, .. }
                | postgres::StatementKind::CopyOut { to_client: false }
        ),
    }
}

/// Returns whether called functions may act outside of the transaction, which a rollback does not
/// undo. Examples are running programs and writing through a separate connection, like dblink.
pub(super) fn acts_outside(
    context: &AnalysisContext<'_>,
    statement: &postgres::StatementFacts,
) -> bool {
    if matches!(
        statement.kind,
        postgres::StatementKind::CopyOut { to_client: false }
    ) || statement.traits.any(StatementTraits::RUNS_TEXT)
        || statement.functions.is_cut()
    {
        return true;
    }
    statement.functions.as_slice().iter().any(|name| {
        let name = name.name_in(context.text);
        context.catalog.is_some_and(|catalog| {
            catalog.is_user_function(&name) && catalog.function(&name) >= Volatility::Volatile
        })
    })
}

/// Returns how the catalog's functions and relations may differ after the statement.
pub(super) fn catalog_change(
    context: &AnalysisContext<'_>,
    facts: &postgres::StatementFacts,
    statement: &RoutedStatement,
) -> CatalogChange {
    if !changes_catalog(facts.kind, statement) {
        return CatalogChange::None;
    }
    match names_routine(context, facts) {
        true => CatalogChange::Functions,
        false => CatalogChange::Objects,
    }
}

/// Returns whether the catalog may differ after the statement. Temporary objects do not count:
/// other sessions do not see them, and their session is pinned.
fn changes_catalog(facts: postgres::StatementKind, statement: &RoutedStatement) -> bool {
    match statement.kind {
        StatementClass::Ddl => !statement.traits.any(RoutingTraits::TEMPORARY),
        StatementClass::Read => {
            statement.traits.any(RoutingTraits::MAKES_TABLE)
                && !statement.traits.any(RoutingTraits::TEMPORARY)
        }
        // Migrations are often blocks of code; procedures are mostly called for other purposes.
        StatementClass::Routine => facts == postgres::StatementKind::Do,
        StatementClass::Unknown => true,
        _ => false,
    }
}

/// Returns whether a statement that changes the catalog may change functions. The first words of
/// the statement, or any word in a block of code, show it.
pub(super) fn names_routine(
    context: &AnalysisContext<'_>,
    facts: &postgres::StatementFacts,
) -> bool {
    let sql = facts.span.of(context.text);
    let is_routine = |token: Token| ROUTINES.iter().any(|word| token.is(Word::of(word)));
    match facts.kind {
        postgres::StatementKind::Ddl => {
            let mut tokens = Tokens::new(sql, context.backslashes);
            // `CREATE OR REPLACE FUNCTION`
            (0..4).any(|_| is_routine(tokens.next_token()))
        }
        postgres::StatementKind::Do => {
            let code = sql.to_ascii_lowercase();
            let names = |word: &&str| code.windows(word.len()).any(|part| part == word.as_bytes());
            ROUTINES.iter().any(names)
        }
        postgres::StatementKind::Unknown => true,
        _ => false,
    }
}

/// Keywords of callable objects, and of extensions, which may contain them.
const ROUTINES: [&str; 4] = ["function", "procedure", "routine", "extension"];

/// Returns whether some effects of the statement may occur after its end.
pub(super) fn may_run_later(statement: &postgres::StatementFacts) -> bool {
    use postgres::StatementKind as Kind;
    let ends = matches!(
        statement.kind,
        Kind::Empty
            | Kind::Select
            | Kind::Begin(_)
            | Kind::Commit { .. }
            | Kind::Rollback { .. }
            | Kind::Set(_)
            | Kind::Reset(_)
            | Kind::ResetAll
            | Kind::Discard(_)
    );
    !ends
}

fn kind(context: &AnalysisContext<'_>, facts: &postgres::StatementFacts) -> StatementClass {
    use postgres::StatementKind as Kind;
    match facts.kind {
        Kind::Select if facts.traits.any(StatementTraits::SETS_LITERALS) => {
            of_set_config(context, facts)
        }
        // The prepared statement is not tracked, and exists only where it was prepared.
        Kind::Explain { .. } if executes(context, facts) => StatementClass::Unknown,
        Kind::Set(setting) => of_set(context, setting),
        kind => rules::of(kind).class,
    }
}

fn executes(context: &AnalysisContext<'_>, facts: &postgres::StatementFacts) -> bool {
    postgres::executed(context.text, facts, context.backslashes).is_some()
}

/// Returns the class of SET. A setting that is tracked for the client may be set on any server.
fn of_set(context: &AnalysisContext<'_>, setting: postgres::Setting) -> StatementClass {
    let name = setting_name(context, setting.name);
    let is_own = |name: &[u8]| name == b"seed" || is_of_transaction(name);
    match setting.value {
        SettingValue::Unknown => StatementClass::Session,
        _ if name.as_deref().is_some_and(is_own) => StatementClass::Session,
        SettingValue::Default | SettingValue::Literals(_) => StatementClass::Setting,
    }
}

/// Returns the class of `SELECT set_config(…)` with literals.
fn of_set_config(
    context: &AnalysisContext<'_>,
    facts: &postgres::StatementFacts,
) -> StatementClass {
    let calls = postgres::set_configs(context.text, facts, context.backslashes);
    let text = |name: Span| postgres::string_value(name.of(context.text), context.backslashes);
    let mut names = calls.iter().filter_map(|call| text(call.name));
    match names.any(|name| is_of_transaction(&name.to_ascii_lowercase())) {
        true => StatementClass::Session,
        false => StatementClass::Setting,
    }
}

/// Returns whether the setting is `transaction_isolation` or similar, which replicas may reject.
fn is_of_transaction(name: &[u8]) -> bool {
    name.starts_with(b"transaction_")
}

/// Returns whether replicas reject these modes.
pub(super) fn requires_primary(modes: postgres::TransactionModes) -> bool {
    modes.isolation == Some(facts::Isolation::Serializable) || modes.read_only == Some(false)
}

/// Converts transaction modes to the router's type.
pub(super) fn modes(given: postgres::TransactionModes) -> TransactionModes {
    let isolation = given.isolation.map(|isolation| match isolation {
        facts::Isolation::Serializable => Isolation::Serializable,
        _ => Isolation::Weaker,
    });
    TransactionModes {
        read_only: given.read_only,
        isolation,
    }
}

fn traits(facts: &postgres::StatementFacts) -> RoutingTraits {
    let mut traits = RoutingTraits::NONE;
    if facts.kind == (postgres::StatementKind::Explain { analyze: false }) {
        // The statement is planned, not run.
        return traits;
    }
    if facts.functions.is_cut() || facts.tables.is_cut() {
        traits = traits.and(RoutingTraits::OBSCURE);
    }
    traits.and(facts.traits.routing())
}

/// Returns the worst volatility of all calls and reads. Nothing is looked up for a statement that
/// cannot be a read.
fn calls(
    context: &AnalysisContext<'_>,
    facts: &postgres::StatementFacts,
    kind: StatementClass,
) -> Volatility {
    if kind != StatementClass::Read {
        return Volatility::None;
    }
    let is_run = facts.kind != (postgres::StatementKind::Explain { analyze: false });
    let called = if is_run {
        facts.functions.as_slice()
    } else {
        &[]
    };
    let Some(catalog) = context.catalog else {
        let none = called.is_empty() && facts.tables.as_slice().is_empty();
        return if none {
            Volatility::None
        } else {
            Volatility::Unknown
        };
    };
    // Functions that the planner evaluates must not pin a session to a replica.
    let binds = |pins: Option<Pins>| pins.is_some_and(|pins| !pins.is_empty());
    let is_planned =
        |name: &&Name| !is_run && binds(catalog.call_pins(&name.name_in(context.text)));
    let planned = facts.functions.as_slice().iter().filter(is_planned);
    let functions = called
        .iter()
        .chain(planned)
        .map(|name| catalog.function(&name.name_in(context.text)));
    let fields = is_run
        .then(|| functional_notation::called(context, facts))
        .into_iter();
    let fields = fields.flatten().map(|name| catalog.function(&name));
    let relations = facts.tables.as_slice().iter().map(|name| {
        let named = name.name_in(context.text);
        match catalog.relation(&named) {
            Volatility::Unknown if name.schema.is_empty() => {
                let is_local =
                    postgres::defines_query(context.text, facts, &named, context.backslashes);
                if is_local {
                    Volatility::None
                } else {
                    Volatility::Unknown
                }
            }
            known => known,
        }
    });
    let is_implied = is_run || binds(catalog.implicit_pins());
    let implied = is_implied.then(|| catalog.implied());
    Volatility::worst(functions.chain(fields).chain(relations).chain(implied))
}
