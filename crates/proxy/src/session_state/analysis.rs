//! What a PostgreSQL text means for a session: where it may run, and what it leaves behind.

mod body;
mod do_block;
mod effects;
mod functional_notation;
mod implicit_code;
mod languages;
mod parsing_change;
mod pins;
mod routing;
mod source;
mod split;
#[cfg(test)]
mod tests;

pub use body::Body;
pub use parsing_change::{ParsingChange, sets_anything};
pub use pins::of_function;
pub use split::parts;

use std::sync::Arc;

use evenkeel_policy::pins::{Pin, Pins, UnpinEvent};
use evenkeel_policy::route::{
    self, RoutedStatement, RoutingTraits, StatementClass, TransactionModes, Volatility,
};
use evenkeel_wire::sql::facts::{self, Discard};
use evenkeel_wire::sql::{hint, postgres};
use smallvec::{SmallVec, smallvec};

use super::PinSource;
use crate::server_info::Catalog;

/// A text that leaves more behind is not followed: each of its executions would take up so much.
pub(super) const EFFECTS_MAX: usize = 1_000;

/// What is known of a database's functions and relations.
pub trait CatalogLookup {
    /// The worst of all functions of that name.
    fn function(&self, name: &[u8]) -> Volatility;

    /// A table, a view, anything that can be read from.
    fn relation(&self, name: &[u8]) -> Volatility;

    /// The worst that a statement may call without naming it: operators, casts, types.
    fn implied(&self) -> Volatility {
        Volatility::None
    }

    /// What the same may leave behind; `None`: none of it is code that users can replace.
    fn implied_code(&self) -> Option<Pins> {
        None
    }

    /// What event triggers may leave behind; `None`: there are none.
    fn event_code(&self) -> Option<Pins> {
        None
    }

    /// What calling a function or procedure of that name may leave behind in the session; `None`:
    /// there is none of that name, as far as is known.
    fn binds(&self, name: &[u8]) -> Option<Pins> {
        let _ = name;
        Some(Pins::NONE)
    }

    /// Whether users have made functions of that name.
    fn is_of_users(&self, name: &[u8]) -> bool {
        let _ = name;
        false
    }

    /// Whether there are functions that the field of a row may call, and that are no mere reads.
    fn has_of_rows(&self) -> bool {
        false
    }

    /// Whether there are languages in which functions keep what the next session finds.
    fn has_languages(&self) -> bool {
        false
    }

    /// Whether `row.name` may call one of these.
    fn is_of_row(&self, name: &[u8]) -> bool {
        let _ = name;
        false
    }

    /// Whether reading from a relation of that name, or writing to it, runs what users have made.
    fn runs_code(&self, name: &[u8], is_written: bool) -> bool {
        let _ = (name, is_written);
        false
    }

    /// What writing to a table of that name, or reading from it, may leave behind: its triggers.
    fn triggers(&self, name: &[u8]) -> Pins {
        let _ = name;
        Pins::NONE
    }

    /// What reading from a view of that name may leave behind: the functions that it calls.
    fn views(&self, name: &[u8]) -> Pins {
        let _ = name;
        Pins::NONE
    }
}

impl CatalogLookup for Catalog {
    fn function(&self, name: &[u8]) -> Volatility {
        Catalog::function(self, name)
    }

    fn relation(&self, name: &[u8]) -> Volatility {
        Catalog::relation(self, name)
    }

    fn implied(&self) -> Volatility {
        Catalog::implied(self)
    }

    fn implied_code(&self) -> Option<Pins> {
        Catalog::implied_code(self)
    }

    fn event_code(&self) -> Option<Pins> {
        Catalog::event_code(self)
    }

    fn binds(&self, name: &[u8]) -> Option<Pins> {
        Catalog::binds(self, name)
    }

    fn is_of_users(&self, name: &[u8]) -> bool {
        Catalog::is_of_users(self, name)
    }

    fn has_of_rows(&self) -> bool {
        Catalog::has_of_rows(self)
    }

    fn has_languages(&self) -> bool {
        Catalog::has_languages(self)
    }

    fn is_of_row(&self, name: &[u8]) -> bool {
        Catalog::is_of_row(self, name)
    }

