//! Analyzes MySQL texts: where a text may run, which state it leaves in the session, and which
//! results of the previous statement it reads.

mod body;
mod calls;
mod effects;
mod kills;
mod prepared;
mod routing;
mod rules;
mod set;
mod source;
mod split;
mod tables;
#[cfg(test)]
mod tests;
mod trackers;

use std::sync::Arc;

use crate::mysql::{self, LexerModes};
use evenkeel_policy::pins::{Pin, Pins, UnpinEvent};
use evenkeel_policy::route::{RoutedStatement, RoutingTraits, TransactionModes, Volatility};
use smallvec::SmallVec;

use super::super::PinSource;
pub use super::super::effects::RoutingHint;
use super::super::effects::{
    EFFECTS_MAX, PinEffect, is_one_plain, unknown_effects, unknown_statements,
};
use super::previous_results::ResultReads;
use super::variables;
pub use body::bound_by_body;
pub use kills::Kill;
use split::is_end;
pub use split::parts;

/// Catalog of a schema's routines, tables and views. Names are passed without quotes, as written.
pub trait CatalogLookup {
    /// Returns the worst volatility of all functions of that name.
    fn function(&self, name: &[u8]) -> Volatility;

    /// Returns the volatility of a read from a table, a view or another relation.
    fn relation(&self, name: &[u8]) -> Volatility;

    /// Returns the state that a call of that function or procedure may leave in the session; `None`
    /// if its body has not been read yet.
    fn call_pins(&self, name: &[u8]) -> Option<Pins> {
        let _ = name;
        None
    }

    /// Returns the state that the triggers of that table may leave in the session on a write.
    fn triggers(&self, name: &[u8]) -> Pins {
        let _ = name;
        Pins::NONE
    }

    /// Returns the state that a read from that view may leave in the session through its functions.
    fn views(&self, name: &[u8]) -> Pins {
        let _ = name;
        Pins::NONE
    }

    /// Returns whether any known routine, trigger or view leaves state in the session, or reads
    /// results of another statement. Most servers have none.
    fn has_pins(&self) -> bool {
        true
    }
}

/// Analysis of a text. The default is that of a command without a text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TextAnalysis {
    /// Statements in their order, for routing.
    pub statements: SmallVec<[RoutedStatement; 1]>,
    /// Routing hint in a comment.
    pub hint: Option<RoutingHint>,
    /// Effects on the session, in the order of the statements; usually none.
    pub effects: SmallVec<[Effect; 1]>,
    /// Changes that other sessions may see.
    pub change: DataChange,
    /// True if it sets global variables, which apply to new sessions.
    pub sets_globals: bool,
    /// Results of the previous statement that it reads.
    pub needs: ResultReads,
    /// Part in a transaction.
    pub unit: TransactionPart,
    /// KILL of connections.
    pub kill: Kill,
    /// Form that needs special handling.
    pub form: TextForm,
    /// True if it executes routines or triggers that leave or may leave state in the session. Their
    /// errors may have any number.
    pub(super) runs_routines: bool,
    /// True if none of its statements can begin a transaction unless the server reports it: they
    /// use no table.
    pub(super) is_tableless: bool,
    /// True if each of its reads sets FOUND_ROWS(): each is a SELECT, none a SHOW or EXPLAIN.
    pub(super) counts_rows: bool,
    /// Digest under which the text is counted; zero if there is none.
    pub digest: u64,
    /// Text for display, if it may pin the session.
    pub source: Option<Arc<PinSource>>,
    /// Server version for which it was parsed, if it has a comment that other versions may parse
    /// differently; otherwise 0.
    pub(super) read_for: u32,
    /// True if each of its statements has exactly one reply.
    pub(super) is_counted: bool,
}

/// Changes by a text that other sessions may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum DataChange {
    /// None.
    #[default]
    None,
    /// Possible writes. A reader that must see the write needs the GTID of its commit.
    Data,
    /// Possible writes, and changes of routines, tables or views.
    Catalog,
}

