//! Analyzes PostgreSQL texts: where their statements may run, and which session state they leave.

mod body;
mod do_block;
mod effects;
mod functional_notation;
mod implicit_code;
mod languages;
mod parsing_change;
mod pins;
mod routing;
mod rules;
mod source;
mod split;
#[cfg(test)]
mod tests;

pub use body::Body;
pub use parsing_change::{ParsingChange, sets_anything};
pub(crate) use pins::builtin_pins;
pub use split::parts;

use std::sync::Arc;

use crate::postgres::{self, Discard};
use evenkeel_policy::pins::{Pin, Pins, UnpinEvent};
use evenkeel_policy::route::{
    RoutedStatement, RoutingTraits, StatementClass, TransactionModes, Volatility,
};
use smallvec::SmallVec;

use super::PinSource;
pub use super::effects::RoutingHint;
use super::effects::{EFFECTS_MAX, PinEffect, is_one_plain, unknown_effects, unknown_statements};

/// Information about the functions and relations of a database.
pub trait CatalogLookup {
    /// Returns the worst volatility of all functions, aggregates and procedures of that name.
    fn function(&self, name: &[u8]) -> Volatility;

    /// Returns the worst volatility of all relations of that name that can be read. A view and row
    /// security have that of the functions and tables that they use.
    fn relation(&self, name: &[u8]) -> Volatility;

    /// Returns the worst volatility of code that is called unnamed: by operators, casts, types.
    fn implied(&self) -> Volatility {
        Volatility::None
    }

    /// Returns the pins that such implicit code may cause. `None`: users can replace none of it.
    fn implicit_pins(&self) -> Option<Pins> {
        None
    }

    /// Returns the pins that event triggers may cause. `None`: there are none.
    fn event_pins(&self) -> Option<Pins> {
        None
    }

    /// Returns the pins that a call of a function or procedure of that name may cause. `None`: none
    /// of that name is known.
    fn call_pins(&self, name: &[u8]) -> Option<Pins> {
        let _ = name;
        Some(Pins::NONE)
    }

    /// Returns whether users have created functions of that name.
    fn is_user_function(&self, name: &[u8]) -> bool {
        let _ = name;
        false
    }

    /// Returns whether any function that does more than read can be called as a field of a row.
    fn has_row_functions(&self) -> bool {
        false
    }

    /// Returns whether there are languages in which functions keep state that later sessions find.
    fn has_languages(&self) -> bool {
        false
    }

    /// Returns whether `row.name` may call such a function, see
    /// [`CatalogLookup::has_row_functions`].
    fn is_row_function(&self, name: &[u8]) -> bool {
        let _ = name;
        false
    }

    /// Returns whether reading from, or writing to, a relation of that name runs user-defined code.
    fn runs_code(&self, name: &[u8], is_written: bool) -> bool {
        let _ = (name, is_written);
        false
    }

    /// Returns the settings with a dot in their names, which no catalog of the server lists, that
    /// any function sets by a name in its body.
    fn custom_settings(&self) -> &[Box<[u8]>] {
        &[]
    }

    /// Returns the pins that triggers may cause on writing to the named table or reading from it.
    fn triggers(&self, name: &[u8]) -> Pins {
        let _ = name;
        Pins::NONE
    }

    /// Returns the pins that functions may cause on reading from the named view.
    fn views(&self, name: &[u8]) -> Pins {
        let _ = name;
        Pins::NONE
    }
}

/// Analysis of one text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextAnalysis {
    /// Statements for the router, in order.
    pub statements: SmallVec<[RoutedStatement; 1]>,
    /// Routing hint from a comment.
    pub hint: Option<RoutingHint>,
    /// Effects on the session, in the order of the statements; mostly empty.
    pub effects: SmallVec<[Effect; 1]>,
    /// Change of the database's catalog.
    pub catalog_change: CatalogChange,
    /// True if temporary objects may now shadow objects of the same names.
    pub may_shadow_tables: bool,
    /// Use of sequences.
    pub sequences: SequenceUse,
    /// True if called code may act outside of its transaction, whose outcome then proves nothing.
    pub has_external_effects: bool,
    /// Change to how later texts of the session are parsed.
    pub parsing_change: ParsingChange,
    /// True if effects may occur after the end of the text: through a cursor, a statement that it
    /// prepares, or a trigger that is deferred until COMMIT.
    pub may_run_later: bool,
    /// True if the text may set an unknown search path, even if only for its transaction.
    pub may_set_search_path: bool,
    /// True if the text may write; reading the write needs a position sampled after its commit.
    pub writes: bool,
    /// Digest of the text, used for its statistics; zero if none.
    pub digest: u64,
    /// The first object of the text that pins, for display.
    pub object: Option<Box<str>>,
    /// The text, for display, if it may pin.
    pub source: Option<Arc<PinSource>>,
    /// The effect on whole databases, if any.
    pub database_change: Option<Box<DatabaseChange>>,
}