    fn runs_code(&self, name: &[u8], is_written: bool) -> bool {
        Catalog::runs_code(self, name, is_written)
    }

    fn triggers(&self, name: &[u8]) -> Pins {
        Catalog::triggers(self, name)
    }

    fn views(&self, name: &[u8]) -> Pins {
        Catalog::views(self, name)
    }
}

/// What a text means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextAnalysis {
    /// For the router: its statements, in order.
    pub statements: SmallVec<[RoutedStatement; 1]>,
    /// Where a comment wants it.
    pub hint: Option<RoutingHint>,
    /// What it leaves behind, in the order of its statements; mostly nothing.
    pub effects: SmallVec<[Effect; 1]>,
    /// The catalog of the database may be another behind it.
    pub changes_catalog: bool,
    /// Functions may be others behind it.
    pub changes_functions: bool,
    /// Something temporary may hide what names have meant so far.
    pub may_shadow_tables: bool,
    /// It draws from sequences, for all that is known: what `lastval` tells behind it is its own.
    pub uses_nextval: bool,
    /// It asks what was drawn from sequences, for all that is known.
    pub uses_lastval: bool,
    /// Nobody can tell whether it asks.
    pub may_use_lastval: bool,
    /// It calls what may act outside of its transaction, so that an end of that says nothing.
    pub has_external_effects: bool,
    /// What it changes about how the texts behind it are read.
    pub parsing_change: ParsingChange,
    /// What it leaves behind may come later than its end: by a cursor, a statement that it
    /// prepares, or a trigger that waits for COMMIT.
    pub may_run_later: bool,
    /// It may set the search path by what it does not tell, be it for its transaction.
    pub may_set_search_path: bool,
    /// It may write: who must see it needs a position sampled after its commit.
    pub writes: bool,
    /// Its text's, under which it is counted; zero: none.
    pub digest: u64,
    /// The first object of it that pins, for people.
    pub object: Option<Box<str>>,
    /// The text, for people, if it may pin.
    pub source: Option<Arc<PinSource>>,
    /// What it does to whole databases.
    pub vacating: Option<Box<Vacating>>,
}

/// What a text does to whole databases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vacating {
    /// Others must have left this one before it does anything.
    pub database: Box<str>,
    /// Names that are another database's behind it, or nobody's.
    pub renamed: Box<[Box<str>]>,
    /// What was in it stays, under another name.
    pub renames: bool,
}

/// Where a comment wants a text to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RoutingHint {
    /// On the primary.
    Primary,
    /// On a replica.
    Replica,
    /// On the server of that name.
    Server(Box<[u8]>),
}

impl RoutingHint {
    /// For the router; `place` finds a server of the service by its name.
    #[must_use]
    pub fn routed(&self, place: impl FnOnce(&[u8]) -> Option<usize>) -> route::ResolvedHint {
        match self {
            RoutingHint::Primary => route::ResolvedHint::Primary,
            RoutingHint::Replica => route::ResolvedHint::Replica,
            RoutingHint::Server(name) => route::ResolvedHint::Server(place(name)),
        }
    }
}

/// Something that a statement leaves behind in its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    /// Which statement of the text, from 0.
    pub statement: u32,
    /// What.
    pub kind: EffectKind,
}

/// What a statement does to its session. All but [`Does::Pin`] counts only once the server says
/// that the statement is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EffectKind {
    /// Binds from the moment it is sent: it holds though the statement fails.
    Pin(Pin),
    /// Binds when it is complete: a failure takes it back.
    PinOnSuccess(Pin),
    /// Ends pins, when the transaction that it is in commits.
    Release(UnpinEvent),
    /// A setting of the session: the name in lower case, the value as `set_config` takes it.
    Set {
        /// Which.
        name: Box<[u8]>,
        /// To what.
        value: Box<[u8]>,
    },
    /// Back to what the session began with.
    Reset(Box<[u8]>),
    /// RESET ALL.
    ResetAll,
    /// The modes of this transaction only.
    SetTransaction(TransactionModes),
    /// COMMIT, PREPARE TRANSACTION.
    Commit,
    /// ROLLBACK.
    Rollback,
    /// SAVEPOINT.
    Savepoint(Box<[u8]>),
    /// RELEASE.
    ReleaseSavepoint(Box<[u8]>),
    /// ROLLBACK TO.
    RollbackTo(Box<[u8]>),
    /// PREPARE in SQL: binds ([`Pin::Prepared`]).
    Prepare(Box<[u8]>),
    /// EXECUTE in SQL.
    Execute(Box<[u8]>),
    /// DEALLOCATE of one.
    Deallocate(Box<[u8]>),
    /// DEALLOCATE ALL.
    DeallocateAll,
    /// DISCARD.
    Discard(Discard),
}