/// Part of a text in a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TransactionPart {
    /// Any number of statements, of which some may be executed or committed without the others.
    #[default]
    Several,
    /// One plain statement, which is executed completely or not at all.
    Atomic,
    /// One statement, which begins a transaction.
    Begin,
}

/// Form of a text that needs special handling. A text that has two of them has the later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum TextForm {
    /// None of these.
    #[default]
    Plain,
    /// Execution of an inner statement and nothing else (`EXECUTE IMMEDIATE`, `SET STATEMENT …
    /// FOR`).
    LiteralText,
    /// Definition of a stored program, of which it is unknown where it ends, and whether a
    /// statement follows.
    StoredProgram,
    /// Use of session trackers, which it reads or sets, without other effects. The client's
    /// trackers must be enabled while it runs.
    Trackers,
}

/// Effect of a statement on its session.
pub type Effect = super::super::effects::Effect<EffectKind>;

/// Kind of effect of a statement on its session. Most kinds apply only if the statement succeeds.
/// [`EffectKind::Pin`], [`EffectKind::Execute`], [`EffectKind::CreateUnknown`],
/// [`EffectKind::ComputeUser`] and [`EffectKind::SetByRoutine`] apply to a failed statement too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EffectKind {
    /// A pin even if the statement fails, provided that the server has executed a part of it.
    Pin(Pin),
    /// A pin if the statement succeeds.
    PinOnSuccess(Pin),
    /// A variable, by its name in lower case, set to a value that pins until the server reports
    /// another one. Pins until a reset unless the server reports this value.
    SetPinning(Box<[u8]>, Pin),
    /// An event that ends pins.
    Release(UnpinEvent),
    /// An assignment of a literal to a user variable.
    SetUser {
        /// Name in lower case, without the `@`.
        name: Box<[u8]>,
        /// Assigned value.
        value: Value,
    },
    /// Assignments to these user variables, by their names in lower case without the `@`, of values
    /// that only the server knows.
    ComputeUser(Box<[Box<[u8]>]>),
    /// A call of GET_LOCK whose value is the only one in the reply, with the name of the lock if
    /// the text shows it.
    TakeLock(Option<Box<[u8]>>),
    /// A call of RELEASE_LOCK whose value is the only one in the reply.
    GiveLock(Option<Box<[u8]>>),
    /// `timestamp`, which the server may report as the clock: a literal, or `None` for the clock.
    SetTimestamp(Option<Box<[u8]>>),
    /// A switch that the server does not report under its own name, and whether it is on now.
    SetSwitch(Box<[u8]>, bool),
    /// A restricted variable, by name, set to DEFAULT: its value on every connection.
    SetDefault(Box<[u8]>),
    /// One of the client's trackers, set to a value that only the server knows.
    SetTracker,
    /// A system variable, by its name in lower case. Pins the session unless the server reports it.
    SetVariable(Box<[u8]>),
    /// The connection's character set. Only the server knows the resulting collation.
    SetCharset,
    /// Modes of the next transaction.
    NextTransaction(TransactionModes),
    /// BEGIN, START TRANSACTION.
    Begin,
    /// COMMIT, ROLLBACK.
    End,
    /// SAVEPOINT, which begins a transaction if autocommit is off.
    Savepoint,
    /// Creation of an object of that name.
    Create(SessionObject, Box<[u8]>),
    /// Creation of objects with unknown names.
    CreateUnknown(SessionObject),
    /// Removal of an object of that name.
    Drop(SessionObject, Box<[u8]>),
    /// Renamed tables.
    RenameTables,
    /// PREPARE: the name in lower case, and the pins that its execution causes.
    Prepare(Box<[u8]>, Pins),
    /// EXECUTE of a prepared statement.
    Execute(Box<[u8]>),
    /// LAST_INSERT_ID() set to the value in the reply.
    InsertId,
    /// LAST_INSERT_ID() set to a value that only the server knows.
    InsertIdUnknown,
    /// SQL_CALC_FOUND_ROWS: the client will query FOUND_ROWS().
    FoundRows,
    /// A SET of several variables. If it fails, the first ones may be set.
    SetSeveral,
    /// A routine or trigger that may set system variables. If the result ends in an EOF, the server
    /// has reported none.
    SetByRoutine,
    /// MariaDB's SET STATEMENT: the server reports values that it restores after the statement.
    RestoreVariables,
}