/// Use of sequences by a text, as far as is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SequenceUse {
    /// True if it calls `nextval()`, so that `lastval()` is its own.
    pub draws: bool,
    /// Calls of `lastval()` or `currval()`.
    pub reads: SequenceReads,
}

/// Calls of `lastval()` or `currval()` by a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum SequenceReads {
    /// None.
    #[default]
    None,
    /// Code of which nothing is known may call them.
    Unknown,
    /// One or more.
    Some,
}

impl SequenceUse {
    fn add(&mut self, other: SequenceUse) {
        self.draws |= other.draws;
        self.reads = self.reads.max(other.reads);
    }
}

/// Change of a database's catalog by a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum CatalogChange {
    /// None.
    #[default]
    None,
    /// Objects other than functions may differ after the text.
    Objects,
    /// Functions may differ after the text, and other objects.
    Functions,
}

/// Effect of a text on whole databases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseChange {
    /// Database that all other sessions must leave before the statement has an effect.
    pub database: Box<str>,
    /// Names whose meaning changes: dropped, created, or renamed.
    pub affected_names: Box<[Box<str>]>,
    /// True if the database continues to exist under another name.
    pub is_rename: bool,
}

/// Effect of a statement on its session.
pub type Effect = super::effects::Effect<EffectKind>;

/// Kind of an effect on the session. All but [`EffectKind::Pin`] apply only after the server
/// reports that the statement is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EffectKind {
    /// Pins as soon as the statement is sent, and remains even if the statement fails.
    Pin(Pin),
    /// Pins when the statement is complete; a failure undoes it.
    PinOnSuccess(Pin),
    /// Ends pins when the transaction of the statement commits.
    Release(UnpinEvent),
    /// A setting of the session: the name in lower case, the value in the form for `set_config`.
    Set {
        /// Name of the setting.
        name: Box<[u8]>,
        /// New value.
        value: Box<[u8]>,
    },
    /// Sets this setting to a value that the text does not show, which pins
    /// ([`Pin::NamedSettings`]).
    SetUnknown(Box<[u8]>),
    /// Resets the setting to its value at the start of the session.
    Reset(Box<[u8]>),
    /// RESET ALL.
    ResetAll,
    /// Modes of the current transaction only.
    SetTransaction(TransactionModes),
    /// COMMIT or PREPARE TRANSACTION.
    Commit,
    /// ROLLBACK.
    Rollback,
    /// SAVEPOINT.
    Savepoint(Box<[u8]>),
    /// RELEASE.
    ReleaseSavepoint(Box<[u8]>),
    /// ROLLBACK TO.
    RollbackTo(Box<[u8]>),
    /// PREPARE in SQL, which pins ([`Pin::Prepared`]).
    Prepare(Box<[u8]>),
    /// EXECUTE in SQL.
    Execute(Box<[u8]>),
    /// DEALLOCATE of one statement.
    Deallocate(Box<[u8]>),
    /// DEALLOCATE ALL.
    DeallocateAll,
    /// DISCARD.
    Discard(Discard),
}

impl PinEffect for EffectKind {
    fn pin(pin: Pin) -> Self {
        EffectKind::Pin(pin)
    }

    fn pin_on_success(pin: Pin) -> Self {
        EffectKind::PinOnSuccess(pin)
    }

    fn release(event: UnpinEvent) -> Self {
        EffectKind::Release(event)
    }
}

impl TextAnalysis {
    /// Returns whether other literals in the text leave the analysis unchanged: the text is one
    /// plain read or write without effects.
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        is_one_plain(&self.statements)
            && self.effects.is_empty()
            && self.hint.is_none()
            && self.catalog_change == CatalogChange::None
            && !self
                .statements
                .iter()
                .any(|one| one.traits.any(RoutingTraits::ASSIGNS))
    }

    /// Returns whether earlier plans may become invalid. An unreadable text does not count, since
    /// otherwise no plan could be shared.
    #[must_use]
    pub fn changes_plans(&self) -> bool {
        let changes = |one: &RoutedStatement| {
            matches!(one.kind, StatementClass::Ddl | StatementClass::Routine)
        };
        self.catalog_change > CatalogChange::None && self.statements.iter().any(changes)
    }

    /// Returns whether the text creates objects that may be temporary without a keyword for it.
    #[must_use]
    pub fn creates_tables(&self) -> bool {
        let makes = |one: &RoutedStatement| {
            one.kind == StatementClass::Ddl || one.traits.any(RoutingTraits::MAKES_TABLE)
        };
        self.catalog_change > CatalogChange::None && self.statements.iter().any(makes)
    }

    /// Returns whether any statement is a CALL or DO, which may commit before it ends.
    #[must_use]
    pub(crate) fn runs_procedures(&self) -> bool {
        self.statements
            .iter()
            .any(|one| one.kind == StatementClass::Routine)
    }

    /// Returns whether the end of any statement is relevant to the session.
    #[must_use]
    pub fn has_effects(&self) -> bool {
        !self.effects.is_empty() || self.runs_procedures()
    }

    /// Returns the effects of one statement of the text.
    pub fn effects_of(&self, statement: usize) -> &[Effect] {
        super::effects::effects_of(&self.effects, statement)
    }

    /// Returns the analysis of a text with more effects or statements than are tracked.
    fn too_large(hint: Option<RoutingHint>) -> TextAnalysis {
        TextAnalysis {
            hint,
            parsing_change: ParsingChange::Anything,
            may_set_search_path: true,
            may_run_later: true,
            ..TextAnalysis::unreadable()
        }
    }

    /// Returns the analysis of a text that cannot be parsed because of its encoding.
    #[must_use]
    pub fn unreadable() -> TextAnalysis {
        TextAnalysis {
            statements: unknown_statements(),
            hint: None,
            effects: unknown_effects(),
            catalog_change: CatalogChange::Functions,
            may_shadow_tables: true,
            sequences: SequenceUse {
                draws: false,
                reads: SequenceReads::Unknown,
            },
            has_external_effects: true,
            parsing_change: ParsingChange::Nothing,
            may_set_search_path: false,
            may_run_later: false,
            writes: true,
            digest: 0,
            database_change: None,
            object: None,
            source: None,
        }
    }
}