impl TextAnalysis {
    /// Whether other literals in its text would make no difference: one plain read or write that
    /// leaves nothing behind.
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        let is_plain = |one: &RoutedStatement| {
            matches!(one.kind, StatementClass::Read | StatementClass::Write)
        };
        self.statements.len() == 1
            && self.statements.iter().all(is_plain)
            && self.effects.is_empty()
            && self.hint.is_none()
            && !self.changes_catalog
            && !self
                .statements
                .iter()
                .any(|one| one.traits.any(RoutingTraits::ASSIGNS))
    }

    /// Whether plans of before may be good no more behind it: a text that cannot be read says so of
    /// nothing, or nobody could share any.
    #[must_use]
    pub fn changes_plans(&self) -> bool {
        let changes = |one: &RoutedStatement| {
            matches!(one.kind, StatementClass::Ddl | StatementClass::Routine)
        };
        self.changes_catalog && self.statements.iter().any(changes)
    }

    /// Whether it makes something that need not say whether it is temporary.
    #[must_use]
    pub fn makes_tables(&self) -> bool {
        let makes = |one: &RoutedStatement| {
            one.kind == StatementClass::Ddl || one.traits.any(RoutingTraits::MAKES_TABLE)
        };
        self.changes_catalog && self.statements.iter().any(makes)
    }

    /// Whether a statement of it is a CALL or DO, which may commit before it ends.
    #[must_use]
    pub fn runs_procedures(&self) -> bool {
        self.statements
            .iter()
            .any(|one| one.kind == StatementClass::Routine)
    }

    /// Whether it matters to its session that a statement of it has ended.
    #[must_use]
    pub fn is_of_consequence(&self) -> bool {
        !self.effects.is_empty() || self.runs_procedures()
    }

    /// What one statement of the text leaves behind.
    pub(crate) fn effects_of(&self, statement: usize) -> &[Effect] {
        let statement = u32::try_from(statement).unwrap_or(u32::MAX);
        let effects = &self.effects;
        let begin = effects.partition_point(|effect| effect.statement < statement);
        let end = effects.partition_point(|effect| effect.statement <= statement);
        effects.get(begin..end).unwrap_or_default()
    }

    /// Of a text with more in it than is followed.
    fn too_much(hint: Option<RoutingHint>) -> TextAnalysis {
        TextAnalysis {
            hint,
            parsing_change: ParsingChange::Anything,
            may_set_search_path: true,
            may_run_later: true,
            ..TextAnalysis::unreadable()
        }
    }

    /// Of a text that cannot be read, because its encoding hides what it says.
    #[must_use]
    pub fn unreadable() -> TextAnalysis {
        TextAnalysis {
            statements: smallvec![RoutedStatement {
                kind: StatementClass::Unknown,
                traits: RoutingTraits::OBSCURE,
                calls: Volatility::Unknown,
            }],
            hint: None,
            effects: smallvec![Effect {
                statement: 0,
                kind: EffectKind::Pin(Pin::Unknown),
            }],
            changes_catalog: true,
            changes_functions: true,
            may_shadow_tables: true,
            uses_nextval: false,
            uses_lastval: false,
            may_use_lastval: true,
            has_external_effects: true,
            parsing_change: ParsingChange::Nothing,
            may_set_search_path: false,
            may_run_later: false,
            writes: true,
            digest: 0,
            vacating: None,
            object: None,
            source: None,
        }
    }
}