/// Kind of object that a session has by name, and only on its own connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionObject {
    /// A temporary table. The name includes the schema if one is written.
    TemporaryTable,
    /// A statement prepared by PREPARE.
    Prepared,
    /// An open HANDLER.
    Handler,
    /// A lock of GET_LOCK, counted once for each acquisition.
    NamedLock,
    /// LOCK INSTANCE, BACKUP LOCK, or BACKUP STAGE.
    BackupLock,
}

/// The value of a user variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A literal as written, which means the same in every session.
    Same(Box<[u8]>),
    /// A string in the character set of the client.
    String(Box<[u8]>),
}

/// Separator between the names of a schema and a table; a dot may be a part of either.
pub(super) const IN_SCHEMA: u8 = 0;

/// Pins for SQL that cannot be analyzed. It may also set a role, which a reset keeps.
pub(super) const ANYTHING: [Pin; 6] = [
    Pin::Unknown,
    Pin::Variables,
    Pin::TemporaryTable,
    Pin::NamedLock,
    Pin::Prepared,
    Pin::Sequence,
];

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
    /// Returns whether its text with other literals has the same analysis: one plain read or write
    /// that leaves no state.
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        is_one_plain(&self.statements)
            && self.effects.is_empty()
            && self.hint.is_none()
            && self.change < DataChange::Catalog
            && self.unit != TransactionPart::Begin
            && self.kill == Kill::None
            && self.form == TextForm::Plain
    }

    /// Returns whether it acquires or queries a lock by name. Each server has its own named locks,
    /// and grants them in READ ONLY transactions too. Statements of unknown effect do not count:
    /// they may use such locks, but are mostly harmless.
    #[must_use]
    pub fn locks_by_name(&self) -> bool {
        let mut statements = self.statements.iter();
        let pins = |pin| {
            self.effects
                .iter()
                .any(|one| one.kind == EffectKind::Pin(pin))
        };
        let will_lock = |pins: &Pins| pins.has(Pin::NamedLock) && !pins.has(Pin::Unknown);
        let mut effects = self.effects.iter();
        statements.any(|one| one.traits.any(RoutingTraits::NAMED_LOCK))
            || effects
                .any(|one| matches!(&one.kind, EffectKind::Prepare(_, pins) if will_lock(pins)))
            || pins(Pin::NamedLock) && !pins(Pin::Unknown)
    }

    /// Returns whether the reply has the value of a function for named locks, and nothing else.
    #[must_use]
    pub fn answers_lock(&self) -> bool {
        let is_lock = |effect: &Effect| {
            matches!(
                effect.kind,
                EffectKind::TakeLock(_) | EffectKind::GiveLock(_)
            )
        };
        self.effects.iter().any(is_lock)
    }

    /// Returns the analysis of a text that cannot be parsed because of its character set.
    #[must_use]
    pub fn unreadable() -> TextAnalysis {
        TextAnalysis {
            statements: unknown_statements(),
            effects: unknown_effects(),
            change: DataChange::Catalog,
            needs: ResultReads::ALL.as_possible(),
            runs_routines: true,
            ..TextAnalysis::default()
        }
    }

    /// Sets the facts about a text with a single statement.
    fn set_single(&mut self, text: &[u8], kind: mysql::StatementKind) {
        self.unit = routing::transaction_part(kind);
        if let Some(kill) = kills::kill(text, kind) {
            self.kill = kill;
        }
    }

    /// Returns whether it may write.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.change > DataChange::None
    }

    /// Returns the analysis of a text with too many effects, or one that the server may parse
    /// differently.
    fn too_large(hint: Option<RoutingHint>) -> TextAnalysis {
        TextAnalysis {
            hint,
            ..TextAnalysis::unreadable()
        }
    }

    /// Returns whether ROW_COUNT() after the text is the number of changed rows in its last OK, or
    /// -1 if a result or an error ends it. GET DIAGNOSTICS leaves an earlier value in place; code
    /// of routines may set another one.
    #[must_use]
    pub fn counts_rows_in_reply(&self) -> bool {
        self.is_counted && !self.needs.intersects(ResultReads::DIAGNOSTICS)
    }

    /// Returns whether the statement that the `index`th reply completes may have written.
    /// `is_last`: no other reply follows.
    #[must_use]
    pub fn may_write_at(&self, index: usize, is_last: bool) -> bool {
        let statement = self.statements.get(index);
        match self.is_counted {
            true => statement.is_none_or(routing::may_write),
            // The last reply also reports what the earlier ones did not.
            false => self.writes() && is_last,
        }
    }

    /// Returns whether the statement of that index may begin a transaction if autocommit is off,
    /// although the server reports none.
    pub(super) fn may_begin_at(&self, index: usize) -> bool {
        let statement = self.statements.get(index);
        !self.is_tableless && statement.is_some_and(routing::may_begin)
    }

    /// Returns the effects of one statement, provided that each statement has one reply.
    pub(super) fn effects_of(&self, statement: usize) -> &[Effect] {
        super::super::effects::effects_of(&self.effects, statement)
    }
}