/// Analyzes a text. `backslashes`: `standard_conforming_strings` of the session is off. If its
/// `client_encoding` is not [`postgres::encoding_is_safe`], use [`TextAnalysis::unreadable`]
/// instead.
#[must_use]
pub fn read(text: &[u8], backslashes: bool, catalog: Option<&dyn CatalogLookup>) -> TextAnalysis {
    analyze_with_doubts(text, backslashes, catalog, false)
}

/// Analyzes a text like [`read`]. `doubts_functions`: user functions may have changed
/// since the catalog was read.
#[must_use]
pub fn analyze_with_doubts(
    text: &[u8],
    backslashes: bool,
    catalog: Option<&dyn CatalogLookup>,
    doubts_functions: bool,
) -> TextAnalysis {
    let facts = postgres::facts(text, backslashes);
    if facts.is_cut() {
        return TextAnalysis::too_large(facts.hint().map(RoutingHint::of));
    }
    let mut analysis = TextAnalysis {
        statements: SmallVec::new(),
        hint: facts.hint().map(RoutingHint::of),
        effects: SmallVec::new(),
        catalog_change: CatalogChange::None,
        may_shadow_tables: false,
        sequences: SequenceUse::default(),
        has_external_effects: false,
        parsing_change: ParsingChange::Nothing,
        may_set_search_path: false,
        may_run_later: false,
        writes: false,
        digest: 0,
        object: None,
        source: None,
        database_change: None,
    };
    let mut context = AnalysisContext {
        text,
        backslashes,
        catalog,
        doubts_functions,
    };
    for (index, statement) in facts.statements().enumerate() {
        let mut routed = routing::statement(&context, statement);
        let catalog_change = routing::catalog_change(&context, statement, &routed);
        analysis.catalog_change = analysis.catalog_change.max(catalog_change);
        let mut effects = effects::EffectCollector::of(index, &mut analysis.effects);
        effects::collect(&context, statement, &mut effects);
        routed.calls = effects.volatility(routed.calls);
        analysis.writes |= routing::may_write(statement.kind, &routed);
        analysis.statements.push(routed);
        analysis.object = analysis.object.take().or_else(|| effects.own.object.take());
        analysis.may_shadow_tables |= effects.may_shadow_tables(statement);
        analysis.sequences.add(effects.own.sequences);
        analysis.database_change = analysis
            .database_change
            .or_else(|| database_change(&context, statement));
        analysis.has_external_effects |= routing::acts_outside(&context, statement);
        analysis.may_run_later |=
            analysis.has_external_effects || routing::may_run_later(statement);
        let change = parsing_change::of(&context, statement, &effects);
        analysis.parsing_change = analysis.parsing_change.max(change);
        analysis.may_set_search_path |= parsing_change::sets_path(&context, statement, &effects);
        if analysis.effects.len() > EFFECTS_MAX {
            return TextAnalysis::too_large(analysis.hint);
        }
        context.doubts_functions |= analysis.catalog_change == CatalogChange::Functions;
    }
    analysis
}

/// Input for the analysis of a statement.
struct AnalysisContext<'a> {
    text: &'a [u8],
    backslashes: bool,
    catalog: Option<&'a dyn CatalogLookup>,
    /// True if user-defined functions may differ from the catalog.
    doubts_functions: bool,
}

/// Returns the effect of a statement that drops, renames, moves or copies a database.
fn database_change(
    context: &AnalysisContext<'_>,
    statement: &postgres::StatementFacts,
) -> Option<Box<DatabaseChange>> {
    if statement.kind != postgres::StatementKind::Ddl {
        return None;
    }
    let found = postgres::database_change(context.text, statement, context.backslashes)?;
    let name = |name: &[u8]| Box::from(String::from_utf8_lossy(name));
    let affected_names = found.affected_names.iter().map(|one| name(one)).collect();
    Some(Box::new(DatabaseChange {
        database: name(&found.database),
        affected_names,
        is_rename: found.is_rename,
    }))
}