/// Reads a text. `backslashes`: the session's `standard_conforming_strings` is off; of a session
/// whose `client_encoding` is not [`postgres::encoding_is_safe`] no text can be read, and
/// [`Meaning::unreadable`] stands for it.
#[must_use]
pub fn read(text: &[u8], backslashes: bool, catalog: Option<&dyn CatalogLookup>) -> TextAnalysis {
    read_in_doubt(text, backslashes, catalog, false)
}

/// As [`read`]. `doubts_functions`: users' functions may be others than the catalog knows.
#[must_use]
pub fn read_in_doubt(
    text: &[u8],
    backslashes: bool,
    catalog: Option<&dyn CatalogLookup>,
    doubts_functions: bool,
) -> TextAnalysis {
    let facts = postgres::facts(text, backslashes);
    if facts.is_cut() {
        return TextAnalysis::too_much(facts.hint().map(owned_hint));
    }
    let mut meaning = TextAnalysis {
        statements: SmallVec::new(),
        hint: facts.hint().map(owned_hint),
        effects: SmallVec::new(),
        changes_catalog: false,
        changes_functions: false,
        may_shadow_tables: false,
        uses_nextval: false,
        uses_lastval: false,
        may_use_lastval: false,
        has_external_effects: false,
        parsing_change: ParsingChange::Nothing,
        may_set_search_path: false,
        may_run_later: false,
        writes: false,
        digest: 0,
        object: None,
        source: None,
        vacating: None,
    };
    let mut reader = AnalysisContext {
        text,
        backslashes,
        catalog,
        doubts_functions,
    };
    for (index, statement) in facts.statements().enumerate() {
        let routed = routing::statement(&reader, statement);
        meaning.writes |= routing::may_write(statement.kind, &routed);
        let changes_catalog = routing::changes_catalog(statement.kind, &routed);
        meaning.changes_catalog |= changes_catalog;
        meaning.changes_functions |= changes_catalog && routing::names_routine(&reader, statement);
        meaning.statements.push(routed);
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        let mut effects = effects::EffectCollector::of(index, &mut meaning.effects);
        effects::collect(&reader, statement, &mut effects);
        meaning.object = meaning.object.take().or_else(|| effects.object.take());
        meaning.may_shadow_tables |= effects.hides_tables(statement);
        meaning.uses_nextval |= effects.draws;
        meaning.uses_lastval |= effects.asks;
        meaning.may_use_lastval |= effects.may_ask;
        meaning.vacating = meaning.vacating.or_else(|| vacating(&reader, statement));
        meaning.has_external_effects |= routing::acts_outside(&reader, statement);
        meaning.may_run_later |= meaning.has_external_effects || routing::may_run_later(statement);
        let rereads = parsing_change::of(&reader, statement, &effects);
        meaning.parsing_change = meaning.parsing_change.max(rereads);
        meaning.may_set_search_path |= parsing_change::sets_path(&reader, statement, &effects);
        if meaning.effects.len() > EFFECTS_MAX {
            return TextAnalysis::too_much(meaning.hint);
        }
        reader.doubts_functions |= meaning.changes_functions;
    }
    meaning
}

/// What the parts that read a statement need.
struct AnalysisContext<'a> {
    text: &'a [u8],
    backslashes: bool,
    catalog: Option<&'a dyn CatalogLookup>,
    /// What the catalog knows of users' functions may be old.
    doubts_functions: bool,
}

/// Whole databases that a statement drops, renames, moves or copies.
fn vacating(
    reader: &AnalysisContext<'_>,
    statement: &facts::StatementFacts,
) -> Option<Box<Vacating>> {
    if statement.kind != facts::StatementKind::Ddl {
        return None;
    }
    let found = postgres::vacating(reader.text, statement, reader.backslashes)?;
    let name = |name: &[u8]| Box::from(String::from_utf8_lossy(name));
    let renamed = found.renamed.iter().map(|one| name(one)).collect();
    Some(Box::new(Vacating {
        database: name(&found.database),
        renamed,
        renames: found.renames,
    }))
}

fn owned_hint(hint: hint::HintComment<'_>) -> RoutingHint {
    match hint {
        hint::HintComment::Primary => RoutingHint::Primary,
        hint::HintComment::Replica => RoutingHint::Replica,
        hint::HintComment::Server(name) => RoutingHint::Server(name.into()),
    }
}