impl SessionObject {
    /// Returns the reason for which it pins the session.
    pub(super) const fn pin(self) -> Pin {
        match self {
            SessionObject::TemporaryTable => Pin::TemporaryTable,
            SessionObject::Prepared => Pin::Prepared,
            SessionObject::Handler => Pin::Handler,
            SessionObject::NamedLock => Pin::NamedLock,
            SessionObject::BackupLock => Pin::BackupLock,
        }
    }
}

/// Returns the analysis of a text. If the session's character set is not
/// [`mysql::charset_is_safe`], no text can be parsed: use [`TextAnalysis::unreadable`] instead.
#[must_use]
pub fn read(text: &[u8], modes: LexerModes, lookup: Option<&dyn CatalogLookup>) -> TextAnalysis {
    read_at(text, modes, lookup, 0)
}

/// Maximum depth of texts within texts; deeper ones are not parsed.
const DEPTH_MAX: u32 = 3;

fn read_at(
    text: &[u8],
    modes: LexerModes,
    lookup: Option<&dyn CatalogLookup>,
    depth: u32,
) -> TextAnalysis {
    let facts = mysql::facts(text, modes);
    if facts.is_cut() || mysql::has_nbsp_outside_quotes(text, modes) {
        return TextAnalysis::too_large(facts.hint().map(RoutingHint::of));
    }
    let context = AnalysisContext {
        text,
        modes,
        lookup,
        is_single: facts.single().is_some(),
        depth,
    };
    if let Some(inner) = facts.single().and_then(|one| context.inner(one)) {
        return TextAnalysis {
            hint: facts.hint().map(RoutingHint::of),
            form: inner.form.max(TextForm::LiteralText),
            read_for: inner.read_for.max(context.read_for(&facts)),
            ..inner
        };
    }
    let mut analysis = TextAnalysis {
        hint: facts.hint().map(RoutingHint::of),
        is_counted: true,
        is_tableless: true,
        counts_rows: true,
        read_for: context.read_for(&facts),
        ..TextAnalysis::default()
    };
    let mut answered = ResultReads::NONE;
    for (index, statement) in facts.statements().enumerate() {
        let (routed, traits) = (routing::statement(&context, statement), statement.traits);
        analysis.is_tableless &= !routing::may_begin(&routed) || routing::is_tableless(statement);
        analysis.counts_rows &= routing::counts_rows(&context, statement);
        analysis.sets_globals |= traits.any(mysql::StatementTraits::SETS_GLOBAL);
        analysis.change = analysis.change.max(routing::change(statement, &routed));
        // Results of a statement of the same text are not those of the previous text.
        let needs = routing::needs(&context, statement).without(answered);
        analysis.needs = analysis.needs.and(needs);
        answered = answered.and(routing::answers(statement.kind));
        analysis.is_counted &= routing::has_one_reply(statement.kind);
        analysis.form = analysis.form.max(routing::form(statement));
        if kills::kills(&context, statement) {
            analysis.kill = Kill::Unknown;
        }
        analysis.statements.push(routed);
        let mut effects = effects::EffectCollector::of(index, &mut analysis.effects);
        effects::collect(&context, statement, &mut effects);
        analysis.runs_routines |= effects.own.runs_routines;
        if analysis.effects.len() > EFFECTS_MAX {
            return TextAnalysis::too_large(analysis.hint);
        }
    }
    if let Some(one) = facts.single() {
        analysis.set_single(text, one.kind);
    } else {
        pin_doubtful_strings(&mut analysis);
        if set::changes_parsing(&context, &facts) || set::may_change_parsing_within(text, &analysis)
        {
            set::mark_unreadable(&mut analysis);
        }
    }
    trackers::check(&context, &facts, &mut analysis);
    analysis
}

/// Handles string assignments that follow a change of the connection's character set in the same
/// text. A string has the character set that is set when its statement is parsed.
fn pin_doubtful_strings(analysis: &mut TextAnalysis) {
    let changes = |effect: &&Effect| match &effect.kind {
        EffectKind::SetCharset => true,
        EffectKind::SetVariable(name) => variables::is_charset(name),
        _ => false,
    };
    let Some(first) = analysis.effects.iter().find(changes) else {
        return;
    };
    let first = first.statement;
    for effect in analysis
        .effects
        .iter_mut()
        .filter(|one| one.statement > first)
    {
        if let EffectKind::SetUser {
            name,
            value: Value::String(_),
        } = &effect.kind
        {
            effect.kind = EffectKind::ComputeUser([name.clone()].into());
        }
    }
}

/// Context of the analysis of a statement.
struct AnalysisContext<'a> {
    text: &'a [u8],
    modes: LexerModes,
    lookup: Option<&'a dyn CatalogLookup>,
    /// True if the text has exactly one statement.
    is_single: bool,
    depth: u32,
}

impl<'a> AnalysisContext<'a> {
    /// Returns the tokens of a statement.
    fn tokens(&self, statement: &mysql::StatementFacts) -> mysql::Tokens<'a> {
        mysql::Tokens::new(statement.span.of(self.text), self.modes)
    }

    /// Returns the value of [`TextAnalysis::read_for`].
    fn read_for(&self, facts: &mysql::TextFacts<'_>) -> u32 {
        let mut statements = facts.statements();
        match statements.any(|one| one.traits.any(mysql::StatementTraits::VERSIONED)) {
            true => self.modes.version,
            false => 0,
        }
    }

    /// Returns the analysis of a statement that this one only executes: that in MariaDB's `SET
    /// STATEMENT … FOR …` and `EXECUTE IMMEDIATE '…'`.
    fn inner(&self, statement: &mysql::StatementFacts) -> Option<TextAnalysis> {
        let is_unknown = statement.kind == mysql::StatementKind::Unknown;
        if !is_unknown || self.depth >= DEPTH_MAX || !self.modes.mariadb {
            return None;
        }
        let sql = statement.span.of(self.text);
        let (inner, restores) = body::within(sql, self.modes)?;
        let depth = self.depth.saturating_add(1);
        let mut analysis = read_at(&inner, self.modes, self.lookup, depth);
        let mut effects = analysis.effects.iter();
        let sets = effects.any(|effect| {
            !matches!(
                effect.kind,
                EffectKind::Pin(_)
                    | EffectKind::FoundRows
                    | EffectKind::ComputeUser(_)
                    | EffectKind::TakeLock(_)
                    | EffectKind::GiveLock(_)
            )
        });
        // Several statements would not be executed at all.
        if analysis.statements.len() != 1 || restores && sets {
            return None;
        }
        if restores {
            analysis.effects.push(Effect {
                statement: 0,
                kind: EffectKind::RestoreVariables,
            });
        }
        if analysis.unit == TransactionPart::Begin {
            analysis.unit = TransactionPart::Several;
        }
        if analysis.kill != Kill::None {
            analysis.kill = Kill::Unknown;
        }
        Some(analysis)
    }
}
